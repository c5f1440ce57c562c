// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/NodeDeclarations.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace pumpgraph::runtime {

template <typename Said>
void NodeDeclarations::add(std::map<CUgraphNode, Said> &declared, std::size_t &said, const Said &newOnes) const {
  for (; said < known_.size(); ++said)
    if (!newOnes.empty())
      declared.insert_or_assign(known_[said], newOnes);
}

Status NodeDeclarations::addReads(const Driver &driver, CUgraph graph, const std::vector<CUdeviceptr> &pointers) {
  PUMPGRAPH_TRY(look(driver, graph));
  add(reads_, readsSaid_, pointers);
  return {};
}

Status NodeDeclarations::addAsides(const Driver &driver, CUgraph graph, const std::vector<CUdeviceptr> &pointers) {
  PUMPGRAPH_TRY(look(driver, graph));
  add(asides_, asidesSaid_, pointers);
  return {};
}

Status NodeDeclarations::addWrites(const Driver &driver, CUgraph graph,
                                   const std::optional<std::vector<CUdeviceptr>> &pointers) {
  PUMPGRAPH_TRY(look(driver, graph));
  for (; writesSaid_ < known_.size(); ++writesSaid_)
    if (pointers)
      writes_[known_[writesSaid_]] = *pointers;
  return {};
}

Status NodeDeclarations::addExtents(const Driver &driver, CUgraph graph, const std::vector<DeclaredExtent> &extents) {
  PUMPGRAPH_TRY(look(driver, graph));
  add(extents_, extentsSaid_, extents);
  return {};
}

Status NodeDeclarations::addReach(const Driver &driver, CUgraph graph, const NodeReach &reach) {
  PUMPGRAPH_TRY(look(driver, graph));
  for (; reachesSaid_ < known_.size(); ++reachesSaid_)
    if (!reach.empty())
      reaches_[known_[reachesSaid_]] = reach;
  return {};
}

Status NodeDeclarations::addLabel(const Driver &driver, CUgraph graph, std::string_view label) {
  PUMPGRAPH_TRY(look(driver, graph));
  for (; labelsSaid_ < known_.size(); ++labelsSaid_)
    if (!label.empty())
      labels_[known_[labelsSaid_]] = label;
  return {};
}

Status NodeDeclarations::addOperation(const Driver &driver, CUgraph graph, OperationKind kind) {
  PUMPGRAPH_TRY(look(driver, graph));
  if (kind != OperationKind::Unknown && operationsSaid_ < known_.size())
    ++operationCount_;
  for (; operationsSaid_ < known_.size(); ++operationsSaid_)
    if (kind != OperationKind::Unknown)
      operations_[known_[operationsSaid_]] = {operationCount_, kind == OperationKind::Pure};
  return {};
}

Status NodeDeclarations::addArithmetic(const Driver &driver, CUgraph graph, double us) {
  PUMPGRAPH_TRY(look(driver, graph));
  if (us > 0 && arithmeticsSaid_ < known_.size())
    ++arithmeticCount_;
  for (; arithmeticsSaid_ < known_.size(); ++arithmeticsSaid_)
    if (us > 0)
      arithmetics_[known_[arithmeticsSaid_]] = {arithmeticCount_, us};
  return {};
}

Status NodeDeclarations::look(const Driver &driver, CUgraph graph) {
  std::size_t count = 0;
  PUMPGRAPH_TRY_WHILE(driver.graphGetNodes(graph, nullptr, &count), "reading the graph that is being captured");
  if (count == known_.size()) // nodes only come while a stream is captured
    return {};
  std::vector<CUgraphNode> nodes(count);
  PUMPGRAPH_TRY_WHILE(driver.graphGetNodes(graph, nodes.data(), &count), "reading the graph that is being captured");
  if (known_.size() <= nodes.size() && std::equal(known_.begin(), known_.end(), nodes.begin())) {
    known_ = std::move(nodes);
    return {};
  }
  const std::set<CUgraphNode> before(known_.begin(), known_.end()); // the driver promises no order
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(known_),
               [&](CUgraphNode node) { return !before.contains(node); });
  return {};
}

} // namespace pumpgraph::runtime
