// SPDX-License-Identifier: Apache-2.0
/// \file
/// What nodes move over the link themselves because pages that they touch are in host memory at all times.
#pragma once

#include "passes/analysis/Machine.h"
#include "passes/analysis/RequiredTraffic.h"
#include "pumpgraph/graph/Description.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace pumpgraph {

/// Up what nodes may read of hosted pages, down what they may write. Whole pages, each once a node, as the planner sees
/// accesses: what an access does not certainly overwrite it reads, unless the page has no value yet, the node is the
/// captured step's first to write it, and it does not certainly read. Only captured nodes touch such pages.
struct HostedTraffic {
  std::vector<Traffic> byNode;
  std::vector<Traffic> loadByNode; ///< as many bytes on the link take as long: each times its access's slowdown
  std::vector<Traffic> byBuffer;

  Traffic total() const;
};
HostedTraffic hostedTraffic(const Description &description);

/// By node, the same load in the order in which it moves it, if it goes through all of its operands at the same pace
/// from front to back: what is hosted of one at another place than of others is not moved while they are. None is
/// empty.
std::vector<std::vector<Traffic>> hostedStretches(const Description &description);

/// The same bytes of each captured node that moves some, by its position among these.
std::map<std::size_t, Traffic> hostedReach(const Description &description);

/// How long that takes on a link that nothing else uses: both directions begin together and share it
/// (docs/design/cost-model.md).
double linkUs(const Traffic &traffic, const Machine &machine);
double linkUs(double upBytes, double downBytes, const Machine &machine);

/// Gives accesses to hosted pages the slowdown with which linkUs() has it that their node takes as long as it did with
/// all of these pages in host memory and nothing else on the link: `measuredUs`, by node, beyond its cost; NaN: nobody
/// knows. The accesses of a node are taken to be equally slow.
void takeHostedTimes(Description &step, std::span<const double> measuredUs, const Machine &machine);

std::uint64_t hostedBytesOf(const Buffer &buffer);
/// Bytes of all hosted pages; those of one position of buffers that continue each other once.
std::uint64_t hostedBytes(const Description &description);

} // namespace pumpgraph
