// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a plan has on the device over one replay, as the allocations and frees that PyTorch's memory viewer draws.
#pragma once

#include "passes/analysis/Prediction.h"
#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pumpgraph {

/// The life of one step's device memory. All of it is one segment that begins at `address`: page p of it is frame p of
/// the plan, so that what is alive never overlaps.
struct MemoryTrace {
  /// A line that the viewer shows of a block or an event: where in a program there would be a file, the name of a
  /// buffer or node is.
  struct Line {
    std::string subject;
    std::uint64_t number = 0; ///< of a node, its position in the captured graph; else 0
    std::string text;

    friend bool operator==(const Line &, const Line &) = default;
  };
  /// A run of pages becomes resident, or leaves.
  struct Event {
    bool isFree = false;
    std::uint64_t address = 0, bytes = 0;
    double atUs = 0;
    std::vector<Line> lines;
  };
  /// A part of the segment, at the end of the replay.
  struct Block {
    std::uint64_t bytes = 0;
    std::uint64_t usedBytes = 0; ///< by the buffer, whose last page may be a part of one; 0: nothing is there
    std::vector<Line> lines;
  };

  std::uint64_t address = 0, bytes = 0;
  std::vector<Event> events; ///< in the order of time; at one time, what leaves comes first
  std::vector<Block> blocks; ///< ascending, without gaps
};

/// Of a lowered step with the prediction that was made of it.
MemoryTrace traceMemory(const Description &step, const Prediction &prediction);

/// As a snapshot of torch.cuda.memory._snapshot(), pickled: pytorch.org/memory_viz opens it.
std::string toPickle(const MemoryTrace &trace);

} // namespace pumpgraph
