// SPDX-License-Identifier: Apache-2.0
// The reports for programs: figures and timeline as JSON. docs/reference/report.md documents every key.
#include "passes/report/Comparison.h"
#include "passes/report/Json.h"
#include "passes/report/Lanes.h"
#include "passes/report/NodeName.h"
#include "passes/report/SearchReport.h"
#include "passes/report/Summary.h"
#include "pumpgraph/graph/PrintableJson.h"

#include <utility>

namespace pumpgraph {

static constexpr double secondsPerMicrosecond = 1e-6;

static std::string dump(Json json, int indent) {
  return dumpPrintable(std::move(json), indent) + "\n";
}

static Json stallToJson(const Summary &summary, const Stall &stall) {
  const Node &node = summary.lowered.nodes[stall.node];
  const Node &transfer = summary.lowered.nodes[stall.transfer];
  const NodeTimes &times = summary.prediction.nodes[stall.transfer];
  return {{"node", computedNode(node)},
          {"node_name", node.name},
          {"node_label", node.label},
          {"buffer", stall.buffer},
          {"buffer_name", summary.lowered.buffers[stall.buffer].name},
          {"transfer", stall.transfer},
          {"direction", directionName(transfer)},
          {"transfer_bytes", transfer.range.size},
          {"transfer_start_s", times.startUs * secondsPerMicrosecond},
          {"transfer_end_s", times.endUs * secondsPerMicrosecond},
          {"at_s", stall.atUs * secondsPerMicrosecond},
          {"duration_s", stall.durationUs * secondsPerMicrosecond}};
}

/// Buffers of which pages are always in host memory, and what they take of the link.
static Json hostedToJson(const Summary &summary) {
  Json buffers = Json::array();
  for (BufferIndex i = 0; i < summary.lowered.buffers.size(); ++i) {
    const Buffer &buffer = summary.lowered.buffers[i];
    if (buffer.hosted.empty())
      continue;
    const Traffic &traffic = summary.hosted.byBuffer[i];
    buffers.push_back({{"buffer", i},
                       {"buffer_name", buffer.name},
                       {"bytes", hostedBytesOf(buffer)},
                       {"up_bytes", traffic.upBytes},
                       {"down_bytes", traffic.downBytes},
                       {"link_s", linkUs(traffic, summary.machine) * secondsPerMicrosecond}});
  }
  return buffers;
}

/// Nodes that read and write hosted pages, those that take longest over them first.
static Json hostedNodesToJson(const Summary &summary) {
  const auto timeUs = [&](NodeIndex node) { return linkUs(summary.hosted.loadByNode[node], summary.machine); };
  std::vector<NodeIndex> order;
  for (NodeIndex node = 0; node < summary.lowered.nodes.size(); ++node)
    if (summary.hosted.byNode[node].total() > 0)
      order.push_back(node);
  std::stable_sort(order.begin(), order.end(), [&](NodeIndex a, NodeIndex b) { return timeUs(a) > timeUs(b); });
  Json nodes = Json::array();
  for (const NodeIndex node : order) {
    const Traffic &traffic = summary.hosted.byNode[node];
    nodes.push_back({{"node", computedNode(summary.lowered.nodes[node])},
                     {"node_name", summary.lowered.nodes[node].name},
                     {"node_label", summary.lowered.nodes[node].label},
                     {"up_bytes", traffic.upBytes},
                     {"down_bytes", traffic.downBytes},
                     {"link_s", linkUs(traffic, summary.machine) * secondsPerMicrosecond},
                     {"time_s", timeUs(node) * secondsPerMicrosecond}});
  }
  return nodes;
}

static Json messagesOf(const std::vector<Violation> &violations) {
  Json messages = Json::array();
  for (const Violation &violation : violations)
    messages.push_back(violation.message);
  return messages;
}

static Json pointToJson(const SweepPoint &point) {
  if (!point.plannable)
    return {{"budget_bytes", point.budgetBytes}, {"plannable", false}, {"reason", point.reason}};
  return {{"budget_bytes", point.budgetBytes},
          {"plannable", true},
          {"predicted_s", point.predictedUs * secondsPerMicrosecond},
          {"bound_s", point.boundUs * secondsPerMicrosecond},
          {"plan_bound_s", point.planBoundUs * secondsPerMicrosecond},
          {"moves_s", point.movesUs > 0 ? Json(point.movesUs * secondsPerMicrosecond) : Json(nullptr)},
          {"peak_bytes", point.peakBytes},
          {"up_bytes", point.upBytes},
          {"down_bytes", point.downBytes}};
}

/// What the prediction knows of the machine. Host memory without a limit becomes null.
Json machineToJson(const Machine &machine) {
  Json json = {{"up_bytes_per_second", machine.upBytesPerSecond},
               {"down_bytes_per_second", machine.downBytesPerSecond},
               {"both_bytes_per_second", machine.bothBytesPerSecond},
               {"hosted_share", machine.hostedShare},
               {"beside_hosted_share", machine.besideHostedShare},
               {"copy_overhead_s", machine.copyOverheadUs * secondsPerMicrosecond},
               {"host_bytes", machine.hostBytes == UINT64_MAX ? Json(nullptr) : Json(machine.hostBytes)}};
  if (machine.hostedBothShare > 0)
    json["hosted_both_share"] = machine.hostedBothShare;
  if (machine.downOverheadUs)
    json["down_overhead_s"] = *machine.downOverheadUs * secondsPerMicrosecond;
  if (machine.requestUs > 0)
    json["request_s"] = machine.requestUs * secondsPerMicrosecond;
  if (machine.emptyBytesPerSecond > 0)
    json["empty_bytes_per_second"] = machine.emptyBytesPerSecond;
  if (machine.downAtOnce > 1)
    json["down_at_once"] = machine.downAtOnce;
  if (machine.bestUpBytesPerSecond > 0)
    json["best_up_bytes_per_second"] = machine.bestUpBytesPerSecond;
  if (machine.bestDownBytesPerSecond > 0)
    json["best_down_bytes_per_second"] = machine.bestDownBytesPerSecond;
  return json;
}

static void addTimes(Json &json, const PagingTimes &times) {
  json["fault_s"] = times.faultUs * secondsPerMicrosecond;
  json["fetch_s"] = times.fetchUs * secondsPerMicrosecond;
  json["populate_s"] = times.populateUs * secondsPerMicrosecond;
  json["write_back_s"] = times.writeBackUs * secondsPerMicrosecond;
}

static Json pagingStallToJson(const Summary &summary, const PagingStall &stall) {
  const Node &node = summary.captured.nodes[stall.node];
  Json json{{"node", node.captured},
            {"node_name", node.name},
            {"node_label", node.label},
            {"duration_s", stall.durationUs * secondsPerMicrosecond}};
  addTimes(json, stall.times);
  return json;
}

static void addSimulation(Json &json, const Summary &summary, const Simulation &simulation) {
  Json replays = Json::array(), stalls = Json::array();
  for (double replayUs : simulation.replaysUs)
    replays.push_back(replayUs * secondsPerMicrosecond);
  for (const PagingStall &stall : simulation.stalls)
    stalls.push_back(pagingStallToJson(summary, stall));
  json["replays_s"] = std::move(replays);
  json["populated_bytes"] = simulation.work.populatedBytes;
  json["fault_batches"] = simulation.work.batches;
  json["evicted_blocks"] = simulation.work.evictedBlocks;
  json["footprint_bytes"] = simulation.footprintBytes + simulation.exclusiveBytes;
  json["stall_s"] = simulation.stallUs() * secondsPerMicrosecond;
  addTimes(json, simulation.times);
  json["stalls"] = std::move(stalls);
}

static Json jsonOfComparison(const Summary &summary) {
  Json rows = Json::array();
  for (const ComparisonRow &row : comparisonRows(summary)) {
    Json json{{"policy", row.name}, {"step_s", row.stepUs * secondsPerMicrosecond}};
    if (!row.isBound) {
      json["up_bytes"] = row.upBytes;
      json["down_bytes"] = row.downBytes;
    }
    if (row.simulation)
      addSimulation(json, summary, *row.simulation);
    rows.push_back(std::move(json));
  }
  return {{"memory", summary.comparison->memory.name},
          {"budget_bytes", summary.comparison->budgetBytes},
          {"rows", std::move(rows)}};
}

static Json accessesToJson(const Summary &summary) {
  const auto [proved, declared, observed, assumed, allocated] = accessesByEvidence(summary);
  return {{"proved", proved},
          {"declared", declared},
          {"observed", observed},
          {"assumed", assumed},
          {"allocated", allocated}};
}

std::string comparisonToJson(const Summary &summary) {
  Json json{{"step", summary.captured.name}};
  json.update(jsonOfComparison(summary));
  return dump(json, 2);
}

static Json sweepsToJson(const Summary &summary, const RepeatedSweeps &sweeps) {
  return {{"walks", sweeps.sweeps},
          {"kernels", sweeps.nodes},
          {"first_node", summary.lowered.nodes[sweeps.first].captured},
          {"last_node", summary.lowered.nodes[sweeps.last].captured},
          {"state_bytes", sweeps.stateBytes},
          {"touched_again_bytes", sweeps.touchedAgainBytes},
          {"saved_up_bytes", sweeps.saved.upBytes},
          {"saved_down_bytes", sweeps.saved.downBytes},
          {"verdict", verdict(summary, sweeps)}};
}

static Json fewNodesToJson(const FewNodes &few) {
  return {{"nodes", few.nodes}, {"measured_nodes", few.measuredNodes}, {"share", few.share}, {"warning", warning(few)}};
}

static const char *nameOf(Remakeable::Against against) {
  switch (against) {
  case Remakeable::Against::NotPure:
    return "not_pure";
  case Remakeable::Against::Lasting:
    return "lasting";
  case Remakeable::Against::Overwritten:
    return "overwritten";
  }
  return "";
}

static Json remakeableToJson(const Remakeable &remakeable) {
  Json obstacles = Json::array();
  for (const Remakeable::Obstacle &obstacle : remakeable.obstacles)
    obstacles.push_back({{"reason", nameOf(obstacle.against)}, {"name", obstacle.name}, {"bytes", obstacle.bytes}});
  return {{"node", remakeable.peak},
          {"bytes", remakeable.bytes},
          {"again_bytes", remakeable.again},
          {"before_bytes", remakeable.before},
          {"obstacles", std::move(obstacles)}};
}

static Json repeatedToJson(const Summary::Repeated &repeated) {
  return {{"nodes", repeated.nodes}, {"time_s", repeated.us * secondsPerMicrosecond}, {"bytes", repeated.bytes}};
}

static Json waysToJson(const Ways &ways) {
  return {{"kept_bytes", ways.kept},
          {"moved_bytes", ways.moved},
          {"again_bytes", ways.again},
          {"hosted_bytes", ways.hosted}};
}

static Json searchToJson(const SearchTrace &trace) {
  Json search = Json::array();
  for (const ProposerTotals &totals : byProposer(trace))
    search.push_back({{"proposer", totals.proposer},
                      {"tried", totals.tried},
                      {"kept", totals.kept},
                      {"saved_s", totals.savedUs * secondsPerMicrosecond},
                      {"effort", totals.effort}});
  return search;
}

static Json reportOf(const Summary &summary) {
  Json json{
      {"format", "pumpgraph-report"},
      {"version", 1},
      {"name", summary.captured.name},
      {"nodes", summary.captured.nodes.size()},
      {"buffers", summary.captured.buffers.size()},
      {"accesses", accessesToJson(summary)},
      {"in_memory_s", summary.inMemory.totalUs * secondsPerMicrosecond},
      {"bound_s", summary.bound.totalUs * secondsPerMicrosecond},
      {"plan_bound_s", summary.planBound.totalUs * secondsPerMicrosecond},
      {"moving_bound_s", summary.movingBound.totalUs * secondsPerMicrosecond},
      {"predicted_s", summary.prediction.totalUs * secondsPerMicrosecond},
      {"peak_bytes_before", summary.peakBytesBefore()},
      {"budget_bytes", summary.budgetBytes()},
      {"peak_bytes", summary.prediction.peakBytes},
      {"host_bytes", summary.stats.hostBytes},
      {"hosted_bytes", summary.hostedBytes()},
      {"hosted_up_bytes", summary.hosted.total().upBytes},
      {"hosted_down_bytes", summary.hosted.total().downBytes},
      {"hosted_link_s", summary.hostedUs() * secondsPerMicrosecond},
      {"continuations", summary.continuations()},
      {"continued_bytes", summary.continuedBytes()},
      {"up_bytes", summary.prediction.upBytes},
      {"down_bytes", summary.prediction.downBytes},
      {"required_up_bytes", summary.required.upBytes},
      {"required_down_bytes", summary.required.downBytes},
      {"moved_over_required", summary.movedOverRequired()}, // infinite becomes null
      {"up_busy_s", summary.prediction.upBusyUs * secondsPerMicrosecond},
      {"down_busy_s", summary.prediction.downBusyUs * secondsPerMicrosecond},
      {"repeated", repeatedToJson(summary.repeated())},
      {"remakeable", summary.remakeable ? remakeableToJson(*summary.remakeable) : Json(nullptr)},
      {"ways", summary.ways ? waysToJson(*summary.ways) : Json(nullptr)},
      {"moves_s", summary.stats.movesUs > 0 ? Json(summary.stats.movesUs * secondsPerMicrosecond) : Json(nullptr)},
      {"limited_by", limitedBy(summary)},
      {"enough_bytes", summary.enoughBytes ? Json(*summary.enoughBytes) : Json(nullptr)},
      {"verdict", verdict(summary)},
      {"few_nodes", summary.fewNodes ? fewNodesToJson(*summary.fewNodes) : Json(nullptr)},
      {"checked", summary.checked()},
      {"violations", messagesOf(summary.violations)},
      {"plan_ms", summary.planMs},
      {"evictions", summary.stats.evictions},
      {"prefetches", summary.stats.prefetches},
      {"discards", summary.stats.discards},
      {"added_nodes", summary.lowered.nodes.size() - summary.captured.nodes.size()},
      {"added_edges", countAddedEdges(summary)},
      {"machine", machineToJson(summary.machine)}};
  Json stalls = Json::array();
  for (const Stall &stall : summary.prediction.stalls)
    stalls.push_back(stallToJson(summary, stall));
  json["stalls"] = std::move(stalls);
  json["hosted"] = hostedToJson(summary);
  json["hosted_nodes"] = hostedNodesToJson(summary);
  json["search"] = searchToJson(summary.trace);
  for (const RepeatedSweeps &sweeps : summary.repeatedSweeps)
    json["repeated_sweeps"].push_back(sweepsToJson(summary, sweeps));
  return json;
}

std::string timesToJson(const Summary &summary) {
  const Json report = reportOf(summary);
  Json times = Json::object();
  for (const char *key :
       {"in_memory_s", "bound_s", "plan_bound_s", "moving_bound_s", "predicted_s", "hosted_link_s", "up_busy_s",
        "down_busy_s", "repeated", "limited_by", "verdict", "few_nodes", "stalls", "hosted_nodes"})
    times[key] = report.at(key);
  return dump(times, 2);
}

std::string toJson(const Summary &summary, const std::vector<SweepPoint> &points) {
  Json json = reportOf(summary);
  for (const SweepPoint &point : points)
    json["sweep"].push_back(pointToJson(point));
  if (summary.comparison)
    json["comparison"] = jsonOfComparison(summary);
  return dump(json, 2);
}

namespace {

/// Builds the event list of one Chrome trace; a lane is a "thread" of the one "process".
class Trace {
public:
  explicit Trace(const std::string &processName) {
    events_.push_back({{"ph", "M"}, {"pid", pid}, {"name", "process_name"}, {"args", {{"name", processName}}}});
  }

  int addLane(const std::string &name) {
    const int lane = ++lanes_;
    events_.push_back({{"ph", "M"}, {"pid", pid}, {"tid", lane}, {"name", "thread_name"}, {"args", {{"name", name}}}});
    events_.push_back(
        {{"ph", "M"}, {"pid", pid}, {"tid", lane}, {"name", "thread_sort_index"}, {"args", {{"sort_index", lane}}}});
    return lane;
  }

  void addSpan(int lane, const std::string &name, double startUs, double endUs, Json args) {
    events_.push_back({{"ph", "X"},
                       {"pid", pid},
                       {"tid", lane},
                       {"ts", startUs},
                       {"dur", endUs - startUs},
                       {"name", name},
                       {"args", std::move(args)}});
  }

  /// An arrow between two spans.
  void addFlow(int id, int fromLane, double fromUs, int toLane, double toUs) {
    events_.push_back({{"ph", "s"},
                       {"pid", pid},
                       {"tid", fromLane},
                       {"ts", fromUs},
                       {"id", id},
                       {"name", "stall"},
                       {"cat", "stall"}});
    events_.push_back({{"ph", "f"},
                       {"bp", "e"},
                       {"pid", pid},
                       {"tid", toLane},
                       {"ts", toUs},
                       {"id", id},
                       {"name", "stall"},
                       {"cat", "stall"}});
  }

  void addCounter(const std::string &name, double atUs, std::uint64_t value) {
    events_.push_back({{"ph", "C"}, {"pid", pid}, {"ts", atUs}, {"name", name}, {"args", {{"bytes", value}}}});
  }

  Json take() { return {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events_)}}; }

private:
  static constexpr int pid = 1;
  Json events_ = Json::array();
  int lanes_ = 0;
};

} // namespace

std::string timelineToJson(const Summary &summary) {
  const Description &lowered = summary.lowered;
  const Prediction &prediction = summary.prediction;
  Trace trace(lowered.name);
  const Lanes lanes = assignLanes(lowered, prediction);
  std::vector<int> computeLanes;
  for (std::size_t i = 0; i < lanes.computeLanes; ++i)
    computeLanes.push_back(trace.addLane(i == 0 ? "compute" : "compute " + std::to_string(i + 1)));
  const int stallLane = trace.addLane("stalls");
  const int upLane = trace.addLane("link up");
  const int downLane = trace.addLane("link down");

  for (NodeIndex i = 0; i < lowered.nodes.size(); ++i) {
    const Node &node = lowered.nodes[i];
    const auto [startUs, endUs] = prediction.nodes[i];
    if (movesUp(node.kind) || movesDown(node.kind))
      trace.addSpan(movesUp(node.kind) ? upLane : downLane, lowered.buffers[node.buffer].name, startUs, endUs,
                    {{"node", i}, {"offset", node.range.offset}, {"bytes", node.range.size}});
    else if (!isAdded(node.kind) && endUs > startUs)
      trace.addSpan(computeLanes[lanes.laneOf[i]], displayName(node), startUs, endUs,
                    {{"node", node.captured}, {"kind", kindName(node.kind)}, {"name", demangle(node.name)}});
  }
  int flow = 0;
  for (const Stall &stall : prediction.stalls) {
    const Node &transfer = lowered.nodes[stall.transfer];
    const double endUs = stall.atUs + stall.durationUs;
    trace.addSpan(stallLane, "waits for " + lowered.buffers[stall.buffer].name, stall.atUs, endUs,
                  stallToJson(summary, stall));
    if (movesUp(transfer.kind) || movesDown(transfer.kind))
      trace.addFlow(++flow, movesUp(transfer.kind) ? upLane : downLane, prediction.nodes[stall.transfer].endUs,
                    stallLane, endUs);
  }
  for (const MemoryPoint &point : prediction.memory)
    trace.addCounter("device memory", point.atUs, point.bytes);
  return dump(trace.take(), -1);
}

} // namespace pumpgraph
