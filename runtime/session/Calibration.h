// SPDX-License-Identifier: Apache-2.0
/// \file
/// Addresses that the kernels of a step compute and store, found by running the step once.
#pragma once

#include "runtime/capture/FindHiddenPointers.h"
#include "runtime/session/Step.h"

namespace pumpgraph::runtime {

/// Runs a captured step that is not planned yet, every buffer in memory of its own, and looks at what was written. The
/// run stops before each node that may write what was written before, so that no table is overwritten unseen: a buffer
/// that holds addresses only between two nodes is found too. Contents that the buffers had before are put back.
class Calibration {
public:
  explicit Calibration(Step &step)
      : step_(step), session_(step.session_), driver_(*step.session_.driver_), heap_(*step.session_.heap_),
        scan_(driver_, heap_, *session_.staging_, session_.stream_) {}
  ~Calibration();
  Calibration(const Calibration &) = delete;
  Calibration &operator=(const Calibration &) = delete;

  /// `step` knows what it captured. PUMPGRAPH_OUT_OF_HOST_MEMORY where there is no room for every buffer at once.
  /// Whether it succeeds or not, buffers that had no memory have none afterwards.
  Expected<HiddenPointers> run();

private:
  Status backBuffers();
  Status returnMemory();
  Status runInParts();
  /// The nodes at positions in [begin, end), and no others.
  Status runPart(std::size_t begin, std::size_t end);
  std::set<BlockId> writtenBy(std::size_t node) const;

  Step &step_;
  Session &session_;
  const Driver &driver_;
  Heap &heap_;
  PointerScan scan_;
  std::vector<BlockId> backed_; ///< had no memory before
  std::uint64_t runs_ = 0;
};

} // namespace pumpgraph::runtime
