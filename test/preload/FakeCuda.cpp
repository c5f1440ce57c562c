// SPDX-License-Identifier: Apache-2.0
/// \file
/// libcuda.so.1 on the fake driver, for programs that run in a process of their own: what the runtime does not call
/// itself, and a few kernels.
#include "test/unit/runtime/FakeDriver.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>

#undef cuGetProcAddress

using pumpgraph::runtime::Driver;
using pumpgraph::runtime::test::argument;
using pumpgraph::runtime::test::FakeDriver;
using pumpgraph::runtime::test::FakeKernel;

namespace {

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

constexpr std::uint64_t pageBytes = std::uint64_t{2} << 20;

FakeDriver &fake() {
  static FakeDriver &driver = *[] {
    FakeDriver::Options options;
    const char *const devices = std::getenv("PUMPGRAPH_FAKE_DEVICES");
    options.devices = devices ? std::atoi(devices) : 1;
    if (const char *const seed = std::getenv("PUMPGRAPH_FAKE_DEFERS"))
      options.deferringSeed = static_cast<std::uint32_t>(std::atoi(seed));
    if (const char *const length = std::getenv("PUMPGRAPH_FAKE_QUEUE"))
      options.queueLength = static_cast<std::size_t>(std::atoi(length));
    auto *const made = new FakeDriver(options);
    // "cuEventRecord:12": that call of it fails, once.
    if (const char *const fails = std::getenv("PUMPGRAPH_FAKE_FAILS"))
      if (const char *const colon = std::strchr(fails, ':'))
        made->failCall(std::string(fails, colon), std::atoi(colon + 1), CUDA_ERROR_INVALID_VALUE);
    return made;
  }();
  return driver;
}

const Driver &table() {
  return *fake().table();
}

/// y = x
void copyFloats(const FakeKernel::Arguments &given) {
  auto *y = argument<float *>(given, 0);
  const auto *x = argument<const float *>(given, 1);
  std::copy_n(x, argument<int>(given, 2), y);
}

/// y = y * factor + x
void scaleAndAdd(const FakeKernel::Arguments &given) {
  auto *y = argument<float *>(given, 0);
  const auto *x = argument<const float *>(given, 1);
  for (int i = 0; i < argument<int>(given, 2); ++i)
    y[i] = y[i] * argument<float>(given, 3) + x[i];
}

void setFloats(const FakeKernel::Arguments &given) {
  std::fill_n(argument<float *>(given, 0), argument<int>(given, 1), argument<float>(given, 2));
}

/// Adds the first word of a struct to the first number.
void setWithTail(const FakeKernel::Arguments &given) {
  std::uint64_t first = 0;
  std::memcpy(&first, given[1], sizeof first);
  *argument<float *>(given, 0) += static_cast<float>(first);
}

constexpr std::uint64_t sparseBytes = std::uint64_t{64} << 10;

/// y = y * factor + x, in one float of each 64 KiB
void addSparsely(const FakeKernel::Arguments &given) {
  const auto y = argument<std::uint64_t>(given, 0), x = argument<std::uint64_t>(given, 1);
  for (std::uint64_t at = 0; at < argument<std::uint64_t>(given, 2); at += sparseBytes) {
    float &target = *reinterpret_cast<float *>(y + at);
    target = target * argument<float>(given, 3) + *reinterpret_cast<const float *>(x + at);
  }
}

/// y = value, in one float of each 64 KiB
void setSparsely(const FakeKernel::Arguments &given) {
  const auto y = argument<std::uint64_t>(given, 0);
  const std::uint64_t places = (argument<std::uint64_t>(given, 1) + sparseBytes - 1) / sparseBytes;
  for (std::uint64_t place = 0; place < places; ++place)
    *reinterpret_cast<float *>(y + place * sparseBytes) = argument<float>(given, 2) + static_cast<float>(place);
}

/// The word at an address, which need not be aligned; 0 at none.
std::uint64_t wordAt(std::uint64_t address) {
  std::uint64_t word = 0;
  if (address != 0)
    std::memcpy(&word, reinterpret_cast<const void *>(address), sizeof word);
  return word;
}

/// y += value, in one float of each 64 KiB
void addTo(std::uint64_t y, const FakeKernel::Arguments &given) {
  for (std::uint64_t at = 0; y != 0 && at < argument<std::uint64_t>(given, 1); at += sparseBytes)
    *reinterpret_cast<float *>(y + at) += argument<float>(given, 2);
}

/// *table += value; nothing without a table
void addThroughTable(const FakeKernel::Arguments &given) {
  addTo(wordAt(argument<std::uint64_t>(given, 0)), given);
}

/// **table += value
void addThroughTwoTables(const FakeKernel::Arguments &given) {
  addTo(wordAt(wordAt(argument<std::uint64_t>(given, 0))), given);
}

/// The table is a packed struct of a number and the address.
void addThroughPackedTable(const FakeKernel::Arguments &given) {
  addTo(wordAt(argument<std::uint64_t>(given, 0) + 4), given);
}

/// base[offset] += value
void addBeside(const FakeKernel::Arguments &given) {
  *reinterpret_cast<float *>(argument<std::uint64_t>(given, 0) + argument<std::uint64_t>(given, 1)) +=
      argument<float>(given, 2);
}

/// Of a packed struct of a number, an address and a float.
void addPacked(const FakeKernel::Arguments &given) {
  std::uint64_t to = 0;
  float value = 0;
  std::memcpy(&to, given[0] + 4, sizeof to);
  std::memcpy(&value, given[0] + 12, sizeof value);
  *reinterpret_cast<float *>(to) += value;
}

/// *to = word
void storeWord(const FakeKernel::Arguments &given) {
  std::memcpy(argument<void *>(given, 0), given[1], sizeof(std::uint64_t));
}

bool isFlagSet(const FakeKernel::Arguments &given) {
  return argument<const std::atomic<int> *>(given, 0)->load() != 0;
}

FakeKernel kernels[] = {{"copyFloats", {8, 8, 4}, copyFloats},
                        {"scaleAndAdd", {8, 8, 4, 4}, scaleAndAdd},
                        {"setFloats", {8, 4, 4}, setFloats},
                        {"addSparsely", {8, 8, 8, 4}, addSparsely},
                        {"setSparsely", {8, 8, 4}, setSparsely},
                        {"addThroughTable", {8, 8, 4}, addThroughTable},
                        {"addThroughTwoTables", {8, 8, 4}, addThroughTwoTables},
                        {"addThroughPackedTable", {8, 8, 4}, addThroughPackedTable},
                        {"addBeside", {8, 8, 4}, addBeside},
                        {"setWithTail", {8, 8192}, setWithTail},
                        {"addPacked", {16}, addPacked},
                        {"storeWord", {8, 8}, storeWord},
                        {"waitForHost", {8}, [](const FakeKernel::Arguments &) {}, 0, isFlagSet}};

FakeKernel &kernelNamed(std::string_view name) {
  return *std::find_if(std::begin(kernels), std::end(kernels),
                       [&](const FakeKernel &kernel) { return kernel.name == name; });
}

/// Of memory on the device, written to the file that PUMPGRAPH_FAKE_PEAK names at the end.
struct Peak {
  std::uint64_t frames = 0;

  ~Peak() {
    if (const char *const path = std::getenv("PUMPGRAPH_FAKE_PEAK"))
      if (std::FILE *const file = std::fopen(path, "w")) {
        std::fprintf(file, "%llu\n", static_cast<unsigned long long>(frames));
        std::fclose(file);
      }
  }
};
Peak peak;

std::mutex mutex;
std::map<CUdeviceptr, std::uint64_t> allocations; ///< of cuMemAlloc and its like; under `mutex`

} // namespace

FAKE_EXPORT CUresult cuInit(unsigned) {
  return CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *handle, std::size_t bytes, const CUmemAllocationProp *properties,
                       unsigned long long flags) {
  const CUresult result = table().memCreate.raw(handle, bytes, properties, flags);
  peak.frames = std::max(peak.frames, fake().deviceFrames());
  return result;
}

static bool hasContext() {
  CUcontext context = nullptr;
  table().ctxGetCurrent.raw(&context);
  return context != nullptr;
}

FAKE_EXPORT CUresult cuMemAlloc(CUdeviceptr *address, std::size_t bytes) {
  if (!hasContext())
    return CUDA_ERROR_INVALID_CONTEXT;
  const std::lock_guard lock(mutex);
  bytes = (bytes + pageBytes - 1) / pageBytes * pageBytes;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle = 0;
  if (const CUresult result = create(&handle, bytes, &properties, 0); result != CUDA_SUCCESS)
    return result;
  table().memAddressReserve.raw(address, bytes, 0, 0, 0);
  table().memMap.raw(*address, bytes, 0, handle, 0);
  table().memSetAccess.raw(*address, bytes, &access, 1);
  table().memRelease.raw(handle);
  allocations[*address] = bytes;
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuMemFree(CUdeviceptr address) {
  fake().finish();
  const std::lock_guard lock(mutex);
  const auto found = allocations.find(address);
  if (found == allocations.end())
    return CUDA_ERROR_INVALID_VALUE;
  table().memUnmap.raw(address, found->second);
  table().memAddressFree.raw(address, found->second);
  allocations.erase(found);
  return CUDA_SUCCESS;
}

static CUresult allocateOn(CUdeviceptr *address, std::size_t bytes, CUstream) {
  return cuMemAlloc(address, bytes);
}

static CUresult freeOn(CUdeviceptr address, CUstream) {
  return cuMemFree(address);
}

FAKE_EXPORT CUresult cuMemGetInfo(std::size_t *free, std::size_t *total) {
  return table().memGetInfo.raw(free, total);
}

FAKE_EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  for (FakeKernel &kernel : kernels)
    if (kernel.name == name) {
      *function = kernel.handle();
      return CUDA_SUCCESS;
    }
  return table().moduleGetFunction.raw(function, module, name);
}

FAKE_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ,
                                    unsigned blockX, unsigned blockY, unsigned blockZ, unsigned sharedBytes,
                                    CUstream stream, void **parameters, void **extra) {
  const auto isIt = [&](FakeKernel &kernel) { return kernel.handle() == function; };
  const auto kernel = std::find_if(std::begin(kernels), std::end(kernels), isIt);
  if (kernel == std::end(kernels))
    return table().launchKernel.raw(function, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes, stream,
                                    parameters, extra);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  if (stream != nullptr && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD)
    table().streamGetCaptureInfo.raw(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr);
  std::vector<std::vector<char>> arguments;
  for (std::size_t i = 0; i < kernel->parameterBytes.size(); ++i)
    arguments.emplace_back(static_cast<char *>(parameters[i]),
                           static_cast<char *>(parameters[i]) + kernel->parameterBytes[i]);
  if (status == CU_STREAM_CAPTURE_STATUS_NONE)
    fake().runLater(stream, *kernel, std::move(arguments));
  else
    fake().launch(stream, *kernel, arguments);
  return CUDA_SUCCESS;
}

/// A function that no header declares.
FAKE_EXPORT CUresult cuLaunchTomorrow(int answer, double half, int *sum) {
  *sum = answer + static_cast<int>(2 * half);
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *, CUdeviceptr) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult allocateHost(void **address, std::size_t bytes, unsigned flags) {
  const CUresult result = table().memHostAlloc.raw(address, bytes, flags);
  if (result == CUDA_SUCCESS)
    fake().addOutside(*address, bytes, true);
  return result;
}

/// PUMPGRAPH_FAKE_LINGERS: milliseconds that calls which give memory up take once it is given up.
static void linger() {
  if (const char *const time = std::getenv("PUMPGRAPH_FAKE_LINGERS"))
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(time)));
}

static CUresult unmap(CUdeviceptr address, std::size_t bytes) {
  const CUresult result = table().memUnmap.raw(address, bytes);
  linger();
  return result;
}

static CUresult unregister(void *address) {
  const CUresult result = table().memHostUnregister.raw(address);
  linger();
  return result;
}

static CUresult launchHostFunction(CUstream stream, CUhostFn function, void *data) {
  if (const CUresult result = table().streamSynchronize.raw(stream); result != CUDA_SUCCESS)
    return result;
  function(data);
  return CUDA_SUCCESS;
}

static CUresult streamFlags(CUstream stream, unsigned *flags) {
  *flags = fake().isBlocking(stream) ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
  return CUDA_SUCCESS;
}

static CUresult copyUp(CUdeviceptr to, const void *from, std::size_t bytes) {
  const CUresult result = table().memcpyHtoDAsync.raw(to, from, bytes, nullptr);
  return result == CUDA_SUCCESS ? table().streamSynchronize.raw(nullptr) : result;
}

static CUresult copyDown(void *to, CUdeviceptr from, std::size_t bytes) {
  const CUresult result = table().memcpyDtoHAsync.raw(to, from, bytes, nullptr);
  return result == CUDA_SUCCESS ? table().streamSynchronize.raw(nullptr) : result;
}

static CUresult currentDevice(CUdevice *device) {
  *device = 0;
  return hasContext() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static std::atomic<int> retained = 0;

static CUresult primaryContext(CUcontext *context, CUdevice device) {
  ++retained;
  if (const CUresult result = table().devicePrimaryCtxRetain.raw(context, device); result != CUDA_SUCCESS)
    return result;
  return table().ctxSetCurrent.raw(*context);
}

static CUresult releasePrimaryContext(CUdevice) {
  --retained;
  return CUDA_SUCCESS;
}

static CUresult primaryContextState(CUdevice, unsigned *flags, int *isActive) {
  *flags = 0;
  *isActive = retained > 0;
  return CUDA_SUCCESS;
}

static CUresult deviceAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  if (attribute != CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)
    return table().deviceGetAttribute.raw(value, attribute, device);
  *value = std::getenv("PUMPGRAPH_FAKE_PAGEABLE") != nullptr;
  return CUDA_SUCCESS;
}

/// PUMPGRAPH_FAKE_TIMES: a seed of the times between events, up to 4 ms.
static CUresult elapsedTime(float *ms, CUevent begin, CUevent end) {
  const char *const seed = std::getenv("PUMPGRAPH_FAKE_TIMES");
  if (!seed)
    return table().eventElapsedTime.raw(ms, begin, end);
  static std::mt19937 random(static_cast<unsigned>(std::atoi(seed)));
  *ms = static_cast<float>(random() % 4096) / 1024;
  return CUDA_SUCCESS;
}

/// From the host to the device.
static CUresult copyRows(const CUDA_MEMCPY2D *copy, CUstream stream) {
  for (std::size_t row = 0; row < copy->Height; ++row)
    table().memcpyHtoDAsync.raw(copy->dstDevice + row * copy->dstPitch,
                                static_cast<const char *>(copy->srcHost) + row * copy->srcPitch, copy->WidthInBytes,
                                stream);
  return CUDA_SUCCESS;
}

static CUresult writeWord(CUstream stream, CUdeviceptr address, cuuint64_t word, unsigned) {
  using pumpgraph::runtime::test::bytesOf;
  fake().runLater(stream, kernelNamed("storeWord"), {bytesOf(address), bytesOf(word)});
  return CUDA_SUCCESS;
}

/// Descriptors of a driver that does not write addresses as they are.
static CUresult encodeTiled(CUtensorMap *map, CUtensorMapDataType, cuuint32_t, void *address, const cuuint64_t *,
                            const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                            CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  map->opaque[0] = reinterpret_cast<std::uintptr_t>(address) >> 8;
  return CUDA_SUCCESS;
}

/// Without an effect: whoever is told of it does not know what the graph does.
static CUresult changeChild(CUgraphExec, CUgraphNode, CUgraph) {
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuGetProcAddress_v2(const char *name, void **address, int, cuuint64_t,
                                         CUdriverProcAddressQueryResult *result) {
  static const std::map<std::string_view, void *> functions = [] {
    std::map<std::string_view, void *> all;
    const auto add = [&](const char *symbol, auto function) { all[symbol] = reinterpret_cast<void *>(function); };
#define FAKE_ADD(member, symbol, version) add(#symbol, table().member.function);
    PUMPGRAPH_DRIVER_CALLS(FAKE_ADD)
    PUMPGRAPH_NEWER_DRIVER_CALLS(FAKE_ADD)
    add("cuGetErrorName", table().getErrorName);
    add("cuInit", cuInit);
    add("cuMemCreate", create);
    add("cuMemAlloc", cuMemAlloc);
    add("cuMemFree", cuMemFree);
    add("cuMemAllocAsync", allocateOn);
    add("cuMemFreeAsync", freeOn);
    add("cuMemHostAlloc", allocateHost);
    add("cuMemHostUnregister", unregister);
    add("cuMemUnmap", unmap);
    add("cuLaunchHostFunc", launchHostFunction);
    add("cuStreamGetFlags", streamFlags);
    add("cuMemcpyHtoD", copyUp);
    add("cuMemcpyDtoH", copyDown);
    add("cuCtxGetDevice", currentDevice);
    add("cuDevicePrimaryCtxRetain", primaryContext);
    add("cuDevicePrimaryCtxRelease", releasePrimaryContext);
    add("cuDevicePrimaryCtxGetState", primaryContextState);
    add("cuDeviceGetAttribute", deviceAttribute);
    add("cuEventElapsedTime", elapsedTime);
    add("cuMemcpy2DAsync", copyRows);
    add("cuStreamWriteValue64", writeWord);
    add("cuTensorMapEncodeTiled", encodeTiled);
    add("cuGraphExecChildGraphNodeSetParams", changeChild);
    add("cuModuleGetFunction", cuModuleGetFunction);
    add("cuLaunchKernel", cuLaunchKernel);
    add("cuLaunchTomorrow", cuLaunchTomorrow);
    add("cuIpcGetMemHandle", cuIpcGetMemHandle);
    add("cuGetProcAddress", cuGetProcAddress_v2);
    return all;
  }();
  const auto found = functions.find(name);
  const bool isFound = found != functions.end() && found->second;
  *address = isFound ? found->second : nullptr;
  if (result)
    *result = isFound ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return isFound ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

FAKE_EXPORT CUresult cuGetProcAddress(const char *name, void **address, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(name, address, version, flags, nullptr);
}
