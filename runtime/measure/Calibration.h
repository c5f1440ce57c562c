// SPDX-License-Identifier: Apache-2.0
/// \file
/// Calibration: one run of a step, which finds addresses that its kernels compute and store, and impure kernels.
#pragma once

#include "runtime/capture/FindHiddenPointers.h"
#include "runtime/measure/PurityCheck.h"

namespace pumpgraph::runtime {

/// Runs a captured, unplanned step, every buffer in memory of its own, and scans written memory for addresses. The run
/// stops ahead of each node that may overwrite written memory, so that no table is missed: a buffer that holds
/// addresses only between two nodes is found too. Nodes declared pure run twice meanwhile. The buffers' contents are
/// restored.
class Calibration {
public:
  /// `pure`: nodes to see of whether they are.
  Calibration(StepState &step, const std::vector<NodeIndex> &pure)
      : step_(step), session_(step.session), driver_(*step.session.driver), heap_(*step.session.memory.heap),
        scan_(driver_, heap_, *session_.memory.staging, session_.device.stream,
              [this](std::uint64_t at, const Hit &target) { return isFollowed(step_.captured, heap_, at, target); }),
        purity_(step, step.captured.nodes, pure, PurityCheck::stateBytes) {}
  ~Calibration();
  Calibration(const Calibration &) = delete;
  Calibration &operator=(const Calibration &) = delete;

  /// `step` knows what it captured. PUMPGRAPH_OUT_OF_HOST_MEMORY where there is no room for every buffer at once.
  /// Whether it succeeds or not, buffers that had no memory have none afterwards.
  Expected<HiddenPointers> run();
  /// Nodes that are said to be pure and are not.
  const std::vector<FalsePurity> &falsePurities() const { return purity_.found(); }

private:
  /// Where not all of that finds room no node is seen to be pure or not, and a note says so.
  Status getMemory();
  Status backBuffers();
  Status returnMemory();
  Status runInParts();
  /// The nodes at positions in [begin, end), and no others.
  Status runPart(std::size_t begin, std::size_t end);
  std::set<BlockId> writtenBy(std::size_t node) const;

  StepState &step_;
  SessionState &session_;
  const Driver &driver_;
  Heap &heap_;
  PointerScan scan_;
  PurityCheck purity_;
  std::vector<std::string> notes_;
  std::vector<BlockId> backed_; ///< had no memory before
  std::uint64_t runs_ = 0;
};

} // namespace pumpgraph::runtime
