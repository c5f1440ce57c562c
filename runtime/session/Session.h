// SPDX-License-Identifier: Apache-2.0
/// \file
/// A session, as its program sees it: memory, captures and steps.
#pragma once

#include "pumpgraph/graph/Description.h"
#include "runtime/driver/Driver.h"
#include "runtime/lower/Residence.h"
#include "runtime/memory/Heap.h"
#include "runtime/messages/Messages.h"
#include "runtime/messages/Progress.h"
#include "runtime/state/Budget.h"
#include "runtime/state/SessionOptions.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pumpgraph::runtime {

class Step;

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

/// Thread-safe: every method locks the session, whose state is in SessionState.h, and makes its context current.
class Session {
public:
  using Record = std::function<int(CUstream)>;

  static Expected<std::unique_ptr<Session>> create(const SessionOptions &options, std::shared_ptr<const Driver> driver);
  ~Session();
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  /// PUMPGRAPH_DEVICE_LOST once a kernel has ended the context. Any thread may ask, without waiting.
  Status health() const;

  /// Neither needs the session's lock.
  Messages &messages();
  Progress &progress();

  // Memory.
  Expected<void *> allocate(std::uint64_t size, CUstream stream, std::string_view name);
  Status free(void *pointer, CUstream stream);
  /// The same, but where `stream` is captured by the program, its graph keeps the memory that it may work in.
  Status freeFor(void *pointer, CUstream stream);
  /// Waits for the device, unless the session captures: work on any stream may use the memory until then.
  Status freeWhenIdle(void *pointer);
  /// Of this thread, until endTag() of the result.
  Expected<std::uint64_t> beginTag(std::string_view name);
  Status endTag(std::uint64_t tag);
  /// By tag. `resetsPeaks`: afterwards.
  std::vector<TagRow> tags(bool resetsPeaks);
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
  const std::uint64_t &departures() const;
  /// Brings every value to its address; the next replay of a rewritten step puts its plan in force again.
  Status takeBack();
  Status emptyCache();
  Status measureLink(std::chrono::duration<double> time);
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

  /// An allocation is used on a stream beside its own: its free waits for that stream.
  Status recordStream(void *pointer, CUstream stream);

  // Capture.
  Status captureBegin();
  Status captureEnd();
  /// Between the two. Any thread may ask.
  bool isCapturing() const;
  /// Of the nodes that the capture on `stream` got since the last call.
  Status declareReads(CUstream stream, const std::vector<CUdeviceptr> &pointers);
  /// Of the nodes that the capture on `stream` got since the last call.
  Status declareAside(CUstream stream, const std::vector<CUdeviceptr> &pointers);
  Status declareExtents(CUstream stream, const std::vector<DeclaredExtent> &extents);
  /// Of the nodes that the capture on `stream` got since the last call.
  Status nameNodes(CUstream stream, std::string_view label);
  /// The nodes that the capture on `stream` got since the last call are one operation.
  Status declareOperation(CUstream stream, OperationKind kind);
  /// The nodes that the capture on `stream` got since the last call compute so much together.
  Status declareArithmetic(CUstream stream, double operations, ArithmeticKind kind);
  Status declareKernelReads(std::string_view name, std::span<const std::uint32_t> parameters);
  Status declareWrites(CUstream stream, const std::optional<std::vector<CUdeviceptr>> &pointers);
  Status declareReach(CUstream stream, const NodeReach &reach);
  /// The same of a graph that is built between begin and end.
  Status declareOperation(CUgraph graph, OperationKind kind);
  Status declareReach(CUgraph graph, const NodeReach &reach);
  Status rehearse(CUgraph graph);
  /// Whether a graph that was captured since has the nodes of the rehearsal.
  Expected<bool> rehearsalMatches(CUgraph graph);
  Expected<Step *> adopt(CUgraph graph, const AdoptOptions &options);
  Expected<Step *> capture(const Record &record, const AdoptOptions &options);
  void destroy(Step *step);

private:
  explicit Session(std::unique_ptr<SessionState> state);
  Expected<CUgraph> recordOnce(const Record &record);

  std::unique_ptr<SessionState> state_;
  std::vector<std::unique_ptr<Step>> handles_; ///< of the steps, which the program has until it destroys them
};

} // namespace pumpgraph::runtime
