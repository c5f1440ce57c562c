// SPDX-License-Identifier: Apache-2.0
/// \file
/// The figures of one planned step, once, for every report: text, JSON, HTML, the runtime's own.
#pragma once

#include "passes/analysis/Bound.h"
#include "passes/analysis/Machine.h"
#include "passes/analysis/Prediction.h"
#include "passes/plan/PlanResidency.h"
#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pumpgraph {

/// Everything a report says about one step at one budget. Invariant: `planned` and `lowered` were accepted by the
/// checker if and only if `checked`.
struct Summary {
  Description captured;
  Description lowered;
  Machine machine;
  PlanStats stats;
  Bound bound;     ///< BoundKind::Must
  Bound planBound; ///< BoundKind::May
  Prediction inMemory; ///< of `captured`: every byte on the device
  Prediction prediction; ///< of `lowered`
  bool checked = false;
  double planMs = 0; ///< wall time of planning, lowering and checking, milliseconds
};

/// One point of a sweep over budgets.
struct SweepPoint {
  std::uint64_t budgetBytes = 0;
  bool plannable = false;
  std::string reason; ///< if not plannable
  double predictedUs = 0, boundUs = 0, planBoundUs = 0;
  std::uint64_t upBytes = 0, downBytes = 0, peakBytes = 0;
};

/// Runs the whole pipeline: costs, plan, check, lower, check, predict, bound.
tl::expected<Summary, PlanError> summarize(const Description &captured, const PlanOptions &options);

/// Plans `points` budgets from the smallest the step can live with to what it needs in memory.
std::vector<SweepPoint> sweep(const Description &captured, const PlanOptions &options, int points);

/// "compute", "link up", "link down", "link both ways", or "nothing: everything fits".
std::string limitedBy(const Summary &summary);

std::string toText(const Summary &summary);
/// Keys: docs/report.md.
std::string toJson(const Summary &summary);
/// The plan for an outsider: buffer, offset, size, direction, after, before, frame.
std::string planToJson(const Summary &summary);
/// Chrome trace events (opens in Perfetto).
std::string timelineToJson(const Summary &summary);
/// One self-contained page. `points` may be empty: then the curve is left out.
std::string toHtml(const Summary &summary, const std::vector<SweepPoint> &points);

} // namespace pumpgraph
