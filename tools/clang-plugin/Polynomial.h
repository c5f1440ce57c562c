// SPDX-License-Identifier: Apache-2.0
/// \file
/// Polynomials over what a thread's addresses are made of: launch dimensions, scalar parameters, places in block and
/// grid, loop counters.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace pumpgraph::annotate {

/// Index into the leaves of a kernel.
using Leaf = unsigned;

/// Exact numbers, not machine integers. A polynomial with a coefficient beyond 64 bits is unknown, and so is what is
/// computed from it.
class Polynomial {
public:
  using Monomial = std::vector<Leaf>; ///< a product of leaves, ascending; empty: 1
  using Terms = std::map<Monomial, int64_t>;

  Polynomial(int64_t value = 0);
  static Polynomial leaf(Leaf leaf);
  static Polynomial product(const Monomial &leaves, int64_t coefficient);
  static Polynomial unknown();

  bool isKnown() const { return isKnown_; }
  bool isZero() const { return isKnown_ && terms_.empty(); }
  std::optional<int64_t> asConstant() const;
  const Terms &terms() const { return terms_; }

  /// The polynomial that multiplies `leaf`; unknown if a higher power of it occurs.
  Polynomial coefficientOf(Leaf leaf) const;
  Polynomial without(Leaf leaf) const; ///< as if `leaf` were 0
  Polynomial replaced(Leaf leaf, const Polynomial &by) const;
  /// q with *this == q * divisor, where the divisor is one product.
  std::optional<Polynomial> dividedBy(const Polynomial &divisor) const;

  Polynomial &operator+=(const Polynomial &other);
  friend Polynomial operator+(Polynomial a, const Polynomial &b) { return a += b; }
  friend Polynomial operator-(const Polynomial &a, const Polynomial &b) { return a + b * Polynomial(-1); }
  friend Polynomial operator*(const Polynomial &a, const Polynomial &b);
  friend bool operator==(const Polynomial &a, const Polynomial &b) {
    return a.isKnown_ && b.isKnown_ && a.terms_ == b.terms_;
  }

private:
  void add(const Monomial &monomial, int64_t coefficient);

  Terms terms_;
  bool isKnown_ = true;
};

} // namespace pumpgraph::annotate
