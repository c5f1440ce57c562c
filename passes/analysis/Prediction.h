// SPDX-License-Identifier: Apache-2.0
/// \file
/// What is expected to happen when a description is replayed: when each node runs, who waits for what, how full the
/// device is. Everything the reports draw comes from here.
#pragma once

#include "passes/analysis/Machine.h"
#include "passes/analysis/ReplayModel.h"
#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pumpgraph {

struct NodeTimes {
  double startUs = 0;
  double endUs = 0;
};

/// A captured node that starts later than its captured dependencies would allow.
struct Stall {
  NodeIndex node = 0;     ///< who waits
  NodeIndex transfer = 0; ///< the added node it waits for last
  BufferIndex buffer = 0; ///< whose bytes these are
  double atUs = 0;        ///< when the wait begins
  double durationUs = 0;
};

/// Bytes of frames in use from `atUs` until the next point. Exclusive buffers count at all times.
struct MemoryPoint {
  double atUs = 0;
  std::uint64_t bytes = 0;
};

struct Prediction {
  double totalUs = 0;
  std::vector<NodeTimes> nodes; ///< by NodeIndex
  std::vector<Stall> stalls;    ///< longest first
  std::vector<MemoryPoint> memory;
  std::uint64_t upBytes = 0;
  std::uint64_t downBytes = 0;
  double upBusyUs = 0; ///< time in which copies are under way to the device
  double downBusyUs = 0;
  std::uint64_t peakBytes = 0; ///< largest of `memory`
};

/// Replays a planned or lowered description on paper. Captured nodes start when their dependencies allow and take
/// their cost; transfers of one direction run one at a time in index order; two transfers of opposite directions
/// share `bothBytesPerSecond`. Also right for a description without any plan (then it is the in-memory step).
/// Nodes of unknown cost count as zero: run estimateCosts first.
Prediction predict(const Description &description, const Machine &machine);

/// The same where each direction takes the first of its transfers that can start, as the agent of managed memory does.
Prediction predictAsReady(const Description &description, const Machine &machine);
/// The same with tasks made by tasksOf() that somebody has changed.
Prediction predictAsReady(const Description &description, const std::vector<Task> &tasks, const Machine &machine);

/// What the timing model takes each node for, by NodeIndex.
std::vector<Task> tasksOf(const Description &description, const Machine &machine);
/// But for what nodes move themselves.
std::vector<Task> tasksWithoutHosted(const Description &description, const Machine &machine);

/// How long, between two moments, at least one of the transfers is under way whose kinds `moves` names.
double underWayUs(const Description &description, const std::vector<NodeTimes> &times, bool (*moves)(NodeKind),
                  double fromUs, double toUs);

/// The same where it is known when each node runs.
Prediction predictionOf(const Description &description, std::vector<NodeTimes> nodes, double totalUs);

} // namespace pumpgraph
