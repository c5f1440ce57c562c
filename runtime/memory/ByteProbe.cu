// SPDX-License-Identifier: Apache-2.0
// The kernels behind ByteProbe.h. No build compiles this file: ByteProbe.ptx.inc is what comes of it, for the oldest
// device and driver there are, between R"ptx( and )ptx":
//   nvcc -std=c++17 -O2 -arch=compute_75 -I. -ptx runtime/memory/ByteProbe.cu -o - |
//     sed -e 's/^\.version .*/.version 6.4/' -e 's/^\.target .*/.target sm_70/' -e '/^\/\//d' -e '/^$/d'
#include "runtime/memory/Poison.h"

using namespace pumpgraph::runtime;

namespace {

constexpr unsigned counters = sizeof(ByteCounts) / sizeof(std::uint64_t);

__device__ std::uint32_t poisoned(const std::uint32_t *before, std::uint64_t at, std::uint64_t words,
                                  std::uint64_t firstWord, PoisonKind kind, std::uint32_t poison) {
  const bool isHigh = ((firstWord + at) & 1) != 0;
  const std::uint64_t partner = isHigh ? at - 1 : at + 1;
  return poisonOf(before[at], partner < words ? before[partner] : 0, isHigh, kind, poison);
}

__device__ std::uint32_t bytesThatDiffer(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t bits = a ^ b;
  return ((bits & 0xff) != 0) + ((bits & 0xff00) != 0) + ((bits & 0xff0000) != 0) + ((bits & 0xff000000) != 0);
}

__device__ std::uint32_t bytesThatDifferFromBoth(std::uint32_t now, std::uint32_t a, std::uint32_t b) {
  std::uint32_t count = 0;
  for (std::uint32_t shift = 0; shift < 32; shift += 8) {
    const std::uint32_t byte = now >> shift & 0xff;
    count += byte != (a >> shift & 0xff) && byte != (b >> shift & 0xff);
  }
  return count;
}

} // namespace

/// Writes the poisoned words of `before` to `target`.
extern "C" __global__ void pumpgraphPoison(std::uint32_t *target, const std::uint32_t *before, std::uint64_t words,
                                           std::uint64_t firstWord, std::uint32_t kind, std::uint32_t poison) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t at = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < words; at += stride)
    target[at] = poisoned(before, at, words, firstWord, static_cast<PoisonKind>(kind), poison);
}

/// Adds to the counters what `now` is, beside what the run began with and what it left without poison.
extern "C" __global__ void pumpgraphCount(const std::uint32_t *now, const std::uint32_t *before,
                                          const std::uint32_t *clean, std::uint64_t words, std::uint64_t firstWord,
                                          std::uint32_t kind, std::uint32_t poison, unsigned long long *counts) {
  __shared__ unsigned long long sums[counters];
  if (threadIdx.x < counters)
    sums[threadIdx.x] = 0;
  __syncthreads();
  unsigned long long changed = 0, other = 0, dependent = 0, poisonedWords = 0, nonzero = 0;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t at = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < words; at += stride) {
    const std::uint32_t start = poisoned(before, at, words, firstWord, static_cast<PoisonKind>(kind), poison);
    changed += bytesThatDiffer(now[at], start);
    other += bytesThatDiffer(now[at], clean[at]);
    dependent += bytesThatDifferFromBoth(now[at], start, clean[at]);
    poisonedWords += start != before[at];
    nonzero += before[at] != 0;
  }
  atomicAdd(&sums[0], changed);
  atomicAdd(&sums[1], other);
  atomicAdd(&sums[2], dependent);
  atomicAdd(&sums[3], poisonedWords);
  atomicAdd(&sums[4], nonzero);
  __syncthreads();
  if (threadIdx.x < counters && sums[threadIdx.x] != 0)
    atomicAdd(&counts[threadIdx.x], sums[threadIdx.x]);
}
