// SPDX-License-Identifier: Apache-2.0
#include "Polynomial.h"

#include "llvm/Support/CheckedArithmetic.h"

#include <algorithm>

namespace pumpgraph::annotate {
namespace {

constexpr size_t mostTerms = 32;

/// a / b, where every leaf of b is one of a.
std::optional<Polynomial::Monomial> quotient(const Polynomial::Monomial &a, const Polynomial::Monomial &b) {
  if (!std::includes(a.begin(), a.end(), b.begin(), b.end()))
    return std::nullopt;
  Polynomial::Monomial rest;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(rest));
  return rest;
}

} // namespace

Polynomial::Polynomial(int64_t value) {
  add({}, value);
}

Polynomial Polynomial::leaf(Leaf leaf) {
  return product({leaf}, 1);
}

Polynomial Polynomial::product(const Monomial &leaves, int64_t coefficient) {
  Polynomial result;
  result.add(leaves, coefficient);
  return result;
}

Polynomial Polynomial::unknown() {
  Polynomial result;
  result.isKnown_ = false;
  return result;
}

std::optional<int64_t> Polynomial::asConstant() const {
  if (isZero())
    return 0;
  if (!isKnown_ || terms_.size() != 1 || !terms_.begin()->first.empty())
    return std::nullopt;
  return terms_.begin()->second;
}

Polynomial Polynomial::coefficientOf(Leaf leaf) const {
  if (!isKnown_)
    return unknown();
  Polynomial result;
  for (const auto &[monomial, coefficient] : terms_) {
    const std::optional<Monomial> rest = quotient(monomial, {leaf});
    if (!rest)
      continue;
    if (std::find(rest->begin(), rest->end(), leaf) != rest->end())
      return unknown();
    result.add(*rest, coefficient);
  }
  return result;
}

Polynomial Polynomial::without(Leaf leaf) const {
  if (!isKnown_)
    return unknown();
  Polynomial result;
  for (const auto &[monomial, coefficient] : terms_)
    if (std::find(monomial.begin(), monomial.end(), leaf) == monomial.end())
      result.add(monomial, coefficient);
  return result;
}

Polynomial Polynomial::replaced(Leaf leaf, const Polynomial &by) const {
  return without(leaf) + coefficientOf(leaf) * by;
}

std::optional<Polynomial> Polynomial::dividedBy(const Polynomial &divisor) const {
  if (!isKnown_ || !divisor.isKnown_ || divisor.terms_.size() != 1)
    return std::nullopt;
  const auto &[monomial, coefficient] = *divisor.terms_.begin();
  Polynomial result;
  for (const auto &[own, ownCoefficient] : terms_) {
    const std::optional<Monomial> rest = quotient(own, monomial);
    if (!rest || coefficient == -1 || ownCoefficient % coefficient != 0)
      return std::nullopt;
    result.add(*rest, ownCoefficient / coefficient);
  }
  return result;
}

Polynomial &Polynomial::operator+=(const Polynomial &other) {
  isKnown_ = isKnown_ && other.isKnown_;
  const Terms added = other.terms_; // `other` may be this
  for (const auto &[monomial, coefficient] : added)
    add(monomial, coefficient);
  return *this;
}

Polynomial operator*(const Polynomial &a, const Polynomial &b) {
  Polynomial result;
  result.isKnown_ = a.isKnown_ && b.isKnown_;
  for (const auto &[left, leftCoefficient] : a.terms_)
    for (const auto &[right, rightCoefficient] : b.terms_) {
      Polynomial::Monomial both;
      std::merge(left.begin(), left.end(), right.begin(), right.end(), std::back_inserter(both));
      const std::optional<int64_t> coefficient = llvm::checkedMul(leftCoefficient, rightCoefficient);
      if (!coefficient)
        return Polynomial::unknown();
      result.add(both, *coefficient);
    }
  return result;
}

void Polynomial::add(const Monomial &monomial, int64_t coefficient) {
  if (!isKnown_ || coefficient == 0)
    return;
  int64_t &own = terms_[monomial];
  const std::optional<int64_t> sum = llvm::checkedAdd(own, coefficient);
  if (!sum || terms_.size() > mostTerms) {
    *this = unknown();
    return;
  }
  own = *sum;
  if (own == 0)
    terms_.erase(monomial);
}

} // namespace pumpgraph::annotate
