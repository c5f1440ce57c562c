// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver/Error.h"

namespace pumpgraph::runtime {

std::string bytesText(std::uint64_t bytes) {
  constexpr double kibi = 1024.0;
  const auto value = static_cast<double>(bytes);
  if (bytes < 1024)
    return fmt::format("{} bytes", bytes);
  if (value < kibi * kibi)
    return fmt::format("{:.1f} KiB", value / kibi);
  if (value < kibi * kibi * kibi)
    return fmt::format("{:.1f} MiB", value / (kibi * kibi));
  return fmt::format("{:.2f} GiB", value / (kibi * kibi * kibi));
}

} // namespace pumpgraph::runtime
