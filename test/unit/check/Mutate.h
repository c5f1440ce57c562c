// SPDX-License-Identifier: Apache-2.0
/// \file
/// Plans with one mistake in them, and a way to tell the mistakes that make no difference.
#pragma once

#include "test/unit/check/Interpreter.h"

#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pumpgraph::test {

enum class Mutation {
  DropTransfer, ///< what waited for it waits for what it waited for
  DropTransferAndEdges,
  ShortenTransfer, ///< by one page at either end
  MoveTransfer,    ///< across an event on its page or frame
  ReverseTransfer, ///< an evict becomes a prefetch and the other way round
  ForgetTransfer,  ///< an evict or prefetch becomes a discard
  RemoveEdge,
  WeakenEdge,     ///< full becomes programmatic
  ShareFrame,     ///< a page moves to the frame of another one
  ChangeBoundary, ///< a page becomes resident at the boundary, or is not any more
  ChangeMirror,   ///< a resident page becomes mirrored, or is not any more
  MoveHostPlace,  ///< lowered: one copy uses the place of another page, or none
  ShrinkBudget,
  DropHosted,     ///< a hosted range
  ShortenHosted,  ///< by one page at either end
  HostTransfer,   ///< what a transfer moves is hosted as well
  RenameOperand,  ///< a node has the address before, or the next one, of what goes on at another
  DropRepetition, ///< a link of a chain, or its base
  MoveRepetition, ///< across an event on its pages or frames
  AddRepetition,  ///< of a pure node, somewhere after it: over live values, without its base
  RepeatAnother,  ///< node, with its accesses or with those of the first
  ForgetPure,     ///< of a node that is repeated
  DropAccess,     ///< of a repetition
  CountAside,     ///< an access that its original has aside, as one of the repetition
  ForgetAside,    ///< of a node that is repeated
  MakeAside,      ///< an access of a node that is repeated; the repetition leaves it out
};
inline constexpr std::size_t mutationCount = 26;

/// Whether only plans with repetitions have such mutants.
inline bool isOfRepetition(Mutation mutation) {
  return mutation >= Mutation::DropRepetition;
}

const char *toText(Mutation mutation);

struct Mutant {
  Mutation mutation = Mutation::DropTransfer;
  std::string what; ///< for messages
  Description description;
};

/// Every mutant of a planned or lowered step.
std::vector<Mutant> mutantsOf(const Description &plan);

/// Why a well-formed step may be wrong; nothing when it is proved right. The proof: whatever two events the contract
/// wants ordered are ordered, so every legal order shows every page the same events, and in one of the orders all
/// values are right.
std::optional<std::string> doubtAbout(const Reference &reference, const Description &description);

} // namespace pumpgraph::test
