// SPDX-License-Identifier: Apache-2.0
/// \file
/// Three buffers used two at a time, in all combinations: since a page keeps its frame, they need three frames a page,
/// though no node uses more than two.
#pragma once

#include "test/unit/analysis/SmallStep.h"

namespace pumpgraph::test {

inline SmallStep pairwiseStep(std::uint64_t pagesEach) {
  SmallStep small;
  const BufferIndex a = small.local("a", pagesEach), b = small.local("b", pagesEach), c = small.local("c", pagesEach);
  small.kernel("ab", 1, {small.write(a), small.write(b)});
  small.kernel("bc", 1, {small.read(b), small.write(c)});
  small.kernel("ca", 1, {small.read(c), small.read(a)});
  return small;
}

} // namespace pumpgraph::test
