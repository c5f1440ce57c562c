// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a session knows, as plain state: one struct for each concern, all under one lock.
#pragma once

#include "runtime/capture/Arithmetic.h"
#include "runtime/capture/KernelReads.h"
#include "runtime/capture/NodeDeclarations.h"
#include "runtime/capture/Rehearsal.h"
#include "runtime/link/ManagedLink.h"
#include "runtime/lower/Residence.h"
#include "runtime/memory/FillKernel.h"
#include "runtime/memory/OtherGraphs.h"
#include "runtime/memory/Paging.h"
#include "runtime/memory/StreamUses.h"
#include "runtime/messages/Messages.h"
#include "runtime/messages/Progress.h"
#include "runtime/state/AsideMemory.h"
#include "runtime/state/Compiler.h"
#include "runtime/state/SessionOptions.h"
#include "runtime/state/Stopwatch.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace pumpgraph::runtime {

class PlanJob;
struct StepState;

/// The device that a session is on.
struct SessionDevice {
  CUcontext context = nullptr;
  bool isRetained = false;   ///< the context
  CUstream stream = nullptr; ///< for the session's own copies
  std::string name;
  ArithmeticSpeed arithmetic;
};

/// The kind of memory under the session.
struct SessionBackend {
  bool isManaged = false;
  std::string why;                   ///< a sentence
  std::uint64_t deviceFreeBytes = 0; ///< on managed memory: when it was taken, less the agent's contexts
};

/// In the order of their dependence: each member uses those above it.
struct SessionMemory {
  std::unique_ptr<ManagedArena> arena; ///< if and only if the session is on managed memory
  std::unique_ptr<AddressSpace> addresses;
  std::unique_ptr<FramePool> frames;
  std::unique_ptr<HostMemory> host;
  std::unique_ptr<PageMapper> mapper;
  std::unique_ptr<PinnedPool> staging;
  std::unique_ptr<Heap> heap;
  std::unique_ptr<Paging> paging;
  StreamUses uses;
  /// Freed on these streams, while an order with other streams could not be made for a capture.
  std::vector<std::pair<CUdeviceptr, CUstream>> freedLater;
};

/// The speed of the link between device and host.
struct SessionLink {
  LinkSpeed copies;                    ///< of a session on virtual memory
  std::unique_ptr<LaneContexts> lanes; ///< of the agents of its steps, once there is a plan
  std::optional<ManagedLink> managed;  ///< once it is measured
  bool isMeasuredAgain = false;        ///< `managed` was
};

/// The capture that runs or ran last, and the graphs that the program captures for itself.
struct SessionCapture {
  explicit SessionCapture(const Driver &driver) : otherGraphs(driver) {}

  OtherGraphs otherGraphs;
  NodeDeclarations declarations;
  KernelReads kernelReads;
  std::optional<Rehearsal> rehearsal;
  Stopwatch watch;
  double milliseconds = 0;
  bool copiesAreOfManaged = false;    ///< the memory for which the graph has its copies
  StepState *inForceBefore = nullptr; ///< whose plan the capture's begin took back
};

/// What a budget for the whole process leaves for frames.
struct ProcessBudget {
  std::uint64_t allocatedSinceFit = 0;
  std::uint64_t besidesAtFit = 0;     ///< bytes beside frames when the budget of frames was set last
  std::uint64_t framesBeforeLook = 0; ///< the budget of frames, before a look at the budget made it less
  std::chrono::steady_clock::time_point nextLook{};
};

/// Where values are that a program may look for.
struct SessionValues {
  std::uint64_t departures = 0;          ///< how often values have left addresses at which others may have found them
  std::map<BlockId, std::uint32_t> maps; ///< planned blocks under map(), and how often
  std::set<BlockId> lost;                ///< of steps that are gone
  bool allAreLost = false;               ///< of every block, present or new
};

/// What graphs may still name that could not be restored.
struct SessionLeftovers {
  ReservedBlocks addresses;
  std::vector<std::shared_ptr<const AsideMemory>> asides;
};

/// The last replay of a step that shares its boundary.
struct LastReplay {
  const Residence *residence = nullptr;
  const StepState *step = nullptr;
  CUevent end = nullptr;
};

/// One device, one budget, the memory under it, and the steps captured with that memory. At most one plan is in force
/// at a time, or those of steps that share a boundary: a private buffer has one place between steps. Values that no
/// plan in force names are at their addresses, in memory of their own. Every function on it expects `mutex` to be held
/// and its context to be current (Entered), but for `messages`, `progress` and the driver's health.
struct SessionState {
  SessionState(const SessionOptions &given, std::shared_ptr<const Driver> table);
  ~SessionState();
  SessionState(const SessionState &) = delete;
  SessionState &operator=(const SessionState &) = delete;

  SessionOptions options;
  std::shared_ptr<const Driver> driver;
  Messages messages;
  Progress progress;
  std::mutex mutex;
  SessionDevice device;
  SessionBackend backend;
  SessionLink link;
  std::vector<std::string> notes; ///< for the report of each step
  std::optional<Compiler> compiler;
  std::unique_ptr<FillKernel> fillKernel; ///< once a step needs it
  SessionMemory memory;
  SessionCapture capture;
  ProcessBudget budget;
  std::vector<std::unique_ptr<StepState>> steps; ///< in the order of their adoption
  SessionValues values;
  SessionLeftovers leftovers;
  LastReplay lastReplay;
  std::shared_ptr<PlanJob> planJob; ///< the last one; at most one is not done
  StepState *lastInForce = nullptr; ///< whose boundary a later step may share, also when its plan was taken back
};

/// Locks a session and makes its context current.
class Entered {
public:
  explicit Entered(SessionState &session) : lock_(session.mutex), scope_(*session.driver, session.device.context) {}

private:
  const std::lock_guard<std::mutex> lock_;
  const ContextScope scope_;
};

/// Opens the device, reserves addresses and measures the link: once, before anything else.
Status open(SessionState &session);

MemoryTools memoryTools(SessionState &session);
/// Opened or loaded when it is first asked for.
Expected<const Compiler *> compilerOf(SessionState &session);
Expected<const FillKernel *> fillKernelOf(SessionState &session);

} // namespace pumpgraph::runtime
