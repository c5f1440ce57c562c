// SPDX-License-Identifier: Apache-2.0
/// \file
/// A CUDA driver in memory, for tests without a GPU: address ranges whose pages are really aliased, graphs that really
/// run, on the processor.
#pragma once

#include "runtime/driver/Driver.h"
#include "runtime/link/Link.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace pumpgraph::runtime::test {

/// A kernel: its parameters' sizes and what it does with them.
struct FakeKernel {
  using Arguments = std::vector<const char *>; ///< one pointer for each parameter's bytes
  std::string name;
  std::vector<std::size_t> parameterBytes;
  std::function<void(const Arguments &)> body;
  double milliseconds = 0;                            ///< that it takes, beside what every node takes
  std::function<bool(const Arguments &)> mayRun = {}; ///< whether a kernel that waits for the program may go on

  CUfunction handle() { return reinterpret_cast<CUfunction>(this); }
};

/// Reads a parameter.
template <typename Value> Value argument(const FakeKernel::Arguments &arguments, std::size_t index) {
  Value value;
  std::memcpy(&value, arguments[index], sizeof value);
  return value;
}

struct FakeNode;
struct FakeGraph;

/// The state behind the driver table. One at a time: the driver's functions are plain C functions.
///
/// Addresses are real ones of this process, frames are pages of a memory file, so a frame mapped twice is one memory at
/// two addresses. A graph's nodes run in a legal order drawn at random. Kernels, copies and fills of unmapped addresses
/// stop the test with a message. So does a wait for a word that nobody writes. What an agent calls from its threads may
/// be called from any thread. Managed memory that is discarded holds garbage.
///
/// Time is virtual: nodes, copies and moves take what the options say, whatever this machine takes for them. What tests
/// assert has to hold on a machine of any speed: the environment variable PUMPGRAPH_FAKE_SPEED multiplies the speeds.
/// Each thread has a clock of its own. One that reads it twice without a call in between has waited for other threads,
/// and reads the latest time of all.
class FakeDriver {
public:
  struct Options {
    std::uint64_t deviceBytes = std::uint64_t{1} << 30;
    int devices = 1;
    bool grantsHint = true;
    bool supportsVirtualMemory = true;
    bool supportsManagedMemory = true;
    std::uint64_t managedPlace = 0; ///< where managed memory comes to be; 0: as the kernel chooses
    bool supportsDiscard = true;
    double upBytesPerSecond = 10e9;     ///< of the link
    double downBytesPerSecond = 10e9;   ///< of the link, also while the other direction is busy
    double deviceBytesPerSecond = 1e12; ///< that are copied or filled
    double nodeMicroseconds = 2;        ///< that every node of a graph and every move takes beside its work
    // As stated, whatever the speed is multiplied by.
    std::array<int, 2> computeCapability{9, 0};
    int multiprocessors = 100;
    int clockMegahertz = 1000;
    double clockMilliseconds = 0; ///< that an event record in a graph takes on the device
    double copyMilliseconds = 0;  ///< that a copy in a graph takes; one after another, beside all other nodes
    std::uint32_t seed = 1;       ///< of the order in which unordered nodes run
    /// Not 0: work on streams runs later than it is asked for, in an order drawn with this seed (FakeStreams.h).
    std::uint32_t deferringSeed = 0;
    /// Of such a stream, as real ones have it: work beyond which calls wait for room; 0: none.
    std::size_t queueLength = 0;
  };

  explicit FakeDriver(const Options &options);
  FakeDriver() : FakeDriver(Options{}) {}
  ~FakeDriver();
  FakeDriver(const FakeDriver &) = delete;
  FakeDriver &operator=(const FakeDriver &) = delete;

  std::shared_ptr<const Driver> table() const { return table_; }

  /// Of the link, as a session measures it.
  LinkSpeed link() const;
  /// What other processes leave of it from now on.
  void leaveOfLink(double share);

  /// Of sessions opened from now on.
  void setKernelQueues(int count) { table_->kernelQueues.count = count; }

  /// The `nth` call (from 1) of the named driver function from now on fails with `result`.
  void failCall(const std::string &symbol, int nth, CUresult result);
  /// No call of it fails any more. Whether the one that was to fail has come: how many calls of a function there are
  /// can depend on how long something took.
  bool stopFailing(const std::string &symbol);

  // What a program would do with the CUDA runtime.
  CUstream createStream();
  CUgraph createGraph();
  void destroyGraph(CUgraph graph);
  /// Every argument is bytes: `bytesOf(pointer)`, `bytesOf(struct)`. `packed` gives them to the driver as one buffer.
  CUgraphNode addKernel(CUgraph graph, std::initializer_list<CUgraphNode> after, FakeKernel &kernel,
                        const std::vector<std::vector<char>> &arguments, bool packed = false);
  /// Of a kernel; without it one block of one thread.
  void setLaunch(CUgraphNode kernel, const std::array<unsigned, 3> &grid, const std::array<unsigned, 3> &block);
  /// A launch attribute of a kernel. Where it makes the launch cooperative, the driver adds no node of that kernel to a
  /// graph any more.
  void setAttribute(CUgraphNode kernel, CUkernelNodeAttrID attribute, int value);
  /// `change` sees each node that got the attributes of another, and may give it another kernel or other attributes.
  void onClones(std::function<void(FakeKernel *&kernel, std::map<int, int> &attributes)> change);
  /// The same of their arguments.
  void onArgumentsOfClones(std::function<void(std::vector<std::vector<char>> &arguments)> change);
  CUgraphNode addCopy(CUgraph graph, std::initializer_list<CUgraphNode> after, void *target, const void *source,
                      std::uint64_t bytes);
  CUgraphNode addFill(CUgraph graph, std::initializer_list<CUgraphNode> after, void *target, unsigned char value,
                      std::uint64_t bytes);
  CUgraphNode addChild(CUgraph graph, std::initializer_list<CUgraphNode> after, CUgraph child);
  CUgraphNode addPlain(CUgraph graph, std::initializer_list<CUgraphNode> after, CUgraphNodeType type);
  /// Turns every edge between two kernels into a programmatic one. They run in order all the same.
  void makeEdgesProgrammatic(CUgraph graph);
  /// Makes memory of this process an allocation that the program has from elsewhere than the session.
  void addOutside(void *address, std::size_t bytes, bool isOnHost);
  /// Launches on a capturing stream: adds a node after the stream's last.
  void launch(CUstream stream, FakeKernel &kernel, const std::vector<std::vector<char>> &arguments);
  void fill(CUstream stream, void *target, unsigned char value, std::uint64_t bytes);
  /// Launches on a stream that is not captured.
  void runLater(CUstream stream, FakeKernel &kernel, std::vector<std::vector<char>> arguments);
  /// All that was asked for has run.
  void finish();
  bool isBlocking(CUstream stream);

  /// Makes a copy one of `rows` rows, `pitch` bytes apart.
  void makeStrided(CUgraphNode copy, std::size_t rows, std::size_t pitch);
  void setDevices(int count);
  /// Cuts all copies whose sources have this memory type to half their sizes. False if there is none.
  bool shortenCopies(CUgraph graph, CUmemorytype source);

  // What a test looks at.
  std::uint64_t deviceFrames() const;
  std::uint64_t hostBackings() const;
  std::uint64_t graphNodes(CUgraph graph) const;
  /// Nodes, kernels' parameters and edges as text, equal for equal graphs.
  std::string print(CUgraph graph) const;
  bool isMapped(const void *address) const;
  /// Whether it is mapped to device memory.
  bool isOnDevice(const void *address) const;
  /// Whether it is mapped to host memory that the processor may reach there, too.
  bool isReachedByProcessor(const void *address) const;
  std::uint64_t callsOf(const std::string &symbol) const;
  /// Modules that were loaded and not unloaded in their context.
  std::uint64_t loadedModules() const;
  /// Of pages of managed memory: those that were last brought to the device.
  std::uint64_t managedPagesOnDevice() const;
  /// Of pages of managed memory: those for which this was said and not taken back. `advice` is one of the SET kind.
  std::uint64_t advisedPages(CUmem_advise advice) const;
  CUcontext primaryContext() const;
  /// Contexts beside the primary one.
  std::uint64_t contexts() const;
  /// What was moved of managed memory, and the context that was current then.
  struct Move {
    CUdeviceptr address = 0;
    std::uint64_t bytes = 0;
    bool toHost = false;
    CUcontext context = nullptr;
  };
  std::vector<Move> moves() const;
  /// What each of them takes more, or each of the next `count`. Time really passes, too.
  void slowMoves(std::chrono::microseconds time, std::uint64_t count = UINT64_MAX);
  /// The next `count` of them wait for each other: as many threads have to come.
  void gatherMoves(std::uint64_t count);
  std::uint64_t managedBytes() const;

  struct State;
  State &state() { return *state_; }

private:
  std::unique_ptr<State> state_;
  std::shared_ptr<Driver> table_;
};

template <typename Value> std::vector<char> bytesOf(const Value &value) {
  const auto *bytes = reinterpret_cast<const char *>(&value);
  return {bytes, bytes + sizeof value};
}

} // namespace pumpgraph::runtime::test
