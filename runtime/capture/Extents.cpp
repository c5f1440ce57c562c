// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/Extents.h"

#include <algorithm>
#include <cstring>

namespace pumpgraph::runtime {
namespace {

using Number = std::optional<std::int64_t>;

/// A scalar of 1, 2, 4 or 8 bytes at `step.value` in its parameter.
Number scalar(const pumpgraph_extent_step &step, const KernelLaunch &launch) {
  const std::span<const char> bytes = launch.parameter(step.parameter);
  const std::uint64_t size = step.size, offset = static_cast<std::uint64_t>(step.value);
  if ((size != 1 && size != 2 && size != 4 && size != 8) || offset > bytes.size() || size > bytes.size() - offset)
    return std::nullopt;
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + offset, size); // little endian, like the device
  const std::uint64_t unused = 64 - 8 * size;
  if (step.op == PUMPGRAPH_EXTENT_SIGNED)
    return static_cast<std::int64_t>(value << unused) >> unused;
  return value > INT64_MAX ? Number() : Number(static_cast<std::int64_t>(value));
}

Number dimension(const std::array<std::uint32_t, 3> &dimensions, std::int64_t axis) {
  return axis >= 0 && axis < 3 ? Number(dimensions[static_cast<std::size_t>(axis)]) : Number();
}

Number divideDown(std::int64_t a, std::int64_t b) {
  if (b <= 0)
    return std::nullopt;
  return a / b - (a % b < 0 ? 1 : 0);
}

Number combine(std::uint8_t op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
  case PUMPGRAPH_EXTENT_ADD:
    return __builtin_add_overflow(a, b, &result) ? Number() : Number(result);
  case PUMPGRAPH_EXTENT_SUBTRACT:
    return __builtin_sub_overflow(a, b, &result) ? Number() : Number(result);
  case PUMPGRAPH_EXTENT_MULTIPLY:
    return __builtin_mul_overflow(a, b, &result) ? Number() : Number(result);
  case PUMPGRAPH_EXTENT_DIVIDE:
    return divideDown(a, b);
  case PUMPGRAPH_EXTENT_MINIMUM:
    return std::min(a, b);
  case PUMPGRAPH_EXTENT_MAXIMUM:
    return std::max(a, b);
  default:
    return std::nullopt;
  }
}

} // namespace

std::optional<std::int64_t> evaluate(const Extent &extent, const KernelLaunch &launch) {
  std::vector<std::int64_t> stack;
  for (const pumpgraph_extent_step &step : extent) {
    Number number;
    switch (step.op) {
    case PUMPGRAPH_EXTENT_CONSTANT:
      number = step.value;
      break;
    case PUMPGRAPH_EXTENT_SIGNED:
    case PUMPGRAPH_EXTENT_UNSIGNED:
      number = scalar(step, launch);
      break;
    case PUMPGRAPH_EXTENT_GRID_DIM:
      number = dimension(launch.grid, step.value);
      break;
    case PUMPGRAPH_EXTENT_BLOCK_DIM:
      number = dimension(launch.block, step.value);
      break;
    default:
      if (stack.size() < 2)
        return std::nullopt;
      const std::int64_t b = stack.back();
      stack.pop_back();
      number = combine(step.op, stack.back(), b);
      stack.pop_back();
    }
    if (!number)
      return std::nullopt;
    stack.push_back(*number);
  }
  return stack.size() == 1 ? Number(stack.back()) : Number();
}

} // namespace pumpgraph::runtime
