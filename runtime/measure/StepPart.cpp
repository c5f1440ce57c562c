// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/StepPart.h"

#include "runtime/lower/CloneNode.h"

namespace pumpgraph::runtime {

StepPart::~StepPart() {
  if (exec_)
    driver_.graphExecDestroy.raw(exec_);
  if (copy_)
    driver_.graphDestroy.raw(copy_);
}

Status StepPart::make(CUgraph graph, const std::vector<CUgraphNode> &nodes) {
  PUMPGRAPH_TRY_WHILE(driver_.graphClone(&copy_, graph), "copying the graph for the {}", name());
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    if (begin_ <= node && node < end_)
      continue;
    CUgraphNode other = nullptr;
    PUMPGRAPH_TRY_WHILE(driver_.graphNodeFindInClone(&other, nodes[node], copy_), "finding node {} in the copy", node);
    PUMPGRAPH_TRY_WHILE(driver_.graphDestroyNode(other), "taking node {} out of the copy", node);
  }
  PUMPGRAPH_TRY_WHILE(driver_.graphInstantiate(&exec_, copy_, 0), "instantiating the {}", name());
  return {};
}

Expected<std::string> StepPart::makeOfClone(CUgraphNode original, CUcontext context) {
  PUMPGRAPH_TRY_WHILE(driver_.graphCreate(&copy_, 0), "making a graph for the {}", name());
  const Expected<CUgraphNode> clone = cloneNode(driver_, copy_, original, context);
  if (!clone) {
    PUMPGRAPH_TRY(driver_.health());
    return clone.error().message;
  }
  Expected<std::string> difference = differenceOfClone(driver_, *clone, original);
  if (difference && difference->empty())
    PUMPGRAPH_TRY_WHILE(driver_.graphInstantiate(&exec_, copy_, 0), "instantiating the {}", name());
  return difference;
}

Status StepPart::launch(CUstream stream) const {
  PUMPGRAPH_TRY_WHILE(driver_.graphLaunch(exec_, stream), "running the {}", name());
  return {};
}

Status StepPart::run(CUstream stream) const {
  PUMPGRAPH_TRY(launch(stream));
  PUMPGRAPH_TRY_WHILE(driver_.streamSynchronize(stream), "running the {}", name());
  return {};
}

} // namespace pumpgraph::runtime
