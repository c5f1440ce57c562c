// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/WindowSearch.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace pumpgraph {
namespace {

/// Bytes that count in every window (i, j] with firstAfter <= i < at <= j: `at` is the first visit after `firstAfter`.
struct UpDemand {
  std::size_t firstAfter, at;
  std::uint64_t bytes;
  bool isHeld;       ///< on the device at `firstAfter` anyhow
  std::size_t price; ///< for which they may be made again
};

/// Bytes that count in every window (i, j] with i < before and from <= j < to: they leave after `i`, for until then
/// they are not written, or in use.
struct DownDemand {
  std::size_t before, from, to;
  std::uint64_t bytes;
  bool isHeld;       ///< on the device at `from` anyhow
  bool isHeldAtLast; ///< on the device at `to` - 1 anyhow
};

/// The dynamic programme over windows (i, j] of cut points, 0 <= i < j <= last. Point 0 is the end of some segment, or
/// the start of the step; from there the points go around once, or through several replays, whose boundaries are among
/// them.
class WindowSearch {
public:
  explicit WindowSearch(const WindowProblem &problem)
      : round_(problem.segmentsUs.size()), rounds_(problem.rounds), last_(round_ * rounds_), first_(problem.first),
        pointsUs_(last_ + 1, 0), budgetBytes_(problem.budgetBytes), hostedBytes_(problem.hostedBytes),
        upUsPerByte_(1e6 / problem.machine.upBytesPerSecond), downUsPerByte_(1e6 / problem.machine.downBytesPerSecond),
        prices_(problem.machine), interference_(interference(problem.machine)), upAt_(last_ + 1), downFrom_(last_ + 1),
        downTo_(last_ + 2), heldBytes_(last_ + 1, 0) {
    for (std::size_t i = 0; i < last_; ++i)
      pointsUs_[i + 1] = pointsUs_[i] + problem.segmentsUs[(first_ + i) % round_];
  }

  void add(const PieceHistory &history) {
    const std::vector<Visit> &visits = history.visits;
    if (visits.empty())
      return;
    const auto afterStart =
        std::find_if(visits.begin(), visits.end(), [&](const Visit &visit) { return visit.segment >= first_; });
    const std::size_t start = static_cast<std::size_t>(afterStart - visits.begin()) % visits.size();
    std::vector<bool> hasValue(visits.size());
    bool written = history.liveIn;
    const std::vector<std::size_t> prices = pricesOf(visits);
    for (std::size_t k = 0; k < visits.size(); ++k) {
      hasValue[k] = written;
      written |= visits[k].writesAll;
      anyRemade_ = anyRemade_ || prices[k] != RemakePrices::never;
    }
    Written last;
    const std::size_t count = visits.size() * rounds_;
    // Where the search begins, what was used right before is on the device, unless that is another replay's.
    const Visit &before = visits[(start + visits.size() - 1) % visits.size()];
    bool isHeld = first_ > 0 && before.segment + 1 == first_ && before.isAlone;
    std::size_t previous = 0;
    if (isHeld)
      heldBytes_[0] += static_cast<double>(history.bytes);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t k = (start + i) % visits.size();
      const std::size_t round = i / visits.size();
      if (k == 0 && !history.liveIn)
        last = Written(); // another replay's value
      const std::size_t point = pointOf(visits[k], round);
      const std::size_t neededAt = point - (visits[k].isAlone ? 1 : 0);
      if (hasValue[k] && visits[k].neededBytes > 0 && neededAt > previous)
        upAt_[neededAt].push_back({previous, neededAt, visits[k].neededBytes, isHeld, prices[k]});
      const std::size_t leavesIfBefore = point + (visits[k].isAlone ? 1 : 0);
      if (visits[k].isOnDevice && hasValue[k])
        last = {leavesIfBefore, history.bytes};
      else if (visits[k].writtenBytes > 0)
        last = {leavesIfBefore, visits[k].writtenBytes};
      isHeld = visits[k].isAlone;
      if (isHeld)
        for (const std::size_t end : {point - 1, point})
          heldBytes_[end] += static_cast<double>(history.bytes);
      const std::size_t next =
          i + 1 < count ? pointOf(visits[(k + 1) % visits.size()], (i + 1) / visits.size()) : last_ + 1;
      addDownDemands(history, k, point, next, last, prices);
      previous = point;
    }
  }

  Bound solve() {
    Sums sums(last_ + 1);
    std::vector<Choice> choices(last_ + 1);
    for (std::size_t j = 1; j <= last_; ++j) {
      std::fill(sums.downHeld.begin(), sums.downHeld.end(), 0.0);
      for (const UpDemand &demand : upAt_[j]) {
        const double bytes = static_cast<double>(demand.bytes);
        sums.up[demand.firstAfter] += bytes;
        sums.up[demand.at] -= bytes;
        if (demand.price != RemakePrices::never) {
          sums.remade[demand.firstAfter][demand.price] += bytes;
          sums.remade[demand.at][demand.price] -= bytes;
        }
        sums.upHeld[demand.firstAfter] += demand.isHeld ? bytes : 0;
      }
      for (const DownDemand &demand : downTo_[j])
        sums.down[demand.before] -= static_cast<double>(demand.bytes);
      for (const DownDemand &demand : downFrom_[j]) {
        const double bytes = static_cast<double>(demand.bytes);
        sums.down[demand.before] += bytes;
        sums.downHeld[demand.before] += demand.isHeld ? bytes : 0;
      }
      for (const DownDemand &demand : downTo_[j + 1])
        sums.downHeld[demand.before] += demand.isHeldAtLast ? static_cast<double>(demand.bytes) : 0;
      choices[j] = bestWindowTo(j, choices, sums);
    }
    return describe(choices);
  }

private:
  enum class Limit { Compute, Up, Down, Both };
  struct Choice {
    double totalUs = 0; ///< of the best partition up to this point
    std::size_t begin = 0;
    double windowUs = 0;
    Limit limit = Limit::Compute;
  };

  using BytesByPrice = std::array<double, RemakePrices::count>;

  /// Byte sums for windows that end at one point.
  struct Sums {
    explicit Sums(std::size_t points)
        : up(points, 0), remade(points), upHeld(points, 0), down(points + 1, 0), downHeld(points + 1, 0) {}
    std::vector<double> up;           ///< differences over the windows' beginnings
    std::vector<BytesByPrice> remade; ///< likewise: of those, what may be made again
    std::vector<double> upHeld;       ///< by beginning: of those, what is on the device there anyhow
    std::vector<double> down;         ///< by `before`
    std::vector<double> downHeld;     ///< by `before`: of those, what is on the device at the end anyhow
  };

  struct Written {
    std::size_t before = 0; ///< it leaves in no window that begins here or later; 0: not since the search's start
    std::uint64_t bytes = 0;
  };

  /// What it costs, by visit, to make again what it finds; an earlier replay's cannot be. A node that finds nothing in
  /// particular, but does not overwrite all of a page, needs some value of the page: whatever is made there will do.
  static std::vector<std::size_t> pricesOf(const std::vector<Visit> &visits) {
    std::size_t any = RemakePrices::never;
    for (const Visit &visit : visits)
      any = std::min(any, visit.price);
    std::vector<std::size_t> prices;
    bool isRenewed = false; // since the step began
    std::size_t price = RemakePrices::never;
    for (const Visit &visit : visits) {
      prices.push_back(isRenewed && visit.finds ? price : any);
      isRenewed = isRenewed || visit.renewsAll;
      if (visit.writes)
        price = visit.renewsAll ? visit.price : std::min(price, visit.price);
    }
    return prices;
  }

  std::size_t pointOf(const Visit &visit, std::size_t round) const {
    return (visit.segment + round_ - first_) % round_ + 1 + round * round_;
  }
  /// The first end of a replay that is not before the point: where its last segment ends.
  std::size_t boundaryFrom(std::size_t point) const {
    const std::size_t boundary = round_ - first_;
    return point <= boundary ? boundary : boundary + (point - boundary + round_ - 1) / round_ * round_;
  }

  /// How much of what was written is certainly read by a later visit.
  static std::uint64_t overlap(const PieceHistory &history, std::uint64_t written, const Visit &later) {
    const std::uint64_t sum = written + later.neededBytes;
    return sum > history.bytes ? sum - history.bytes : 0;
  }

  /// What visit `k`, at `point`, leaves to be kept until the `next` one: within the step, or to the boundary and
  /// beyond it. Within the step, what may be made again is given up in place of leaving.
  void addDownDemands(const PieceHistory &history, std::size_t k, std::size_t point, std::size_t next,
                      const Written &written, const std::vector<std::size_t> &prices) {
    const std::vector<Visit> &visits = history.visits;
    if (k + 1 < visits.size()) {
      if (prices[k + 1] != RemakePrices::never)
        return;
      const std::uint64_t needed = overlap(history, written.bytes, visits[k + 1]);
      addDownDemand({written.before, point, next, needed, visits[k].isAlone, visits[k + 1].isAlone});
      return;
    }
    const std::size_t boundary = boundaryFrom(point);
    const bool crosses = boundary < last_; // else the next boundary ends the search
    if (history.liveOut)
      addDownDemand(
          {written.before, point, crosses ? boundary + 1 : last_ + 1, written.bytes, visits[k].isAlone, false});
    const bool ends = next <= last_; // within the search
    if (history.liveIn && crosses)
      addDownDemand({written.before, boundary + 1, next, overlap(history, written.bytes, visits.front()), false,
                     ends && visits.front().isAlone});
  }

  void addDownDemand(const DownDemand &demand) {
    if (demand.bytes == 0 || demand.before == 0 || demand.from >= demand.to)
      return;
    downFrom_[demand.from].push_back(demand);
    downTo_[demand.to].push_back(demand);
  }

  Choice bestWindowTo(std::size_t j, const std::vector<Choice> &choices, const Sums &sums) const {
    double upBytes = 0, downBytes = 0, downHeld = 0;
    BytesByPrice remade{};
    for (std::size_t w = 0; w <= j; ++w) {
      downBytes += sums.down[w];
      downHeld += sums.downHeld[w];
    }
    Choice best;
    best.totalUs = -1;
    for (std::size_t i = 0; i < j; ++i) {
      upBytes += sums.up[i];
      downBytes -= sums.down[i];
      downHeld -= sums.downHeld[i];
      const double roomAtBegin = roomBeside(heldBytes_[i] - sums.upHeld[i]);
      const double roomAtEnd = roomBeside(heldBytes_[j] - downHeld);
      const double comingBytes = std::max(0.0, upBytes - roomAtBegin - hostedBytes_);
      const double upUs = comingBytes * upUsPerByte_;
      const double downUs = std::max(0.0, downBytes - roomAtEnd - hostedBytes_) * downUsPerByte_;
      const double computeUs = pointsUs_[j] - pointsUs_[i];
      double windowUs = std::max(computeUs, togetherUs(upUs, downUs, interference_));
      if (anyRemade_) {
        for (std::size_t price = 0; price < remade.size(); ++price)
          remade[price] += sums.remade[i][price];
        windowUs = std::max(remakingUs(computeUs, comingBytes, remade), downUs);
      }
      if (choices[i].totalUs + windowUs > best.totalUs)
        best = {choices[i].totalUs + windowUs, i, windowUs, limitOf(computeUs, upUs, downUs)};
    }
    return best;
  }

  /// What a window takes in which bytes come or are made again, the cheapest first, whichever is sooner.
  double remakingUs(double computeUs, double comingBytes, const BytesByPrice &remade) const {
    double us = computeUs;
    for (std::size_t price = 0; price < remade.size() && comingBytes * upUsPerByte_ > us; ++price) {
      const double usPerByte = prices_.us(price);
      const double even = (comingBytes * upUsPerByte_ - us) / (usPerByte + upUsPerByte_);
      const double bytes = std::min(std::max(0.0, remade[price]), even);
      us += bytes * usPerByte;
      comingBytes -= bytes;
    }
    return std::max(us, comingBytes * upUsPerByte_);
  }

  /// What is left of the budget beside contents that do not count in the window.
  double roomBeside(double otherBytes) const { return std::max(0.0, budgetBytes_ - std::max(0.0, otherBytes)); }

  Limit limitOf(double computeUs, double upUs, double downUs) const {
    if (togetherUs(upUs, downUs, interference_) <= computeUs)
      return Limit::Compute;
    // Both directions as busy as the link allows, whichever of the two the window has more for.
    if (std::min(upUs, downUs) >= (1 - interference_) * std::max(upUs, downUs))
      return Limit::Both;
    return upUs > downUs ? Limit::Up : Limit::Down;
  }

  Bound describe(const std::vector<Choice> &choices) const {
    Bound result;
    result.totalUs = std::max(choices[last_].totalUs, 0.0);
    for (std::size_t j = last_; j > 0; j = choices[j].begin) {
      const Choice &choice = choices[j];
      switch (choice.limit) {
      case Limit::Compute:
        result.computeUs += choice.windowUs;
        break;
      case Limit::Up:
        result.upUs += choice.windowUs;
        break;
      case Limit::Down:
        result.downUs += choice.windowUs;
        break;
      case Limit::Both:
        result.bothUs += choice.windowUs;
        break;
      }
    }
    for (double *us : {&result.totalUs, &result.computeUs, &result.upUs, &result.downUs, &result.bothUs})
      *us /= static_cast<double>(rounds_);
    return result;
  }

  std::size_t round_;  ///< points of a replay
  std::size_t rounds_; ///< replays
  std::size_t last_;
  std::size_t first_; ///< segment after point 0
  std::vector<double> pointsUs_;
  double budgetBytes_, hostedBytes_;
  double upUsPerByte_, downUsPerByte_;
  RemakePrices prices_;
  bool anyRemade_ = false;
  double interference_;
  std::vector<std::vector<UpDemand>> upAt_;       ///< by `at`
  std::vector<std::vector<DownDemand>> downFrom_; ///< by `from`
  std::vector<std::vector<DownDemand>> downTo_;   ///< by `to`
  std::vector<double> heldBytes_;                 ///< by point: what the node that starts or ends there uses
};

} // namespace

Bound searchWindows(const WindowProblem &problem, const std::vector<PieceHistory> &histories) {
  WindowSearch search(problem);
  for (const PieceHistory &history : histories)
    search.add(history);
  return search.solve();
}

} // namespace pumpgraph
