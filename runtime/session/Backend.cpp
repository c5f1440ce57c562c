// SPDX-License-Identifier: Apache-2.0
// Whether a session's memory is virtual or managed.
#include "pumpgraph/graph/Ranges.h"
#include "runtime/session/ManagedAdvice.h"
#include "runtime/session/Step.h"

#include <algorithm>
#include <utility>

namespace pumpgraph::runtime {

Expected<bool> Session::chooseManaged(CUdevice device) {
  const auto supports = [&](CUdevice_attribute attribute) -> Expected<bool> {
    int supported = 0;
    PUMPGRAPH_TRY_WHILE(driver_->deviceGetAttribute(&supported, attribute, device), "opening device {}", device);
    return supported != 0;
  };
  struct Need {
    CUdevice_attribute attribute;
    const char *what;
  };
  const auto missing = [&](std::initializer_list<Need> needs) -> Expected<std::string> {
    for (const Need &need : needs) {
      const Expected<bool> there = supports(need.attribute);
      if (!there)
        return tl::unexpected<Error>(there.error());
      if (!*there)
        return std::string(need.what);
    }
    return std::string();
  };
  const Expected<std::string> forVirtual = missing(
      {{CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory management"},
       {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "host memory behind virtual addresses"}});
  if (!forVirtual)
    return tl::unexpected<Error>(forVirtual.error());
  const bool wantsManaged = options_.backend == BackendChoice::Managed ||
                            (options_.backend == BackendChoice::Automatic && !forVirtual->empty());
  if (!wantsManaged && !forVirtual->empty())
    return fail(PUMPGRAPH_NO_DRIVER, "device {} does not support {}: a data-centre or desktop GPU since Volta does",
                device, *forVirtual);
  const bool isChosen = options_.backend == BackendChoice::Automatic;
  if (!wantsManaged) {
    backendWhy_ = isChosen ? "virtual memory, because the device supports it" : "virtual memory, as asked for";
    return false;
  }
  const Expected<std::string> forManaged =
      missing({{CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, "access to managed memory from both sides at once"}});
  if (!forManaged)
    return tl::unexpected<Error>(forManaged.error());
  if (!forManaged->empty())
    return fail(PUMPGRAPH_NO_DRIVER, "device {} does not support {}: a data-centre GPU under Linux does", device,
                *forManaged);
  backendWhy_ = isChosen ? fmt::format("managed memory, because the device does not support {}", *forVirtual)
                         : "managed memory, as asked for";
  return true;
}

Status Session::openArena() {
  std::size_t free = 0, total = 0;
  PUMPGRAPH_TRY_WHILE(driver_->memGetInfo(&free, &total), "reserving a managed arena");
  deviceFreeBytes_ = free;
  std::uint64_t bytes = options_.managedBytes;
  if (bytes == 0)
    bytes = std::min<std::uint64_t>(options_.managedGuard.limitBytes, free / pageBytes * pageBytes);
  Expected<std::unique_ptr<ManagedArena>> arena = ManagedArena::reserve(*driver_, bytes, options_.managedGuard);
  if (!arena)
    return tl::unexpected<Error>(arena.error());
  arena_ = std::move(*arena);
  addresses_ = AddressSpace::within(*driver_, arena_->base(), arena_->bytes());
  return {};
}

Expected<std::uint64_t> Session::bytesForManaged() const {
  if (options_.backend != BackendChoice::Automatic)
    return 0;
  int canBeManaged = 0;
  PUMPGRAPH_TRY_WHILE(driver_->deviceGetAttribute(&canBeManaged, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
                                                  static_cast<CUdevice>(options_.device)),
                      "opening device {}", options_.device);
  std::size_t free = 0, total = 0;
  PUMPGRAPH_TRY_WHILE(driver_->memGetInfo(&free, &total), "opening device {}", options_.device);
  const std::uint64_t most = std::min<std::uint64_t>(options_.managedGuard.limitBytes, free);
  const std::uint64_t wanted = options_.managedBytes == 0 ? most : std::min(options_.managedBytes, most);
  return canBeManaged ? wanted / ManagedArena::placeUnit * ManagedArena::placeUnit : 0;
}

bool Session::hasValue(const Block &block) const {
  if (heap_->isInUse(block))
    return !heap_->isOfCapture(block);
  return std::any_of(steps_.begin(), steps_.end(), [&](const std::unique_ptr<Step> &step) {
    const CapturedStep &captured = step->captured_;
    const auto found = std::find(captured.blocks.begin(), captured.blocks.end(), block.id);
    if (found == captured.blocks.end())
      return std::find(captured.besides.begin(), captured.besides.end(), block.id) != captured.besides.end();
    const Buffer &buffer = captured.description.buffers[static_cast<std::size_t>(found - captured.blocks.begin())];
    return buffer.liveIn || buffer.liveOut || !(step->rewritten() || step->isManaged());
  });
}

std::vector<BlockId> Session::blocksWithValues() const {
  std::vector<BlockId> blocks = heap_->blocks();
  std::erase_if(blocks, [&](BlockId id) { return !heap_->block(id).hasMemory() || !hasValue(heap_->block(id)); });
  return blocks;
}

std::string Session::obstacleToExchange() const {
  if (heap_->capturing())
    return "a capture is running";
  std::uint64_t bytes = 0;
  for (const BlockId id : blocksWithValues())
    bytes += heap_->block(id).bytes();
  if (bytes > availableHostBytes())
    return fmt::format("on the way {} have to be in host memory; the system has {} left", bytesText(bytes),
                       bytesText(availableHostBytes()));
  // Whoever instantiated a graph has copies and fills in there that go by the memory that was.
  if (!otherGraphs_.empty())
    return "the program has captured graphs of its own, with nodes that may go by the memory that they were captured "
           "on";
  const auto goesByMemory = [](const Node &node) {
    return node.kind != NodeKind::Kernel && node.kind != NodeKind::Empty;
  };
  for (const std::unique_ptr<Step> &step : steps_) {
    const std::vector<Node> &nodes = step->captured().nodes;
    if (!step->rewritten() && !step->isManaged() && std::any_of(nodes.begin(), nodes.end(), goesByMemory))
      return fmt::format("the session has \"{}\", which was left as captured, with nodes that go by the memory that it "
                         "was captured on",
                         step->captured().name);
  }
  return "";
}

void Session::everyBlockIsLost() {
  const std::vector<BlockId> blocks = heap_->blocks();
  lostBlocks_.insert(blocks.begin(), blocks.end());
  memoryIsLost_ = true;
}

Expected<std::vector<Heap::Contents>> Session::takeMemoryAway() {
  PUMPGRAPH_TRY(takePlanBack());
  for (const BlockId block : heap_->blocks())
    if (heap_->block(block).backing == Backing::Planned)
      return fail(PUMPGRAPH_INTERNAL, "buffers lost their memory in an earlier failure, which keeps their addresses");
  PUMPGRAPH_TRY_WHILE(driver_->ctxSynchronize(), "waiting for the device before memory is exchanged");
  for (const std::unique_ptr<Step> &step : steps_)
    if (step->isManaged()) // evictions go on after a replay
      PUMPGRAPH_TRY_WHILE(step->managed_->waitUntilIdle(), "waiting for the agent of \"{}\"",
                          step->captured_.description.name);
  PUMPGRAPH_TRY_WHILE(driver_->ctxSynchronize(), "waiting for the device before memory is exchanged");
  auto taken = heap_->takeMemoryAway([this](const Block &block) { return hasValue(block); }, stream_);
  if (taken)
    return taken;
  for (const BlockId id : heap_->blocks())
    if (const Block &block = heap_->block(id); hasValue(block) && !block.hasMemory())
      everyBlockIsLost();
  return inContext(taken.error(), "taking memory away for that of another kind");
}

Status Session::putManagedMemory(const std::vector<Heap::Contents> &values) {
  frames_->giveBackFree();
  std::size_t free = 0, total = 0;
  (void)driver_->memGetInfo.raw(&free, &total); // else the warnings of steps are of a device that has nothing free
  Expected<std::unique_ptr<ManagedArena>> arena =
      ManagedArena::reserveInFrontOf(*driver_, *addresses_, options_.managedGuard);
  if (!arena)
    return tl::unexpected<Error>(arena.error());
  arena_ = std::move(*arena);
  managed_ = true;
  deviceFreeBytes_ = free;
  Status settled = heap_->becomeManaged(values, stream_);
  for (const std::unique_ptr<Step> &step : steps_)
    if (settled && step->isManaged())
      settled = step->managed_->settle(options_.device, stream_, step->plan_.lowered);
  return settled;
}

Expected<std::string> Session::moveToManaged() {
  if (std::string obstacle = obstacleToExchange(); !obstacle.empty())
    return obstacle;
  PUMPGRAPH_TRY(heap_->flushCache()); // what only the cache has may lie anywhere
  if (!addresses_->isAllInFront())
    return fmt::format("the session's buffers do not fit into {} of addresses, as much as managed memory may have",
                       bytesText(addresses_->frontBytes()));
  const Expected<std::vector<Heap::Contents>> taken = takeMemoryAway();
  if (!taken)
    return tl::unexpected<Error>(taken.error());
  const Status put = putManagedMemory(*taken);
  if (!put && (managed_ || put.error().status == PUMPGRAPH_INTERNAL)) {
    everyBlockIsLost();
    return inContext(put.error(), "bringing values to managed memory");
  }
  if (!put) {
    if (const Status given = heap_->giveMemoryBack(*taken, stream_); !given) {
      everyBlockIsLost();
      return inContext(given.error(), fmt::format("giving memory back after {}", put.error().message));
    }
    return put.error().message;
  }
  if (std::exchange(options_.processMemory, nullptr))
    notes_.push_back(fmt::format("the budget is that of buffers alone, not of the process, which left them {}: what of "
                                 "managed memory is on the device is the driver's choice",
                                 bytesText(frames_->budgetFrames() * pageBytes)));
  return std::string();
}

/// Of the host memory that values take where the budget ends: a block is in frames or in host memory as a whole.
std::uint64_t Session::bytesBeyondBudget() const {
  std::uint64_t frames = frames_->available(), bytes = 0;
  for (const BlockId id : blocksWithValues()) {
    const Block &block = heap_->block(id);
    if (block.pages <= frames)
      frames -= block.pages;
    else
      bytes += block.bytes();
  }
  return bytes;
}

Expected<std::string> Session::moveToVirtual() {
  if (std::string obstacle = obstacleToExchange(); !obstacle.empty())
    return obstacle;
  PUMPGRAPH_TRY(heap_->flushCache());
  if (const Status room = host_->checkRoom(bytesBeyondBudget(), "leaving managed memory"); !room)
    return room.error().message;
  const Expected<std::vector<Heap::Contents>> taken = takeMemoryAway();
  if (!taken)
    return tl::unexpected<Error>(taken.error());
  arena_.reset();
  managed_ = false;
  const Status addressed = addresses_->takeFront();
  // Even if not: what is allocated from now on fails then, for lack of addresses.
  const Status settled = heap_->becomeVirtual(addressed ? *taken : std::vector<Heap::Contents>(), stream_);
  if (addressed && settled)
    return std::string();
  const Error why = addressed ? settled.error() : addressed.error();
  // The device may have less than the budget, and the host less than its limit. All values are still here.
  Status back = addressed ? Status{} : tl::unexpected<Error>(why);
  if (const auto none = [](const Block &) { return false; }; back)
    if (const auto dropped = heap_->takeMemoryAway(none, stream_); !dropped)
      back = tl::unexpected<Error>(dropped.error());
  if (back)
    back = putManagedMemory(*taken);
  if (back)
    return why.message;
  everyBlockIsLost();
  return inContext(back.error(), fmt::format("returning to managed memory after {}", why.message));
}

bool Session::hasManagedStep() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const std::unique_ptr<Step> &step) { return step->isManaged(); });
}

void Session::takeAdviceBack(const Step &step, const Description &lowered) {
  const auto givenNowhereElse = [&](const Node &given) {
    const BlockId block = step.captured_.blocks[given.buffer];
    std::vector<Range> ranges{given.range};
    for (const std::unique_ptr<Step> &other : steps_)
      if (other.get() != &step && other->isManaged())
        for (const Node &node : other->plan_.lowered.nodes)
          if (node.kind == NodeKind::Advise && node.advice == given.advice &&
              other->captured_.blocks[node.buffer] == block)
            ranges = without(ranges, node.range);
    return ranges;
  };
  // Where that fails whoever has the memory next is slower, but not wrong.
  (void)runtime::takeAdviceBack(*driver_, options_.device, stream_, lowered, givenNowhereElse);
}

Status Session::takeMemoryFor(const Step &step) {
  const bool isFor = step.isManaged() ? !managed_ : step.rewritten() && managed_;
  if (!isFor)
    return {};
  if (!maps_.empty())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" cannot be replayed while \"{}\" is mapped",
                step.captured_.description.name, heap_->nameAt(heap_->block(maps_.begin()->first).address));
  const Expected<std::string> obstacle = step.isManaged() ? moveToManaged() : moveToVirtual();
  if (!obstacle)
    return tl::unexpected<Error>(obstacle.error());
  if (!obstacle->empty())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" is planned for {} memory, but {}", step.captured_.description.name,
                step.isManaged() ? "managed" : "virtual", *obstacle);
  return {};
}

} // namespace pumpgraph::runtime
