// SPDX-License-Identifier: Apache-2.0
/// \file
/// A session of the public API on a fake driver. Apart from everything internal, whose names are not the public
/// header's.
#pragma once

#include "pumpgraph/pumpgraph.h"

#include <cstdint>

namespace pumpgraph::test {

/// NULL, with the reason on stderr, if it cannot be made. One at a time. `compilerLibrary`: NULL for the built one.
pumpgraph_session *makeFakeSession(std::uint64_t budgetBytes, const char *compilerLibrary = nullptr);
/// After the session is gone.
void destroyFakeDriver();

/// Launches on a capturing stream: *counter += 1.
void launchIncrement(pumpgraph_stream stream, std::uint64_t *counter);
/// Fills `bytes` at `target`.
void launchFill(pumpgraph_stream stream, void *target, unsigned char value, std::uint64_t bytes);

} // namespace pumpgraph::test
