// SPDX-License-Identifier: Apache-2.0
// Whether a session's memory is virtual or managed.
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

std::string Session::obstacleToManaged() const {
  if (addresses_->frontBytes() == 0)
    return "the session has no addresses that could become those of managed memory";
  if (!addresses_->isAllInFront())
    return fmt::format("the session's buffers do not fit into {} of addresses, as much as managed memory may have",
                       bytesText(addresses_->frontBytes()));
  for (const std::unique_ptr<Step> &step : steps_) {
    if (step->rewritten())
      return fmt::format("the session has \"{}\", which is planned for virtual memory", step->captured().name);
    // Whoever instantiated its graph has copies and fills in there that go by the memory that was.
    const std::vector<Node> &nodes = step->captured().nodes;
    if (std::any_of(nodes.begin(), nodes.end(),
                    [](const Node &node) { return node.kind != NodeKind::Kernel && node.kind != NodeKind::Empty; }))
      return fmt::format("the session has \"{}\", which was left as captured on virtual memory", step->captured().name);
  }
  const std::uint64_t bytes = heap_->bytesWithMemory();
  if (bytes > availableHostBytes())
    return fmt::format("on the way {} have to be in host memory; the system has {} left", bytesText(bytes),
                       bytesText(availableHostBytes()));
  return "";
}

void Session::everyBlockIsLost() {
  const std::vector<BlockId> blocks = heap_->blocks();
  lostBlocks_.insert(blocks.begin(), blocks.end());
}

Expected<std::string> Session::moveToManaged(const std::string &because) {
  if (std::string obstacle = obstacleToManaged(); !obstacle.empty())
    return obstacle;
  PUMPGRAPH_TRY_WHILE(driver_->ctxSynchronize(), "waiting for the device before memory is exchanged");
  const auto taken = heap_->takeMemoryAway(stream_);
  if (!taken)
    return inContext(taken.error(), "taking memory away for managed memory");
  frames_->giveBackFree();
  std::size_t free = 0, total = 0;
  (void)driver_->memGetInfo.raw(&free, &total); // else the warnings of steps are of a device that has nothing free
  Expected<std::unique_ptr<ManagedArena>> arena =
      ManagedArena::reserveInFrontOf(*driver_, *addresses_, options_.managedGuard);
  if (!arena) {
    if (arena.error().status != PUMPGRAPH_INTERNAL)
      PUMPGRAPH_TRY_WHILE(heap_->giveMemoryBack(*taken, stream_), "giving memory back after {}", arena.error().message);
    else
      everyBlockIsLost();
    if (arena.error().status != PUMPGRAPH_OUT_OF_DEVICE_MEMORY && arena.error().status != PUMPGRAPH_DRIVER_ERROR)
      return tl::unexpected<Error>(arena.error());
    return arena.error().message;
  }
  arena_ = std::move(*arena);
  managed_ = true;
  deviceFreeBytes_ = free;
  backendWhy_ = fmt::format("managed memory, because virtual memory does not take {}", because);
  if (std::exchange(options_.processMemory, nullptr))
    notes_.push_back(fmt::format("the budget is that of buffers alone, not of the process, which left them {}: what of "
                                 "managed memory is on the device is the driver's choice",
                                 bytesText(frames_->budgetFrames() * pageBytes)));
  if (const Status brought = heap_->becomeManaged(*taken, stream_); !brought) {
    everyBlockIsLost();
    return inContext(brought.error(), "bringing values to managed memory");
  }
  return std::string();
}

} // namespace pumpgraph::runtime
