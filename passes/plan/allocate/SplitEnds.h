// SPDX-License-Identifier: Apache-2.0
/// \file
/// The order of what split values do at one address after what they did at another.
#pragma once

#include "passes/plan/allocate/Draft.h"
#include "passes/plan/allocate/TenureOrder.h"
#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <map>
#include <vector>

namespace pumpgraph {

class SplitEnds {
public:
  /// Referred to.
  explicit SplitEnds(const Description &step);

  /// Notes after what pages are done with that go on at another address. The tenure in `group` is over.
  void note(const Group &group, const PageRun &pages);
  /// The tenure that begins in `group` comes after what the pages are done with at the address before.
  void follow(const PageRun &pages, Group &group) const;
  /// The node comes after what the hosted pages that it reaches are done with where they were before.
  void followHosted(NodeIndex node, const TenureOrder &order, Draft &draft) const;

private:
  /// Of some pages, each once, in their order.
  using Ends = std::vector<const std::vector<DraftNode> *>;

  void findHostedUsers();
  const std::vector<DraftNode> *endBefore(BufferIndex buffer, std::uint64_t page) const;
  void addEndBefore(BufferIndex buffer, std::uint64_t page, Ends &found) const;

  static constexpr std::uint32_t noEnd = UINT32_MAX;
  const Description &step_;
  std::vector<std::vector<DraftNode>> ends_; ///< the last events of pages whose value goes on at another address
  std::map<BufferIndex, std::vector<std::uint32_t>> endOfPages_; ///< which of these, by page; noEnd: there are none
  bool hasHostedContinuation_ = false;                           ///< of a buffer, in part
  std::map<BufferIndex, std::vector<DraftNode>> hostedUsers_;    ///< of hosted pages that go on at another address
};

} // namespace pumpgraph
