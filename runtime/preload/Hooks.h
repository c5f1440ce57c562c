// SPDX-License-Identifier: Apache-2.0
/// \file
/// What the shim does at each of the driver's calls. A call without a hook of its own does what its class says.
#pragma once

#include "runtime/preload/CallBuilder.h"
#include "runtime/preload/EntryPoints.h"
#include "runtime/preload/Shim.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <tuple>
#include <type_traits>

namespace pumpgraph::preload {

// The parts of a call that belong to its identity, by their types: sizes, and words that lead into allocations.
template <typename Argument> void addPart(CallBuilder &, const Argument &) {}
inline void addPart(CallBuilder &call, CUdeviceptr word) {
  call.word(word);
}
inline void addPart(CallBuilder &call, std::size_t size) {
  call.value(size);
}
inline void addPart(CallBuilder &call, const void *pointer) {
  call.word(reinterpret_cast<std::uintptr_t>(pointer));
}
inline void addPart(CallBuilder &call, void *pointer) {
  call.word(reinterpret_cast<std::uintptr_t>(pointer));
}
inline void addPart(CallBuilder &call, CUgraphExec exec) {
  call.value(reinterpret_cast<std::uintptr_t>(exec));
}
void addPart(CallBuilder &call, const CUDA_MEMCPY2D *copy);
void addPart(CallBuilder &call, const CUDA_MEMCPY3D *copy);
void addPart(CallBuilder &call, const CUDA_MEMCPY3D_PEER *copy);

template <typename... Arguments> CUstream streamAmong(Arguments... arguments) {
  CUstream stream = nullptr;
  const auto look = [&](auto argument) {
    if constexpr (std::is_same_v<decltype(argument), CUstream>)
      stream = argument;
  };
  (look(arguments), ...);
  return stream;
}

/// Each thread has its default stream, under one name.
inline bool isOfThread(const EntryPoint &entry, CUstream stream) {
  return stream == CU_STREAM_PER_THREAD || (stream == nullptr && entry.perThread);
}

inline runtime::CallStream callStream(const EntryPoint &entry, CUstream stream) {
  return {stream, isOfThread(entry, stream)};
}

NodeKind nodeKind(const EntryPoint &entry);
/// Whether it makes an executable graph.
bool isInstantiation(const EntryPoint &entry);

/// Of a call that makes or changes an executable graph.
struct GraphArguments {
  CUgraphExec *made = nullptr;
  CUgraphExec changed = nullptr;
  CUgraph graph = nullptr; ///< null: one node is changed
  std::uint64_t flags = 0;

  template <typename Argument> void add(const Argument &) {}
  void add(CUgraphExec *executable) { made = executable; }
  void add(CUgraphExec executable) { changed = executable; }
  void add(CUgraph of) { graph = of; }
  void add(unsigned long long given) { flags = given; }
  void add(const CUDA_GRAPH_INSTANTIATE_PARAMS *given) { flags = given->flags; }
  void add(CUDA_GRAPH_INSTANTIATE_PARAMS *given) { flags = given->flags; }
};
/// It has succeeded.
void noteExecutable(const EntryPoint &entry, const GraphArguments &given);
/// Why no round is planned once the program has called it; empty: that is no reason.
std::string_view whyNothingIsPlanned(const EntryPoint &entry);

/// The parts of a call in the log. Where the bytes that it reads and writes are not stated below, its words lead into
/// allocations that it may read and write as a whole, and no plan holds it.
template <typename Tag> struct Parts {
  template <typename... Arguments> static void add(CallBuilder &call, Arguments... arguments) {
    call.unplannable("its accesses are not known in full");
    (addPart(call, arguments), ...);
  }
};

struct CopyUp {
  template <typename... Rest>
  static void add(CallBuilder &call, CUdeviceptr to, const void *from, std::size_t bytes, Rest...) {
    call.span(to, bytes, modeWrite);
    call.uploads(to, reinterpret_cast<std::uintptr_t>(from), bytes);
  }
};
struct CopyDown {
  template <typename... Rest> static void add(CallBuilder &call, void *, CUdeviceptr from, std::size_t bytes, Rest...) {
    call.span(from, bytes, modeRead);
  }
};
struct CopyAcross {
  template <typename... Rest>
  static void add(CallBuilder &call, CUdeviceptr to, CUdeviceptr from, std::size_t bytes, Rest...) {
    call.span(from, bytes, modeRead);
    call.span(to, bytes, modeWrite);
    call.uploads(to, from, bytes);
  }
};
template <typename Unit> struct Fill {
  template <typename... Rest> static void add(CallBuilder &call, CUdeviceptr to, Unit, std::size_t count, Rest...) {
    call.span(to, count * sizeof(Unit), modeWrite);
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

/// Overwrites the stack that calls of the shim and of the driver have used. The program's next launch may pass some of
/// it on, as the bytes of a struct that nobody has written: addresses left there would look like operands, others in
/// each round.
class CleanStack {
public:
  CleanStack() = default;
  ~CleanStack() {
    if (shim().plans())
      clean();
  }
  CleanStack(const CleanStack &) = delete;
  CleanStack &operator=(const CleanStack &) = delete;

private:
  [[gnu::noinline]] static void clean() {
    std::array<char, 16384> used; // about a hundred nanoseconds
    std::memset(used.data(), 0, used.size());
    asm volatile("" : : "r"(used.data()) : "memory");
  }
};

/// Makes a call that the log takes, unless a stream is captured, whose calls become nodes. `describe` states its parts;
/// `issue` calls the driver.
///
/// Where rounds are planned, the parts are compared ahead of the call. The lock is held until the driver has taken the
/// call while a plan is in force, and not otherwise: then the driver may wait for the program.
template <typename Describe, typename Issue> CUresult perform(const Describe &describe, const Issue &issue) {
  // A callback of the driver's, within a call that holds the lock, is no call of the program's.
  if (!shim().follows() || shim().mutex().isMine() || (shim().isCapturing() && !shim().plans()))
    return issue();
  const auto describeTo = [&](runtime::Call &call) {
    CallBuilder builder(call, shim().memoryIfOpen(), shim().plans() ? &shim().hostRanges() : nullptr);
    describe(builder);
    if (call.awaited)
      shim().log().addRecord(call);
  };
  if (!shim().plans()) {
    const CUresult result = issue();
    if (result != CUDA_SUCCESS || shim().isCapturing())
      return result;
    const std::lock_guard lock(shim().mutex());
    std::unique_ptr<runtime::Call> call = shim().takeCall();
    describeTo(*call);
    shim().log().add(*call);
    shim().giveBack(std::move(call));
    return result;
  }
  std::unique_lock lock(shim().mutex());
  shim().nextEvent();
  StreamRun *const streams = shim().streams();
  if (!shim().isActive()) {
    lock.unlock();
    return issue();
  }
  std::unique_ptr<runtime::Call> call = shim().takeCall();
  describeTo(*call);
  const bool isCapturing = shim().isCapturing();
  if (streams)
    if (const runtime::Status ready = isCapturing ? streams->note(*call) : streams->beforeCall(*call); !ready)
      return shim().refuse(ready.error());
  const bool isPlanned = streams && streams->inForce();
  if (!isPlanned) {
    shim().enters();
    if (streams && shim().log().isWriting() && !isCapturing && !call->awaited)
      call->clock = streams->clocks().take();
    lock.unlock();
    if (streams) // records wait where the stream is full
      streams->clocks().begin(call->clock, call->stream.forDriver());
  }
  const CUresult result = issue();
  if (!isPlanned) {
    if (streams)
      streams->clocks().end(call->clock, call->stream.forDriver());
    lock.lock();
    shim().leaves();
  } else if (const runtime::Status done = streams->afterCall(*call, result); !done) {
    shim().say(Level::Error, done.error().message);
  }
  if (result == CUDA_SUCCESS && !isCapturing && !shim().isCapturing())
    shim().log().add(*call);
  shim().giveBack(std::move(call));
  return result;
}

/// Around a call that no round holds: a plan in force is taken back, and none comes into force until it is over.
class Outside {
public:
  explicit Outside(const EntryPoint &entry) {
    if (!shim().plans() || !shim().isActive() || shim().mutex().isMine())
      return;
    const std::lock_guard lock(shim().mutex());
    shim().nextEvent();
    if (shim().streams())
      if (const runtime::Status back = shim().streams()->leave(entry.symbol); !back)
        refusal_ = shim().refuse(back.error());
    shim().enters();
    hasEntered_ = true;
  }
  ~Outside() {
    if (!hasEntered_)
      return;
    const std::lock_guard lock(shim().mutex());
    shim().leaves();
  }
  Outside(const Outside &) = delete;
  Outside &operator=(const Outside &) = delete;

  /// CUDA_SUCCESS if the call may be made.
  CUresult refusal() const { return refusal_; }

private:
  CUresult refusal_ = CUDA_SUCCESS;
  bool hasEntered_ = false;
};

template <typename Tag> struct Hook {
  template <typename Function, typename... Arguments>
  static CUresult call(const Real<Function> &real, Arguments... arguments) {
    const EntryPoint &entry = real.entry();
    if (entry.kind == EntryClass::Shares && shim().follows())
      if (const CUresult refused = shim().stepAside(fmt::format("{} shares memory with others", entry.symbol));
          refused != CUDA_SUCCESS)
        return refused;
    if (const std::string_view reason = whyNothingIsPlanned(entry); !reason.empty())
      if (const CUresult refused = shim().stopPlanning(entry.symbol, reason); refused != CUDA_SUCCESS)
        return refused;
    const auto describe = [&](CallBuilder &call) {
      call.begin(nodeKind(entry), reinterpret_cast<std::uintptr_t>(&entry),
                 callStream(entry, streamAmong(arguments...)), entry.symbol);
      Parts<Tag>::add(call, arguments...);
    };
    switch (entry.kind) {
    case EntryClass::Copies:
    case EntryClass::Launches:
      return perform(describe, [&] { return real(arguments...); });
    case EntryClass::Allocates:
    case EntryClass::Instantiates:
    case EntryClass::Contexts: {
      const Outside outside(entry);
      if (outside.refusal() != CUDA_SUCCESS)
        return outside.refusal();
      const CUresult result = real(arguments...);
      if (result == CUDA_SUCCESS && entry.kind == EntryClass::Instantiates) {
        GraphArguments given;
        (given.add(arguments), ...);
        noteExecutable(entry, given);
      }
      return result;
    }
    default:
      return real(arguments...);
    }
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
PUMPGRAPH_HOOK(cuMemSetAccess, CUdeviceptr, std::size_t, const CUmemAccessDesc *, std::size_t);
PUMPGRAPH_HOOK(cuMemUnmap, CUdeviceptr, std::size_t);

// GraphHooks.cpp
PUMPGRAPH_HOOK(cuGraphLaunch, CUgraphExec, CUstream);
PUMPGRAPH_HOOK(cuGraphExecDestroy, CUgraphExec);

// HostHooks.cpp
PUMPGRAPH_HOOK(cuMemHostAlloc, void **, std::size_t, unsigned);
PUMPGRAPH_HOOK(cuMemAllocHost, void **, std::size_t);
PUMPGRAPH_HOOK(cuMemFreeHost, void *);
PUMPGRAPH_HOOK(cuMemHostRegister, void *, std::size_t, unsigned);
PUMPGRAPH_HOOK(cuMemHostUnregister, void *);

// LaunchHooks.cpp
PUMPGRAPH_HOOK(cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
               CUstream, void **, void **);
PUMPGRAPH_HOOK(cuLaunchCooperativeKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
               unsigned, CUstream, void **);
PUMPGRAPH_HOOK(cuLaunchKernelEx, const CUlaunchConfig *, CUfunction, void **, void **);
PUMPGRAPH_HOOK(cuEventRecord, CUevent, CUstream);
PUMPGRAPH_HOOK(cuEventRecordWithFlags, CUevent, CUstream, unsigned);
PUMPGRAPH_HOOK(cuEventDestroy, CUevent);
PUMPGRAPH_HOOK(cuStreamWaitEvent, CUstream, CUevent, unsigned);
PUMPGRAPH_HOOK(cuStreamEndCapture, CUstream, CUgraph *);
PUMPGRAPH_HOOK(cuTexObjectCreate, CUtexObject *, const CUDA_RESOURCE_DESC *, const CUDA_TEXTURE_DESC *,
               const CUDA_RESOURCE_VIEW_DESC *);
PUMPGRAPH_HOOK(cuModuleGetFunction, CUfunction *, CUmodule, const char *);
PUMPGRAPH_HOOK(cuModuleEnumerateFunctions, CUfunction *, unsigned, CUmodule);
PUMPGRAPH_HOOK(cuKernelGetFunction, CUfunction *, CUkernel);
PUMPGRAPH_HOOK(cuLibraryGetKernel, CUkernel *, CUlibrary, const char *);
PUMPGRAPH_HOOK(cuLibraryEnumerateKernels, CUkernel *, unsigned, CUlibrary);
PUMPGRAPH_HOOK(cuModuleUnload, CUmodule);
PUMPGRAPH_HOOK(cuLibraryUnload, CUlibrary);

// ContextHooks.cpp
PUMPGRAPH_HOOK(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice);
PUMPGRAPH_HOOK(cuDevicePrimaryCtxRelease, CUdevice);
PUMPGRAPH_HOOK(cuDevicePrimaryCtxReset, CUdevice);
PUMPGRAPH_HOOK(cuCtxDestroy, CUcontext);
PUMPGRAPH_HOOK(cuGreenCtxCreate, CUgreenCtx *, CUdevResourceDesc, CUdevice, unsigned);
PUMPGRAPH_HOOK(cuStreamDestroy, CUstream);

#undef PUMPGRAPH_HOOK

/// The device is the last argument of every version.
template <> struct Hook<tag::cuCtxCreate> {
  template <typename Function, typename... Arguments>
  static CUresult call(const Real<Function> &real, Arguments... arguments) {
    const Outside outside(real.entry());
    if (outside.refusal() != CUDA_SUCCESS)
      return outside.refusal();
    const CUresult result = real(arguments...);
    if (result == CUDA_SUCCESS && shim().follows())
      shim().beginsContext(std::get<sizeof...(Arguments) - 1>(std::tuple(arguments...)), false);
    return result;
  }
};

/// Notes host memory that kernels reach from now on. `note`: whether there is any.
template <typename Note> CUresult notesHostMemory(CUresult result, const Note &note) {
  if (result != CUDA_SUCCESS || !shim().plans() || !shim().isActive())
    return result;
  const std::lock_guard lock(shim().mutex());
  if (note(shim().hostRanges()) && shim().streams())
    shim().streams()->noteHostMemory();
  return result;
}

/// The device's address of host memory, of every version.
template <> struct Hook<tag::cuMemHostGetDevicePointer> {
  template <typename Function, typename Address>
  static CUresult call(const Real<Function> &real, Address *address, void *host, unsigned flags) {
    return notesHostMemory(real(address, host, flags), [&](HostRanges &ranges) {
      return ranges.noteAlias(*address, reinterpret_cast<std::uintptr_t>(host));
    });
  }
};

/// Descriptors that kernels get by value in place of addresses. The address is one of their words; a driver that writes
/// another form ends planning.
template <std::size_t address> struct DescribesMemory {
  template <typename Function, typename... Arguments>
  static CUresult call(const Real<Function> &real, Arguments... arguments) {
    const CUresult result = real(arguments...);
    if (result != CUDA_SUCCESS || !shim().plans())
      return result;
    const auto words = std::bit_cast<std::array<std::uint64_t, sizeof(CUtensorMap) / sizeof(std::uint64_t)>>(
        *std::get<0>(std::tuple(arguments...)));
    const auto word = reinterpret_cast<std::uintptr_t>(std::get<address>(std::tuple(arguments...)));
    if (std::find(words.begin(), words.end(), word) != words.end())
      return result;
    return shim().stopPlanning(real.entry().symbol, "its descriptor hides the address");
  }
};
template <> struct Hook<tag::cuTensorMapEncodeTiled> : DescribesMemory<3> {};
template <> struct Hook<tag::cuTensorMapEncodeIm2col> : DescribesMemory<3> {};
template <> struct Hook<tag::cuTensorMapEncodeIm2colWide> : DescribesMemory<3> {};
template <> struct Hook<tag::cuTensorMapReplaceAddress> : DescribesMemory<1> {};

struct BeginsCapture {
  template <typename Function, typename... Arguments>
  static CUresult call(const Real<Function> &real, Arguments... arguments) {
    const bool follows = shim().follows();
    const Outside outside(real.entry());
    if (outside.refusal() != CUDA_SUCCESS)
      return outside.refusal();
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
