// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/EntryPoints.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace pumpgraph::preload {
namespace {

#define PUMPGRAPH_TAG(name)
#define PUMPGRAPH_VERSION(symbol, name, version, perThread)
#define PUMPGRAPH_ENTRY(symbol, name, kind, perThread)                                                                 \
  {#symbol, #name, EntryClass::kind, perThread, reinterpret_cast<void *>(&::symbol), {}},
/// In the order of Symbol, which is that of their names. Needs no constructor to have run: other libraries' may call.
EntryPoint entries[] = {
#include "runtime/preload/EntryPoints.inc"
};
#undef PUMPGRAPH_ENTRY
#undef PUMPGRAPH_VERSION

struct Version {
  const char *name;
  int version;
  bool perThread;
  Symbol symbol;
};
#define PUMPGRAPH_ENTRY(symbol, name, kind, perThread)
#define PUMPGRAPH_VERSION(symbol, name, version, perThread) {#name, version, perThread, Symbol::symbol},
constexpr Version versions[] = {
#include "runtime/preload/EntryPoints.inc"
};
#undef PUMPGRAPH_TAG
#undef PUMPGRAPH_ENTRY
#undef PUMPGRAPH_VERSION

constexpr const char *declared[] = {
#include "runtime/preload/KnownNames.inc"
};

/// Parts of names of functions that may matter.
constexpr std::array telling{"Alloc",       "Free",       "Memcpy", "Memset",    "Launch",   "Capture",
                             "Instantiate", "ExecUpdate", "MemMap", "MemUnmap",  "Prefetch", "SetParams",
                             "MemCreate",   "Export",     "Import", "Shareable", "Ipc",      "Multicast"};

} // namespace

EntryPoint &entryPoint(Symbol symbol) {
  return entries[static_cast<std::size_t>(symbol)];
}

EntryPoint *findSymbol(std::string_view symbol) {
  EntryPoint *const found =
      std::lower_bound(std::begin(entries), std::end(entries), symbol,
                       [](const EntryPoint &entry, std::string_view name) { return entry.symbol < name; });
  return found != std::end(entries) && found->symbol == symbol ? found : nullptr;
}

EntryPoint *findVersion(std::string_view name, int version, bool perThread) {
  const Version *best = nullptr;
  for (const Version &candidate : versions) {
    if (candidate.version > version || candidate.name != name || (candidate.perThread && !perThread))
      continue;
    // Where there is one for the thread's default stream, it is the one that was asked for.
    const auto rank = [](const Version &one) { return std::pair(one.perThread, one.version); };
    if (!best || rank(candidate) > rank(*best))
      best = &candidate;
  }
  return best ? &entryPoint(best->symbol) : nullptr;
}

int versionOf(const EntryPoint &entry) {
  for (const Version &candidate : versions)
    if (&entryPoint(candidate.symbol) == &entry && std::string_view(candidate.name) == entry.name)
      return candidate.version;
  return 0;
}

bool isDeclared(std::string_view name) {
  return std::binary_search(std::begin(declared), std::end(declared), name,
                            [](std::string_view one, std::string_view other) { return one < other; });
}

bool mayMatter(std::string_view name) {
  return std::any_of(telling.begin(), telling.end(),
                     [&](const char *part) { return name.find(part) != std::string_view::npos; });
}

} // namespace pumpgraph::preload
