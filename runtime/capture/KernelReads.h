// SPDX-License-Identifier: Apache-2.0
/// \file
/// Parameters that lead to memory which the kernel only reads, by kernel name.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace pumpgraph::runtime {

class KernelReads {
public:
  /// `name` is a function with its namespaces, "at::native::softmax"; of a template it stands for all instances.
  /// Nothing if a part of it is empty.
  static std::string symbolPrefixOf(std::string_view name);

  /// Adds to the knowledge about the kernel. Returns whether `name` is valid.
  bool add(std::string_view name, std::span<const std::uint32_t> parameters);

  /// Of a kernel with this mangled name (Itanium C++ ABI, 5.1).
  bool contains(std::string_view symbol, std::uint32_t parameter) const;

private:
  std::map<std::string, std::set<std::uint32_t>> byPrefix_;
};

} // namespace pumpgraph::runtime
