// SPDX-License-Identifier: Apache-2.0
/// \file
/// Values drawn from a fuzzer's bytes. Past their end every value is zero, so every input is usable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace pumpgraph::fuzz {

class Bytes {
public:
  Bytes(const std::uint8_t *data, std::size_t size) : data_(data), left_(size) {}

  template <typename Value> Value take() {
    Value value{};
    const std::size_t size = left_ < sizeof value ? left_ : sizeof value;
    if (size != 0)
      std::memcpy(&value, data_, size);
    skip(size);
    return value;
  }

  /// 0 to `most`.
  std::size_t upTo(std::size_t most) { return take<std::uint8_t>() % (most + 1); }

  /// Of any size, often near a boundary: a small multiple of `unit`, a little more, close to 2^64, or any.
  std::uint64_t number(std::uint64_t unit = 1) {
    switch (upTo(3)) {
    case 0:
      return upTo(15) * unit;
    case 1:
      return upTo(15) * unit + take<std::uint8_t>();
    case 2:
      return ~std::uint64_t{0} - upTo(15) * unit;
    default:
      return take<std::uint64_t>();
    }
  }

  std::string text() {
    std::string text;
    for (std::size_t left = upTo(12); left > 0; --left)
      text += static_cast<char>(take<std::uint8_t>());
    return text.substr(0, text.find('\0'));
  }

  std::vector<char> block(std::size_t size) {
    std::vector<char> bytes(size);
    for (char &byte : bytes)
      byte = take<char>();
    return bytes;
  }

private:
  void skip(std::size_t size) {
    data_ += size;
    left_ -= size;
  }

  const std::uint8_t *data_;
  std::size_t left_;
};

} // namespace pumpgraph::fuzz

/// Aborts with the message if the condition is false; the fuzzer keeps the input.
#define PUMPGRAPH_FUZZ_CHECK(condition, message)                                                                       \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, std::string(message).c_str());                           \
      std::abort();                                                                                                    \
    }                                                                                                                  \
  } while (false)
