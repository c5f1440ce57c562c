// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/NarrowAccess.h"

#include "runtime/capture/Extents.h"

#include <algorithm>

namespace pumpgraph::runtime {
namespace {

/// Bytes from `begin` up to `end`, which may lie outside the allocation.
struct Bytes {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  bool empty() const { return end <= begin; }
  bool contains(const Bytes &other) const { return begin <= other.begin && other.end <= end; }
};

} // namespace

Narrowed narrow(const Access &whole, std::int64_t base, const Slot &slot, const KernelLaunch &launch,
                bool overwriting) {
  const auto position = [&](const Extent &extent) -> std::optional<std::int64_t> {
    const std::optional<std::int64_t> offset = evaluate(extent, launch);
    std::int64_t sum = 0;
    return offset && !__builtin_add_overflow(base, *offset, &sum) ? std::optional(sum) : std::nullopt;
  };
  if (!slot.isUnderstood())
    return {{whole}, ""};
  if (slot.may == modeNone)
    return {};

  const Bytes all{static_cast<std::int64_t>(whole.range.offset), static_cast<std::int64_t>(whole.range.end())};
  const std::optional<std::int64_t> begin = position(slot.begin), end = position(slot.end);
  if (begin && end && *end <= *begin)
    return {};
  const Bytes touched{std::max(begin.value_or(all.begin), all.begin), std::min(end.value_or(all.end), all.end)};
  if (touched.empty())
    return {{whole}, "touches nothing of it, but memory beside it"};

  const std::optional<std::int64_t> mustBegin = position(slot.mustBegin), mustEnd = position(slot.mustEnd);
  Bytes overwritten{touched.begin, touched.begin};
  if (mustBegin && mustEnd && *mustBegin < *mustEnd) {
    const Bytes claimed{*mustBegin, *mustEnd};
    if (!all.contains(claimed))
      return {{whole}, "overwrites memory beside it"};
    if (!touched.contains(claimed))
      return {{whole}, "overwrites more than it touches"};
    if (overwriting)
      overwritten = claimed;
  }

  Narrowed narrowed;
  const auto add = [&](const Bytes &bytes, Mode must) {
    if (bytes.empty())
      return;
    Access &access = narrowed.accesses.emplace_back(whole);
    access.range = {static_cast<std::uint64_t>(bytes.begin), static_cast<std::uint64_t>(bytes.end - bytes.begin)};
    access.may = slot.may;
    access.must = must;
    access.evidence = Evidence::Proved;
  };
  add({touched.begin, overwritten.begin}, modeNone);
  add(overwritten, modeWrite);
  add({overwritten.end, touched.end}, modeNone);
  return narrowed;
}

} // namespace pumpgraph::runtime
