// SPDX-License-Identifier: Apache-2.0
/// \file
/// A step, as its program sees it.
#pragma once

#include "pumpgraph/graph/Description.h"
#include "pumpgraph/pumpgraph.h"
#include "runtime/driver/Driver.h"
#include "runtime/state/Observation.h"
#include "runtime/state/StepResults.h"

#include <span>
#include <string>
#include <vector>

namespace pumpgraph::runtime {

struct StepState;

/// Thread-safe: every method but the first four locks the step's session. The session owns the step's state, which is
/// in StepState.h, and this handle of it.
class Step {
public:
  explicit Step(StepState &state) : state_(state) {}

  const StepState &state() const { return state_; }
  const Description &captured() const;
  /// For virtual memory.
  bool rewritten() const;
  /// Rewritten for managed memory.
  bool isManaged() const;
  /// Whether the plan in force copies anything between device and host, or has operands there.
  bool movesAnything() const;

  Status replay(CUstream stream);
  /// Puts the step's plan in force if it is not, as a replay does; nothing for a step left as captured.
  Status putInForce() { return prepareReplay(nullptr, {}); }
  /// The same, and then these copies on `stream`.
  Status prepareReplay(CUstream stream, std::span<const pumpgraph_copy> copies);
  std::string report();
  Status save(const std::string &path);
  /// Writes the plan's device memory over one replay, for PyTorch's memory viewer.
  Status memorySnapshot(const std::string &path);
  Expected<Measurement> measure(int repeats);
  Expected<Validation> validate();
  /// Call around each launch of a caller's own instantiation while the step is watched: the part of replay() that plans
  /// the step again.
  Expected<LaunchState> beforeLaunch(CUstream stream);
  Status afterLaunch(CUstream stream);
  /// Runs every kernel of the step alone, with plain and with poisoned operands, and adds the findings to those of
  /// earlier calls. `values`: allocations by whose contents kernels find nothing, so that any word can be changed.
  /// Contents are restored.
  Expected<Observation> observe(const std::vector<CUdeviceptr> &values = {});
  /// Measures node times on the rewritten step, plans it again with them, and keeps the fastest plan.
  /// The session's buffers keep their contents. A graph that its caller instantiated has to be instantiated again.
  Expected<Replanning> replan();

private:
  StepState &state_;
};

} // namespace pumpgraph::runtime
