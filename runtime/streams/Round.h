// SPDX-License-Identifier: Apache-2.0
/// \file
/// One round of a period, written down call by call, and its description: the same type as that of a captured graph.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace pumpgraph::runtime {

/// Addresses that have memory together: a block of the heap, or memory of the driver's own, which never moves.
struct RoundBlock {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  bool moves = true;
};

/// A call's use of bytes of a block.
struct RoundAccess {
  RoundBlock block;
  Range range; ///< of the block
  std::uint8_t may = modeReadWrite;
  std::uint8_t must = modeNone;
  Evidence evidence = Evidence::Assumed;
  std::int32_t parameter = unknownParameter;
};

/// A stream, as calls name it.
struct RoundStream {
  std::uint64_t id = 0; ///< 0: the legacy default stream
  /// It and the legacy default stream wait for each other.
  bool isBlocking = true;
};

/// Writes a round down. Calls on a stream follow one another; a wait lets a stream follow the record that it waits for.
/// No other order counts, since none is sure: a record before the round, or the host that waited for a stream.
class Round {
public:
  using EventId = std::uint64_t;
  using Nodes = std::set<NodeIndex>;

  /// `reason`: for a call that cannot be seen into.
  void begin(NodeKind kind, const std::string &name, const RoundStream &stream, const std::string &reason = {});
  /// Of the call that was begun last.
  void access(const RoundAccess &access);

  /// The calls that the next one on a stream follows, or a record.
  Nodes before(const RoundStream &stream) const;
  /// `before`: as it was when nobody had recorded yet.
  void records(EventId event, Nodes before) { records_[event] = std::move(before); }
  void waits(const RoundStream &stream, EventId event);
  /// The event is destroyed: another one may have its name.
  void forgets(EventId event) { records_.erase(event); }

  /// All memory of a block is new, or is free from now on.
  void allocated(const RoundBlock &block);
  void freed(const RoundBlock &block);

  /// Buffers are private where blocks move. A block whose first memory is allocated within the round has no value at
  /// its start, and the first call with it overwrites it; one that is freed last has none at its end.
  Description describe(const std::string &name) const;

private:
  BufferIndex bufferOf(const RoundBlock &block);

  Description description_;
  std::map<std::uint64_t, BufferIndex> buffers_; ///< by address
  std::set<BufferIndex> fresh_;                  ///< allocated, and not used since
  std::set<BufferIndex> known_;                  ///< used, allocated or freed in the round
  struct Lane {
    bool isBlocking = true;
    Nodes last;
  };
  std::map<std::uint64_t, Lane> lanes_; ///< by stream
  std::map<EventId, Nodes> records_;
};

} // namespace pumpgraph::runtime
