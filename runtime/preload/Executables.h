// SPDX-License-Identifier: Apache-2.0
/// \file
/// The program's executable graphs, and the words that their nodes take to memory.
#pragma once

#include "runtime/driver/Driver.h"
#include "runtime/preload/Kernels.h"
#include "runtime/preload/Memory.h"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace pumpgraph::preload {

/// All words of parameters, each once.
using GraphWords = std::vector<std::uint64_t>;

/// Of a graph of kernels, fills and copies on the device. Nothing of any other: its nodes may reach all memory, or wait
/// for the program.
std::optional<GraphWords> wordsOf(const runtime::Driver &driver, CUgraph graph, const Memory &memory, Kernels &kernels);

/// The memory behind the addresses of an executable graph must stay: the driver may have looked at it. Not thread-safe.
class Executables {
public:
  struct Known {
    std::uint64_t number = 0; ///< counts all: handles come back
    GraphWords words;
  };

  /// It is made, or made anew of another graph.
  void begin(CUgraphExec executable, std::optional<GraphWords> words);
  /// A node of it has other parameters.
  void change(CUgraphExec executable) { executables_[executable].reset(); }
  void end(CUgraphExec executable) { executables_.erase(executable); }
  /// Null if its nodes may reach any memory.
  const Known *find(CUgraphExec executable) const;
  bool areAllKnown() const;

private:
  std::map<CUgraphExec, std::optional<Known>> executables_;
  std::uint64_t lastNumber_ = 0;
};

} // namespace pumpgraph::preload
