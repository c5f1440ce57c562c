// SPDX-License-Identifier: Apache-2.0
/// \file
/// What the shim does at each of the driver's calls. A call without a hook of its own does what its class says.
#pragma once

#include "runtime/preload/EntryPoints.h"
#include "runtime/preload/Shim.h"

#include <mutex>
#include <tuple>
#include <type_traits>

namespace pumpgraph::preload {

// The parts of a call that belong to its identity, by their types: sizes, and words that lead into allocations.
template <typename Argument> void addPart(CallLog &, const Argument &) {}
inline void addPart(CallLog &log, CUdeviceptr word) {
  log.word(word);
}
inline void addPart(CallLog &log, std::size_t size) {
  log.value(size);
}
inline void addPart(CallLog &log, const void *pointer) {
  log.word(reinterpret_cast<std::uintptr_t>(pointer));
}
inline void addPart(CallLog &log, void *pointer) {
  log.word(reinterpret_cast<std::uintptr_t>(pointer));
}
inline void addPart(CallLog &log, CUgraphExec exec) {
  log.value(reinterpret_cast<std::uintptr_t>(exec));
}
void addPart(CallLog &log, const CUDA_MEMCPY2D *copy);
void addPart(CallLog &log, const CUDA_MEMCPY3D *copy);
void addPart(CallLog &log, const CUDA_MEMCPY3D_PEER *copy);

template <typename... Arguments> CUstream streamAmong(Arguments... arguments) {
  CUstream stream = nullptr;
  const auto look = [&](auto argument) {
    if constexpr (std::is_same_v<decltype(argument), CUstream>)
      stream = argument;
  };
  (look(arguments), ...);
  return stream;
}

/// Locks the shim's state if its log takes a call: not while a stream is captured, whose calls become nodes.
class Logging {
public:
  Logging() {
    if (shim().follows() && !shim().isCapturing())
      lock_ = std::unique_lock(shim().mutex());
  }
  explicit operator bool() const { return lock_.owns_lock(); }

private:
  std::unique_lock<std::mutex> lock_;
};

/// Each thread has its default stream, under one name.
inline bool isOfThread(const EntryPoint &entry, CUstream stream) {
  return stream == CU_STREAM_PER_THREAD || (stream == nullptr && entry.perThread);
}

inline CallStream callStream(const EntryPoint &entry, CUstream stream) {
  return {stream, isOfThread(entry, stream)};
}

NodeKind nodeKind(const EntryPoint &entry);

/// The parts of a call in the log. Where the bytes that it reads and writes are not stated below, its words lead into
/// allocations that it may read and write as a whole.
template <typename Tag> struct Parts {
  template <typename... Arguments> static void add(CallLog &log, Arguments... arguments) {
    (addPart(log, arguments), ...);
  }
};

struct CopyUp {
  template <typename... Rest> static void add(CallLog &log, CUdeviceptr to, const void *, std::size_t bytes, Rest...) {
    log.span(to, bytes, modeWrite);
  }
};
struct CopyDown {
  template <typename... Rest> static void add(CallLog &log, void *, CUdeviceptr from, std::size_t bytes, Rest...) {
    log.span(from, bytes, modeRead);
  }
};
struct CopyAcross {
  template <typename... Rest>
  static void add(CallLog &log, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, Rest...) {
    log.span(from, bytes, modeRead);
    log.span(to, bytes, modeWrite);
  }
};
template <typename Unit> struct Fill {
  template <typename... Rest> static void add(CallLog &log, CUdeviceptr to, Unit, std::size_t count, Rest...) {
    log.span(to, count * sizeof(Unit), modeWrite);
  }
};
template <> struct Parts<tag::cuMemcpyHtoD> : CopyUp {};
template <> struct Parts<tag::cuMemcpyHtoDAsync> : CopyUp {};
template <> struct Parts<tag::cuMemcpyDtoH> : CopyDown {};
template <> struct Parts<tag::cuMemcpyDtoHAsync> : CopyDown {};
template <> struct Parts<tag::cuMemcpyDtoD> : CopyAcross {};
template <> struct Parts<tag::cuMemcpyDtoDAsync> : CopyAcross {};
template <> struct Parts<tag::cuMemcpy> : CopyAcross {};
template <> struct Parts<tag::cuMemcpyAsync> : CopyAcross {};
template <> struct Parts<tag::cuMemsetD8> : Fill<unsigned char> {};
template <> struct Parts<tag::cuMemsetD8Async> : Fill<unsigned char> {};
template <> struct Parts<tag::cuMemsetD16> : Fill<unsigned short> {};
template <> struct Parts<tag::cuMemsetD16Async> : Fill<unsigned short> {};
template <> struct Parts<tag::cuMemsetD32> : Fill<unsigned> {};
template <> struct Parts<tag::cuMemsetD32Async> : Fill<unsigned> {};

template <typename Tag, typename... Arguments> void logCall(const EntryPoint &entry, Arguments... arguments) {
  if (const Logging logging; logging) {
    CallLog &log = shim().log();
    log.begin(nodeKind(entry), reinterpret_cast<std::uintptr_t>(&entry), callStream(entry, streamAmong(arguments...)),
              entry.symbol);
    Parts<Tag>::add(log, arguments...);
    log.end();
  }
}

template <typename Tag> struct Hook {
  template <typename Function, typename... Arguments>
  static CUresult call(const Real<Function> &real, Arguments... arguments) {
    const EntryClass kind = real.entry().kind;
    if (kind == EntryClass::Shares && shim().follows())
      shim().stepAside(fmt::format("{} shares memory with others", real.entry().symbol));
    const CUresult result = real(arguments...);
    if (result == CUDA_SUCCESS && (kind == EntryClass::Copies || kind == EntryClass::Launches))
      logCall<Tag>(real.entry(), arguments...);
    return result;
  }
};

template <> struct Hook<tag::Ancient> {
  template <typename Function, typename... Arguments>
  static CUresult call(const Real<Function> &real, Arguments... arguments) {
    if (shim().follows())
      shim().stepAside(fmt::format("{} has addresses of 32 bits", real.entry().symbol));
    return real(arguments...);
  }
};

#define PUMPGRAPH_HOOK(name, ...)                                                                                      \
  template <> struct Hook<tag::name> {                                                                                 \
    static CUresult call(const Real<CUresult (*)(__VA_ARGS__)> &real, __VA_ARGS__);                                    \
  }

// MemoryHooks.cpp
PUMPGRAPH_HOOK(cuMemAlloc, CUdeviceptr *, std::size_t);
PUMPGRAPH_HOOK(cuMemAllocPitch, CUdeviceptr *, std::size_t *, std::size_t, std::size_t, unsigned);
PUMPGRAPH_HOOK(cuMemAllocAsync, CUdeviceptr *, std::size_t, CUstream);
PUMPGRAPH_HOOK(cuMemAllocFromPoolAsync, CUdeviceptr *, std::size_t, CUmemoryPool, CUstream);
PUMPGRAPH_HOOK(cuMemFree, CUdeviceptr);
PUMPGRAPH_HOOK(cuMemFreeAsync, CUdeviceptr, CUstream);
PUMPGRAPH_HOOK(cuMemGetInfo, std::size_t *, std::size_t *);
PUMPGRAPH_HOOK(cuMemGetAddressRange, CUdeviceptr *, std::size_t *, CUdeviceptr);

// MappingHooks.cpp
PUMPGRAPH_HOOK(cuMemCreate, CUmemGenericAllocationHandle *, std::size_t, const CUmemAllocationProp *,
               unsigned long long);
PUMPGRAPH_HOOK(cuMemRelease, CUmemGenericAllocationHandle);
PUMPGRAPH_HOOK(cuMemRetainAllocationHandle, CUmemGenericAllocationHandle *, void *);
PUMPGRAPH_HOOK(cuMemMap, CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle, unsigned long long);
PUMPGRAPH_HOOK(cuMemUnmap, CUdeviceptr, std::size_t);

// LaunchHooks.cpp
PUMPGRAPH_HOOK(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
               CUstream, void **, void **);
PUMPGRAPH_HOOK(cuLaunchCooperativeKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
               unsigned, CUstream, void **);
PUMPGRAPH_HOOK(cuLaunchKernelEx, const CUlaunchConfig *, CUfunction, void **, void **);
PUMPGRAPH_HOOK(cuEventRecord, CUevent, CUstream);
PUMPGRAPH_HOOK(cuEventRecordWithFlags, CUevent, CUstream, unsigned);
PUMPGRAPH_HOOK(cuStreamWaitEvent, CUstream, CUevent, unsigned);
PUMPGRAPH_HOOK(cuStreamEndCapture, CUstream, CUgraph *);
PUMPGRAPH_HOOK(cuModuleGetFunction, CUfunction *, CUmodule, const char *);
PUMPGRAPH_HOOK(cuModuleEnumerateFunctions, CUfunction *, unsigned, CUmodule);
PUMPGRAPH_HOOK(cuKernelGetFunction, CUfunction *, CUkernel);
PUMPGRAPH_HOOK(cuLibraryGetKernel, CUkernel *, CUlibrary, const char *);
PUMPGRAPH_HOOK(cuLibraryEnumerateKernels, CUkernel *, unsigned, CUlibrary);
PUMPGRAPH_HOOK(cuModuleUnload, CUmodule);
PUMPGRAPH_HOOK(cuLibraryUnload, CUlibrary);

// ContextHooks.cpp
PUMPGRAPH_HOOK(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice);
PUMPGRAPH_HOOK(cuDevicePrimaryCtxReset, CUdevice);
PUMPGRAPH_HOOK(cuCtxDestroy, CUcontext);
PUMPGRAPH_HOOK(cuGreenCtxCreate, CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned);
PUMPGRAPH_HOOK(cuStreamDestroy, CUstream);

#undef PUMPGRAPH_HOOK

/// The device is the last argument of every version.
template <> struct Hook<tag::cuCtxCreate> {
  template <typename Function, typename... Arguments>
  static CUresult call(const Real<Function> &real, Arguments... arguments) {
    const CUresult result = real(arguments...);
    if (result == CUDA_SUCCESS && shim().follows())
      shim().beginsContext(std::get<sizeof...(Arguments) - 1>(std::tuple(arguments...)), false);
    return result;
  }
};

struct BeginsCapture {
  template <typename Function, typename... Arguments>
  static CUresult call(const Real<Function> &real, Arguments... arguments) {
    const bool follows = shim().follows();
    if (follows) {
      const std::lock_guard lock(shim().mutex());
      if (Memory *const memory = shim().memoryIfOpen())
        memory->makeRoomForCapture();
    }
    const CUresult result = real(arguments...);
    if (result == CUDA_SUCCESS && follows)
      shim().captureBegins(streamAmong(arguments...));
    return result;
  }
};
template <> struct Hook<tag::cuStreamBeginCapture> : BeginsCapture {};
template <> struct Hook<tag::cuStreamBeginCaptureToGraph> : BeginsCapture {};

} // namespace pumpgraph::preload
