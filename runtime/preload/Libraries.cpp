// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/Libraries.h"

#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>

namespace pumpgraph::preload {
namespace {

/// Of libraries that were loaded, at the last question.
constinit std::atomic<unsigned long long> lookedAt = 0;

/// Not 0: no further library is to be shown.
int look(dl_phdr_info *library, std::size_t, void *name) {
  if (library->dlpi_adds == lookedAt.load(std::memory_order_relaxed))
    return 1;
  const std::string_view path = library->dlpi_name;
  if (!reachesMemoryUnseen(path))
    return 0;
  *static_cast<std::string *>(name) = path.substr(path.rfind('/') + 1);
  return 1;
}

int count(dl_phdr_info *library, std::size_t, void *adds) {
  *static_cast<unsigned long long *>(adds) = library->dlpi_adds;
  return 1;
}

} // namespace

bool reachesMemoryUnseen(std::string_view path) {
  constexpr std::array libraries{"libnvidia-encode.so", "libnvcuvid.so", "libnvoptix.so"};
  return std::any_of(libraries.begin(), libraries.end(),
                     [&](const char *library) { return path.find(library) != std::string_view::npos; });
}

std::string loadedPastTheDriver() {
  std::string name;
  unsigned long long adds = 0; // ahead of the look: what comes during it is looked at again
  dl_iterate_phdr(count, &adds);
  dl_iterate_phdr(look, &name);
  lookedAt.store(adds, std::memory_order_relaxed);
  return name;
}

} // namespace pumpgraph::preload
