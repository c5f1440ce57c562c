// SPDX-License-Identifier: Apache-2.0
#include "test/unit/runtime/FakeDriver.h"

#include "runtime/memory/Poison.h"
#include "test/unit/runtime/FakeStreams.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>
#include <random>
#include <set>
#include <thread>

namespace pumpgraph::runtime::test {

constexpr std::uint64_t pageSize = std::uint64_t{2} << 20;

struct FakeNode {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  FakeGraph *graph = nullptr;
  std::uint64_t id = 0;
  FakeKernel *kernel = nullptr;
  std::vector<std::vector<char>> arguments;
  bool packed = false;
  std::array<unsigned, 3> grid{1, 1, 1}, block{1, 1, 1};
  std::map<int, int> attributes; ///< of a launch, those that differ from 0
  CUDA_MEMCPY3D copy{};
  bool byProcessor = false; ///< a copy that was one of the processor's when it got its parameters
  CUDA_MEMSET_NODE_PARAMS fill{};
  CUevent event = nullptr;
  std::vector<CUstreamBatchMemOpParams> memOps;
  FakeGraph *child = nullptr;
  // What the driver hands out pointers to.
  std::vector<void *> parameterPointers;
  std::vector<char> packedBytes;
  std::size_t packedSize = 0;
  std::vector<void *> extra;
};

/// Whoever shares it holds a reference. The real driver calls back from a thread of its own.
struct FakeUserObject {
  CUhostFn destroy = nullptr;
  void *user = nullptr;
  ~FakeUserObject() { destroy(user); }
};

struct FakeGraph {
  std::vector<std::shared_ptr<FakeUserObject>> objects;
  std::list<FakeNode> nodes;
  std::map<std::pair<FakeNode *, FakeNode *>, CUgraphEdgeData> edges;
  std::map<const FakeNode *, FakeNode *> cloneOf; ///< original -> node of this clone
};

struct FakeExec {
  FakeGraph graph;
};

using Microseconds = std::chrono::duration<double, std::micro>;

struct FakeEvent {
  Microseconds at{};
};

struct FakeStream {
  cuuint64_t capture = 0; ///< the number of the last one
  FakeGraph *capturing = nullptr;
  CUstreamCaptureMode mode{}; ///< of the capture
  std::thread::id thread;     ///< that began it
  bool isBroken = false;      ///< the capture, by a call that it does not allow
  bool isBlocking = false;    ///< it waits for the legacy stream
  FakeNode *last = nullptr;
};

struct Handle {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  bool onDevice = false;
  bool released = false;
  int mappings = 0;
};

struct FakeDriver::State {
  Options options;
  int file = -1;
  std::uint64_t fileBytes = 0;
  std::multimap<std::uint64_t, std::uint64_t> holes; ///< free pieces of the file: size -> offset
  std::map<CUmemGenericAllocationHandle, Handle> handles;
  CUmemGenericAllocationHandle lastHandle = 0;
  std::map<CUdeviceptr, std::uint64_t> reservations;
  struct Mapping {
    std::uint64_t bytes;
    CUmemGenericAllocationHandle handle;
    bool accessible; ///< by the device
    bool accessibleToProcessor;
  };
  std::map<CUdeviceptr, Mapping> mappings;
  std::map<std::string, std::uint64_t> calls;
  std::map<std::string, std::pair<std::uint64_t, CUresult>> failures; ///< at which call, how
  std::set<FakeKernel *> cooperative;                                 ///< of which no node can be added
  std::function<void(FakeKernel *&, std::map<int, int> &)> onClones;
  std::function<void(std::vector<std::vector<char>> &)> onArgumentsOfClones;
  std::mt19937 random;
  std::uint64_t lastNode = 0;
  cuuint64_t lastCapture = 0;
  std::set<FakeStream *> capturing;
  std::uint64_t modules = 0;            ///< loaded
  std::set<CUcontext> contexts;         ///< beside the primary one; under `mutex`
  std::vector<FakeDriver::Move> moves;  ///< of managed memory; under `mutex`
  std::chrono::microseconds moveTime{}; ///< of each of the next `slowMoves`; under `mutex`
  std::uint64_t slowMoves = 0;          ///< under `mutex`
  std::uint64_t gathered = 0;           ///< moves that have yet to come; under `mutex`
  std::condition_variable allGathered;
  std::recursive_mutex memoryMutex;             ///< of handles, mappings and reservations
  std::mutex mutex;                             ///< of what threads besides the test's own may come to
  std::map<CUdeviceptr, std::uint64_t> managed; ///< allocations
  struct Outside {
    CUdeviceptr address;
    std::size_t bytes;
    bool isOnHost;
  };
  std::vector<Outside> outside;                               ///< allocations of the program's own
  std::set<CUdeviceptr> managedOnDevice;                      ///< pages
  std::set<CUdeviceptr> managedEmpty;                         ///< pages discarded and not moved since
  std::set<std::pair<CUdeviceptr, CUmem_advise>> advice;      ///< by page: what was set and not taken back
  std::unique_ptr<FakeStreams> streams;                       ///< null: work is done when it is asked for
  std::vector<std::pair<std::uintptr_t, std::size_t>> pinned; ///< registered host memory
  // Virtual time; under `mutex`.
  Microseconds latest{};               ///< of all threads
  Microseconds upUntil{}, downUntil{}; ///< when the link has done what is asked of it
};

namespace {

FakeDriver::State *live = nullptr; // the driver's functions are plain C functions

int drivers = 0; // so far

/// Of a thread, the one that is current last. What it had with an earlier driver is gone.
std::vector<CUcontext> &contextStack() {
  thread_local std::vector<CUcontext> stack;
  thread_local int of = 0;
  if (std::exchange(of, drivers) != drivers)
    stack.clear();
  return stack;
}

FakeDriver::State &state() {
  return *live;
}

/// Of a thread. One that begins does so at the latest time of all.
struct ThreadClock {
  int of = 0; ///< which driver
  Microseconds at{};
  bool isRead = false; ///< since the last call
};

ThreadClock &threadClock() {
  thread_local ThreadClock clock;
  if (clock.of != drivers)
    clock = {drivers, state().latest, false};
  return clock;
}

/// The calling thread's time goes on to `at`.
void passUntil(Microseconds at) {
  Microseconds &own = threadClock().at;
  own = std::max(own, at);
  state().latest = std::max(state().latest, own);
}

void pass(Microseconds time) {
  passUntil(threadClock().at + time);
}

/// The device is idle then.
void passUntilIdle() {
  passUntil(std::max(state().upUntil, state().downUntil));
}

Microseconds milliseconds(double count) {
  return Microseconds(count * 1e3);
}

Microseconds timeOf(std::uint64_t bytes, double bytesPerSecond) {
  return Microseconds(static_cast<double>(bytes) / bytesPerSecond * 1e6);
}

Microseconds nodeTime() {
  return Microseconds(state().options.nodeMicroseconds);
}

Driver::Clock::time_point readClock() {
  const std::lock_guard lock(state().mutex);
  ThreadClock &clock = threadClock();
  if (std::exchange(clock.isRead, true))
    passUntil(state().latest);
  return Driver::Clock::time_point(std::chrono::duration_cast<Driver::Clock::duration>(clock.at));
}
FakeNode *nodeOf(CUgraphNode node) {
  return reinterpret_cast<FakeNode *>(node);
}
CUgraphNode handleOf(FakeNode *node) {
  return reinterpret_cast<CUgraphNode>(node);
}
FakeGraph *graphOf(CUgraph graph) {
  return reinterpret_cast<FakeGraph *>(graph);
}

[[noreturn]] void stop(const std::string &message) {
  std::fprintf(stderr, "fake driver: %s\n", message.c_str());
  std::abort();
}

/// What PUMPGRAPH_FAKE_SPEED says, or 1.
double speedFactor() {
  const char *text = std::getenv("PUMPGRAPH_FAKE_SPEED");
  const double factor = text ? std::strtod(text, nullptr) : 1;
  if (!(factor > 0))
    stop(fmt::format("PUMPGRAPH_FAKE_SPEED is \"{}\", which is no factor", text));
  return factor;
}

/// Does work of a stream, at once or some time.
template <typename Work> void onStream(CUstream stream, Work work, std::function<bool()> mayRun = {}) {
  if (state().streams)
    state().streams->enqueue(stream, std::move(work), std::move(mayRun));
  else
    work();
}

bool isPinned(const void *address) {
  return std::any_of(state().pinned.begin(), state().pinned.end(), [&](const auto &range) {
    return reinterpret_cast<std::uintptr_t>(address) - range.first < range.second;
  });
}

/// Counts a call and says whether it is to fail.
CUresult enter(const char *symbol) {
  const std::lock_guard lock(state().mutex);
  threadClock().isRead = false;
  const std::uint64_t count = ++state().calls[symbol];
  const auto failure = state().failures.find(symbol);
  if (failure == state().failures.end() || failure->second.first != count)
    return CUDA_SUCCESS;
  return failure->second.second;
}

#define FAKE_ENTER(symbol)                                                                                             \
  if (const CUresult entered_ = enter(#symbol); entered_ != CUDA_SUCCESS)                                              \
  return entered_

thread_local CUstreamCaptureMode captureMode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/// A call that waits, in this thread, breaks captures that `forbids` says do not allow it. Whether there is one.
template <typename Forbids> bool breaksCapture(Forbids forbids) {
  bool breaks = false;
  for (FakeStream *stream : state().capturing)
    if (forbids(*stream))
      stream->isBroken = breaks = true;
  return breaks;
}

/// By its mode, and that of this thread: cuThreadExchangeStreamCaptureMode().
bool forbidsUnsafeCalls(const FakeStream &stream) {
  if (captureMode == CU_STREAM_CAPTURE_MODE_RELAXED || stream.mode == CU_STREAM_CAPTURE_MODE_RELAXED)
    return false;
  const bool isOfOthers = stream.thread != std::this_thread::get_id();
  return !isOfOthers || (captureMode == CU_STREAM_CAPTURE_MODE_GLOBAL && stream.mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/// The legacy stream would depend on a captured one.
bool isImplicit(CUstream stream) {
  const std::set<FakeStream *> &capturing = state().capturing;
  return (stream == nullptr || stream == CU_STREAM_LEGACY) &&
         std::any_of(capturing.begin(), capturing.end(), [](const FakeStream *each) { return each->isBlocking; });
}

bool isAccessible(std::uint64_t address, std::uint64_t bytes) {
  const std::lock_guard memoryLock(state().memoryMutex);
  while (bytes != 0) {
    auto mapping = state().mappings.upper_bound(address);
    if (mapping == state().mappings.begin())
      return false;
    --mapping;
    const std::uint64_t end = mapping->first + mapping->second.bytes;
    if (address >= end || !mapping->second.accessible)
      return false;
    const std::uint64_t here = std::min(bytes, end - address);
    address += here;
    bytes -= here;
  }
  return true;
}

bool isReserved(std::uint64_t address) {
  const std::lock_guard memoryLock(state().memoryMutex);
  auto range = state().reservations.upper_bound(address);
  return range != state().reservations.begin() && address < (--range)->first + range->second;
}

void requireAccess(std::uint64_t address, std::uint64_t bytes, const std::string &who) {
  if (isReserved(address) && !isAccessible(address, bytes))
    stop(fmt::format("{} touches {} bytes at {:#x}, which are not mapped", who, bytes, address));
}

std::uint64_t copyAddress(CUmemorytype type, const void *host, CUdeviceptr device) {
  return type == CU_MEMORYTYPE_HOST ? reinterpret_cast<std::uintptr_t>(host) : device;
}

bool isHostBacked(std::uint64_t address) {
  const std::lock_guard memoryLock(state().memoryMutex);
  auto mapping = state().mappings.upper_bound(address);
  if (mapping == state().mappings.begin())
    return false;
  --mapping;
  return address < mapping->first + mapping->second.bytes && !state().handles.at(mapping->second.handle).onDevice;
}

/// Whether the processor may reach the host memory there: between two such addresses it copies, whatever is behind them
/// further on.
bool isProcessors(std::uint64_t address) {
  const std::lock_guard memoryLock(state().memoryMutex);
  return isHostBacked(address) && std::prev(state().mappings.upper_bound(address))->second.accessibleToProcessor;
}

void requireProcessor(std::uint64_t address, std::uint64_t bytes) {
  const std::lock_guard memoryLock(state().memoryMutex);
  for (std::uint64_t at = address; isReserved(address) && at < address + bytes;
       at = at / pageSize * pageSize + pageSize)
    if (!std::prev(state().mappings.upper_bound(at))->second.accessibleToProcessor)
      stop(fmt::format("the processor copies at {:#x}, which is not mapped for it", at));
}

bool isByProcessor(const CUDA_MEMCPY3D &copy) {
  return isProcessors(copyAddress(copy.srcMemoryType, copy.srcHost, copy.srcDevice)) &&
         isProcessors(copyAddress(copy.dstMemoryType, copy.dstHost, copy.dstDevice));
}

std::uint64_t sourceOf(const CUDA_MEMCPY3D &copy) {
  return copyAddress(copy.srcMemoryType, copy.srcHost, copy.srcDevice) + copy.srcXInBytes;
}
std::uint64_t targetOf(const CUDA_MEMCPY3D &copy) {
  return copyAddress(copy.dstMemoryType, copy.dstHost, copy.dstDevice) + copy.dstXInBytes;
}

void runCopy(const CUDA_MEMCPY3D &copy, bool byProcessor) {
  const std::uint64_t source = sourceOf(copy), target = targetOf(copy);
  for (std::size_t row = 0; row < std::max<std::size_t>(copy.Height, 1); ++row) {
    requireAccess(source + row * copy.srcPitch, copy.WidthInBytes, "a copy");
    requireAccess(target + row * copy.dstPitch, copy.WidthInBytes, "a copy");
    if (byProcessor || (isProcessors(source) && isProcessors(target))) {
      requireProcessor(source + row * copy.srcPitch, copy.WidthInBytes);
      requireProcessor(target + row * copy.dstPitch, copy.WidthInBytes);
    }
    std::memmove(reinterpret_cast<void *>(target + row * copy.dstPitch),
                 reinterpret_cast<void *>(source + row * copy.srcPitch), copy.WidthInBytes);
  }
}

bool isOnDevice(std::uint64_t address) {
  const auto managed = state().managed.upper_bound(address);
  if (managed != state().managed.begin() && address < std::prev(managed)->first + std::prev(managed)->second)
    return true;
  return isReserved(address) && !isHostBacked(address);
}

/// The link is busy with a copy, beside what the calling thread does. Copies on the device are not beside it.
void passCopy(std::uint64_t target, std::uint64_t source, std::uint64_t bytes) {
  const std::lock_guard lock(state().mutex);
  const FakeDriver::Options &speeds = state().options;
  if (isOnDevice(target) && isOnDevice(source))
    return pass(nodeTime() + timeOf(bytes, speeds.deviceBytesPerSecond));
  Microseconds &until = isOnDevice(target) ? state().upUntil : state().downUntil;
  until = std::max(until, threadClock().at) + nodeTime() +
          timeOf(bytes, isOnDevice(target) ? speeds.upBytesPerSecond : speeds.downBytesPerSecond);
}

void passFill(std::uint64_t bytes) {
  const std::lock_guard lock(state().mutex);
  pass(nodeTime() + timeOf(bytes, state().options.deviceBytesPerSecond));
}

/// As long as an agent may take on a busy machine, and longer.
constexpr std::chrono::seconds mostWait{60};

/// Waiting for others takes no virtual time: how long it lasts depends on how their threads run.
void runMemOps(const std::vector<CUstreamBatchMemOpParams> &operations) {
  for (const CUstreamBatchMemOpParams &operation : operations) {
    if (operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32) {
      std::atomic_ref(*reinterpret_cast<cuuint32_t *>(operation.writeValue.address)).store(operation.writeValue.value);
      continue;
    }
    const std::atomic_ref word(*reinterpret_cast<cuuint32_t *>(operation.waitValue.address));
    const auto start = std::chrono::steady_clock::now();
    while (static_cast<std::int32_t>(word.load() - operation.waitValue.value) < 0) {
      if (std::chrono::steady_clock::now() - start > mostWait)
        stop("a graph waits for a word that nobody writes");
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

void runGraph(FakeGraph &graph);

void runNode(FakeNode &node) {
  switch (node.type) {
  case CU_GRAPH_NODE_TYPE_KERNEL: {
    FakeKernel::Arguments arguments;
    for (const std::vector<char> &bytes : node.arguments)
      arguments.push_back(bytes.data());
    node.kernel->body(arguments);
    const std::lock_guard lock(state().mutex);
    pass(nodeTime() + milliseconds(node.kernel->milliseconds));
    return;
  }
  case CU_GRAPH_NODE_TYPE_MEMCPY:
    passCopy(targetOf(node.copy), sourceOf(node.copy),
             node.copy.WidthInBytes * std::max<std::size_t>(node.copy.Height, 1));
    return runCopy(node.copy, node.byProcessor);
  case CU_GRAPH_NODE_TYPE_MEMSET:
    passFill(node.fill.width * node.fill.elementSize * std::max<std::size_t>(node.fill.height, 1));
    for (std::size_t row = 0; row < std::max<std::size_t>(node.fill.height, 1); ++row) {
      const std::uint64_t address = node.fill.dst + row * node.fill.pitch;
      requireAccess(address, node.fill.width * node.fill.elementSize, "a fill");
      if (node.fill.elementSize == 1) {
        std::memset(reinterpret_cast<char *>(address), static_cast<int>(node.fill.value), node.fill.width);
        continue;
      }
      for (std::size_t i = 0; i < node.fill.width; ++i)
        std::memcpy(reinterpret_cast<char *>(address) + i * node.fill.elementSize, &node.fill.value,
                    node.fill.elementSize);
    }
    return;
  case CU_GRAPH_NODE_TYPE_GRAPH:
    return runGraph(*node.child);
  case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
    passFill(0);
    return runMemOps(node.memOps);
  case CU_GRAPH_NODE_TYPE_EVENT_RECORD: {
    const std::lock_guard lock(state().mutex);
    reinterpret_cast<FakeEvent *>(node.event)->at = threadClock().at;
    pass(milliseconds(state().options.clockMilliseconds));
    return;
  }
  default:
    return;
  }
}

/// Any order that the edges allow is legal; a program that needs more than that fails sooner or later.
void runGraph(FakeGraph &graph) {
  std::map<FakeNode *, int> waitingFor;
  for (FakeNode &node : graph.nodes)
    waitingFor[&node] = 0;
  for (const auto &[ends, data] : graph.edges)
    ++waitingFor[ends.second];
  std::vector<FakeNode *> ready;
  for (FakeNode &node : graph.nodes)
    if (waitingFor[&node] == 0)
      ready.push_back(&node);
  while (!ready.empty()) {
    const std::size_t pick = std::uniform_int_distribution<std::size_t>(0, ready.size() - 1)(state().random);
    FakeNode *node = ready[pick];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(pick));
    runNode(*node);
    for (auto edge = graph.edges.lower_bound({node, nullptr}); edge != graph.edges.end() && edge->first.first == node;
         ++edge)
      if (--waitingFor[edge->first.second] == 0)
        ready.push_back(edge->first.second);
  }
}

/// The nodes run here one by one, copies beside them; all is over when this returns.
void launch(FakeGraph &graph) {
  Microseconds start{};
  {
    const std::lock_guard lock(state().mutex);
    passUntilIdle();
    start = threadClock().at;
  }
  runGraph(graph);
  const auto copies = std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                    [](const FakeNode &node) { return node.type == CU_GRAPH_NODE_TYPE_MEMCPY; });
  const std::lock_guard lock(state().mutex);
  passUntilIdle();
  passUntil(start + milliseconds(static_cast<double>(copies) * state().options.copyMilliseconds));
}

FakeNode *addNode(FakeGraph *graph, CUgraphNodeType type, const CUgraphNode *after, std::size_t count) {
  FakeNode &node = graph->nodes.emplace_back();
  node.type = type;
  node.graph = graph;
  node.id = ++state().lastNode;
  for (std::size_t i = 0; i < count; ++i)
    graph->edges[{nodeOf(after[i]), &node}] = {};
  return &node;
}

/// Points what the driver hands out at the node's own bytes.
void settleParameters(FakeNode &node) {
  node.parameterPointers.clear();
  node.packedBytes.clear();
  if (!node.packed) {
    for (std::vector<char> &bytes : node.arguments)
      node.parameterPointers.push_back(bytes.data());
    return;
  }
  for (const std::vector<char> &bytes : node.arguments)
    node.packedBytes.insert(node.packedBytes.end(), bytes.begin(), bytes.end());
  node.packedSize = node.packedBytes.size();
  node.extra = {CU_LAUNCH_PARAM_BUFFER_POINTER, node.packedBytes.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &node.packedSize,
                CU_LAUNCH_PARAM_END};
}

void copyGraph(const FakeGraph &from, FakeGraph &to) {
  to.objects = from.objects;
  to.cloneOf.clear();
  for (const FakeNode &node : from.nodes) {
    FakeNode &copy = to.nodes.emplace_back(node);
    copy.graph = &to;
    settleParameters(copy);
    if (node.child) {
      copy.child = new FakeGraph; // lives as long as the test
      copyGraph(*node.child, *copy.child);
    }
    to.cloneOf[&node] = &copy;
  }
  for (const auto &[ends, data] : from.edges)
    to.edges[{to.cloneOf[ends.first], to.cloneOf[ends.second]}] = data;
}

/// A range that lies partly in frames and partly in host memory.
bool isMixed(std::uint64_t address, std::uint64_t bytes) {
  for (std::uint64_t at = address; at < address + bytes; at = at / pageSize * pageSize + pageSize)
    if (isHostBacked(at) != isHostBacked(address))
      return true;
  return false;
}

/// Copies and fills that do not instantiate. Of copies on mixed ranges the driver takes some; none is to be relied on,
/// and no fill.
bool hasUnusableRange(const FakeGraph &graph) {
  const auto unmapped = [](std::uint64_t address, std::uint64_t bytes) {
    return isReserved(address) && !isAccessible(address, bytes);
  };
  for (const FakeNode &node : graph.nodes) {
    if (node.type == CU_GRAPH_NODE_TYPE_MEMCPY)
      for (const std::uint64_t address : {copyAddress(node.copy.srcMemoryType, node.copy.srcHost, node.copy.srcDevice),
                                          copyAddress(node.copy.dstMemoryType, node.copy.dstHost, node.copy.dstDevice)})
        if (unmapped(address, node.copy.WidthInBytes) || isMixed(address, node.copy.WidthInBytes))
          return true;
    const std::uint64_t filled = node.fill.width * node.fill.elementSize;
    if (node.type == CU_GRAPH_NODE_TYPE_MEMSET && (unmapped(node.fill.dst, filled) || isMixed(node.fill.dst, filled)))
      return true;
  }
  return false;
}

std::uint64_t takeFileSpace(std::uint64_t bytes) {
  const auto hole = state().holes.lower_bound(bytes);
  if (hole != state().holes.end() && hole->first == bytes) {
    const std::uint64_t offset = hole->second;
    state().holes.erase(hole);
    return offset;
  }
  const std::uint64_t offset = state().fileBytes;
  state().fileBytes += bytes;
  if (ftruncate(state().file, static_cast<off_t>(state().fileBytes)) != 0)
    stop("no room for memory");
  return offset;
}

void dropHandle(CUmemGenericAllocationHandle id) {
  Handle &handle = state().handles.at(id);
  if (!handle.released || handle.mappings != 0)
    return;
  fallocate(state().file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(handle.offset),
            static_cast<off_t>(handle.bytes));
  state().holes.emplace(handle.bytes, handle.offset);
  state().handles.erase(id);
}

std::uint64_t deviceBytesInUse() {
  const std::lock_guard memoryLock(state().memoryMutex);
  std::uint64_t bytes = 0;
  for (const auto &[id, handle] : state().handles)
    bytes += handle.onDevice ? handle.bytes : 0;
  return bytes;
}

// ---- the driver's functions -----------------------------------------------------------------------------------------

CUresult fakeErrorName(CUresult result, const char **name) {
  static const std::map<CUresult, const char *> names = {
      {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
      {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
      {CUDA_ERROR_ASSERT, "CUDA_ERROR_ASSERT"},
      {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
  };
  const auto found = names.find(result);
  *name = found != names.end() ? found->second : "CUDA_ERROR_UNKNOWN";
  return CUDA_SUCCESS;
}

void fillDeviceCalls(Driver &driver) {
  driver.init.function = [](unsigned) { return CUDA_SUCCESS; };
  driver.driverGetVersion.function = [](int *version) {
    *version = 13000;
    return CUDA_SUCCESS;
  };
  driver.deviceGet.function = [](CUdevice *device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
  };
  driver.deviceGetCount.function = [](int *count) {
    *count = state().options.devices;
    return CUDA_SUCCESS;
  };
  driver.deviceGetName.function = [](char *name, int bytes, CUdevice) {
    std::snprintf(name, static_cast<std::size_t>(bytes), "a GPU that is none");
    return CUDA_SUCCESS;
  };
  driver.deviceGetUuid.function = [](CUuuid *uuid, CUdevice) {
    std::memset(uuid, 7, sizeof *uuid);
    return CUDA_SUCCESS;
  };
  driver.deviceTotalMem.function = [](std::size_t *bytes, CUdevice) {
    *bytes = state().options.deviceBytes;
    return CUDA_SUCCESS;
  };
  driver.deviceGetAttribute.function = [](int *value, CUdevice_attribute attribute, CUdevice) {
    const FakeDriver::Options &options = state().options;
    const std::map<CUdevice_attribute, int> values = {
        {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, options.supportsManagedMemory},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, options.computeCapability[0]},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, options.computeCapability[1]},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, options.multiprocessors},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, options.clockMegahertz * 1000}};
    const auto found = values.find(attribute);
    *value = found == values.end() ? options.supportsVirtualMemory : found->second;
    return CUDA_SUCCESS;
  };
  driver.devicePrimaryCtxRetain.function = [](CUcontext *context, CUdevice) {
    *context = reinterpret_cast<CUcontext>(live);
    return CUDA_SUCCESS;
  };
  driver.devicePrimaryCtxRelease.function = [](CUdevice) { return CUDA_SUCCESS; };
  driver.ctxCreate.function = [](CUcontext *context, unsigned, CUdevice) -> CUresult {
    FAKE_ENTER(cuCtxCreate);
    *context = reinterpret_cast<CUcontext>(new char);
    const std::lock_guard lock(state().mutex);
    state().contexts.insert(*context);
    contextStack().push_back(*context);
    return CUDA_SUCCESS;
  };
  driver.ctxDestroy.function = [](CUcontext context) -> CUresult {
    const std::lock_guard lock(state().mutex);
    if (state().contexts.erase(context) == 0)
      return CUDA_ERROR_INVALID_CONTEXT;
    delete reinterpret_cast<char *>(context);
    return CUDA_SUCCESS;
  };
  driver.ctxSetLimit.function = [](CUlimit, std::size_t) -> CUresult {
    return contextStack().empty() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
  };
  driver.ctxGetCurrent.function = [](CUcontext *context) {
    *context = contextStack().empty() ? nullptr : contextStack().back();
    return CUDA_SUCCESS;
  };
  driver.ctxSetCurrent.function = [](CUcontext context) {
    if (!contextStack().empty())
      contextStack().pop_back();
    if (context)
      contextStack().push_back(context);
    return CUDA_SUCCESS;
  };
  driver.ctxPushCurrent.function = [](CUcontext context) {
    contextStack().push_back(context);
    return CUDA_SUCCESS;
  };
  driver.ctxPopCurrent.function = [](CUcontext *context) -> CUresult {
    if (contextStack().empty())
      return CUDA_ERROR_INVALID_CONTEXT;
    *context = contextStack().back();
    contextStack().pop_back();
    return CUDA_SUCCESS;
  };
  driver.ctxSynchronize.function = []() -> CUresult {
    FAKE_ENTER(cuCtxSynchronize);
    if (breaksCapture([](const FakeStream &) { return true; }))
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (state().streams)
      state().streams->finishAll();
    const std::lock_guard lock(state().mutex);
    passUntilIdle();
    return CUDA_SUCCESS;
  };
  driver.memGetInfo.function = [](std::size_t *free, std::size_t *total) {
    *total = state().options.deviceBytes;
    *free = *total - deviceBytesInUse();
    return CUDA_SUCCESS;
  };
}

/// Anonymous memory, aligned to a page of the device; at the hint if that is free. 0: there is none.
CUdeviceptr mapPages(CUdeviceptr hint, std::uint64_t bytes, int protection) {
  const auto map = [&](std::uint64_t size) {
    void *range =
        mmap(reinterpret_cast<void *>(hint), size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return range == MAP_FAILED ? 0 : reinterpret_cast<std::uintptr_t>(range);
  };
  bytes = (bytes + pageSize - 1) / pageSize * pageSize;
  const CUdeviceptr exact = map(bytes);
  if (exact == 0 || exact % pageSize == 0)
    return exact;
  munmap(reinterpret_cast<void *>(exact), bytes);
  const CUdeviceptr wide = map(bytes + pageSize);
  if (wide == 0)
    return 0;
  const CUdeviceptr aligned = (wide + pageSize - 1) / pageSize * pageSize;
  if (aligned != wide)
    munmap(reinterpret_cast<void *>(wide), aligned - wide);
  munmap(reinterpret_cast<void *>(aligned + bytes), wide + pageSize - aligned);
  return aligned;
}

/// Whole pages inside managed memory.
bool isManagedRange(CUdeviceptr address, std::uint64_t bytes) {
  const auto after = state().managed.upper_bound(address);
  return after != state().managed.begin() && bytes != 0 &&
         address + bytes <= std::prev(after)->first + std::prev(after)->second;
}

/// Marks the pages of a managed range as brought to the device, or to the host.
CUresult moveManaged(CUdeviceptr address, std::uint64_t bytes, bool toDevice) {
  const std::lock_guard lock(state().mutex);
  if (!isManagedRange(address, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  for (CUdeviceptr page = address / pageSize * pageSize; page < address + bytes; page += pageSize)
    toDevice ? void(state().managedOnDevice.insert(page)) : void(state().managedOnDevice.erase(page));
  return CUDA_SUCCESS;
}

/// What moving a managed range takes beside `time`: nothing for what is there, little for what has no value. Evictions
/// by several threads take turns on the link.
void passMove(CUdeviceptr address, std::uint64_t bytes, bool toDevice, Microseconds time) {
  const std::lock_guard lock(state().mutex);
  const FakeDriver::Options &speeds = state().options;
  time += nodeTime();
  for (CUdeviceptr page = address / pageSize * pageSize; page < address + bytes; page += pageSize) {
    const bool isEmpty = state().managedEmpty.erase(page) != 0;
    if (state().managedOnDevice.contains(page) != toDevice)
      time += timeOf(pageSize, isEmpty    ? speeds.deviceBytesPerSecond
                               : toDevice ? speeds.upBytesPerSecond
                                          : speeds.downBytesPerSecond);
  }
  if (!toDevice)
    passUntil(state().latest);
  pass(time);
}

void fillManagedCalls(Driver &driver) {
  driver.memAllocManaged.function = [](CUdeviceptr *address, std::size_t bytes, unsigned) -> CUresult {
    FAKE_ENTER(cuMemAllocManaged);
    // Where the kernel has the highest gap, as the driver does.
    *address = mapPages(state().options.managedPlace, bytes, PROT_READ | PROT_WRITE);
    if (*address == 0)
      return CUDA_ERROR_OUT_OF_MEMORY;
    state().managed[*address] = bytes;
    return CUDA_SUCCESS;
  };
  driver.memFree.function = [](CUdeviceptr address) -> CUresult {
    FAKE_ENTER(cuMemFree);
    const auto found = state().managed.find(address);
    if (found == state().managed.end())
      return CUDA_ERROR_INVALID_VALUE;
    munmap(reinterpret_cast<void *>(address), (found->second + pageSize - 1) / pageSize * pageSize);
    state().managed.erase(found);
    return CUDA_SUCCESS;
  };
  driver.memPrefetchAsync.function = [](CUdeviceptr address, std::size_t bytes, CUmemLocation location, unsigned,
                                        CUstream) -> CUresult {
    FAKE_ENTER(cuMemPrefetchAsync);
    if (contextStack().empty())
      return CUDA_ERROR_INVALID_CONTEXT;
    std::chrono::microseconds time{};
    {
      std::unique_lock lock(state().mutex);
      state().moves.push_back({address, bytes, location.type == CU_MEM_LOCATION_TYPE_HOST, contextStack().back()});
      if (state().slowMoves > 0) {
        --state().slowMoves;
        time = state().moveTime;
      }
      if (state().gathered > 0) {
        --state().gathered;
        state().allGathered.notify_all();
        if (!state().allGathered.wait_for(lock, mostWait, [] { return state().gathered == 0; }))
          stop("too few moves at once");
      }
    }
    std::this_thread::sleep_for(time);
    passMove(address, bytes, location.type == CU_MEM_LOCATION_TYPE_DEVICE, time);
    return moveManaged(address, bytes, location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  };
  driver.memAdvise.function = [](CUdeviceptr address, std::size_t bytes, CUmem_advise advice,
                                 CUmemLocation) -> CUresult {
    FAKE_ENTER(cuMemAdvise);
    if (contextStack().empty())
      return CUDA_ERROR_INVALID_CONTEXT;
    const std::lock_guard lock(state().mutex);
    if (!isManagedRange(address, bytes))
      return CUDA_ERROR_INVALID_VALUE;
    // What is taken back has the number after what was given.
    const bool isGiven = advice == CU_MEM_ADVISE_SET_READ_MOSTLY || advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                         advice == CU_MEM_ADVISE_SET_ACCESSED_BY;
    const auto kind = static_cast<CUmem_advise>(isGiven ? advice : advice - 1);
    for (CUdeviceptr page = address / pageSize * pageSize; page < address + bytes; page += pageSize)
      isGiven ? void(state().advice.insert({page, kind})) : void(state().advice.erase({page, kind}));
    return CUDA_SUCCESS;
  };
  driver.memDiscardBatchAsync.function = [](CUdeviceptr *addresses, std::size_t *bytes, std::size_t count,
                                            unsigned long long, CUstream) -> CUresult {
    FAKE_ENTER(cuMemDiscardBatchAsync);
    constexpr int garbage = 0xDD;
    for (std::size_t i = 0; i < count; ++i) {
      if (const CUresult moved = moveManaged(addresses[i], bytes[i], false); moved != CUDA_SUCCESS)
        return moved;
      std::memset(reinterpret_cast<void *>(addresses[i]), garbage, bytes[i]);
      passFill(bytes[i]);
      const std::lock_guard lock(state().mutex);
      for (CUdeviceptr page = addresses[i] / pageSize * pageSize; page < addresses[i] + bytes[i]; page += pageSize)
        state().managedEmpty.insert(page);
    }
    return CUDA_SUCCESS;
  };
  if (!state().options.supportsDiscard)
    driver.memDiscardBatchAsync.function = nullptr;
  driver.memHostAlloc.function = [](void **address, std::size_t bytes, unsigned) -> CUresult {
    FAKE_ENTER(cuMemHostAlloc);
    if (contextStack().empty())
      return CUDA_ERROR_INVALID_CONTEXT;
    constexpr std::size_t line = 64;
    *address = std::aligned_alloc(line, (bytes + line - 1) / line * line);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  };
  driver.memFreeHost.function = [](void *address) -> CUresult {
    FAKE_ENTER(cuMemFreeHost);
    std::free(address);
    return CUDA_SUCCESS;
  };
  driver.memHostGetDevicePointer.function = [](CUdeviceptr *device, void *host, unsigned) {
    *device = reinterpret_cast<std::uintptr_t>(host);
    return CUDA_SUCCESS;
  };
}

/// What the driver knows of memory that is not the session's.
void fillPointerCalls(Driver &driver) {
  driver.pointerGetAttribute.function = [](void *data, CUpointer_attribute attribute, CUdeviceptr address) -> CUresult {
    FAKE_ENTER(cuPointerGetAttribute);
    const auto found =
        std::find_if(state().outside.begin(), state().outside.end(),
                     [&](const FakeDriver::State::Outside &memory) { return address - memory.address < memory.bytes; });
    if (found == state().outside.end())
      return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
      *static_cast<unsigned *>(data) = found->isOnHost ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
      *static_cast<CUdeviceptr *>(data) = found->address;
    else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
      *static_cast<std::size_t *>(data) = found->bytes;
    else
      return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
  };
}

void fillMemoryCalls(Driver &driver) {
  driver.memGetAllocationGranularity.function = [](std::size_t *bytes, const CUmemAllocationProp *,
                                                   CUmemAllocationGranularity_flags) {
    *bytes = pageSize;
    return CUDA_SUCCESS;
  };
  driver.memAddressReserve.function = [](CUdeviceptr *address, std::size_t bytes, std::size_t, CUdeviceptr hint,
                                         unsigned long long) -> CUresult {
    FAKE_ENTER(cuMemAddressReserve);
    const std::lock_guard memoryLock(state().memoryMutex);
    if (hint != 0 && !state().options.grantsHint)
      return CUDA_ERROR_INVALID_VALUE;
    *address = mapPages(hint, bytes, PROT_NONE);
    if (*address == 0)
      return CUDA_ERROR_OUT_OF_MEMORY;
    state().reservations[*address] = bytes;
    return CUDA_SUCCESS;
  };
  driver.memAddressFree.function = [](CUdeviceptr address, std::size_t bytes) -> CUresult {
    FAKE_ENTER(cuMemAddressFree);
    const std::lock_guard memoryLock(state().memoryMutex);
    state().reservations.erase(address);
    munmap(reinterpret_cast<void *>(address), bytes);
    return CUDA_SUCCESS;
  };
  driver.memCreate.function = [](CUmemGenericAllocationHandle *handle, std::size_t bytes,
                                 const CUmemAllocationProp *properties, unsigned long long) -> CUresult {
    FAKE_ENTER(cuMemCreate);
    const std::lock_guard memoryLock(state().memoryMutex);
    const bool onDevice = properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    if (bytes % pageSize != 0)
      return CUDA_ERROR_INVALID_VALUE;
    if (onDevice && deviceBytesInUse() + bytes > state().options.deviceBytes)
      return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = ++state().lastHandle;
    state().handles[*handle] = {takeFileSpace(bytes), bytes, onDevice, false, 0};
    return CUDA_SUCCESS;
  };
  driver.memRelease.function = [](CUmemGenericAllocationHandle handle) -> CUresult {
    FAKE_ENTER(cuMemRelease);
    const std::lock_guard memoryLock(state().memoryMutex);
    if (!state().handles.contains(handle))
      return CUDA_ERROR_INVALID_VALUE;
    state().handles[handle].released = true;
    dropHandle(handle);
    return CUDA_SUCCESS;
  };
  driver.memMap.function = [](CUdeviceptr address, std::size_t bytes, std::size_t offset,
                              CUmemGenericAllocationHandle id, unsigned long long) -> CUresult {
    FAKE_ENTER(cuMemMap);
    const std::lock_guard memoryLock(state().memoryMutex);
    const auto handle = state().handles.find(id);
    if (handle == state().handles.end() || offset != 0 || bytes != handle->second.bytes || !isReserved(address))
      return CUDA_ERROR_INVALID_VALUE;
    for (std::uint64_t page = 0; page < bytes; page += pageSize) {
      const auto after = state().mappings.upper_bound(address + page);
      if (after != state().mappings.begin() &&
          std::prev(after)->first + std::prev(after)->second.bytes > address + page)
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (mmap(reinterpret_cast<void *>(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, state().file,
             static_cast<off_t>(handle->second.offset)) == MAP_FAILED)
      stop("mmap of a frame failed");
    state().mappings[address] = {bytes, id, false, false};
    ++handle->second.mappings;
    return CUDA_SUCCESS;
  };
  driver.memUnmap.function = [](CUdeviceptr address, std::size_t bytes) -> CUresult {
    FAKE_ENTER(cuMemUnmap);
    const std::lock_guard memoryLock(state().memoryMutex);
    for (CUdeviceptr at = address; at < address + bytes;) {
      const auto mapping = state().mappings.find(at);
      if (mapping == state().mappings.end())
        return CUDA_ERROR_INVALID_VALUE;
      at += mapping->second.bytes;
    }
    for (CUdeviceptr at = address; at < address + bytes;) {
      const auto mapping = state().mappings.find(at);
      at += mapping->second.bytes;
      const CUmemGenericAllocationHandle id = mapping->second.handle;
      state().mappings.erase(mapping);
      --state().handles.at(id).mappings;
      dropHandle(id);
    }
    if (mmap(reinterpret_cast<void *>(address), bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
      return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
  };
  driver.memSetAccess.function = [](CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc *access,
                                    std::size_t count) -> CUresult {
    FAKE_ENTER(cuMemSetAccess);
    const std::lock_guard memoryLock(state().memoryMutex);
    for (CUdeviceptr at = address; at < address + bytes;) {
      const auto mapping = state().mappings.find(at);
      if (mapping == state().mappings.end())
        return CUDA_ERROR_INVALID_VALUE;
      mapping->second.accessible = true;
      if (count == 2 && access[1].location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
        mapping->second.accessibleToProcessor = true;
      at += mapping->second.bytes;
    }
    mprotect(reinterpret_cast<void *>(address), bytes, PROT_READ | PROT_WRITE);
    return CUDA_SUCCESS;
  };
  driver.memHostRegister.function = [](void *address, std::size_t bytes, unsigned) -> CUresult {
    FAKE_ENTER(cuMemHostRegister);
    const std::lock_guard lock(state().mutex);
    state().pinned.emplace_back(reinterpret_cast<std::uintptr_t>(address), bytes);
    return CUDA_SUCCESS;
  };
  driver.memHostUnregister.function = [](void *address) {
    const std::lock_guard lock(state().mutex);
    std::erase_if(state().pinned,
                  [&](const auto &range) { return range.first == reinterpret_cast<std::uintptr_t>(address); });
    return CUDA_SUCCESS;
  };
  driver.memcpyHtoDAsync.function = [](CUdeviceptr target, const void *source, std::size_t bytes,
                                       CUstream stream) -> CUresult {
    FAKE_ENTER(cuMemcpyHtoDAsync);
    const auto copy = [=](const void *from) {
      requireAccess(target, bytes, "a copy to the device");
      passCopy(target, reinterpret_cast<std::uintptr_t>(source), bytes);
      std::memcpy(reinterpret_cast<void *>(target), from, bytes);
    };
    // Pageable memory is read before the call returns.
    if (!state().streams || isPinned(source))
      onStream(stream, [=] { copy(source); });
    else
      onStream(stream, [=, read = std::vector<char>(static_cast<const char *>(source),
                                                    static_cast<const char *>(source) + bytes)] { copy(read.data()); });
    return CUDA_SUCCESS;
  };
  driver.memcpyDtoHAsync.function = [](void *target, CUdeviceptr source, std::size_t bytes,
                                       CUstream stream) -> CUresult {
    FAKE_ENTER(cuMemcpyDtoHAsync);
    onStream(stream, [=] {
      requireAccess(source, bytes, "a copy to the host");
      passCopy(reinterpret_cast<std::uintptr_t>(target), source, bytes);
      std::memcpy(target, reinterpret_cast<const void *>(source), bytes);
    });
    if (state().streams && !isPinned(target))
      state().streams->finish(stream);
    return CUDA_SUCCESS;
  };
  driver.memcpyDtoDAsync.function = [](CUdeviceptr target, CUdeviceptr source, std::size_t bytes,
                                       CUstream stream) -> CUresult {
    FAKE_ENTER(cuMemcpyDtoDAsync);
    onStream(stream, [=] {
      requireAccess(source, bytes, "a copy on the device");
      requireAccess(target, bytes, "a copy on the device");
      passCopy(target, source, bytes);
      std::memcpy(reinterpret_cast<void *>(target), reinterpret_cast<const void *>(source), bytes);
    });
    return CUDA_SUCCESS;
  };
  driver.memsetD8Async.function = [](CUdeviceptr target, unsigned char value, std::size_t bytes,
                                     CUstream stream) -> CUresult {
    FAKE_ENTER(cuMemsetD8Async);
    onStream(stream, [=] {
      requireAccess(target, bytes, "a fill");
      passFill(bytes);
      std::memset(reinterpret_cast<void *>(target), value, bytes);
    });
    return CUDA_SUCCESS;
  };
}

void fillStreamCalls(Driver &driver) {
  driver.streamCreate.function = [](CUstream *stream, unsigned flags) -> CUresult {
    FAKE_ENTER(cuStreamCreate);
    *stream = reinterpret_cast<CUstream>(new FakeStream);
    reinterpret_cast<FakeStream *>(*stream)->isBlocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
    if (state().streams)
      state().streams->create(*stream, (flags & CU_STREAM_NON_BLOCKING) == 0);
    return CUDA_SUCCESS;
  };
  driver.streamDestroy.function = [](CUstream stream) {
    if (state().streams)
      state().streams->destroy(stream);
    delete reinterpret_cast<FakeStream *>(stream);
    return CUDA_SUCCESS;
  };
  driver.streamSynchronize.function = [](CUstream stream) -> CUresult {
    FAKE_ENTER(cuStreamSynchronize);
    if (isImplicit(stream) && breaksCapture([](const FakeStream &capturing) { return capturing.isBlocking; }))
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    const auto forbids = [&](const FakeStream &capturing) {
      return &capturing == reinterpret_cast<FakeStream *>(stream) || forbidsUnsafeCalls(capturing);
    };
    if (breaksCapture(forbids))
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (state().streams)
      state().streams->finish(stream);
    const std::lock_guard lock(state().mutex);
    passUntilIdle();
    return CUDA_SUCCESS;
  };
  driver.streamWaitEvent.function = [](CUstream stream, CUevent event, unsigned) -> CUresult {
    FAKE_ENTER(cuStreamWaitEvent);
    if (state().streams && event)
      state().streams->wait(stream, event);
    return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; // what runs has run when its launch returns
  };
  driver.streamBeginCapture.function = [](CUstream stream, CUstreamCaptureMode mode) -> CUresult {
    FAKE_ENTER(cuStreamBeginCapture);
    auto *fake = reinterpret_cast<FakeStream *>(stream);
    fake->capture = ++state().lastCapture;
    fake->capturing = new FakeGraph;
    fake->last = nullptr;
    fake->mode = mode;
    fake->thread = std::this_thread::get_id();
    fake->isBroken = false;
    state().capturing.insert(fake);
    return CUDA_SUCCESS;
  };
  driver.streamEndCapture.function = [](CUstream stream, CUgraph *graph) -> CUresult {
    auto *fake = reinterpret_cast<FakeStream *>(stream);
    state().capturing.erase(fake);
    *graph = reinterpret_cast<CUgraph>(std::exchange(fake->capturing, nullptr));
    FAKE_ENTER(cuStreamEndCapture);
    if (fake->isBroken) {
      delete reinterpret_cast<FakeGraph *>(std::exchange(*graph, nullptr));
      return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    return CUDA_SUCCESS;
  };
  driver.streamGetCaptureInfo.function = [](CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *capture,
                                            CUgraph *graph, const CUgraphNode **dependencies, const CUgraphEdgeData **,
                                            std::size_t *count) -> CUresult {
    FAKE_ENTER(cuStreamGetCaptureInfo);
    if (isImplicit(stream))
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    const bool isDefault = stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    FakeGraph *capturing = isDefault ? nullptr : reinterpret_cast<FakeStream *>(stream)->capturing;
    *status = capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    *graph = reinterpret_cast<CUgraph>(capturing);
    if (capture && capturing)
      *capture = reinterpret_cast<FakeStream *>(stream)->capture;
    if (dependencies && capturing) {
      *dependencies = reinterpret_cast<const CUgraphNode *>(&reinterpret_cast<FakeStream *>(stream)->last);
      *count = reinterpret_cast<FakeStream *>(stream)->last ? 1 : 0;
    }
    return CUDA_SUCCESS;
  };
  driver.threadExchangeStreamCaptureMode.function = [](CUstreamCaptureMode *mode) {
    std::swap(captureMode, *mode);
    return CUDA_SUCCESS;
  };
  driver.eventCreate.function = [](CUevent *event, unsigned) -> CUresult {
    FAKE_ENTER(cuEventCreate);
    *event = reinterpret_cast<CUevent>(new FakeEvent);
    return CUDA_SUCCESS;
  };
  driver.eventDestroy.function = [](CUevent event) {
    if (state().streams)
      state().streams->destroy(event);
    delete reinterpret_cast<FakeEvent *>(event);
    return CUDA_SUCCESS;
  };
  driver.eventRecord.function = [](CUevent event, CUstream stream) -> CUresult {
    FAKE_ENTER(cuEventRecord);
    if (state().streams)
      state().streams->record(event, stream);
    const std::lock_guard lock(state().mutex);
    passUntilIdle();
    reinterpret_cast<FakeEvent *>(event)->at = threadClock().at;
    return CUDA_SUCCESS;
  };
  driver.eventQuery.function = [](CUevent event) -> CUresult {
    FAKE_ENTER(cuEventQuery);
    if (state().streams && !state().streams->isDone(event))
      return CUDA_ERROR_NOT_READY;
    return CUDA_SUCCESS;
  };
  driver.eventSynchronize.function = [](CUevent event) -> CUresult {
    FAKE_ENTER(cuEventSynchronize);
    if (state().streams)
      state().streams->finish(event);
    return CUDA_SUCCESS;
  };
  driver.eventElapsedTime.function = [](float *ms, CUevent start, CUevent end) -> CUresult {
    FAKE_ENTER(cuEventElapsedTime);
    *ms = static_cast<float>(
        (reinterpret_cast<FakeEvent *>(end)->at - reinterpret_cast<FakeEvent *>(start)->at).count() / 1e3);
    return CUDA_SUCCESS;
  };
}

/// The driver's convention for lists: the count alone, or as much as the caller has room for.
template <typename Item, typename Source> CUresult giveList(Item *items, std::size_t *count, const Source &source) {
  if (!items) {
    *count = source.size();
    return CUDA_SUCCESS;
  }
  std::copy_n(source.begin(), std::min(*count, source.size()), items);
  *count = source.size();
  return CUDA_SUCCESS;
}

void fillGraphCalls(Driver &driver) {
  driver.graphCreate.function = [](CUgraph *graph, unsigned) -> CUresult {
    FAKE_ENTER(cuGraphCreate);
    *graph = reinterpret_cast<CUgraph>(new FakeGraph);
    return CUDA_SUCCESS;
  };
  driver.graphDestroy.function = [](CUgraph graph) {
    delete graphOf(graph);
    return CUDA_SUCCESS;
  };
  driver.userObjectCreate.function = [](CUuserObject *object, void *user, CUhostFn destroy, unsigned references,
                                        unsigned flags) -> CUresult {
    FAKE_ENTER(cuUserObjectCreate);
    if (references != 1 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
      return CUDA_ERROR_INVALID_VALUE; // nobody needs the rest
    *object = reinterpret_cast<CUuserObject>(
        new std::shared_ptr<FakeUserObject>(new FakeUserObject{.destroy = destroy, .user = user}));
    return CUDA_SUCCESS;
  };
  driver.userObjectRelease.function = [](CUuserObject object, unsigned) {
    delete reinterpret_cast<std::shared_ptr<FakeUserObject> *>(object);
    return CUDA_SUCCESS;
  };
  driver.graphRetainUserObject.function = [](CUgraph graph, CUuserObject object, unsigned, unsigned flags) -> CUresult {
    FAKE_ENTER(cuGraphRetainUserObject);
    if (flags != CU_GRAPH_USER_OBJECT_MOVE)
      return CUDA_ERROR_INVALID_VALUE;
    auto *own = reinterpret_cast<std::shared_ptr<FakeUserObject> *>(object);
    graphOf(graph)->objects.push_back(std::move(*own));
    delete own;
    return CUDA_SUCCESS;
  };
  driver.graphClone.function = [](CUgraph *clone, CUgraph graph) -> CUresult {
    FAKE_ENTER(cuGraphClone);
    auto *copy = new FakeGraph;
    copyGraph(*graphOf(graph), *copy);
    *clone = reinterpret_cast<CUgraph>(copy);
    return CUDA_SUCCESS;
  };
  driver.graphNodeFindInClone.function = [](CUgraphNode *node, CUgraphNode original, CUgraph clone) -> CUresult {
    FAKE_ENTER(cuGraphNodeFindInClone);
    const auto found = graphOf(clone)->cloneOf.find(nodeOf(original));
    if (found == graphOf(clone)->cloneOf.end())
      return CUDA_ERROR_INVALID_VALUE;
    *node = handleOf(found->second);
    return CUDA_SUCCESS;
  };
  driver.graphGetNodes.function = [](CUgraph graph, CUgraphNode *nodes, std::size_t *count) -> CUresult {
    FAKE_ENTER(cuGraphGetNodes);
    std::vector<CUgraphNode> all;
    for (FakeNode &node : graphOf(graph)->nodes)
      all.push_back(handleOf(&node));
    return giveList(nodes, count, all);
  };
  driver.graphGetEdges.function = [](CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                                     std::size_t *count) -> CUresult {
    FAKE_ENTER(cuGraphGetEdges);
    const auto &edges = graphOf(graph)->edges;
    std::size_t i = 0;
    if (from)
      for (const auto &[ends, edgeData] : edges) {
        from[i] = handleOf(ends.first);
        to[i] = handleOf(ends.second);
        data[i++] = edgeData;
      }
    *count = edges.size();
    return CUDA_SUCCESS;
  };
  driver.graphNodeGetType.function = [](CUgraphNode node, CUgraphNodeType *type) -> CUresult {
    FAKE_ENTER(cuGraphNodeGetType);
    *type = nodeOf(node)->type;
    return CUDA_SUCCESS;
  };
  driver.graphKernelNodeGetParams.function = [](CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *params) -> CUresult {
    FAKE_ENTER(cuGraphKernelNodeGetParams);
    FakeNode *fake = nodeOf(node);
    *params = {};
    params->func = fake->kernel->handle();
    params->gridDimX = fake->grid[0];
    params->gridDimY = fake->grid[1];
    params->gridDimZ = fake->grid[2];
    params->blockDimX = fake->block[0];
    params->blockDimY = fake->block[1];
    params->blockDimZ = fake->block[2];
    if (fake->packed)
      params->extra = fake->extra.data();
    else
      params->kernelParams = fake->parameterPointers.data();
    return CUDA_SUCCESS;
  };
  driver.graphKernelNodeSetParams.function = [](CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS_v2 *params) -> CUresult {
    FAKE_ENTER(cuGraphKernelNodeSetParams);
    FakeNode *fake = nodeOf(node);
    if (params->func != fake->kernel->handle() || !params->kernelParams || params->extra)
      return CUDA_ERROR_INVALID_VALUE; // nobody needs the rest
    fake->grid = {params->gridDimX, params->gridDimY, params->gridDimZ};
    fake->block = {params->blockDimX, params->blockDimY, params->blockDimZ};
    std::vector<std::vector<char>> arguments; // what was handed out before may be what is given now
    for (std::size_t i = 0; i < fake->kernel->parameterBytes.size(); ++i) {
      const auto *bytes = static_cast<const char *>(params->kernelParams[i]);
      arguments.emplace_back(bytes, bytes + fake->kernel->parameterBytes[i]);
    }
    fake->arguments = std::move(arguments);
    fake->packed = false;
    settleParameters(*fake);
    return CUDA_SUCCESS;
  };
  driver.graphKernelNodeCopyAttributes.function = [](CUgraphNode to, CUgraphNode from) -> CUresult {
    FAKE_ENTER(cuGraphKernelNodeCopyAttributes);
    nodeOf(to)->attributes = nodeOf(from)->attributes;
    if (state().onClones)
      state().onClones(nodeOf(to)->kernel, nodeOf(to)->attributes);
    if (state().onArgumentsOfClones) {
      state().onArgumentsOfClones(nodeOf(to)->arguments);
      settleParameters(*nodeOf(to));
    }
    return CUDA_SUCCESS;
  };
  driver.graphKernelNodeGetAttribute.function = [](CUgraphNode node, CUkernelNodeAttrID attribute,
                                                   CUkernelNodeAttrValue_v1 *value) -> CUresult {
    FAKE_ENTER(cuGraphKernelNodeGetAttribute);
    if (attribute != CU_LAUNCH_ATTRIBUTE_COOPERATIVE && attribute != CU_LAUNCH_ATTRIBUTE_PRIORITY)
      return CUDA_ERROR_INVALID_VALUE; // nobody needs the rest
    const std::map<int, int> &attributes = nodeOf(node)->attributes;
    const auto found = attributes.find(attribute);
    *value = {};
    value->priority = found == attributes.end() ? 0 : found->second; // all are numbers, at the same place
    return CUDA_SUCCESS;
  };
  driver.graphMemcpyNodeGetParams.function = [](CUgraphNode node, CUDA_MEMCPY3D *params) -> CUresult {
    FAKE_ENTER(cuGraphMemcpyNodeGetParams);
    *params = nodeOf(node)->copy;
    return CUDA_SUCCESS;
  };
  driver.graphMemsetNodeGetParams.function = [](CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params) -> CUresult {
    FAKE_ENTER(cuGraphMemsetNodeGetParams);
    *params = nodeOf(node)->fill;
    return CUDA_SUCCESS;
  };
  driver.graphChildGraphNodeGetGraph.function = [](CUgraphNode node, CUgraph *child) -> CUresult {
    FAKE_ENTER(cuGraphChildGraphNodeGetGraph);
    *child = reinterpret_cast<CUgraph>(nodeOf(node)->child);
    return CUDA_SUCCESS;
  };
  driver.graphAddMemcpyNode.function = [](CUgraphNode *node, CUgraph graph, const CUgraphNode *after, std::size_t count,
                                          const CUDA_MEMCPY3D *copy, CUcontext) -> CUresult {
    FAKE_ENTER(cuGraphAddMemcpyNode);
    FakeNode *added = addNode(graphOf(graph), CU_GRAPH_NODE_TYPE_MEMCPY, after, count);
    added->copy = *copy;
    added->byProcessor = isByProcessor(*copy);
    *node = handleOf(added);
    return CUDA_SUCCESS;
  };
  driver.graphMemcpyNodeSetParams.function = [](CUgraphNode node, const CUDA_MEMCPY3D *copy) -> CUresult {
    FAKE_ENTER(cuGraphMemcpyNodeSetParams);
    nodeOf(node)->copy = *copy;
    nodeOf(node)->byProcessor = isByProcessor(*copy);
    return CUDA_SUCCESS;
  };
  driver.graphAddMemsetNode.function = [](CUgraphNode *node, CUgraph graph, const CUgraphNode *after, std::size_t count,
                                          const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext) -> CUresult {
    FAKE_ENTER(cuGraphAddMemsetNode);
    FakeNode *added = addNode(graphOf(graph), CU_GRAPH_NODE_TYPE_MEMSET, after, count);
    added->fill = *fill;
    *node = handleOf(added);
    return CUDA_SUCCESS;
  };
  driver.graphAddKernelNode.function = [](CUgraphNode *node, CUgraph graph, const CUgraphNode *after, std::size_t count,
                                          const CUDA_KERNEL_NODE_PARAMS *launch) -> CUresult {
    FAKE_ENTER(cuGraphAddKernelNode);
    if (state().cooperative.contains(reinterpret_cast<FakeKernel *>(launch->func)))
      return CUDA_ERROR_INVALID_VALUE;
    FakeNode *added = addNode(graphOf(graph), CU_GRAPH_NODE_TYPE_KERNEL, after, count);
    added->kernel = reinterpret_cast<FakeKernel *>(launch->func);
    added->grid = {launch->gridDimX, launch->gridDimY, launch->gridDimZ};
    added->block = {launch->blockDimX, launch->blockDimY, launch->blockDimZ};
    added->packed = launch->extra != nullptr;
    const char *packed =
        added->packed ? static_cast<const char *>(launch->extra[1]) : nullptr; // its buffer comes first
    for (std::size_t i = 0; i < added->kernel->parameterBytes.size(); ++i) {
      const std::size_t count = added->kernel->parameterBytes[i];
      const char *bytes = packed ? packed : static_cast<const char *>(launch->kernelParams[i]);
      added->arguments.emplace_back(bytes, bytes + count);
      packed = packed ? packed + count : nullptr;
    }
    settleParameters(*added);
    *node = handleOf(added);
    return CUDA_SUCCESS;
  };
  driver.graphAddEmptyNode.function = [](CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                         std::size_t count) -> CUresult {
    FAKE_ENTER(cuGraphAddEmptyNode);
    *node = handleOf(addNode(graphOf(graph), CU_GRAPH_NODE_TYPE_EMPTY, after, count));
    return CUDA_SUCCESS;
  };
  driver.graphAddBatchMemOpNode.function = [](CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                              std::size_t count,
                                              const CUDA_BATCH_MEM_OP_NODE_PARAMS *batch) -> CUresult {
    FAKE_ENTER(cuGraphAddBatchMemOpNode);
    constexpr unsigned most = 256;
    if (batch->count == 0 || batch->count > most)
      return CUDA_ERROR_INVALID_VALUE;
    FakeNode *added = addNode(graphOf(graph), CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, after, count);
    added->memOps.assign(batch->paramArray, batch->paramArray + batch->count);
    *node = handleOf(added);
    return CUDA_SUCCESS;
  };
  driver.graphBatchMemOpNodeGetParams.function = [](CUgraphNode node,
                                                    CUDA_BATCH_MEM_OP_NODE_PARAMS *batch) -> CUresult {
    FAKE_ENTER(cuGraphBatchMemOpNodeGetParams);
    *batch = {};
    batch->count = static_cast<unsigned>(nodeOf(node)->memOps.size());
    batch->paramArray = nodeOf(node)->memOps.data();
    return CUDA_SUCCESS;
  };
  driver.graphAddEventRecordNode.function = [](CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
                                               std::size_t count, CUevent event) -> CUresult {
    FAKE_ENTER(cuGraphAddEventRecordNode);
    FakeNode *added = addNode(graphOf(graph), CU_GRAPH_NODE_TYPE_EVENT_RECORD, after, count);
    added->event = event;
    *node = handleOf(added);
    return CUDA_SUCCESS;
  };
  driver.graphAddDependencies.function = [](CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                            const CUgraphEdgeData *data, std::size_t count) -> CUresult {
    FAKE_ENTER(cuGraphAddDependencies);
    for (std::size_t i = 0; i < count; ++i)
      if (!graphOf(graph)
               ->edges.try_emplace({nodeOf(from[i]), nodeOf(to[i])}, data ? data[i] : CUgraphEdgeData{})
               .second)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
  };
  driver.graphRemoveDependencies.function = [](CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                               const CUgraphEdgeData *data, std::size_t count) -> CUresult {
    FAKE_ENTER(cuGraphRemoveDependencies);
    for (std::size_t i = 0; i < count; ++i) {
      const auto edge = graphOf(graph)->edges.find({nodeOf(from[i]), nodeOf(to[i])});
      if (edge == graphOf(graph)->edges.end() || (data && data[i].type != edge->second.type))
        return CUDA_ERROR_INVALID_VALUE;
      graphOf(graph)->edges.erase(edge);
    }
    return CUDA_SUCCESS;
  };
  driver.graphDestroyNode.function = [](CUgraphNode node) -> CUresult {
    FAKE_ENTER(cuGraphDestroyNode);
    FakeNode *fake = nodeOf(node);
    FakeGraph *graph = fake->graph;
    std::erase_if(graph->edges,
                  [&](const auto &edge) { return edge.first.first == fake || edge.first.second == fake; });
    graph->nodes.remove_if([&](const FakeNode &other) { return &other == fake; });
    return CUDA_SUCCESS;
  };
  driver.graphInstantiate.function = [](CUgraphExec *exec, CUgraph graph, unsigned long long) -> CUresult {
    FAKE_ENTER(cuGraphInstantiateWithFlags);
    if (hasUnusableRange(*graphOf(graph)))
      return CUDA_ERROR_INVALID_VALUE;
    auto *made = new FakeExec;
    copyGraph(*graphOf(graph), made->graph);
    *exec = reinterpret_cast<CUgraphExec>(made);
    return CUDA_SUCCESS;
  };
  driver.graphLaunch.function = [](CUgraphExec exec, CUstream stream) -> CUresult {
    FAKE_ENTER(cuGraphLaunch);
    onStream(stream, [=] { launch(reinterpret_cast<FakeExec *>(exec)->graph); });
    return CUDA_SUCCESS;
  };
  driver.graphExecDestroy.function = [](CUgraphExec exec) {
    if (state().streams)
      state().streams->finishAll();
    delete reinterpret_cast<FakeExec *>(exec);
    return CUDA_SUCCESS;
  };
  driver.funcGetName.function = [](const char **name, CUfunction function) -> CUresult {
    FAKE_ENTER(cuFuncGetName);
    *name = reinterpret_cast<FakeKernel *>(function)->name.c_str();
    return CUDA_SUCCESS;
  };
  driver.kernelGetName.function = [](const char **, CUkernel) { return CUDA_ERROR_INVALID_VALUE; };
  driver.funcGetParamInfo.function = [](CUfunction function, std::size_t index, std::size_t *offset,
                                        std::size_t *bytes) -> CUresult {
    FAKE_ENTER(cuFuncGetParamInfo);
    const auto *kernel = reinterpret_cast<FakeKernel *>(function);
    if (index >= kernel->parameterBytes.size())
      return CUDA_ERROR_INVALID_VALUE;
    *offset = 0;
    for (std::size_t i = 0; i < index; ++i)
      *offset += kernel->parameterBytes[i];
    *bytes = kernel->parameterBytes[index];
    return CUDA_SUCCESS;
  };
  driver.kernelGetParamInfo.function = [](CUkernel, std::size_t, std::size_t *, std::size_t *) {
    return CUDA_ERROR_INVALID_VALUE;
  };
}

/// The kernels of runtime/memory/ByteProbe.cu, which graphs do not hold.
struct ProbeArguments {
  void **arguments;

  template <typename Value> Value at(std::size_t index) const { return *static_cast<Value *>(arguments[index]); }
  std::uint32_t *words(std::size_t index) const { return reinterpret_cast<std::uint32_t *>(at<CUdeviceptr>(index)); }
};

/// `first`: the position of the arguments that say how many words there are, where the first is, and the poison.
std::uint32_t poisonedWord(const ProbeArguments &given, const std::uint32_t *before, std::uint64_t at,
                           std::size_t first) {
  const bool isHigh = ((given.at<std::uint64_t>(first + 1) + at) & 1) != 0;
  const std::uint64_t partner = isHigh ? at - 1 : at + 1;
  return poisonOf(before[at], partner < given.at<std::uint64_t>(first) ? before[partner] : 0, isHigh,
                  given.at<PoisonKind>(first + 2), given.at<std::uint32_t>(first + 3));
}

void poisonWords(const ProbeArguments &given) {
  requireAccess(given.at<CUdeviceptr>(0), given.at<std::uint64_t>(2) * 4, "a poison");
  for (std::uint64_t at = 0; at < given.at<std::uint64_t>(2); ++at)
    given.words(0)[at] = poisonedWord(given, given.words(1), at, 2);
}

void countBytes(const ProbeArguments &given) {
  const std::uint64_t words = given.at<std::uint64_t>(3);
  for (const std::size_t index : {0, 1, 2})
    requireAccess(given.at<CUdeviceptr>(index), words * 4, "a count");
  auto *counts = reinterpret_cast<ByteCounts *>(given.at<CUdeviceptr>(7));
  for (std::uint64_t at = 0; at < words; ++at) {
    const std::uint32_t start = poisonedWord(given, given.words(1), at, 3);
    const std::uint32_t now = given.words(0)[at], clean = given.words(2)[at], before = given.words(1)[at];
    for (std::uint32_t shift = 0; shift < 32; shift += 8) {
      const auto differs = [&](std::uint32_t word) { return ((now ^ word) >> shift & 0xff) != 0; };
      counts->changed += differs(start) ? 1 : 0;
      counts->other += differs(clean) ? 1 : 0;
      counts->dependent += differs(start) && differs(clean) ? 1 : 0;
    }
    counts->poisoned += start != before ? 1 : 0;
    counts->nonzero += before != 0 ? 1 : 0;
  }
}

/// What runtime/memory/FillKernel.cu does.
void fillMemory(const FakeKernel::Arguments &arguments) {
  const auto target = argument<CUdeviceptr>(arguments, 0);
  const auto pitch = argument<std::uint64_t>(arguments, 1), rowBytes = argument<std::uint64_t>(arguments, 2);
  for (std::uint64_t row = 0; row < argument<std::uint64_t>(arguments, 3); ++row) {
    requireAccess(target + row * pitch, rowBytes, "a fill");
    for (std::uint64_t at = 0; at < rowBytes; ++at)
      reinterpret_cast<char *>(target + row * pitch)[at] = arguments[4][at % 4];
  }
}

FakeKernel &fillKernel() {
  static FakeKernel kernel{"pumpgraphFill", {8, 8, 8, 8, 4}, fillMemory};
  return kernel;
}

void fillModuleCalls(Driver &driver) {
  driver.moduleLoadData.function = [](CUmodule *module, const void *) -> CUresult {
    FAKE_ENTER(cuModuleLoadData);
    *module = reinterpret_cast<CUmodule>(&state());
    ++state().modules;
    return CUDA_SUCCESS;
  };
  driver.moduleUnload.function = [](CUmodule) -> CUresult {
    const std::lock_guard lock(state().mutex);
    if (contextStack().empty())
      return CUDA_ERROR_INVALID_CONTEXT;
    --state().modules;
    return CUDA_SUCCESS;
  };
  driver.moduleGetFunction.function = [](CUfunction *function, CUmodule, const char *name) -> CUresult {
    FAKE_ENTER(cuModuleGetFunction);
    if (name == fillKernel().name) {
      *function = fillKernel().handle();
      return CUDA_SUCCESS;
    }
    if (std::strcmp(name, "pumpgraphPoison") != 0 && std::strcmp(name, "pumpgraphCount") != 0)
      return CUDA_ERROR_NOT_FOUND;
    *function = reinterpret_cast<CUfunction>(std::strcmp(name, "pumpgraphPoison") == 0 ? poisonWords : countBytes);
    return CUDA_SUCCESS;
  };
  driver.launchKernel.function = [](CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                    unsigned, CUstream, void **arguments, void **) -> CUresult {
    FAKE_ENTER(cuLaunchKernel);
    reinterpret_cast<void (*)(const ProbeArguments &)>(function)({arguments});
    return CUDA_SUCCESS;
  };
}

} // namespace

FakeDriver::FakeDriver(const Options &options) : state_(std::make_unique<State>()), table_(std::make_shared<Driver>()) {
  assert(!live && "one fake driver at a time");
  live = state_.get();
  ++drivers;
  state_->options = options;
  state_->random.seed(options.seed);
  if (options.deferringSeed != 0)
    state_->streams = std::make_unique<FakeStreams>(options.deferringSeed, options.queueLength);
  state_->file = memfd_create("device", 0);
  const double faster = speedFactor();
  for (double *speed :
       {&state_->options.upBytesPerSecond, &state_->options.downBytesPerSecond, &state_->options.deviceBytesPerSecond})
    *speed *= faster;
  state_->options.nodeMicroseconds /= faster;
  table_->now = readClock;
  table_->getErrorName = fakeErrorName;
  fillDeviceCalls(*table_);
  fillPointerCalls(*table_);
  fillMemoryCalls(*table_);
  fillManagedCalls(*table_);
  fillStreamCalls(*table_);
  fillGraphCalls(*table_);
  fillModuleCalls(*table_);
  table_->bind();
}

FakeDriver::~FakeDriver() {
  for (const auto &[address, bytes] : state_->reservations)
    munmap(reinterpret_cast<void *>(address), bytes);
  for (const auto &[address, bytes] : state_->managed)
    munmap(reinterpret_cast<void *>(address), bytes);
  close(state_->file);
  live = nullptr;
}

LinkSpeed FakeDriver::link() const {
  const Options &speeds = state_->options;
  return {speeds.upBytesPerSecond, speeds.downBytesPerSecond,
          2 * std::min(speeds.upBytesPerSecond, speeds.downBytesPerSecond)};
}

void FakeDriver::leaveOfLink(double share) {
  const std::lock_guard lock(state_->mutex);
  state_->options.upBytesPerSecond *= share;
  state_->options.downBytesPerSecond *= share;
}

void FakeDriver::failCall(const std::string &symbol, int nth, CUresult result) {
  const std::lock_guard lock(state_->mutex);
  state_->failures[symbol] = {state_->calls[symbol] + static_cast<std::uint64_t>(nth), result};
}

bool FakeDriver::stopFailing(const std::string &symbol) {
  const std::lock_guard lock(state_->mutex);
  const auto failure = state_->failures.find(symbol);
  const bool came = failure != state_->failures.end() && failure->second.first <= state_->calls[symbol];
  state_->failures.erase(symbol);
  return came;
}

CUstream FakeDriver::createStream() {
  return reinterpret_cast<CUstream>(new FakeStream);
}
CUgraph FakeDriver::createGraph() {
  return reinterpret_cast<CUgraph>(new FakeGraph);
}
void FakeDriver::destroyGraph(CUgraph graph) {
  delete graphOf(graph);
}

CUgraphNode FakeDriver::addKernel(CUgraph graph, std::initializer_list<CUgraphNode> after, FakeKernel &kernel,
                                  const std::vector<std::vector<char>> &arguments, bool packed) {
  FakeNode *node = addNode(graphOf(graph), CU_GRAPH_NODE_TYPE_KERNEL, after.begin(), after.size());
  node->kernel = &kernel;
  node->arguments = arguments;
  node->packed = packed;
  settleParameters(*node);
  return handleOf(node);
}

void FakeDriver::setAttribute(CUgraphNode kernel, CUkernelNodeAttrID attribute, int value) {
  nodeOf(kernel)->attributes[attribute] = value;
  if (attribute == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && value != 0)
    state_->cooperative.insert(nodeOf(kernel)->kernel);
}

void FakeDriver::onArgumentsOfClones(std::function<void(std::vector<std::vector<char>> &)> change) {
  state_->onArgumentsOfClones = std::move(change);
}

void FakeDriver::onClones(std::function<void(FakeKernel *&, std::map<int, int> &)> change) {
  state_->onClones = std::move(change);
}

void FakeDriver::setLaunch(CUgraphNode kernel, const std::array<unsigned, 3> &grid,
                           const std::array<unsigned, 3> &block) {
  nodeOf(kernel)->grid = grid;
  nodeOf(kernel)->block = block;
}

CUgraphNode FakeDriver::addCopy(CUgraph graph, std::initializer_list<CUgraphNode> after, void *target,
                                const void *source, std::uint64_t bytes) {
  FakeNode *node = addNode(graphOf(graph), CU_GRAPH_NODE_TYPE_MEMCPY, after.begin(), after.size());
  // A capture refuses to copy from or to addresses that nothing stands behind.
  requireAccess(reinterpret_cast<std::uintptr_t>(source), bytes, "a captured copy");
  requireAccess(reinterpret_cast<std::uintptr_t>(target), bytes, "a captured copy");
  // As captured copies report it: the type tells nothing.
  node->copy.srcMemoryType = node->copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  node->copy.srcDevice = reinterpret_cast<std::uintptr_t>(source);
  node->copy.dstDevice = reinterpret_cast<std::uintptr_t>(target);
  node->copy.WidthInBytes = bytes;
  node->copy.Height = node->copy.Depth = 1;
  node->byProcessor = isByProcessor(node->copy);
  return handleOf(node);
}

CUgraphNode FakeDriver::addFill(CUgraph graph, std::initializer_list<CUgraphNode> after, void *target,
                                unsigned char value, std::uint64_t bytes) {
  FakeNode *node = addNode(graphOf(graph), CU_GRAPH_NODE_TYPE_MEMSET, after.begin(), after.size());
  node->fill.dst = reinterpret_cast<std::uintptr_t>(target);
  node->fill.value = value;
  node->fill.elementSize = 1;
  node->fill.width = bytes;
  node->fill.height = 1;
  return handleOf(node);
}

CUgraphNode FakeDriver::addChild(CUgraph graph, std::initializer_list<CUgraphNode> after, CUgraph child) {
  FakeNode *node = addNode(graphOf(graph), CU_GRAPH_NODE_TYPE_GRAPH, after.begin(), after.size());
  node->child = graphOf(child);
  return handleOf(node);
}

CUgraphNode FakeDriver::addPlain(CUgraph graph, std::initializer_list<CUgraphNode> after, CUgraphNodeType type) {
  return handleOf(addNode(graphOf(graph), type, after.begin(), after.size()));
}

void FakeDriver::makeEdgesProgrammatic(CUgraph graph) {
  for (auto &[ends, data] : graphOf(graph)->edges)
    if (ends.first->type == CU_GRAPH_NODE_TYPE_KERNEL && ends.second->type == CU_GRAPH_NODE_TYPE_KERNEL) {
      data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
      data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
    }
}

void FakeDriver::runLater(CUstream stream, FakeKernel &kernel, std::vector<std::vector<char>> arguments) {
  const auto pointers = [arguments = std::move(arguments)] {
    FakeKernel::Arguments each;
    for (const std::vector<char> &bytes : arguments)
      each.push_back(bytes.data());
    return each;
  };
  std::function<bool()> mayRun;
  if (kernel.mayRun)
    mayRun = [&kernel, pointers] { return kernel.mayRun(pointers()); };
  onStream(stream, [&kernel, pointers] { kernel.body(pointers()); }, std::move(mayRun));
}

void FakeDriver::finish() {
  if (state_->streams)
    state_->streams->finishAll();
}

bool FakeDriver::isBlocking(CUstream stream) {
  return !state_->streams || state_->streams->isBlocking(stream);
}

void FakeDriver::launch(CUstream stream, FakeKernel &kernel, const std::vector<std::vector<char>> &arguments) {
  auto *fake = reinterpret_cast<FakeStream *>(stream);
  auto *graph = reinterpret_cast<CUgraph>(fake->capturing);
  const CUgraphNode node = fake->last ? addKernel(graph, {handleOf(fake->last)}, kernel, arguments)
                                      : addKernel(graph, {}, kernel, arguments);
  fake->last = nodeOf(node);
}

void FakeDriver::fill(CUstream stream, void *target, unsigned char value, std::uint64_t bytes) {
  auto *fake = reinterpret_cast<FakeStream *>(stream);
  auto *graph = reinterpret_cast<CUgraph>(fake->capturing);
  const CUgraphNode node = fake->last ? addFill(graph, {handleOf(fake->last)}, target, value, bytes)
                                      : addFill(graph, {}, target, value, bytes);
  fake->last = nodeOf(node);
}

void FakeDriver::makeStrided(CUgraphNode copy, std::size_t rows, std::size_t pitch) {
  CUDA_MEMCPY3D &parameters = nodeOf(copy)->copy;
  parameters.Height = rows;
  parameters.srcPitch = parameters.dstPitch = pitch;
}

void FakeDriver::setDevices(int count) {
  state_->options.devices = count;
}

bool FakeDriver::shortenCopies(CUgraph graph, CUmemorytype source) {
  bool found = false;
  for (FakeNode &node : graphOf(graph)->nodes)
    if (node.type == CU_GRAPH_NODE_TYPE_MEMCPY && node.copy.srcMemoryType == source) {
      node.copy.WidthInBytes /= 2;
      found = true;
    }
  return found;
}

std::uint64_t FakeDriver::deviceFrames() const {
  std::uint64_t bytes = 0;
  for (const auto &[id, handle] : state_->handles)
    bytes += handle.onDevice ? handle.bytes : 0;
  return bytes / pageSize;
}

std::uint64_t FakeDriver::hostBackings() const {
  return static_cast<std::uint64_t>(std::count_if(state_->handles.begin(), state_->handles.end(),
                                                  [](const auto &entry) { return !entry.second.onDevice; }));
}

std::uint64_t FakeDriver::graphNodes(CUgraph graph) const {
  return graphOf(graph)->nodes.size();
}

std::string FakeDriver::print(CUgraph graph) const {
  std::string text;
  for (const FakeNode &node : graphOf(graph)->nodes) {
    text += fmt::format("node {} type {}", node.id, static_cast<int>(node.type));
    for (const std::vector<char> &argument : node.arguments) {
      text += ' ';
      for (const char byte : argument)
        text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    }
    for (const auto &[attribute, value] : node.attributes)
      text += fmt::format(" attribute {} {}", attribute, value);
    text += '\n';
  }
  std::set<std::string> edges;
  for (const auto &[ends, data] : graphOf(graph)->edges)
    edges.insert(fmt::format("edge {} {} type {}\n", ends.first->id, ends.second->id, data.type));
  for (const std::string &edge : edges)
    text += edge;
  return text;
}

void FakeDriver::addOutside(void *address, std::size_t bytes, bool isOnHost) {
  state_->outside.push_back({reinterpret_cast<CUdeviceptr>(address), bytes, isOnHost});
}

bool FakeDriver::isMapped(const void *address) const {
  return isAccessible(reinterpret_cast<std::uintptr_t>(address), 1);
}

bool FakeDriver::isOnDevice(const void *address) const {
  return isMapped(address) && !isHostBacked(reinterpret_cast<std::uintptr_t>(address));
}

bool FakeDriver::isReachedByProcessor(const void *address) const {
  return isProcessors(reinterpret_cast<std::uintptr_t>(address));
}

std::uint64_t FakeDriver::managedPagesOnDevice() const {
  const std::lock_guard lock(state_->mutex);
  return state_->managedOnDevice.size();
}

std::uint64_t FakeDriver::advisedPages(CUmem_advise advice) const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<std::uint64_t>(std::count_if(state_->advice.begin(), state_->advice.end(),
                                                  [&](const auto &given) { return given.second == advice; }));
}

std::uint64_t FakeDriver::contexts() const {
  const std::lock_guard lock(state_->mutex);
  return state_->contexts.size();
}

CUcontext FakeDriver::primaryContext() const {
  CUcontext context = nullptr;
  table_->devicePrimaryCtxRetain.raw(&context, 0);
  return context;
}

std::vector<FakeDriver::Move> FakeDriver::moves() const {
  const std::lock_guard lock(state_->mutex);
  return state_->moves;
}

void FakeDriver::slowMoves(std::chrono::microseconds time, std::uint64_t count) {
  const std::lock_guard lock(state_->mutex);
  state_->moveTime = time;
  state_->slowMoves = count;
}

void FakeDriver::gatherMoves(std::uint64_t count) {
  const std::lock_guard lock(state_->mutex);
  state_->gathered = count;
}

std::uint64_t FakeDriver::managedBytes() const {
  std::uint64_t bytes = 0;
  for (const auto &[address, size] : state_->managed)
    bytes += size;
  return bytes;
}

std::uint64_t FakeDriver::callsOf(const std::string &symbol) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->calls.find(symbol);
  return found == state_->calls.end() ? 0 : found->second;
}

std::uint64_t FakeDriver::loadedModules() const {
  const std::lock_guard lock(state_->mutex);
  return state_->modules;
}

} // namespace pumpgraph::runtime::test
