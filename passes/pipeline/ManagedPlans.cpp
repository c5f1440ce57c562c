// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline/ManagedPlans.h"

#include "passes/lower/PredictManaged.h"
#include "passes/pipeline/HostingGroups.h"
#include "passes/plan/Workers.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

namespace pumpgraph {

namespace {

/// Beyond this a plan is made once only.
constexpr std::size_t mostNodesToPlanAgain = 5'000;
/// Times this close are the same: the model is no better.
constexpr double tolerance = 0.999;
/// Of a step with more groups of buffers to choose from, so many of the largest are chosen from.
constexpr std::size_t mostCandidates = 64;
/// How many there are when they are halved, at most, and the least part of a buffer, of the budget.
constexpr std::size_t mostHalves = 2 * mostCandidates;
constexpr std::uint64_t leastPart = 64;
/// How often halving may gain nothing: where to begin is seen once groups are small enough.
constexpr int mostWithoutGain = 2, mostFineWithoutGain = 1;
/// How many sets are tried each time: as many as have so many nodes together, but no more and no fewer than these.
constexpr std::size_t mostNodesTried = 200'000, leastTrials = 100, mostTrials = 4'000;
/// Of what an operation takes, with which plans are made to choose by.
constexpr double shareToChooseBy = 0.25;

struct Plan {
  PlannedStep step;
  double predictedUs = 0;
};

class ManagedPlans {
public:
  ManagedPlans(const Description &captured, const PlanOptions &options, const ManagedPlanning &managed)
      : captured_(captured), options_(options), managed_(managed),
        lowering_{.machine = options.machine, .mayDiscard = options.backend == Backend::Managed} {}

  tl::expected<PlannedStep, PlanError> run() {
    tl::expected<PlannedStep, PlanError> first = planResidency(captured_, options_);
    if (captured_.nodes.size() > mostNodesToPlanAgain || !first ||
        first->stats.prefetches + first->stats.evictions == 0)
      return first;
    best_ = {std::move(*first), 0};
    best_.predictedUs = predictedUs(best_.step);
    tryCheaperOperations(options_.hosted);
    if (!managed_.mayBeHosted.empty())
      if (const std::vector<BufferPart> hosted = chooseHosted(); hosted != options_.hosted) {
        PlanOptions other = options_;
        other.hosted = hosted;
        take(planResidency(captured_, other));
        tryCheaperOperations(hosted);
        take(planResidency(captured_, quickWith(hosted))); // what it was chosen by
      }
    return std::move(best_.step);
  }

private:
  double predictedUs(const PlannedStep &step) const {
    return predictManaged(lowerManaged(captured_, step.description, lowering_), options_.machine).totalUs;
  }

  void take(tl::expected<PlannedStep, PlanError> step) {
    if (!step)
      return;
    if (const double us = predictedUs(*step); us < best_.predictedUs * tolerance)
      best_ = {std::move(*step), us};
  }

  PlanOptions withOperationsAt(double share) const {
    PlanOptions other = options_;
    other.machine.copyOverheadUs *= share;
    if (other.machine.downOverheadUs)
      *other.machine.downOverheadUs *= share;
    return other;
  }

  void tryCheaperOperations(const std::vector<BufferPart> &hosted) {
    for (const double share : {0.5, 0.25, 0.1, 0.05, 0.0}) {
      PlanOptions other = withOperationsAt(share);
      other.hosted = hosted;
      take(planResidency(captured_, other));
    }
  }

  PlanOptions quickWith(const std::vector<BufferPart> &hosted) const {
    PlanOptions quick = withOperationsAt(shareToChooseBy);
    quick.isQuick = true;
    quick.processors = 1;
    quick.hosted = hosted;
    return quick;
  }

  double quickUs(const std::vector<BufferPart> &hosted) const {
    const tl::expected<PlannedStep, PlanError> step = planResidency(captured_, quickWith(hosted));
    return step ? predictedUs(*step) : impossible;
  }

  std::vector<BufferPart> withCandidates(const std::vector<HostingGroup> &groups, const HostedSet &set) const {
    std::vector<BufferPart> hosted = options_.hosted;
    for (const CandidateIndex candidate : set)
      hosted.insert(hosted.end(), groups[candidate].begin(), groups[candidate].end());
    std::sort(hosted.begin(), hosted.end(), [](const BufferPart &a, const BufferPart &b) {
      return std::pair(a.buffer, a.range.offset) < std::pair(b.buffer, b.range.offset);
    });
    return hosted;
  }

  std::vector<double> allQuickUs(const std::vector<HostingGroup> &groups, const std::vector<HostedSet> &sets,
                                 Workers &workers) const {
    std::vector<double> times(sets.size(), impossible);
    workers.forEach(sets.size(), [&](std::size_t i) { times[i] = quickUs(withCandidates(groups, sets[i])); });
    return times;
  }

  /// A climb comes to no more than the nearest peak, so there are several: from nothing more than has to be hosted,
  /// from all that may be, and from halves of that.
  static void climbFromSeveral(HostingSearch &search, std::size_t count) {
    const std::function<bool(std::size_t)> starts[] = {[](std::size_t) { return false; },
                                                       [](std::size_t) { return true; },
                                                       [](std::size_t i) { return i % 2 == 0; },
                                                       [](std::size_t i) { return i % 2 != 0; },
                                                       [&](std::size_t i) { return 2 * i < count; },
                                                       [&](std::size_t i) { return 2 * i >= count; }};
    for (const auto &isIn : starts) {
      HostedSet start;
      for (std::size_t i = 0; i < count; ++i)
        if (isIn(i))
          start.push_back(static_cast<CandidateIndex>(i));
      search.climbFrom(std::move(start));
    }
  }

  /// From coarse to fine: among groups of buffers, halves of those, single buffers, and in the end parts of buffers.
  std::vector<BufferPart> chooseHosted() const {
    const std::size_t trials = std::clamp(mostNodesTried / captured_.nodes.size(), leastTrials, mostTrials);
    const std::uint64_t leastBytes =
        managed_.hostsInParts ? options_.budgetBytes / leastPart : std::numeric_limits<std::uint64_t>::max();
    HostingGroups candidates{groupsOfBuffers(captured_, managed_.mayBeHosted, mostCandidates), {}};
    double us = impossible;
    Workers workers(options_.processors);
    for (int withoutGain = 0;;) {
      const std::vector<HostingGroup> &groups = candidates.groups;
      const PredictAll predict = [&](const std::vector<HostedSet> &sets) { return allQuickUs(groups, sets, workers); };
      const NormalForm normalForm = [&](HostedSet set) { return fromTheFront(groups, std::move(set)); };
      HostingSearch search(static_cast<CandidateIndex>(groups.size()), normalForm, predict, trials);
      const bool isFirst = us == impossible;
      if (!isFirst)
        search.climbFrom(candidates.chosen);
      const bool areSingle =
          std::all_of(groups.begin(), groups.end(), [](const HostingGroup &group) { return group.size() == 1; });
      if (isFirst || (areSingle && groups.size() <= mostCandidates))
        climbFromSeveral(search, groups.size());
      withoutGain = search.bestUs() < us * tolerance ? 0 : withoutGain + 1;
      if (search.bestUs() < us) {
        us = search.bestUs();
        candidates.chosen = search.best();
      }
      HostingGroups halves = inHalves(candidates, captured_.pageBytes, leastBytes, mostHalves);
      if (us == impossible || withoutGain > (areSingle ? mostFineWithoutGain : mostWithoutGain) ||
          halves.groups.size() == groups.size())
        return withCandidates(groups, candidates.chosen);
      candidates = std::move(halves);
    }
  }

  const Description &captured_;
  const PlanOptions &options_;
  const ManagedPlanning &managed_;
  ManagedOptions lowering_;
  Plan best_;
};

/// On a machine with operations that take so many times as long.
PlanOptions withSlowOperations(PlanOptions options, double slowerBy) {
  Machine &machine = options.machine;
  for (double *speed : {&machine.upBytesPerSecond, &machine.downBytesPerSecond, &machine.bothBytesPerSecond,
                        &machine.emptyBytesPerSecond})
    *speed /= slowerBy;
  machine.copyOverheadUs *= slowerBy;
  if (machine.downOverheadUs)
    *machine.downOverheadUs *= slowerBy;
  return options;
}

Description withSlowdownsTimes(Description step, double factor) {
  for (Node &node : step.nodes)
    for (Access &access : node.accesses)
      access.slowdown = static_cast<float>(access.slowdown * factor);
  return step;
}

/// The accesses of the captured nodes as they were, slowdowns and all.
void takeAccesses(Description &planned, const Description &captured) {
  auto next = captured.nodes.begin();
  for (Node &node : planned.nodes)
    if (!isAdded(node.kind))
      node.accesses = (next++)->accesses;
}

} // namespace

tl::expected<PlannedStep, PlanError> planForManaged(const Description &captured, const PlanOptions &options,
                                                    const ManagedPlanning &managed) {
  if (managed.slowerBy == 1)
    return ManagedPlans(captured, options, managed).run();
  // Nodes take as long with hosted operands as before.
  const Description scaled = withSlowdownsTimes(captured, 1 / managed.slowerBy);
  const PlanOptions slow = withSlowOperations(options, managed.slowerBy);
  tl::expected<PlannedStep, PlanError> step = ManagedPlans(scaled, slow, managed).run();
  if (step)
    takeAccesses(step->description, captured);
  return step;
}

} // namespace pumpgraph
