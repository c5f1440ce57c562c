// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/PlanResidency.h"

#include "passes/analysis/HostPlaces.h"
#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Prediction.h"
#include "passes/analysis/RequiredTraffic.h"
#include "passes/plan/Deferral.h"
#include "passes/plan/FramePlanner.h"
#include "passes/plan/GapChoice.h"
#include "passes/plan/GivenBoundary.h"
#include "passes/plan/HostedPages.h"
#include "passes/plan/PlanSearch.h"
#include "passes/plan/PlanWriter.h"
#include "passes/plan/Processors.h"
#include "passes/plan/Rehoming.h"
#include "passes/plan/Renaming.h"
#include "passes/plan/WideColouring.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace pumpgraph {

namespace {

/// Draft::effort of a search after which only attempts that promise most are made: planning time counts more then than
/// the last percent of step time. A large step needs more for each attempt, and has to be planned in bounded time.
std::uint64_t mostEffortFor(std::size_t nodes) {
  constexpr std::uint64_t forAllNodes = 300'000'000'000, atLeast = 20'000'000, atMost = 60'000'000;
  return std::clamp<std::uint64_t>(forAllNodes / std::max<std::size_t>(1, nodes), atLeast, atMost);
}
/// How often a search begins again because some node's pieces found no frames.
constexpr int mostRestarts = 16;
/// How often gaps are chosen by the prices of the best plan so far, and for each choice, how often what strayed chooses
/// frames again.
constexpr int roundsOfPrices = 3, roundsOfStrays = 3;
/// How often transfers are deferred, each time from the best plan so far.
constexpr int roundsOfDeferrals = 4;
/// Of the step: less that is only copied after the last node is not worth another start.
constexpr double leastTail = 0.002;
/// Weight of lateness where gaps are chosen by price: the link is the limit there, and what comes late somewhere comes
/// earlier elsewhere.
constexpr double slackWeightByPrice = 0.25;
/// How many splits of what is hosted a plan has at most, and the part of the step that each gains at least.
constexpr int mostSplitsOfHosted = 4;
constexpr double leastGainOfSplit = 0.002;
/// How large pieces are in the searches that are made side by side, in place of pieceBytesFor().
constexpr std::uint64_t pieceMultiples[] = {1, 3, 8};
constexpr std::size_t mostNodesOfSeveralSearches = 5000;
/// How many of the largest pieces of the usual size the budget holds at least, unless it is small.
constexpr double leastPiecesInBudget = 80;

std::string formatBytes(std::uint64_t bytes) {
  constexpr const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

std::optional<PlanError> checkInput(const Description &captured) {
  for (NodeIndex n = 0; n < captured.nodes.size(); ++n)
    if (isResidency(captured.nodes[n].kind) || isCopy(captured.nodes[n].kind))
      return PlanError{n, fmt::format("node {} belongs to a plan: the step is planned already", n)};
  for (BufferIndex b = 0; b < captured.buffers.size(); ++b)
    if (!captured.buffers[b].frames.empty())
      return PlanError{std::nullopt, fmt::format("buffer {} \"{}\" has frames: the step is planned already", b,
                                                 captured.buffers[b].name)};
  return std::nullopt;
}

/// What no plan can do: exclusive buffers are on the device at all times.
std::optional<PlanError> checkBudget(const Timeline &timeline, std::uint64_t budgetBytes) {
  const std::uint64_t page = timeline.pageBytes();
  if (timeline.exclusivePages() <= budgetBytes / page)
    return std::nullopt;
  return PlanError{std::nullopt, fmt::format("exclusive buffers need {} on the device at all times; the budget is {}",
                                             formatBytes(timeline.exclusivePages() * page), formatBytes(budgetBytes))};
}

/// Exclusive pages that nobody has given frames yet need some that no other step uses.
std::optional<PlanError> checkFramesBeside(const Description &step, const Description &boundary,
                                           std::uint64_t frameCount) {
  const std::uint64_t others = othersFrames(&boundary);
  std::uint64_t needed = others;
  for (BufferIndex b = 0; b < step.buffers.size(); ++b)
    if (!step.buffers[b].isPrivate && step.buffers[b].frames.empty())
      needed += step.pageCount(b);
  if (needed <= frameCount)
    return std::nullopt;
  return PlanError{std::nullopt,
                   fmt::format("other steps use {}, exclusive buffers of this step alone need {}; the "
                               "budget is {}",
                               formatBytes(others * step.pageBytes), formatBytes((needed - others) * step.pageBytes),
                               formatBytes(frameCount * step.pageBytes))};
}

/// What the node needs at once, in words.
std::string needOf(const Description &captured, const Timeline &timeline, NodeIndex node) {
  const std::uint64_t page = timeline.pageBytes(), exclusive = timeline.exclusivePages();
  const std::string share =
      exclusive == 0 ? "" : fmt::format(" ({} of it exclusive buffers)", formatBytes(exclusive * page));
  return fmt::format("node {} \"{}\" needs {} on the device at once{}", node, captured.nodes[node].name,
                     formatBytes((exclusive + timeline.workingSetPages(node)) * page), share);
}

/// Why there is more host memory needed than may be used. With hosted pages the node that touches most is to blame.
PlanError hostShortage(const Description &captured, const Description &planned, const Timeline &timeline,
                       std::uint64_t neededBytes, std::uint64_t allowedBytes) {
  const std::string shortage =
      fmt::format("the plan needs {} of host memory; {} may be used, {} are missing", formatBytes(neededBytes),
                  formatBytes(allowedBytes), formatBytes(neededBytes - allowedBytes));
  if (hostedBytes(planned) == 0)
    return {std::nullopt, shortage};
  NodeIndex widest = 0;
  for (NodeIndex n = 0; n < timeline.nodeCount(); ++n)
    if (timeline.workingSetPages(n) > timeline.workingSetPages(widest))
      widest = n;
  return {widest, fmt::format("{}; the budget is {}, and with {} of operands always in host memory {}",
                              needOf(captured, timeline, widest), formatBytes(planned.budgetBytes),
                              formatBytes(hostedBytes(planned)), shortage)};
}

/// Live pieces in the order in which it pays to keep them on the device at the step boundary: those whose idle time
/// across the boundary is shortest first. Not those whose state is given, nor, beside other steps, those that come to
/// the device in some node: they choose among all frames, and those of others are not free at the boundary.
std::vector<PieceIndex> byIdleTime(const PlannerInput &input) {
  const Timeline &timeline = input.timeline;
  const InMemoryTimes &times = timeline.times();
  std::vector<std::pair<double, PieceIndex>> idle;
  for (std::size_t i = 0; i < timeline.pieces().size(); ++i) {
    const PieceIndex piece = static_cast<PieceIndex>(i);
    const std::span<const Use> uses = timeline.usesOf(piece);
    const std::optional<Timeline::Life> life = timeline.lifeOf(piece);
    if (input.given.isGiven[piece] || (input.given.isShared && !(life && life->fromBoundary)))
      continue;
    if (timeline.piece(piece).liveOut && !uses.empty())
      idle.push_back({times.totalUs - times.endUs[uses.back().node] + times.startUs[uses.front().node], piece});
  }
  std::sort(idle.begin(), idle.end());
  std::vector<PieceIndex> result;
  for (const auto &[us, piece] : idle)
    result.push_back(piece);
  return result;
}

/// Frames for all pieces, and the pieces that take theirs from the start: they leave the pass no choice.
struct FixedHomes {
  PieceFrames homes;
  std::vector<PieceIndex> tight;
};

/// Looks for the start from which the pass over the nodes makes the best plan: which live pieces are on the device
/// between two steps, which of them have a good host copy too, and who chooses frames first.
class StartSearch {
public:
  /// `fixed`: where those that are to choose first have their frames instead; may be null. No plan depends on
  /// `processors`.
  StartSearch(const PlannerInput &input, PlanSearch &search, const FixedHomes *fixed, const Processors &processors)
      : input_(input), timeline_(input.timeline), search_(search), fixed_(fixed), processors_(processors),
        ranking_(byIdleTime(input)), frames_(input.frameCount - input.given.ownFrom), crowded_(UINT64_MAX),
        mostEffort_(mostEffortFor(timeline_.nodeCount())) {
    clearCrowd();
  }

  void run() {
    std::vector<Idea> ideas;
    for (int percent : {0, 20, 55, 100})
      for (BoundaryState state : {BoundaryState::Resident, BoundaryState::Mirrored})
        ideas.push_back({[this, percent, state] {
                           return !isSpent() || (state == BoundaryState::Resident && percent <= mostPromising());
                         },
                         [this, percent, state] { return withShare({percent, state}); }});
    tryInTurn(ideas);
    if (!search_.best())
      return;
    ideas = {whileUnspent([this] { return lookingFurther(); })};
    for (double fetches : {8.0, 3.0, 1.5, 1.0})
      ideas.push_back(whileUnspent([this, fetches] { return whereRestlessChoose(fetches); }));
    tryInTurn(ideas);
    for (int step : {10, 5}) {
      ideas.clear();
      for (int percent : {best_.share.percent - step, best_.share.percent + step})
        ideas.push_back(whileUnspent([this, percent] { return withShare({percent, best_.share.state}); }));
      tryInTurn(ideas);
    }
    settleBoundary();
    const Attempt settled = best_;
    ideas.clear();
    for (double part : {0.75, 0.5, 0.25})
      ideas.push_back(whileUnspent([this, part, &settled] { return mirroringOnly(part, settled); }));
    tryInTurn(ideas);
    for (int round = 0; round < roundsOfPrices; ++round)
      if (round == 0 || !isSpent())
        chooseByPrice();
    if (!input_.keepsHostCopy.empty()) // on managed memory the next replay begins beside what is saved last
      return;
    ideas.clear();
    for (double part : {0.75, 0.5, 0.25})
      ideas.push_back(whileUnspent([this, part] { return leavingLater(part); }));
    tryInTurn(ideas);
  }

  /// Once there is a plan.
  void chooseHomes() {
    if (!isSpent())
      chooseHomesAgain(input_, search_, best_.start.leaves, best_.tuning, mostEffort_ - effort_, processors_);
  }

  /// Whether so much has been tried that only what promises most is.
  bool isSpent() const { return effort_ >= mostEffort_; }

private:
  /// Of the frames, given to pieces that are on the device between steps.
  struct Share {
    int percent = 0;
    BoundaryState state = BoundaryState::Resident;
  };
  struct Attempt {
    DraftStart start;
    Share share;
    Tuning tuning;
  };
  /// An attempt, with all that it goes by.
  struct Trial {
    Attempt attempt;
    DraftStart start;
    PieceFrames homes;
  };
  /// What it comes to.
  struct Outcome {
    std::optional<Candidate> candidate;
    IndexedVector<PieceIndex, std::uint32_t> strays; ///< pages of each piece that strayed
    std::optional<Stuck> stuck;                      ///< if there is no candidate
    std::uint64_t effort = 0;
  };
  /// An attempt that goes by what is best when its turn comes.
  struct Idea {
    std::function<bool()> isWorthIt;
    std::function<std::optional<Attempt>()> make; ///< nothing: there is nothing to try
  };

  Idea whileUnspent(std::function<std::optional<Attempt>()> make) const {
    return {[this] { return !isSpent(); }, std::move(make)};
  }

  /// One after the other. Most come to nothing, so those that would follow one another if none of them did are carried
  /// out side by side; what was begun before something changed counts for nothing. What is not worth it now, or not
  /// new, will not be when its turn comes unless something changes.
  void tryInTurn(const std::vector<Idea> &ideas) {
    for (std::size_t next = 0; next < ideas.size();) {
      const std::uint64_t changes = changes_;
      const std::size_t end = std::min<std::size_t>(ideas.size(), next + processors_.ofEach());
      std::vector<std::optional<Trial>> trials;
      for (std::size_t i = next; i < end; ++i) {
        std::optional<Attempt> attempt = ideas[i].isWorthIt() ? ideas[i].make() : std::nullopt;
        std::optional<Trial> trial = attempt ? std::optional(trialOf(std::move(*attempt))) : std::nullopt;
        const auto isAhead = [&](const std::optional<Trial> &other) {
          return other && isSame(other->attempt, trial->attempt);
        };
        if (trial && (!isNew(trial->attempt) || std::any_of(trials.begin(), trials.end(), isAhead)))
          trial.reset();
        trials.push_back(std::move(trial));
      }
      std::vector<std::future<Outcome>> outcomes; // destroyed first: they wait for what still runs
      for (const std::optional<Trial> &trial : trials)
        outcomes.push_back(std::async(outcomes.empty() || !trial ? std::launch::deferred : std::launch::async,
                                      [this, &trial] { return outcomeOf(*trial); }));
      for (std::size_t i = 0; next < end && changes_ == changes; ++i, ++next)
        if (trials[i] && ideas[next].isWorthIt() && isNew(trials[i]->attempt))
          take(trials[i]->attempt, outcomes[i].get());
    }
  }

  /// The share after the best: the step time falls with the share, then rises.
  int mostPromising() const { return best_.share.percent == 0 ? 20 : best_.share.percent == 20 ? 55 : 100; }

  Attempt withShare(Share share) const {
    share.percent = std::clamp(share.percent, 0, 100);
    return {{fillBoundary(share), best_.start.first, best_.start.leaves}, share, best_.tuning};
  }

  BoundaryStates fillBoundary(const Share &share) const {
    BoundaryStates boundary = input_.given.states;
    std::uint64_t pages = frames_ * static_cast<std::uint64_t>(share.percent) / 100;
    for (PieceIndex piece : ranking_) {
      if (timeline_.piece(piece).pageCount > pages)
        break;
      pages -= timeline_.piece(piece).pageCount;
      boundary[piece] = share.state;
    }
    return boundary;
  }

  /// Returns how many pages of each piece strayed; nothing if there is no plan, or nothing new.
  IndexedVector<PieceIndex, std::uint32_t> attempt(Attempt attempt) {
    const Trial trial = trialOf(std::move(attempt));
    if (!isNew(trial.attempt))
      return {};
    return take(trial.attempt, outcomeOf(trial));
  }

  Trial trialOf(Attempt attempt) const {
    input_.settleCopies(attempt.start.boundary);
    DraftStart start = withCrowd(attempt.start);
    return {std::move(attempt), std::move(start), homesOfCrowd()};
  }

  static bool isSame(const Attempt &a, const Attempt &b) {
    return a.start.first == b.start.first && a.start.leaves == b.start.leaves &&
           a.tuning.slackWeight == b.tuning.slackWeight && a.tuning.looksFurther == b.tuning.looksFurther &&
           std::equal(a.start.boundary.begin(), a.start.boundary.end(), b.start.boundary.begin());
  }
  bool isNew(const Attempt &attempt) const {
    return std::none_of(tried_.begin(), tried_.end(), [&](const Attempt &other) { return isSame(other, attempt); });
  }

  IndexedVector<PieceIndex, std::uint32_t> take(const Attempt &attempt, Outcome outcome) {
    tried_.push_back(attempt);
    effort_ += outcome.effort;
    while (!outcome.candidate && outcome.stuck->node && restarts_ < mostRestarts) {
      ++restarts_;
      ++changes_;
      search_.best() ? keepHomes(*outcome.stuck->node) : gatherCrowd(*outcome.stuck->node);
      outcome = outcomeOf(trialOf(attempt));
      effort_ += outcome.effort;
    }
    if (outcome.candidate && search_.take(std::move(*outcome.candidate))) {
      best_ = attempt;
      ++changes_;
    }
    return std::move(outcome.strays);
  }

  /// From several threads at once, while something else becomes the best.
  Outcome outcomeOf(const Trial &trial) const {
    tl::expected<Draft, Stuck> draft = draftPlan(input_, trial.start, trial.attempt.tuning, &trial.homes);
    if (!draft)
      return {std::nullopt, {}, draft.error(), draft.error().effort};
    IndexedVector<PieceIndex, std::uint32_t> strays = draft->strayPages;
    const std::uint64_t effort = draft->effort;
    return {search_.judge(std::move(*draft)), std::move(strays), std::nullopt, effort};
  }

  /// From now on pieces of the nodes with large working sets choose frames before all others, the largest first, but
  /// before these, pieces of nodes that found none, the latest of them first.
  void gatherCrowd(NodeIndex stuck) {
    crowded_ = crowded_ == UINT64_MAX ? timeline_.workingSetPages(stuck) : crowded_ - crowded_ / 8;
    std::erase(promoted_, stuck);
    promoted_.insert(promoted_.begin(), stuck);
    std::vector<std::pair<std::uint64_t, NodeIndex>> nodes;
    for (NodeIndex node = 0; node < timeline_.nodeCount(); ++node)
      if (const std::uint64_t pages = timeline_.workingSetPages(node); pages >= crowded_)
        nodes.push_back({pages, node});
    std::stable_sort(nodes.begin(), nodes.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
    for (auto node = promoted_.rbegin(); node != promoted_.rend(); ++node)
      nodes.insert(nodes.begin(), {timeline_.workingSetPages(*node), *node});
    clearCrowd();
    for (const auto &[pages, node] : nodes)
      for (std::uint32_t position : timeline_.usesAt(node))
        join(timeline_.use(position).piece);
  }

  void clearCrowd() {
    crowd_.clear();
    isInCrowd_ = IndexedVector<PieceIndex, bool>(timeline_.pieces().size(), false);
    if (fixed_)
      for (PieceIndex piece : fixed_->tight)
        join(piece);
  }
  void join(PieceIndex piece) {
    if (isInCrowd_[piece])
      return;
    isInCrowd_[piece] = true;
    crowd_.push_back(piece);
  }

  /// From now on the node's pieces have the frames of the best plan so far, in which they fit together.
  void keepHomes(NodeIndex stuck) {
    for (std::uint32_t position : timeline_.usesAt(stuck))
      kept_.insert(timeline_.use(position).piece);
  }

  /// Of those whose frames are fixed two may share some: then the later of them is away at the boundary. Of those that
  /// keep theirs, two that are on the device then in the best plan do not.
  DraftStart withCrowd(const DraftStart &start) const {
    DraftStart result{start.boundary, crowd_, start.leaves};
    std::vector<bool> isTaken(input_.frameCount, false);
    const auto keepIfFree = [&](PieceIndex piece, const std::vector<std::int32_t> &homes) {
      const bool isFree = std::none_of(homes.begin(), homes.end(),
                                       [&](std::int32_t frame) { return isTaken[static_cast<std::size_t>(frame)]; });
      if (!isFree)
        result.boundary[piece] = BoundaryState::Away;
      else
        for (std::int32_t frame : homes)
          isTaken[static_cast<std::size_t>(frame)] = true;
    };
    if (fixed_)
      for (PieceIndex piece : crowd_)
        if (result.boundary[piece] != BoundaryState::Away)
          keepIfFree(piece, fixed_->homes[piece]);
    for (PieceIndex piece : kept_) {
      if (search_.best()->draft.boundary[piece] == BoundaryState::Away)
        result.boundary[piece] = BoundaryState::Away;
      else if (fixed_ && !isInCrowd_[piece] && result.boundary[piece] != BoundaryState::Away)
        keepIfFree(piece, search_.framesOf(piece));
    }
    for (PieceIndex piece : start.first)
      if (!isInCrowd_[piece])
        result.first.push_back(piece);
    return result;
  }

  PieceFrames homesOfCrowd() const {
    PieceFrames homes = input_.given.homes;
    if (fixed_)
      for (PieceIndex piece : crowd_)
        homes[piece] = fixed_->homes[piece];
    for (PieceIndex piece : kept_)
      if (!input_.given.isGiven[piece])
        homes[piece] = search_.framesOf(piece);
    return homes;
  }

  /// Pieces that came back more often than `fetches` times a page found bad frames: they choose before the others.
  Attempt whereRestlessChoose(double fetches) const {
    const Draft &draft = search_.best()->draft;
    std::vector<std::pair<double, PieceIndex>> restless;
    for (std::size_t i = 0; i < timeline_.pieces().size(); ++i) {
      const PieceIndex piece = static_cast<PieceIndex>(i);
      const double perPage = static_cast<double>(draft.fetchedPages[piece]) / timeline_.piece(piece).pageCount;
      if (perPage >= fetches)
        restless.push_back({perPage, piece});
    }
    std::stable_sort(restless.begin(), restless.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
    Attempt next = best_;
    next.start.first.clear();
    std::uint64_t pages = frames_ / 2;
    for (const auto &[perPage, piece] : restless) {
      if (timeline_.piece(piece).pageCount > pages)
        break;
      pages -= timeline_.piece(piece).pageCount;
      next.start.first.push_back(piece);
    }
    return next;
  }

  /// Looks at more groups for each newcomer: better on large budgets, worse on small ones, and slower on all.
  Attempt lookingFurther() const {
    Attempt next = best_;
    next.tuning.looksFurther = true;
    return next;
  }

  /// Those that came back after the last node only to be on the device between the steps may as well come when the next
  /// step needs them. A good host copy serves those that give their frames up before they are written, and nobody else.
  void settleBoundary() {
    const Draft &draft = search_.best()->draft;
    Attempt next = best_;
    for (std::size_t i = 0; i < timeline_.pieces().size(); ++i) {
      const PieceIndex piece = static_cast<PieceIndex>(i);
      BoundaryState &state = next.start.boundary[piece];
      if (input_.given.isGiven[piece])
        continue;
      if (draft.cameForBoundary[piece])
        state = BoundaryState::Away;
      else if (state != BoundaryState::Away)
        state = draft.leftUnwritten[piece] ? BoundaryState::Mirrored : BoundaryState::Resident;
    }
    attempt(std::move(next));
  }

  /// Gaps by price, and the boundary with them. Pieces that have to leave all the same, because of the frames they got,
  /// choose theirs before all others.
  void chooseByPrice() {
    const Candidate &best = *search_.best();
    GapChoice choice = chooseGaps(input_, best.draft, best.schedule);
    Attempt next = best_;
    if (next.start.leaves.empty())
      next.start.first.clear();
    next.start.boundary = std::move(choice.boundary);
    next.start.leaves = std::move(choice.leaves);
    next.tuning.slackWeight = slackWeightByPrice;
    std::vector<PieceIndex> &first = next.start.first;
    IndexedVector<PieceIndex, bool> isFirst(timeline_.pieces().size(), false);
    for (PieceIndex piece : first)
      isFirst[piece] = true;
    for (int round = 0; round < roundsOfStrays; ++round) {
      const IndexedVector<PieceIndex, std::uint32_t> strays = attempt(next);
      std::vector<std::pair<double, PieceIndex>> more;
      for (std::size_t i = 0; i < strays.size(); ++i)
        if (const PieceIndex piece = static_cast<PieceIndex>(i); strays[piece] > 0 && !isFirst[piece])
          more.push_back({static_cast<double>(strays[piece]) / timeline_.piece(piece).pageCount, piece});
      if (more.empty() || isSpent())
        return;
      std::stable_sort(more.begin(), more.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
      for (const auto &[perPage, piece] : more) {
        first.push_back(piece);
        isFirst[piece] = true;
      }
    }
  }

  /// Pieces written near the end of the step would be copied after it: only a part of them, those used for the last
  /// time earliest, have a host copy.
  Attempt mirroringOnly(double part, Attempt next) const {
    std::vector<std::pair<NodeIndex, PieceIndex>> mirrored;
    for (PieceIndex piece : ranking_)
      if (next.start.boundary[piece] == BoundaryState::Mirrored)
        mirrored.push_back({timeline_.usesOf(piece).back().node, piece});
    std::sort(mirrored.begin(), mirrored.end());
    for (std::size_t i = static_cast<std::size_t>(part * static_cast<double>(mirrored.size())); i < mirrored.size();
         ++i)
      next.start.boundary[mirrored[i].second] = BoundaryState::Resident;
    return next;
  }

  /// What is saved after the last node makes the step longer, though at its beginning the link down may be idle. Of the
  /// pieces that are saved last, as many as take `part` of that time are on the device between steps instead, and leave
  /// in the next one.
  std::optional<Attempt> leavingLater(double part) const {
    const Candidate &best = *search_.best();
    const Schedule &schedule = best.schedule;
    const std::size_t nodes = best.draft.capturedCount;
    double nodesEndUs = 0;
    for (std::size_t node = 0; node < nodes; ++node)
      nodesEndUs = std::max(nodesEndUs, schedule.endUs[node]);
    double leftUs = part * (schedule.totalUs - nodesEndUs);
    if (leftUs < leastTail * schedule.totalUs)
      return std::nullopt;
    std::map<BufferIndex, std::vector<std::size_t>> saves; // after the last node
    for (std::size_t i = 0; i < best.draft.transfers.size(); ++i)
      if (best.draft.transfers[i].kind == NodeKind::Evict && schedule.endUs[nodes + i] > nodesEndUs)
        saves[best.draft.transfers[i].pages.buffer].push_back(i);
    Attempt next = best_;
    next.start.leaves.resize(best.draft.leftAt.size(), 0);
    std::vector<std::pair<double, PieceIndex>> last; // by the end of its save, the latest first
    for (PieceIndex piece : ranking_) {
      const Piece &pages = timeline_.piece(piece);
      if (next.start.boundary[piece] != BoundaryState::Away || !timeline_.usesOf(piece).front().needsValue())
        continue;
      for (const std::size_t save : saves[pages.buffer]) {
        const PageRun &run = best.draft.transfers[save].pages;
        if (run.firstPage < pages.firstPage + pages.pageCount && pages.firstPage < run.firstPage + run.pageCount) {
          last.push_back({-schedule.endUs[nodes + save], piece});
          break;
        }
      }
    }
    std::sort(last.begin(), last.end());
    for (const auto &[endUs, piece] : last) {
      if (leftUs <= 0)
        break;
      leftUs -= static_cast<double>(timeline_.piece(piece).bytes) / input_.machine.downBytesPerSecond * 1e6;
      next.start.boundary[piece] = BoundaryState::Resident;
      next.start.leaves[timeline_.piece(piece).usesBegin] = 1;
    }
    return next;
  }

  const PlannerInput &input_;
  const Timeline &timeline_;
  PlanSearch &search_;
  const FixedHomes *fixed_;
  const Processors &processors_;
  std::vector<PieceIndex> ranking_;
  std::uint64_t frames_; ///< for private pages between steps
  Attempt best_;
  std::vector<Attempt> tried_;
  std::uint64_t crowded_;           ///< pages of a working set from which on its pieces choose first
  std::vector<NodeIndex> promoted_; ///< nodes whose pieces found no frames, the latest first
  std::vector<PieceIndex> crowd_;
  IndexedVector<PieceIndex, bool> isInCrowd_;
  std::set<PieceIndex> kept_; ///< have the frames that they have in the best plan
  int restarts_ = 0;
  std::uint64_t changes_ = 0; ///< of what is best, and of who has which frames
  std::uint64_t effort_ = 0;  ///< of all drafts so far
  std::uint64_t mostEffort_;
};

/// Fewer, larger transfers: the farther a transfer is looked for, the more find each other, and the more are moved away
/// from where they were wanted. Looks in few places if planning has taken long.
void joinNeighbours(const PlannerInput &input, PlanSearch &search, bool isSpent) {
  const Candidate apart = *search.best();
  const std::uint32_t mostPages = mostPagesOfTransfer(input.timeline);
  for (std::uint32_t reach : {0, 4, 16, 64, 256})
    if (reach == 0 || !isSpent)
      search.tryDraft(joinTransfers(apart.draft, apart.schedule, {reach, mostPages}));
}

/// Transfers that have time give way to those that have none; each time some do, others have less. The schedule starts
/// captured nodes in their order, which the prediction does not: where branches run side by side both have to be
/// faster.
void giveWay(const PlannerInput &input, PlanSearch &search, bool isSpent) {
  for (int round = 0; round < (isSpent ? 1 : roundsOfDeferrals); ++round) {
    const Candidate &best = *search.best();
    Draft deferring = deferTransfers(input, best.draft, best.schedule);
    if (deferring.deferrals.size() == best.draft.deferrals.size())
      return;
    Candidate candidate = search.judge(std::move(deferring));
    const auto predictedUs = [&](const Candidate &each) {
      return predict(writePlan(input, each.draft, each.schedule, search.budgetBytes()), input.machine).totalUs;
    };
    if (!isSpent && predictedUs(candidate) > predictedUs(best))
      return;
    if (!search.take(std::move(candidate)))
      return;
  }
}

std::optional<Candidate> findPlan(const PlannerInput &input, std::uint64_t budgetBytes, const FixedHomes *fixed,
                                  bool isQuick, const Processors &processors) {
  const Timeline &timeline = input.timeline;
  PlanSearch search(input, budgetBytes);
  const auto isContinued = [](const Piece &piece) { return piece.isContinued; };
  if (!input.given.isShared && timeline.peakPages() <= input.frameCount &&
      std::none_of(timeline.pieces().begin(), timeline.pieces().end(), isContinued)) {
    search.tryDraft(draftWithoutTransfers(input));
    return search.best();
  }
  StartSearch starts(input, search, fixed, processors);
  starts.run();
  if (search.best() && !isQuick)
    starts.chooseHomes();
  if (search.best())
    joinNeighbours(input, search, starts.isSpent());
  if (search.best() && input.keepsHostCopy.empty())
    giveWay(input, search, starts.isSpent());
  if (search.best())
    return search.best();
  if (const std::optional<PieceFrames> homes = fixed ? fixed->homes : colourPieces(input)) {
    if (tl::expected<Draft, Stuck> draft = draftPlan(input, {input.given.states, {}, {}}, Tuning(), &*homes))
      search.tryDraft(std::move(*draft));
  }
  return search.best();
}

/// The same plan, of the step with what is known of it.
Description withKnowledgeOf(const Description &captured, Description planned) {
  for (BufferIndex b = 0; b < captured.buffers.size(); ++b) {
    planned.buffers[b].liveIn = captured.buffers[b].liveIn;
    planned.buffers[b].liveOut = captured.buffers[b].liveOut;
  }
  auto next = captured.nodes.begin();
  for (Node &node : planned.nodes)
    if (!isResidency(node.kind))
      node = *next++;
  return planned;
}

/// How large pieces may be: where nodes are long, a copy takes as long as one of them, but no piece takes more than a
/// small part of the budget. Operations on managed memory are joined beyond pieces anyway.
std::uint64_t pieceBytesFor(const Timeline &uncut, const PlanOptions &options, std::uint64_t budgetBytes) {
  if (options.backend != Backend::Virtual)
    return defaultPieceBytes;
  const double nodeUs = uncut.times().totalUs / std::max<double>(1, uncut.nodeCount());
  const double bytesPerSecond = std::min(options.machine.upBytesPerSecond, options.machine.downBytesPerSecond);
  const double inNode = nodeUs * bytesPerSecond / 1e6;
  const double inBudget = static_cast<double>(budgetBytes) / leastPiecesInBudget;
  return std::max(defaultPieceBytes, static_cast<std::uint64_t>(std::min(inNode, inBudget)));
}

/// The same by piece: either all pages of one have frames or none.
FixedHomes ofPieces(const WideColouring &colouring, const Timeline &timeline) {
  FixedHomes result;
  for (std::size_t i = 0; i < timeline.pieces().size(); ++i) {
    const Piece &piece = timeline.piece(static_cast<PieceIndex>(i));
    std::vector<std::int32_t> &homes = result.homes[result.homes.add({})];
    const auto first = colouring.frames[piece.buffer].begin() + piece.firstPage;
    if (*first == noFrame)
      continue;
    for (auto frame = first; frame != first + piece.pageCount; ++frame)
      homes.push_back(*frame + static_cast<std::int32_t>(timeline.exclusivePages()));
    if (colouring.isTight[piece.buffer][piece.firstPage])
      result.tight.push_back(static_cast<PieceIndex>(i));
  }
  return result;
}

/// Whether a step is worth more than one search: not if there is nothing to choose, and not if one takes long anyway.
bool deservesSeveralSearches(const Timeline &timeline, const PlanOptions &options, std::uint64_t frames) {
  return !options.boundary && !options.isQuick && options.backend == Backend::Virtual &&
         timeline.nodeCount() <= mostNodesOfSeveralSearches &&
         timeline.peakPages() > frames + timeline.exclusivePages();
}

/// No size but the last is as large as the largest buffer.
std::vector<std::uint64_t> pieceSizesFor(const Description &step, std::uint64_t pieceBytes, bool several) {
  std::uint64_t largest = 0;
  for (const Buffer &buffer : step.buffers)
    largest = std::max(largest, buffer.isPrivate ? buffer.size : 0);
  std::vector<std::uint64_t> sizes;
  for (const std::uint64_t multiple : pieceMultiples)
    if (sizes.empty() || (several && sizes.back() < largest))
      sizes.push_back(multiple * pieceBytes);
  return sizes;
}

/// What a search goes by, with pieces of one size.
class SearchInput {
public:
  SearchInput(const Description &step, const Order &order, const Machine &machine, const PlanOptions &options,
              std::uint64_t pieceBytes, std::uint64_t frameCount)
      : timeline_(step, pieceBytes, machine), given_(givenBoundary(step, timeline_, options.boundary, frameCount)),
        input_{step, timeline_, order, machine, frameCount, given_} {
    if (options.backend != Backend::Virtual)
      input_.keepsHostCopy = keepHostCopies(step, options.backend);
  }
  SearchInput(const SearchInput &) = delete;
  SearchInput &operator=(const SearchInput &) = delete;
  const PlannerInput &get() const { return input_; }

private:
  Timeline timeline_;
  GivenBoundary given_;
  PlannerInput input_;
};

/// For so many searches side by side. Quick ones use one each: whoever makes them makes many.
Processors processorsFor(std::size_t searches, const PlanOptions &options) {
  const unsigned processors = options.processors ? options.processors : std::thread::hardware_concurrency();
  return Processors(options.isQuick ? 1 : processors, static_cast<unsigned>(searches));
}

/// The plan of a step in which some pages may be hosted: for the planner these are not there. `choices`: the frames
/// that are fixed beforehand, null for none. There is a search for each of them and each size of pieces, side by side,
/// and the best plan counts.
std::optional<Description> planAround(const Description &step, const Order &order, const PlanOptions &options,
                                      const std::vector<std::uint64_t> &pieceSizes, std::uint64_t budgetBytes,
                                      std::uint64_t frameCount, const std::vector<const WideColouring *> &choices) {
  Machine machine = options.machine;
  if (machine.hostBytes != UINT64_MAX)
    machine.hostBytes -= std::min(machine.hostBytes, hostedBytes(step));
  Processors processors = processorsFor(pieceSizes.size() * choices.size(), options);
  std::deque<SearchInput> inputs;
  std::vector<std::pair<const PlannerInput *, std::future<std::optional<Candidate>>>> searches;
  for (const std::uint64_t pieceBytes : pieceSizes) {
    const PlannerInput &input = inputs.emplace_back(step, order, machine, options, pieceBytes, frameCount).get();
    for (const WideColouring *colouring : choices)
      searches.push_back({&input, std::async([&, colouring] {
                            const std::optional<FixedHomes> fixed =
                                colouring ? std::optional(ofPieces(*colouring, input.timeline)) : std::nullopt;
                            std::optional<Candidate> found =
                                findPlan(input, budgetBytes, fixed ? &*fixed : nullptr, options.isQuick, processors);
                            processors.searchIsDone();
                            return found;
                          })});
  }
  const PlannerInput *inputOfBest = nullptr;
  std::optional<Candidate> best;
  for (auto &[input, search] : searches)
    if (std::optional<Candidate> found = search.get(); found && (!best || isBetter(*found, *best, machine))) {
      inputOfBest = input;
      best = std::move(found);
    }
  if (!best)
    return std::nullopt;
  return writePlan(*inputOfBest, best->draft, best->schedule, budgetBytes);
}

/// Where some nodes use nearly all frames there is little choice: frames for all pages, found without regard for time,
/// of which the pages of these nodes keep theirs.
std::optional<WideColouring> colourCrowd(const Description &step, const Timeline &timeline, const Machine &machine,
                                         std::uint64_t frames) {
  const std::vector<NodeIndex> crowded = crowdedNodes(timeline, frames);
  if (crowded.empty())
    return std::nullopt;
  Description hosting = step;
  tl::expected<WideColouring, NoColouring> colouring =
      hostForColouring(hosting, timeline, frames, machine, Balance::No);
  if (!colouring || hostedBytes(hosting) > 0)
    return std::nullopt;
  for (const NodeIndex node : crowded)
    for (std::uint32_t position : timeline.usesAt(node)) {
      const Piece &piece = timeline.piece(timeline.use(position).piece);
      std::vector<bool> &isTight = colouring->isTight[piece.buffer];
      std::fill_n(isTight.begin() + piece.firstPage, piece.pageCount, true);
    }
  return std::move(*colouring);
}

bool isHostedAlike(const Description &one, const Description &other) {
  return std::equal(one.buffers.begin(), one.buffers.end(), other.buffers.begin(), other.buffers.end(),
                    [](const Buffer &a, const Buffer &b) { return a.hosted == b.hosted; });
}

bool isFaster(const Description &one, const Description &other, const Machine &machine) {
  return predict(one, machine).totalUs < predict(other, machine).totalUs;
}

/// Hosts what nodes touch beyond the frames. Since a page keeps its frame, that can be too little: then a colouring
/// tells what else. If there is none, more is hosted by steps that grow, in the end all that can be.
tl::expected<Description, PlanError> planHosting(Description step, const Timeline &timeline, const PlanOptions &options,
                                                 std::uint64_t budgetBytes, std::uint64_t frameCount) {
  const std::uint64_t steps = options.boundary ? 0 : 8;
  const Order order(step);
  const std::uint64_t frames = frameCount - timeline.exclusivePages();
  const bool several = deservesSeveralSearches(timeline, options, frames);
  const std::vector<std::uint64_t> pieceSizes =
      pieceSizesFor(step, pieceBytesFor(timeline, options, budgetBytes), several);
  if (const std::optional<NodeIndex> stuck = hostExcess(step, timeline, frames, options.machine))
    return tl::unexpected(
        PlanError{*stuck, fmt::format("{}, and too much of it are operands of copies, which cannot be left in host "
                                      "memory; the budget is {}",
                                      needOf(step, timeline, *stuck), formatBytes(budgetBytes))});
  const auto plan = [&](const std::vector<const WideColouring *> &choices) {
    return planAround(step, order, options, pieceSizes, budgetBytes, frameCount, choices);
  };
  const bool isWide = hostedBytes(step) > 0 && !options.boundary;
  if (!isWide) {
    std::vector<const WideColouring *> choices{nullptr};
    const std::optional<WideColouring> crowded =
        several ? colourCrowd(step, timeline, options.machine, frames) : std::nullopt;
    if (crowded)
      choices.push_back(&*crowded);
    if (std::optional<Description> planned = plan(choices))
      return std::move(*planned);
  }
  if (!options.boundary) {
    std::optional<Description> best;
    for (const Balance balance : {Balance::No, Balance::Nodes}) {
      const tl::expected<WideColouring, NoColouring> wide =
          hostForColouring(step, timeline, frames, options.machine, balance);
      std::optional<Description> planned =
          wide && !(best && isHostedAlike(step, *best)) ? plan({&*wide}) : std::nullopt;
      if (planned && (!best || isFaster(*planned, *best, options.machine)))
        best = std::move(planned);
      if (options.isQuick)
        break;
    }
    if (best)
      return std::move(*best);
  }
  for (std::uint64_t i = isWide ? 0 : 1; i <= steps; ++i) {
    hostExcess(step, timeline, frames - frames * i * i / (steps * steps), options.machine);
    if (std::optional<Description> planned = plan({nullptr}))
      return std::move(*planned);
  }
  if (options.boundary)
    return tl::unexpected(PlanError{std::nullopt, "no frames found for all pages beside those that other steps keep"});
  return tl::unexpected(PlanError{
      std::nullopt, fmt::format("no frames found for all pages: each keeps one frame for the whole step, operands of "
                                "copies cannot be left in host memory, and the {} frames of the budget do not let "
                                "every node's pages lie in different ones",
                                frameCount)});
}

/// Plans a step, and again with what may go on at other addresses; the fastest plan counts.
class Renaming {
public:
  /// All are referred to.
  Renaming(const Description &step, const Timeline &timeline, const PlanOptions &options, std::uint64_t budgetBytes,
           std::uint64_t frameCount)
      : step_(step), timeline_(timeline), options_(options), budgetBytes_(budgetBytes), frameCount_(frameCount),
        frames_(frameCount - timeline.exclusivePages()) {}

  tl::expected<Description, PlanError> run() {
    tl::expected<Description, PlanError> planned = planHosting(step_, timeline_, options_, budgetBytes_, frameCount_);
    if (!planned || options_.boundary || options_.isQuick || options_.backend != Backend::Virtual)
      return planned;
    best_ = std::move(*planned);
    tryWith(worthRenaming(step_, best_, timeline_, options_, frames_));
    if (hostedBytes(best_) > 0 && step_.nodes.size() <= mostNodesOfSeveralSearches)
      tryWith(withSplitsOfHosted());
    return std::move(best_);
  }

private:
  void tryWith(const std::vector<Split> &splits) {
    if (splits.size() == splits_.size())
      return;
    std::optional<Description> other = planWith(splits, options_);
    if (!other)
      return;
    const bool fits = fitsHost(*other), fitted = fitsHost(best_);
    const double otherUs = predictedUs(*other) + doubtUs(*other, best_, options_.machine);
    if (fits == fitted ? otherUs >= predictedUs(best_) : !fits)
      return;
    best_ = std::move(*other);
    splits_ = splits;
  }

  std::optional<Description> planWith(const std::vector<Split> &splits, const PlanOptions &options) const {
    const SplitStep split(step_, splits);
    const Timeline timeline(split.parts());
    const tl::expected<Description, PlanError> planned =
        planHosting(split.parts(), timeline, options, budgetBytes_, frameCount_);
    return planned ? std::optional(split.join(*planned)) : std::nullopt;
  }

  bool fitsHost(const Description &plan) const { return statsOf(plan).hostBytes <= options_.machine.hostBytes; }
  double predictedUs(const Description &plan) const { return predict(plan, options_.machine).totalUs; }

  /// What is hosted for one node's sake goes elsewhere where that makes a quick plan faster: always the one that gains
  /// most, and then the next.
  std::vector<Split> withSplitsOfHosted() const {
    PlanOptions quick = options_;
    quick.isQuick = true;
    std::vector<bool> isWide;
    for (NodeIndex node = 0; node < timeline_.nodeCount(); ++node)
      isWide.push_back(timeline_.workingSetPages(node) > frames_);
    std::vector<Split> chosen = splits_;
    if (std::find(isWide.begin(), isWide.end(), true) == isWide.end())
      return chosen;
    const std::optional<Description> without = planWith(chosen, quick);
    if (!without)
      return chosen;
    std::optional<Description> quickest = without;
    double leastUs = predictedUs(*without);
    for (int round = 0; round < mostSplitsOfHosted; ++round) {
      std::vector<std::pair<std::vector<Split>, std::future<std::optional<Description>>>> trials;
      const double gainUs = leastGainOfSplit * leastUs, enoughUs = leastUs - gainUs;
      for (const Split &split : splitsOfHosted(step_, *quickest, chosen, isWide, options_.machine, gainUs)) {
        std::vector<Split> more = chosen;
        more.insert(std::upper_bound(more.begin(), more.end(), split,
                                     [](const Split &one, const Split &other) {
                                       return std::pair(one.buffer, one.until) < std::pair(other.buffer, other.until);
                                     }),
                    split);
        trials.push_back({more, std::async([this, more, &quick] { return planWith(more, quick); })});
      }
      bool isFaster = false;
      for (auto &[splits, trial] : trials) {
        std::optional<Description> plan = trial.get();
        const double us = plan ? predictedUs(*plan) + doubtUs(*plan, *without, options_.machine) : 0;
        if (!plan || us >= std::min(enoughUs, leastUs) || (!fitsHost(*plan) && fitsHost(*without)))
          continue;
        isFaster = true;
        leastUs = us;
        quickest = std::move(plan);
        chosen = splits;
      }
      if (!isFaster)
        break;
    }
    return chosen;
  }

  const Description &step_;
  const Timeline &timeline_;
  const PlanOptions &options_;
  std::uint64_t budgetBytes_;
  std::uint64_t frameCount_;
  std::uint64_t frames_; ///< for private pages
  Description best_;
  std::vector<Split> splits_; ///< of the best plan
};

} // namespace

PlanStats statsOf(const Description &planned) {
  PlanStats stats;
  std::set<std::int32_t> frames;
  for (const Buffer &buffer : planned.buffers)
    frames.insert(buffer.frames.begin(), buffer.frames.end());
  frames.erase(noFrame);
  stats.framesUsed = frames.size();
  for (const Node &node : planned.nodes) {
    stats.discards += node.kind == NodeKind::Discard;
    stats.evictions += movesDown(node.kind);
    stats.prefetches += movesUp(node.kind);
  }
  const Traffic moved = movedTraffic(planned);
  stats.upBytes = moved.upBytes;
  stats.downBytes = moved.downBytes;
  stats.hostBytes = (planned.hostBytes ? planned.hostBytes : HostPlaces(planned).bytes()) + hostedBytes(planned);
  return stats;
}

tl::expected<PlannedStep, PlanError> planResidency(const Description &captured, const PlanOptions &options) {
  if (const std::optional<PlanError> error = checkInput(captured))
    return tl::unexpected(*error);
  Description unplanned = captured;
  for (Buffer &buffer : unplanned.buffers)
    buffer.hosted.clear();
  const std::uint64_t peakPages = Timeline(unplanned).peakPages();
  if (options.boundary) {
    PlanError error;
    error.message = takeBoundary(unplanned, *options.boundary, error.node);
    if (!error.message.empty())
      return tl::unexpected(std::move(error));
  }
  const Timeline timeline(unplanned);
  std::uint64_t allPages = othersFrames(options.boundary); // more frames than pages are of no use
  for (BufferIndex b = 0; b < captured.buffers.size(); ++b)
    allPages += captured.pageCount(b);
  const std::uint64_t enoughPages = options.boundary ? allPages : std::max<std::uint64_t>(1, peakPages);
  const std::uint64_t budgetBytes = options.budgetBytes ? options.budgetBytes : enoughPages * timeline.pageBytes();
  if (const std::optional<PlanError> error = checkBudget(timeline, budgetBytes))
    return tl::unexpected(*error);
  const std::uint64_t frameCount = std::min(budgetBytes / timeline.pageBytes(), allPages);
  if (options.boundary)
    if (const std::optional<PlanError> error = checkFramesBeside(unplanned, *options.boundary, frameCount))
      return tl::unexpected(*error);

  const bool nothingDies = options.backend == Backend::ManagedUnknown && peakPages > frameCount;
  tl::expected<Description, PlanError> planned =
      Renaming(nothingDies ? withNothingDead(unplanned) : std::move(unplanned), timeline, options, budgetBytes,
               frameCount)
          .run();
  if (!planned)
    return tl::unexpected(planned.error());
  PlannedStep step;
  step.description = nothingDies ? withKnowledgeOf(captured, std::move(*planned)) : std::move(*planned);
  step.stats = statsOf(step.description);
  step.stats.peakPagesBefore = peakPages;
  if (step.stats.hostBytes > options.machine.hostBytes)
    return tl::unexpected(
        hostShortage(captured, step.description, timeline, step.stats.hostBytes, options.machine.hostBytes));
  return step;
}

} // namespace pumpgraph
