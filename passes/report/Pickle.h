// SPDX-License-Identifier: Apache-2.0
/// \file
/// Python's pickle format, as much of it as snapshots of memory need.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace pumpgraph {

/// Writes one value of dicts, lists, texts and integers in protocol 4 of Python's pickle. Its opcodes are documented in
/// Python's Lib/pickletools.py. Those used here are among the ones that PyTorch's memory viewer reads
/// (torch/utils/viz/MemoryViz.js), which knows no others.
///
///     pickle.beginDict();
///     pickle.key("sizes").beginList();
///     pickle.integer(4096);
///     pickle.endList();
///     pickle.endDict();
class Pickle {
public:
  Pickle();

  void beginDict();
  /// The value follows.
  Pickle &key(std::string_view name);
  void endDict();
  void beginList();
  /// Between items of a long list, every thousand: readers hold what was not yet added in an argument list.
  void nextItems();
  void endList();
  /// UTF-8. Only the first one of several alike is written out.
  void text(std::string_view value);
  void integer(std::int64_t value);
  void boolean(bool value);
  /// A tuple of two integers.
  void pair(std::int64_t first, std::int64_t second);

  /// The file. Nothing may be added afterwards.
  std::string take();

private:
  void byte(int value) { bytes_ += static_cast<char>(value); }
  void little(std::uint64_t value, int size);

  std::string bytes_;
  std::unordered_map<std::string, std::uint32_t> memo_; ///< texts, by their number
};

} // namespace pumpgraph
