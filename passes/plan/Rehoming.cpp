// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/Rehoming.h"

#include "passes/analysis/Bound.h"
#include "passes/plan/GapChoice.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <utility>

namespace pumpgraph {

namespace {

constexpr int mostRounds = 480;
/// Rounds in a row that together gain next to nothing, after which there will be no more: few of them, or little spent
/// on them, Draft::effort. For managed memory all rounds are of one kind (thinOut()), so fewer tell as much.
constexpr int fewVainRounds = 96, fewVainRoundsOfManaged = 48, mostVainRounds = 192;
/// Of few pieces the same ones choose again before long: so many of these rounds for each are the most.
constexpr std::size_t vainRoundsOfPiece = 8;
constexpr std::uint64_t littleEffort = 4'000'000;
/// Of the step: what is worth going on for.
constexpr double notableGain = 0.001;
/// Parts of the step whose pieces choose again, and Tuning::slackWeight when they do, in turn.
constexpr double windowShares[] = {0.4, 0.2, 0.1, 0.05};
constexpr double slackWeights[] = {0.25, 1, 4};
/// Of the buffers with such pieces, how many do, in turn, each for windows of all kinds. Where few large buffers live
/// side by side, one or two that choose again among all others find what all together do not.
constexpr double bufferShares[] = {1, 0.5, 0.125};
/// Of first uses and of last uses, two rounds each.
constexpr std::size_t roundsOfWindows = 4 * std::size(windowShares);
/// Groups have more tenants when everybody has a home, so pricing one takes longer.
constexpr std::uint64_t effortWeight = 2;

class Rehoming {
public:
  Rehoming(const PlannerInput &input, PlanSearch &search, const std::vector<std::uint8_t> &leaves, const Tuning &tuning)
      : input_(input), timeline_(input.timeline), search_(search), tuning_(tuning), leaves_(leaves) {}

  /// Most trials come to nothing. So those that would follow one another if none of them did are carried out side by
  /// side, and looked at in turn: what comes after one that is the best so far counts for nothing. A choice that came
  /// to nothing since then does so again, and is not carried out.
  void run(std::uint64_t mostEffort, const Processors &processors) {
    if (search_.best()->draft.transfers.empty())
      return;
    const Bound limit = bound(input_.captured, search_.budgetBytes(), input_.machine, BoundKind::May);
    int vain = 0;
    std::uint64_t effortBefore = 0; // of the rounds in vain
    double usBefore = search_.best()->schedule.totalUs;
    const int fewVain = input_.isForManaged() ? fewVainRoundsOfManaged : fewVainRounds;
    const int mostVain = static_cast<int>(std::clamp<std::size_t>(vainRoundsOfPiece * timeline_.pieces().size(),
                                                                  static_cast<std::size_t>(fewVain), mostVainRounds));
    const auto isInVain = [&] {
      return vain >= mostVain || (vain >= fewVain && effort_ - effortBefore >= littleEffort);
    };
    for (int round = 0; round < mostRounds && !isInVain() && effort_ < mostEffort; ++round) {
      const Candidate &best = *search_.best();
      if (best.draft.transfers.empty() || best.schedule.totalUs <= closeToBound * limit.totalUs)
        return;
      thinkAhead(round, processors.ofEach());
      ++vain;
      std::list<Trial> next;
      next.splice(next.end(), ahead_, ahead_.begin());
      Trial &trial = next.front();
      effort_ += trial.effort;
      if (const auto tried = inVain_.find(trial.choice); tried != inVain_.end())
        effort_ += tried->second; // as if it were carried out
      else if (keep(trial.choice, trial.outcome.get()))
        abandonAhead(processors.ofEach());
      if (const double us = search_.best()->schedule.totalUs; us < (1 - notableGain) * usBefore) {
        vain = 0;
        effortBefore = effort_;
        usBefore = us;
      }
    }
  }

private:
  /// Pieces whose first use, or last use, is at one of the nodes [begin, end).
  struct Window {
    bool isOfLastUses = false;
    double begin = 0, end = 0;
  };

  struct Outcome {
    std::optional<Candidate> candidate;
    std::vector<std::uint8_t> leaves;
    std::uint64_t effort = 0;
  };
  /// All that a trial's outcome depends on, beside the best plan.
  struct Choice {
    std::vector<PieceIndex> pieces; ///< that choose again
    bool leaveByPrice = false;
    double slackWeight = 0;
    auto operator<=>(const Choice &) const = default;
  };
  /// One pass in which the pieces of a window are free to choose homes. All others have those of the best plan, and
  /// homes that are given stay.
  struct Trial {
    Choice choice;
    DraftStart start;
    PieceFrames homes; ///< of the pieces that keep theirs
    Tuning tuning;
    std::uint64_t effort = 0; ///< of thinking of it
    /// Destroyed first: waits for who uses the others. None where the choice came to nothing before, or is that of a
    /// trial before this one.
    std::future<Outcome> outcome;
  };

  /// Two rounds in a row have windows alike, but for what is drawn for each.
  Window windowOf(int round) {
    const auto turn = static_cast<std::size_t>(round / 2);
    const double length = windowShares[turn / 2 % std::size(windowShares)] * timeline_.nodeCount();
    const bool isOfLastUses = turn % 2 == 1;
    const double middle = isOfLastUses ? drawnFor(round) % timeline_.nodeCount() : nodeThatWaits(drawnFor(round));
    return {isOfLastUses, middle - length / 2, middle + std::max(1.0, length / 2)};
  }

  /// The same for a round however often it is thought of.
  std::uint32_t drawnFor(int round) {
    while (drawn_.size() <= static_cast<std::size_t>(round))
      drawn_.push_back(static_cast<std::uint32_t>(random_()));
    return drawn_[static_cast<std::size_t>(round)];
  }

  /// A node of the best plan, as it was drawn; the longer it waits, the more likely.
  NodeIndex nodeThatWaits(std::uint32_t drawn) const {
    const Schedule &schedule = search_.best()->schedule;
    std::vector<double> waitedUs; // by node, with all before it
    double sumUs = 0, endUs = 0;
    for (NodeIndex node = 0; node < timeline_.nodeCount(); ++node) {
      sumUs += std::max(0.0, schedule.startUs[node] - endUs);
      endUs = std::max(endUs, schedule.endUs[node]);
      waitedUs.push_back(sumUs);
    }
    constexpr std::uint32_t resolution = 1 << 16;
    const double atUs = sumUs * (drawn % resolution) / resolution;
    const auto found = std::upper_bound(waitedUs.begin(), waitedUs.end(), atUs);
    return static_cast<NodeIndex>(std::min(found, waitedUs.end() - 1) - waitedUs.begin());
  }

  bool isIn(const Window &window, PieceIndex piece) const {
    const std::span<const Use> uses = timeline_.usesOf(piece);
    if (uses.empty())
      return false;
    const NodeIndex at = window.isOfLastUses ? uses.back().node : uses.front().node;
    return at >= window.begin && at < window.end;
  }

  /// Of those whose homes are not given.
  std::vector<PieceIndex> piecesIn(const Window &window) const {
    std::vector<PieceIndex> pieces;
    for (std::size_t i = 0; i < timeline_.pieces().size(); ++i)
      if (const PieceIndex piece = static_cast<PieceIndex>(i); !input_.given.hasHome(piece) && isIn(window, piece))
        pieces.push_back(piece);
    return pieces;
  }

  /// Leaves those of some buffers, drawn for the round. Not for managed memory: what is reckoned here is only near what
  /// its operations take in the end.
  void thinOut(std::vector<PieceIndex> &pieces, int round) {
    const double share = bufferShares[static_cast<std::size_t>(round) / roundsOfWindows % std::size(bufferShares)];
    if (share == 1 || input_.isForManaged())
      return;
    std::minstd_rand random(drawnFor(round));
    BufferIndex buffer = noBuffer; // a buffer's pieces follow one another
    bool stays = false;
    std::erase_if(pieces, [&](PieceIndex piece) {
      if (const BufferIndex next = timeline_.piece(piece).buffer; next != buffer) {
        buffer = next;
        stays = random() < share * std::minstd_rand::max();
      }
      return !stays;
    });
  }

  /// In turn, the pieces of a window leave when they did, or when it is cheapest by the prices of the best plan.
  Choice choiceOf(int round) {
    Choice choice{piecesIn(windowOf(round)), round % 2 == 1, 0};
    thinOut(choice.pieces, round);
    if (!choice.pieces.empty()) // else nothing is weighed
      choice.slackWeight = slackWeights[static_cast<std::size_t>(round) % std::size(slackWeights)];
    return choice;
  }

  void prepare(Trial &trial) {
    trial.start = {search_.best()->draft.boundary, {}, leaves_};
    trial.homes = input_.given.homes;
    trial.tuning = tuning_;
    trial.tuning.slackWeight = trial.choice.slackWeight;
    if (trial.choice.leaveByPrice)
      chooseGapsOf(trial);
    IndexedVector<PieceIndex, bool> isFree(timeline_.pieces().size(), false);
    for (PieceIndex piece : trial.choice.pieces)
      isFree[piece] = true;
    for (std::size_t i = 0; i < timeline_.pieces().size(); ++i)
      if (const PieceIndex piece = static_cast<PieceIndex>(i);
          !timeline_.usesOf(piece).empty() && !isFree[piece] && !input_.given.hasHome(piece))
        trial.homes[piece] = search_.framesOf(piece);
  }

  void chooseGapsOf(Trial &trial) {
    if (!gaps_) {
      gaps_ = chooseGaps(input_, search_.best()->draft, search_.best()->schedule);
      trial.effort += gaps_->effort;
    }
    DraftStart &start = trial.start;
    start.leaves.resize(gaps_->leaves.size(), 0);
    for (PieceIndex piece : trial.choice.pieces) {
      const Piece &uses = timeline_.piece(piece);
      start.boundary[piece] = gaps_->boundary[piece];
      std::copy(gaps_->leaves.begin() + uses.usesBegin, gaps_->leaves.begin() + uses.usesEnd,
                start.leaves.begin() + uses.usesBegin);
    }
    input_.settleCopies(start.boundary);
  }

  bool isNew(const Choice &choice) const {
    return !inVain_.contains(choice) &&
           std::none_of(ahead_.begin(), ahead_.end(), [&](const Trial &trial) { return trial.choice == choice; });
  }

  /// Begins the trials of this round and those after it, so that as many are under way. The first one is carried out
  /// when it is asked for, unless it was begun ahead.
  void thinkAhead(int round, unsigned atOnce) {
    while (ahead_.size() < atOnce) {
      const auto when = ahead_.empty() ? std::launch::deferred : std::launch::async;
      Choice choice = choiceOf(round + static_cast<int>(ahead_.size()));
      const bool isWorthIt = isNew(choice);
      Trial &trial = ahead_.emplace_back();
      trial.choice = std::move(choice);
      if (!isWorthIt)
        continue;
      prepare(trial);
      trial.outcome = std::async(when, [this, &trial] { return outcomeOf(trial); });
    }
  }

  /// What has been begun counts for nothing. It goes on beside what comes next, but no more of it than so many.
  void abandonAhead(unsigned most) {
    abandoned_.splice(abandoned_.end(), ahead_);
    abandoned_.remove_if([](const Trial &trial) {
      return !trial.outcome.valid() ||
             trial.outcome.wait_for(std::chrono::seconds::zero()) != std::future_status::timeout;
    });
    while (abandoned_.size() > most)
      abandoned_.pop_front();
  }

  /// From several threads at once.
  Outcome outcomeOf(Trial &trial) const {
    Outcome outcome;
    const auto pass = [&] {
      tl::expected<Draft, Stuck> draft = draftPlan(input_, trial.start, trial.tuning, &trial.homes);
      outcome.effort += effortWeight * (draft ? draft->effort : draft.error().effort);
      return draft;
    };
    tl::expected<Draft, Stuck> draft = pass();
    if (draft && mirrorWhatIsOnlyRead(trial.start.boundary, *draft))
      draft = pass();
    if (draft)
      outcome.candidate = search_.judge(std::move(*draft));
    outcome.leaves = std::move(trial.start.leaves);
    return outcome;
  }

  /// Whether it is the best so far.
  bool keep(const Choice &choice, Outcome outcome) {
    effort_ += outcome.effort;
    if (!outcome.candidate || !search_.take(std::move(*outcome.candidate))) {
      inVain_.emplace(choice, outcome.effort);
      return false;
    }
    leaves_ = std::move(outcome.leaves);
    gaps_.reset();
    inVain_.clear();
    return true;
  }

  /// What no node writes has a good host copy for nothing: if it leaves, it need not be saved. Returns whether anything
  /// is changed.
  bool mirrorWhatIsOnlyRead(BoundaryStates &boundary, const Draft &draft) const {
    bool isChanged = false;
    for (std::size_t i = 0; i < boundary.size(); ++i) {
      const PieceIndex piece = static_cast<PieceIndex>(i);
      const std::span<const Use> uses = timeline_.usesOf(piece);
      if (boundary[piece] != BoundaryState::Resident || !draft.leftUnwritten[piece] || !input_.leavesClean(piece) ||
          input_.given.isGiven[piece] ||
          std::any_of(uses.begin(), uses.end(), [](const Use &use) { return use.writes; }))
        continue;
      boundary[piece] = BoundaryState::Mirrored;
      isChanged = true;
    }
    return isChanged;
  }

  const PlannerInput &input_;
  const Timeline &timeline_;
  PlanSearch &search_;
  Tuning tuning_;
  std::vector<std::uint8_t> leaves_; ///< of the best plan
  std::optional<GapChoice> gaps_;    ///< by the prices of the best plan, once they were asked for
  std::mt19937 random_;              // the standard says what it draws, so plans are the same everywhere
  std::vector<std::uint32_t> drawn_; ///< by round
  std::uint64_t effort_ = 0;
  std::map<Choice, std::uint64_t> inVain_; ///< choices since the best plan, and what they took, Draft::effort
  std::list<Trial> ahead_;                 ///< the trials of the next rounds, if none of them is the best so far
  std::list<Trial> abandoned_;             ///< of those that may still be under way
};

} // namespace

void chooseHomesAgain(const PlannerInput &input, PlanSearch &search, const std::vector<std::uint8_t> &leaves,
                      const Tuning &tuning, std::uint64_t mostEffort, const Processors &processors) {
  Rehoming(input, search, leaves, tuning).run(mostEffort, processors);
}

} // namespace pumpgraph
