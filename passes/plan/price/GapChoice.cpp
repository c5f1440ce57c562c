// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/price/GapChoice.h"

#include "passes/analysis/Indices.h"
#include "passes/plan/Knobs.h"
#include "passes/plan/schedule/Deferral.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

namespace pumpgraph {

namespace {

/// Slots of equal length in which a microsecond of the link has one price.
constexpr std::size_t slotCount = 128;
/// How often the price of room is raised: planning time is bounded.
constexpr int mostRaises = 256;
/// How many gaps are looked at for a price in the time that counts as 1.
constexpr std::uint64_t gapsOfEffort = 8;

/// What a microsecond of each direction of the link is worth, from 0 (nobody waits for it) to 1 (the step ends later by
/// what is added), as a plan leaves it.
struct LinkWorth {
  double slotUs = 0; ///< time is cut into slots of equal length
  std::vector<double> up, down;
  std::vector<double> startUs, endUs; ///< of the captured nodes, in that plan
};

/// Pages that are in the way of others, by node: a tree of ranges, which are added to and asked for the most.
class Excess {
public:
  struct Most {
    std::int64_t pages = std::numeric_limits<std::int64_t>::min();
    NodeIndex node = 0; ///< the first with as many
  };

  explicit Excess(const std::vector<std::int64_t> &pages)
      : size_(pages.size()), most_(4 * size_), added_(4 * size_, 0) {
    if (size_ > 0)
      build(1, 0, size_, pages);
  }
  void add(std::size_t begin, std::size_t end, std::int64_t pages) {
    if (begin < end)
      add(1, 0, size_, begin, end, pages);
  }
  Most most(std::size_t begin, std::size_t end) const { return begin < end ? most(1, 0, size_, begin, end) : Most(); }

private:
  static Most larger(const Most &left, const Most &right) { return right.pages > left.pages ? right : left; }
  void takeFromParts(std::size_t at) {
    most_[at] = larger(most_[2 * at], most_[2 * at + 1]);
    most_[at].pages += added_[at];
  }

  void build(std::size_t at, std::size_t first, std::size_t last, const std::vector<std::int64_t> &pages) {
    if (last - first == 1) {
      most_[at] = {pages[first], static_cast<NodeIndex>(first)};
      return;
    }
    const std::size_t middle = (first + last) / 2;
    build(2 * at, first, middle, pages);
    build(2 * at + 1, middle, last, pages);
    takeFromParts(at);
  }
  void add(std::size_t at, std::size_t first, std::size_t last, std::size_t begin, std::size_t end,
           std::int64_t pages) {
    if (begin <= first && last <= end) {
      most_[at].pages += pages;
      added_[at] += pages;
      return;
    }
    const std::size_t middle = (first + last) / 2;
    if (begin < middle)
      add(2 * at, first, middle, begin, end, pages);
    if (middle < end)
      add(2 * at + 1, middle, last, begin, end, pages);
    takeFromParts(at);
  }
  Most most(std::size_t at, std::size_t first, std::size_t last, std::size_t begin, std::size_t end) const {
    if (begin <= first && last <= end)
      return most_[at];
    const std::size_t middle = (first + last) / 2;
    Most result;
    if (begin < middle)
      result = most(2 * at, first, middle, begin, end);
    if (middle < end)
      result = larger(result, most(2 * at + 1, middle, last, begin, end));
    result.pages += added_[at];
    return result;
  }

  std::size_t size_;
  std::vector<Most> most_;
  std::vector<std::int64_t> added_; ///< to all of a range, not in what is below it
};

class GapChooser {
public:
  GapChooser(const PlannerInput &input, const LinkWorth &worth, const Draft &last)
      : input_(input), timeline_(input.timeline), worth_(worth), leftAt_(last.leftAt),
        nodeCount_(timeline_.nodeCount()), choice_{last.boundary, std::vector<std::uint8_t>(leftAt_.size(), 0),
                                                   std::vector<std::uint32_t>(leftAt_.size(), 0), 0} {}

  GapChoice run() {
    std::vector<std::int64_t> pages(nodeCount_ + 1, 0); // what each node adds to the one before, then the sum
    for (const PieceIndex piece : indicesOf(timeline_.pieces()))
      collect(piece, pages);
    std::partial_sum(pages.begin(), pages.end(), pages.begin());
    pages.pop_back();
    for (std::int64_t &each : pages)
      each -= static_cast<std::int64_t>(input_.frameCount - timeline_.exclusivePages());
    Excess excess(pages);
    price(excess);
    cover(excess);
    giveBack(excess);
    settle();
    trim(excess);
    return std::move(choice_);
  }

private:
  /// A stretch without use after which the piece's value is needed, or at the end of the step has to be somewhere. It
  /// covers the nodes [first, last), or, around the step boundary, [first, end of the step) and [0, last).
  struct Gap {
    PieceIndex piece{};
    std::uint32_t use = 0; ///< position of the use at its end
    NodeIndex first = 0, last = 0;
    bool wraps = false;
    bool ends = false;      ///< at the boundary: the next step overwrites the value, so it need not come back
    bool canMirror = false; ///< a host copy made at the end of the last step would still be good
    bool isClean = false;   ///< there is one, whatever is chosen
    double downUs = 0, upUs = 0;
    double paidUs = 0; ///< by the room it makes, at the prices so far
    double lengthUs = 0;
    bool isChosen = false;
  };

  /// Whether it is chosen here where the piece is at the step boundary.
  bool isFree(PieceIndex piece) const {
    return !input_.given.isShared && !input_.given.isGiven[piece] && timeline_.piece(piece).liveOut &&
           !timeline_.usesOf(piece).empty();
  }

  /// Notes a piece's gaps, and, in `pages`, from where to where it is on the device if it leaves in none.
  void collect(PieceIndex index, std::vector<std::int64_t> &pages) {
    const Piece &piece = timeline_.piece(index);
    const std::span<const Use> uses = timeline_.usesOf(index);
    if (uses.empty())
      return;
    const auto stays = [&](std::size_t first, std::size_t last) {
      pages[first] += piece.pageCount;
      pages[last] -= piece.pageCount;
    };
    const NodeIndex first = uses.front().node, end = uses.back().node + 1;
    const BoundaryState state = choice_.boundary[index];
    const bool isLive = piece.hasValueBefore() && uses.front().needsValue();
    const bool isAlwaysClean = input_.isForManaged() && input_.leavesClean(index);
    if (isFree(index) && isLive)
      gaps_.push_back({index, piece.usesBegin, end, first, true, false, false, isAlwaysClean, 0, 0, 0, 0, false});
    if (isFree(index) || (piece.liveOut && state != BoundaryState::Away)) {
      stays(end, nodeCount_);
      if (isLive)
        stays(0, first);
    }
    stays(first, first + 1);
    bool isWritten = false;
    for (std::size_t i = 1; i < uses.size(); ++i) {
      const NodeIndex from = uses[i - 1].node + 1, to = uses[i].node;
      isWritten |= uses[i - 1].writes;
      stays(to, to + 1);
      if (!uses[i].needsValue() || from == to)
        continue;
      stays(from, to);
      const bool isUnwritten = isLive && !isWritten && input_.leavesClean(index);
      const bool isClean = isAlwaysClean || (isUnwritten && !isFree(index) && state != BoundaryState::Resident);
      gaps_.push_back({index, piece.usesBegin + static_cast<std::uint32_t>(i), from, to, false, false,
                       isUnwritten && isFree(index), isClean, 0, 0, 0, 0, false});
    }
    if (isFree(index) && !isLive)
      gaps_.push_back({index, piece.usesEnd, end, nodeCount_, false, true, false, isAlwaysClean, 0, 0, 0, 0, false});
  }

  std::size_t slotOf(double us) const {
    return std::min(slotCount - 1, static_cast<std::size_t>(std::max(0.0, us / worth_.slotUs)));
  }
  /// Slots from `slotCount` on are those of the next step.
  static double least(const std::vector<double> &worth, std::size_t first, std::size_t last) {
    double result = worth[first % slotCount];
    for (std::size_t slot = first + 1; slot <= last; ++slot)
      result = std::min(result, worth[slot % slotCount]);
    return result;
  }

  /// What each gap costs: a copy down before the node at which there is most in the way, and one up after it. Where
  /// nothing is in the way, there is nothing to gain.
  void price(const Excess &excess) {
    std::erase_if(gaps_, [&](const Gap &gap) { return mostIn(excess, gap).pages <= 0; });
    for (Gap &gap : gaps_) {
      const Piece &piece = timeline_.piece(gap.piece);
      const NodeIndex at = mostIn(excess, gap).node;
      const std::size_t from = slotOf(worth_.endUs[gap.first - 1]);
      const double stepUs = worth_.slotUs * static_cast<double>(slotCount);
      const double lastUs = gap.ends ? stepUs : worth_.startUs[gap.last];
      const std::size_t to = slotOf(lastUs) + (gap.wraps ? slotCount : 0);
      const std::size_t there = slotOf(worth_.startUs[at]) + (at < gap.first ? slotCount : 0);
      double down = least(worth_.down, from, std::max(from, there));
      if (gap.canMirror)
        down = std::min(
            down, least(worth_.down, slotOf(worth_.endUs[timeline_.usesOf(gap.piece).back().node]), slotCount - 1));
      const double discount = gap.wraps ? knobs::wrapDiscount : leftBefore(gap, at) ? knobs::habitDiscount : 1;
      const double megabytes = static_cast<double>(piece.bytes) * 1e6;
      if (!gap.isClean)
        gap.downUs =
            discount * down * (overheadUs(input_.machine, true) + megabytes / input_.machine.downBytesPerSecond);
      if (!gap.ends)
        gap.upUs = discount * least(worth_.up, std::min(there, to), to) *
                   (overheadUs(input_.machine, false) + megabytes / input_.machine.upBytesPerSecond);
      gap.lengthUs = lastUs - worth_.endUs[gap.first - 1] + (gap.wraps ? stepUs : 0);
    }
  }
  /// Whether the piece had given way by that node in the last plan.
  bool leftBefore(const Gap &gap, NodeIndex node) const {
    return gap.ends ? choice_.boundary[gap.piece] == BoundaryState::Away : leftAt_[gap.use] <= node;
  }

  Excess::Most mostIn(const Excess &excess, const Gap &gap) const {
    const Excess::Most most = excess.most(gap.first, gap.wraps ? nodeCount_ : gap.last);
    const Excess::Most head = gap.wraps ? excess.most(0, gap.last) : Excess::Most();
    return head.pages > most.pages ? head : most;
  }
  bool covers(const Gap &gap, std::size_t node) const {
    return gap.wraps ? node >= gap.first || node < gap.last : gap.first <= node && node < gap.last;
  }
  std::int64_t pagesOf(const Gap &gap) const { return timeline_.piece(gap.piece).pageCount; }
  /// What is left to pay for a page.
  double pageUs(const Gap &gap) const {
    return std::max(0.0, gap.downUs + gap.upUs - gap.paidUs) / static_cast<double>(pagesOf(gap));
  }
  void addTo(Excess &excess, const Gap &gap, std::int64_t pages) const {
    excess.add(gap.first, gap.wraps ? nodeCount_ : gap.last, pages);
    if (gap.wraps)
      excess.add(0, gap.last, pages);
  }

  /// Raises the price of room at the node where most is in the way, until enough gaps pay for themselves there, and
  /// again. A gap that has paid at one node costs less at the next.
  void cover(Excess &excess) {
    for (int raise = 0; raise < mostRaises; ++raise) {
      const Excess::Most most = excess.most(0, nodeCount_);
      if (most.pages <= 0)
        return;
      choice_.effort += gaps_.size() / gapsOfEffort;
      std::int64_t missing = most.pages;
      double priceUs = 0; // of a page
      for (const std::size_t g : cheapestAt(most.node)) {
        if (missing <= 0)
          break;
        priceUs = pageUs(gaps_[g]);
        missing -= pagesOf(gaps_[g]);
        choose(excess, g);
      }
      if (missing > 0)
        excess.add(most.node, most.node + 1, -missing); // nobody else can leave
      for (Gap &gap : gaps_)
        if (covers(gap, most.node))
          gap.paidUs += priceUs * static_cast<double>(pagesOf(gap));
    }
  }

  /// Gaps that are not chosen yet; of equally dear ones the longest first.
  std::vector<std::size_t> cheapestAt(std::size_t node) const {
    std::vector<std::tuple<std::int64_t, double, std::size_t>> order;
    for (std::size_t g = 0; g < gaps_.size(); ++g)
      if (!gaps_[g].isChosen && covers(gaps_[g], node))
        order.push_back({std::llround(pageUs(gaps_[g]) * 1e5), -gaps_[g].lengthUs, g});
    std::sort(order.begin(), order.end());
    std::vector<std::size_t> result;
    for (const auto &[us, length, g] : order)
      result.push_back(g);
    return result;
  }

  void choose(Excess &excess, std::size_t g) {
    Gap &gap = gaps_[g];
    gap.isChosen = true;
    chosen_.push_back(g);
    addTo(excess, gap, -pagesOf(gap));
    if (!input_.leavesClean(gap.piece))
      return;
    // The host copy stays good until the next write.
    std::uint32_t use = gap.use;
    for (std::size_t next = g + 1; next < gaps_.size() && gaps_[next].piece == gap.piece; ++next) {
      for (; use < gaps_[next].use; ++use)
        if (timeline_.use(use).writes)
          return;
      gaps_[next].downUs = 0;
    }
  }

  /// Gives back what later choices have made superfluous.
  void giveBack(Excess &excess) {
    for (auto g = chosen_.rbegin(); g != chosen_.rend(); ++g) {
      Gap &gap = gaps_[*g];
      if (mostIn(excess, gap).pages + pagesOf(gap) > 0)
        continue;
      addTo(excess, gap, pagesOf(gap));
      gap.isChosen = false;
    }
  }

  void settle() {
    for (const PieceIndex piece : indicesOf(timeline_.pieces()))
      if (isFree(piece))
        choice_.boundary[piece] = BoundaryState::Resident;
    for (const Gap &gap : gaps_) {
      BoundaryState &state = choice_.boundary[gap.piece];
      if (gap.isChosen && (gap.wraps || gap.ends))
        state = BoundaryState::Away;
      else if (gap.isChosen)
        choice_.leaves[gap.use] = 1;
      if (gap.isChosen && gap.canMirror && state == BoundaryState::Resident)
        state = BoundaryState::Mirrored;
    }
  }

  /// A piece leaves as a whole, though there may be room for some of it.
  void trim(Excess &excess) {
    for (auto g = chosen_.rbegin(); g != chosen_.rend(); ++g) {
      const Gap &gap = gaps_[*g];
      if (!gap.isChosen || gap.wraps || gap.ends)
        continue;
      const std::int64_t spare = std::clamp<std::int64_t>(-mostIn(excess, gap).pages, 0, pagesOf(gap));
      addTo(excess, gap, spare);
      choice_.pages[gap.use] = static_cast<std::uint32_t>(pagesOf(gap) - spare);
    }
  }

  const PlannerInput &input_;
  const Timeline &timeline_;
  const LinkWorth &worth_;
  const std::vector<std::uint32_t> &leftAt_; ///< Draft::leftAt of the last plan
  NodeIndex nodeCount_;
  std::vector<Gap> gaps_; ///< by piece, then time
  std::vector<std::size_t> chosen_;
  GapChoice choice_;
};

LinkWorth worthOfLink(const PlannerInput &input, const Draft &draft, const Schedule &schedule) {
  const std::vector<double> latestUs = latestStartsUs(input, draft, schedule);
  LinkWorth worth;
  worth.slotUs = std::max(schedule.totalUs, 1e-3) / slotCount;
  worth.up.assign(slotCount, knobs::leastWorth);
  worth.down.assign(slotCount, knobs::leastWorth);
  worth.startUs.assign(schedule.startUs.begin(), schedule.startUs.begin() + draft.capturedCount);
  worth.endUs.assign(schedule.endUs.begin(), schedule.endUs.begin() + draft.capturedCount);
  for (std::size_t i = 0; i < draft.transfers.size(); ++i) {
    const std::size_t task = draft.capturedCount + i;
    const bool isUp = draft.transfers[i].kind == NodeKind::Prefetch;
    const double startUs = schedule.startUs[task], endUs = schedule.endUs[task];
    const double slack = (latestUs[task] - startUs) / std::max(schedule.totalUs, 1e-3);
    const double share = std::max(0.0, 1 - slack / knobs::freeSlack) * (1 - knobs::leastWorth);
    std::vector<double> &lane = isUp ? worth.up : worth.down;
    for (std::size_t slot = static_cast<std::size_t>(startUs / worth.slotUs);
         slot < slotCount && static_cast<double>(slot) * worth.slotUs < endUs; ++slot) {
      const double begin = std::max(startUs, static_cast<double>(slot) * worth.slotUs);
      const double end = std::min(endUs, static_cast<double>(slot + 1) * worth.slotUs);
      lane[slot] += share * std::max(0.0, end - begin) / worth.slotUs;
    }
  }
  return worth;
}

} // namespace

GapChoice chooseGaps(const PlannerInput &input, const Draft &draft, const Schedule &schedule) {
  const LinkWorth worth = worthOfLink(input, draft, schedule);
  return GapChooser(input, worth, draft).run();
}

} // namespace pumpgraph
