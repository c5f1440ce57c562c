// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/FindPlan.h"

#include "passes/analysis/Prediction.h"
#include "passes/plan/Deferral.h"
#include "passes/plan/GapChoice.h"
#include "passes/plan/PlanWriter.h"
#include "passes/plan/Rehoming.h"

#include <algorithm>
#include <functional>
#include <future>
#include <map>
#include <set>
#include <utility>

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

/// Pages that have to be on the device between steps, wherever they like.
std::uint64_t residentsWithoutHome(const PlannerInput &input) {
  std::uint64_t pages = 0;
  for (std::size_t i = 0; i < input.timeline.pieces().size(); ++i)
    if (const PieceIndex piece = static_cast<PieceIndex>(i);
        input.given.states[piece] != BoundaryState::Away && !input.given.hasHome(piece))
      pages += input.timeline.piece(piece).pageCount;
  return pages;
}

/// Frames for pieces that may be on the device between steps, and need not.
std::uint64_t framesToChooseFrom(const PlannerInput &input) {
  const std::uint64_t own = input.frameCount - input.given.ownFrom;
  return own - std::min(own, residentsWithoutHome(input));
}

/// Looks for the start from which the pass over the nodes makes the best plan: which live pieces are on the device
/// between two steps, which of them have a good host copy too, and who chooses frames first.
class StartSearch {
public:
  /// `fixed`: where those that are to choose first have their frames instead; may be null. No plan depends on
  /// `processors`.
  StartSearch(const PlannerInput &input, PlanSearch &search, const FixedHomes *fixed, const Processors &processors)
      : input_(input), timeline_(input.timeline), search_(search), fixed_(fixed), processors_(processors),
        ranking_(byIdleTime(input)), frames_(framesToChooseFrom(input)), crowded_(UINT64_MAX),
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
    if (input_.isForManaged()) // then the next replay begins beside what is saved last
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
    // Present pieces, which any two of have frames of their own, come first: they cannot be away.
    if (fixed_)
      for (const bool isGiven : {true, false})
        for (PieceIndex piece : crowd_)
          if (input_.given.isGiven[piece] == isGiven && result.boundary[piece] != BoundaryState::Away)
            keepIfFree(piece, fixed_->homes[piece]);
    for (PieceIndex piece : kept_) {
      if (input_.given.isGiven[piece])
        continue;
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
      // Given pieces beside fixed ones might be in their frames at the boundary.
      if (!input_.given.hasHome(piece) && !(fixed_ && input_.given.isGiven[piece]))
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
  std::uint64_t frames_; ///< for private pages between steps that need not be there
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

} // namespace

std::optional<Candidate> findPlan(const PlannerInput &input, std::uint64_t budgetBytes, const FixedHomes *fixed,
                                  bool isQuick, const Processors &processors) {
  const Timeline &timeline = input.timeline;
  PlanSearch search(input, budgetBytes);
  const auto isContinued = [](const Piece &piece) { return piece.isContinued; };
  if (!input.given.isShared && timeline.peakPages() <= input.frameCount &&
      std::none_of(timeline.pieces().begin(), timeline.pieces().end(), isContinued))
    if (std::optional<Draft> draft = draftWithoutTransfers(input)) {
      search.tryDraft(std::move(*draft));
      return search.best();
    }
  StartSearch starts(input, search, fixed, processors);
  starts.run();
  if (search.best() && !isQuick)
    starts.chooseHomes();
  if (search.best())
    joinNeighbours(input, search, starts.isSpent());
  if (search.best() && !input.isForManaged())
    giveWay(input, search, starts.isSpent());
  if (search.best())
    return search.best();
  if (input.given.isShared && residentsWithoutHome(input) > 0) // a colouring knows nothing of others' frames
    return std::nullopt;
  if (const std::optional<PieceFrames> homes = fixed ? fixed->homes : colourPieces(input)) {
    if (tl::expected<Draft, Stuck> draft = draftPlan(input, {input.given.states, {}, {}}, Tuning(), &*homes))
      search.tryDraft(std::move(*draft));
  }
  return search.best();
}

} // namespace pumpgraph
