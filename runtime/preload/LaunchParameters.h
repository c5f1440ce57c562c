// SPDX-License-Identifier: Apache-2.0
/// \file
/// Parameters of a launch that are given in one piece.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <span>

namespace pumpgraph::preload {

/// Empty if they are not given so.
inline std::span<const char> packedParameters(void **extra) {
  const char *data = nullptr;
  std::size_t bytes = 0;
  for (void **entry = extra; entry && *entry != CU_LAUNCH_PARAM_END; entry += 2) {
    if (*entry == CU_LAUNCH_PARAM_BUFFER_POINTER)
      data = static_cast<const char *>(entry[1]);
    else if (*entry == CU_LAUNCH_PARAM_BUFFER_SIZE)
      bytes = *static_cast<const std::size_t *>(entry[1]);
  }
  return {data, data ? bytes : 0};
}

} // namespace pumpgraph::preload
