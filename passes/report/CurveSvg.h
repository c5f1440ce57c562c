// SPDX-License-Identifier: Apache-2.0
/// \file
/// Step time against budget as SVG: the picture of docs/guide/pump-graph-opt.md and of the page.
#pragma once

#include "passes/report/Summary.h"

#include <string>
#include <vector>

namespace pumpgraph {

struct CurveOptions {
  int width = 960; ///< pixels, as is the height
  int height = 460;
  /// With its own style sheet and background, to stand in a file of its own; else the page around it has both.
  bool standalone = true;
};

/// Marks the summary's own budget. `points` must hold a plannable point.
std::string curveSvg(const Summary &summary, const std::vector<SweepPoint> &points, const CurveOptions &options);

/// Text made printable() and safe for HTML and XML, in elements and in quoted attributes.
std::string escapeMarkup(std::string_view text);

} // namespace pumpgraph
