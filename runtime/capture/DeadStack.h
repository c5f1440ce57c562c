// SPDX-License-Identifier: Apache-2.0
/// \file
/// What calls that have returned left on a thread's stack.
///
/// A program that hands a struct to a kernel hands over its padding and the fields that it did not set too. They hold
/// what was on the stack before, often an operand of an earlier launch, which moves between two captures like an
/// address and looks like one (docs/decisions/03-evidence-of-accesses.md).
#pragma once

#include <cstddef>

namespace pumpgraph::runtime {

/// How far below its caller clearDeadStack() goes, bytes: what launches put on the stack is much less.
inline constexpr std::size_t deadStackBytes = std::size_t{128} << 10;

/// Sets the stack below its caller to zero, where nobody's variables are; less of it near the end of a thread's stack,
/// and nothing on a stack that is not the thread's own, as coroutines have. Takes some microseconds.
void clearDeadStack();

} // namespace pumpgraph::runtime
