// SPDX-License-Identifier: Apache-2.0
/// \file
/// The transformer example's memory under PumpGraph.
#pragma once

#include "memory.h"

#include "pumpgraph/pumpgraph.hpp"

#include <map>
#include <string>
#include <utility>

/// The value, or the end of the program.
template <typename Value> Value take(pumpgraph::Expected<Value> expected) {
  if (!expected)
    fail(expected.error().message);
  return *std::move(expected);
}

inline void take(const pumpgraph::Status &status) {
  if (!status)
    fail(status.error().message);
}

class PumpGraphMemory : public Memory {
public:
  explicit PumpGraphMemory(const pumpgraph::SessionOptions &options)
      : session_(take(pumpgraph::Session::create(options))) {}

  void *allocate(std::size_t bytes, const std::string &name, TouchedBy touchedBy, cudaStream_t stream) override {
    using pumpgraph::Privacy;
    const Privacy privacy = touchedBy == TouchedBy::StepsOnly ? Privacy::Private : Privacy::Exclusive;
    pumpgraph::Buffer<char> buffer =
        take(session_.allocate<char>(bytes, {.privacy = privacy, .name = name, .stream = stream}));
    void *pointer = buffer.data();
    buffers_.emplace(pointer, std::move(buffer));
    return pointer;
  }

  void free(void *pointer, cudaStream_t) override { buffers_.erase(pointer); }

  pumpgraph::Session &session() { return session_; }
  pumpgraph_memory_stats statistics() const { return take(session_.statistics()); }

private:
  pumpgraph::Session session_;
  std::map<void *, pumpgraph::Buffer<char>> buffers_;
};
