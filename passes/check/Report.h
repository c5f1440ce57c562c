// SPDX-License-Identifier: Apache-2.0
/// \file
/// Collects what the checker finds and words it: how nodes and pages are named in messages.
#pragma once

#include "passes/check/CheckResidency.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace pumpgraph::check {

/// What makes a finding the same as another one.
struct Place {
  const char *rule = "";
  std::optional<NodeIndex> node = std::nullopt;
  std::optional<NodeIndex> otherNode = std::nullopt;
  std::optional<BufferIndex> buffer = std::nullopt;
  std::optional<BufferIndex> otherBuffer = std::nullopt;
};

/// At most `limit` findings (at least one, because none means "correct"). A finding that differs from an earlier one in
/// the page only is dropped: a buffer of a thousand pages would otherwise fill the report with one mistake.
class Report {
public:
  explicit Report(std::size_t limit) : limit_(limit == 0 ? 1 : limit) {}

  void add(const Place &place, std::string message);
  bool full() const { return violations_.size() >= limit_; }
  bool empty() const { return violations_.empty(); }
  std::vector<Violation> take() { return std::move(violations_); }

private:
  std::size_t limit_;
  std::vector<Violation> violations_;
  using Key = std::tuple<std::string, std::optional<NodeIndex>, std::optional<NodeIndex>, std::optional<BufferIndex>,
                         std::optional<BufferIndex>>;
  std::set<Key> seen_;
};

/// node 17 "sm90_xmma_gemm", or node 40, prefetch of "layer1.weight" bytes [0, 8192)
std::string nodeLabel(const Description &description, NodeIndex node);
/// page 3 (bytes [6291456, 8388608)) of "layer1.weight"
std::string pageLabel(const Description &description, BufferIndex buffer, std::uint64_t page);
/// bytes [0, 8192)
std::string rangeLabel(Range range);
/// The bytes of a page; the last page of a buffer may be partial.
Range pageRange(const Description &description, BufferIndex buffer, std::uint64_t page);

} // namespace pumpgraph::check
