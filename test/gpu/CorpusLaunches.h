// SPDX-License-Identifier: Apache-2.0
/// \file
/// The kernels of the Clang plugin's corpus, launched.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>

namespace pumpgraph::smoke {

/// Memory that keeps its values from one launch to the next, of `corpusCount` elements each.
struct CorpusInputs {
  float *floats = nullptr; ///< between 0.5 and 2, every third negative
  int *values = nullptr;   ///< from 0 to 127; nothing is found by them
  int *places = nullptr;   ///< a permutation of the indices
  int *offsets = nullptr;  ///< ascending, from 0 to corpusCount
  int *tokens = nullptr;   ///< from 0 to 63
  int *ones = nullptr;
};

/// A little less than whole pages, so that a kernel that poison leads a little astray stays in mapped memory.
inline constexpr int corpusCount = (1 << 20) - 2048;

/// Memory for one launch or two, and memory in which nothing is found by what it holds.
struct CorpusMemory {
  std::function<void *(std::size_t)> fresh;
  std::function<void *(std::size_t)> freshValues;
};

/// Launches on a stream that is being captured.
cudaError_t launchCorpus(cudaStream_t stream, const CorpusInputs &inputs, const CorpusMemory &memory);

} // namespace pumpgraph::smoke
