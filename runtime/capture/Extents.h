// SPDX-License-Identifier: Apache-2.0
/// \file
/// Evaluates the extent expressions of access tables for a launch.
#pragma once

#include "runtime/capture/AccessTables.h"
#include "runtime/capture/LiftGraph.h"

namespace pumpgraph::runtime {

/// Nothing where the expression is unknown or malformed, overflows, divides by what is not positive, or asks for what
/// the launch does not have.
std::optional<std::int64_t> evaluate(const Extent &extent, const KernelLaunch &launch);

} // namespace pumpgraph::runtime
