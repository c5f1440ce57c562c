// SPDX-License-Identifier: Apache-2.0
/// \file
/// A kernel with the effect of a memset node.
#pragma once

#include "runtime/driver/Driver.h"

#include <array>
#include <memory>
#include <optional>

namespace pumpgraph::runtime {

class FillKernel {
public:
  /// Loads the kernel into the current context.
  static Expected<std::unique_ptr<FillKernel>> load(const Driver &driver);
  ~FillKernel();
  FillKernel(const FillKernel &) = delete;
  FillKernel &operator=(const FillKernel &) = delete;

  CUfunction function() const { return function_; }
  /// What the kernel node fills, if it is one of these: in elements of one byte, and without the value.
  std::optional<CUDA_MEMSET_NODE_PARAMS> fillOf(CUgraphNode kernel) const;

private:
  explicit FillKernel(const Driver &driver) : driver_(driver) {}

  const Driver &driver_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

/// A launch of the kernel. It must live until its parameters are read.
class FillLaunch {
public:
  FillLaunch(const FillKernel &kernel, const CUDA_MEMSET_NODE_PARAMS &fill);
  FillLaunch(const FillLaunch &) = delete;
  FillLaunch &operator=(const FillLaunch &) = delete;

  const CUDA_KERNEL_NODE_PARAMS &parameters() const { return parameters_; }

private:
  CUdeviceptr target_;
  std::uint64_t pitch_, rowBytes_, rows_;
  std::uint32_t value_; ///< four bytes that are written again and again
  std::array<void *, 5> arguments_{&target_, &pitch_, &rowBytes_, &rows_, &value_};
  CUDA_KERNEL_NODE_PARAMS parameters_{};
};

} // namespace pumpgraph::runtime
