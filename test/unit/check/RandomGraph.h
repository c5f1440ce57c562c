// SPDX-License-Identifier: Apache-2.0
/// \file
/// Random captured steps for property tests: small, odd in every way that a real step can be, and free of races.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pumpgraph::test {

/// Steps of at most 64 nodes: one machine word holds a set of nodes.
inline constexpr std::size_t maxNodes = 64;

/// A captured step, the same for the same seed. Conflicting accesses (of overlapping bytes, one of them a write) are
/// ordered: by a path of full edges or a programmatic edge between the two; in some steps by any path, which is what
/// a stream gives its kernels.
Description randomStep(std::uint64_t seed);

/// A step of at most 6 nodes and 4 buffers of one or two pages, with a cost at every node.
Description tinyStep(std::uint64_t seed);

/// Lets another address stand for each private buffer that is not live.
void makeRenamable(Description &captured);

/// The captured step with renamable buffers that go on at other addresses at random. New buffers follow all others.
Description withOtherAddresses(Description captured, std::uint64_t seed);

/// How many pages of buffers that continue others have the frame that they had there.
std::uint64_t pagesThatStay(const Description &planned);

/// Whether every two conflicting accesses are ordered by a path of edges of either kind.
bool isRaceFree(const Description &captured);

/// The least number of frames that could do: exclusive pages and the private pages of the widest node.
std::uint64_t leastFrames(const Description &captured);

/// Pages of all buffers.
std::uint64_t totalPages(const Description &description);

/// A smaller captured step for which `fails` still holds, reached by leaving out nodes, accesses, edges and buffers and
/// by making sizes and modes simpler. `fails` is only asked about race-free steps.
template <typename Predicate> Description shrink(Description step, Predicate fails);

/// The step as readable text, for failure messages.
std::string toText(const Description &description);

/// All steps that are one simplification away.
std::vector<Description> simplerSteps(const Description &captured);

template <typename Predicate> Description shrink(Description step, Predicate fails) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (Description &candidate : simplerSteps(step)) {
      if (!isRaceFree(candidate) || !fails(candidate))
        continue;
      step = std::move(candidate);
      smaller = true;
      break;
    }
  }
  return step;
}

} // namespace pumpgraph::test
