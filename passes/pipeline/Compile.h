// SPDX-License-Identifier: Apache-2.0
/// \file
/// The pipeline: from a captured step to a lowered one that is checked, predicted and bounded.
#pragma once

#include "passes/analysis/Bound.h"
#include "passes/analysis/FewNodes.h"
#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Machine.h"
#include "passes/analysis/Prediction.h"
#include "passes/check/CheckResidency.h"
#include "passes/pipeline/ManagedPlans.h"
#include "passes/plan/PlanResidency.h"
#include "passes/rematerialize/Remakeable.h"
#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace pumpgraph {

struct CompileOptions {
  PlanOptions plan;
  /// On virtual memory, pure nodes may run again where that is predicted to be faster than moving their results.
  bool rematerializes = false;
  ManagedPlanning managed = {};
};

/// One step at one budget, stage by stage. `lowered` must not be replayed unless it is checked().
struct Compiled {
  Machine machine;
  Description captured; ///< analysed: every node has a cost
  Description planned;
  Description lowered;
  PlanStats stats;
  SearchTrace trace;                    ///< of the search that found `planned`
  std::optional<FewNodes> fewNodes;     ///< of `captured`: its times cannot be right
  std::optional<Remakeable> remakeable; ///< of `captured`, if the plan may run its nodes again
  std::vector<Violation> violations;    ///< of `planned` and `lowered`
  Prediction inMemory;                  ///< of `captured`: every byte on the device
  Prediction prediction;                ///< of `lowered`
  Bound bound;                          ///< BoundKind::Must
  Bound planBound;                      ///< BoundKind::May
  /// On managed memory, the same of plans that host no more bytes than they must (leastHostedBytes()); elsewhere
  /// `planBound`.
  Bound movingBound;
  double planMs = 0; ///< wall time of planning, lowering and checking, milliseconds

  /// Whether the checker accepted `planned` and `lowered`.
  bool checked() const { return violations.empty(); }
  std::uint64_t budgetBytes() const { return lowered.budgetBytes; }
  /// Of host memory in which pages of buffers are at all times.
  std::uint64_t hostedBytes() const { return pumpgraph::hostedBytes(lowered); }
  /// Device memory the step needs without transfers, page-granular.
  std::uint64_t peakBytesBefore() const { return stats.peakPagesBefore * captured.pageBytes; }
};

/// How much slower than in memory a step may be and still count as running at its in-memory speed.
inline constexpr double inMemoryTolerance = 1.01;

inline bool runsAtInMemorySpeed(const Compiled &compiled) {
  return compiled.prediction.totalUs <= compiled.inMemory.totalUs * inMemoryTolerance;
}

/// Analyses, plans, checks, lowers, checks, predicts, bounds. A plan that the checker refuses is not an error here.
tl::expected<Compiled, PlanError> compile(const Description &captured, const CompileOptions &options);

/// Of a plan for virtual memory that compile() made with these options: all that depends on node times, with those in
/// the descriptions. The plan is not checked again, and of `stats` only the peak is there.
Compiled retimed(const Description &captured, const Description &lowered, CompileOptions options,
                 std::uint64_t peakBytesBefore);

/// Like compile() of a step at any stage on virtual memory, whichever passes have run over it. A captured one gets
/// every byte on the device; the plan of others is kept. Edges between captured nodes that a planner added count as
/// captured.
tl::expected<Compiled, PlanError> compileSoFar(const Description &description, const Machine &machine);

} // namespace pumpgraph
