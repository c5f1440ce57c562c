// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/KernelReads.h"

#include <algorithm>

namespace pumpgraph::runtime {

std::string KernelReads::symbolPrefixOf(std::string_view name) {
  static constexpr std::string_view separator = "::";
  std::string parts;
  bool isNested = false;
  while (true) {
    const std::size_t end = name.find(separator);
    const std::string_view part = name.substr(0, end);
    if (part.empty())
      return {};
    parts += std::to_string(part.size());
    parts += part;
    if (end == std::string_view::npos)
      return (isNested ? "_ZN" : "_Z") + parts;
    isNested = true;
    name.remove_prefix(end + separator.size());
  }
}

bool KernelReads::add(std::string_view name, std::span<const std::uint32_t> parameters) {
  const std::string prefix = symbolPrefixOf(name);
  if (prefix.empty())
    return false;
  byPrefix_[prefix].insert(parameters.begin(), parameters.end());
  return true;
}

bool KernelReads::contains(std::string_view symbol, std::uint32_t parameter) const {
  return std::ranges::any_of(byPrefix_, [&](const auto &known) {
    return symbol.starts_with(known.first) && known.second.contains(parameter);
  });
}

} // namespace pumpgraph::runtime
