// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/SplitSearch.h"

#include "passes/analysis/Bound.h"
#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Prediction.h"
#include "passes/plan/Knobs.h"
#include "passes/plan/search/SplitCandidates.h"
#include "pumpgraph/graph/Ranges.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace pumpgraph {

namespace {

/// Plans a step, and again with what may go on at other addresses; the fastest plan counts.
class SplitSearch {
public:
  /// All are referred to.
  SplitSearch(const Description &step, const Timeline &timeline, const PlanningRoom &room)
      : step_(step), timeline_(timeline), options_(room.options), quickOptions_(quickly(room.options)), room_(room),
        quick_{quickOptions_, room.budgetBytes, room.frameCount, room.workers},
        frames_(room.frameCount - timeline.exclusivePages()) {}

  tl::expected<FoundPlan, PlanError> run() {
    tl::expected<FoundPlan, PlanError> planned = planHosting(step_, timeline_, room_);
    if (!planned)
      return tl::unexpected(planned.error());
    best_ = std::move(*planned);
    if (options_.boundary || options_.isQuick || options_.backend != Backend::Virtual ||
        step_.nodes.size() > knobs::mostNodesOfSeveralSearches)
      return std::move(best_);
    if (hostedBytes(best_.plan) > 0) {
      tryWith(splitsToSpareHosting(step_, timeline_, frames_, options_.machine));
      tryWith(splitsBesideWide());
    }
    splitByPrice();
    return std::move(best_);
  }

private:
  void tryWith(const std::vector<Split> &splits) {
    if (splits.size() != splits_.size())
      take(planWith(splits, room_), splits);
  }

  /// Returns whether it is the best plan now.
  bool take(std::optional<FoundPlan> other, const std::vector<Split> &splits) {
    if (!other)
      return false;
    const bool fits = fitsHost(other->plan), fitted = fitsHost(best_.plan);
    const double otherUs = predictedUs(other->plan) + doubtUs(other->plan, best_.plan, options_.machine);
    if (fits == fitted ? otherUs >= predictedUs(best_.plan) : !fits)
      return false;
    best_ = std::move(*other);
    splits_ = splits;
    return true;
  }

  /// What is to leave, by the prices of the best plan, comes back to frames of its own. Hosted is what was, and what
  /// wide nodes use keeps its frames. A quick plan tells whether there is hope.
  void splitByPrice() {
    const double limitUs = bound(step_, room_.budgetBytes, options_.machine, BoundKind::May).totalUs;
    for (std::size_t round = 0; round < knobs::roundsByPrice; ++round) {
      const double us = predictedUs(best_.plan);
      const std::vector<Split> splits = joinedSplits(step_, splits_, best_.byPrice);
      if (us <= knobs::closeToBound * limitUs || splits == splits_)
        return;
      const std::optional<FoundPlan> quick = planInPlaceWith(splits, quick_);
      if (!quick || predictedUs(quick->plan) > knobs::closeToBound * us ||
          !take(planInPlaceWith(splits, room_), splits) || predictedUs(best_.plan) > (1 - knobs::little) * us)
        return;
    }
  }

  /// With the splits of the best plan and more.
  std::optional<FoundPlan> planInPlaceWith(const std::vector<Split> &splits, const PlanningRoom &room) const {
    const SplitStep split(step_, splits);
    const Description placed = split.inParts(best_.plan);
    Description parts = split.parts();
    for (BufferIndex buffer = 0; buffer < parts.buffers.size(); ++buffer)
      parts.buffers[buffer].hosted = placed.buffers[buffer].hosted;
    std::optional<FoundPlan> found = planInPlace(parts, framesOfWide(placed), room);
    return found ? std::optional(joined(split, std::move(*found))) : std::nullopt;
  }

  /// Those of a plan's pages, of which those that wide nodes use are to keep theirs.
  WideColouring framesOfWide(const Description &placed) const {
    WideColouring colouring;
    for (BufferIndex buffer = 0; buffer < placed.buffers.size(); ++buffer) {
      std::vector<std::int32_t> frames = placed.buffers[buffer].frames;
      frames.resize(placed.pageCount(buffer), noFrame);
      for (std::int32_t &frame : frames)
        frame = frame == noFrame ? noFrame : frame - static_cast<std::int32_t>(timeline_.exclusivePages());
      colouring.isTight.emplace_back(frames.size(), false);
      colouring.frames.push_back(std::move(frames));
    }
    const std::vector<std::uint64_t> excess = excessPages(timeline_, frames_);
    for (NodeIndex node = 0; node < placed.nodes.size(); ++node)
      for (const Access &access : placed.nodes[node].accesses) {
        std::vector<bool> &isTight = colouring.isTight[access.buffer];
        for (const std::uint64_t page : pagesIn(access.range, placed.pageBytes))
          isTight[page] = isTight[page] || excess[node] > 0;
      }
    return colouring;
  }

  std::optional<FoundPlan> planWith(const std::vector<Split> &splits, const PlanningRoom &room) const {
    const SplitStep split(step_, splits);
    const Timeline timeline(split.parts(), defaultPieceBytes, {}, options_.apart);
    tl::expected<FoundPlan, PlanError> planned = planHosting(split.parts(), timeline, room);
    return planned ? std::optional(joined(split, std::move(*planned))) : std::nullopt;
  }

  static PlanOptions quickly(PlanOptions options) {
    options.isQuick = true;
    return options;
  }

  static FoundPlan joined(const SplitStep &split, FoundPlan found) {
    return {split.join(found.plan), split.join(found.byPrice), std::move(found.trace)};
  }

  bool fitsHost(const Description &plan) const { return statsOf(plan).hostBytes <= options_.machine.hostBytes; }
  double predictedUs(const Description &plan) const { return predict(plan, options_.machine).totalUs; }

  /// What is hosted for one node's sake goes elsewhere where that makes a quick plan faster:
  /// always the one that gains most, and then the next.
  std::vector<Split> splitsBesideWide() const {
    const std::vector<std::uint64_t> excess = excessPages(timeline_, frames_);
    std::vector<Split> chosen = splits_;
    if (std::all_of(excess.begin(), excess.end(), [](std::uint64_t pages) { return pages == 0; }))
      return chosen;
    const std::optional<FoundPlan> without = planWith(chosen, quick_);
    if (!without)
      return chosen;
    std::optional<FoundPlan> quickest = without;
    double leastUs = predictedUs(without->plan);
    for (int round = 0; round < knobs::mostOnTop; ++round) {
      std::vector<std::pair<std::vector<Split>, Job<std::optional<FoundPlan>>>> trials;
      const double gainUs = knobs::little * leastUs, enoughUs = leastUs - gainUs;
      for (const Split &split : splitsOfHosted(step_, quickest->plan, chosen, excess, options_.machine, gainUs)) {
        std::vector<Split> more = chosen;
        more.push_back(split);
        trials.push_back({more, room_.workers.begin([this, more] { return planWith(more, quick_); })});
      }
      bool isFaster = false;
      for (auto &[splits, trial] : trials) {
        std::optional<FoundPlan> tried = trial.get();
        const double us = tried ? predictedUs(tried->plan) + doubtUs(tried->plan, without->plan, options_.machine) : 0;
        if (!tried || us >= std::min(enoughUs, leastUs) || (!fitsHost(tried->plan) && fitsHost(without->plan)))
          continue;
        isFaster = true;
        leastUs = us;
        quickest = std::move(tried);
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
  const PlanOptions quickOptions_;
  const PlanningRoom &room_;
  const PlanningRoom quick_;
  std::uint64_t frames_; ///< for private pages
  FoundPlan best_;
  std::vector<Split> splits_; ///< of the best plan
};

} // namespace

tl::expected<FoundPlan, PlanError> planWithSplits(const Description &step, const Timeline &timeline,
                                                  const PlanningRoom &room) {
  return SplitSearch(step, timeline, room).run();
}

} // namespace pumpgraph
