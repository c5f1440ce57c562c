// SPDX-License-Identifier: Apache-2.0
/// \file
/// The words and the agent beside the graph of a step that is rewritten for managed memory.
#pragma once

#include "runtime/agent/DriverMover.h"
#include "runtime/lower/ManagedGraph.h"

#include <nlohmann/json_fwd.hpp>

namespace pumpgraph::runtime {

/// Must outlive every run of its graph, whose requests nothing else answers.
class ManagedStep {
public:
  /// Settles the step's memory. Blocks until done.
  static Expected<std::unique_ptr<ManagedStep>> create(const Driver &driver, int device, const LaneContexts &contexts,
                                                       CUstream stream, const Description &lowered);
  ~ManagedStep();
  ManagedStep(const ManagedStep &) = delete;
  ManagedStep &operator=(const ManagedStep &) = delete;

  /// The device's address of the first operation's words.
  CUdeviceptr words() const { return deviceWords_; }
  bool movesAnything() const { return agent_ != nullptr; }
  void waitForRoom() {
    if (agent_)
      agent_->waitForRoom();
  }
  void wake() {
    if (agent_)
      agent_->wake();
  }
  /// Tells the driver what the step's advice says, and has everything leave the device that is to leave it at times, so
  /// that the first replay is like any other. Again where the arena is another than before. Blocks until done.
  Status settle(int device, CUstream stream, const Description &lowered);
  /// Blocks until nothing that replays have asked for is under way, for ten seconds at most; PUMPGRAPH_DRIVER_ERROR if
  /// something still is then. No replay may be running.
  Status waitUntilIdle() const;
  nlohmann::ordered_json report() const;

private:
  explicit ManagedStep(const Driver &driver) : driver_(driver) {}
  Status allocateWords(std::size_t operations);

  const Driver &driver_;
  void *words_ = nullptr;
  CUdeviceptr deviceWords_ = 0;
  std::unique_ptr<DriverMover> mover_;
  std::unique_ptr<Agent> agent_; ///< where there is something to do
};

} // namespace pumpgraph::runtime
