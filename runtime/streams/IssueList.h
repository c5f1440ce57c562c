// SPDX-License-Identifier: Apache-2.0
/// \file
/// The operations that a plan adds to a round of a program's calls, in the order in which they are issued.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pumpgraph::runtime {

/// Where an operation is issued: on the stream of the call that it stands at, or on a stream of copies.
enum class IssueLane : std::uint8_t { Call, Down, Up };

struct IssuedOperation {
  enum class Kind : std::uint8_t { Copy, Record, Wait };

  Kind kind = Kind::Copy;
  IssueLane lane = IssueLane::Call;
  std::uint32_t event = 0; ///< of a record or wait
  NodeIndex copy = 0;      ///< a node of the lowered description
};

/// `before[k]` and `after[k]` stand around the k-th node of the round. `before` ends with what follows the last event
/// of the round. So a copy that the plan has between two calls is issued once the second one has come: memory that is
/// freed between the two is free by then.
///
/// A round follows the one before it as a whole: its first operation and call on each stream wait for `boundary`, which
/// is recorded once everything of a round is issued.
struct IssueList {
  static constexpr std::uint32_t boundary = 0;

  std::vector<std::vector<IssuedOperation>> before, after;
  std::uint32_t events = 1;
  std::vector<NodeIndex> calls; ///< by node of the round: its position in the lowered description
};

/// Of a description that is lowered for virtual memory. `round`: the description that was planned. `streams`: of each
/// of its nodes. Empty, with the reason in `error`, if the lowered nodes are no round of calls in order.
IssueList lowerStreams(const Description &lowered, const Description &round, const std::vector<std::uint64_t> &streams,
                       std::string &error);

/// The description of what the list issues: edges are the round's own, those of the copies' streams, and those between
/// records and waits. Empty, with the reason in `error`, if an operation does not follow the round before, or a round
/// does not end with `boundary` behind all of it.
Description liftIssued(const IssueList &list, const Description &lowered, const Description &round,
                       const std::vector<std::uint64_t> &streams, std::string &error);

} // namespace pumpgraph::runtime
