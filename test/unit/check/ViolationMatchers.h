// SPDX-License-Identifier: Apache-2.0
/// \file
/// What tests expect of the checker's findings.
#pragma once

#include "passes/check/CheckResidency.h"

#include <gmock/gmock.h>

#include <ostream>
#include <string>

namespace pumpgraph {

/// Found by GoogleTest: failures show the message.
inline void PrintTo(const Violation &violation, std::ostream *stream) {
  *stream << violation.message;
}

} // namespace pumpgraph

namespace pumpgraph::test {

inline auto says(const std::string &text) {
  return testing::Field(&Violation::message, testing::HasSubstr(text));
}
inline auto atNode(NodeIndex node) {
  return testing::Field(&Violation::node, testing::Optional(node));
}
inline auto atBuffer(BufferIndex buffer) {
  return testing::Field(&Violation::buffer, testing::Optional(buffer));
}

} // namespace pumpgraph::test
