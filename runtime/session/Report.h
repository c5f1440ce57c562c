// SPDX-License-Identifier: Apache-2.0
/// \file
/// The report of a step.
#pragma once

#include "runtime/state/StepState.h"

namespace pumpgraph::runtime {

/// Writes what does not change until the next plan. Not the step times by measured node times: bounds take their time,
/// and nobody may ask.
void writeReport(StepState &step);
/// JSON, with what has changed since.
std::string reportOf(StepState &step);

} // namespace pumpgraph::runtime
