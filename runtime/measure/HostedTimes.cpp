// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/HostedTimes.h"

#include "runtime/agent/ManagedLocation.h"
#include "runtime/managed/HostedRounds.h"
#include "runtime/managed/ManagedAdvice.h"
#include "runtime/measure/Measuring.h"

#include <algorithm>

namespace pumpgraph::runtime {
namespace {

constexpr int repeats = 3;
/// Each takes so many runs of the step. Kernels that have more operands use several of them alike.
constexpr std::uint8_t mostRounds = 4;
/// What the nodes of a step touch, added up: a link carries it in a second or two, and the step runs a few times.
constexpr std::uint64_t mostTouchedBytes = std::uint64_t{64} << 30;

} // namespace

std::string HostedTimes::obstacle() const {
  if (!step_.captured.refusals.empty())
    return "not every node can be seen into";
  std::uint64_t touched = 0;
  for (const Node &node : step_.captured.description.nodes) {
    if (node.kind != NodeKind::Kernel && node.kind != NodeKind::Memcpy && node.kind != NodeKind::Memset &&
        node.kind != NodeKind::Empty)
      return "it has more than kernels, copies and fills";
    for (const Access &access : node.accesses)
      touched += access.range.size;
  }
  if (touched > mostTouchedBytes)
    return fmt::format("its nodes touch {}, which would take seconds", bytesText(touched));
  return "";
}

template <typename Visit> Status HostedTimes::forEachBlock(const Hosting &hosting, Round round, Visit visit) const {
  for (BufferIndex buffer = 0; buffer < hosting.choices.size(); ++buffer)
    if (hosting.choices[buffer] == Hosting::WhereFaster && (!round || hosting.rounds[buffer] == *round)) {
      const Block &block = session_.memory.heap->block(step_.captured.blocks[buffer]);
      PUMPGRAPH_TRY_WHILE(visit(ManagedRange{block.address, block.bytes()}), "moving \"{}\" to time nodes that use it",
                          step_.captured.description.buffers[buffer].name);
    }
  return driver_.streamSynchronize(session_.device.stream);
}

Status HostedTimes::stayInHostMemory(const Hosting &hosting, std::uint8_t round) const {
  PUMPGRAPH_TRY(forEachBlock(hosting, round, [&](const ManagedRange &range) -> Status {
    return driver_.memPrefetchAsync(range.address, range.bytes, inHostMemory(), 0, session_.device.stream);
  }));
  return forEachBlock(hosting, round, [&](const ManagedRange &range) -> Status {
    PUMPGRAPH_TRY(advise(driver_, session_.options.device, range, Advice::PreferHost));
    return advise(driver_, session_.options.device, range, Advice::AccessedBy);
  });
}

Status HostedTimes::stayAnywhere(const Hosting &hosting, std::uint8_t round) const {
  const int device = session_.options.device;
  Status all; // goes on where something fails
  const Status visited = forEachBlock(hosting, round, [&](const ManagedRange &range) -> Status {
    for (const Advice advice : {Advice::AccessedBy, Advice::PreferHost})
      keepFirst(all, takeBack(driver_, device, range, advice));
    keepFirst(all, moveFromHostMemory(driver_, device, session_.device.stream, range, fitsDevice()));
    return {};
  });
  keepFirst(all, visited);
  return all;
}

bool HostedTimes::fitsDevice() const {
  std::uint64_t bytes = 0;
  for (const BlockId id : step_.captured.blocks)
    bytes += session_.memory.heap->block(id).bytes();
  return bytes <= session_.backend.deviceFreeBytes;
}

bool HostedTimes::usesWhatStays(const Node &node, const Hosting &hosting) {
  return std::any_of(node.accesses.begin(), node.accesses.end(),
                     [&](const Access &access) { return overlaps(hosting.stays[access.buffer], access.range); });
}

Status HostedTimes::runOnDevice(Measuring &measuring, const Hosting &hosting) {
  PUMPGRAPH_TRY(forEachBlock(hosting, std::nullopt, [&](const ManagedRange &range) -> Status {
    return driver_.memPrefetchAsync(range.address, range.bytes, onDevice(session_.options.device), 0,
                                    session_.device.stream);
  }));
  const Expected<std::vector<double>> times = measuring.timeNodesApart(repeats);
  if (!times)
    return tl::unexpected<Error>(times.error());
  for (std::size_t node = 0; node < times->size(); ++node)
    if (Node &timed = step_.captured.description.nodes[node]; !usesWhatStays(timed, hosting)) {
      timed.costUs = (*times)[node];
      hasDeviceTimes_ = true;
    }
  return {};
}

Status HostedTimes::runRound(Measuring &measuring, Hosting &hosting, std::uint8_t round) {
  Status timed = stayInHostMemory(hosting, round);
  if (timed) {
    const Expected<std::vector<double>> times = measuring.timeNodesApart(repeats);
    if (times)
      hosting.nodesUs.insert(hosting.nodesUs.end(), times->begin(), times->end());
    else
      timed = tl::unexpected<Error>(times.error());
  }
  const Status back = stayAnywhere(hosting, round);
  return timed ? back : timed;
}

Status HostedTimes::run(Measuring &measuring, Hosting &hosting) {
  hosting.nodesUs.clear();
  hosting.rounds.assign(hosting.choices.size(), 0);
  if (fitsDevice()) {
    PUMPGRAPH_TRY(runOnDevice(measuring, hosting));
    std::vector<bool> candidates;
    for (const std::uint8_t choice : hosting.choices)
      candidates.push_back(choice == Hosting::WhereFaster);
    hosting.rounds = hostedRounds(step_.captured.description, candidates, mostRounds);
  }
  const std::uint8_t last = *std::max_element(hosting.rounds.begin(), hosting.rounds.end());
  for (std::uint8_t round = 0; round <= last; ++round)
    PUMPGRAPH_TRY(runRound(measuring, hosting, round));
  return {};
}

Expected<std::string> HostedTimes::measure(Hosting &hosting) {
  KeptValues values(step_);
  if (const Status kept = values.keep(); !kept)
    return kept.error().message;
  Measuring measuring(step_, values);
  const Status done = run(measuring, hosting);
  std::string why = done ? "" : done.error().message;
  if (const Status restored = values.restore(); !restored)
    return inContext(restored.error(), "restoring the values after timing nodes" + (done ? "" : ", for " + why));
  if (!done)
    hosting.nodesUs.clear();
  return why;
}

} // namespace pumpgraph::runtime
