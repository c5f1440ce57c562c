// SPDX-License-Identifier: Apache-2.0
/// \file
/// Planned rounds: comparison of a program's calls with those that a plan expects, the operations between them, and the
/// way back.
#pragma once

#include "runtime/memory/HostMemory.h"
#include "runtime/streams/CallClocks.h"
#include "runtime/streams/DeviceWait.h"
#include "runtime/streams/NamedBlocks.h"
#include "runtime/streams/StreamPlan.h"

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>

namespace pumpgraph::runtime {

/// The plans of a program, at most one of which is in force.
///
/// While one is in force every event of the program is announced here before it reaches the driver or the heap. One
/// that the plan does not expect takes the plan back first: the device is waited for, and every value returns to its
/// address. Where that fails the event must not happen, so its caller gets an error. Only *events* are compared: all
/// else that may touch memory takes the plan back by takeBack().
///
/// Not thread-safe: announcements and the events themselves are made under one lock.
class StreamRun {
public:
  enum class Level : std::uint8_t { Info, Debug };
  using Say = std::function<void(Level, const std::string &)>;

  struct Options {
    std::chrono::milliseconds patience; ///< of plans, for the device to be idle
    std::optional<LinkSpeed> link;      ///< measured at the first plan if not given
  };
  StreamRun(const MemoryTools &tools, NamedBlocks::Beside beside, const Options &options, Say say);
  ~StreamRun();
  StreamRun(const StreamRun &) = delete;
  StreamRun &operator=(const StreamRun &) = delete;

  /// Plans a round, unless all of its memory is on the device. Waits for the planner. Nothing else may be under way.
  void plan(RoundScript script, const Compiler &compiler);
  /// Where calls of the plan in force were timed, its round may be planned once more. An event that begins a round is
  /// next.
  void planAgain(const Compiler &compiler);
  /// Whether a plan was given up since the last question: its round may be planned anew.
  bool takeGivenUp() { return std::exchange(hasGivenUp_, false); }
  /// No plan comes into force any more, for a reason. One in force is taken back.
  Status refuse(const std::string &reason);
  /// The same, but the plan in force is taken back ahead of the next event.
  void refuseLater(const std::string &reason);
  bool isRefused() const { return !refusal_.empty(); }
  /// Handles of kernels, or a stream, may be others' from now on.
  Status forgetAll(const std::string &reason);
  /// Whether a plan used it.
  Expected<bool> forgetStream(std::uint64_t stream);

  /// An event that begins a round of the period is next: a known plan comes into force. Nothing else may be under way.
  void beginRound(std::uint32_t period, std::uint64_t phase);
  /// Whether a plan comes into force now, unless something is against it, or one in force begins its round.
  bool mayBeginRound(std::uint32_t period, std::uint64_t phase) const;
  bool inForce() const { return plan_ != nullptr; }

  // An event and, once it has happened, what came of it.
  Status beforeCall(const Call &call);
  Status afterCall(const Call &call, CUresult result);
  Status beforeAllocation(std::uint64_t bytes, CUstream stream);
  /// Of the allocation that has been announced; 0: no matter.
  CUdeviceptr expectedAddress() const { return plan_ && !isLeaving_ ? plan_->script.events[position_].parts[2] : 0; }
  Status afterAllocation(std::optional<CUdeviceptr> address);
  Status beforeFree(CUdeviceptr address, CUstream stream);

  /// Of a call that is no event: the addresses that it may write. beforeCall() does so itself.
  Status note(const Call &call);

  /// A range beside the heap may hold addresses.
  void noteUnsearched(CUdeviceptr address) { named_.noteUnsearched(address); }
  /// Host memory has come that kernels reach, and words that are somewhere already may lead to it.
  void noteHostMemory();

  /// Memory that words lead to stays in place from now on.
  void keepInPlace(std::span<const std::uint64_t> words) { named_.keep(words); }

  /// Every value returns to its address. Nothing, if no plan is in force.
  Status takeBack(const std::string &reason);
  /// The same for an event that no round holds. A plan that is left too often is used no more.
  Status leave(const std::string &event);
  /// The context is gone, and all memory with it.
  void abandon();

  /// "planned: 42 rounds of period 1, in force 3 times, left 2 times, the last time by NAME"; a line for each plan.
  std::vector<std::string> summary() const;
  /// A page for each plan: its rounds, why it was left, the planner's report.
  Status writeReport(const std::string &folder) const;
  std::uint64_t plannedCalls() const { return plannedCalls_; }
  /// For calls of a round that is written down.
  CallClocks &clocks() { return clocks_; }

private:
  static constexpr std::size_t mostUnplannedShown = 3;
  using Plans = std::map<std::uint32_t, std::unique_ptr<StreamPlan>>;

  /// Gives a plan up, but for its part of the report.
  void retire(Plans::iterator plan);
  /// Plans that are or were in use, the oldest first.
  std::vector<const StreamPlan *> history() const;
  /// An event is next.
  Status leaveIfDue() { return plan_ && !leaveFor_.empty() ? leave(leaveFor_) : Status{}; }
  Status deviate(std::string_view event);
  Status noteUpload(const Call &call);
  /// The event that is expected next, if it is of this kind.
  const RoundEvent *expected(RoundEvent::Kind kind) const;
  /// `before[node_]`, as far as it is not issued yet.
  Status issueBefore(CUstream stream);
  Status issueOne(const IssuedOperation &operation, CUstream stream);
  /// The event has happened.
  Status advance();
  Status install(StreamPlan &plan);
  /// Why the program's memory is not as the plan's round begins; empty: it is.
  std::string whyNotNow(const StreamPlan &plan) const;
  /// Why memory of the plan must stay in place; empty: it may move.
  std::string whyItStays(const StreamPlan &plan) const;
  /// The memory that a plan moves must stay.
  void giveUp(Plans::iterator plan);
  bool waitForDevice();
  Expected<std::unique_ptr<StreamPlan>> makePlan(RoundScript script, const Compiler &compiler);
  Status prepareDriver(std::uint32_t events);
  void measureLink();
  std::set<std::uint64_t> blocksOnDevice() const;
  /// A plan is in force from now on, or no more.
  void noteForce(bool isInForce);
  /// A round has ended as planned.
  void timeNext();
  std::uint64_t reserveFor(const StreamPlan &plan) const;
  Status checkHostRoom(const StreamPlan &plan) const;
  Status remove();

  MemoryTools tools_;
  NamedBlocks named_;
  DeviceWait deviceWait_;
  CallClocks clocks_, plannedClocks_; ///< of a round that is written down; of one as planned
  std::chrono::milliseconds patience_;
  std::optional<LinkSpeed> link_;
  Say say_;
  Plans plans_;                                      ///< by period
  std::vector<std::unique_ptr<StreamPlan>> retired_; ///< without memory, for the report
  std::map<std::uint32_t, std::string> unplanned_;   ///< periods, and why
  std::map<std::uint32_t, std::uint32_t> givenUp_;   ///< plans, by period
  bool hasGivenUp_ = false;
  std::string refusal_;
  CUcontext context_ = nullptr;
  CUstream down_ = nullptr, up_ = nullptr;
  std::vector<CUevent> events_;

  StreamPlan *plan_ = nullptr; ///< in force
  std::size_t position_ = 0;   ///< of the next event
  std::size_t node_ = 0;       ///< of the next node
  std::size_t issued_ = 0;     ///< operations of `before[node_]`
  std::uint64_t reserved_ = 0; ///< host memory
  std::uint64_t plannedCalls_ = 0;
  Driver::Clock::duration planning_{}, unplannedTime_{};
  Driver::Clock::time_point unplannedSince_;
  std::string leaveFor_;   ///< why the plan in force, if any, must be taken back ahead of the next event
  bool isLeaving_ = false; ///< an operation is missing, so nothing is expected any more
  bool isBroken_ = false;  ///< values are lost
};

} // namespace pumpgraph::runtime
