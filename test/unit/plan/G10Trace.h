// SPDX-License-Identifier: Apache-2.0
/// \file
/// Reads a kernel and tensor trace of the G10 study as a captured step.
#pragma once

#include "passes/analysis/Machine.h"
#include "pumpgraph/graph/Description.h"

#include <string>

namespace pumpgraph::test {

/// One stream of kernels. Persistent tensors are private and live across the step; everything else lives in it.
Description readG10Trace(const std::string &path, std::uint64_t pageBytes);

/// The study's machine: 15.754e9 B/s each way at once.
Machine g10Machine();

} // namespace pumpgraph::test
