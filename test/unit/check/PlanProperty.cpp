// SPDX-License-Identifier: Apache-2.0
// Random steps through planner, lowering, checker, prediction and interpreter: they must agree.
//
//   check-plan-property [FIRST_SEED [COUNT]]
//
// Prints how many steps it ran; the first step that fails is printed with its seed, made as small as possible.
#include "passes/analysis/Bound.h"
#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Prediction.h"
#include "passes/check/CheckResidency.h"
#include "passes/lower/LowerVirtual.h"
#include "passes/plan/PlanResidency.h"
#include "passes/plan/allocate/PresentBuffers.h"
#include "passes/plan/search/SplitCandidates.h"
#include "pumpgraph/graph/HostedChains.h"
#include "test/unit/check/Colouring.h"
#include "test/unit/check/Interpreter.h"
#include "test/unit/check/Random.h"
#include "test/unit/check/RandomGraph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <set>

namespace pumpgraph::test {
namespace {

struct Tally {
  std::uint64_t steps = 0;
  std::uint64_t planned = 0;
  std::uint64_t refused = 0;   ///< rightly: what must have frames finds none, or host memory is short
  std::uint64_t hosting = 0;   ///< plans with hosted pages, because there is no other
  std::uint64_t undecided = 0; ///< such plans, where the exact search for frames takes too long
  std::uint64_t transfers = 0;
  std::uint64_t spilling = 0;        ///< plans with transfers
  std::uint64_t renamed = 0;         ///< steps in which something goes on at another address
  std::uint64_t hostingInChains = 0; ///< plans in which some of that is hosted
  std::uint64_t staying = 0;         ///< plans in which some pages of such a buffer stay in their frames
  std::uint64_t leavingPresent = 0;  ///< plans in which a present buffer leaves the device in between
};

/// What is wrong, and where it was seen: a smaller step must fail in the same place.
struct Failure {
  std::string place;
  std::string message;
};

/// The same for a step and all its shrunken versions.
struct Setting {
  std::uint64_t seed = 0;
  PlanOptions options;
};

/// From too little to more than enough.
std::uint64_t someBudget(const Description &captured, Random &random) {
  const std::uint64_t least = leastFrames(captured);
  const std::uint64_t all = totalPages(captured);
  const std::size_t choice = random.below(100);
  if (choice < 5)
    return 0; // as much as the step needs
  const std::uint64_t pages = choice < 15                  ? random.between(1, std::max<std::uint64_t>(least, 2) - 1)
                              : choice < 20                ? all + random.below(2)
                              : choice < 80 || least > all ? least + random.below(2)
                                                           : random.between(least, all);
  return pages * captured.pageBytes + random.below(captured.pageBytes);
}

Setting settingFor(std::uint64_t seed, const Description &captured) {
  Random random(mix(seed, 1));
  Setting setting;
  setting.seed = seed;
  setting.options.processors = 1; // shards run side by side, and what is tried ahead mostly counts for nothing
  setting.options.budgetBytes = someBudget(captured, random);
  // A page takes about as long as a kernel.
  const double pageBytes = static_cast<double>(captured.pageBytes);
  Machine &machine = setting.options.machine;
  machine.upBytesPerSecond = pageBytes / static_cast<double>(random.between(1, 20)) * 1e6;
  machine.downBytesPerSecond = pageBytes / static_cast<double>(random.between(1, 20)) * 1e6;
  machine.bothBytesPerSecond =
      std::max(machine.upBytesPerSecond, machine.downBytesPerSecond) +
      std::min(machine.upBytesPerSecond, machine.downBytesPerSecond) * static_cast<double>(random.below(5)) / 4;
  machine.copyOverheadUs = static_cast<double>(random.below(3));
  if (random.chance(5))
    machine.hostBytes = random.below(totalPages(captured) * captured.pageBytes + 1);
  return setting;
}

/// A step of which some nodes were measured with hosted operands: they reach less of them than predicted, or take
/// longer.
Description withSlowdowns(Description captured, std::uint64_t seed) {
  Random random(mix(seed, 2));
  if (!random.chance(30))
    return captured;
  constexpr std::array<float, 4> slowdowns = {1.0F / 64, 0.3F, 1, 2.5F};
  for (Node &node : captured.nodes)
    for (Access &access : node.accesses)
      access.slowdown = slowdowns[random.below(slowdowns.size())];
  return captured;
}

bool hasTransfers(const Description &step) {
  return std::any_of(step.nodes.begin(), step.nodes.end(),
                     [](const Node &node) { return movesUp(node.kind) || movesDown(node.kind); });
}

bool movesPresent(const Description &step) {
  return std::any_of(step.nodes.begin(), step.nodes.end(), [&](const Node &node) {
    return (movesUp(node.kind) || movesDown(node.kind)) && step.buffers[node.buffer].isPresent;
  });
}

constexpr double tolerance = 1e-6; // microseconds

class Property {
public:
  Property(const Description &captured, const Setting &setting)
      : captured_(withPresent(withRenamable(captured, setting), setting)), renamed_(renamed(captured_, setting)),
        used_(withUseBetweenReplays(renamed_)), setting_(setting), reference_(captured_) {}

  std::optional<Failure> run(Tally &tally) {
    const auto plan = planResidency(renamed_, setting_.options);
    tally.renamed += renamed_.buffers.size() > captured_.buffers.size();
    if (!plan)
      return judgeRefusal(plan.error(), tally);
    ++tally.planned;
    tally.spilling += hasTransfers(plan->description);
    tally.transfers += plan->stats.evictions + plan->stats.prefetches;
    if (hostedBytes(plan->description) > 0)
      if (auto failure = judgeHosting(tally))
        return failure;
    tally.hostingInChains += hostsInChains(plan->description);
    tally.staying += pagesThatStay(plan->description) > 0;
    tally.leavingPresent += movesPresent(plan->description);
    if (auto failure = judge("plan", plan->description))
      return failure;
    if (auto failure = judgeWhole(*plan))
      return failure;
    const Description lowered = lowerVirtual(plan->description);
    const auto isNotLowered = [](const Node &node) { return isResidency(node.kind); };
    if (std::any_of(lowered.nodes.begin(), lowered.nodes.end(), isNotLowered))
      return Failure{"lowering", "a residency node is left"};
    const std::uint64_t hostBytes = plan->stats.hostBytes;
    if (hostBytes > setting_.options.machine.hostBytes || lowered.hostBytes + hostedBytes(lowered) > hostBytes)
      return Failure{"host memory", fmt::format("{} bytes allowed, {} planned for, {} used when lowered",
                                                setting_.options.machine.hostBytes, hostBytes, lowered.hostBytes)};
    return judge("lowered plan", lowered);
  }

private:
  std::optional<Failure> judgeRefusal(const PlanError &error, Tally &tally) const {
    const std::uint64_t frames = setting_.options.budgetBytes / captured_.pageBytes;
    ++tally.refused;
    if (setting_.options.machine.hostBytes != UINT64_MAX)
      return std::nullopt;
    const Description least = withoutHostable(used_);
    if (setting_.options.budgetBytes != 0) {
      if (frames < leastFrames(least))
        return std::nullopt;
      const std::optional<bool> fits = fitsFrames(least, frames);
      tally.undecided += !fits;
      if (!fits.value_or(false))
        return std::nullopt;
    }
    return Failure{"refusal", fmt::format("{} frames would do, but: {}", frames, error.message)};
  }

  static bool hostsInChains(const Description &step) {
    const HostedChains chains(step.buffers);
    for (BufferIndex buffer = 0; buffer < step.buffers.size(); ++buffer)
      if (!chains.of(buffer).empty())
        return true;
    return false;
  }

  static bool isTight(const Description &captured, const Setting &setting) {
    return setting.options.budgetBytes != 0 && setting.options.budgetBytes / captured.pageBytes < leastFrames(captured);
  }

  /// In some steps the planner may let buffers go on at other addresses, in most where pages have to be hosted.
  static Description withRenamable(Description captured, const Setting &setting) {
    const std::uint64_t tenths = isTight(captured, setting) ? 9 : 4;
    for (Buffer &buffer : captured.buffers)
      buffer.isRenamable = mix(setting.seed, 3) % 10 < tenths && buffer.isPrivate && !buffer.liveIn && !buffer.liveOut;
    return captured;
  }

  /// In some steps others may use what is live between replays, or some of that.
  static Description withPresent(Description captured, const Setting &setting) {
    if (mix(setting.seed, 4) % 8 == 0)
      for (BufferIndex b = 0; b < captured.buffers.size(); ++b)
        captured.buffers[b].isPresent =
            captured.buffers[b].isPrivate && captured.buffers[b].liveOut && mix(mix(setting.seed, 5), b) % 3 == 0;
    return captured;
  }

  /// In most of these steps, where some frames are missing, some have to, after some of their idle times.
  static Description renamed(const Description &captured, const Setting &setting) {
    const std::uint64_t frames = setting.options.budgetBytes / captured.pageBytes;
    const std::uint64_t tenths = isTight(captured, setting) ? 8 : 3;
    if (mix(setting.seed, 3) % 10 >= tenths || frames == 0 || frames >= totalPages(captured))
      return captured;
    std::vector<Split> idle = idleTimes(captured, Timeline(captured), 0);
    std::erase_if(idle, [&](const Split &split) { return mix(mix(setting.seed, split.buffer), split.until) % 2 == 0; });
    return SplitStep(captured, idle).parts();
  }

  /// The step with all pages in host memory that can be there: those that no copy or child graph touches, and nobody
  /// between replays.
  static Description withoutHostable(const Description &captured) {
    const auto pagesOf = [&](const Access &access) {
      return std::pair{access.range.offset / captured.pageBytes,
                       (access.range.end() + captured.pageBytes - 1) / captured.pageBytes};
    };
    std::set<std::pair<BufferIndex, std::uint64_t>> fixed;
    for (const Node &node : captured.nodes)
      if (node.kind == NodeKind::Memcpy || node.kind == NodeKind::ChildGraph)
        for (const Access &access : node.accesses)
          for (auto [page, end] = pagesOf(access); page < end; ++page)
            fixed.insert({access.buffer, page});
    Description least = captured;
    for (Node &node : least.nodes) {
      std::vector<Access> kept;
      for (const Access &access : node.accesses)
        for (auto [page, end] = pagesOf(access); page < end; ++page)
          if (!captured.buffers[access.buffer].isPrivate || captured.buffers[access.buffer].isPresent ||
              fixed.contains({access.buffer, page})) {
            Access &one = kept.emplace_back(access);
            one.range.offset = std::max(access.range.offset, page * captured.pageBytes);
            one.range.size = std::min(access.range.end(), (page + 1) * captured.pageBytes) - one.range.offset;
          }
      node.accesses = std::move(kept);
    }
    return least;
  }

  /// Pages are hosted only where there is no plan without.
  std::optional<Failure> judgeHosting(Tally &tally) const {
    const std::uint64_t frames = setting_.options.budgetBytes / captured_.pageBytes;
    ++tally.hosting;
    if (setting_.options.budgetBytes != 0 && frames < leastFrames(used_))
      return std::nullopt;
    const std::optional<bool> fits = fitsFrames(used_, frames);
    tally.undecided += !fits;
    if (setting_.options.budgetBytes != 0 && !fits.value_or(false))
      return std::nullopt;
    return Failure{"hosting", fmt::format("{} frames would do without hosted pages", frames)};
  }

  /// What holds for a plan and for what it is lowered to.
  std::optional<Failure> judge(const std::string &what, const Description &step) {
    const auto fail = [&](const char *who, const std::string &message) {
      return Failure{what + ", " + who, message + "\nthe " + what + ":\n" + toText(step)};
    };
    if (const std::vector<Violation> violations = checkResidency(step, 1); !violations.empty())
      return fail("checkResidency", violations[0].message);
    if (const std::vector<Violation> violations = checkPreserves(captured_, step, 1); !violations.empty())
      return fail("checkPreserves", violations[0].message);
    Interpreter interpreter(reference_, step);
    std::optional<std::string> wrong = interpreter.runRandom(setting_.seed, 4);
    if (!wrong && setting_.seed % 4 == 0)
      wrong = interpreter.runAllDelays(setting_.seed);
    if (wrong)
      return fail("interpreter", *wrong);

    const Prediction prediction = predict(step, setting_.options.machine);
    if (const std::optional<std::string> message = impossible(step, prediction))
      return fail("prediction", *message);
    for (const auto &[kind, limitUs] : boundsBeside(step))
      if (prediction.totalUs < limitUs - tolerance)
        return fail("bound", fmt::format("predicted {} us, but {} is {} us", prediction.totalUs,
                                         kind == BoundKind::May ? "planBound" : "bound", limitUs));
    return std::nullopt;
  }

  using Bounds = std::array<std::pair<BoundKind, double>, 2>;
  /// Of the captured step with the budget and the hosted pages of `step`. A plan and what it is lowered to mostly have
  /// the same, and then it is found once.
  const Bounds &boundsBeside(const Description &step) {
    std::vector<std::vector<Range>> hosted;
    const HostedChains chains(step.buffers);
    for (BufferIndex buffer = 0; buffer < captured_.buffers.size(); ++buffer) {
      const std::vector<Range> shared = chains.of(buffer);
      hosted.push_back(shared.empty() ? step.buffers[buffer].hosted : shared);
    }
    if (bounded_ && bounded_->budgetBytes == step.budgetBytes && bounded_->hosted == hosted)
      return bounded_->bounds;
    Description bounded = captured_;
    for (BufferIndex buffer = 0; buffer < bounded.buffers.size(); ++buffer)
      bounded.buffers[buffer].hosted = hosted[buffer];
    const auto boundOf = [&](BoundKind kind) {
      return std::pair(kind, bound(bounded, step.budgetBytes, setting_.options.machine, kind).totalUs);
    };
    bounded_ = {step.budgetBytes, std::move(hosted), {boundOf(BoundKind::Must), boundOf(BoundKind::May)}};
    return bounded_->bounds;
  }

  /// Why a prediction is no execution of the step.
  std::optional<std::string> impossible(const Description &step, const Prediction &prediction) const {
    const std::vector<NodeTimes> &times = prediction.nodes;
    if (times.size() != step.nodes.size())
      return "some nodes have no times";
    const std::vector<Traffic> hosted = hostedTraffic(step).loadByNode;
    std::array<std::uint64_t, 2> bytes{};
    std::array<double, 2> endOfLane{};
    double end = 0;
    for (NodeIndex index = 0; index < step.nodes.size(); ++index) {
      const Node &node = step.nodes[index];
      end = std::max(end, times[index].endUs);
      const double took = times[index].endUs - times[index].startUs;
      if (!(movesUp(node.kind) || movesDown(node.kind))) {
        const double cost =
            (std::isnan(node.costUs) ? 0 : node.costUs) + linkUs(hosted[index], setting_.options.machine);
        const bool mayTakeLonger = hosted[index].total() > 0; // others use the link as well
        if ((took < cost - tolerance || (took > cost + tolerance && !mayTakeLonger)) && node.captured != notCaptured)
          return fmt::format("node {} costs {} us but takes {} us", index, cost, took);
        continue;
      }
      const std::size_t lane = movesDown(node.kind);
      bytes[lane] += node.range.size;
      const Machine &machine = setting_.options.machine;
      const double rate = lane == 0 ? machine.upBytesPerSecond : machine.downBytesPerSecond;
      if (took < static_cast<double>(node.range.size) / rate * 1e6 - tolerance)
        return fmt::format("node {} copies {} bytes in {} us", index, node.range.size, took);
      if (times[index].startUs < endOfLane[lane] - tolerance)
        return fmt::format("node {} starts before the copy ahead of it has ended", index);
      endOfLane[lane] = times[index].endUs;
    }
    for (const Edge &edge : step.edges)
      if (edge.kind == EdgeKind::Full && times[edge.to].startUs < times[edge.from].endUs - tolerance)
        return fmt::format("node {} starts at {} us, before node {} has ended at {} us", edge.to,
                           times[edge.to].startUs, edge.from, times[edge.from].endUs);
    if (std::abs(prediction.totalUs - end) > tolerance)
      return fmt::format("the step takes {} us, but the last node ends at {} us", prediction.totalUs, end);
    if (prediction.upBytes != bytes[0] || prediction.downBytes != bytes[1])
      return fmt::format("{} bytes up and {} down are predicted; the transfers move {} and {}", prediction.upBytes,
                         prediction.downBytes, bytes[0], bytes[1]);
    if (prediction.peakBytes > step.budgetBytes)
      return fmt::format("at most {} bytes are in use of a budget of {}", prediction.peakBytes, step.budgetBytes);
    return std::nullopt;
  }

  std::optional<Failure> judgeWhole(const PlannedStep &plan) const {
    const Description &step = plan.description;
    const std::uint64_t asked = setting_.options.budgetBytes;
    if (asked != 0 && step.budgetBytes > asked)
      return Failure{"budget", fmt::format("{} bytes allowed, {} planned for", asked, step.budgetBytes)};
    const bool fits = asked == 0 || asked / captured_.pageBytes >= totalPages(captured_);
    if (fits && step.nodes.size() != captured_.nodes.size())
      return Failure{"nothing to do", "everything fits, but nodes were added\n" + toText(step)};
    const auto count = [&](NodeKind kind) {
      return static_cast<std::uint64_t>(
          std::count_if(step.nodes.begin(), step.nodes.end(), [&](const Node &node) { return node.kind == kind; }));
    };
    const PlanStats &stats = plan.stats;
    if (stats.evictions != count(NodeKind::Evict) || stats.prefetches != count(NodeKind::Prefetch) ||
        stats.discards != count(NodeKind::Discard))
      return Failure{"statistics", "the numbers of transfers are not those of the plan\n" + toText(step)};
    if (setting_.seed % 16 == 0) {
      PlanOptions options = setting_.options;
      options.processors = 3;
      if (const auto again = planResidency(renamed_, options); toText(again->description) != toText(step))
        return Failure{"determinism", "a second planning, in more threads, gives another plan"};
    }
    return std::nullopt;
  }

  const Description captured_;
  const Description renamed_;
  const Description used_; ///< with the use of present buffers between replays
  const Setting &setting_;
  Reference reference_;
  struct Bounded {
    std::uint64_t budgetBytes = 0;
    std::vector<std::vector<Range>> hosted; ///< by buffer of the captured step
    Bounds bounds;
  };
  std::optional<Bounded> bounded_; ///< the latest
};

void report(std::uint64_t seed, const Description &captured, const Setting &setting, const Failure &failure) {
  const auto failsLikewise = [&](const Description &candidate) {
    Tally ignored;
    const std::optional<Failure> other = Property(candidate, setting).run(ignored);
    return other && other->place == failure.place;
  };
  const Description small = shrink(captured, failsLikewise);
  Tally ignored;
  const Machine &machine = setting.options.machine;
  fmt::print("seed {}: {}\nbudget {} bytes, up {}, down {}, both {} bytes/s, overhead {} us\nthe captured step:\n{}",
             seed, failure.place, setting.options.budgetBytes, machine.upBytesPerSecond, machine.downBytesPerSecond,
             machine.bothBytesPerSecond, machine.copyOverheadUs, toText(small));
  if (const std::optional<Failure> last = Property(small, setting).run(ignored))
    fmt::print("{}: {}\n", last->place, last->message);
}

int runAll(std::uint64_t firstSeed, std::uint64_t count) {
  Tally tally;
  for (std::uint64_t seed = firstSeed; seed < firstSeed + count; ++seed) {
    const Description captured = withSlowdowns(randomStep(seed), seed);
    const Setting setting = settingFor(seed, captured);
    ++tally.steps;
    if (const std::optional<Failure> failure = Property(captured, setting).run(tally)) {
      report(seed, captured, setting, *failure);
      return EXIT_FAILURE;
    }
  }
  fmt::print(
      "{} random steps from seed {}: {} planned, {} of them with transfers ({} in all), {} rightly with hosted "
      "pages, {} perhaps; {} rightly refused; in {} something went on at another address, in {} of them hosted in "
      "part, in {} staying in part; in {} present buffers left\n",
      tally.steps, firstSeed, tally.planned, tally.spilling, tally.transfers, tally.hosting - tally.undecided,
      tally.undecided, tally.refused, tally.renamed, tally.hostingInChains, tally.staying, tally.leavingPresent);
  const bool isWorthIt = tally.steps == count && tally.planned * 10 >= count * 8 && tally.spilling * 10 >= count * 4 &&
                         tally.undecided * 1000 <= count && tally.hosting * 50 >= count &&
                         tally.renamed * 50 >= count && tally.hostingInChains * 200 >= count &&
                         tally.staying * 50 >= count && tally.leavingPresent * 50 >= count;
  if (!isWorthIt)
    fmt::print("too few of them say anything\n");
  return isWorthIt ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace
} // namespace pumpgraph::test

int main(int argumentCount, char **arguments) {
  return pumpgraph::test::runSeeds(argumentCount, arguments, pumpgraph::test::runAll);
}
