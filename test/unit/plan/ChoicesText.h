// SPDX-License-Identifier: Apache-2.0
/// \file
/// Choices as text: printed, read back, compared.
#pragma once

#include "passes/plan/search/Choices.h"

#include <tl/expected.hpp>

#include <string>
#include <string_view>

namespace pumpgraph {

bool operator==(const Choices &one, const Choices &other);

namespace test {

/// Lines of a name and values, runs of equal ones as "8*R".
std::string toText(const Choices &choices);
/// Reads what toText() has written; else why it cannot, with the line.
tl::expected<Choices, std::string> choicesOf(std::string_view text);

} // namespace test
} // namespace pumpgraph
