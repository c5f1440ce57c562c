// SPDX-License-Identifier: Apache-2.0
/// \file
/// What is known of the numbers in a kernel: machine integers as polynomials, what branches and loops say of them, and
/// the least and largest value that any thread of a launch can see.
///
/// Machine integers wrap and polynomials do not. A polynomial stands for a machine integer in that both are equal
/// modulo 2 to the integer's width; where an exact value is needed (extensions, comparisons) the numbers of the launch
/// must prove that nothing wraps. What must be proved is collected: it becomes part of the expression, which is unknown
/// for a launch that does not satisfy it.
#pragma once

#include "Extent.h"
#include "LocalObject.h"
#include "Polynomial.h"

#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/IR/Dominators.h"

#include <vector>

namespace pumpgraph::annotate {

/// Numbers that must all be at least 1 for a conclusion to hold.
using Requirements = std::vector<Extent>;

/// `extent`, or unknown for a launch that does not meet what is required.
Extent onlyIf(const Requirements &required, const Extent &extent);

/// `polynomial` <= `bound`, where the polynomial has no part that is the same for all threads.
struct Bound {
  Polynomial polynomial;
  Extent bound;
  Polynomial exactBound; ///< the same as a polynomial
  Requirements required;
};

struct Range {
  Extent least, largest;
};

class Numbers {
public:
  Numbers(llvm::ScalarEvolution &evolution, llvm::DominatorTree &dominators, llvm::LoopInfo &loops,
          LocalObjects &objects)
      : evolution_(evolution), dominators_(dominators), loops_(loops), objects_(objects) {}

  /// What branches say wherever `instruction` runs.
  std::vector<Bound> boundsAt(const llvm::Instruction *instruction);

  /// What it says that `condition` is `outcome`; nothing if that is not understood in full.
  std::optional<std::vector<Bound>> boundsOf(llvm::Value *condition, bool outcome);

  /// For a loop that goes on only while a growing number is within a bound: the number at the start of an iteration is
  /// within `bound` in every iteration but the first.
  struct LoopBound {
    Bound bound;
    Polynomial first; ///< what the bound's polynomial is in the first iteration, with the part all threads share
    bool holdsInFirst = false; ///< the loop is entered only if it holds
  };
  std::optional<LoopBound> boundOfLoop(const llvm::Loop &loop);

  Polynomial polynomialOf(const llvm::SCEV *number, const std::vector<Bound> &bounds, Requirements &required);
  Polynomial polynomialOf(llvm::Value *number, const std::vector<Bound> &bounds, Requirements &required);

  /// Unknown where no bound is found.
  Range rangeOf(const Polynomial &polynomial, const std::vector<Bound> &bounds, Requirements &required);

  /// An expression of a polynomial that is the same for all threads; unknown if it is not.
  Extent extentOf(const Polynomial &polynomial) const;

  /// The distance in bytes from one of `roots` to `address`; unknown if that is not all there is to the address.
  Polynomial offsetOf(llvm::Value *address, const llvm::DenseSet<llvm::Value *> &roots,
                      const std::vector<Bound> &bounds, Requirements &required);

  enum class Kind { parameter, gridDim, blockDim, threadIndex, blockIndex, loopCounter, other };
  /// Of a call that reads a thread's place in its launch, or the launch's shape: which, and its axis.
  static std::optional<std::pair<Kind, unsigned>> placeIn(const llvm::CallBase &call);
  struct LeafFacts {
    Kind kind = Kind::other;
    unsigned axis = 0;                  ///< 0, 1, 2
    Extent value;                       ///< where it is the same for all threads
    unsigned bits = 0;                  ///< of a parameter
    const llvm::Loop *loop = nullptr;   ///< Kind::loopCounter: how many iterations came before
    const llvm::SCEV *number = nullptr; ///< Kind::other
  };
  const LeafFacts &facts(Leaf leaf) const { return leaves_[leaf]; }
  bool isShared(Leaf leaf) const; ///< the same for all threads of a launch
  bool isShared(const Polynomial &polynomial) const;
  bool isDimension(Leaf leaf) const; ///< of grid or block, so at least 1
  Leaf dimension(Kind kind, unsigned axis);
  Leaf numberOfLaunch(const Extent &value);
  Leaf counterOf(const llvm::Loop &loop);
  /// How often the loop runs once it is entered; unknown if threads differ in it.
  Polynomial tripsOf(const llvm::Loop &loop, Requirements &required);

  llvm::LoopInfo &loops() { return loops_; }
  llvm::DominatorTree &dominators() { return dominators_; }

private:
  /// left < right, or left <= right
  struct Comparison {
    llvm::Value *left, *right;
    bool isStrict, isSigned, isEquality;
    unsigned bits;
  };

  static std::optional<Comparison> compare(llvm::Value *condition, bool outcome);
  std::optional<std::vector<Bound>> boundsOfComparison(llvm::Value *condition, bool outcome);
  std::optional<LoopBound> findBoundOfLoop(const llvm::Loop &loop);
  bool isEnteredWithin(const llvm::Loop &loop, const Comparison &stay, const LoopBound &found);
  Bound makeBound(const Polynomial &left, const Polynomial &right, bool isStrict, const Requirements &required) const;
  std::vector<Bound> boundsBefore(const llvm::Loop &loop);
  bool isSmall(const Polynomial &polynomial, unsigned bits) const;
  bool usesOnlyLoopsAround(const Polynomial &polynomial, const llvm::BasicBlock *block) const;
  bool requireWithin(const Polynomial &polynomial, unsigned bits, bool isSigned, const std::vector<Bound> &bounds,
                     Requirements &required);
  Extent largestOf(const Polynomial &polynomial, const std::vector<Bound> &bounds, Requirements &required, int depth);
  Extent largestByLeaves(const Polynomial &polynomial, const std::vector<Bound> &bounds, Requirements &required);
  Extent largestOfProduct(const Polynomial::Monomial &leaves, int64_t coefficient, const std::vector<Bound> &bounds,
                          Requirements &required);
  bool isNeverNegative(const Polynomial &polynomial) const;
  size_t countThreadTerms(const Polynomial &polynomial) const;
  Range rangeOfLeaf(Leaf leaf, const std::vector<Bound> &bounds, Requirements &required);
  Range rangeOfOther(const llvm::SCEV *number, const std::vector<Bound> &bounds, Requirements &required);
  Polynomial polynomialOfCast(const llvm::SCEVCastExpr *cast, const std::vector<Bound> &bounds, Requirements &required);
  Polynomial polynomialOfOther(const llvm::SCEV *number, const std::vector<Bound> &bounds, Requirements &required);
  Extent sharedValueOf(const llvm::SCEV *number, const std::vector<Bound> &bounds, Requirements &required);
  std::optional<LeafFacts> factsOf(llvm::Value *value);
  const llvm::SCEV *readOnce(const llvm::SCEV *number);
  const llvm::SCEV *sameOnAllWays(llvm::Value *value);
  Leaf intern(const LeafFacts &facts);

  llvm::ScalarEvolution &evolution_;
  llvm::DominatorTree &dominators_;
  llvm::LoopInfo &loops_;
  LocalObjects &objects_;
  std::vector<LeafFacts> leaves_;
  llvm::DenseMap<const llvm::Value *, const llvm::SCEV *> readings_; ///< of an index or dimension, the first one
  bool areReadingsKnown_ = false;
  llvm::DenseMap<const llvm::Loop *, std::optional<LoopBound>> loopBounds_;
  llvm::DenseMap<const llvm::BasicBlock *, std::vector<Bound>> bounds_;
};

} // namespace pumpgraph::annotate
