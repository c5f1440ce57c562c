// SPDX-License-Identifier: Apache-2.0
/// \file
/// Ranges on the timeline of Nsight Systems and other tools that read NVTX. Without such a tool a range takes some
/// nanoseconds; built without the toolkit's header, nothing.
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define PUMPGRAPH_HAS_NVTX
#endif

namespace pumpgraph::runtime {

/// From here to the end of the scope, in this thread.
class NvtxRange {
public:
#ifdef PUMPGRAPH_HAS_NVTX
  explicit NvtxRange(const char *name) { nvtxRangePushA(name); }
  ~NvtxRange() { nvtxRangePop(); }
#else
  explicit NvtxRange(const char *) {}
  ~NvtxRange() = default;
#endif
  NvtxRange(const NvtxRange &) = delete;
  NvtxRange &operator=(const NvtxRange &) = delete;
};

} // namespace pumpgraph::runtime
