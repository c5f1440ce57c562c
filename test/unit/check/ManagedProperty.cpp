// SPDX-License-Identifier: Apache-2.0
// Random steps through planner and managed lowering. Whatever order they run in, and whatever the agent leaves undone,
// nodes read what they should; while the agent does what it is asked for, the budget holds.
//
//   check_managed_property [FIRST_SEED [COUNT]]
#include "passes/analysis/Bound.h"
#include "passes/analysis/HostedAccess.h"
#include "passes/check/CheckResidency.h"
#include "passes/lower/LowerManaged.h"
#include "passes/lower/PredictManaged.h"
#include "passes/plan/PlanResidency.h"
#include "passes/plan/price/HostedPages.h"
#include "test/unit/check/Interpreter.h"
#include "test/unit/check/Random.h"
#include "test/unit/check/RandomGraph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>

namespace pumpgraph::test {
namespace {

struct Tally {
  std::uint64_t steps = 0, planned = 0, moving = 0, discarding = 0, hinting = 0, rejectedMutants = 0, mutants = 0,
                bounded = 0, hosting = 0, hostsFew = 0;
};

std::size_t count(const Description &step, NodeKind kind) {
  return static_cast<std::size_t>(
      std::count_if(step.nodes.begin(), step.nodes.end(), [&](const Node &node) { return node.kind == kind; }));
}

/// One run in a random legal order. Pages come with a prefetch or with whoever touches them, and go with an eviction or
/// once a discard is asked for. Returns the most pages that were there at once, in the second of two replays.
std::uint64_t mostResident(const Description &lowered, Random &random) {
  std::set<std::pair<BufferIndex, std::uint64_t>> resident;
  std::uint64_t most = 0;
  const auto forEachPage = [&](BufferIndex buffer, const Range &range, const auto &visit) {
    for (std::uint64_t page = range.offset / lowered.pageBytes; page * lowered.pageBytes < range.end(); ++page)
      visit(std::pair{buffer, page});
  };
  const auto isHosted = [&](const std::pair<BufferIndex, std::uint64_t> &page) {
    return overlaps(lowered.buffers[page.first].hosted, {page.second * lowered.pageBytes, 1});
  };
  for (int replay = 0; replay < 2; ++replay) {
    most = 0;
    std::vector<std::uint32_t> blocked(lowered.nodes.size(), 0);
    for (const Edge &edge : lowered.edges)
      ++blocked[edge.to];
    std::set<NodeIndex> ready;
    for (NodeIndex node = 0; node < blocked.size(); ++node)
      if (blocked[node] == 0)
        ready.insert(node);
    while (!ready.empty()) {
      // A discard takes no time.
      auto next = std::find_if(ready.begin(), ready.end(),
                               [&](NodeIndex node) { return lowered.nodes[node].kind == NodeKind::Discard; });
      if (next == ready.end())
        next = std::next(ready.begin(), static_cast<std::ptrdiff_t>(random.below(ready.size())));
      const NodeIndex index = *next;
      ready.erase(next);
      const Node &node = lowered.nodes[index];
      for (const Access &access : node.accesses)
        if (access.range.size > 0)
          forEachPage(access.buffer, access.range, [&](const auto &page) {
            if (!isHosted(page))
              resident.insert(page);
          });
      if (isOperation(node.kind))
        forEachPage(node.buffer, node.range, [&](const auto &page) {
          node.kind == NodeKind::Prefetch ? void(resident.insert(page)) : void(resident.erase(page));
        });
      most = std::max<std::uint64_t>(most, resident.size());
      for (const Edge &edge : lowered.edges)
        if (edge.from == index && --blocked[edge.to] == 0)
          ready.insert(edge.to);
    }
  }
  return most;
}

bool hasHint(const Description &lowered) {
  std::set<NodeIndex> waited;
  for (const Edge &edge : lowered.edges)
    if (!isAdded(lowered.nodes[edge.to].kind))
      waited.insert(edge.from);
  for (NodeIndex node = 0; node < lowered.nodes.size(); ++node)
    if (lowered.nodes[node].kind == NodeKind::Prefetch && !waited.contains(node))
      return true;
  return false;
}

class Property {
public:
  Property(Description captured, std::uint64_t seed) : captured_(std::move(captured)), seed_(seed) {}

  std::optional<std::string> run(Tally &tally) {
    Random random(mix(seed_, 2));
    PlanOptions options;
    options.processors = 1;
    const std::uint64_t least = leastFrames(captured_), all = totalPages(captured_);
    options.budgetBytes = random.between(least, std::max(least, all)) * captured_.pageBytes;
    if (random.chance(60))
      options.budgetBytes = least * captured_.pageBytes;
    if (random.chance(15) && least > 1) // some node touches more
      options.budgetBytes = random.between(least * 2 / 3, least - 1) * captured_.pageBytes;
    // Pages take about as long as nodes, so that some prefetches are hints.
    options.machine.upBytesPerSecond = static_cast<double>(captured_.pageBytes * random.between(1, 1000)) * 1e3;
    options.machine.downBytesPerSecond = options.machine.upBytesPerSecond / 2;
    options.machine.downAtOnce = random.chance(50) ? static_cast<std::uint32_t>(random.between(2, 4)) : 1;
    if (random.chance(50)) {
      options.machine.downOverheadUs = static_cast<double>(random.below(20));
      options.machine.requestUs = static_cast<double>(random.below(10));
      options.machine.emptyBytesPerSecond =
          options.machine.upBytesPerSecond * static_cast<double>(random.between(1, 8));
    }
    options.machine.besideHostedPace = random.chance(50) ? 0.1 : 1;
    if (random.chance(50)) {
      options.machine.bothBytesPerSecond =
          random.chance(50) ? 0.8 * (options.machine.upBytesPerSecond + options.machine.downBytesPerSecond)
                            : options.machine.upBytesPerSecond;
      options.machine.hostedShare = 0.9;
      options.machine.besideHostedShare = 0.1;
      options.machine.hostedBothShare = 0.81;
      // What the link is at its best, as sessions measure it.
      options.machine.bestUpBytesPerSecond = options.machine.upBytesPerSecond;
      options.machine.bestDownBytesPerSecond = options.machine.downBytesPerSecond;
      for (Node &node : captured_.nodes)
        for (Access &access : node.accesses)
          access.slowdown = static_cast<float>(random.between(5, 25)) / 10;
    }
    const std::vector<bool> mayBeHosted = canBeHostedAsAWhole(captured_);
    if (random.chance(40))
      for (BufferIndex buffer = 0; buffer < captured_.buffers.size(); ++buffer)
        if (mayBeHosted[buffer] && random.chance(30))
          options.hosted.push_back({buffer, partOf(buffer, random)});
    tally.hosting += !options.hosted.empty();
    // A plan for either kind of memory will do.
    const bool forManaged = random.chance(70);
    for (const bool mayDiscard : {true, false}) {
      options.backend = !forManaged ? Backend::Virtual : mayDiscard ? Backend::Managed : Backend::ManagedUnknown;
      const auto plan = planResidency(captured_, options);
      if (!plan)
        return std::nullopt;
      tally.planned += mayDiscard;
      for (const auto &[buffer, part] : options.hosted)
        if (!covers(plan->description.buffers[buffer].hosted, part))
          return fmt::format("bytes {} to {} of buffer {} are not hosted", part.offset, part.end(), buffer);
      if (const auto violations = checkResidency(plan->description); !violations.empty())
        return "checkResidency: " + violations[0].message + "\nplanned:\n" + toText(plan->description);
      const Description lowered = lowerManaged(captured_, plan->description,
                                               {.machine = options.machine, .mayDiscard = mayDiscard, .safeUs = 0});
      const auto text = [&](const std::string &what) { return what + "\nlowered:\n" + toText(lowered); };
      if (const std::string wrong = validate(lowered); !wrong.empty())
        return text("malformed: " + wrong);
      if (const auto violations = checkPreserves(captured_, lowered); !violations.empty())
        return text("checkPreserves: " + violations[0].message);
      if (const auto violations = checkManaged(lowered); !violations.empty())
        return text("checkManaged: " + violations[0].message);
      if (lowered.nodes.size() > captured_.nodes.size() && plan->stats.framesUsed == all)
        return text("something is moved although everything fits");
      if (!mayDiscard && count(lowered, NodeKind::Discard) != 0)
        return text("something is discarded although accesses are unknown");
      tally.hinting += mayDiscard && hasHint(lowered);
      tally.moving += mayDiscard && count(lowered, NodeKind::Evict) > 0;
      tally.discarding += mayDiscard && count(lowered, NodeKind::Discard) > 0;
      if (const auto wrong = interpret(lowered))
        return text(*wrong);
      // In a step of several branches a page may be used on one while it is still to leave on another.
      const Description waiting = lowerManaged(captured_, plan->description,
                                               {.machine = options.machine, .mayDiscard = mayDiscard, .hints = false});
      if (forManaged && isChain())
        if (const auto wrong = compareWithBound(waiting, options.machine, mayDiscard, tally))
          return text(*wrong);
      for (int i = 0; mayDiscard && isChain() && count(lowered, NodeKind::Evict) > 0 && i < 3; ++i)
        if (const std::uint64_t most = mostResident(waiting, random) * lowered.pageBytes; most > lowered.budgetBytes)
          return text(fmt::format("{} bytes are on the device at once of a budget of {}", most, lowered.budgetBytes));
      if (mayDiscard)
        mutate(lowered, random, tally);
    }
    return std::nullopt;
  }

private:
  /// All of the buffer, or some pages of it.
  Range partOf(BufferIndex buffer, Random &random) const {
    const std::uint64_t size = captured_.buffers[buffer].size, pages = captured_.pageCount(buffer);
    if (random.chance(50))
      return {0, size};
    const std::uint64_t first = random.below(pages), end = random.between(first + 1, pages);
    const std::uint64_t offset = first * captured_.pageBytes;
    return {offset, std::min(end * captured_.pageBytes, size) - offset};
  }

  bool isChain() const {
    std::set<std::pair<NodeIndex, NodeIndex>> full;
    for (const Edge &edge : captured_.edges)
      if (edge.kind == EdgeKind::Full)
        full.insert({edge.from, edge.to});
    for (NodeIndex node = 1; node < captured_.nodes.size(); ++node)
      if (!full.contains({node - 1, node}))
        return false;
    return true;
  }

  /// The budget holds in a chain where every prefetch is waited for and the plan knows the backend: one that moves
  /// nothing is lowered to nothing, though more may be on the device than it has frames for.
  std::optional<std::string> compareWithBound(const Description &waiting, const Machine &machine, bool mayDiscard,
                                              Tally &tally) const {
    Description bounded = captured_;
    for (BufferIndex buffer = 0; buffer < bounded.buffers.size(); ++buffer)
      bounded.buffers[buffer].hosted = waiting.buffers[buffer].hosted;
    const Backend backend = mayDiscard ? Backend::Managed : Backend::ManagedUnknown;
    const double predictedUs = predictManaged(waiting, machine).totalUs;
    double limitUs = 0; // at last that of what may happen
    for (const BoundKind kind : {BoundKind::Must, BoundKind::May}) {
      limitUs = bound(bounded, waiting.budgetBytes, machine, kind, backend).totalUs;
      if (predictedUs < limitUs * (1 - 1e-9))
        return fmt::format("predicted {} us, but {} is {} us", predictedUs,
                           kind == BoundKind::May ? "planBound" : "bound", limitUs);
    }
    const double elsewhereUs = bound(bounded, waiting.budgetBytes, machine, BoundKind::May).totalUs;
    tally.bounded += limitUs > 1.01 * elsewhereUs;
    if (hostedBytes(waiting) == 0)
      return std::nullopt;
    limitUs = bound(captured_, waiting.budgetBytes, machine, BoundKind::May, backend, hostedBytes(waiting)).totalUs;
    const double anyUs = bound(captured_, waiting.budgetBytes, machine, BoundKind::May, backend, UINT64_MAX).totalUs;
    tally.hostsFew += limitUs > 1.01 * anyUs;
    if (predictedUs < limitUs * (1 - 1e-9))
      return fmt::format("predicted {} us, but planBound of plans that host {} bytes at most is {} us", predictedUs,
                         hostedBytes(waiting), limitUs);
    return std::nullopt;
  }

  std::optional<std::string> interpret(const Description &lowered) const {
    const Reference reference(captured_);
    const Description unified = asUnifiedMemory(lowered);
    Interpreter interpreter(reference, unified);
    return interpreter.runRandom(seed_, 3);
  }

  /// Without one of the edges of a discard, or with a larger discard, the checker finds something, or nothing is wrong.
  void mutate(const Description &lowered, Random &random, Tally &tally) const {
    std::vector<std::size_t> candidates;
    for (std::size_t edge = 0; edge < lowered.edges.size(); ++edge) {
      const NodeKind from = lowered.nodes[lowered.edges[edge].from].kind,
                     to = lowered.nodes[lowered.edges[edge].to].kind;
      if ((from == NodeKind::Discard && !isOperation(to)) || (to == NodeKind::Discard && !isOperation(from)))
        candidates.push_back(edge);
    }
    if (candidates.empty())
      return;
    Description mutant = lowered;
    mutant.edges.erase(mutant.edges.begin() + static_cast<std::ptrdiff_t>(candidates[random.below(candidates.size())]));
    ++tally.mutants;
    if (!checkManaged(mutant).empty()) {
      ++tally.rejectedMutants;
      return;
    }
    if (const auto wrong = interpret(mutant)) {
      fmt::print("seed {}: the checker accepts a step that goes wrong: {}\n{}", seed_, *wrong, toText(mutant));
      std::exit(EXIT_FAILURE);
    }
  }

  Description captured_;
  std::uint64_t seed_;
};

int runAll(std::uint64_t firstSeed, std::uint64_t count) {
  Tally tally;
  for (std::uint64_t seed = firstSeed; seed < firstSeed + count; ++seed) {
    Description captured = randomStep(seed);
    // The budget can be judged where the order of the nodes is one.
    if (seed % 2 == 0)
      for (NodeIndex node = 1; node < captured.nodes.size(); ++node) {
        std::erase_if(captured.edges, [&](const Edge &edge) { return edge.from == node - 1 && edge.to == node; });
        captured.edges.push_back({node - 1, node});
      }
    ++tally.steps;
    if (const auto wrong = Property(captured, seed).run(tally)) {
      fmt::print("seed {}: {}\n", seed, *wrong);
      const auto fails = [&](const Description &candidate) {
        Tally ignored;
        return Property(candidate, seed).run(ignored).has_value();
      };
      const Description small = shrink(captured, fails);
      Tally ignored;
      fmt::print("small:\n{}{}\n", toText(small), *Property(small, seed).run(ignored));
      return EXIT_FAILURE;
    }
  }
  fmt::print("{} random steps from seed {}: {} planned, {} evict, {} discard, {} hint, {} host by "
             "choice, {} have a higher bound than on virtual memory, {} one as plans that host no more; "
             "of {} mutants {} rejected\n",
             tally.steps, firstSeed, tally.planned, tally.moving, tally.discarding, tally.hinting, tally.hosting,
             tally.bounded, tally.hostsFew, tally.mutants, tally.rejectedMutants);
  const bool isWorthIt = tally.planned * 10 >= count * 8 && tally.moving * 10 >= count * 3 &&
                         tally.discarding * 10 >= count && tally.hinting * 50 >= count && tally.bounded * 20 >= count &&
                         tally.hosting * 10 >= count && tally.hostsFew * 50 >= count &&
                         tally.rejectedMutants * 3 >= tally.mutants;
  if (!isWorthIt)
    fmt::print("too few of them say anything\n");
  return isWorthIt ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace
} // namespace pumpgraph::test

int main(int argumentCount, char **arguments) {
  return pumpgraph::test::runSeeds(argumentCount, arguments, pumpgraph::test::runAll);
}
