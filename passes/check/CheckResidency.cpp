// SPDX-License-Identifier: Apache-2.0
#include "passes/check/CheckResidency.h"

#include "passes/check/CheckRepetitions.h"
#include "passes/check/Form.h"
#include "passes/check/FrameSweep.h"
#include "passes/check/Report.h"

namespace pumpgraph {

std::vector<Violation> checkResidency(const Description &description, std::size_t limit) {
  check::Report report(limit);
  check::checkStage(description, {Stage::Planned, Stage::LoweredVirtual}, report);
  check::checkForm(description, report);
  if (!report.empty())
    return report.take();
  check::checkExclusiveBuffers(description, report);
  check::checkBudget(description, report);
  check::checkBoundaryState(description, report);
  check::checkHostPlaces(description, report);
  check::checkRows(description, report);
  check::checkFrames(description, report);
  check::checkRepetitions(description, report);
  return report.take();
}

} // namespace pumpgraph
