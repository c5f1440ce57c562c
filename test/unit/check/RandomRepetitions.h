// SPDX-License-Identifier: Apache-2.0
/// \file
/// Random steps in which pure nodes run again (rule 11 of docs/design/plan-correctness.md): right ones, and some with a
/// mistake. Which ones are right is told byte by byte, by other code than the checker's.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>

namespace pumpgraph::test {

/// What is wrong with a step. Some mistakes make no difference.
enum class Mistake {
  None,
  WrongValue,       ///< a repetition where some node then finds another value
  LinkDropped,      ///< one repetition of several that belong together
  Moved,            ///< a repetition, to another place
  AnotherNode,      ///< a repetition of another node, with that one's accesses
  AnotherPosition,  ///< the same, but with the accesses of the first
  Lasting,          ///< a repetition that writes what outlives the step, or is not private
  NotPure,          ///< what is repeated
  AccessDropped,    ///< of a repetition
  AccessChanged,    ///< of a repetition
  EdgeDropped,      ///< at a repetition
  EdgeProgrammatic, ///< at a repetition
  AsideGained,      ///< by an access of a node that is repeated, which its repetitions leave out
  AsideForgotten,   ///< by an access of a node that is repeated
};
inline constexpr std::size_t mistakeCount = 14;

const char *toText(Mistake mistake);

/// The captured step with some nodes pure. In most steps more buffers than before are the step's own, and more accesses
/// certain.
Description repeatableStep(Description captured, std::uint64_t seed);

/// A captured step with repetitions. Nothing says yet where its pages are.
struct RepeatingStep {
  Description step;
  Mistake mistake = Mistake::None;
  unsigned repetitions = 0;
};

RepeatingStep withRepetitions(const Description &captured, std::uint64_t seed, bool makesMistakes = true);

/// A plan that moves nothing: all pages have frames of their own.
Description withoutLimit(const Description &step);

} // namespace pumpgraph::test
