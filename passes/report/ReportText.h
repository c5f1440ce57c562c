// SPDX-License-Identifier: Apache-2.0
/// \file
/// The text of a report for a terminal.
#pragma once

#include "pumpgraph/graph/Printable.h"

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace pumpgraph {

/// Text to which every string is added as it is printable(), whoever chose it: lines begin and end where the report
/// says.
class ReportText {
public:
  template <typename... Arguments> void add(fmt::format_string<Arguments...> format, const Arguments &...arguments) {
    text_ += fmt::format(fmt::runtime(format), shown(arguments)...);
  }
  /// A part of a report is printable already, lines and all.
  void add(const ReportText &part) { text_ += part.text_; }

  const std::string &str() const { return text_; }

private:
  static std::string shown(std::string_view text) { return printable(text); }
  template <typename Number>
    requires(!std::convertible_to<Number, std::string_view>)
  static const Number &shown(const Number &number) {
    return number; // NOLINT(bugprone-return-const-ref-from-parameter): formatted in the same expression
  }

  std::string text_;
};

} // namespace pumpgraph
