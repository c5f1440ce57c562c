// SPDX-License-Identifier: Apache-2.0
/// \file
/// Buffers of which a part goes on at another address, in frames of its own, while the rest stays where it is
/// (docs/design/planner.md, "Variants of a step").
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace pumpgraph {

/// A buffer has another address from a node on.
struct Split {
  BufferIndex buffer = 0;
  NodeIndex until = 0; ///< the first node with the new address; it needs the value
  /// Whole pages, ascending and disjoint, that have frames of their own there. The others keep theirs, which are then
  /// mapped at both addresses.
  std::vector<Range> moved;
  bool operator==(const Split &) const = default;
};

/// A step, and the same as the planner sees it: what moves together is a buffer of its own there, and what moves is
/// continued by another one.
class SplitStep {
public:
  /// `splits`: in any order, of buffers that no plan continues yet. `step` is referred to.
  SplitStep(const Description &step, std::vector<Split> splits);

  const Description &parts() const { return parts_; }

  /// The plan of the step itself that `planned`, a plan of parts(), stands for. Nodes that have different addresses of
  /// what stays are ordered by completion, but for two that only read what is not hosted: what is written at one
  /// address is there at the other only then.
  Description join(const Description &planned) const;
  /// The same splits, of captured buffers in place of parts().
  std::vector<Split> join(std::vector<Split> splits) const;

  /// parts() with the frames, what is hosted and what is on the device between steps that they have in `plan`: one of
  /// the step with splits that are all among those given, so that each part has one address in it.
  Description inParts(const Description &plan) const;

private:
  /// Bytes of a buffer that move together, and the part that they are at each of its addresses.
  struct Segment {
    Range bytes;
    std::vector<BufferIndex> parts;
  };
  struct Whole {
    std::vector<NodeIndex> untils; ///< of its addresses but the first
    std::vector<Segment> segments;
    std::vector<BufferIndex> addresses; ///< the buffers of the joined plan
  };
  /// Where a part belongs.
  struct Origin {
    BufferIndex buffer = 0; ///< of the joined plan
    BufferIndex captured = 0;
    std::uint64_t offset = 0;
  };

  Whole cut(const std::vector<Split> &splits);
  void nameAddresses();
  std::vector<Access> partsOf(const Access &access, NodeIndex node) const;
  void placePart(Description &placed, BufferIndex part, const Buffer &from) const;
  Buffer joinBuffer(const Whole &whole, std::size_t address, const Description &planned) const;
  void orderAddresses(Description &joined, const std::vector<NodeIndex> &captured, const Description &planned) const;

  const Description &step_;
  std::map<BufferIndex, Whole> wholes_;
  Description parts_;
  std::vector<Origin> origins_; ///< by part
};

} // namespace pumpgraph
