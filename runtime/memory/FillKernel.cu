// SPDX-License-Identifier: Apache-2.0
// The kernel behind FillKernel.h. No build compiles this file: FillKernel.ptx.inc is what comes of it, for the oldest
// device and driver there are, between R"ptx( and )ptx":
//   nvcc -std=c++17 -O2 -arch=compute_75 -ptx runtime/memory/FillKernel.cu -o - |
//     sed -e 's/^\.version .*/.version 6.4/' -e 's/^\.target .*/.target sm_70/' -e '/^\/\//d' -e '/^$/d'
#include <cstdint>

/// Writes `value`, a pattern of four bytes that begins anew at every row, to `rows` rows of `rowBytes`, `pitch` apart.
extern "C" __global__ void pumpgraphFill(char *target, std::uint64_t pitch, std::uint64_t rowBytes, std::uint64_t rows,
                                         std::uint32_t value) {
  const std::uint64_t first = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    char *begin = target + row * pitch;
    if (((reinterpret_cast<std::uint64_t>(begin) | rowBytes) & 3) == 0) {
      for (std::uint64_t at = first; at < rowBytes / 4; at += stride)
        reinterpret_cast<std::uint32_t *>(begin)[at] = value;
    } else {
      for (std::uint64_t at = first; at < rowBytes; at += stride)
        begin[at] = static_cast<char>(value >> 8 * (at & 3));
    }
  }
}
