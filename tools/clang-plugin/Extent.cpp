// SPDX-License-Identifier: Apache-2.0
#include "Extent.h"

#include "llvm/Support/CheckedArithmetic.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

namespace pumpgraph::annotate {
namespace {

constexpr size_t mostSteps = 256;

pumpgraph_extent_step makeStep(pumpgraph_extent_op op, int64_t value = 0, unsigned parameter = 0, unsigned size = 0) {
  pumpgraph_extent_step step = {};
  step.op = static_cast<uint8_t>(op);
  step.size = static_cast<uint8_t>(size);
  step.parameter = parameter;
  step.value = value;
  return step;
}

bool same(const pumpgraph_extent_step &a, const pumpgraph_extent_step &b) {
  return a.op == b.op && a.size == b.size && a.parameter == b.parameter && a.value == b.value;
}

std::optional<int64_t> fold(pumpgraph_extent_op op, int64_t a, int64_t b) {
  switch (op) {
  case PUMPGRAPH_EXTENT_ADD:
    return llvm::checkedAdd(a, b);
  case PUMPGRAPH_EXTENT_SUBTRACT:
    return llvm::checkedSub(a, b);
  case PUMPGRAPH_EXTENT_MULTIPLY:
    return llvm::checkedMul(a, b);
  case PUMPGRAPH_EXTENT_DIVIDE:
    return b > 0 ? std::optional(llvm::divideFloorSigned(a, b)) : std::nullopt;
  case PUMPGRAPH_EXTENT_MINIMUM:
    return std::min(a, b);
  case PUMPGRAPH_EXTENT_MAXIMUM:
    return std::max(a, b);
  default:
    return std::nullopt;
  }
}

} // namespace

Extent Extent::make(pumpgraph_extent_step step, Wide least, Wide largest) {
  Extent extent;
  extent.steps_ = {step};
  extent.least_ = least;
  extent.largest_ = largest;
  return extent;
}

Extent Extent::constant(int64_t value) {
  return make(makeStep(PUMPGRAPH_EXTENT_CONSTANT, value), value, value);
}

Extent Extent::parameter(unsigned parameter, uint64_t offset, unsigned sizeBytes) {
  const Wide limit = std::min(Wide{1} << (sizeBytes * 8 - 1), endless);
  return make(makeStep(PUMPGRAPH_EXTENT_SIGNED, static_cast<int64_t>(offset), parameter, sizeBytes), -limit,
              limit == endless ? limit : limit - 1);
}

Extent Extent::gridDim(unsigned dimension) {
  constexpr int64_t largest[] = {INT32_MAX, UINT16_MAX, UINT16_MAX};
  return make(makeStep(PUMPGRAPH_EXTENT_GRID_DIM, dimension), 1, largest[dimension]);
}

Extent Extent::blockDim(unsigned dimension) {
  constexpr int64_t largest[] = {1024, 1024, 64};
  return make(makeStep(PUMPGRAPH_EXTENT_BLOCK_DIM, dimension), 1, largest[dimension]);
}

Extent Extent::fromSteps(std::vector<pumpgraph_extent_step> steps) {
  Extent extent;
  if (steps.size() <= mostSteps)
    extent.steps_ = std::move(steps);
  return extent;
}

std::optional<int64_t> Extent::asConstant() const {
  if (steps_.size() != 1 || steps_[0].op != PUMPGRAPH_EXTENT_CONSTANT)
    return std::nullopt;
  return steps_[0].value;
}

Extent Extent::apply(pumpgraph_extent_op op, const Extent &a, const Extent &b) {
  if (!a.isKnown() || !b.isKnown())
    return {};
  if (a.asConstant() && b.asConstant()) {
    const std::optional<int64_t> value = fold(op, *a.asConstant(), *b.asConstant());
    return value ? constant(*value) : Extent();
  }
  std::vector<pumpgraph_extent_step> steps = a.steps_;
  steps.insert(steps.end(), b.steps_.begin(), b.steps_.end());
  steps.push_back(makeStep(op));
  Extent result = fromSteps(std::move(steps));
  const auto set = [&](Wide least, Wide largest) {
    result.least_ = least <= -endless ? -endless : std::min(least, endless - 1);
    result.largest_ = largest >= endless ? endless : std::max(largest, -endless + 1);
  };
  switch (op) {
  case PUMPGRAPH_EXTENT_ADD:
    set(a.least_ == -endless || b.least_ == -endless ? -endless : a.least_ + b.least_,
        a.largest_ == endless || b.largest_ == endless ? endless : a.largest_ + b.largest_);
    break;
  case PUMPGRAPH_EXTENT_SUBTRACT:
    set(a.least_ == -endless || b.largest_ == endless ? -endless : a.least_ - b.largest_,
        a.largest_ == endless || b.least_ == -endless ? endless : a.largest_ - b.least_);
    break;
  case PUMPGRAPH_EXTENT_MULTIPLY: {
    const std::initializer_list<Wide> products = {a.least_ * b.least_, a.least_ * b.largest_, a.largest_ * b.least_,
                                                  a.largest_ * b.largest_};
    set(std::min(products), std::max(products));
    break;
  }
  case PUMPGRAPH_EXTENT_MINIMUM:
    set(std::min(a.least_, b.least_), std::min(a.largest_, b.largest_));
    break;
  case PUMPGRAPH_EXTENT_MAXIMUM:
    set(std::max(a.least_, b.least_), std::max(a.largest_, b.largest_));
    break;
  default: // the divisor is at least 1
    set(std::min(a.least_, Wide{0}), std::max(a.largest_, Wide{0}));
    break;
  }
  return result;
}

Extent operator+(const Extent &a, const Extent &b) {
  if (a.asConstant() == 0)
    return b;
  if (b.asConstant() == 0)
    return a;
  return Extent::apply(PUMPGRAPH_EXTENT_ADD, a, b);
}

Extent operator-(const Extent &a, const Extent &b) {
  if (a.isKnown() && a == b)
    return Extent::constant(0);
  return b.asConstant() == 0 ? a : Extent::apply(PUMPGRAPH_EXTENT_SUBTRACT, a, b);
}

Extent operator*(const Extent &a, const Extent &b) {
  if (a.asConstant() == 1 || (a.isKnown() && b.asConstant() == 0))
    return b;
  if (b.asConstant() == 1 || (b.isKnown() && a.asConstant() == 0))
    return a;
  return Extent::apply(PUMPGRAPH_EXTENT_MULTIPLY, a, b);
}

Extent operator/(const Extent &a, const Extent &b) {
  return b.asConstant() == 1 ? a : Extent::apply(PUMPGRAPH_EXTENT_DIVIDE, a, b);
}

Extent minimum(const Extent &a, const Extent &b) {
  if (a.isKnown() && b.isKnown() && (a == b || a.largest_ <= b.least_))
    return a;
  if (a.isKnown() && b.isKnown() && b.largest_ <= a.least_)
    return b;
  return Extent::apply(PUMPGRAPH_EXTENT_MINIMUM, a, b);
}

Extent maximum(const Extent &a, const Extent &b) {
  if (a.isKnown() && b.isKnown() && (a == b || a.least_ >= b.largest_))
    return a;
  if (a.isKnown() && b.isKnown() && b.least_ >= a.largest_)
    return b;
  return Extent::apply(PUMPGRAPH_EXTENT_MAXIMUM, a, b);
}

bool operator==(const Extent &a, const Extent &b) {
  return std::equal(a.steps_.begin(), a.steps_.end(), b.steps_.begin(), b.steps_.end(), same);
}

} // namespace pumpgraph::annotate
