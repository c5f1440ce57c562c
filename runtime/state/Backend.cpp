// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/Backend.h"

#include "pumpgraph/graph/Ranges.h"
#include "runtime/managed/ManagedAdvice.h"
#include "runtime/state/Exchange.h"
#include "runtime/state/Values.h"

#include <algorithm>
#include <utility>

namespace pumpgraph::runtime {

Expected<bool> chooseManaged(SessionState &session, CUdevice device) {
  const auto supports = [&](CUdevice_attribute attribute) -> Expected<bool> {
    int supported = 0;
    PUMPGRAPH_TRY_WHILE(session.driver->deviceGetAttribute(&supported, attribute, device), "opening device {}", device);
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
  const bool wantsManaged = session.options.backend == BackendChoice::Managed ||
                            (session.options.backend == BackendChoice::Automatic && !forVirtual->empty());
  if (!wantsManaged && !forVirtual->empty())
    return fail(PUMPGRAPH_NO_DRIVER, "device {} does not support {}: a data-centre or desktop GPU since Volta does",
                device, *forVirtual);
  const bool isChosen = session.options.backend == BackendChoice::Automatic;
  if (!wantsManaged) {
    session.backend.why = isChosen ? "virtual memory, because the device supports it" : "virtual memory, as asked for";
    return false;
  }
  const Expected<std::string> forManaged =
      missing({{CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, "access to managed memory from both sides at once"}});
  if (!forManaged)
    return tl::unexpected<Error>(forManaged.error());
  if (!forManaged->empty())
    return fail(PUMPGRAPH_NO_DRIVER, "device {} does not support {}: a data-centre GPU under Linux does", device,
                *forManaged);
  session.backend.why = isChosen ? fmt::format("managed memory, because the device does not support {}", *forVirtual)
                                 : "managed memory, as asked for";
  return true;
}

Status openArena(SessionState &session) {
  std::size_t free = 0, total = 0;
  PUMPGRAPH_TRY_WHILE(session.driver->memGetInfo(&free, &total), "reserving a managed arena");
  session.backend.deviceFreeBytes = free;
  std::uint64_t bytes = session.options.managedBytes;
  if (bytes == 0)
    bytes = std::min<std::uint64_t>(session.options.managedGuard.limitBytes, free / pageBytes * pageBytes);
  Expected<std::unique_ptr<ManagedArena>> arena =
      ManagedArena::reserve(*session.driver, bytes, session.options.managedGuard);
  if (!arena)
    return tl::unexpected<Error>(arena.error());
  session.memory.arena = std::move(*arena);
  session.memory.addresses =
      AddressSpace::within(*session.driver, session.memory.arena->base(), session.memory.arena->bytes());
  return {};
}

bool choosesByStep(const SessionState &session) {
  return session.memory.addresses->frontBytes() != 0;
}

Expected<std::uint64_t> bytesForManaged(const SessionState &session) {
  if (session.options.backend != BackendChoice::Automatic)
    return 0;
  int canBeManaged = 0;
  PUMPGRAPH_TRY_WHILE(session.driver->deviceGetAttribute(&canBeManaged, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
                                                         static_cast<CUdevice>(session.options.device)),
                      "opening device {}", session.options.device);
  std::size_t free = 0, total = 0;
  PUMPGRAPH_TRY_WHILE(session.driver->memGetInfo(&free, &total), "opening device {}", session.options.device);
  const std::uint64_t most = std::min<std::uint64_t>(session.options.managedGuard.limitBytes, free);
  const std::uint64_t wanted = session.options.managedBytes == 0 ? most : std::min(session.options.managedBytes, most);
  return canBeManaged ? wanted / ManagedArena::placeUnit * ManagedArena::placeUnit : 0;
}

static std::string obstacleToExchange(const SessionState &session) {
  if (session.memory.heap->capturing())
    return "a capture is running";
  std::uint64_t bytes = 0;
  for (const BlockId id : blocksWithValues(session))
    bytes += session.memory.heap->block(id).bytes();
  if (bytes > availableHostBytes())
    return fmt::format("on the way {} have to be in host memory; the system has {} left", bytesText(bytes),
                       bytesText(availableHostBytes()));
  // Whoever instantiated a graph has copies and fills in there that go by the memory that was.
  if (!session.capture.otherGraphs.empty())
    return "the program has captured graphs of its own, with nodes that may go by the memory that they were captured "
           "on";
  const auto goesByMemory = [](const Node &node) {
    return node.kind != NodeKind::Kernel && node.kind != NodeKind::Empty;
  };
  for (const std::unique_ptr<StepState> &step : session.steps) {
    const std::vector<Node> &nodes = step->captured.description.nodes;
    if (!step->isRewritten() && !step->isManaged() && std::any_of(nodes.begin(), nodes.end(), goesByMemory))
      return fmt::format("the session has \"{}\", which was left as captured, with nodes that go by the memory that it "
                         "was captured on",
                         step->name());
  }
  return "";
}

static void everyBlockIsLost(SessionState &session) {
  const std::vector<BlockId> blocks = session.memory.heap->blocks();
  session.values.lost.insert(blocks.begin(), blocks.end());
  session.values.allAreLost = true;
}

static Expected<std::vector<Heap::Contents>> takeMemoryAway(SessionState &session) {
  PUMPGRAPH_TRY(takePlanBack(session));
  for (const BlockId block : session.memory.heap->blocks())
    if (session.memory.heap->block(block).backing == Backing::Planned)
      return fail(PUMPGRAPH_INTERNAL, "buffers lost their memory in an earlier failure, which keeps their addresses");
  PUMPGRAPH_TRY_WHILE(session.driver->ctxSynchronize(), "waiting for the device before memory is exchanged");
  for (const std::unique_ptr<StepState> &step : session.steps)
    if (step->isManaged()) // evictions go on after a replay
      PUMPGRAPH_TRY_WHILE(step->memory.managed->waitUntilIdle(), "waiting for the agent of \"{}\"", step->name());
  PUMPGRAPH_TRY_WHILE(session.driver->ctxSynchronize(), "waiting for the device before memory is exchanged");
  auto taken = session.memory.heap->takeMemoryAway([&](const Block &block) { return hasValue(session, block); },
                                                   session.device.stream);
  if (taken)
    return taken;
  for (const BlockId id : session.memory.heap->blocks())
    if (const Block &block = session.memory.heap->block(id); hasValue(session, block) && !block.hasMemory())
      everyBlockIsLost(session);
  return inContext(taken.error(), "taking memory away for that of another kind");
}

static Status putManagedMemory(SessionState &session, const std::vector<Heap::Contents> &values) {
  session.memory.frames->giveBackFree();
  std::size_t free = 0, total = 0;
  (void)session.driver->memGetInfo.raw(&free,
                                       &total); // else the warnings of steps are of a device that has nothing free
  Expected<std::unique_ptr<ManagedArena>> arena =
      ManagedArena::reserveInFrontOf(*session.driver, *session.memory.addresses, session.options.managedGuard);
  if (!arena)
    return tl::unexpected<Error>(arena.error());
  session.memory.arena = std::move(*arena);
  session.backend.isManaged = true;
  session.backend.deviceFreeBytes = free;
  Status settled = session.memory.heap->becomeManaged(values, session.device.stream);
  for (const std::unique_ptr<StepState> &step : session.steps)
    if (settled && step->isManaged())
      settled = step->memory.managed->settle(session.options.device, session.device.stream, step->plan.lowered);
  return settled;
}

/// Of the host memory that values take where the budget ends: a block is in frames or in host memory as a whole.
static std::uint64_t bytesBeyondBudget(const SessionState &session) {
  std::uint64_t frames = session.memory.frames->available(), bytes = 0;
  for (const BlockId id : blocksWithValues(session)) {
    const Block &block = session.memory.heap->block(id);
    if (block.pages <= frames)
      frames -= block.pages;
    else
      bytes += block.bytes();
  }
  return bytes;
}

Expected<std::string> moveToManaged(SessionState &session) {
  if (std::string obstacle = obstacleToExchange(session); !obstacle.empty())
    return obstacle;
  PUMPGRAPH_TRY(session.memory.heap->flushCache()); // what only the cache has may lie anywhere
  if (!session.memory.addresses->isAllInFront())
    return fmt::format("the session's buffers do not fit into {} of addresses, as much as managed memory may have",
                       bytesText(session.memory.addresses->frontBytes()));
  const Expected<std::vector<Heap::Contents>> taken = takeMemoryAway(session);
  if (!taken)
    return tl::unexpected<Error>(taken.error());
  const Status put = putManagedMemory(session, *taken);
  if (!put && (session.backend.isManaged || put.error().status == PUMPGRAPH_INTERNAL)) {
    everyBlockIsLost(session);
    return inContext(put.error(), "bringing values to managed memory");
  }
  if (!put) {
    if (const Status given = session.memory.heap->giveMemoryBack(*taken, session.device.stream); !given) {
      everyBlockIsLost(session);
      return inContext(given.error(), fmt::format("giving memory back after {}", put.error().message));
    }
    return put.error().message;
  }
  if (std::exchange(session.options.processMemory, nullptr))
    session.notes.push_back(
        fmt::format("the budget is that of buffers alone, not of the process, which left them {}: what of "
                    "managed memory is on the device is the driver's choice",
                    bytesText(session.memory.frames->budgetFrames() * pageBytes)));
  return std::string();
}

Expected<std::string> moveToVirtual(SessionState &session) {
  if (std::string obstacle = obstacleToExchange(session); !obstacle.empty())
    return obstacle;
  PUMPGRAPH_TRY(session.memory.heap->flushCache());
  if (const Status room = session.memory.host->checkRoom(bytesBeyondBudget(session), "leaving managed memory"); !room)
    return room.error().message;
  const Expected<std::vector<Heap::Contents>> taken = takeMemoryAway(session);
  if (!taken)
    return tl::unexpected<Error>(taken.error());
  session.memory.arena.reset();
  session.backend.isManaged = false;
  const Status addressed = session.memory.addresses->takeFront();
  // Even if not: what is allocated from now on fails then, for lack of addresses.
  const Status settled =
      session.memory.heap->becomeVirtual(addressed ? *taken : std::vector<Heap::Contents>(), session.device.stream);
  if (addressed && settled)
    return std::string();
  const Error why = addressed ? settled.error() : addressed.error();
  // The device may have less than the budget, and the host less than its limit. All values are still here.
  Status back = addressed ? Status{} : tl::unexpected<Error>(why);
  if (const auto none = [](const Block &) { return false; }; back)
    if (const auto dropped = session.memory.heap->takeMemoryAway(none, session.device.stream); !dropped)
      back = tl::unexpected<Error>(dropped.error());
  if (back)
    back = putManagedMemory(session, *taken);
  if (back)
    return why.message;
  everyBlockIsLost(session);
  return inContext(back.error(), fmt::format("returning to managed memory after {}", why.message));
}

bool hasManagedStep(const SessionState &session) {
  return std::any_of(session.steps.begin(), session.steps.end(),
                     [](const std::unique_ptr<StepState> &step) { return step->isManaged(); });
}

void takeAdviceBack(const StepState &step, const Description &lowered) {
  const SessionState &session = step.session;
  const auto givenNowhereElse = [&](const Node &given) {
    const BlockId block = step.captured.blocks[given.buffer];
    std::vector<Range> ranges{given.range};
    for (const std::unique_ptr<StepState> &other : session.steps)
      if (other.get() != &step && other->isManaged())
        for (const Node &node : other->plan.lowered.nodes)
          if (node.kind == NodeKind::Advise && node.advice == given.advice &&
              other->captured.blocks[node.buffer] == block)
            ranges = without(ranges, node.range);
    return ranges;
  };
  // Where that fails whoever has the memory next is slower, but not wrong.
  (void)runtime::takeAdviceBack(*session.driver, session.options.device, session.device.stream, lowered,
                                givenNowhereElse);
}

Status takeMemoryFor(const StepState &step) {
  SessionState &session = step.session;
  const bool isFor = step.isManaged() ? !session.backend.isManaged : step.isRewritten() && session.backend.isManaged;
  if (!isFor)
    return {};
  if (!session.values.maps.empty())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" cannot be replayed while \"{}\" is mapped", step.name(),
                session.memory.heap->nameAt(session.memory.heap->block(session.values.maps.begin()->first).address));
  const Expected<std::string> obstacle = step.isManaged() ? moveToManaged(session) : moveToVirtual(session);
  if (!obstacle)
    return tl::unexpected<Error>(obstacle.error());
  if (!obstacle->empty())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" is planned for {} memory, but {}", step.name(),
                step.isManaged() ? "managed" : "virtual", *obstacle);
  return {};
}

} // namespace pumpgraph::runtime
