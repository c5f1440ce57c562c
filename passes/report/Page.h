// SPDX-License-Identifier: Apache-2.0
/// \file
/// The parts of the HTML report that do not depend on the step: page/page.{html,css,js}, compiled in.
#pragma once

#include <string_view>

namespace pumpgraph {

/// Has slots, written {{name}}, that HtmlReport.cpp fills.
std::string_view pageHtml();
std::string_view pageCss();
std::string_view pageJs();

} // namespace pumpgraph
