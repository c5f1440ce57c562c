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
/// The same, quickly: it knows the link. `seed`: of the order in which work on streams runs; 0: at once.
pumpgraph_session *makeQuickFakeSession(std::uint64_t budgetBytes, std::uint32_t seed = 0,
                                        std::uint64_t hostLimitBytes = 0);
/// On the driver of the one before.
pumpgraph_session *makeAnotherFakeSession(std::uint64_t budgetBytes);
/// After the sessions are gone.
void destroyFakeDriver();

/// Launches on a capturing stream: *counter += 1.
void launchIncrement(pumpgraph_stream stream, std::uint64_t *counter);
/// Launches on a capturing stream: *to = *from + 1.
void launchSuccessor(pumpgraph_stream stream, std::uint64_t *to, std::uint64_t *from);
/// Fills `bytes` at `target`.
void launchFill(pumpgraph_stream stream, void *target, unsigned char value, std::uint64_t bytes);

/// A stream that no other one waits for, and work on it outside a capture.
pumpgraph_stream createFakeStream();
void fillOn(pumpgraph_stream stream, void *target, unsigned char value, std::uint64_t bytes);
void copyOn(pumpgraph_stream stream, void *target, void *source, std::uint64_t bytes);
void waitForFakeStream(pumpgraph_stream stream);
/// A capture of the program's own.
void beginFakeCapture(pumpgraph_stream stream);
pumpgraph_cuda_graph endFakeCapture(pumpgraph_stream stream);
void destroyFakeGraph(pumpgraph_cuda_graph graph);
/// The `nth` wait for the device from now on fails as during a capture.
void failFakeWait(int nth);
/// Whether it has not come.
bool stopFailingFakeWait();

} // namespace pumpgraph::test
