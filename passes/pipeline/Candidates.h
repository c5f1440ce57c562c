// SPDX-License-Identifier: Apache-2.0
/// \file
/// The portfolio: plans of one step by different assumptions, of which the device shows the fastest.
#pragma once

#include "passes/pipeline/Compile.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pumpgraph {

/// Node times on managed memory with buffers in host memory, in rounds with different buffers there.
struct HostingRounds {
  std::vector<std::uint8_t> ofBuffer; ///< by buffer: the round in which it was in host memory, if it may be hosted
  std::vector<std::vector<double>> nodesUs; ///< by round, and in it by node
};

/// The step with the slowdowns of the accesses to `options.managed.mayBeHosted` and `options.plan.hosted` that follow
/// from the rounds. The latter stayed in host memory in all of them.
Description withSlowdowns(Description step, const CompileOptions &options, const HostingRounds &rounds);

struct Candidate {
  std::string name; ///< "as predicted"; no two of a step are equal
  tl::expected<Compiled, PlanError> compiled;
};

/// At least one; no two plans are alike, but some may be missing or refused by the checker. Among equally fast ones the
/// first is to be preferred. There is more than one on managed memory where buffers may be hosted by choice and
/// `rounds` tell how fast nodes are then: nobody measures operations beside such nodes, nor parts of buffers.
std::vector<Candidate> compileCandidates(const Description &captured, const CompileOptions &options,
                                         const std::optional<HostingRounds> &rounds);

} // namespace pumpgraph
