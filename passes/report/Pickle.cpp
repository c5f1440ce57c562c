// SPDX-License-Identifier: Apache-2.0
#include "passes/report/Pickle.h"

#include <limits>
#include <utility>

namespace pumpgraph {

namespace {

/// By the names of Lib/pickletools.py.
enum Opcode : unsigned char {
  Proto = 0x80,
  Stop = '.',
  Mark = '(',
  EmptyDict = '}',
  SetItems = 'u',
  EmptyList = ']',
  Appends = 'e',
  BinInt = 'J',
  BinInt1 = 'K',
  BinInt2 = 'M',
  Long1 = 0x8a,
  NewTrue = 0x88,
  NewFalse = 0x89,
  Tuple2 = 0x86,
  ShortBinUnicode = 0x8c,
  BinUnicode = 'X',
  Memoize = 0x94,
  BinGet = 'h',
  LongBinGet = 'j',
};

} // namespace

Pickle::Pickle() {
  byte(Proto);
  byte(4);
}

void Pickle::little(std::uint64_t value, int size) {
  for (int i = 0; i < size; ++i)
    byte(static_cast<int>(value >> (8 * i) & 0xff));
}

void Pickle::beginDict() {
  byte(EmptyDict);
  byte(Mark);
}

Pickle &Pickle::key(std::string_view name) {
  text(name);
  return *this;
}

void Pickle::endDict() {
  byte(SetItems);
}

void Pickle::beginList() {
  byte(EmptyList);
  byte(Mark);
}

void Pickle::nextItems() {
  byte(Appends);
  byte(Mark);
}

void Pickle::endList() {
  byte(Appends);
}

void Pickle::text(std::string_view value) {
  const auto [known, isNew] = memo_.try_emplace(std::string(value), static_cast<std::uint32_t>(memo_.size()));
  constexpr std::size_t mostInAByte = 0xff;
  if (!isNew) {
    const bool isShort = known->second <= mostInAByte;
    byte(isShort ? BinGet : LongBinGet);
    little(known->second, isShort ? 1 : 4);
    return;
  }
  const bool isShort = value.size() <= mostInAByte;
  byte(isShort ? ShortBinUnicode : BinUnicode);
  little(value.size(), isShort ? 1 : 4);
  bytes_ += value;
  byte(Memoize);
}

void Pickle::integer(std::int64_t value) {
  if (value >= 0 && value <= 0xff) {
    byte(BinInt1);
    little(static_cast<std::uint64_t>(value), 1);
  } else if (value >= 0 && value <= 0xffff) {
    byte(BinInt2);
    little(static_cast<std::uint64_t>(value), 2);
  } else if (value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max()) {
    byte(BinInt);
    little(static_cast<std::uint64_t>(value), 4);
  } else {
    byte(Long1);
    byte(8);
    little(static_cast<std::uint64_t>(value), 8);
  }
}

void Pickle::boolean(bool value) {
  byte(value ? NewTrue : NewFalse);
}

void Pickle::pair(std::int64_t first, std::int64_t second) {
  integer(first);
  integer(second);
  byte(Tuple2);
}

std::string Pickle::take() {
  byte(Stop);
  return std::move(bytes_);
}

} // namespace pumpgraph
