// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/PlannedTogether.h"

#include "runtime/lower/ReplaceFills.h"
#include "runtime/session/Replanner.h"
#include "runtime/session/Report.h"
#include "runtime/state/Exchange.h"
#include "runtime/state/Values.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace pumpgraph::runtime {

std::size_t PlannedTogether::addBystanders(CapturedStep &captured, const std::vector<StepState *> &owners,
                                           const Residence &theirs) {
  std::size_t added = 0;
  for (const BlockId block : theirs.blocksInFramesBeside(captured.blocks))
    for (const StepState *owner : owners) {
      const std::vector<BlockId> &blocks = owner->captured.blocks;
      const auto found = std::find(blocks.begin(), blocks.end(), block);
      if (found == blocks.end())
        continue;
      Buffer buffer = owner->captured.description.buffers[static_cast<std::size_t>(found - blocks.begin())];
      buffer.liveIn = buffer.liveOut = true;
      captured.description.buffers.push_back(std::move(buffer));
      captured.blocks.push_back(block);
      ++added;
      break;
    }
  return added;
}

PlannedTogether::PlannedTogether(const std::vector<StepState *> &steps, const StepState &adopted,
                                 const Compiler &compiler)
    : session_(adopted.session), adopted_(adopted), compiler_(compiler) {
  members_.reserve(steps.size());
  for (StepState *step : steps) {
    CapturedStep captured = step->captured;
    captured.blocks.resize(captured.blocks.size() - step->bystanders);
    captured.description.buffers.resize(captured.blocks.size());
    members_.push_back({*step, Rewriting(*step, compiler), std::move(captured)});
  }
}

std::vector<std::string> PlannedTogether::names() const {
  std::vector<std::string> names;
  for (const Member &member : members_)
    names.push_back(member.step.name());
  return names;
}

std::vector<const StepState *> PlannedTogether::later(std::size_t place) const {
  std::vector<const StepState *> steps;
  for (std::size_t after = place + 1; after < members_.size(); ++after)
    steps.push_back(&members_[after].step);
  steps.push_back(&adopted_);
  return steps;
}

std::uint64_t PlannedTogether::framesBeside(std::size_t place) const {
  const StepState &step = members_[place].step;
  std::uint64_t frames = otherFrames(step);
  const std::set<BlockId> moving = movableBlocks(session_);
  std::set<BlockId> seen(step.captured.blocks.begin(), step.captured.blocks.end());
  for (const StepState *other : later(place))
    for (BufferIndex buffer = 0; buffer < other->captured.blocks.size(); ++buffer) {
      const BlockId id = other->captured.blocks[buffer];
      const Buffer &described = other->captured.description.buffers[buffer];
      if (!seen.insert(id).second)
        continue;
      const Block &block = session_.memory.heap->block(id);
      if (block.backing == Backing::Device && !moving.contains(id))
        frames -= block.pages; // its memory is the other step's, which has to do with what is left
      if (!described.isPrivate || described.isPresent)
        frames += block.pages;
    }
  return frames;
}

std::vector<pumpgraph_apart_pages> PlannedTogether::usedTogether(std::size_t place) const {
  const CapturedStep &captured = members_[place].step.captured;
  std::map<BlockId, BufferIndex> kept;
  for (BufferIndex buffer = 0; buffer < captured.blocks.size(); ++buffer)
    if (const Buffer &described = captured.description.buffers[buffer];
        described.isPrivate && (described.liveIn || described.liveOut))
      kept.emplace(captured.blocks[buffer], buffer);
  using Pages = std::pair<BufferIndex, std::pair<std::uint64_t, std::uint64_t>>; // from, and how many bytes
  std::set<std::set<Pages>> groups;
  for (const StepState *other : later(place))
    for (const Node &node : other->captured.description.nodes) {
      std::set<Pages> group;
      std::uint64_t bytes = 0;
      for (const Access &access : node.accesses)
        if (const auto found = kept.find(other->captured.blocks[access.buffer]);
            found != kept.end() && group.insert({found->second, {access.range.offset, access.range.size}}).second)
          bytes += access.range.size;
      if (group.size() > 1 || bytes > 1)
        groups.insert(std::move(group));
    }
  std::vector<pumpgraph_apart_pages> apart;
  std::uint32_t number = 0;
  for (const std::set<Pages> &group : groups) {
    for (const auto &[buffer, range] : group)
      apart.push_back({number, buffer, range.first, range.second});
    ++number;
  }
  return apart;
}

void PlannedTogether::swapCaptured(Member &member) {
  std::swap(member.step.captured, member.captured);
  std::swap(member.step.bystanders, member.bystanders);
}

Status PlannedTogether::plan() {
  std::vector<StepState *> steps;
  for (const Member &member : members_)
    steps.push_back(&member.step);
  for (std::size_t place = 0; place < members_.size(); ++place) {
    Member &member = members_[place];
    if (place > 0)
      member.bystanders = addBystanders(member.captured, steps, *members_[place - 1].memory);
    swapCaptured(member);
    const Status planned = planMember(place);
    swapCaptured(member);
    PUMPGRAPH_TRY(planned);
  }
  return {};
}

Status PlannedTogether::planMember(std::size_t place) {
  Member &member = members_[place];
  std::unique_ptr<Residence> others =
      place > 0 ? members_[place - 1].memory->forStep(member.step.captured.blocks) : nullptr;
  Expected<CompiledPlan> plan = member.rewriting.plan(framesBeside(place), "", others.get(), usedTogether(place));
  if (!plan)
    return tl::unexpected<Error>(plan.error());
  PUMPGRAPH_TRY(checkFills(*session_.driver, member.step.captured.nodes, plan->lowered));
  Expected<std::shared_ptr<Residence>> memory = member.rewriting.prepare(*plan, std::move(others));
  if (!memory)
    return tl::unexpected<Error>(memory.error());
  member.plan = std::move(*plan);
  member.memory = std::move(*memory);
  return {};
}

Status PlannedTogether::take(const std::shared_ptr<Residence> &memory) {
  isTaken_ = true;
  for (Member &member : members_) {
    member.wasWatched = member.step.planning.replanner != nullptr;
    PUMPGRAPH_TRY(stopReplanning(member.step));
  }
  PUMPGRAPH_TRY(takePlanBack(session_)); // that of a step that was timed
  for (Member &member : members_) {
    Expected<std::shared_ptr<Residence>> old = member.rewriting.takeBack(Keep::Values);
    if (!old)
      return tl::unexpected<Error>(old.error());
    swapCaptured(member);
    CompiledPlan plan = std::exchange(member.plan, member.step.plan);
    member.memory = std::move(*old);
    member.isExchanged = true;
    PUMPGRAPH_TRY_WHILE(member.rewriting.putInForce(std::move(plan), memory, Keep::Values),
                        "planning \"{}\" again for a boundary with \"{}\"", member.step.name(), adopted_.name());
  }
  return {};
}

Status PlannedTogether::giveBack() {
  if (Status back = takePlanBack(session_); !back) { // the memory is that of a step too which there will not be
    for (const Member &member : members_)
      session_.values.lost.insert(member.step.captured.blocks.begin(), member.step.captured.blocks.end());
    return back;
  }
  Status done;
  for (Member &member : members_)
    if (const Status back = giveBack(member); !back)
      done = inContext(back.error(), fmt::format("returning to the plan that \"{}\" had", member.step.name()));
  isTaken_ = false;
  PUMPGRAPH_TRY(done);
  return takePlanBack(session_);
}

Status PlannedTogether::giveBack(Member &member) {
  StepState &step = member.step;
  Status done;
  if (std::exchange(member.isExchanged, false)) {
    if (step.memory.residence) // not where the new plan could not be put in force
      if (const Expected<std::shared_ptr<Residence>> taken = member.rewriting.takeBack(Keep::Values); !taken)
        return tl::unexpected<Error>(taken.error());
    swapCaptured(member);
    if (isLost(session_, step.captured.blocks))
      done = fail(PUMPGRAPH_INTERNAL, "its memory is lost");
    else
      done = member.rewriting.putInForce(std::move(member.plan), member.memory, Keep::Values);
    if (!done)
      step.memory.residence = member.memory; // without its copies in the graph: replays refuse
  }
  if (member.wasWatched && done)
    watchReplays(step, compiler_);
  return done;
}

void PlannedTogether::keep() {
  for (Member &member : members_) {
    StepState &step = member.step;
    Heap &heap = *session_.memory.heap;
    for (const BlockId block : step.captured.blocks)
      heap.retain(heap.block(block));
    for (const BlockId block : member.captured.blocks)
      heap.release(heap.block(block));
    beginPlan(step, std::string(step.history.plans.back().costs),
              fmt::format("\"{}\" shares its boundary", adopted_.name()));
    if (member.wasWatched)
      watchReplays(step, compiler_);
    writeReport(step);
  }
}

} // namespace pumpgraph::runtime
