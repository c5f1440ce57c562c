// SPDX-License-Identifier: Apache-2.0
/// \file
/// Names of nodes as people read them. Programs get the names as captured.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <string>
#include <string_view>

namespace pumpgraph {

/// "kernel", "memcpy", "copy_to_host", ...
const char *kindName(NodeKind kind);

/// The name as the source has it: demangled if it is mangled.
std::string demangle(const std::string &name);

/// Without return type, template arguments, parameters and anonymous namespaces:
/// "at::native::vectorized_elementwise_kernel".
std::string withoutArguments(std::string_view demangled);

/// What to call a node in little room: its label, its name without arguments, or what it is if it has neither.
std::string displayName(const Node &node);

/// Of a transfer: "up" or "down"; else "none".
const char *directionName(const Node &node);

} // namespace pumpgraph
