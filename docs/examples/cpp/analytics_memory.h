// SPDX-License-Identifier: Apache-2.0
/// \file
/// Where the analytics example gets its memory from: a pool of CUDA's, or PumpGraph.
#pragma once

#include "pumpgraph_memory.h"

#include "pumpgraph/resource.hpp"
#include "pumpgraph/tag.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

/// CUDA's stream-ordered pool.
class PoolMemory {
public:
  PoolMemory() {
    check(cudaDeviceGetDefaultMemPool(&pool_, 0), "the memory pool");
    std::uint64_t everything = UINT64_MAX;
    check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &everything), "the memory pool");
  }

  void *allocate(cudaStream_t stream, std::size_t bytes) {
    void *pointer = nullptr;
    check(cudaMallocAsync(&pointer, bytes, stream), "memory");
    return pointer;
  }
  void deallocate(cudaStream_t stream, void *pointer) { check(cudaFreeAsync(pointer, stream), "memory"); }

  /// thrust's allocator on one stream.
  class Allocator {
  public:
    using value_type = char;
    Allocator(PoolMemory &memory, cudaStream_t stream) : memory_(memory), stream_(stream) {}
    char *allocate(std::size_t bytes) { return static_cast<char *>(memory_.allocate(stream_, bytes)); }
    void deallocate(char *pointer, std::size_t) { memory_.deallocate(stream_, pointer); }

  private:
    PoolMemory &memory_;
    cudaStream_t stream_;
  };
  Allocator allocator(cudaStream_t stream) { return {*this, stream}; }

  int tag(const char *) { return 0; }
  void reads(cudaStream_t, std::initializer_list<const std::uint32_t *>, std::size_t) {}
  std::uint64_t peakBytes() const {
    std::uint64_t peak = 0;
    check(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemHigh, &peak), "the memory pool");
    return peak;
  }

private:
  cudaMemPool_t pool_ = nullptr;
};

/// The session's, with a tag for each stage of the query.
class SessionMemory : public pumpgraph::Resource {
public:
  explicit SessionMemory(pumpgraph::Session &session) : Resource(session), own_(session) {}

  pumpgraph::Tag tag(const char *name) { return {session(), name}; }
  /// Of each column the kernel that was launched last reads the `count` elements from here on.
  void reads(cudaStream_t stream, std::initializer_list<const std::uint32_t *> parts, std::size_t count) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
    if (status == cudaStreamCaptureStatusNone)
      return;
    std::vector<pumpgraph_byte_range> extents;
    for (const std::uint32_t *part : parts)
      extents.push_back({part, count * sizeof(std::uint32_t)});
    take(own_.declareExtents(stream, extents));
    take(own_.declareReads(stream, {parts.begin(), parts.end()}));
  }
  std::uint64_t peakBytes() const { return take(session().statistics()).device_peak_bytes; }

private:
  pumpgraph::Session &own_;
};

/// An array of the query's, freed in the order of its stream.
template <typename Element, typename Memory> class Array {
public:
  Array(Memory &memory, cudaStream_t stream, std::size_t count)
      : memory_(&memory), stream_(stream),
        data_(static_cast<Element *>(memory.allocate(stream, count * sizeof(Element)))) {}
  Array(Array &&other) noexcept
      : memory_(other.memory_), stream_(other.stream_), data_(std::exchange(other.data_, nullptr)) {}
  Array(const Array &) = delete;
  Array &operator=(const Array &) = delete;
  ~Array() {
    if (data_)
      memory_->deallocate(stream_, data_);
  }

  Element *data() const { return data_; }

private:
  Memory *memory_;
  cudaStream_t stream_;
  Element *data_;
};
