// SPDX-License-Identifier: Apache-2.0
/// \file
/// When which page of a plan is in its frame.
#pragma once

#include "passes/analysis/Order.h"
#include "pumpgraph/graph/Description.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace pumpgraph {

/// The pages of a plan that may move, and by frame their stays in it, one after the other.
class PageStays {
public:
  using PageId = std::uint32_t;
  using OperationId = std::uint32_t;
  using Nodes = std::vector<NodeIndex>; ///< ascending

  struct Page {
    BufferIndex buffer = 0;
    std::uint64_t index = 0; ///< in its buffer
    Nodes uses;              ///< nodes that touch it
  };

  /// A page's stay in its frame, from its first to its last use of a run without uses of other pages.
  struct Stay {
    PageId page = 0;
    std::size_t firstUse = 0, lastUse = 0; ///< positions in Page::uses
    std::optional<OperationId> departure;  ///< once it has one
  };

  /// Both are referred to. There are no stays where the plan moves nothing.
  PageStays(const Description &captured, const Description &planned);

  const Page &page(PageId id) const { return pages_[id]; }
  /// By frame.
  std::vector<std::vector<Stay>> &byFrame() { return stays_; }
  const std::vector<std::vector<Stay>> &byFrame() const { return stays_; }
  static bool overTheBoundary(const std::vector<Stay> &stays) { return stays.front().page == stays.back().page; }

  Range rangeOf(const Page &page) const;
  /// Whether what the page held before the stay is wanted in it.
  bool needsItsValue(const Stay &stay) const;
  /// Nobody looks at the page's value after the stay: the next node to touch it, returned if there is one, overwrites
  /// it.
  bool isDeadAfter(const Stay &stay, std::optional<NodeIndex> &next) const;

  /// Those of the nodes that no other one of them comes after.
  Nodes latest(Nodes::const_iterator begin, Nodes::const_iterator end) const;
  Nodes earliest(Nodes::const_iterator begin, Nodes::const_iterator end) const;
  Nodes firstUses(const Stay &stay) const;

private:
  void findPages();
  void findStays();
  /// Whether every access of the node to the page overwrites all of it.
  bool overwrites(NodeIndex node, const Page &page) const;
  bool mayWrite(NodeIndex node, const Page &page) const;

  const Description &captured_;
  const Description &planned_;
  Order order_;
  std::vector<Page> pages_;
  std::map<std::int32_t, std::vector<PageId>> tenants_; ///< by frame
  std::vector<std::vector<Stay>> stays_;                ///< by frame, in the order of its nodes
};

} // namespace pumpgraph
