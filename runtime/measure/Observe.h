// SPDX-License-Identifier: Apache-2.0
/// \file
/// Runs a step's kernels one by one, with operands as they are and with poisoned ones, and notes what changes.
#pragma once

#include "runtime/state/StepState.h"

namespace pumpgraph::runtime {

/// The step's plan, if there is one, is in force. `values`: see Step::observe(). All values are as before in the end.
Expected<Observation> observe(StepState &step, const std::vector<CUdeviceptr> &values);

} // namespace pumpgraph::runtime
