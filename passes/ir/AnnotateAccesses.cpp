// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/AnnotateAccesses.h"

#include "passes/ir/Passes.h"
#include "pumpgraph/graph/Conversion.h"

namespace pumpgraph::ir {

#define GEN_PASS_DEF_ANNOTATEACCESSES
#include "passes/ir/Passes.h.inc"

namespace {

/// Joins what is known of each access without running anything.
struct AnnotateAccesses : impl::AnnotateAccessesBase<AnnotateAccesses> {
  void runOnOperation() override {
    Description description = toDescription(getOperation()).description;
    const AnnotateStats stats = annotateAccesses(description);
    if (stats.proved + stats.declared == 0)
      return markAllAnalysesPreserved();
    update(getOperation(), description);
  }
};

} // namespace
} // namespace pumpgraph::ir
