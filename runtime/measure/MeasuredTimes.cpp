// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/MeasuredTimes.h"

#include "pumpgraph/graph/Reliance.h"
#include "runtime/measure/ReplayWatch.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <utility>

namespace pumpgraph::runtime {
namespace {

/// No node is slow by less: clocks are not that exact.
constexpr double noticeableUs = 20;
/// Of a node whose hosted pages took no time that clocks can tell: it reaches next to nothing of them.
constexpr float leastSlowdown = 1.0F / 64;

/// By captured position: what the plan predicted that nodes take over hosted pages, beyond their cost. Of a node that
/// runs again, the longest of its runs, which comes first.
std::map<std::size_t, double> predictedOverHosted(const CompiledPlan &plan) {
  std::map<std::size_t, double> times;
  if (!plan.report)
    return times;
  if (const auto nodes = plan.report->find("hosted_nodes"); nodes != plan.report->end())
    for (const auto &node : *nodes)
      times.emplace(node.at("node").get<std::size_t>(), node.at("time_s").get<double>() * usPerSecond);
  return times;
}

/// slowdownOfCopies() of passes/analysis/Machine.h, of the machine as the report has it: the compiler is not linked
/// here.
float slowdownOfCopies(const CompiledPlan &plan) {
  if (!plan.report)
    return 1;
  const auto machine = plan.report->find("machine");
  if (machine == plan.report->end())
    return 1;
  return machine->value("hosted_share", 1.0F) / (1 - machine->value("beside_hosted_share", 0.0F));
}

class Learner {
public:
  Learner(Description &step, KnownAccesses &known, const CompiledPlan &plan, const std::vector<double> &measuredUs)
      : step_(step), known_(known), plan_(plan), measuredUs_(measuredUs), slowdownOfCopies_(slowdownOfCopies(plan)),
        overHostedUs_(predictedOverHosted(plan)) {}

  void learn() {
    assumedUs_.assign(step_.nodes.size(), 0);
    planned_.assign(step_.nodes.size(), nullptr);
    for (const Node &node : plan_.lowered.nodes)
      if (node.captured != notCaptured) {
        assumedUs_[static_cast<std::size_t>(node.captured)] = std::isnan(node.costUs) ? 0 : node.costUs;
        planned_[static_cast<std::size_t>(node.captured)] = &node;
      }
    takeSaved();
    for (std::size_t i = 0; i < measuredUs_.size(); ++i)
      if (!overHostedUs_.contains(i)) {
        step_.nodes[i].costUs = measuredUs_[i];
        if (assumedUs_[i] > 0)
          shares_[step_.nodes[i].name].push_back(measuredUs_[i] / assumedUs_[i]);
      }
    for (const auto &[node, us] : overHostedUs_)
      learnHosted(node, us);
    spread();
  }

private:
  using Place = std::pair<std::string, std::size_t>; ///< a kernel, and the position of an access

  /// What the plan reckoned with.
  float plannedSlowdown(std::size_t index, std::size_t access) const {
    const Node *node = planned_[index];
    return node && access < node->accesses.size() ? node->accesses[access].slowdown : 1;
  }

  /// The buffer that the access has in the plan: the captured one, or one that continues it.
  BufferIndex addressOf(std::size_t index, std::size_t access) const {
    const Node *node = planned_[index];
    return node && access < node->accesses.size() ? node->accesses[access].buffer
                                                  : step_.nodes[index].accesses[access].buffer;
  }

  /// Of a step that was saved, as far as nothing newer is known.
  void takeSaved() {
    for (std::size_t index = 0; index < step_.nodes.size(); ++index)
      for (std::size_t i = 0; i < step_.nodes[index].accesses.size(); ++i)
        if (const float planned = plannedSlowdown(index, i);
            planned != 1 && step_.nodes[index].accesses[i].slowdown == 1 && !known_.contains({index, i}))
          step_.nodes[index].accesses[i].slowdown = planned;
  }

  void learnHosted(std::size_t index, double predictedUs) {
    Node &node = step_.nodes[index];
    const auto others = shares_.find(node.name);
    const double share = others == shares_.end() ? 1 : median(others->second);
    node.costUs = std::min(assumedUs_[index] * share, measuredUs_[index]);
    if (predictedUs <= 0)
      return;
    const double overHostedUs = measuredUs_[index] - node.costUs;
    const float most = overHostedUs > noticeableUs ? std::numeric_limits<float>::max() : 1;
    const float ratio = std::min(most, static_cast<float>(overHostedUs / predictedUs));
    // What is missing says something only where more was predicted than the cost, which is presumed, may be off by:
    // what a node moved took all of its time at the most, for it may have computed meanwhile.
    const bool isEvident = predictedUs > noticeableUs + node.costUs;
    const float mostMoved = std::min(1.0F, static_cast<float>(measuredUs_[index] / predictedUs));
    for (std::size_t i = 0; i < node.accesses.size(); ++i) {
      Access &access = node.accesses[i];
      if (!overlaps(plan_.lowered.buffers[addressOf(index, i)].hosted, access.range))
        continue;
      const float planned = plannedSlowdown(index, i);
      const bool mayLeaveSome = isEvident && reliableMust(access) == modeNone;
      const float partMoved = std::min(slowdownOfCopies_, planned * mostMoved);
      const float least = mayLeaveSome ? std::max(leastSlowdown, partMoved) : std::min(planned, slowdownOfCopies_);
      access.slowdown = std::max(least, planned * ratio);
      slowdowns_[{node.name, i}].push_back(access.slowdown);
      known_.emplace(index, i);
    }
  }

  /// What was never hosted is presumed to be as slow as the same access of other nodes, but to reach all of its pages:
  /// which ones a kernel leaves alone is a matter of its operands.
  void spread() {
    for (std::size_t index = 0; index < step_.nodes.size(); ++index)
      for (std::size_t i = 0; i < step_.nodes[index].accesses.size(); ++i) {
        Access &access = step_.nodes[index].accesses[i];
        if (known_.contains({index, i}) || access.slowdown < slowdownOfCopies_) // measured, before it was saved
          continue;
        if (const auto same = slowdowns_.find({step_.nodes[index].name, i}); same != slowdowns_.end())
          access.slowdown = std::max(slowdownOfCopies_, static_cast<float>(median(same->second)));
      }
  }

  Description &step_;
  KnownAccesses &known_;
  const CompiledPlan &plan_;
  const std::vector<double> &measuredUs_;
  const float slowdownOfCopies_;
  const std::map<std::size_t, double> overHostedUs_;
  std::vector<double> assumedUs_;                     ///< by captured position: on the device
  std::vector<const Node *> planned_;                 ///< by captured position
  std::map<std::string, std::vector<double>> shares_; ///< by name: measured, of what was assumed, of nodes without
                                                      ///< hosted operands
  std::map<Place, std::vector<double>> slowdowns_;    ///< measured now
};

} // namespace

bool hostsOperands(const CompiledPlan &plan) {
  return !predictedOverHosted(plan).empty();
}

void takeMeasured(Description &step, KnownAccesses &known, const CompiledPlan &plan,
                  const std::vector<double> &measuredUs) {
  Learner(step, known, plan, measuredUs).learn();
}

double gapBetweenNodesUs(double measuredUs, double predictedUs, std::size_t nodes) {
  constexpr double mostUs = 2;
  return nodes == 0 ? 0 : std::clamp((measuredUs - predictedUs) / static_cast<double>(nodes), 0.0, mostUs);
}

bool areMeasured(const Description &captured) {
  return std::any_of(captured.nodes.begin(), captured.nodes.end(),
                     [](const Node &node) { return !std::isnan(node.costUs); });
}

bool hasTimesOf(const Description &lowered, const Description &captured) {
  const auto haveOneSlowdown = [](const Access &a, const Access &b) { return a.slowdown == b.slowdown; };
  return std::all_of(lowered.nodes.begin(), lowered.nodes.end(), [&](const Node &node) {
    if (computedNode(node) == notCaptured)
      return true;
    const Node &known = captured.nodes[static_cast<std::size_t>(computedNode(node))];
    const auto accesses = static_cast<std::ptrdiff_t>(std::min(node.accesses.size(), known.accesses.size()));
    return node.costUs == known.costUs &&
           std::equal(node.accesses.begin(), node.accesses.begin() + accesses, known.accesses.begin(), haveOneSlowdown);
  });
}

Description withMeasured(Description lowered, const Description &step) {
  for (Node &node : lowered.nodes) {
    if (computedNode(node) == notCaptured)
      continue;
    const Node &measured = step.nodes[static_cast<std::size_t>(computedNode(node))];
    node.costUs = measured.costUs;
    for (std::size_t i = 0; i < std::min(node.accesses.size(), measured.accesses.size()); ++i)
      node.accesses[i].slowdown = measured.accesses[i].slowdown;
  }
  return lowered;
}

} // namespace pumpgraph::runtime
