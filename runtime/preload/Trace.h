// SPDX-License-Identifier: Apache-2.0
/// \file
/// A round of calls as a trace that `pump-graph-opt --import-trace` reads.
#pragma once

#include "runtime/driver/Error.h"
#include "runtime/preload/Memory.h"

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

namespace pumpgraph::preload {

/// Every allocation is persistent, and every call reads and writes all allocations that its words lead into: no access
/// is known better. Times are those of the bytes at an assumed speed.
class TraceWriter {
public:
  explicit TraceWriter(const std::string &name);
  void add(const std::string &call, const std::vector<Extent> &operands);
  runtime::Status write(const std::string &folder, const std::string &file) const;

private:
  nlohmann::ordered_json trace_;
  std::map<std::uint64_t, std::size_t> tensors_; ///< by serial
};

} // namespace pumpgraph::preload
