// SPDX-License-Identifier: Apache-2.0
/// \file
/// Where the transformer example gets its tensors from: cudaMalloc, or PumpGraph.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

/// An example has nobody to hand an error to.
[[noreturn]] inline void fail(const std::string &message) {
  std::fprintf(stderr, "error: %s\n", message.c_str());
  std::exit(1);
}

inline void check(cudaError_t error, const char *what) {
  if (error != cudaSuccess)
    fail(std::string(what) + ": " + cudaGetErrorString(error));
}

/// Who touches an allocation once the step is captured. What only steps touch may leave the device.
enum class TouchedBy { Anybody, StepsOnly };

/// Gives and takes back device memory, in the order of one stream.
class Memory {
public:
  virtual ~Memory() = default;
  virtual void *allocate(std::size_t bytes, const std::string &name, TouchedBy touchedBy, cudaStream_t stream) = 0;
  virtual void free(void *pointer, cudaStream_t stream) = 0;
};

/// cudaMalloc behind free lists by size, as frameworks do it: what was freed is used again, so a capture that follows
/// an eager run of the same code finds all its memory here and calls cudaMalloc no more.
class PlainMemory : public Memory {
public:
  void *allocate(std::size_t bytes, const std::string &name, TouchedBy, cudaStream_t) override {
    live_ += bytes;
    peak_ = std::max(peak_, live_);
    std::vector<void *> &free = free_[bytes];
    void *pointer = nullptr;
    if (free.empty()) {
      check(cudaMalloc(&pointer, bytes), ("memory for " + name).c_str());
    } else {
      pointer = free.back();
      free.pop_back();
    }
    sizes_[pointer] = bytes;
    return pointer;
  }

  void free(void *pointer, cudaStream_t) override {
    const std::size_t bytes = sizes_.at(pointer);
    live_ -= bytes;
    free_[bytes].push_back(pointer);
  }

  /// The largest sum of bytes that were in use at a time.
  std::size_t peakBytes() const { return peak_; }

private:
  std::map<std::size_t, std::vector<void *>> free_;
  std::map<void *, std::size_t> sizes_;
  std::size_t live_ = 0;
  std::size_t peak_ = 0;
};

/// Keeps what is given back, for the next tensor of that size: all memory of a step that ran once is there for good, as
/// in programs that allocate before they start. Whoever looks at such memory cannot tell by its allocation where the
/// value in it dies.
class KeptMemory : public Memory {
public:
  explicit KeptMemory(Memory &source) : source_(source) {}

  void *allocate(std::size_t bytes, const std::string &name, TouchedBy touchedBy, cudaStream_t stream) override {
    std::vector<void *> &free = free_[{bytes, touchedBy}];
    if (free.empty()) {
      void *const pointer = source_.allocate(bytes, name, touchedBy, stream);
      kinds_[pointer] = {bytes, touchedBy};
      return pointer;
    }
    void *const pointer = free.back();
    free.pop_back();
    return pointer;
  }

  void free(void *pointer, cudaStream_t) override { free_[kinds_.at(pointer)].push_back(pointer); }

private:
  using Kind = std::pair<std::size_t, TouchedBy>;
  Memory &source_;
  std::map<Kind, std::vector<void *>> free_;
  std::map<void *, Kind> kinds_;
};

/// A named array of floats that gives its memory back when it goes out of scope.
class Tensor {
public:
  Tensor() = default;
  Tensor(Memory &memory, std::size_t count, const std::string &name, cudaStream_t stream,
         TouchedBy touchedBy = TouchedBy::Anybody)
      : memory_(&memory), stream_(stream), count_(count),
        data_(static_cast<float *>(memory.allocate(count * sizeof(float), name, touchedBy, stream))) {}
  Tensor(Tensor &&other) noexcept { swap(other); }
  Tensor &operator=(Tensor &&other) noexcept {
    Tensor(std::move(other)).swap(*this);
    return *this;
  }
  ~Tensor() {
    if (data_)
      memory_->free(data_, stream_);
  }

  float *data() const { return data_; }
  std::size_t count() const { return count_; }
  std::size_t sizeBytes() const { return count_ * sizeof(float); }

private:
  void swap(Tensor &other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(stream_, other.stream_);
    std::swap(count_, other.count_);
    std::swap(data_, other.data_);
  }

  Memory *memory_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::size_t count_ = 0;
  float *data_ = nullptr;
};
