// SPDX-License-Identifier: Apache-2.0
/// \file
/// One step under one budget in different hands, row by row: in memory, unified memory, the plan, the bounds.
#pragma once

#include "passes/report/ReportText.h"
#include "passes/report/Summary.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pumpgraph {

struct ComparisonRow {
  std::string name;
  double stepUs = 0;
  std::uint64_t upBytes = 0, downBytes = 0;
  const Simulation *simulation = nullptr; ///< of unified memory; belongs to the summary
  bool isBound = false;                   ///< a limit, not something that runs
};

/// The summary must have a comparison. One without a plan has no row of the plan.
std::vector<ComparisonRow> comparisonRows(const Summary &summary);

/// The rows as a table.
ReportText comparisonTable(const Summary &summary);

/// The rows with all their figures; docs/reference/report.md has the keys.
std::string comparisonToJson(const Summary &summary);

/// The step, the table, then the stalls of each row by cause, longest first.
std::string comparisonToText(const Summary &summary);

} // namespace pumpgraph
