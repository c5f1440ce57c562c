// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/Exchange.h"

#include "runtime/messages/NvtxRange.h"
#include "runtime/state/Backend.h"
#include "runtime/state/Values.h"

#include <algorithm>
#include <utility>

namespace pumpgraph::runtime {

StepState *stepInForce(const SessionState &session) {
  const auto found =
      std::find_if(session.steps.begin(), session.steps.end(), [](const std::unique_ptr<StepState> &step) {
        return step->isRewritten() && step->memory.residence->installed();
      });
  return found == session.steps.end() ? nullptr : found->get();
}

std::vector<StepState *> sharers(const StepState &step) {
  std::vector<StepState *> sharers;
  for (const std::unique_ptr<StepState> &other : step.session.steps)
    if (step.isRewritten() && other.get() != &step && other->memory.residence == step.memory.residence)
      sharers.push_back(other.get());
  return sharers;
}

std::uint64_t otherFrames(const StepState &step) {
  const Heap &heap = *step.session.memory.heap;
  std::uint64_t frames = step.session.memory.frames->created() - step.session.memory.frames->freeFrames();
  if (step.memory.residence && step.memory.residence->installed())
    frames -= step.memory.residence->frameCount();
  std::set<BlockId> moving = movableBlocks(step.session);
  moving.insert(step.captured.blocks.begin(), step.captured.blocks.end());
  for (const BlockId id : moving)
    if (heap.block(id).backing == Backing::Device)
      frames -= heap.block(id).pages;
  return frames;
}

Status settle(const StepState &step, const char *purpose) {
  const SessionState &session = step.session;
  const StepState *inForce = stepInForce(session);
  if (session.values.maps.empty())
    return inForce ? inForce->memory.residence->settle() : Status{};
  // What is mapped may have the frames of values that even a step left as captured uses.
  if (!step.isRewritten() && !(inForce && inForce->memory.residence->usesAny(step.captured.blocks)))
    return {};
  const BlockId mapped = session.values.maps.begin()->first;
  return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" cannot be {} while \"{}\" is mapped", step.name(), purpose,
              session.memory.heap->nameAt(session.memory.heap->block(mapped).address));
}

void replaceResidence(SessionState &session, const std::shared_ptr<Residence> &old,
                      const std::shared_ptr<Residence> &made) {
  for (const std::unique_ptr<StepState> &step : session.steps)
    if (step->memory.residence && step->memory.residence == old)
      step->memory.residence = made;
}

static std::set<BlockId> notBeside(const StepState &from, const StepState &to) {
  const Heap &heap = *to.session.memory.heap;
  const FramePool &pool = *to.session.memory.frames;
  const std::set<BlockId> taken = to.memory.residence->blocks();
  std::uint64_t frames = to.memory.residence->framesWanted();
  for (const BlockId id : heap.blocks())
    if (heap.block(id).backing == Backing::Device && !taken.contains(id))
      frames += heap.block(id).pages;
  const auto stays = [&](BlockId id) {
    if (frames + heap.block(id).pages > pool.budgetFrames())
      return false;
    frames += heap.block(id).pages;
    return true;
  };
  std::vector<StepState *> steps = sharers(from);
  std::set<BlockId> seen, leaving;
  const auto place = [&](const CapturedStep &captured, bool isPrivate) {
    for (BufferIndex buffer = 0; buffer < captured.blocks.size(); ++buffer) {
      const BlockId id = captured.blocks[buffer];
      const Buffer &described = captured.description.buffers[buffer];
      const bool needsMemory = described.liveIn || described.liveOut;
      if (described.isPrivate == isPrivate && needsMemory && !taken.contains(id) && seen.insert(id).second &&
          !stays(id))
        leaving.insert(id);
    }
  };
  for (const bool isPrivate : {false, true}) {
    place(from.captured, isPrivate);
    for (const StepState *step : steps)
      place(step->captured, isPrivate);
  }
  return leaving;
}

/// What stands in the way moves to host memory, where it can be reached all the same: first what nothing but steps
/// touches. The memory of the program's own graphs stays where it is: they were instantiated on what is there.
static Status makeRoom(SessionState &session, const Residence &residence) {
  Heap &heap = *session.memory.heap;
  const FramePool &frames = *session.memory.frames;
  const std::set<BlockId> blocks = residence.blocks();
  std::uint64_t wanted = residence.framesWanted(); // beyond those that its blocks have
  for (const BlockId id : blocks)
    if (heap.block(id).backing == Backing::Device)
      wanted -= std::min(wanted, heap.block(id).pages);
  if (wanted <= frames.available())
    return {};
  PUMPGRAPH_TRY(heap.narrowStandIns());
  PUMPGRAPH_TRY(heap.flushCache());
  std::vector<BlockId> others = heap.blocks();
  std::erase_if(others, [&](BlockId id) {
    const Block &block = heap.block(id);
    return block.backing != Backing::Device || block.isOfOtherGraph() || blocks.contains(id);
  });
  const std::set<BlockId> movable = movableBlocks(session);
  std::stable_partition(others.begin(), others.end(), [&](BlockId id) { return movable.contains(id); });
  PUMPGRAPH_TRY_WHILE(session.driver->ctxSynchronize(), "waiting for the device before memory is moved");
  for (const BlockId id : others) {
    if (wanted <= frames.available())
      return {};
    PUMPGRAPH_TRY_WHILE(heap.moveToHost(heap.block(id)), "making room for a plan: moving \"{}\" to host memory",
                        heap.nameAt(heap.block(id).address));
  }
  return {};
}

Status install(SessionState &session, Residence &residence) {
  PUMPGRAPH_TRY(makeRoom(session, residence));
  return residence.install();
}

Status takePlanBack(SessionState &session) {
  StepState *step = stepInForce(session);
  if (!step)
    return {};
  PUMPGRAPH_TRY(checkMemory(*step));
  PUMPGRAPH_TRY(settle(*step, "taken back"));
  PUMPGRAPH_TRY_WHILE(step->memory.residence->remove(Keep::Values), "taking back the plan of \"{}\"", step->name());
  return {};
}

static Status exchangePlans(StepState *before, StepState &step) {
  SessionState &session = step.session;
  const NvtxRange range("pumpgraph exchange");
  PUMPGRAPH_TRY(takeMemoryFor(step)); // which takes plans back if it is other memory
  if (step.isManaged())
    return {};
  if (before)
    PUMPGRAPH_TRY_WHILE(before->memory.residence->remove(Keep::Values, notBeside(*before, step)),
                        "taking back the plan of \"{}\"", before->name());
  PUMPGRAPH_TRY_WHILE(install(session, *step.memory.residence), "putting the plan of \"{}\" in force", step.name());
  session.lastInForce = &step;
  return {};
}

// A plan made after the step was adopted may move what the first one left on the device.
static Status bringValuesTo(const StepState &step) {
  SessionState &session = step.session;
  const StepState *inForce = stepInForce(session);
  const auto isAtItsAddress = [&](BlockId block) { return inForce->memory.residence->isWhollyResident(block); };
  if (!inForce || std::all_of(step.captured.blocks.begin(), step.captured.blocks.end(), isAtItsAddress))
    return {};
  return takePlanBack(session);
}

Status putInForce(StepState &step) {
  SessionState &session = step.session;
  if (!step.isRewritten() && !step.isManaged())
    return bringValuesTo(step);
  if (step.isManaged() ? session.backend.isManaged : step.memory.residence->installed())
    return {};
  PUMPGRAPH_TRY(checkMemory(step));
  PUMPGRAPH_TRY(session.memory.paging->settle());
  const Stopwatch watch;
  StepState *before = stepInForce(session);
  if (before)
    PUMPGRAPH_TRY(checkMemory(*before));
  const bool wasManaged = session.backend.isManaged;
  Status done = exchangePlans(before, step);
  if (done) {
    const double ms = watch.milliseconds();
    step.history.exchangeMs += ms;
    ++step.history.exchanges;
    session.messages.add(Level::Debug, fmt::format("the plan of \"{}\" is in force, after {:.0f} ms", step.name(), ms));
    return {};
  }
  if (session.values.allAreLost)
    return done;
  if (session.backend.isManaged != wasManaged) {
    const Expected<std::string> obstacle = wasManaged ? moveToManaged(session) : moveToVirtual(session);
    if (!obstacle || !obstacle->empty())
      return inContext(done.error(), fmt::format("the session has other memory now: {}",
                                                 obstacle ? *obstacle : obstacle.error().message));
  }
  if (before && checkMemory(*before) && !before->memory.residence->installed())
    if (const Status back = install(session, *before->memory.residence); !back)
      return inContext(back.error(), done.error().message);
  return done;
}

} // namespace pumpgraph::runtime
