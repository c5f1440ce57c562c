// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a test asks of the compiler library that lets a buffer go on at another address.
#pragma once

#include <cstdint>

namespace pumpgraph::runtime::test {

enum class Continuing : std::uint8_t {
  AtLastUse,      ///< the last node that touches it has another address
  AtEachUse,      ///< every node has another one than the node before
  AtTwoAddresses, ///< the last node is said to have both
  HostedBefore,   ///< as AtLastUse; until then it is in host memory, where nodes reach it
  HostedAfter,    ///< from then on it is
  Hosted,         ///< at either address
  InPlace         ///< as AtLastUse, in the frames that it has at the first one
};

} // namespace pumpgraph::runtime::test

/// Of plans from now on; "": none.
extern "C" __attribute__((visibility("default"))) void
pumpgraph_test_continue(const char *buffer, pumpgraph::runtime::test::Continuing way);
