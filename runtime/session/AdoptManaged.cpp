// SPDX-License-Identifier: Apache-2.0
// Plans for managed memory, and the choice among them.
#include "runtime/session/Adoption.h"

#include "pumpgraph/graph/Ranges.h"
#include "runtime/session/Rewriting.h"

#include <algorithm>

namespace pumpgraph::runtime {

Status Adoption::rewriteManaged(const Compiler &compiler) {
  for (const std::string &refusal : step_->captured.refusals)
    step_->captured.notes.push_back("what this node touches is moved by faults: " + refusal);
  if (!accessesAreKnown_)
    step_->captured.notes.push_back(
        step_->captured.refusals.empty()
            ? "nothing is discarded: without calibration nobody knows what kernels reach by addresses in memory"
            : "nothing is discarded: not every access of the step is known");
  (void)keepOriginal(*step_); // some graphs that are fine here cannot be copied; they cannot be validated then
  Rewriting rewriting(*step_, compiler);
  Expected<std::vector<CompiledPlan>> plans = planManaged(rewriting);
  if (!plans)
    return tl::unexpected<Error>(plans.error());
  const std::string costs = plans->front().savedTimes != 0 ? "saved times"
                            : nodesAreTimed_               ? "times of nodes before the plan"
                                                           : "static estimates";
  PUMPGRAPH_TRY(ManagedTrials(*step_, rewriting, costs).run(std::move(*plans)));
  step_->captured.warnings =
      foreseeThrashing(step_->plan.lowered, unplanned(),
                       {session_.memory.frames->budgetFrames() * pageBytes, session_.backend.deviceFreeBytes});
  return backResults();
}

Expected<std::vector<CompiledPlan>> Adoption::planManaged(Rewriting &rewriting) {
  ManagedKnowledge known{accessesAreKnown_, options_.prefetching, hostingChoices()};
  Expected<std::vector<CompiledPlan>> first = rewriting.planManaged(options_.costsIr, known);
  if (!first)
    return first;
  first->front().name = "the first plan";
  const bool isAsked = options_.hosting == HostingChoice::Measured ||
                       (options_.hosting == HostingChoice::Automatic && accessesAreKnown_);
  if (!isAsked || !first->front().hasOperations())
    return first;
  std::vector<std::string> &notes = step_->captured.notes;
  HostedTimes times(*step_);
  std::string obstacle = times.obstacle();
  if (obstacle.empty()) {
    const Stopwatch watch;
    Expected<std::string> measured = times.measure(known.hosting);
    if (!measured)
      return inContext(measured.error(), fmt::format("timing the nodes of \"{}\"", options_.name));
    obstacle = std::move(*measured);
    step_->history.times.hostedMs = watch.milliseconds();
    nodesAreTimed_ = times.hasDeviceTimes();
  }
  if (!obstacle.empty()) {
    notes.push_back("nobody knows what of the step would be faster in host memory: " + obstacle);
    return first;
  }
  Expected<std::vector<CompiledPlan>> timed = rewriting.planManaged(options_.costsIr, known);
  if (timed)
    return timed;
  notes.push_back("there is no plan by the times of nodes with operands in host memory: " + timed.error().message);
  return first;
}

Hosting Adoption::hostingChoices() const {
  const CapturedStep &captured = step_->captured;
  const std::size_t count = captured.blocks.size();
  Hosting hosting;
  hosting.choices.assign(count, Hosting::WhereNoRoom);
  hosting.stays.resize(count);
  std::vector<bool> isShared(count, false);
  for (const std::unique_ptr<StepState> &other : session_.steps) {
    if (!other->isManaged())
      continue;
    const std::vector<BlockId> &blocks = other->captured.blocks;
    for (BufferIndex buffer = 0; buffer < count; ++buffer) {
      const auto found = std::find(blocks.begin(), blocks.end(), captured.blocks[buffer]);
      if (found == blocks.end())
        continue;
      isShared[buffer] = true;
      const Buffer &theirs = other->plan.lowered.buffers[static_cast<std::size_t>(found - blocks.begin())];
      for (const Range &range : theirs.hosted)
        hosting.stays[buffer] = with(hosting.stays[buffer], range);
    }
  }
  std::vector<bool> isCopied(count, false);
  for (const Node &node : captured.description.nodes)
    if (node.kind == NodeKind::Memcpy)
      for (const Access &access : node.accesses)
        isCopied[access.buffer] = true;
  for (BufferIndex buffer = 0; buffer < count; ++buffer)
    if (!captured.description.buffers[buffer].isPrivate)
      hosting.stays[buffer].clear();                 // it cannot be hosted for this one
    else if (!isShared[buffer] && !isCopied[buffer]) // operands of copies need the device
      hosting.choices[buffer] = Hosting::WhereFaster;
    else if (!hosting.stays[buffer].empty())
      hosting.choices[buffer] = Hosting::Always;
  return hosting;
}

std::vector<Unplanned> Adoption::unplanned() const {
  const CapturedStep &captured = step_->captured;
  // A node that cannot be seen into may touch anything.
  const std::vector<BlockId> candidates = captured.refusals.empty() ? captured.besides : heap_.blocks();
  const std::set<BlockId> planned(captured.blocks.begin(), captured.blocks.end());
  std::vector<Unplanned> others;
  for (const BlockId id : candidates)
    if (const Block &block = heap_.block(id); !planned.contains(id) && block.hasLiveMember())
      others.push_back({heap_.nameAt(block.address), block.bytes()});
  return others;
}

} // namespace pumpgraph::runtime
