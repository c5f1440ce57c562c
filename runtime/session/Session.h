// SPDX-License-Identifier: Apache-2.0
/// \file
/// A session: one device, one budget, the memory under it, and the steps captured with that memory.
#pragma once

#include "runtime/capture/Arithmetic.h"
#include "runtime/capture/KernelReads.h"
#include "runtime/capture/NodeDeclarations.h"
#include "runtime/capture/Rehearsal.h"
#include "runtime/driver/ProcessMemory.h"
#include "runtime/link/ManagedLink.h"
#include "runtime/lower/Residence.h"
#include "runtime/memory/FillKernel.h"
#include "runtime/memory/ManagedArena.h"
#include "runtime/memory/Paging.h"
#include "runtime/messages/Messages.h"
#include "runtime/messages/Progress.h"
#include "runtime/session/AsideMemory.h"
#include "runtime/session/Compiler.h"

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace pumpgraph::runtime {

class PlanJob;
class Step;

/// The kind of memory under a session. The values are part of the C ABI.
enum class BackendChoice : std::uint8_t {
  Virtual = 0,
  Managed = 1,  ///< pages that the driver moves, and an agent that makes it move them in time (docs/design/managed.md)
  Automatic = 2 ///< virtual where the device can, until a step comes that needs managed memory
};

/// The permission of plans to run nodes again. The values are part of the C ABI.
enum class RematerializeChoice : std::uint8_t {
  Automatic = 0, ///< where that is predicted to be faster than moving their results
  Never = 1
};

struct SessionOptions {
  std::uint64_t budgetBytes = 0;
  bool unlimited = false;
  int device = 0;
  std::uint64_t hostLimitBytes = 0; ///< 0: three quarters of the system's free memory
  std::string cacheDirectory;       ///< empty: the link is measured anew
  std::string compilerLibrary;      ///< empty: beside this library
  ProcessMemory processMemory;      ///< if set, the budget covers all device memory of the process
  BackendChoice backend = BackendChoice::Virtual;
  std::uint64_t managedBytes = 0; ///< of the arena; 0: as much as the guard allows
  ManagedGuard managedGuard;
  std::chrono::milliseconds budgetLooks{1000}; ///< between two looks of replays at a budget for the process
  RematerializeChoice rematerialize = RematerializeChoice::Automatic; ///< on virtual memory
  bool plansAside = false; ///< steps that are planned again by themselves: on a thread, while replays go on
};

/// The choice between the boundary of the step in force before and one of the step's own. The values are part of the C
/// ABI.
enum class BoundaryChoice : std::uint8_t {
  Automatic = 0, ///< unless the step is much slower then than planned for itself
  Own = 1,
  Shared = 2 ///< if there is any such plan
};

/// On managed memory: the choice of hosted pages. The values are part of the C ABI.
enum class HostingChoice : std::uint8_t {
  Automatic = 0, ///< Measured for a calibrated step, else NoRoom
  NoRoom = 1,    ///< pages without room on the device
  Measured = 2   ///< pages that are faster there
};

struct AdoptOptions {
  std::string name = "step";
  std::string costsIr = {};
  bool leaveAsCaptured = false;
  bool keepFirstPlan = false; ///< regardless of the first replays' times
  bool calibrate = false;     ///< look for addresses that kernels of the step store
  BoundaryChoice boundary = BoundaryChoice::Automatic;
  bool plansOthersAgain = false; ///< where no plan keeps a boundary that is to be shared
  std::int32_t prefetching = 0;  ///< on managed memory: a pumpgraph_prefetching
  HostingChoice hosting = HostingChoice::Automatic;
  RematerializeChoice rematerialize = RematerializeChoice::Automatic; ///< where the session allows it
  bool ownsGraph = false;                                             ///< the step destroys the graph
};

struct MemoryStatistics {
  std::uint64_t budgetBytes = 0; ///< 0: unlimited
  std::uint64_t hostLimitBytes = 0;
  std::uint64_t deviceBytes = 0;
  std::uint64_t devicePeakBytes = 0;
  std::uint64_t frameBudgetBytes = 0; ///< 0: unlimited
  std::uint64_t freeBytes = 0;        ///< of frames that nothing uses, made or not; 0: unlimited
  std::uint64_t processBytes = 0;     ///< 0: not known
  std::uint64_t hostBackedBytes = 0;
  std::uint64_t pinnedBytes = 0;
  HeapStats live;
};

/// An address range of whole pages with its live allocations.
struct LiveBlock {
  struct Part {
    CUdeviceptr address = 0;
    std::uint64_t bytes = 0; ///< as requested
    CUstream stream = nullptr;
  };
  CUdeviceptr address = 0;
  std::uint64_t bytes = 0;
  bool isShared = false;   ///< by small allocations
  std::vector<Part> parts; ///< ascending
};

/// The state of a budget for the whole process.
struct BudgetState {
  std::uint64_t budgetBytes = 0;
  std::uint64_t processBytes = 0; ///< 0: not known, or the budget is not the process's
  std::string message;            ///< once when memory of others newly exceeds it; else empty
};

/// Measures wall time in milliseconds.
class Stopwatch {
public:
  double milliseconds() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Thread-safe: every public method locks the session and makes its context current. At most one plan is in force at a
/// time, or those of steps that share a boundary: a private buffer has one place between steps. Values that no plan in
/// force names are at their addresses, in memory of their own.
class Session {
public:
  using Record = std::function<int(CUstream)>;

  static Expected<std::unique_ptr<Session>> create(const SessionOptions &options, std::shared_ptr<const Driver> driver);
  ~Session();
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  /// PUMPGRAPH_DEVICE_LOST once a kernel has ended the context. Any thread may ask, without waiting.
  Status health() const { return driver_->health(); }

  /// Neither needs the session's lock.
  Messages &messages() { return messages_; }
  Progress &progress() { return progress_; }

  // Memory.
  Expected<void *> allocate(std::uint64_t size, CUstream stream, std::string_view name);
  Status free(void *pointer, CUstream stream);
  Status declarePrivate(void *pointer);
  Status declarePresent(void *pointer);
  Status name(void *pointer, std::string_view name);
  MemoryStatistics statistics();
  /// Address ranges that have memory or hold a live allocation, ascending.
  std::vector<LiveBlock> liveBlocks();
  void resetPeaks();
  /// Compares the process's device memory with the budget. If memory of others has newly exceeded it, gives unused
  /// memory back and has every step planned again, ahead of its next replay, for the remaining budget.
  Expected<BudgetState> keepToBudget();
  Status map(void *pointer);
  Status unmap(void *pointer);
  /// Brings values to their addresses until departures() counts on.
  Status bring(std::span<void *const> pointers, Use use);
  /// How often values have left the addresses at which others may have found them. Lives as long as the session.
  const std::uint64_t &departures() const { return departures_; }
  /// Brings every value to its address; the next replay of a rewritten step puts its plan in force again.
  Status takeBack();
  Status emptyCache();
  /// Operators run eagerly on `stream` until endPaging(), and may need more than the budget together. Whether it has
  /// begun: not on managed memory, without a budget, or while a plan is in force.
  bool beginPaging(CUstream stream);
  /// An operator uses this memory next.
  Status pageIn(std::span<void *const> pointers);
  /// The bytes that have crossed the link since beginPaging().
  std::uint64_t endPaging();
  /// While on, freed memory stays for the program's own graphs that may use it.
  void keepFreedForGraphs(bool on);
  /// While on, freed allocations of the last capture count as scratch memory.
  void freedIsScratch(bool on);

  // Capture.
  Status captureBegin();
  Status captureEnd();
  /// Between the two. Any thread may ask.
  bool isCapturing() const { return heap_->capturing(); }
  /// Of the nodes that the capture on `stream` got since the last call.
  Status declareReads(CUstream stream, const std::vector<CUdeviceptr> &pointers);
  /// Of the nodes that the capture on `stream` got since the last call.
  Status declareAside(CUstream stream, const std::vector<CUdeviceptr> &pointers);
  /// Of the nodes that the capture on `stream` got since the last call.
  Status nameNodes(CUstream stream, std::string_view label);
  /// The nodes that the capture on `stream` got since the last call are one operation.
  Status declareOperation(CUstream stream, OperationKind kind);
  /// The nodes that the capture on `stream` got since the last call compute so much together.
  Status declareArithmetic(CUstream stream, double operations, ArithmeticKind kind);
  Status declareKernelReads(std::string_view name, std::span<const std::uint32_t> parameters);
  Status declareWrites(CUstream stream, const std::optional<std::vector<CUdeviceptr>> &pointers);
  /// The same of a graph that is built between begin and end.
  Status declareOperation(CUgraph graph, OperationKind kind);
  Status rehearse(CUgraph graph);
  /// Whether a graph that was captured since has the nodes of the rehearsal.
  Expected<bool> rehearsalMatches(CUgraph graph);
  Expected<Step *> adopt(CUgraph graph, const AdoptOptions &options);
  Expected<Step *> capture(const Record &record, const AdoptOptions &options);
  void destroy(Step *step);

private:
  friend class Adoption;
  friend class Calibration;
  friend class HostedTimes;
  friend class KeptValues;
  friend class ManagedTrials;
  friend class NodeClocks;
  friend class PlannedTogether;
  friend class Step;
  friend class Measuring;
  friend class Observing;
  friend class PurityCheck;
  friend class Replanner;
  friend class Rewriting;
  friend class Validating;

  Session(const SessionOptions &options, std::shared_ptr<const Driver> driver);
  Status open();
  Status openDevice();
  /// Whether the session is to be on managed memory; says why in `backendWhy_`.
  Expected<bool> chooseManaged(CUdevice device);
  Status openArena();
  // Backend.cpp, as the two before.
  /// Whether each step has the memory that it needs, in turns with others.
  bool choosesByStep() const { return addresses_->frontBytes() != 0; }
  /// Of addresses that managed memory can take.
  Expected<std::uint64_t> bytesForManaged() const;
  /// Whether a block's contents matter between replays.
  bool hasValue(const Block &block) const;
  std::vector<BlockId> blocksWithValues() const;
  std::string obstacleToExchange() const;
  void everyBlockIsLost();
  /// Of all blocks, with the plan that is in force; the cache is empty.
  Expected<std::vector<Heap::Contents>> takeMemoryAway();
  /// Where no block has memory. After an error there is an arena if `managed_`; else the front is there as before, but
  /// for PUMPGRAPH_INTERNAL.
  Status putManagedMemory(const std::vector<Heap::Contents> &values);
  std::uint64_t bytesBeyondBudget() const;
  bool hasManagedStep() const;
  /// Puts managed memory behind all of the session's addresses, or memory of their own behind blocks, with the values
  /// that are there; no plan is in force then. Returns why not; empty: it is done.
  Expected<std::string> moveToManaged();
  Expected<std::string> moveToVirtual();
  /// Whichever the step is planned for.
  Status takeMemoryFor(const Step &step);
  /// That of a plan of the step that is no longer, but for buffers for which another step has given some.
  void takeAdviceBack(const Step &step, const Description &lowered);
  Status openLink();
  Status openProcessBudget();
  Expected<CUgraph> recordOnce(const Record &record);
  /// The graph that `stream` is being captured into for this session.
  Expected<CUgraph> graphOfCapture(CUstream stream) const;
  LastNodes lastNodesOf(CUstream stream) const;
  /// The part of the budget that existing plans leave for memory that never moves.
  std::uint64_t framesBesidePlans() const;
  Expected<CUdeviceptr> allocateOn(CUstream stream, std::uint64_t size, std::string_view name, GraphNumber graph);
  MemoryTools tools() { return {*driver_, *addresses_, *frames_, *host_, *mapper_, *heap_, stream_, departures_}; }
  Expected<const Compiler *> compiler();
  Expected<const FillKernel *> fillKernel();
  /// Of a session on managed memory: measured when its first step is planned.
  Expected<const ManagedLink *> managedLink();
  Expected<ManagedLink> measureArenaLink();
  /// Measures it once more, some time after the first. Whether that shows that something was in the way then, so that
  /// managedLink() is another now. Once in a session; false from then on.
  Expected<bool> managedLinkWasDisturbed();
  nlohmann::ordered_json linkReport() const;

  /// Sets the frame budget to the part of the process's budget that other memory leaves, ahead of the first plan.
  /// Unchanged if the process's memory is unknown.
  Status fitBudget();
  /// Sets it to the rest beside `besides` bytes of the process outside frames, and `reserve` bytes for graphs.
  Status setFrameBudget(std::uint64_t besides, std::uint64_t reserve);
  /// For a plan that could not be made again for less.
  void allowFramesBeforeLook() { frames_->setBudget(std::max(frames_->budgetFrames(), framesBeforeLook_)); }
  /// keepToBudget() under the lock.
  Expected<BudgetState> lookAtBudget();
  /// The same if some time has passed since the last comparison; a message becomes a warning of `step`.
  void lookAtBudgetFor(Step &step);
  /// The process's device memory outside frames; nothing if it is unknown.
  std::optional<std::uint64_t> bytesBesideFrames() const;

  // Which plan is in force (Exchange.cpp).
  Step *stepInForce() const;
  /// Puts values that were brought back where a replay expects them. PUMPGRAPH_INVALID_ARGUMENT while one is mapped.
  Status settle(const Step &step, const char *purpose);
  /// Has the steps that share one residence share another, made from it.
  void replaceResidence(const std::shared_ptr<Residence> &old, const std::shared_ptr<Residence> &made);
  /// Puts the plan of a rewritten step in force in place of the one that is. If that fails, that one goes on, unless a
  /// driver failure cost it its memory.
  Status putInForce(Step &step);
  /// `before`: whose plan is in force, if any.
  Status exchangePlans(Step *before, Step &step);
  /// Puts a residence in force while no other is, after getting it the frames it wants.
  Status install(Residence &residence);
  Status takePlanBack();
  /// Ahead of a replay of a step left as captured: brings the values that the step uses to their addresses.
  Status bringValuesTo(const Step &step);
  Status makeRoom(const Residence &residence);
  /// The private blocks that `from` uses alone of two steps, as far as the budget has no frames for them beside `to`.
  std::set<BlockId> notBeside(const Step &from, const Step &to) const;
  /// Private blocks of rewritten steps that are no step's exclusive ones: nothing outside steps touches them.
  std::set<BlockId> movableBlocks() const;
  /// Whether a rewritten step uses the block.
  bool isPlanned(BlockId block) const;
  /// Whether a driver failure has left one of these blocks between two states.
  bool isLost(const std::vector<BlockId> &blocks) const;
  /// PUMPGRAPH_INTERNAL with its name, where that holds for the block.
  Status checkHasValue(BlockId block) const;

  /// The last replay of a step that shares its boundary.
  struct LastReplay {
    const Residence *residence = nullptr;
    const Step *step = nullptr;
    CUevent end = nullptr;
  };

  SessionOptions options_;
  std::shared_ptr<const Driver> driver_;
  Messages messages_;
  Progress progress_;
  std::mutex mutex_;
  CUcontext context_ = nullptr;
  bool contextRetained_ = false;
  bool managed_ = false;
  std::string backendWhy_; ///< a sentence
  std::uint64_t deviceFreeBytes_ =
      0;                      ///< when the session was created, less the agent's context; on managed memory only
  CUstream stream_ = nullptr; ///< for the session's own copies
  std::string deviceName_;
  ArithmeticSpeed arithmeticSpeed_;
  LinkSpeed link_;                             ///< of a session on virtual memory
  std::unique_ptr<LaneContexts> laneContexts_; ///< of the agents of its steps, once there is a plan
  std::optional<ManagedLink> managedLink_;     ///< once it is measured
  bool linkMeasuredAgain_ = false;             ///< whether managedLink_ was
  std::vector<std::string> notes_;             ///< about the session, for the report of each step
  std::optional<Compiler> compiler_;
  std::unique_ptr<FillKernel> fillKernel_; ///< once a step needs it

  // In the order of their dependence: each member uses those above it.
  std::unique_ptr<ManagedArena> arena_; ///< if and only if the session is on managed memory
  std::unique_ptr<AddressSpace> addresses_;
  std::unique_ptr<FramePool> frames_;
  std::unique_ptr<HostMemory> host_;
  std::unique_ptr<PageMapper> mapper_;
  std::unique_ptr<PinnedPool> staging_;
  std::unique_ptr<Heap> heap_;
  std::unique_ptr<Paging> paging_;
  OtherGraphs otherGraphs_;
  NodeDeclarations declarations_; ///< of the last capture
  KernelReads kernelReads_;
  std::optional<Rehearsal> rehearsal_;
  std::uint64_t allocatedSinceFit_ = 0;
  std::uint64_t besidesAtFit_ = 0;     ///< bytes beside frames when the budget of frames was set last
  std::uint64_t framesBeforeLook_ = 0; ///< the budget of frames, before a look at the budget made it less
  std::chrono::steady_clock::time_point nextLook_{};
  Stopwatch captureWatch_;
  double captureMs_ = 0;
  std::vector<std::unique_ptr<Step>> steps_;
  std::uint64_t departures_ = 0;
  std::map<BlockId, std::uint32_t> maps_; ///< planned blocks under map(), and how often
  std::set<BlockId> lostBlocks_;          ///< of steps that are gone
  bool memoryIsLost_ = false;             ///< of every block, present or new
  bool copiesAreOfManaged_ = false;       ///< for which memory the graph of the last capture has its copies
  ReservedBlocks leftInGraphs_;           ///< whose addresses graphs may have that could not be restored
  std::vector<std::shared_ptr<const AsideMemory>> asidesInGraphs_; ///< likewise
  LastReplay lastReplay_;
  std::shared_ptr<PlanJob> planJob_; ///< the last one; at most one is not done
  Step *beforeCapture_ = nullptr;    ///< whose plan captureBegin() took back
  Step *lastInForce_ = nullptr;      ///< whose boundary a later step may share, also when its plan was taken back
};

} // namespace pumpgraph::runtime
