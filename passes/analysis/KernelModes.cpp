// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/KernelModes.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace pumpgraph {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::pair<std::string_view, Mode>, 4> modeWords = {
    {{"none", modeNone}, {"read", modeRead}, {"write", modeWrite}, {"readwrite", modeReadWrite}}};

Mode modeFrom(const Json &word) {
  const auto &text = word.get_ref<const std::string &>();
  const auto found =
      std::find_if(modeWords.begin(), modeWords.end(), [&](const auto &known) { return known.first == text; });
  if (found == modeWords.end())
    throw std::invalid_argument(fmt::format("\"{}\" is no mode", text));
  return found->second;
}

/// Ranges are not looked at: they depend on the launch.
SlotModes slotFrom(const Json &entry) {
  return {entry.at("parameter").get<std::uint32_t>(), entry.at("offset").get<std::uint32_t>(),
          modeFrom(entry.at("may")), !entry.value("escapes", false) && !entry.value("unresolved", false)};
}

} // namespace

std::optional<Mode> KernelModes::modeOf(std::int32_t parameter) const {
  std::uint8_t may = modeNone;
  bool isSlot = false;
  for (const SlotModes &slot : slots) {
    if (parameter != unknownParameter && slot.parameter != static_cast<std::uint32_t>(parameter))
      continue;
    if (!slot.isUnderstood)
      return std::nullopt;
    isSlot = true;
    may |= slot.may;
  }
  // Of what is no slot the table says nothing, and an unknown parameter may be that.
  if (!isSlot || (otherMemory && parameter == unknownParameter))
    return std::nullopt;
  return static_cast<Mode>(may);
}

tl::expected<KernelTable, std::string> parseKernelTable(std::string_view lines) {
  KernelTable table;
  std::string place;
  try {
    std::size_t number = 0;
    while (!lines.empty()) {
      const std::string_view line = lines.substr(0, lines.find('\n'));
      lines.remove_prefix(std::min(line.size() + 1, lines.size()));
      place = fmt::format("line {}", ++number);
      if (line.empty())
        continue;
      const Json entry = Json::parse(line);
      const auto &name = entry.at("kernel").get_ref<const std::string &>();
      place = fmt::format("line {}, kernel \"{}\"", number, name);
      KernelModes &kernel = table[name];
      kernel.otherMemory |= entry.value("other_memory", false);
      for (const Json &slot : entry.at("slots"))
        kernel.slots.push_back(slotFrom(slot));
    }
  } catch (const std::exception &exception) {
    return tl::unexpected(fmt::format("{}: {}", place, exception.what()));
  }
  return table;
}

} // namespace pumpgraph
