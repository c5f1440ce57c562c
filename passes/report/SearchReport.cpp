// SPDX-License-Identifier: Apache-2.0
#include "passes/report/SearchReport.h"

#include <fmt/format.h>

#include <algorithm>

namespace pumpgraph {

std::vector<ProposerTotals> byProposer(const SearchTrace &trace) {
  std::vector<ProposerTotals> all;
  double effort = 0;
  for (const TraceRow &row : trace) {
    auto totals = std::ranges::find(all, row.proposer, &ProposerTotals::proposer);
    if (totals == all.end())
      totals = all.insert(totals, {row.proposer});
    ++totals->tried;
    totals->kept += row.kept;
    totals->savedUs += row.kept && row.beforeUs > 0 ? row.beforeUs - row.afterUs : 0;
    totals->effort += static_cast<double>(row.effort);
    effort += static_cast<double>(row.effort);
  }
  for (ProposerTotals &totals : all)
    totals.effort /= std::max(1.0, effort);
  return all;
}

std::string toCsv(const SearchTrace &trace) {
  const auto time = [](double us) { return us > 0 ? fmt::format("{:.3f}", us) : ""; };
  std::string text = "proposer,piece_bytes,before_us,after_us,effort,kept\n";
  for (const TraceRow &row : trace)
    text += fmt::format("{},{},{},{},{},{:d}\n", row.proposer, row.pieceBytes, time(row.beforeUs), time(row.afterUs),
                        row.effort, row.kept);
  return text;
}

} // namespace pumpgraph
