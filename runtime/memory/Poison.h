// SPDX-License-Identifier: Apache-2.0
/// \file
/// The poison values of observed operands, and the byte counts after a run, for the processor and the device.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define PUMPGRAPH_ON_DEVICE __host__ __device__
#else
#define PUMPGRAPH_ON_DEVICE
#endif

namespace pumpgraph::runtime {

/// The words of an operand that can be changed without misleading its kernel. The values are arguments of kernels.
enum class PoisonKind : std::uint32_t {
  None = 0,
  Fresh = 1,  ///< every one: no node has set them yet, so that no kernel can rely on them
  Values = 2, ///< every one: the caller says that nothing is found by them
  Floats = 3  ///< those that look like floating-point numbers
};

/// There are two poisons of each kind, which differ from one another wherever they differ from the value.
inline constexpr std::uint32_t poisons = 2;

/// Counts of the bytes of one piece of memory after a run, in the order of the device's counters.
struct ByteCounts {
  std::uint64_t changed = 0;   ///< other than when the run began
  std::uint64_t other = 0;     ///< other than after the run without poison
  std::uint64_t dependent = 0; ///< both: the write depends on the old contents, or on other poison
  std::uint64_t poisoned = 0;  ///< words that were poisoned
  std::uint64_t nonzero = 0;   ///< words that were not zero before they were poisoned
};

/// Whether a word is a float, or its upper half a bfloat16, or both halves float16, of a size that computations have.
/// Indices, counts and flags below 2^28 are not.
PUMPGRAPH_ON_DEVICE inline bool looksLikeFloat(std::uint32_t word) {
  const std::uint32_t exponent = word >> 23 & 0xff;
  return exponent >= 48 && exponent <= 200;
}

/// Whether two words are the halves of a number that could be an address.
PUMPGRAPH_ON_DEVICE inline bool looksLikeAddress(std::uint32_t /*low*/, std::uint32_t high) {
  return high != 0 && high <= 0x1ffff;
}

/// `partner` is the other half of the eight aligned bytes; `isHigh`: of which this word is the upper half. Floats stay
/// finite and as large as they were but for a factor of two; the second poison changes signs as well, which a
/// comparison with zero sees.
PUMPGRAPH_ON_DEVICE inline std::uint32_t poisonOf(std::uint32_t word, std::uint32_t partner, bool isHigh,
                                                  PoisonKind kind, std::uint32_t poison) {
  if (kind == PoisonKind::Fresh)
    return poison == 0 ? 0xa5a5a5a5 : 0x5a5a5a5a;
  if (kind == PoisonKind::Values)
    return word ^ (poison == 0 ? 1 : 2); // what was counted of sort keys still nearly holds
  const bool mayChange = kind == PoisonKind::Floats && looksLikeFloat(word) &&
                         !looksLikeAddress(isHigh ? partner : word, isHigh ? word : partner);
  return mayChange ? word ^ (poison == 0 ? 0x00400040 : 0x80208020) : word;
}

} // namespace pumpgraph::runtime
