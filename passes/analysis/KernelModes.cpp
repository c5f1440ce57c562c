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

/// The words of an optional list, each of which must be among `known`.
std::vector<std::string> flagsFrom(const Json &entry, std::initializer_list<std::string_view> known) {
  const std::vector<std::string> flags = entry.value("flags", std::vector<std::string>{});
  for (const std::string &flag : flags)
    if (std::find(known.begin(), known.end(), flag) == known.end())
      throw std::invalid_argument(fmt::format("\"{}\" is no flag", flag));
  return flags;
}

bool contains(const std::vector<std::string> &words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// `must` is looked at no further: how much is overwritten depends on the launch.
SlotModes slotFrom(const Json &entry) {
  const std::vector<std::string> flags = flagsFrom(entry, {"escapes", "atomic", "holds_pointers", "unresolved"});
  (void)modeFrom(entry.at("must"));
  return {entry.at("parameter").get<std::uint32_t>(), entry.at("offset").get<std::uint32_t>(),
          modeFrom(entry.at("may")), !contains(flags, "escapes") && !contains(flags, "unresolved")};
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
  // What is no slot is a number, unless the kernel makes addresses of numbers.
  if (otherMemory && (!isSlot || parameter == unknownParameter))
    return std::nullopt;
  return static_cast<Mode>(may);
}

tl::expected<KernelTable, std::string> parseKernelTable(std::string_view json) {
  KernelTable table;
  std::string place = "the table";
  try {
    const Json root = Json::parse(json);
    for (const Json &entry : root.at("kernels")) {
      place = fmt::format("kernel #{}", table.size());
      const auto &name = entry.at("name").get_ref<const std::string &>();
      place = fmt::format("kernel \"{}\"", name);
      KernelModes &kernel = table[name];
      kernel.otherMemory |= contains(flagsFrom(entry, {"other_memory"}), "other_memory");
      for (const Json &slot : entry.at("slots"))
        kernel.slots.push_back(slotFrom(slot));
    }
  } catch (const std::exception &exception) {
    return tl::unexpected(fmt::format("{}: {}", place, exception.what()));
  }
  return table;
}

} // namespace pumpgraph
