// SPDX-License-Identifier: Apache-2.0
/// \file
/// JSON reports whose strings are all printable(), since a program that reads a report prints them.
#pragma once

#include "pumpgraph/graph/Printable.h"

#include <nlohmann/json.hpp>

#include <string>
#include <utility>

namespace pumpgraph {

/// Makes every string in `json` printable(). Keys are ours.
inline void makePrintable(nlohmann::ordered_json &json) {
  if (json.is_string())
    json = printable(json.get_ref<const std::string &>());
  else if (json.is_structured())
    for (nlohmann::ordered_json &part : json)
      makePrintable(part);
}

/// The text of a report; `indent` as nlohmann's dump() has it.
inline std::string dumpPrintable(nlohmann::ordered_json json, int indent) {
  makePrintable(json);
  return json.dump(indent);
}

} // namespace pumpgraph
