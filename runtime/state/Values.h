// SPDX-License-Identifier: Apache-2.0
/// \file
/// Values of blocks: whose they are, whether they are lost, and reading and writing them where they are.
#pragma once

#include "runtime/state/StepState.h"

namespace pumpgraph::runtime {

/// Whether a block's contents matter between replays.
bool hasValue(const SessionState &session, const Block &block);
std::vector<BlockId> blocksWithValues(const SessionState &session);
/// Private blocks of rewritten steps that are no step's exclusive ones: nothing outside steps touches them.
std::set<BlockId> movableBlocks(const SessionState &session);
/// Whether a rewritten step uses the block.
bool isPlanned(const SessionState &session, BlockId block);
/// Whether a driver failure has left one of these blocks between two states.
bool isLost(const SessionState &session, const std::vector<BlockId> &blocks);
/// PUMPGRAPH_INTERNAL with its name, where that holds for the block.
Status checkHasValue(const SessionState &session, BlockId block);
/// PUMPGRAPH_INTERNAL where a driver failure has left the step without the memory its plan wants.
Status checkMemory(const StepState &step);
/// A buffer's value at the boundary, wherever it is.
Status readValue(StepState &step, BufferIndex buffer, char *target);
Status writeValue(StepState &step, BufferIndex buffer, const char *source);

} // namespace pumpgraph::runtime
