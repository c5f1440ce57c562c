// SPDX-License-Identifier: Apache-2.0
// Which of a session's plans is in force, and how one takes the place of another.
#include "runtime/messages/NvtxRange.h"
#include "runtime/session/Step.h"

#include <algorithm>
#include <utility>

namespace pumpgraph::runtime {

Step *Session::stepInForce() const {
  const auto found = std::find_if(steps_.begin(), steps_.end(), [](const std::unique_ptr<Step> &step) {
    return step->rewritten() && step->residence_->installed();
  });
  return found == steps_.end() ? nullptr : found->get();
}

bool Session::isPlanned(BlockId block) const {
  return std::any_of(steps_.begin(), steps_.end(), [&](const std::unique_ptr<Step> &step) {
    const std::vector<BlockId> &blocks = step->captured_.blocks;
    return (step->rewritten() || (step->isManaged() && choosesByStep())) &&
           std::find(blocks.begin(), blocks.end(), block) != blocks.end();
  });
}

bool Session::isLost(const std::vector<BlockId> &blocks) const {
  const auto anyOf = [&](const auto &isIn) { return std::any_of(blocks.begin(), blocks.end(), isIn); };
  if (!lostBlocks_.empty() && anyOf([&](BlockId block) { return lostBlocks_.contains(block); }))
    return true;
  return std::any_of(steps_.begin(), steps_.end(), [&](const std::unique_ptr<Step> &step) {
    if (!step->rewritten() || !step->residence_->lost())
      return false;
    return anyOf([lost = step->residence_->blocks()](BlockId block) { return lost.contains(block); });
  });
}

Status Session::checkHasValue(BlockId block) const {
  if (!isLost({block}))
    return {};
  return fail(PUMPGRAPH_INTERNAL, "\"{}\" has lost its value in an earlier failure",
              heap_->nameAt(heap_->block(block).address));
}

std::set<BlockId> Session::movableBlocks() const {
  std::set<BlockId> movable, fixed;
  for (const std::unique_ptr<Step> &step : steps_)
    for (BufferIndex buffer = 0; buffer < step->captured_.blocks.size(); ++buffer) {
      const bool isPrivate = step->rewritten() && step->captured_.description.buffers[buffer].isPrivate;
      (isPrivate ? movable : fixed).insert(step->captured_.blocks[buffer]);
    }
  for (const BlockId block : fixed)
    movable.erase(block);
  return movable;
}

Status Session::settle(const Step &step, const char *purpose) {
  const Step *inForce = stepInForce();
  if (maps_.empty())
    return inForce ? inForce->residence_->settle() : Status{};
  // What is mapped may have the frames of values that even a step left as captured uses.
  if (!step.rewritten() && !(inForce && inForce->residence_->usesAny(step.captured_.blocks)))
    return {};
  const BlockId mapped = maps_.begin()->first;
  return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" cannot be {} while \"{}\" is mapped", step.captured_.description.name,
              purpose, heap_->nameAt(heap_->block(mapped).address));
}

void Session::replaceResidence(const std::shared_ptr<Residence> &old, const std::shared_ptr<Residence> &made) {
  for (const std::unique_ptr<Step> &step : steps_)
    if (step->residence_ && step->residence_ == old)
      step->residence_ = made;
}

std::set<BlockId> Session::notBeside(const Step &from, const Step &to) const {
  const std::set<BlockId> taken = to.residence_->blocks();
  std::uint64_t frames = to.residence_->framesWanted();
  for (const BlockId id : heap_->blocks())
    if (heap_->block(id).backing == Backing::Device && !taken.contains(id))
      frames += heap_->block(id).pages;
  const auto stays = [&](BlockId id) {
    if (frames + heap_->block(id).pages > frames_->budgetFrames())
      return false;
    frames += heap_->block(id).pages;
    return true;
  };
  std::vector<Step *> steps = from.sharers();
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
    place(from.captured_, isPrivate);
    for (const Step *step : steps)
      place(step->captured_, isPrivate);
  }
  return leaving;
}

/// What stands in the way moves to host memory, where it can be reached all the same: first what nothing but steps
/// touches. The memory of the program's own graphs stays where it is: they were instantiated on what is there.
Status Session::makeRoom(const Residence &residence) {
  const std::set<BlockId> blocks = residence.blocks();
  std::uint64_t wanted = residence.framesWanted(); // beyond those that its blocks have
  for (const BlockId id : blocks)
    if (heap_->block(id).backing == Backing::Device)
      wanted -= std::min(wanted, heap_->block(id).pages);
  if (wanted <= frames_->available())
    return {};
  PUMPGRAPH_TRY(heap_->narrowStandIns());
  PUMPGRAPH_TRY(heap_->flushCache());
  std::vector<BlockId> others = heap_->blocks();
  std::erase_if(others, [&](BlockId id) {
    const Block &block = heap_->block(id);
    return block.backing != Backing::Device || block.isOfOtherGraph() || blocks.contains(id);
  });
  const std::set<BlockId> movable = movableBlocks();
  std::stable_partition(others.begin(), others.end(), [&](BlockId id) { return movable.contains(id); });
  PUMPGRAPH_TRY_WHILE(driver_->ctxSynchronize(), "waiting for the device before memory is moved");
  for (const BlockId id : others) {
    if (wanted <= frames_->available())
      return {};
    PUMPGRAPH_TRY_WHILE(heap_->moveToHost(heap_->block(id)), "making room for a plan: moving \"{}\" to host memory",
                        heap_->nameAt(heap_->block(id).address));
  }
  return {};
}

Status Session::install(Residence &residence) {
  PUMPGRAPH_TRY(makeRoom(residence));
  return residence.install();
}

Status Session::takePlanBack() {
  Step *step = stepInForce();
  if (!step)
    return {};
  PUMPGRAPH_TRY(step->checkMemory());
  PUMPGRAPH_TRY(settle(*step, "taken back"));
  PUMPGRAPH_TRY_WHILE(step->residence_->remove(Keep::Values), "taking back the plan of \"{}\"",
                      step->captured_.description.name);
  return {};
}

Status Session::takeBack() {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  beforeCapture_ = nullptr;
  PUMPGRAPH_TRY(takePlanBack());
  for (const BlockId block : heap_->blocks())
    if (heap_->block(block).hasLiveMember())
      PUMPGRAPH_TRY(checkHasValue(block));
  return {};
}

Status Session::exchangePlans(Step *before, Step &step) {
  const NvtxRange range("pumpgraph exchange");
  PUMPGRAPH_TRY(takeMemoryFor(step)); // which takes plans back if it is other memory
  if (step.isManaged())
    return {};
  if (before)
    PUMPGRAPH_TRY_WHILE(before->residence_->remove(Keep::Values, notBeside(*before, step)),
                        "taking back the plan of \"{}\"", before->captured_.description.name);
  PUMPGRAPH_TRY_WHILE(install(*step.residence_), "putting the plan of \"{}\" in force",
                      step.captured_.description.name);
  lastInForce_ = &step;
  return {};
}

// A plan made after the step was adopted may move what the first one left on the device.
Status Session::bringValuesTo(const Step &step) {
  const Step *inForce = stepInForce();
  const auto isAtItsAddress = [&](BlockId block) { return inForce->residence_->isWhollyResident(block); };
  if (!inForce || std::all_of(step.captured_.blocks.begin(), step.captured_.blocks.end(), isAtItsAddress))
    return {};
  return takePlanBack();
}

Status Session::putInForce(Step &step) {
  if (!step.rewritten() && !step.isManaged())
    return bringValuesTo(step);
  if (step.isManaged() ? managed_ : step.residence_->installed())
    return {};
  PUMPGRAPH_TRY(step.checkMemory());
  PUMPGRAPH_TRY(paging_->settle());
  const Stopwatch watch;
  Step *before = stepInForce();
  if (before)
    PUMPGRAPH_TRY(before->checkMemory());
  const bool wasManaged = managed_;
  Status done = exchangePlans(before, step);
  if (done) {
    const double ms = watch.milliseconds();
    step.exchangeMs_ += ms;
    ++step.exchanges_;
    messages_.add(Level::Debug,
                  fmt::format("the plan of \"{}\" is in force, after {:.0f} ms", step.captured_.description.name, ms));
    return {};
  }
  if (memoryIsLost_)
    return done;
  if (managed_ != wasManaged) {
    const Expected<std::string> obstacle = wasManaged ? moveToManaged() : moveToVirtual();
    if (!obstacle || !obstacle->empty())
      return inContext(done.error(), fmt::format("the session has other memory now: {}",
                                                 obstacle ? *obstacle : obstacle.error().message));
  }
  if (before && before->checkMemory() && !before->residence_->installed())
    if (const Status back = install(*before->residence_); !back)
      return inContext(back.error(), done.error().message);
  return done;
}

} // namespace pumpgraph::runtime
