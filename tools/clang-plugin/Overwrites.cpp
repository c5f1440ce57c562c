// SPDX-License-Identifier: Apache-2.0
//
// A store runs for many threads and in many iterations. Its offset is a sum of products: a stride times an index of
// thread or block, or a loop counter. Such a sum takes every value in a range if the indices are the digits of a
// number: the stride of each is that of the one below times how many values that one takes. A condition on the way to
// the store may limit one digit, or a number made of neighbouring ones (`block * blockDim + thread < count`); if it
// does anything else, nothing is proved. For an index that the offset does not depend on, it is enough that the store
// runs for one value of it: the witness.
#include "Overwrites.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/CFG.h"

#include <algorithm>

namespace pumpgraph::annotate {
namespace {

using llvm::BasicBlock;
using llvm::Loop;

/// What decides whether a block runs.
struct Path {
  std::vector<Bound> conditions;
  std::vector<const Loop *> loops; ///< around it; it runs in each of their iterations
};

class PathFinder {
public:
  PathFinder(Numbers &numbers, llvm::PostDominatorTree &postDominators)
      : numbers_(numbers), postDominators_(postDominators) {}

  std::optional<Path> find(const BasicBlock *block) {
    const BasicBlock *const entry = &block->getParent()->getEntryBlock();
    Path path;
    const Loop *loop = numbers_.loops().getLoopFor(block);
    for (;;) {
      if (!loop && postDominators_.dominates(block, entry))
        return path;
      const BasicBlock *const before = block;
      if (loop && runsInEveryIteration(block, *loop)) {
        path.loops.push_back(loop);
        block = loop->getLoopPredecessor();
        if (!block || !addCondition(*block, *loop->getHeader(), path))
          return std::nullopt;
        loop = loop->getParentLoop();
      } else {
        block = decidingBlock(before, loop, path);
      }
      if (!block || numbers_.loops().getLoopFor(block) != loop || path.conditions.size() > mostConditions)
        return std::nullopt;
    }
  }

private:
  static constexpr size_t mostConditions = 16;

  bool runsInEveryIteration(const BasicBlock *block, const Loop &loop) const {
    const BasicBlock *const latch = loop.getLoopLatch();
    return latch && loop.getExitingBlock() == latch && numbers_.dominators().dominates(block, latch);
  }

  /// The one block whose branch decides whether `block` runs.
  const BasicBlock *decidingBlock(const BasicBlock *block, const Loop *loop, Path &path) {
    const BasicBlock *deciding = nullptr, *towards = nullptr;
    for (const BasicBlock &candidate : *block->getParent()) {
      if (postDominators_.properlyDominates(block, &candidate))
        continue;
      for (const BasicBlock *const next : llvm::successors(&candidate)) {
        if (!postDominators_.dominates(block, next) || !numbers_.dominators().isReachableFromEntry(&candidate))
          continue;
        if (deciding)
          return nullptr;
        deciding = &candidate;
        towards = next;
      }
    }
    if (!deciding || deciding == block || numbers_.loops().getLoopFor(deciding) != loop ||
        !addCondition(*deciding, *towards, path))
      return nullptr;
    return deciding;
  }

  bool addCondition(const BasicBlock &block, const BasicBlock &next, Path &path) {
    const auto *const branch = llvm::dyn_cast<llvm::BranchInst>(block.getTerminator());
    if (!branch)
      return false;
    if (!branch->isConditional())
      return true;
    const std::optional<std::vector<Bound>> bounds =
        numbers_.boundsOf(branch->getCondition(), branch->getSuccessor(0) == &next);
    if (bounds)
      path.conditions.insert(path.conditions.end(), bounds->begin(), bounds->end());
    return bounds.has_value();
  }

  Numbers &numbers_;
  llvm::PostDominatorTree &postDominators_;
};

/// A number that takes every value below a limit.
struct Digits {
  Polynomial unit;   ///< bytes from one value to the next
  Polynomial number; ///< of the leaves that it is made of
  /// How many values the leaves can give it; nothing: no end to them.
  std::optional<Polynomial> count = Polynomial(1);
};

class Prover {
public:
  Prover(Numbers &numbers, const Path &path) : numbers_(numbers), path_(path) {}

  /// Sets what is overwritten by stores of `size` bytes at `offset`.
  bool prove(const Polynomial &offset, const Polynomial &size, const Requirements &required, SlotAccesses &slot) {
    required_ = required;
    first_ = offset;
    for (const auto &[monomial, coefficient] : offset.terms())
      for (const Leaf leaf : monomial)
        if (!numbers_.isShared(leaf) && !llvm::is_contained(leaves_, leaf))
          leaves_.push_back(leaf);
    std::stable_sort(leaves_.begin(), leaves_.end(),
                     [&](Leaf a, Leaf b) { return sizeOf(offset.coefficientOf(a)) < sizeOf(offset.coefficientOf(b)); });
    for (const Leaf leaf : leaves_) {
      strides_.push_back(offset.coefficientOf(leaf));
      first_ = first_.without(leaf);
      if (!numbers_.isShared(strides_.back()))
        return false;
    }
    if (!takeConditions() || !takeCounts())
      return false;
    const std::vector<bool> none(leaves_.size());
    search({.unit = size, .number = Polynomial()}, none, conditions_, required_);
    for (size_t i = 0; i < leaves_.size(); ++i)
      if (mayBeAlone(leaves_[i])) {
        Requirements whereAlone = required_;
        whereAlone.push_back(Extent::constant(2) - numbers_.extentOf(*dimensionOf(leaves_[i])));
        std::vector<bool> used = none;
        used[i] = true;
        search({.unit = size, .number = Polynomial()}, used, conditions_, whereAlone);
      }
    if (orders_.empty())
      return false;
    Extent bytes = Extent::constant(0);
    for (const Order &order : orders_)
      bytes = maximum(bytes, bytesIf(order));
    slot.mustBegin = onlyIf(required_, numbers_.extentOf(first_));
    slot.mustEnd = onlyIf(required_, numbers_.extentOf(first_) + bytes);
    if (!slot.mustBegin.isKnown() || !slot.mustEnd.isKnown())
      slot.mustBegin = slot.mustEnd = Extent();
    return slot.overwrites();
  }

private:
  /// Ascending, mostly, with the value.
  static std::pair<size_t, int64_t> sizeOf(const Polynomial &stride) {
    if (!stride.isKnown() || stride.isZero())
      return {};
    const auto &[leaves, coefficient] = *stride.terms().begin();
    return {leaves.size(), coefficient};
  }

  bool isIndex(Leaf leaf) const {
    const Numbers::Kind kind = numbers_.facts(leaf).kind;
    return kind == Numbers::Kind::threadIndex || kind == Numbers::Kind::blockIndex ||
           kind == Numbers::Kind::loopCounter;
  }

  /// The value of an index that the offset does not depend on, in one thread that stores: what the conditions say it
  /// equals, or 0.
  Polynomial witnessOf(Leaf leaf, const std::vector<Bound> &conditions) {
    const Polynomial index = Polynomial::leaf(leaf);
    for (const Bound &atMost : conditions)
      for (const Bound &atLeast : conditions)
        if (atMost.polynomial == index && atLeast.polynomial == Polynomial() - index &&
            atMost.exactBound == Polynomial() - atLeast.exactBound && isBelowCount(leaf, atMost.bound))
          return atMost.exactBound;
    return 0;
  }

  /// Whether it may be that some thread has this index; adds that it must.
  bool isBelowCount(Leaf leaf, const Extent &value) {
    const std::optional<Polynomial> count = dimensionOf(leaf);
    if (!count)
      return false;
    required_.push_back(value + Extent::constant(1));
    required_.push_back(numbers_.extentOf(*count) - value);
    return true;
  }

  /// How many values an index of thread or block takes.
  std::optional<Polynomial> dimensionOf(Leaf leaf) const {
    const Numbers::LeafFacts facts = numbers_.facts(leaf);
    if (facts.kind == Numbers::Kind::threadIndex)
      return Polynomial::leaf(numbers_.dimension(Numbers::Kind::blockDim, facts.axis));
    if (facts.kind == Numbers::Kind::blockIndex)
      return Polynomial::leaf(numbers_.dimension(Numbers::Kind::gridDim, facts.axis));
    return std::nullopt;
  }

  /// What the conditions say for the thread that has the witness's indices. False if something else differs from thread
  /// to thread.
  bool chooseWitness(std::vector<Bound> &conditions) {
    std::vector<Leaf> others;
    for (const Bound &condition : conditions)
      for (const auto &[monomial, coefficient] : condition.polynomial.terms())
        for (const Leaf leaf : monomial)
          if (!numbers_.isShared(leaf) && !llvm::is_contained(leaves_, leaf) && !llvm::is_contained(others, leaf))
            others.push_back(leaf);
    for (const Leaf leaf : others) {
      if (!isIndex(leaf))
        return false;
      const Polynomial value = witnessOf(leaf, conditions);
      for (Bound &condition : conditions)
        condition.polynomial = condition.polynomial.replaced(leaf, value);
    }
    return true;
  }

  bool takeConditions() {
    std::vector<Bound> conditions = path_.conditions;
    for (const Loop *const loop : path_.loops) {
      const std::optional<Numbers::LoopBound> bound = numbers_.boundOfLoop(*loop);
      if (!bound || !llvm::is_contained(leaves_, numbers_.counterOf(*loop)))
        continue;
      // The branch before the loop says the same of the first iteration.
      const Polynomial first = bound->bound.polynomial.without(numbers_.counterOf(*loop));
      llvm::erase_if(conditions, [&](const Bound &condition) {
        return condition.polynomial == first && condition.exactBound == bound->bound.exactBound;
      });
      conditions.push_back(bound->bound);
    }
    for (const Bound &condition : conditions) {
      if (!condition.polynomial.isKnown() || !condition.exactBound.isKnown())
        return false;
      required_.insert(required_.end(), condition.required.begin(), condition.required.end());
    }
    if (!chooseWitness(conditions))
      return false;
    for (const Bound &condition : conditions) {
      if (!condition.polynomial.isKnown())
        return false;
      if (numbers_.isShared(condition.polynomial))
        required_.push_back(condition.bound - numbers_.extentOf(condition.polynomial) + Extent::constant(1));
      else
        conditions_.push_back(condition);
    }
    return true;
  }

  bool takeCounts() {
    for (const Leaf leaf : leaves_) {
      const Numbers::LeafFacts facts = numbers_.facts(leaf);
      if (const std::optional<Polynomial> dimension = dimensionOf(leaf))
        counts_.emplace_back(dimension);
      else if (facts.kind != Numbers::Kind::loopCounter || !llvm::is_contained(path_.loops, facts.loop))
        return false;
      else if (numbers_.boundOfLoop(*facts.loop))
        counts_.emplace_back(std::nullopt);
      else if (counts_.emplace_back(numbers_.tripsOf(*facts.loop, required_)); !counts_.back()->isKnown())
        return false;
    }
    return true;
  }

  /// An order of the digits, and what it covers in launches that it is right for.
  struct Order {
    Requirements required;
    Extent bytes;
  };
  static constexpr size_t mostOrders = 4;

  /// Nothing in other launches.
  Extent bytesIf(const Order &order) const {
    Extent isRight = Extent::constant(1);
    for (const Extent &requirement : llvm::ArrayRef(order.required).drop_front(required_.size()))
      if (!requirement.isAtLeast(1))
        isRight = minimum(isRight, requirement);
    return maximum(Extent::constant(0), isRight) * order.bytes;
  }

  /// Adds the leaves that are not `used` as further digits, and notes the order once all fit.
  void search(const Digits &digits, const std::vector<bool> &used, std::vector<Bound> conditions,
              Requirements required) {
    if (orders_.size() == mostOrders)
      return;
    Extent count = digits.count ? numbers_.extentOf(*digits.count) : Extent();
    llvm::erase_if(conditions, [&](const Bound &condition) {
      if (condition.polynomial == digits.number) {
        const Extent limit = numbers_.extentOf(condition.exactBound + Polynomial(1));
        count = count.isKnown() ? minimum(count, limit) : limit;
        return true;
      }
      if (condition.polynomial == Polynomial() - digits.number) { // at least so much
        required.push_back(condition.bound + Extent::constant(1));
        return true;
      }
      return false;
    });
    if (llvm::all_of(used, [](bool isUsed) { return isUsed; })) {
      const Extent bytes = numbers_.extentOf(digits.unit) * count;
      if (conditions.empty() && bytes.isKnown() && onlyIf(required, bytes).isKnown())
        orders_.push_back({required, bytes});
      return;
    }
    for (size_t i = 0; i < leaves_.size(); ++i) {
      if (used[i] || !count.isKnown() || hasSmallerUnused(i, used))
        continue;
      Requirements withRadix = required;
      const Polynomial radix = radixOf(strides_[i], digits.unit, withRadix);
      if (!radix.isKnown() || (count.asConstant() == 1 && radix.asConstant() != 1))
        continue;
      withRadix.push_back(numbers_.extentOf(radix));
      withRadix.push_back(count - numbers_.extentOf(radix) + Extent::constant(1));
      std::vector<bool> nowUsed = used;
      nowUsed[i] = true;
      const Polynomial index = Polynomial::leaf(leaves_[i]);
      if (!digits.number.isZero() && isInCondition(leaves_[i]))
        search({digits.unit, digits.number + radix * index,
                counts_[i] ? std::optional(radix * *counts_[i]) : std::nullopt},
               nowUsed, conditions, withRadix);
      search({strides_[i], index, counts_[i]}, nowUsed, conditions, withRadix);
    }
  }

  /// How many units make the stride; a number of the launch where the expressions do not say, which adds that none
  /// may be left over.
  Polynomial radixOf(const Polynomial &stride, const Polynomial &unit, Requirements &required) const {
    if (const std::optional<Polynomial> exact = stride.dividedBy(unit))
      return *exact;
    if (stride.asConstant())
      return Polynomial::unknown();
    const Extent whole = numbers_.extentOf(stride), part = numbers_.extentOf(unit);
    const Extent quotient = whole / maximum(Extent::constant(1), part);
    if (!quotient.isKnown())
      return Polynomial::unknown();
    required.push_back(Extent::constant(1) - (whole - quotient * part));
    return Polynomial::leaf(numbers_.numberOfLaunch(quotient));
  }

  /// Whether some other leaf left has a stride that is smaller in every launch.
  bool hasSmallerUnused(size_t i, const std::vector<bool> &used) const {
    for (size_t other = 0; other < leaves_.size(); ++other) {
      if (used[other] || other == i)
        continue;
      const std::optional<Polynomial> ratio = strides_[i].dividedBy(strides_[other]);
      const std::optional<int64_t> times = ratio ? ratio->asConstant() : std::nullopt;
      if (times && (*times > 1 || (*times == 1 && other < i)))
        return true;
    }
    return false;
  }

  /// Whether a launch may have one value of this index, whose stride then says nothing: a batch of one.
  bool mayBeAlone(Leaf leaf) const {
    return numbers_.facts(leaf).kind == Numbers::Kind::blockIndex && !isInCondition(leaf);
  }

  bool isInCondition(Leaf leaf) const {
    return llvm::any_of(conditions_, [&](const Bound &condition) {
      return llvm::any_of(condition.polynomial.terms(),
                          [&](const auto &term) { return llvm::is_contained(term.first, leaf); });
    });
  }

  Numbers &numbers_;
  const Path &path_;
  std::vector<Leaf> leaves_; ///< that differ from thread to thread, or from iteration to iteration
  std::vector<Polynomial> strides_;
  std::vector<std::optional<Polynomial>> counts_;
  std::vector<Bound> conditions_;
  Requirements required_;
  std::vector<Order> orders_;
  Polynomial first_;
};

/// The bytes of the pieces, if there are no gaps between them.
std::optional<int64_t> joined(const std::vector<std::pair<int64_t, int64_t>> &pieces) {
  int64_t end = pieces.front().second;
  for (const auto &[begin, pieceEnd] : pieces) {
    if (begin > end)
      return std::nullopt;
    end = std::max(end, pieceEnd);
  }
  return end - pieces.front().first;
}

} // namespace

void findOverwrites(const std::vector<AccessGroup> &groups, Numbers &numbers, llvm::PostDominatorTree &postDominators,
                    SlotAccesses &slot) {
  PathFinder finder(numbers, postDominators);
  for (const AccessGroup &group : groups) {
    const std::optional<int64_t> size = joined(group.pieces);
    const std::optional<Path> path = size ? finder.find(group.instruction->getParent()) : std::nullopt;
    if (!path)
      continue;
    const Polynomial offset = group.offset + Polynomial(group.pieces.front().first);
    if (Prover(numbers, *path).prove(offset, Polynomial(*size) + group.length, group.required, slot))
      return;
  }
}

} // namespace pumpgraph::annotate
