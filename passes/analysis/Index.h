// SPDX-License-Identifier: Apache-2.0
/// \file
/// Typed positions: a vector that only its own kind of index opens, so that a piece is never looked up among groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pumpgraph {

/// `Index` is a scoped enum over std::uint32_t, such as `enum class PieceIndex : std::uint32_t {}`.
template <typename Index, typename Element> class IndexedVector {
public:
  IndexedVector() = default;
  explicit IndexedVector(std::size_t count, const Element &value = {}) : elements_(count, value) {}

  using Reference = typename std::vector<Element>::reference; // not Element & for bool
  using ConstReference = typename std::vector<Element>::const_reference;
  Reference operator[](Index index) { return elements_[static_cast<std::size_t>(index)]; }
  ConstReference operator[](Index index) const { return elements_[static_cast<std::size_t>(index)]; }

  /// Appends and returns the new element's index.
  Index add(Element element) {
    elements_.push_back(std::move(element));
    return static_cast<Index>(elements_.size() - 1);
  }

  std::size_t size() const { return elements_.size(); }
  bool empty() const { return elements_.empty(); }
  void reserve(std::size_t count) { elements_.reserve(count); }
  auto begin() { return elements_.begin(); }
  auto end() { return elements_.end(); }
  auto begin() const { return elements_.begin(); }
  auto end() const { return elements_.end(); }

private:
  std::vector<Element> elements_;
};

} // namespace pumpgraph
