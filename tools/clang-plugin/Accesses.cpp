// SPDX-License-Identifier: Apache-2.0
#include "Accesses.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

namespace pumpgraph::annotate {
namespace {

using llvm::StringRef;
namespace json = llvm::json;

SlotAccesses join(const SlotAccesses &a, const SlotAccesses &b) {
  SlotAccesses both;
  both.slot = a.slot;
  both.may = a.may | b.may;
  both.escapes = a.escapes || b.escapes;
  both.atomic = a.atomic || b.atomic;
  both.holdsPointers = a.holdsPointers || b.holdsPointers;
  both.unresolved = a.unresolved || b.unresolved;
  both.begin = minimum(a.begin, b.begin);
  both.end = maximum(a.end, b.end);
  if (a.mustBegin == b.mustBegin && a.mustEnd == b.mustEnd) {
    both.mustBegin = a.mustBegin;
    both.mustEnd = a.mustEnd;
  }
  return both;
}

struct OpName {
  pumpgraph_extent_op op;
  const char *text;
};

constexpr OpName binaryOps[] = {{PUMPGRAPH_EXTENT_ADD, "+"},       {PUMPGRAPH_EXTENT_SUBTRACT, "-"},
                                {PUMPGRAPH_EXTENT_MULTIPLY, "*"},  {PUMPGRAPH_EXTENT_DIVIDE, "/"},
                                {PUMPGRAPH_EXTENT_MINIMUM, "min"}, {PUMPGRAPH_EXTENT_MAXIMUM, "max"}};
constexpr StringRef axes = "xyz";

std::string stepText(const pumpgraph_extent_step &step) {
  const auto scalar = [&](char sign) {
    return sign + std::to_string(step.size * 8) + ":" + std::to_string(step.parameter) + "+" +
           std::to_string(step.value);
  };
  switch (step.op) {
  case PUMPGRAPH_EXTENT_CONSTANT:
    return std::to_string(step.value);
  case PUMPGRAPH_EXTENT_SIGNED:
    return scalar('i');
  case PUMPGRAPH_EXTENT_UNSIGNED:
    return scalar('u');
  case PUMPGRAPH_EXTENT_GRID_DIM:
    return std::string("grid.") + axes[step.value];
  case PUMPGRAPH_EXTENT_BLOCK_DIM:
    return std::string("block.") + axes[step.value];
  default:
    return std::find_if(std::begin(binaryOps), std::end(binaryOps), [&](OpName name) { return name.op == step.op; })
        ->text;
  }
}

std::string extentText(const Extent &extent) {
  std::string text;
  for (const pumpgraph_extent_step &step : extent.steps()) {
    if (!text.empty())
      text += ' ';
    text += stepText(step);
  }
  return text;
}

std::optional<pumpgraph_extent_step> parseStep(StringRef text) {
  pumpgraph_extent_step step = {};
  for (const OpName &name : binaryOps)
    if (text == name.text) {
      step.op = static_cast<uint8_t>(name.op);
      return step;
    }
  const bool grid = text.starts_with("grid.");
  if (grid || text.starts_with("block.")) {
    step.op = grid ? PUMPGRAPH_EXTENT_GRID_DIM : PUMPGRAPH_EXTENT_BLOCK_DIM;
    step.value = static_cast<int64_t>(axes.find(text.back()));
    return step;
  }
  const bool isSigned = text.consume_front("i");
  if (isSigned || text.consume_front("u")) {
    const auto [bits, place] = text.split(':');
    const auto [parameter, offset] = place.split('+');
    unsigned width = 0;
    if (bits.getAsInteger(10, width) || parameter.getAsInteger(10, step.parameter) ||
        offset.getAsInteger(10, step.value))
      return std::nullopt;
    step.op = isSigned ? PUMPGRAPH_EXTENT_SIGNED : PUMPGRAPH_EXTENT_UNSIGNED;
    step.size = static_cast<uint8_t>(width / 8);
    return step;
  }
  if (text.getAsInteger(10, step.value))
    return std::nullopt;
  return step;
}

Extent parseExtent(StringRef text) {
  std::vector<pumpgraph_extent_step> steps;
  while (!text.empty()) {
    StringRef word;
    std::tie(word, text) = text.split(' ');
    const std::optional<pumpgraph_extent_step> step = parseStep(word);
    if (!step)
      return {};
    steps.push_back(*step);
  }
  return Extent::fromSteps(std::move(steps));
}

constexpr StringRef modeNames[] = {"none", "read", "write", "readwrite"};
constexpr StringRef purityNames[] = {"", "apart", "always"};

json::Object toJson(const SlotAccesses &slot) {
  json::Object object{{"parameter", slot.slot.parameter},
                      {"offset", static_cast<int64_t>(slot.slot.offset)},
                      {"may", modeNames[slot.may]}};
  const std::pair<const char *, bool> flags[] = {{"escapes", slot.escapes},
                                                 {"atomic", slot.atomic},
                                                 {"holds_pointers", slot.holdsPointers},
                                                 {"unresolved", slot.unresolved}};
  for (const auto &[name, isSet] : flags)
    if (isSet)
      object[name] = true;
  const std::pair<const char *, const Extent *> extents[] = {
      {"begin", &slot.begin}, {"end", &slot.end}, {"must_begin", &slot.mustBegin}, {"must_end", &slot.mustEnd}};
  for (const auto &[name, extent] : extents)
    if (extent->isKnown())
      object[name] = extentText(*extent);
  return object;
}

std::optional<SlotAccesses> slotFromJson(const json::Object &object) {
  const auto parameter = object.getInteger("parameter"), offset = object.getInteger("offset");
  const auto may = object.getString("may");
  const auto *const mode = may ? std::find(std::begin(modeNames), std::end(modeNames), *may) : std::end(modeNames);
  if (!parameter || !offset || mode == std::end(modeNames))
    return std::nullopt;
  const auto flag = [&](StringRef name) { return object.getBoolean(name).value_or(false); };
  const auto extent = [&](StringRef name) { return parseExtent(object.getString(name).value_or("")); };
  SlotAccesses slot;
  slot.slot = {static_cast<unsigned>(*parameter), static_cast<uint64_t>(*offset)};
  slot.may = static_cast<uint8_t>(mode - std::begin(modeNames));
  slot.escapes = flag("escapes");
  slot.atomic = flag("atomic");
  slot.holdsPointers = flag("holds_pointers");
  slot.unresolved = flag("unresolved");
  slot.begin = extent("begin");
  slot.end = extent("end");
  slot.mustBegin = extent("must_begin");
  slot.mustEnd = extent("must_end");
  return slot;
}

} // namespace

SlotAccesses unresolvedSlot(const Slot &slot) {
  SlotAccesses accesses;
  accesses.slot = slot;
  accesses.may = readsAndWrites;
  accesses.unresolved = true;
  return accesses;
}

KernelAccesses join(const KernelAccesses &a, const KernelAccesses &b) {
  KernelAccesses both;
  both.name = a.name;
  both.otherMemory = a.otherMemory || b.otherMemory;
  both.purity = std::min(a.purity, b.purity);
  auto left = a.slots.begin(), right = b.slots.begin();
  while (left != a.slots.end() || right != b.slots.end()) {
    const bool hasLeft = left != a.slots.end() && (right == b.slots.end() || left->slot <= right->slot);
    const bool hasRight = right != b.slots.end() && (left == a.slots.end() || right->slot <= left->slot);
    if (hasLeft && hasRight)
      both.slots.push_back(join(*left, *right));
    else if (const SlotAccesses &only = hasLeft ? *left : *right; only.may != touchesNothing)
      both.slots.push_back(unresolvedSlot(only.slot)); // one compilation alone takes these bytes for an address
    left += hasLeft;
    right += hasRight;
  }
  return both;
}

std::string toJson(const KernelAccesses &kernel) {
  json::Array slots;
  for (const SlotAccesses &slot : kernel.slots)
    slots.push_back(toJson(slot));
  json::Object object{{"kernel", kernel.name}, {"slots", std::move(slots)}};
  if (kernel.otherMemory)
    object["other_memory"] = true;
  if (kernel.purity != Purity::unknown)
    object["pure"] = purityNames[static_cast<size_t>(kernel.purity)];
  std::string text;
  llvm::raw_string_ostream(text) << json::Value(std::move(object));
  return text;
}

std::optional<KernelAccesses> fromJson(const std::string &line) {
  llvm::Expected<json::Value> value = json::parse(line);
  if (!value) {
    llvm::consumeError(value.takeError());
    return std::nullopt;
  }
  const json::Object *object = value->getAsObject();
  const json::Array *slots = object ? object->getArray("slots") : nullptr;
  const auto name = object ? object->getString("kernel") : std::nullopt;
  if (!slots || !name)
    return std::nullopt;
  KernelAccesses kernel;
  kernel.name = name->str();
  kernel.otherMemory = object->getBoolean("other_memory").value_or(false);
  const StringRef purity = object->getString("pure").value_or("");
  for (const Purity known : {Purity::apart, Purity::always})
    if (purity == purityNames[static_cast<size_t>(known)])
      kernel.purity = known;
  for (const json::Value &entry : *slots) {
    const json::Object *fields = entry.getAsObject();
    const std::optional<SlotAccesses> slot = fields ? slotFromJson(*fields) : std::nullopt;
    if (!slot)
      return std::nullopt;
    kernel.slots.push_back(*slot);
  }
  return kernel;
}

} // namespace pumpgraph::annotate
