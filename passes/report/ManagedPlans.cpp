// SPDX-License-Identifier: Apache-2.0
#include "passes/report/ManagedPlans.h"

#include "passes/lower/LowerManaged.h"
#include "passes/plan/HostedPages.h"
#include "passes/plan/Processors.h"
#include "passes/report/HostingSearch.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace pumpgraph {

namespace {

/// Beyond this a plan is made once only.
constexpr std::size_t mostNodesToPlanAgain = 5'000;
/// Times this close are the same: the model is no better.
constexpr double tolerance = 0.999;
/// Of a step with more buffers to choose from, so many of the largest are chosen from.
constexpr std::size_t mostCandidates = 64;
/// How often they are halved, how many parts there are then at most, and the least part, of the budget.
constexpr int mostDivisions = 2;
constexpr std::size_t mostParts = 2 * mostCandidates;
constexpr std::uint64_t leastPart = 64;
/// How many sets are tried: as many as have so many nodes together, but no more and no fewer than these. After each
/// division half as many.
constexpr std::size_t mostNodesTried = 200'000, leastTrials = 100, mostTrials = 4'000;
/// Of what an operation takes, with which plans are made to choose by.
constexpr double shareToChooseBy = 0.25;

struct Plan {
  PlannedStep step;
  double predictedUs = 0;
};

class ManagedPlans {
public:
  ManagedPlans(const Description &captured, const PlanOptions &options)
      : captured_(captured), options_(options),
        lowering_{.machine = options.machine, .mayDiscard = options.backend == Backend::Managed} {}

  tl::expected<PlannedStep, PlanError> run() {
    tl::expected<PlannedStep, PlanError> first = planResidency(captured_, options_);
    if (captured_.nodes.size() > mostNodesToPlanAgain || !first ||
        first->stats.prefetches + first->stats.evictions == 0)
      return first;
    best_ = {std::move(*first), 0};
    best_.predictedUs = predictedUs(best_.step);
    tryCheaperOperations(options_.hosted);
    if (!options_.mayBeHosted.empty())
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

  /// What may stay in host memory, and which of it does.
  struct Candidates {
    std::vector<BufferPart> parts;
    HostedSet chosen;
  };

  std::vector<BufferPart> withCandidates(const std::vector<BufferPart> &parts, const HostedSet &set) const {
    std::vector<BufferPart> hosted = options_.hosted;
    for (const Candidate candidate : set)
      hosted.push_back(parts[candidate]);
    std::sort(hosted.begin(), hosted.end(), [](const BufferPart &a, const BufferPart &b) {
      return std::pair(a.buffer, a.range.offset) < std::pair(b.buffer, b.range.offset);
    });
    return hosted;
  }

  /// Side by side, on as many processors as there are.
  std::vector<double> allQuickUs(const std::vector<BufferPart> &parts, const std::vector<HostedSet> &sets) const {
    std::vector<double> times(sets.size(), impossible);
    sideBySide(sets.size(), processorsOf(options_.processors),
               [&](std::size_t i) { times[i] = quickUs(withCandidates(parts, sets[i])); });
    return times;
  }

  std::vector<BufferPart> wholeBuffers() const {
    const std::vector<bool> can = canBeHostedAsAWhole(captured_);
    std::vector<BufferPart> buffers;
    for (const BufferIndex buffer : options_.mayBeHosted)
      if (can[buffer])
        buffers.push_back({buffer, {0, captured_.buffers[buffer].size}});
    std::stable_sort(buffers.begin(), buffers.end(),
                     [](const BufferPart &a, const BufferPart &b) { return a.range.size > b.range.size; });
    buffers.resize(std::min(buffers.size(), mostCandidates));
    return buffers;
  }

  /// The candidates, the large ones in two; of what is chosen both.
  Candidates inHalves(const Candidates &whole) const {
    const std::uint64_t leastBytes = std::max(captured_.pageBytes, options_.budgetBytes / leastPart);
    Candidates halves;
    auto chosen = whole.chosen.begin();
    for (std::size_t i = 0; i < whole.parts.size(); ++i) {
      const auto &[buffer, range] = whole.parts[i];
      const bool isChosen = chosen != whole.chosen.end() && *chosen == i;
      chosen += isChosen;
      const auto add = [&](const Range &part) {
        if (isChosen)
          halves.chosen.push_back(static_cast<Candidate>(halves.parts.size()));
        halves.parts.push_back({buffer, part});
      };
      const std::uint64_t first = range.size / captured_.pageBytes / 2 * captured_.pageBytes;
      const bool isDivided = first >= leastBytes && halves.parts.size() + (whole.parts.size() - i) < mostParts;
      if (isDivided)
        add({range.offset, first});
      add(isDivided ? Range{range.offset + first, range.size - first} : range);
    }
    return halves;
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
          start.push_back(static_cast<Candidate>(i));
      search.climbFrom(std::move(start));
    }
  }

  /// Among whole buffers first, then, as long as that gains, among halves.
  std::vector<BufferPart> chooseHosted() const {
    std::size_t trials = std::clamp(mostNodesTried / captured_.nodes.size(), leastTrials, mostTrials);
    Candidates candidates{wholeBuffers(), {}};
    double us = impossible;
    for (int divisions = 0;; ++divisions) {
      const PredictAll predict = [&](const std::vector<HostedSet> &sets) { return allQuickUs(candidates.parts, sets); };
      HostingSearch search(static_cast<Candidate>(candidates.parts.size()), predict, trials);
      if (divisions > 0)
        search.climbFrom(candidates.chosen);
      climbFromSeveral(search, candidates.parts.size());
      if (search.bestUs() < us)
        candidates.chosen = search.best();
      Candidates halves = inHalves(candidates);
      if (!options_.hostsInParts || search.bestUs() >= us * tolerance || divisions == mostDivisions ||
          halves.parts.size() == candidates.parts.size())
        return withCandidates(candidates.parts, candidates.chosen);
      us = search.bestUs();
      candidates = std::move(halves);
      trials /= 2;
    }
  }

  const Description &captured_;
  const PlanOptions &options_;
  ManagedOptions lowering_;
  Plan best_;
};

/// The machine with operations that take so many times as long, and what nodes take with hosted operands as before.
PlanOptions withSlowOperations(PlanOptions options) {
  Machine &machine = options.machine;
  for (double *speed : {&machine.upBytesPerSecond, &machine.downBytesPerSecond, &machine.bothBytesPerSecond,
                        &machine.emptyBytesPerSecond})
    *speed /= options.slowerBy;
  machine.copyOverheadUs *= options.slowerBy;
  if (machine.downOverheadUs)
    *machine.downOverheadUs *= options.slowerBy;
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

tl::expected<PlannedStep, PlanError> planForManaged(const Description &captured, const PlanOptions &options) {
  if (options.slowerBy == 1)
    return ManagedPlans(captured, options).run();
  const Description scaled = withSlowdownsTimes(captured, 1 / options.slowerBy);
  const PlanOptions slow = withSlowOperations(options);
  tl::expected<PlannedStep, PlanError> step = ManagedPlans(scaled, slow).run();
  if (step)
    takeAccesses(step->description, captured);
  return step;
}

} // namespace pumpgraph
