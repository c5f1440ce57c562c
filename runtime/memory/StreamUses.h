// SPDX-License-Identifier: Apache-2.0
/// \file
/// Streams beside its own on which an allocation is used, and the order that its end needs with them.
#pragma once

#include "runtime/driver/Driver.h"

#include <map>
#include <set>

namespace pumpgraph::runtime {

/// Freed memory serves the stream that freed it at once. Whoever uses an allocation on another stream says so before;
/// on its free that stream's work until then comes before all that follows on the freeing one.
///
/// Not thread-safe.
class StreamUses {
public:
  /// `allocation`: its first byte.
  void note(CUdeviceptr allocation, CUstream stream) { streams_[allocation].insert(stream); }
  const std::set<CUstream> *of(CUdeviceptr allocation) const;
  /// Of all allocations.
  std::set<CUstream> streams() const;
  /// Of an allocation that is about to be freed on `stream`. Neither stream may be capturing. Forgets its uses.
  Status orderBefore(const Driver &driver, CUdeviceptr allocation, CUstream stream);
  /// The allocation is gone, or what comes after needs no order.
  void forget(CUdeviceptr allocation) { streams_.erase(allocation); }

private:
  std::map<CUdeviceptr, std::set<CUstream>> streams_;
};

} // namespace pumpgraph::runtime
