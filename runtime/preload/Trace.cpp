// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/Trace.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace pumpgraph::preload {
namespace {

constexpr double assumedBytesPerMicrosecond = 3e6; // 3 TB/s

} // namespace

TraceWriter::TraceWriter(const std::string &name) {
  trace_["name"] = name;
  trace_["tensors"] = nlohmann::ordered_json::array();
  trace_["kernels"] = nlohmann::ordered_json::array();
}

void TraceWriter::add(const std::string &call, const std::vector<Extent> &operands) {
  std::vector<std::size_t> ids;
  double bytes = 0;
  for (const Extent &operand : operands) {
    const auto [known, isNew] = tensors_.try_emplace(operand.serial, tensors_.size());
    if (isNew)
      trace_["tensors"].push_back({{"id", known->second},
                                   {"name", fmt::format("allocation {}", operand.serial)},
                                   {"bytes", operand.bytes},
                                   {"kind", "persistent"}});
    ids.push_back(known->second);
    bytes += static_cast<double>(operand.bytes);
  }
  trace_["kernels"].push_back({{"id", trace_["kernels"].size()},
                               {"name", call},
                               {"time_us", 1 + bytes / assumedBytesPerMicrosecond},
                               {"reads", ids},
                               {"writes", ids}});
}

runtime::Status TraceWriter::write(const std::string &folder, const std::string &file) const {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  // Several processes may report into one folder.
  const std::string path = fmt::format("{}/{}-{}", folder, getpid(), file);
  std::ofstream stream(path);
  stream << trace_.dump(1) << '\n';
  if (!stream)
    return runtime::fail(PUMPGRAPH_INVALID_ARGUMENT, "the report {} cannot be written: {}", path, strerror(errno));
  return {};
}

} // namespace pumpgraph::preload
