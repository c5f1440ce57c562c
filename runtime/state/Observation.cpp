// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/Observation.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace pumpgraph::runtime {
namespace {

constexpr std::uint64_t wordBytes = 4;

const char *wordFor(Evidence evidence) {
  constexpr const char *words[] = {"proved", "declared", "observed", "assumed", "allocated"};
  return words[static_cast<std::size_t>(evidence)];
}

} // namespace

bool ObservedOperand::agrees() const {
  return std::all_of(sightings.begin(), sightings.end(),
                     [&](const Sighting &sighting) { return sighting == sightings.front(); });
}

bool ObservedOperand::isCovered() const {
  return sightings.size() >= Observation::leastRuns && agrees() && sightings.front().isKnown();
}

std::vector<ObservedOperand> operandsOf(NodeIndex node, const std::vector<OperandWord> &words) {
  std::map<std::tuple<BufferIndex, std::uint64_t, std::uint64_t>, std::vector<OperandWord>> byAddress;
  for (const OperandWord &word : words) {
    const std::uint64_t at = std::clamp(word.offset, word.allocation.offset, word.allocation.end() - 1);
    byAddress[{word.buffer, word.allocation.offset, at / wordBytes * wordBytes}].push_back(word);
  }
  std::vector<ObservedOperand> operands;
  for (auto &[place, words] : byAddress) {
    const auto [buffer, allocation, begin] = place;
    const bool isFirst = operands.empty() || operands.back().buffer != buffer ||
                         operands.back().words.front().allocation.offset != allocation;
    if (!isFirst)
      operands.back().range.size = begin - operands.back().range.offset;
    const std::uint64_t from = isFirst ? allocation : begin;
    operands.push_back({node, buffer, {from, words.front().allocation.end() - from}, std::move(words), {}});
  }
  return operands;
}

std::uint64_t Observation::covered() const {
  return static_cast<std::uint64_t>(
      std::count_if(operands.begin(), operands.end(), [](const ObservedOperand &one) { return one.isCovered(); }));
}

std::uint64_t Observation::differing() const {
  return static_cast<std::uint64_t>(
      std::count_if(operands.begin(), operands.end(), [](const ObservedOperand &one) { return !one.agrees(); }));
}

void Observation::mergeInto(Description &step) const {
  std::map<NodeIndex, std::vector<const ObservedOperand *>> byNode;
  for (const ObservedOperand &operand : operands)
    byNode[operand.node].push_back(&operand);
  for (const auto &[node, ofNode] : byNode)
    for (Access &access : step.nodes[node].accesses) {
      if (access.evidence != Evidence::Assumed && access.evidence != Evidence::Observed)
        continue;
      std::uint8_t may = modeNone;
      bool isCovered = true;
      for (const ObservedOperand *operand : ofNode)
        if (operand->buffer == access.buffer && operand->range.overlaps(access.range)) {
          isCovered = isCovered && operand->isCovered();
          may |= operand->sightings.front().mode();
        }
      // Nothing at all would mean that the access is none, which takes more than observation.
      isCovered = isCovered && may != modeNone;
      access.may = isCovered ? may : std::uint8_t{modeReadWrite};
      access.must = modeNone;
      access.evidence = isCovered ? Evidence::Observed : Evidence::Assumed;
    }
}

nlohmann::ordered_json Observation::report(const Description &step) const {
  using Json = nlohmann::ordered_json;
  std::uint64_t unknown = 0;
  for (const ObservedOperand &operand : operands)
    unknown += operand.agrees() && !operand.sightings.front().isKnown() ? 1 : 0;
  Json texts = Json::array();
  for (const ObservedDisagreement &one : disagreements)
    texts.push_back({{"node", one.node},
                     {"kernel", step.nodes[one.node].name},
                     {"buffer", step.buffers[one.buffer].name},
                     {"evidence", wordFor(one.evidence)},
                     {"message", one.message}});
  return {{"runs", runs},
          {"kernels", kernels},
          {"nodes_only_run", nodesRun},
          {"slots", operands.size()},
          {"covered", covered()},
          {"unknown", unknown},
          {"differing", differing()},
          {"scratch_bytes", scratchBytes},
          {"observe_ms", milliseconds},
          {"disagreements", std::move(texts)}};
}

} // namespace pumpgraph::runtime
