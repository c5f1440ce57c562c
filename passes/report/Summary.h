// SPDX-License-Identifier: Apache-2.0
/// \file
/// The figures of one planned step, once, for every report: text, JSON, HTML, the runtime's own.
#pragma once

#include "passes/analysis/Bound.h"
#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Machine.h"
#include "passes/analysis/Prediction.h"
#include "passes/analysis/RequiredTraffic.h"
#include "passes/analysis/Sweeps.h"
#include "passes/check/CheckResidency.h"
#include "passes/lower/LowerManaged.h"
#include "passes/plan/PlanResidency.h"
#include "passes/rematerialize/Remakeable.h"
#include "passes/report/FewNodes.h"
#include "passes/report/Ways.h"
#include "passes/simulate/Compare.h"
#include "pumpgraph/graph/Description.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pumpgraph {

/// Everything a report says about one step at one budget. Invariant: `planned` and `lowered` were accepted by the
/// checker if and only if `checked`.
struct Summary {
  Description captured;
  Description planned;
  Description lowered;
  Machine machine;
  PlanStats stats;
  Bound bound;     ///< BoundKind::Must
  Bound planBound; ///< BoundKind::May
  /// On managed memory, the same of plans that host no more bytes than they must (leastHostedBytes()); elsewhere
  /// `planBound`.
  Bound movingBound;
  Prediction inMemory;   ///< of `captured`: every byte on the device
  Prediction prediction; ///< of `lowered`
  Traffic required;      ///< of `lowered`: what its residencies make it move
  HostedTraffic hosted;  ///< of `lowered`: what nodes move themselves, operands being in host memory
  std::vector<RepeatedSweeps> repeatedSweeps; ///< of `lowered`
  std::optional<Remakeable> remakeable;       ///< of `captured`, if plans may run its nodes again
  std::optional<Ways> ways;                   ///< of `lowered`, likewise
  std::optional<FewNodes> fewNodes;           ///< of `captured`: its times cannot be right
  bool checked = false;
  std::vector<Violation> violations; ///< what the checker said; empty if and only if `checked`
  double planMs = 0;                 ///< wall time of planning, lowering and checking, milliseconds
  /// The smallest budget found at which the step runs at its in-memory speed; see findEnough.
  std::optional<std::uint64_t> enoughBytes;
  std::optional<Comparison> comparison; ///< the same budget without a plan, where that was asked for

  std::uint64_t budgetBytes() const { return lowered.budgetBytes; }
  /// Bytes moved for each that has to be: 1 where nothing moves in vain, infinite where nothing has to move at all.
  double movedOverRequired() const;
  /// Of host memory in which pages of buffers are at all times.
  std::uint64_t hostedBytes() const { return pumpgraph::hostedBytes(lowered); }
  /// How often a buffer goes on at another address, and the bytes of it that have other frames there, or are hosted at
  /// one of the two, added up.
  std::size_t continuations() const { return lowered.buffers.size() - captured.buffers.size(); }
  std::uint64_t continuedBytes() const;
  /// What the nodes take over their own traffic, if nothing else uses the link meanwhile.
  double hostedUs() const;
  /// Nodes of `lowered` that run again, what they take, and what they write.
  struct Repeated {
    std::uint64_t nodes = 0;
    double us = 0;
    std::uint64_t bytes = 0;
  };
  Repeated repeated() const;
  /// Device memory the step needs without transfers, page-granular.
  std::uint64_t peakBytesBefore() const { return stats.peakPagesBefore * captured.pageBytes; }
};

/// One point of a sweep over budgets.
struct SweepPoint {
  std::uint64_t budgetBytes = 0;
  bool plannable = false;
  std::string reason; ///< if not plannable
  double predictedUs = 0, boundUs = 0, planBoundUs = 0;
  double movesUs = 0; ///< predicted, of a quick plan that repeats nothing; 0 where `predictedUs` is of such a one
  std::uint64_t upBytes = 0, downBytes = 0, peakBytes = 0;
};

/// How much slower than in memory a step may be and still count as running at its in-memory speed.
inline constexpr double inMemoryTolerance = 1.01;

/// The bound of plans like `planned`, of the same step: with hosted pages if it has some.
Bound planBoundOf(const Description &captured, const Description &planned, const Machine &machine,
                  Backend backend = Backend::Virtual, Repetitions repetitions = Repetitions::None);

/// Runs the whole pipeline: costs, plan, check, lower, check, predict, bound. A plan that the checker refuses is not an
/// error here: the summary comes back with `checked` false, and nobody may replay it.
tl::expected<Summary, PlanError> summarize(const Description &captured, const PlanOptions &options,
                                           Prefetching prefetching = Prefetching::Ahead);

/// Of a plan for virtual memory that summarize() made for these options, the figures that depend on node times, with
/// the times in the descriptions: all of timesToJson(). Planning counts and checks are those of the summary before.
Summary retimed(const Description &captured, const Description &lowered, PlanOptions options,
                std::uint64_t peakBytesBefore);

/// The device memory that the step needs without any transfer, page-granular.
tl::expected<std::uint64_t, PlanError> peakBytes(const Description &captured, const Machine &machine);

/// No plan can do with less without hosted pages: exclusive buffers and the largest set of pages that
/// one node touches, or that are present between replays.
std::uint64_t smallestBudget(const Description &captured);

/// Plans `points` budgets, evenly spaced from the smallest the step can live with to what it needs in memory; fewer
/// where there are not that many different ones. Empty if the step cannot be planned at all.
std::vector<SweepPoint> sweep(const Description &captured, const PlanOptions &options, int points);

/// Sets `summary.enoughBytes` by planning a few budgets between the summary's own and the peak. Costs about six times
/// `planMs`; does nothing where the step already runs at its in-memory speed.
void findEnough(Summary &summary);

/// The same from budgets that are planned already: coarser, and free.
void findEnough(Summary &summary, const std::vector<SweepPoint> &points);

bool runsAtInMemorySpeed(const Summary &summary);

/// "compute", "link up", "link down", "link both ways", or "nothing: everything fits".
std::string limitedBy(const Summary &summary);

/// One sentence: "16.0 of 31.0 GiB; 1.08 x in-memory; limited by link up; 21.0 GiB removes it".
std::string verdict(const Summary &summary);

/// One sentence: "6 walks over 4.20 GiB of state by 412 kernels (nodes 3120-3531); a fused optimizer would walk once
/// and move 18.3 GiB less per step". Where none of that moves more than once, it says how much less would be touched.
std::string verdict(const Summary &summary, const RepeatedSweeps &sweeps);

/// Accesses of the captured step by how they are known: by Evidence.
std::array<std::uint64_t, 5> accessesByEvidence(const Summary &summary);

/// Edges of `lowered` that the captured step does not have, those of added nodes included.
std::size_t countAddedEdges(const Summary &summary);

/// The text for a terminal; `points` add a table.
std::string toText(const Summary &summary, const std::vector<SweepPoint> &points = {});
/// Keys: docs/reference/report.md. `points` become "sweep".
std::string toJson(const Summary &summary, const std::vector<SweepPoint> &points = {});
/// The keys of that which depend on node times.
std::string timesToJson(const Summary &summary);
/// The plan for an outsider: buffer, offset, size, direction, after, before, frame.
std::string planToJson(const Summary &summary);
/// Chrome trace events (opens in Perfetto).
std::string timelineToJson(const Summary &summary);
/// One self-contained page. `points` may be empty: then the curve is left out.
std::string toHtml(const Summary &summary, const std::vector<SweepPoint> &points);
/// Step time against budget as one self-contained picture. `points` must hold a plannable point.
std::string toSvg(const Summary &summary, const std::vector<SweepPoint> &points);

} // namespace pumpgraph
