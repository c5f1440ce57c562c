// SPDX-License-Identifier: Apache-2.0
/// \file
/// Parameters of kernel nodes: offsets, sizes, and the words that are addresses.
#pragma once

#include "runtime/capture/LiftGraph.h"

#include <unordered_map>
#include <vector>

namespace pumpgraph::runtime {

/// Caches names and layouts, since a step launches few different kernels many times.
class KernelParameters {
public:
  KernelParameters(const Driver &driver, const AddressSpace &addresses, CUcontext context)
      : driver_(driver), addresses_(addresses), context_(context) {}

  /// Appends the kernel's launch and words to `node` and names it, or a refusal when they cannot be read.
  void read(CUgraphNode kernel, std::uint32_t inner, LiftedNode &node);

private:
  struct Parameter {
    std::size_t offset;
    std::size_t bytes;
  };
  struct Signature {
    std::string name;
    std::vector<Parameter> parameters;
  };

  const Signature &signatureOf(const CUDA_KERNEL_NODE_PARAMS_v2 &launch);
  void scan(const char *bytes, std::size_t size, std::uint32_t parameter, std::uint32_t inner, LiftedNode &node) const;

  const Driver &driver_;
  const AddressSpace &addresses_;
  CUcontext context_;
  std::unordered_map<const void *, Signature> signatures_; ///< by CUfunction or CUkernel
};

} // namespace pumpgraph::runtime
