// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline/Candidates.h"

#include "passes/analysis/EstimateCosts.h"
#include "pumpgraph/graph/Ranges.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace pumpgraph {

namespace {

/// What a plan takes for granted.
struct Assumption {
  const char *name;
  std::optional<double> besideHostedPace; ///< Machine::besideHostedPace; the machine's own if there is none
  double slowerBy = 1;
  bool hostsInParts = true;
};

const Assumption assumptions[] = {{"operations at full pace", 1.0},
                                  {"operations at 30 %", 0.3},
                                  {"as predicted", std::nullopt},
                                  {"operations slower", std::nullopt, 1.4},
                                  {"hosted whole", std::nullopt, 1, false}};

CompileOptions under(const Assumption &assumption, CompileOptions options) {
  double &pace = options.plan.machine.besideHostedPace;
  pace = assumption.besideHostedPace.value_or(pace);
  options.managed.slowerBy = assumption.slowerBy;
  options.managed.hostsInParts = assumption.hostsInParts;
  return options;
}

/// Whether two plans differ by no more than chance in what they host and do.
bool areAlike(const Compiled &one, const Compiled &other) {
  const std::vector<Buffer> &a = one.lowered.buffers, &b = other.lowered.buffers;
  return one.lowered.nodes.size() == other.lowered.nodes.size() &&
         std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Buffer &first, const Buffer &second) { return first.hosted == second.hosted; });
}

bool isKnown(const std::vector<Candidate> &candidates, const Compiled &compiled) {
  return std::any_of(candidates.begin(), candidates.end(), [&](const Candidate &candidate) {
    return candidate.compiled && areAlike(*candidate.compiled, compiled);
  });
}

} // namespace

Description withSlowdowns(Description step, const CompileOptions &options, const HostingRounds &rounds) {
  const Machine &machine = options.plan.machine;
  const std::size_t nodes = step.nodes.size();
  std::vector<bool> mayBeHosted(step.buffers.size(), false);
  for (const BufferIndex buffer : options.managed.mayBeHosted)
    mayBeHosted[buffer] = true;
  const auto isOfRound = [&](BufferIndex buffer, std::size_t round) {
    return mayBeHosted[buffer] && rounds.ofBuffer[buffer] == round;
  };
  Description timed = step;
  estimateCosts(timed, machine);
  // What stays was there in all rounds: it alone in those in which nothing else of the node was.
  std::vector<double> aloneUs(nodes, std::numeric_limits<double>::quiet_NaN());
  for (std::size_t round = 0; round < rounds.nodesUs.size(); ++round)
    for (NodeIndex node = 0; node < nodes; ++node)
      if (std::none_of(step.nodes[node].accesses.begin(), step.nodes[node].accesses.end(),
                       [&](const Access &access) { return isOfRound(access.buffer, round); }))
        aloneUs[node] = rounds.nodesUs[round][node];
  for (const BufferPart &part : options.plan.hosted)
    append(timed.buffers[part.buffer].hosted, part.range);
  takeHostedTimes(timed, aloneUs, machine);
  const std::vector<Traffic> ofWhatStays = hostedTraffic(timed).loadByNode;
  for (std::size_t round = 0; round < rounds.nodesUs.size(); ++round) {
    for (BufferIndex buffer = 0; buffer < timed.buffers.size(); ++buffer) {
      std::vector<Range> &hosted = timed.buffers[buffer].hosted;
      hosted.clear();
      if (isOfRound(buffer, round))
        hosted = {{0, step.buffers[buffer].size}};
    }
    std::vector<double> besideUs = rounds.nodesUs[round];
    for (NodeIndex node = 0; node < nodes; ++node)
      besideUs[node] -= linkUs(ofWhatStays[node], machine);
    takeHostedTimes(timed, besideUs, machine);
  }
  for (NodeIndex node = 0; node < nodes; ++node)
    step.nodes[node].accesses = std::move(timed.nodes[node].accesses);
  return step;
}

std::vector<Candidate> compileCandidates(const Description &captured, const CompileOptions &options,
                                         const std::optional<HostingRounds> &rounds) {
  CompileOptions withoutChoice = options;
  withoutChoice.managed.mayBeHosted.clear();
  const bool hasChoice = rounds && options.plan.backend != Backend::Virtual;
  std::vector<Candidate> candidates;
  candidates.push_back({hasChoice ? "nothing hosted by choice" : "as predicted", compile(captured, withoutChoice)});
  if (!hasChoice)
    return candidates;
  const Description timed = withSlowdowns(captured, options, *rounds);
  for (const Assumption &assumption : assumptions)
    if (tl::expected<Compiled, PlanError> compiled = compile(timed, under(assumption, options));
        !compiled || !isKnown(candidates, *compiled))
      candidates.push_back({assumption.name, std::move(compiled)});
  return candidates;
}

} // namespace pumpgraph
