// SPDX-License-Identifier: Apache-2.0
/// \file
/// NVML's answers about memory, for the budget.
#pragma once

namespace pumpgraph::preload {

/// The stand-in for a function of libnvidia-ml that tells the device's memory; null for any other name, or where the
/// library has none.
void *nvmlStandIn(void *handle, const char *name);

} // namespace pumpgraph::preload
