// SPDX-License-Identifier: Apache-2.0
/// \file
/// Random numbers that are the same on every machine: tests name a failure by its seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

namespace pumpgraph::test {

/// The finaliser of SplitMix64: a bijection on 64 bits that leaves no pattern.
inline std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

inline std::uint64_t mix(std::uint64_t first, std::uint64_t second) {
  return mix(mix(first) ^ second);
}

/// `run(first seed, how many)` with the arguments of a program, which are these two: 0 and 1000 unless given.
inline int runSeeds(int argumentCount, char **arguments, int (*run)(std::uint64_t, std::uint64_t)) {
  const auto number = [&](int index, std::uint64_t otherwise) {
    return argumentCount > index ? std::strtoull(arguments[index], nullptr, 10) : otherwise;
  };
  return run(number(1, 0), number(2, 1000));
}

class Random {
public:
  explicit Random(std::uint64_t seed) : state_(mix(seed)) {}

  std::uint64_t next() { return mix(state_++); }
  /// 0 to `count` - 1; `count` > 0.
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(next() % count); }
  /// `low` to `high`, both included.
  std::size_t between(std::size_t low, std::size_t high) { return low + below(high - low + 1); }
  bool chance(unsigned percent) { return below(100) < percent; }

  template <typename T> void shuffle(std::vector<T> &values) {
    for (std::size_t i = values.size(); i > 1; --i)
      std::swap(values[i - 1], values[below(i)]);
  }

private:
  std::uint64_t state_;
};

} // namespace pumpgraph::test
