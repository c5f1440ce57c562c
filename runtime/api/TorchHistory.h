// SPDX-License-Identifier: Apache-2.0
/// \file
/// The recorder of PyTorch's allocations and frees, with Python's stacks.
#pragma once

#include "pumpgraph/pumpgraph.h"

#include <nlohmann/json_fwd.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

namespace pumpgraph::runtime {

/// Records PyTorch's allocations and frees while it is on. The interpreter's own functions, which the caller passes,
/// walk Python's frames: no Python code runs inside an allocation, and a pending exception stays.
///
/// Lock order: the history never waits for the interpreter's lock while it holds its own. A caller of allocated() or
/// freed() must hold no lock that a thread with the interpreter's lock can wait for.
class TorchHistory {
public:
  /// Starts recording with the options `how`. Without `keep_events` earlier events are forgotten.
  void record(const pumpgraph_torch_recording &how);
  /// Forgets everything.
  void stop();
  /// All that an allocation pays for while nothing is recorded.
  bool isOn() const { return isOn_.load(std::memory_order_acquire); }

  /// To be called after an allocation and before a free: what others do with the same address comes in between.
  void allocated(const void *pointer, std::uint64_t bytes, pumpgraph_stream stream) noexcept;
  void freed(const void *pointer, std::uint64_t bytes, pumpgraph_stream stream) noexcept;
  /// There was no memory; `leftBytes` of the budget are left.
  void ranOut(std::uint64_t bytes, pumpgraph_stream stream, std::uint64_t leftBytes) noexcept;

  /// What was recorded, as pumpgraph_torch_snapshot() has it. `addBlocks` adds the memory that is there; nothing is
  /// recorded meanwhile.
  nlohmann::ordered_json snapshot(const std::function<void(nlohmann::ordered_json &)> &addBlocks);

private:
  enum class Action : std::uint8_t { Allocated, Freed, RanOut };
  struct Frame {
    void *code;
    int line;
    auto operator<=>(const Frame &) const = default;
  };
  using Frames = std::vector<Frame>; ///< the innermost first
  /// With the recording in which its code objects are kept.
  struct Stack {
    std::shared_ptr<const Frames> frames;
    std::uint64_t recording = 0;
  };
  struct Live {
    std::uint64_t bytes;
    std::shared_ptr<const Frames> frames;
  };
  struct Event {
    Action action;
    std::uint64_t address, bytes, leftBytes;
    pumpgraph_stream stream;
    std::int64_t timeUs;
    std::shared_ptr<const Frames> frames; ///< null: none were asked for
  };
  class Interpreter;

  /// None where fewer stacks are recorded (`stacks` of pumpgraph_torch_recording).
  Stack stackHere(std::int32_t leastStacks);
  void record(Event event, std::int32_t leastStacks) noexcept;
  /// Stamps the event with the time. Nothing is added if the history was stopped since `stack` was made.
  void add(Event event, const Stack &stack);

  std::atomic<bool> isOn_{false};
  std::mutex mutex_;
  pumpgraph_torch_recording how_{};
  std::uint64_t recording_ = 0; ///< counts record() and stop()
  std::deque<Event> events_;
  std::unordered_map<std::uint64_t, Live> live_; ///< by address
  std::set<void *> codes_;                       ///< code objects, each with a reference
};

} // namespace pumpgraph::runtime
