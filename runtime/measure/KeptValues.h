// SPDX-License-Identifier: Apache-2.0
/// \file
/// Saves the state in which a step's next replay begins, while PumpGraph runs the step on its own account.
#pragma once

#include "runtime/state/StepState.h"

namespace pumpgraph::runtime {

/// Host copies of all values that a run of the step may read or write. Each run of PumpGraph's own begins with them,
/// and the program finds them again afterwards: a step that advances a position in a cache would run past the cache
/// otherwise.
class KeptValues {
public:
  explicit KeptValues(StepState &step) : step_(step), session_(step.session), driver_(*step.session.driver) {}
  KeptValues(const KeptValues &) = delete;
  KeptValues &operator=(const KeptValues &) = delete;

  /// The effect of a run that nothing can put back, as in "it calls a host function"; empty: there is none.
  static std::string lastingEffect(const StepState &step);

  /// Waits for the device. PUMPGRAPH_INVALID_ARGUMENT where a run has a lasting effect; PUMPGRAPH_OUT_OF_HOST_MEMORY
  /// where the system has no room for `copies` of all values, of which one is kept.
  Status keep(std::uint64_t copies = 1);
  /// Gives every value that a run may have written back. Called before each run but the first. Waits for the device.
  Status rewind() { return write(Which::Written); }
  /// Gives all values back. Waits for the device.
  Status restore() { return write(Which::All); }

  /// By BufferIndex; empty where there is no value.
  const std::vector<std::vector<char>> &buffers() const { return buffers_; }

private:
  enum class Which : std::uint8_t { All, Written };
  /// Memory outside the step's buffers that its nodes may reach.
  struct Region {
    CUdeviceptr address = 0; ///< or, of host memory, as a pointer
    bool isOnHost = false;
    std::vector<char> value;
  };

  std::vector<Region> findRegions() const;
  Status write(Which which);

  StepState &step_;
  SessionState &session_;
  const Driver &driver_;
  std::vector<std::vector<char>> buffers_; ///< by BufferIndex
  std::vector<bool> isWritten_;            ///< by BufferIndex: a run may write it, and the next one read it
  std::vector<Region> regions_;
};

} // namespace pumpgraph::runtime
