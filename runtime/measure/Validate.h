// SPDX-License-Identifier: Apache-2.0
/// \file
/// Runs a step as captured and as rewritten from the same state and compares what they leave behind.
#pragma once

#include "runtime/state/StepState.h"

namespace pumpgraph::runtime {

/// The step is rewritten and its plan in force. All values are as before in the end.
Expected<Validation> validate(StepState &step);

} // namespace pumpgraph::runtime
