// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a test asks of the compiler library that waits.
#pragma once

namespace pumpgraph::runtime::test {

enum class Aside {
  Plans,
  Waits, ///< until this is another answer
  HasNoMemory
};

} // namespace pumpgraph::runtime::test

/// The exit status of a process that ends while the library plans.
inline constexpr int pumpgraph_test_status_of_plans_without_library = 3;
/// Of planning on other threads than the one that calls this, from now on.
extern "C" __attribute__((visibility("default"))) void
pumpgraph_test_plan_aside(pumpgraph::runtime::test::Aside answer);
/// Waits until so many plans were asked for on other threads, since the process began; not for minutes.
extern "C" __attribute__((visibility("default"))) bool pumpgraph_test_wait_for_request(int count);
extern "C" __attribute__((visibility("default"))) int pumpgraph_test_requests();
