// SPDX-License-Identifier: Apache-2.0
/// \file
/// Clears the remains of returned calls below the stack pointer.
///
/// A program that passes a struct to a kernel also passes its padding and its unset fields. These hold earlier stack
/// contents, often an operand of an earlier launch: a value that moves between two captures like an address, and looks
/// like one (docs/decisions/03-evidence-of-accesses.md).
#pragma once

#include <cstddef>

namespace pumpgraph::runtime {

/// How far below its caller clearDeadStack() goes, bytes: what launches put on the stack is much less.
inline constexpr std::size_t deadStackBytes = std::size_t{128} << 10;

/// Sets the stack below its caller to zero, where nobody's variables are; less of it near the end of a thread's stack,
/// and nothing on a stack that is not the thread's own, as coroutines have. Takes some microseconds.
void clearDeadStack();

} // namespace pumpgraph::runtime
