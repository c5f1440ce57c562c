// SPDX-License-Identifier: Apache-2.0
/// \file
/// The state of the shim in a process: whether it follows the program, the memory that it gives, and the calls that it
/// has seen.
#pragma once

#include "runtime/preload/CallLog.h"
#include "runtime/preload/Kernels.h"
#include "runtime/preload/Memory.h"
#include "runtime/preload/Settings.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace pumpgraph::preload {

/// One for each process, never destroyed: the driver may call back after the end of main().
///
/// Calls go straight to the driver unless isActive(). A user of memory(), log() or kernels() holds mutex(), and calls
/// nothing of the driver meanwhile that may wait for the program.
class Shim {
public:
  enum class Standing : std::uint8_t {
    Active,
    Aside,    ///< the program does something that PumpGraph cannot follow
    LeftAlone ///< not started by pump-graph-run, or a fork of a process that used CUDA
  };

  Shim();

  /// Whether nothing of the shim's state may be touched: the threads that had its lock may be the parent's.
  bool isLeftAlone() const { return standing_.load(std::memory_order_relaxed) == Standing::LeftAlone; }
  bool isActive() const { return standing_.load(std::memory_order_relaxed) == Standing::Active; }
  /// Of the calls that use the device: the first one in a process says what the shim does there.
  bool follows();
  /// From now on the program runs as without PumpGraph, as far as it can. Says why, once.
  void stepAside(const std::string &reason);
  bool says(Level level) const { return level <= settings_.level; }
  void say(Level level, const std::string &message) const {
    if (says(level))
      write(level, message);
  }

  std::mutex &mutex() { return mutex_; }
  /// Opened for the current context's device at the first call. Null without a context, and if it cannot be opened;
  /// then the shim steps aside.
  Memory *memory();
  /// Null until there is one.
  Memory *memoryIfOpen() { return memory_.get(); }
  CallLog &log() { return log_; }
  Kernels &kernels() { return kernels_; }

  void captureBegins(CUstream stream);
  void captureEnds(CUstream stream);
  /// Whether a stream may be under capture.
  bool isCapturing() const { return captures_.load(std::memory_order_relaxed) > 0; }

  /// The program begins a context. A second one cannot be followed.
  void beginsContext(CUdevice device, bool isPrimary);

  // In the child of a fork; at the end of the process.
  void isForked();
  void summarize();

private:
  void begin();

  Settings settings_;
  std::atomic<Standing> standing_;
  std::atomic<bool> hasBegun_{false};
  std::atomic<bool> isFork_{false};
  std::atomic<int> captures_{0};
  std::optional<CUdevice> primary_; ///< whose primary context the program uses; under `mutex_`
  int contexts_ = 0;                ///< that the program has begun; under `mutex_`
  std::mutex reasonMutex_;
  std::string reason_; ///< for standing aside; under `reasonMutex_`
  std::mutex mutex_;
  std::unique_ptr<Memory> memory_;
  CallLog log_;
  Kernels kernels_;
};

Shim &shim();

} // namespace pumpgraph::preload
