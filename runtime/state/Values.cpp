// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/Values.h"

#include "runtime/state/Backend.h"

#include <algorithm>

namespace pumpgraph::runtime {

bool hasValue(const SessionState &session, const Block &block) {
  if (session.memory.heap->isInUse(block))
    return !session.memory.heap->isOfCapture(block);
  return std::any_of(session.steps.begin(), session.steps.end(), [&](const std::unique_ptr<StepState> &step) {
    const CapturedStep &captured = step->captured;
    const auto found = std::find(captured.blocks.begin(), captured.blocks.end(), block.id);
    if (found == captured.blocks.end())
      return std::find(captured.besides.begin(), captured.besides.end(), block.id) != captured.besides.end();
    const Buffer &buffer = captured.description.buffers[static_cast<std::size_t>(found - captured.blocks.begin())];
    return buffer.liveIn || buffer.liveOut || !(step->isRewritten() || step->isManaged());
  });
}

std::vector<BlockId> blocksWithValues(const SessionState &session) {
  std::vector<BlockId> blocks = session.memory.heap->blocks();
  std::erase_if(blocks, [&](BlockId id) {
    return !session.memory.heap->block(id).hasMemory() || !hasValue(session, session.memory.heap->block(id));
  });
  return blocks;
}

std::set<BlockId> movableBlocks(const SessionState &session) {
  std::set<BlockId> movable, fixed;
  for (const std::unique_ptr<StepState> &step : session.steps)
    for (BufferIndex buffer = 0; buffer < step->captured.blocks.size(); ++buffer) {
      const bool isPrivate = step->isRewritten() && step->captured.description.buffers[buffer].isPrivate;
      (isPrivate ? movable : fixed).insert(step->captured.blocks[buffer]);
    }
  for (const BlockId block : fixed)
    movable.erase(block);
  return movable;
}

bool isPlanned(const SessionState &session, BlockId block) {
  return std::any_of(session.steps.begin(), session.steps.end(), [&](const std::unique_ptr<StepState> &step) {
    const std::vector<BlockId> &blocks = step->captured.blocks;
    return (step->isRewritten() || (step->isManaged() && choosesByStep(session))) &&
           std::find(blocks.begin(), blocks.end(), block) != blocks.end();
  });
}

bool isLost(const SessionState &session, const std::vector<BlockId> &blocks) {
  const auto anyOf = [&](const auto &isIn) { return std::any_of(blocks.begin(), blocks.end(), isIn); };
  if (!session.values.lost.empty() && anyOf([&](BlockId block) { return session.values.lost.contains(block); }))
    return true;
  return std::any_of(session.steps.begin(), session.steps.end(), [&](const std::unique_ptr<StepState> &step) {
    if (!step->isRewritten() || !step->memory.residence->lost())
      return false;
    return anyOf([lost = step->memory.residence->blocks()](BlockId block) { return lost.contains(block); });
  });
}

Status checkHasValue(const SessionState &session, BlockId block) {
  if (!isLost(session, {block}))
    return {};
  return fail(PUMPGRAPH_INTERNAL, "\"{}\" has lost its value in an earlier failure",
              session.memory.heap->nameAt(session.memory.heap->block(block).address));
}

Status checkMemory(const StepState &step) {
  if ((!step.isRewritten() || step.graph.edits) && !isLost(step.session, step.captured.blocks))
    return {};
  return fail(PUMPGRAPH_INTERNAL, "\"{}\" has lost its memory in an earlier failure; destroy it and capture anew",
              step.name());
}

Status readValue(StepState &step, BufferIndex buffer, char *target) {
  PUMPGRAPH_TRY(checkHasValue(step.session, step.captured.blocks[buffer]));
  if (step.memory.residence && step.memory.residence->installed())
    return step.memory.residence->readValue(step.captured.blocks[buffer], target);
  const Buffer &described = step.captured.description.buffers[buffer];
  PUMPGRAPH_TRY_WHILE(
      step.session.driver->memcpyDtoHAsync(target, described.address, described.size, step.session.device.stream),
      "reading \"{}\"", described.name);
  PUMPGRAPH_TRY_WHILE(step.session.driver->streamSynchronize(step.session.device.stream), "reading \"{}\"",
                      described.name);
  return {};
}

Status writeValue(StepState &step, BufferIndex buffer, const char *source) {
  PUMPGRAPH_TRY(checkHasValue(step.session, step.captured.blocks[buffer]));
  if (step.memory.residence && step.memory.residence->installed())
    return step.memory.residence->writeValue(step.captured.blocks[buffer], source);
  const Buffer &described = step.captured.description.buffers[buffer];
  PUMPGRAPH_TRY_WHILE(
      step.session.driver->memcpyHtoDAsync(described.address, source, described.size, step.session.device.stream),
      "writing \"{}\"", described.name);
  PUMPGRAPH_TRY_WHILE(step.session.driver->streamSynchronize(step.session.device.stream), "writing \"{}\"",
                      described.name);
  return {};
}

} // namespace pumpgraph::runtime
