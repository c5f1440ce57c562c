// SPDX-License-Identifier: Apache-2.0
/// \file
/// Parts of several reports for programs.
#pragma once

#include "passes/analysis/Machine.h"

#include <nlohmann/json.hpp>

namespace pumpgraph {

using Json = nlohmann::ordered_json;

Json machineToJson(const Machine &machine);

} // namespace pumpgraph
