// SPDX-License-Identifier: Apache-2.0
/// \file
/// Launches, copies, events and captures, as the log takes them.
#include "runtime/preload/Hooks.h"
#include "runtime/preload/LaunchParameters.h"

#include <algorithm>
#include <array>
#include <span>
#include <type_traits>
#include <vector>

namespace pumpgraph::preload {
namespace {

/// A launch's parameters: one pointer for each, or all of them in one piece.
struct Parameters {
  void **each = nullptr;
  void **extra = nullptr;
};

struct Launch {
  const EntryPoint &entry;
  CUfunction function;
  CUstream stream;
  std::array<unsigned, 7> dimensions;
  Parameters parameters;

  void describe(CallBuilder &call) const {
    const auto handle = reinterpret_cast<std::uintptr_t>(function);
    const KernelShape &shape = shim().kernels().shape(handle);
    call.begin(NodeKind::Kernel, handle, callStream(entry, stream), shape.name.c_str());
    for (const unsigned dimension : dimensions)
      call.value(dimension);
    if (!shape.isWhole)
      call.unplannable("its parameters are not known");
    if (parameters.each)
      for (std::size_t i = 0; i < shape.parameters.size(); ++i) {
        call.value(shape.parameters[i].bytes);
        call.words(parameters.each[i], shape.parameters[i].bytes, static_cast<std::int32_t>(i));
      }
    else if (const std::span<const char> piece = packedParameters(parameters.extra); !piece.empty()) {
      call.value(piece.size());
      call.words(piece.data(), piece.size(), unknownParameter);
    }
  }
};

template <typename Issue> CUresult performLaunch(const Launch &launch, const Issue &issue) {
  return perform([&](CallBuilder &call) { launch.describe(call); }, issue);
}

/// The attributes of a launch that let it begin before the call before it has completed are no part of its results. A
/// plan needs the order of the stream.
std::vector<CUlaunchAttribute> inOrder(const CUlaunchConfig &config) {
  std::vector<CUlaunchAttribute> attributes(config.attrs, config.attrs + config.numAttrs);
  std::erase_if(attributes, [](const CUlaunchAttribute &attribute) {
    return attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  });
  return attributes;
}

/// An event of an attribute is recorded before the kernel has completed.
bool recordsEvents(const CUlaunchConfig &config) {
  return std::any_of(config.attrs, config.attrs + config.numAttrs, [](const CUlaunchAttribute &attribute) {
    return attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
           attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  });
}

/// Of a call that gives handles of functions, or of kernels.
template <typename Handle> CUresult gives(CUresult result, const Handle *handles, unsigned count) {
  if (result != CUDA_SUCCESS || !shim().isActive())
    return result;
  const std::lock_guard lock(shim().mutex());
  for (unsigned i = 0; i < count; ++i)
    shim().kernels().mark(reinterpret_cast<std::uintptr_t>(handles[i]), std::is_same_v<Handle, CUkernel>);
  return result;
}

/// Not under the lock: a record waits where its stream is full, perhaps for the program. The log has it behind the
/// calls that were ahead of it for sure.
template <typename Record>
CUresult records(const EntryPoint &entry, CUevent event, CUstream stream, const Record &record) {
  if (!shim().follows() || shim().isCapturing() || shim().mutex().isMine())
    return record();
  std::unique_lock lock(shim().mutex());
  CallLog::Recording recording = shim().log().recordBegins(event, callStream(entry, stream));
  shim().enters();
  lock.unlock();
  const CUresult result = record();
  lock.lock();
  shim().leaves();
  shim().log().recordEnds(std::move(recording), result == CUDA_SUCCESS);
  return result;
}

/// Handles come back for other kernels.
template <typename Unload> CUresult unloads(const EntryPoint &entry, const Unload &unload) {
  const Outside outside(entry);
  if (outside.refusal() != CUDA_SUCCESS)
    return outside.refusal();
  const CUresult result = unload();
  if (!shim().isActive())
    return result;
  const std::lock_guard lock(shim().mutex());
  shim().kernels().unloaded();
  shim().log().describeAgain();
  if (shim().streams())
    static_cast<void>(shim().streams()->forgetAll(entry.symbol)); // none is in force
  return result;
}

} // namespace

NodeKind nodeKind(const EntryPoint &entry) {
  const std::string_view name = entry.name;
  if (name == "cuLaunchHostFunc" || name == "cuStreamAddCallback")
    return NodeKind::Host;
  if (entry.kind == EntryClass::Copies && name.starts_with("cuMemcpy"))
    return NodeKind::Memcpy;
  return entry.kind == EntryClass::Copies && name.starts_with("cuMemset") ? NodeKind::Memset : NodeKind::Opaque;
}

std::string_view whyNothingIsPlanned(const EntryPoint &entry) {
  const std::string_view name = entry.name;
  // Planned rounds wait for the device, which must not wait for the program meanwhile.
  if (nodeKind(entry) == NodeKind::Host || name.starts_with("cuStreamWaitValue") || name == "cuStreamBatchMemOp" ||
      name == "cuWaitExternalSemaphoresAsync")
    return "the device waits for the program";
  if (name == "cuMemAllocManaged")
    return "managed memory may hold addresses";
  return entry.kind == EntryClass::Hides ? "a kernel reaches memory by a texture" : "";
}

void addPart(CallBuilder &call, const CUDA_MEMCPY2D *copy) {
  for (const std::uint64_t word : {copy->srcDevice, copy->dstDevice})
    call.word(word);
  for (const std::uint64_t number : {copy->srcXInBytes, copy->srcY, copy->srcPitch, copy->dstXInBytes, copy->dstY,
                                     copy->dstPitch, copy->WidthInBytes, copy->Height})
    call.value(number);
}

void addPart(CallBuilder &call, const CUDA_MEMCPY3D *copy) {
  for (const std::uint64_t word : {copy->srcDevice, copy->dstDevice})
    call.word(word);
  for (const std::uint64_t number :
       {copy->srcXInBytes, copy->srcY, copy->srcZ, copy->srcPitch, copy->srcHeight, copy->dstXInBytes, copy->dstY,
        copy->dstZ, copy->dstPitch, copy->dstHeight, copy->WidthInBytes, copy->Height, copy->Depth})
    call.value(number);
}

void addPart(CallBuilder &call, const CUDA_MEMCPY3D_PEER *copy) {
  for (const std::uint64_t word : {copy->srcDevice, copy->dstDevice})
    call.word(word);
  for (const std::uint64_t number :
       {copy->srcXInBytes, copy->srcY, copy->srcZ, copy->srcPitch, copy->srcHeight, copy->dstXInBytes, copy->dstY,
        copy->dstZ, copy->dstPitch, copy->dstHeight, copy->WidthInBytes, copy->Height, copy->Depth})
    call.value(number);
}

CUresult
Hook<tag::cuLaunchKernel>::call(const Real<CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                                        unsigned, unsigned, CUstream, void **, void **)> &real,
                                CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                                unsigned blockY, unsigned blockZ, unsigned sharedBytes, CUstream stream,
                                void **parameters, void **extra) {
  return performLaunch(
      {real.entry(), function, stream, {gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes}, {parameters, extra}},
      [&] {
        return real(function, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes, stream, parameters, extra);
      });
}

CUresult Hook<tag::cuLaunchCooperativeKernel>::call(
    const Real<CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                            void **)> &real,
    CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX, unsigned blockY,
    unsigned blockZ, unsigned sharedBytes, CUstream stream, void **parameters) {
  return performLaunch(
      {real.entry(),
       function,
       stream,
       {gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes},
       {parameters, nullptr}},
      [&] { return real(function, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes, stream, parameters); });
}

CUresult
Hook<tag::cuLaunchKernelEx>::call(const Real<CUresult (*)(const CUlaunchConfig *, CUfunction, void **, void **)> &real,
                                  const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
  const Launch launch{real.entry(),
                      function,
                      config->hStream,
                      {config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
                       config->blockDimZ, config->sharedMemBytes},
                      {parameters, extra}};
  const auto describe = [&](CallBuilder &call) {
    launch.describe(call);
    if (recordsEvents(*config))
      call.unplannable("it records an event before it has completed");
  };
  return perform(describe, [&] {
    if (!shim().mutex().isMine()) // no plan is in force
      return real(config, function, parameters, extra);
    std::vector<CUlaunchAttribute> attributes = inOrder(*config);
    CUlaunchConfig ordered = *config;
    ordered.attrs = attributes.data();
    ordered.numAttrs = static_cast<unsigned>(attributes.size());
    return real(&ordered, function, parameters, extra);
  });
}

// A record is no work; a wait is, by the distance to the record.

CUresult Hook<tag::cuEventRecord>::call(const Real<CUresult (*)(CUevent, CUstream)> &real, CUevent event,
                                        CUstream stream) {
  return records(real.entry(), event, stream, [&] { return real(event, stream); });
}

CUresult Hook<tag::cuEventRecordWithFlags>::call(const Real<CUresult (*)(CUevent, CUstream, unsigned)> &real,
                                                 CUevent event, CUstream stream, unsigned flags) {
  return records(real.entry(), event, stream, [&] { return real(event, stream, flags); });
}

CUresult Hook<tag::cuEventDestroy>::call(const Real<CUresult (*)(CUevent)> &real, CUevent event) {
  if (shim().isActive()) {
    const std::lock_guard lock(shim().mutex());
    shim().log().forgets(event);
  }
  return real(event);
}

CUresult Hook<tag::cuStreamWaitEvent>::call(const Real<CUresult (*)(CUstream, CUevent, unsigned)> &real,
                                            CUstream stream, CUevent event, unsigned flags) {
  const auto describe = [&](CallBuilder &call) {
    call.begin(NodeKind::EventWait, reinterpret_cast<std::uintptr_t>(&real.entry()), callStream(real.entry(), stream),
               real.entry().symbol);
    call.waits(event);
  };
  return perform(describe, [&] { return real(stream, event, flags); });
}

CUresult Hook<tag::cuTexObjectCreate>::call(
    const Real<CUresult (*)(CUtexObject *, const CUDA_RESOURCE_DESC *, const CUDA_TEXTURE_DESC *,
                            const CUDA_RESOURCE_VIEW_DESC *)> &real,
    CUtexObject *texture, const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *description,
    const CUDA_RESOURCE_VIEW_DESC *view) {
  const bool isMemory =
      resource && (resource->resType == CU_RESOURCE_TYPE_LINEAR || resource->resType == CU_RESOURCE_TYPE_PITCH2D);
  if (isMemory)
    if (const CUresult refused = shim().stopPlanning(real.entry().symbol, "a kernel reaches memory by a texture");
        refused != CUDA_SUCCESS)
      return refused;
  return real(texture, resource, description, view);
}

CUresult Hook<tag::cuStreamEndCapture>::call(const Real<CUresult (*)(CUstream, CUgraph *)> &real, CUstream stream,
                                             CUgraph *graph) {
  // A capture that has become invalid ends, too.
  const CUresult result = real(stream, graph);
  if (result != CUDA_ERROR_ILLEGAL_STATE && shim().isActive())
    shim().captureEnds(stream);
  return result;
}

CUresult Hook<tag::cuModuleGetFunction>::call(const Real<CUresult (*)(CUfunction *, CUmodule, const char *)> &real,
                                              CUfunction *function, CUmodule module, const char *name) {
  return gives(real(function, module, name), function, 1);
}

CUresult Hook<tag::cuModuleEnumerateFunctions>::call(const Real<CUresult (*)(CUfunction *, unsigned, CUmodule)> &real,
                                                     CUfunction *functions, unsigned count, CUmodule module) {
  return gives(real(functions, count, module), functions, count);
}

CUresult Hook<tag::cuKernelGetFunction>::call(const Real<CUresult (*)(CUfunction *, CUkernel)> &real,
                                              CUfunction *function, CUkernel kernel) {
  return gives(real(function, kernel), function, 1);
}

CUresult Hook<tag::cuLibraryGetKernel>::call(const Real<CUresult (*)(CUkernel *, CUlibrary, const char *)> &real,
                                             CUkernel *kernel, CUlibrary library, const char *name) {
  return gives(real(kernel, library, name), kernel, 1);
}

CUresult Hook<tag::cuLibraryEnumerateKernels>::call(const Real<CUresult (*)(CUkernel *, unsigned, CUlibrary)> &real,
                                                    CUkernel *kernels, unsigned count, CUlibrary library) {
  return gives(real(kernels, count, library), kernels, count);
}

CUresult Hook<tag::cuModuleUnload>::call(const Real<CUresult (*)(CUmodule)> &real, CUmodule module) {
  return unloads(real.entry(), [&] { return real(module); });
}

CUresult Hook<tag::cuLibraryUnload>::call(const Real<CUresult (*)(CUlibrary)> &real, CUlibrary library) {
  return unloads(real.entry(), [&] { return real(library); });
}

} // namespace pumpgraph::preload
