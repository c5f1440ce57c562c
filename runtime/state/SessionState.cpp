// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/SessionState.h"

#include "runtime/state/Backend.h"
#include "runtime/state/Budget.h"
#include "runtime/state/Links.h"

#include <algorithm>

namespace pumpgraph::runtime {
namespace {

/// What the session's own copies and scans go through.
constexpr std::uint64_t stagingBytes = std::uint64_t{16} << 20;

/// Of host memory that buffers had: what a loop allocates in each turn, and an exchange of plans, get it again.
constexpr std::uint64_t mostReleasedBytes = std::uint64_t{1} << 30;

} // namespace

SessionState::SessionState(const SessionOptions &given, std::shared_ptr<const Driver> table)
    : options(given), driver(std::move(table)), capture(*driver) {}

static Status openDevice(SessionState &session) {
  int count = 0;
  PUMPGRAPH_TRY_WHILE(session.driver->deviceGetCount(&count), "looking for CUDA devices");
  if (count == 0)
    return fail(PUMPGRAPH_NO_DRIVER, "the driver sees no CUDA device: check nvidia-smi and CUDA_VISIBLE_DEVICES");
  CUdevice device = 0;
  if (session.options.device < 0 || session.options.device >= count)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "device {} of {}", session.options.device, count);
  PUMPGRAPH_TRY_WHILE(session.driver->deviceGet(&device, session.options.device), "opening device {}",
                      session.options.device);
  const Expected<bool> managed = chooseManaged(session, device);
  if (!managed)
    return tl::unexpected<Error>(managed.error());
  session.backend.isManaged = *managed;
  char name[256] = {};
  PUMPGRAPH_TRY_WHILE(session.driver->deviceGetName(name, sizeof name, device), "opening device {}", device);
  session.device.name = name;
  session.device.arithmetic = ArithmeticSpeed::of(*session.driver, device);
  PUMPGRAPH_TRY_WHILE(session.driver->devicePrimaryCtxRetain(&session.device.context, device), "opening device {}",
                      device);
  session.device.isRetained = true;
  CUcontext current = nullptr;
  PUMPGRAPH_TRY(session.driver->ctxGetCurrent(&current));
  if (!current)
    PUMPGRAPH_TRY(session.driver->ctxSetCurrent(session.device.context));
  return {};
}

Status open(SessionState &session) {
  PUMPGRAPH_TRY(openDevice(session));
  const ContextScope scope(*session.driver, session.device.context);
  PUMPGRAPH_TRY_WHILE(session.driver->streamCreate(&session.device.stream, CU_STREAM_NON_BLOCKING),
                      "creating the session's stream");
  std::size_t deviceBytes = 0;
  PUMPGRAPH_TRY_WHILE(session.driver->deviceTotalMem(&deviceBytes, session.options.device), "opening device {}",
                      session.options.device);
  if (!session.options.unlimited && session.options.budgetBytes > deviceBytes)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "a budget of {}; device {} has {}", bytesText(session.options.budgetBytes),
                session.options.device, bytesText(deviceBytes));
  const std::uint64_t budgetFrames =
      (session.options.unlimited ? deviceBytes : session.options.budgetBytes) / pageBytes;
  const std::uint64_t hostLimit =
      session.options.hostLimitBytes != 0 ? session.options.hostLimitBytes : availableHostBytes() / 4 * 3;

  if (session.backend.isManaged) {
    PUMPGRAPH_TRY(openArena(session));
  } else {
    const Expected<std::uint64_t> front = bytesForManaged(session);
    if (!front)
      return tl::unexpected<Error>(front.error());
    Expected<std::unique_ptr<AddressSpace>> addresses = AddressSpace::reserve(*session.driver, *front);
    if (!addresses)
      return tl::unexpected<Error>(addresses.error());
    session.memory.addresses = std::move(*addresses);
  }
  session.memory.frames = std::make_unique<FramePool>(*session.driver, session.options.device, budgetFrames);
  PUMPGRAPH_TRY(openProcessBudget(session));
  session.memory.host = std::make_unique<HostMemory>(*session.driver, session.options.device, hostLimit,
                                                     std::min(mostReleasedBytes, hostLimit / 16), &session.progress);
  session.memory.mapper = std::make_unique<PageMapper>(*session.driver, session.options.device, *session.memory.frames);
  session.memory.heap = std::make_unique<Heap>(*session.driver, *session.memory.addresses, *session.memory.frames,
                                               *session.memory.host, *session.memory.mapper, session.backend.isManaged);
  session.memory.paging =
      std::make_unique<Paging>(*session.driver, *session.memory.frames, *session.memory.host, *session.memory.heap);
  Expected<std::unique_ptr<PinnedPool>> staging =
      PinnedPool::create(*session.driver, *session.memory.host, stagingBytes);
  if (!staging)
    return tl::unexpected<Error>(staging.error());
  session.memory.staging = std::move(*staging);
  return openLink(session);
}

SessionState::~SessionState() {
  if (!device.isRetained)
    return;
  {
    const ContextScope scope(*driver, device.context);
    driver->ctxSynchronize.raw();
    for (const std::unique_ptr<StepState> &step : steps)
      if (step->memory.residence)
        step->memory.residence->abandon();
    steps.clear();
    leftovers.addresses.clear();
    leftovers.asides.clear();
    link.lanes.reset();
    if (lastReplay.end)
      driver->eventDestroy.raw(lastReplay.end);
    capture.rehearsal.reset();
    memory.paging.reset();
    memory.heap.reset();
    memory.staging.reset();
    memory.mapper.reset();
    memory.host.reset();
    memory.frames.reset();
    memory.addresses.reset();
    memory.arena.reset();
    fillKernel.reset();
    if (device.stream)
      driver->streamDestroy.raw(device.stream);
  }
  driver->devicePrimaryCtxRelease.raw(options.device);
}

MemoryTools memoryTools(SessionState &session) {
  SessionMemory &memory = session.memory;
  return {*session.driver, *memory.addresses, *memory.frames,        *memory.host,
          *memory.mapper,  *memory.heap,      session.device.stream, session.values.departures};
}

Expected<const Compiler *> compilerOf(SessionState &session) {
  if (!session.compiler) {
    const Expected<Compiler> opened = Compiler::open(session.options.compilerLibrary);
    if (!opened)
      return tl::unexpected<Error>(opened.error());
    session.compiler = *opened;
  }
  return &*session.compiler;
}

Expected<const FillKernel *> fillKernelOf(SessionState &session) {
  if (!session.fillKernel) {
    Expected<std::unique_ptr<FillKernel>> loaded = FillKernel::load(*session.driver);
    if (!loaded)
      return tl::unexpected<Error>(loaded.error());
    session.fillKernel = std::move(*loaded);
  }
  return session.fillKernel.get();
}

} // namespace pumpgraph::runtime
