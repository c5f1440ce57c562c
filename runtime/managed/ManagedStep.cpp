// SPDX-License-Identifier: Apache-2.0
#include "runtime/managed/ManagedStep.h"

#include "runtime/agent/ManagedLocation.h"
#include "runtime/managed/ManagedAdvice.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <new>
#include <numeric>
#include <thread>

namespace pumpgraph::runtime {
namespace {

const char *nameOf(Operation::Kind kind) {
  switch (kind) {
  case Operation::Kind::Prefetch:
    return "prefetch";
  case Operation::Kind::Evict:
    return "evict";
  case Operation::Kind::Discard:
    return "discard";
  case Operation::Kind::Drop:
    return "drop";
  }
  return "";
}

/// The last replay, operation by operation, in the order in which they began; from the first one's beginning.
nlohmann::ordered_json timelineOf(const std::vector<Operation> &operations, const std::vector<OperationTimes> &times) {
  std::vector<std::size_t> order(operations.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return times[a].beginUs < times[b].beginUs; });
  nlohmann::ordered_json timeline = nlohmann::ordered_json::array();
  for (const std::size_t i : order) {
    const double origin = times[order.front()].beginUs;
    timeline.push_back({{"operation", i},
                        {"kind", nameOf(operations[i].kind)},
                        {"buffer", operations[i].name},
                        {"bytes", operations[i].bytes},
                        {"begin_us", times[i].beginUs - origin},
                        {"end_us", times[i].endUs - origin}});
  }
  return timeline;
}

} // namespace

Expected<std::unique_ptr<ManagedStep>> ManagedStep::create(const Driver &driver, int device,
                                                           const LaneContexts &contexts, CUstream stream,
                                                           const Description &lowered) {
  std::unique_ptr<ManagedStep> step(new ManagedStep(driver));
  PUMPGRAPH_TRY(step->settle(device, stream, lowered));
  std::vector<Operation> operations = operationsOf(lowered);
  if (operations.empty())
    return step;
  PUMPGRAPH_TRY_WHILE(step->allocateWords(operations.size()), "getting {} words", operations.size());
  Expected<std::unique_ptr<DriverMover>> mover = DriverMover::create(driver, device, contexts);
  if (!mover)
    return tl::unexpected<Error>(mover.error());
  step->mover_ = std::move(*mover);
  step->agent_ =
      std::make_unique<Agent>(std::move(operations), static_cast<OperationWords *>(step->words_), *step->mover_);
  return step;
}

Status ManagedStep::settle(int device, CUstream stream, const Description &lowered) {
  for (const Node &node : lowered.nodes)
    if (node.kind == NodeKind::Evict || (node.kind == NodeKind::Advise && node.advice == Advice::PreferHost)) {
      const ManagedRange range = rangeOf(lowered, node);
      PUMPGRAPH_TRY_WHILE(driver_.memPrefetchAsync(range.address, range.bytes, inHostMemory(), 0, stream), "\"{}\"",
                          node.name);
    }
  PUMPGRAPH_TRY_WHILE(driver_.streamSynchronize(stream), "bringing managed memory where it belongs");
  // After the moves: what is read mostly would be copied by them.
  for (const Node &node : lowered.nodes)
    if (node.kind == NodeKind::Advise)
      PUMPGRAPH_TRY_WHILE(advise(driver_, device, rangeOf(lowered, node), node.advice), "\"{}\"", node.name);
  if (mover_)
    mover_->forgetCopies();
  return {};
}

Status ManagedStep::waitUntilIdle() const {
  constexpr std::chrono::microseconds glance{100};
  constexpr std::chrono::seconds patience{10};
  const auto end = std::chrono::steady_clock::now() + patience;
  while (agent_ && !agent_->isIdle()) {
    if (std::chrono::steady_clock::now() > end)
      return fail(PUMPGRAPH_DRIVER_ERROR, "an operation is under way for over {} seconds", patience.count());
    std::this_thread::sleep_for(glance);
  }
  return {};
}

Status ManagedStep::allocateWords(std::size_t operations) {
  PUMPGRAPH_TRY(driver_.memHostAlloc(&words_, operations * sizeof(OperationWords),
                                     CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  for (std::size_t i = 0; i < operations; ++i)
    new (static_cast<OperationWords *>(words_) + i) OperationWords;
  return driver_.memHostGetDevicePointer(&deviceWords_, words_, 0);
}

ManagedStep::~ManagedStep() {
  agent_.reset();
  mover_.reset();
  if (words_)
    driver_.memFreeHost.raw(words_);
}

nlohmann::ordered_json ManagedStep::report() const {
  const AgentStats stats = agent_ ? agent_->stats() : AgentStats{};
  std::map<std::string, std::uint64_t> unforeseen;
  for (std::size_t i = 0; i < stats.wasThere.size(); ++i)
    if (stats.wasThere[i] != 0)
      unforeseen[agent_->operations()[i].name] += stats.wasThere[i];
  return {{"operations", agent_ ? agent_->operations().size() : 0},
          {"prefetches", stats.prefetches},
          {"evictions", stats.evictions},
          {"discards", stats.discards},
          {"up_bytes", stats.upBytes},
          {"down_bytes", stats.downBytes},
          {"failed", stats.failed},
          {"dropped", stats.dropped},
          {"released", stats.released},
          {"stream_changes", mover_ ? mover_->streamChanges() : 0},
          {"evicted_at_once", mover_ ? mover_->toHostAtOnce() : 0},
          {"unforeseen_faults", unforeseen},
          {"timeline", agent_ ? timelineOf(agent_->operations(), stats.times) : nlohmann::ordered_json::array()}};
}

} // namespace pumpgraph::runtime
