// SPDX-License-Identifier: Apache-2.0
#include "Extents.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace pumpgraph::annotate {
namespace {

/// Beyond this an expression would be longer than it is worth.
constexpr size_t mostGroups = 16;

void addGroup(std::vector<AccessGroup> &groups, AccessGroup group) {
  const bool hasLength = !group.length.isZero();
  for (AccessGroup &known : groups)
    if (!hasLength && known.length.isZero() && known.offset == group.offset &&
        known.instruction->getParent() == group.instruction->getParent()) {
      known.pieces.push_back(group.pieces.front());
      return;
    }
  groups.push_back(std::move(group));
}

void add(std::vector<Extent> &extents, const Extent &extent) {
  if (!llvm::is_contained(extents, extent))
    extents.push_back(extent);
}

} // namespace

std::optional<std::vector<AccessGroup>> groupAccesses(const SlotUses &uses, const llvm::Function &kernel,
                                                      Numbers &numbers) {
  if (!uses.isFullyKnown())
    return std::nullopt;
  std::vector<AccessGroup> groups;
  for (const Access &access : uses.accesses) {
    if (access.instruction->getFunction() != &kernel || !access.isExact || (access.sizeBytes == 0 && !access.length))
      return std::nullopt;
    AccessGroup group;
    group.instruction = access.instruction;
    const std::vector<Bound> bounds = numbers.boundsAt(access.instruction);
    const Polynomial offset = numbers.offsetOf(access.address, uses.roots, bounds, group.required);
    if (access.length) {
      group.length = numbers.polynomialOf(access.length, bounds, group.required);
      if (!numbers.isShared(group.length))
        return std::nullopt;
      group.required.push_back(numbers.extentOf(group.length) + Extent::constant(1));
    }
    if (!offset.isKnown())
      return std::nullopt;
    const auto constant = offset.terms().find({});
    const int64_t begin = constant == offset.terms().end() ? 0 : constant->second;
    group.offset = offset - Polynomial(begin);
    group.pieces = {{begin, begin + static_cast<int64_t>(access.sizeBytes)}};
    addGroup(groups, std::move(group));
    if (groups.size() > mostGroups)
      return std::nullopt;
  }
  for (AccessGroup &group : groups)
    llvm::sort(group.pieces);
  return groups;
}

void findExtents(const std::vector<AccessGroup> &groups, Numbers &numbers, SlotAccesses &slot) {
  std::vector<Extent> begins, ends;
  for (const AccessGroup &group : groups) {
    const std::vector<Bound> bounds = numbers.boundsAt(group.instruction);
    Requirements required = group.required;
    const Range range = numbers.rangeOf(group.offset, bounds, required);
    int64_t last = 0;
    for (const auto &[begin, end] : group.pieces)
      last = std::max(last, end);
    const Extent length = Extent::constant(last) + numbers.extentOf(group.length);
    add(begins, onlyIf(required, range.least + Extent::constant(group.pieces.front().first)));
    add(ends, onlyIf(required, range.largest + length));
  }
  const auto fold = [](const std::vector<Extent> &extents, auto combine) {
    Extent result = extents.front();
    for (const Extent &extent : llvm::drop_begin(extents))
      result = combine(result, extent);
    return result;
  };
  if (groups.empty())
    return;
  slot.begin = fold(begins, minimum);
  slot.end = fold(ends, maximum);
}

} // namespace pumpgraph::annotate
