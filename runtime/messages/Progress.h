// SPDX-License-Identifier: Apache-2.0
/// \file
/// How far a call is that takes long.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>

namespace pumpgraph::runtime {

/// The values are part of the C ABI.
enum class Phase : std::uint8_t {
  None = 0,
  Capturing = 1, ///< counts captures
  Planning = 2,  ///< counts plans, each better than those before it in its search
  Pinning = 3    ///< counts bytes of host memory
};

struct ProgressState {
  Phase phase = Phase::None;
  std::uint64_t done = 0;
  std::uint64_t total = 0; ///< 0: unknown
  double bestUs = 0;       ///< predicted time of the best plan so far; 0: none
  double seconds = 0;      ///< since the phase began
};

/// Any thread may call; no session has to be locked. The receiver is called in the thread that makes progress, one call
/// at a time, mostly while its session is locked: it must neither call the session nor wait for a thread that does.
class Progress {
public:
  using Receiver = std::function<void(const ProgressState &)>;
  using Clock = std::chrono::steady_clock;

  void setReceiver(Receiver receiver);
  ProgressState now() const;

  void begin(Phase phase, std::uint64_t total);
  void advance(std::uint64_t done);
  /// A plan that takes so long.
  void foundPlan(double predictedUs);
  void end();

private:
  ProgressState stateNow() const;
  void tell() const;

  mutable std::mutex mutex_;
  ProgressState state_;
  Clock::time_point began_{};
  Receiver receiver_;
};

/// A phase, over at the end of the scope. `progress` may be null.
class PhaseScope {
public:
  PhaseScope(Progress *progress, Phase phase, std::uint64_t total) : progress_(progress) {
    if (progress_)
      progress_->begin(phase, total);
  }
  ~PhaseScope() {
    if (progress_)
      progress_->end();
  }
  PhaseScope(const PhaseScope &) = delete;
  PhaseScope &operator=(const PhaseScope &) = delete;

  void advance(std::uint64_t done) {
    if (progress_)
      progress_->advance(done);
  }

private:
  Progress *progress_;
};

} // namespace pumpgraph::runtime
