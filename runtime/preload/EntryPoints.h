// SPDX-License-Identifier: Apache-2.0
/// \file
/// The driver's entry points that the shim stands in for: their classes, versions, and the driver's own functions. The
/// table is generated from cuda.h; entry_points.txt has the classes.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

namespace pumpgraph::preload {

enum class EntryClass : std::uint8_t {
  Allocates,
  Frees,
  Maps,
  Informs,
  Copies,
  Launches,
  Orders,
  Captures,
  Instantiates,
  Finds,
  Contexts,
  Hides,
  Reaches,
  Shares,
  Other
};

/// Each exported function that the shim stands in for, under its exact name.
enum class Symbol : std::uint16_t {
#define PUMPGRAPH_TAG(name)
#define PUMPGRAPH_ENTRY(symbol, name, kind, perThread) symbol,
#define PUMPGRAPH_VERSION(symbol, name, version, perThread)
#include "runtime/preload/EntryPoints.inc"
#undef PUMPGRAPH_TAG
#undef PUMPGRAPH_ENTRY
#undef PUMPGRAPH_VERSION
};

/// A type for each name without version and suffix, which chooses its Hook.
namespace tag {
#define PUMPGRAPH_TAG(name) struct name;
#define PUMPGRAPH_ENTRY(symbol, name, kind, perThread)
#define PUMPGRAPH_VERSION(symbol, name, version, perThread)
#include "runtime/preload/EntryPoints.inc"
#undef PUMPGRAPH_TAG
#undef PUMPGRAPH_ENTRY
#undef PUMPGRAPH_VERSION
/// Versions with a 32-bit address space.
struct Ancient;
} // namespace tag

struct EntryPoint {
  const char *symbol; ///< "cuMemcpyAsync_ptsz"
  const char *name;   ///< "cuMemcpyAsync"
  EntryClass kind;
  bool perThread;           ///< its default stream is the thread's
  void *standIn;            ///< the shim's function
  std::atomic<void *> real; ///< the driver's, once it was asked for
};

EntryPoint &entryPoint(Symbol symbol);
/// By the exact name; null if the shim lets calls of it through.
EntryPoint *findSymbol(std::string_view symbol);
/// By the name, version and default stream that cuGetProcAddress is asked for.
EntryPoint *findVersion(std::string_view name, int version, bool perThread);
/// The version by which cuGetProcAddress finds it under its name; 0: none does.
int versionOf(const EntryPoint &entry);
/// Whether cuda.h declares it, without version and suffix.
bool isDeclared(std::string_view name);
/// Whether a function of this name may allocate, free, copy, launch, capture or instantiate.
bool mayMatter(std::string_view name);

/// The driver's function behind a symbol. A call of one that the driver lacks gives CUDA_ERROR_NOT_FOUND.
template <typename Function> class Real;
template <typename... Parameters> class Real<CUresult (*)(Parameters...)> {
public:
  using Pointer = CUresult (*)(Parameters...);

  explicit Real(Symbol symbol);
  CUresult operator()(Parameters... parameters) const {
    return function_ ? function_(parameters...) : CUDA_ERROR_NOT_FOUND;
  }
  EntryPoint &entry() const { return entry_; }

private:
  EntryPoint &entry_;
  Pointer function_;
};

/// The driver's function for an entry point; null if there is none.
void *realFunction(EntryPoint &entry);
/// The driver's function by name and version, past the shim; null if there is none.
void *driverFunction(const char *name, int version, cuuint64_t flags = CU_GET_PROC_ADDRESS_DEFAULT);

template <typename... Parameters>
Real<CUresult (*)(Parameters...)>::Real(Symbol symbol)
    : entry_(entryPoint(symbol)), function_(reinterpret_cast<Pointer>(realFunction(entry_))) {}

} // namespace pumpgraph::preload
