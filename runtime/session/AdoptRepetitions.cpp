// SPDX-License-Identifier: Apache-2.0
// Which nodes of an adopted step plans may run again.
#include "runtime/session/Adoption.h"

#include "runtime/capture/OutsideMemory.h"
#include "runtime/lower/CloneNode.h"

#include <algorithm>
#include <map>

namespace pumpgraph::runtime {

static void forgetAsides(Node &node) {
  for (Access &access : node.accesses)
    access.isAside = false;
}

bool Adoption::mayRepeat() const {
  return !session_.backend.isManaged && session_.options.rematerialize == RematerializeChoice::Automatic &&
         options_.rematerialize == RematerializeChoice::Automatic;
}

/// A kernel that adds up in another order each time may come out the same twice, by chance.
void Adoption::takePurity(const std::vector<FalsePurity> &found) {
  CapturedStep &captured = step_->captured;
  for (const FalseKernel &kernel : byKernel(found, captured.description)) {
    std::size_t count = 0;
    for (Node &node : captured.description.nodes)
      if (node.isPure && node.name == kernel.name) {
        node.isPure = false;
        forgetAsides(node);
        ++count;
      }
    captured.notes.push_back(
        fmt::format("{}; no plan runs {} again", kernel.text, count == 1 ? "it" : fmt::format("its {} nodes", count)));
  }
}

Status Adoption::keepRepeatable() {
  step_->planning.mayRepeat = mayRepeat();
  if (!step_->planning.mayRepeat)
    return {};
  struct Refused {
    std::size_t count = 0, first = 0;
  };
  std::map<std::string, Refused> refused; ///< by reason
  std::size_t pure = 0;
  std::vector<Node> &nodes = step_->captured.description.nodes;
  for (std::size_t position = 0; position < nodes.size(); ++position) {
    Node &node = nodes[position];
    if (!node.isPure)
      continue;
    ++pure;
    const Expected<std::string> obstacle = obstacleToRepetition(position);
    if (!obstacle)
      return tl::unexpected<Error>(obstacle.error());
    if (obstacle->empty())
      continue;
    node.isPure = false;
    forgetAsides(node);
    if (refused[*obstacle].count++ == 0)
      refused[*obstacle].first = position;
  }
  for (const auto &[reason, some] : refused)
    step_->captured.notes.push_back(
        fmt::format("{} of {} pure nodes cannot be run again: {}; the first is node {} \"{}\"", some.count, pure,
                    reason, some.first, nodes[some.first].name));
  return getAsideMemory();
}

Status Adoption::getAsideMemory() {
  CapturedStep &captured = step_->captured;
  std::uint64_t most = 0;
  for (std::size_t position = 0; position < captured.nodes.size(); ++position)
    for (const AsideWord &word : asideWords(captured.description, position))
      most = std::max(most, word.bytes);
  if (most == 0)
    return {};
  Expected<std::shared_ptr<const AsideMemory>> memory = AsideMemory::create(heap_, most + asideAlignment);
  if (memory) {
    step_->memory.aside = std::move(*memory);
    captured.asideMemory = step_->memory.aside->address();
    return {};
  }
  PUMPGRAPH_TRY(driver_.health());
  return doWithoutAsides(memory.error().message);
}

Status Adoption::doWithoutAsides(const std::string &why) {
  CapturedStep &captured = step_->captured;
  for (Node &node : captured.description.nodes)
    forgetAsides(node);
  captured.notes.push_back("nodes that update something besides are not run again: " + why);
  captured.asideMemory = 0;
  step_->memory.aside.reset();
  return heap_.flushCache();
}

/// A kernel is tried in the copy of the graph. A fill or copy is not: the driver looks at the memory that these name,
/// which may not be there yet.
Expected<std::string> Adoption::obstacleToRepetition(std::size_t position) const {
  const LiftedNode &lifted = step_->graph.lifted.nodes[position];
  // Nobody sees who else writes what is not the session's, before a repetition reads it.
  if (!lifted.outside.empty() || !lifted.hostSources.empty() ||
      !outsideOperands(driver_, std::span(&lifted, 1), *session_.memory.addresses).empty())
    return "they touch memory that is not the session's";
  if (lifted.kind != NodeKind::Kernel)
    return "";
  const CUgraphNode original = step_->graph.originalNodes[position];
  const Expected<CUgraphNode> clone = cloneNode(driver_, step_->graph.original, original, session_.device.context);
  if (!clone) {
    PUMPGRAPH_TRY(driver_.health());
    return fmt::format("the driver does not copy {} ({})",
                       isCooperative(driver_, original) ? "a cooperative launch" : "it", clone.error().message);
  }
  const Expected<std::string> difference = differenceOfClone(driver_, *clone, original);
  PUMPGRAPH_TRY(driver_.graphDestroyNode(*clone));
  if (!difference)
    return tl::unexpected<Error>(difference.error());
  return difference->empty() ? "" : "of the copy that the driver makes, " + *difference;
}

} // namespace pumpgraph::runtime
