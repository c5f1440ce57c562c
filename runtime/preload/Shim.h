// SPDX-License-Identifier: Apache-2.0
/// \file
/// The state of the shim in a process: whether it follows the program, the memory that it gives, and the calls that it
/// has seen.
#pragma once

#include "runtime/preload/CallLog.h"
#include "runtime/preload/Executables.h"
#include "runtime/preload/HostRanges.h"
#include "runtime/preload/Kernels.h"
#include "runtime/preload/Memory.h"
#include "runtime/preload/Settings.h"
#include "runtime/streams/StreamRun.h"

#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace pumpgraph::preload {

using runtime::StreamRun;

/// Knows the thread that holds it, which may lock it again: the driver may call back, and its callback the driver.
class OwnedMutex {
public:
  void lock() {
    if (!isMine()) {
      mutex_.lock();
      owner_.store(pthread_self(), std::memory_order_relaxed);
    }
    ++depth_;
  }
  bool try_lock() {
    if (!isMine()) {
      if (!mutex_.try_lock())
        return false;
      owner_.store(pthread_self(), std::memory_order_relaxed);
    }
    ++depth_;
    return true;
  }
  void unlock() {
    if (--depth_ != 0)
      return;
    owner_.store(0, std::memory_order_relaxed);
    mutex_.unlock();
  }
  bool isMine() const { return owner_.load(std::memory_order_relaxed) == pthread_self(); }

private:
  std::mutex mutex_;
  std::atomic<pthread_t> owner_{0};
  int depth_ = 0; ///< the holder's
};

/// One for each process, never destroyed: the driver may call back after the end of main().
///
/// Calls go straight to the driver unless isActive(). A user of memory(), log() or kernels() holds mutex(), and calls
/// nothing of the driver meanwhile that may wait for the program. While a plan is in force, the program's own calls
/// reach the driver under it: rounds with calls that may wait for the program are not planned.
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
  /// CUDA_SUCCESS, unless values cannot return to their addresses: then a call that asked for it must not happen.
  CUresult stepAside(const std::string &reason);
  bool says(Level level) const { return level <= settings_.level; }
  void say(Level level, const std::string &message) const {
    if (says(level))
      write(level, message);
  }

  OwnedMutex &mutex() { return mutex_; }
  /// Opened for the current context's device at the first call. Null without a context, and if it cannot be opened;
  /// then the shim steps aside.
  Memory *memory();
  /// Null until there is one.
  Memory *memoryIfOpen() { return memory_.get(); }
  CallLog &log() { return log_; }
  /// Whether rounds are planned.
  bool plans() const { return settings_.plans; }
  /// Null until there is memory, and where nothing is planned.
  StreamRun *streams() { return streams_.get(); }
  /// A call or an allocation is next: a round may end, be planned, or begin by a plan.
  void nextEvent();
  /// Ahead of a call after which nothing can be planned. CUDA_SUCCESS if it may be made.
  CUresult stopPlanning(std::string_view symbol, std::string_view reason);
  /// A library is opened, or has been looked up, that reaches memory past the driver: nothing is planned beside it.
  void stopPlanningBeside(std::string_view library);
  /// Such libraries may have been loaded.
  void looksAtLibraries();
  /// The answer to an event that must not happen, since values are not at their addresses.
  CUresult refuse(const runtime::Error &error);
  /// The program's executable graphs; only where rounds are planned.
  Executables &executables() { return executables_; }
  /// A call to fill in, which somebody filled in before.
  std::unique_ptr<runtime::Call> takeCall();
  void giveBack(std::unique_ptr<runtime::Call> call) { calls_.push_back(std::move(call)); }
  /// Calls of the program that are in the driver without the lock: no plan comes into force.
  void enters() { ++inDriver_; }
  void leaves() { --inDriver_; }
  Kernels &kernels() { return kernels_; }
  /// Host memory that kernels reach; only where rounds are planned.
  HostRanges &hostRanges() { return hostRanges_; }

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
  void openCompiler();
  CUresult stepAsideNow(const std::string &reason);
  CUresult endPlanning(std::string_view symbol, std::string_view reason);
  void openStreams(CUdevice device);

  Settings settings_;
  std::atomic<Standing> standing_;
  std::atomic<bool> hasBegun_{false};
  std::atomic<bool> isFork_{false};
  std::atomic<int> captures_{0};
  std::optional<CUdevice> primary_; ///< whose primary context the program uses; under `mutex_`
  int contexts_ = 0;                ///< that the program has begun; under `mutex_`
  std::mutex reasonMutex_;
  std::string reason_; ///< for standing aside; under `reasonMutex_`
  OwnedMutex mutex_;
  std::string pending_;   ///< the reason for standing aside, found while the lock was held; under `mutex_`
  std::string unplanned_; ///< why nothing is planned; under `mutex_`
  std::atomic<bool> isUnplanned_{false};
  std::vector<std::unique_ptr<runtime::Call>> calls_; ///< not in use; under `mutex_`
  int inDriver_ = 0;                                  ///< under `mutex_`
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<StreamRun> streams_;
  CallLog log_;
  Kernels kernels_;
  HostRanges hostRanges_;
  Executables executables_;
  std::atomic<const runtime::Compiler *> compiler_{nullptr}; ///< once it is open
};

Shim &shim();

} // namespace pumpgraph::preload
