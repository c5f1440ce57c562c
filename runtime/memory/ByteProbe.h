// SPDX-License-Identifier: Apache-2.0
/// \file
/// Poisons and compares memory on the device, by kernels of the runtime.
#pragma once

#include "runtime/driver/Driver.h"
#include "runtime/memory/Poison.h"

#include <memory>

namespace pumpgraph::runtime {

/// A piece of memory, a copy of its contents at first, and a copy of its contents after a run without poison. Addresses
/// and size are multiples of 4.
struct ProbedPiece {
  CUdeviceptr address = 0;
  std::uint64_t bytes = 0;
  CUdeviceptr before = 0;
  CUdeviceptr clean = 0;
};

/// Enqueues its work in stream order; no call waits.
class ByteProbe {
public:
  /// Loads the kernels into the current context.
  static Expected<std::unique_ptr<ByteProbe>> load(const Driver &driver, CUstream stream);
  ~ByteProbe();
  ByteProbe(const ByteProbe &) = delete;
  ByteProbe &operator=(const ByteProbe &) = delete;

  /// Sets the piece to what `before` becomes under a poison.
  Status poison(const ProbedPiece &piece, PoisonKind kind, std::uint32_t poison) const;
  /// Adds to the ByteCounts at `counts`; the run began with the piece so poisoned.
  Status count(const ProbedPiece &piece, PoisonKind kind, std::uint32_t poison, CUdeviceptr counts) const;

private:
  ByteProbe(const Driver &driver, CUstream stream) : driver_(driver), stream_(stream) {}
  Status launch(CUfunction kernel, std::uint64_t words, void **arguments) const;

  const Driver &driver_;
  CUstream stream_;
  CUmodule module_ = nullptr;
  CUfunction poison_ = nullptr;
  CUfunction count_ = nullptr;
};

} // namespace pumpgraph::runtime
