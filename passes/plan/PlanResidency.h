// SPDX-License-Identifier: Apache-2.0
/// \file
/// The planner: which bytes are in which frame at which time (docs/design/planner.md).
#pragma once

#include "passes/analysis/Backend.h"
#include "passes/analysis/Machine.h"
#include "passes/analysis/Timeline.h"
#include "passes/plan/SearchTrace.h"
#include "pumpgraph/graph/Description.h"

#include <tl/expected.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace pumpgraph {

/// Why there is no plan. `node` is set when one node is to blame, so that the caller can point at it.
struct PlanError {
  std::optional<NodeIndex> node;
  std::string message; ///< lower case, with names and numbers, no trailing period
};

struct PlanOptions {
  std::uint64_t budgetBytes = 0; ///< device memory for all frames; 0: as much as the step needs
  Machine machine;
  Backend backend = Backend::Virtual;
  /// Decisions of other steps that bind this one (docs/design/plan-correctness.md, "A shared boundary"); null: none.
  const Description *boundary = nullptr;
  /// Of private buffers, so that other steps can be planned into the boundary that this one leaves: what each of their
  /// nodes uses at once. Pages in host memory need no frames. No transfers follow from it.
  ApartPages apart = {};
  /// Of private buffers: what stays in host memory whether or not it needs to, ascending, nothing twice. Present
  /// buffers and those of a boundary must not be among them, nor, on virtual memory, operands of the step's own copies
  /// and child graphs.
  std::vector<BufferPart> hosted = {};
  /// Managed memory alone, and looked at by summarize(): of these, ascending, all or a part may stay there too where
  /// that is predicted to be faster. The slowdowns of the accesses to them have to be measured.
  std::vector<BufferIndex> mayBeHosted = {};
  bool hostsInParts = true; ///< else of these whole ones alone
  /// Likewise: the plan is made as if operations took so many times as long. What it is predicted to take is not.
  double slowerBy = 1;
  /// Homes are not chosen again: a fraction of the time, and a plan that takes as long or a few percent longer.
  bool isQuick = false;
  /// Virtual memory alone, and looked at by summarize(): pure nodes may run again where that is predicted to be faster
  /// than moving what they make.
  bool rematerializes = false;
  /// How many the planner may use; 0: all there are. No plan depends on it.
  unsigned processors = 0;
  /// Called with the predicted microseconds of each plan that is the best of its search so far, from any thread.
  std::function<void(double)> foundPlan = {};
};

/// What planning did, for reports and tests.
struct PlanStats {
  std::uint64_t peakPagesBefore = 0; ///< frames a step without transfers needs
  std::uint64_t framesUsed = 0;
  std::uint64_t evictions = 0;
  std::uint64_t prefetches = 0;
  std::uint64_t discards = 0;
  std::uint64_t upBytes = 0;
  std::uint64_t downBytes = 0;
  std::uint64_t hostBytes = 0; ///< host memory needed: the pinned pool and hosted pages
  double movesUs = 0;          ///< of a plan that repeats nodes: predicted, of a quick one that repeats none; else 0
};

/// Of a planned or lowered description; `peakPagesBefore`, which is the captured step's, stays 0.
PlanStats statsOf(const Description &planned);

struct PlannedStep {
  Description description; ///< `captured` nodes unchanged and in order, residency nodes and edges added, frames set
  PlanStats stats;
  SearchTrace trace; ///< of the search that found the plan, in order
};

/// Plans a captured description (no residency nodes in it). Deterministic. Errors: exclusive buffers or operands
/// of copies that exceed the budget or find no frames in it; host memory that does not suffice. When everything fits,
/// no node is added (edges may be). Beyond what the options name, pages are hosted only where some node touches more
/// than the budget, or the pages of all nodes find no frames otherwise. With a boundary there is not always a plan that
/// keeps it: that is an error.
tl::expected<PlannedStep, PlanError> planResidency(const Description &captured, const PlanOptions &options);

} // namespace pumpgraph
