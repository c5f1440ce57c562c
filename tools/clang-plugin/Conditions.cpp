// SPDX-License-Identifier: Apache-2.0
#include "Conditions.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PatternMatch.h"

namespace pumpgraph::annotate {
namespace {

using llvm::BasicBlock;
using llvm::Instruction;
using llvm::Loop;
using llvm::SCEV;
using llvm::Value;

/// Machine integers of 64 bits are held to less, so that sums of a few of them stay exact.
constexpr int64_t limit64 = int64_t{1} << 62;
constexpr int deepest = 8;

struct Limits {
  int64_t least, largest;
};

Limits limitsOf(unsigned bits, bool isSigned) {
  if (bits >= 63)
    return {isSigned ? -limit64 : 0, limit64};
  const int64_t size = int64_t{1} << (isSigned ? bits - 1 : bits);
  return {isSigned ? -size : 0, size - 1};
}

Extent negated(const Extent &extent) {
  return Extent::constant(0) - extent;
}

/// The comparisons that must all have their outcome for `condition` to have its own; one that cannot be split is listed
/// as it is.
void split(Value *condition, bool outcome, llvm::SmallVectorImpl<std::pair<Value *, bool>> &parts) {
  using namespace llvm::PatternMatch;
  Value *left = nullptr, *right = nullptr;
  if (match(condition, m_Not(m_Value(left))))
    return split(left, !outcome, parts);
  const bool isSplit = outcome ? match(condition, m_LogicalAnd(m_Value(left), m_Value(right)))
                               : match(condition, m_LogicalOr(m_Value(left), m_Value(right)));
  if (!isSplit) {
    parts.push_back({condition, outcome});
    return;
  }
  split(left, outcome, parts);
  split(right, outcome, parts);
}

} // namespace

Extent onlyIf(const Requirements &required, const Extent &extent) {
  Extent least = Extent::constant(1);
  Requirements open;
  for (const Extent &requirement : required) {
    if (negated(requirement).isAtLeast(0))
      return {}; // no launch meets it
    if (!requirement.isAtLeast(1) && !llvm::is_contained(open, requirement))
      open.push_back(requirement);
  }
  for (const Extent &requirement : open)
    least = minimum(least, requirement);
  return extent / least; // 1, or nothing to divide by
}

std::vector<Bound> Numbers::boundsAt(const Instruction *instruction) {
  const BasicBlock *const block = instruction->getParent();
  if (const auto known = bounds_.find(block); known != bounds_.end())
    return known->second;
  std::vector<Bound> bounds;
  const auto add = [&](const Bound &bound) {
    if (usesOnlyLoopsAround(bound.polynomial, block))
      bounds.push_back(bound);
  };
  if (!dominators_.isReachableFromEntry(block))
    return bounds;
  for (const auto *node = dominators_.getNode(block); node->getIDom(); node = node->getIDom()) {
    const BasicBlock *const above = node->getIDom()->getBlock();
    const auto *const branch = llvm::dyn_cast<llvm::BranchInst>(above->getTerminator());
    if (!branch || !branch->isConditional() || branch->getSuccessor(0) == branch->getSuccessor(1))
      continue;
    for (const unsigned taken : {0U, 1U}) {
      if (!dominators_.dominates(llvm::BasicBlockEdge(above, branch->getSuccessor(taken)), block))
        continue;
      llvm::SmallVector<std::pair<Value *, bool>, 4> parts;
      split(branch->getCondition(), taken == 0, parts);
      for (const auto &[condition, outcome] : parts)
        if (const auto found = boundsOfComparison(condition, outcome))
          llvm::for_each(*found, add);
    }
  }
  for (const Loop *loop = loops_.getLoopFor(block); loop; loop = loop->getParentLoop()) {
    const std::optional<LoopBound> found = boundOfLoop(*loop);
    if (!found)
      continue;
    Bound bound = found->bound;
    if (!found->holdsInFirst) {
      const Polynomial first = makeBound(found->first, Polynomial(), false, {}).polynomial;
      bound.bound = maximum(bound.bound, largestOf(first, bounds, bound.required, 0));
      bound.exactBound = Polynomial::unknown();
    }
    if (bound.bound.isKnown())
      add(bound);
  }
  bounds_[block] = bounds;
  return bounds;
}

/// What branches say wherever the loop is entered.
std::vector<Bound> Numbers::boundsBefore(const Loop &loop) {
  const BasicBlock *const before = loop.getLoopPredecessor();
  if (!before)
    return {};
  std::vector<Bound> bounds = boundsAt(before->getTerminator());
  const auto *const branch = llvm::dyn_cast<llvm::BranchInst>(before->getTerminator());
  if (!branch || !branch->isConditional() || branch->getSuccessor(0) == branch->getSuccessor(1))
    return bounds;
  llvm::SmallVector<std::pair<Value *, bool>, 4> parts;
  split(branch->getCondition(), branch->getSuccessor(0) == loop.getHeader(), parts);
  for (const auto &[condition, outcome] : parts)
    for (const Bound &bound : boundsOfComparison(condition, outcome).value_or(std::vector<Bound>()))
      if (usesOnlyLoopsAround(bound.polynomial, before))
        bounds.push_back(bound);
  return bounds;
}

bool Numbers::usesOnlyLoopsAround(const Polynomial &polynomial, const BasicBlock *block) const {
  return llvm::all_of(polynomial.terms(), [&](const auto &term) {
    return llvm::all_of(term.first, [&](Leaf leaf) {
      return facts(leaf).kind != Kind::loopCounter || facts(leaf).loop->contains(block);
    });
  });
}

std::optional<std::vector<Bound>> Numbers::boundsOf(Value *condition, bool outcome) {
  llvm::SmallVector<std::pair<Value *, bool>, 4> parts;
  split(condition, outcome, parts);
  std::vector<Bound> bounds;
  for (const auto &[part, partOutcome] : parts) {
    const auto found = boundsOfComparison(part, partOutcome);
    if (!found)
      return std::nullopt;
    bounds.insert(bounds.end(), found->begin(), found->end());
  }
  return bounds;
}

std::optional<Numbers::Comparison> Numbers::compare(Value *condition, bool outcome) {
  auto *const comparison = llvm::dyn_cast<llvm::ICmpInst>(condition);
  if (!comparison || !comparison->getOperand(0)->getType()->isIntegerTy() ||
      comparison->getOperand(0)->getType()->getIntegerBitWidth() > 64)
    return std::nullopt;
  const llvm::CmpInst::Predicate predicate = outcome ? comparison->getPredicate() : comparison->getInversePredicate();
  if (predicate == llvm::CmpInst::ICMP_NE) {
    const auto *const zero = llvm::dyn_cast<llvm::ConstantInt>(comparison->getOperand(1));
    if (!zero || !zero->isZero())
      return std::nullopt;
    return Comparison{.left = comparison->getOperand(1),
                      .right = comparison->getOperand(0),
                      .isStrict = true,
                      .isSigned = false,
                      .isEquality = false,
                      .bits = zero->getType()->getIntegerBitWidth()};
  }
  const bool isGreater = llvm::ICmpInst::isGT(predicate) || llvm::ICmpInst::isGE(predicate);
  return Comparison{.left = comparison->getOperand(isGreater ? 1 : 0),
                    .right = comparison->getOperand(isGreater ? 0 : 1),
                    .isStrict = llvm::ICmpInst::isLT(predicate) || llvm::ICmpInst::isGT(predicate),
                    .isSigned = !llvm::CmpInst::isUnsigned(predicate),
                    .isEquality = predicate == llvm::CmpInst::ICMP_EQ,
                    .bits = comparison->getOperand(0)->getType()->getIntegerBitWidth()};
}

std::optional<std::vector<Bound>> Numbers::boundsOfComparison(Value *condition, bool outcome) {
  const std::optional<Comparison> comparison = compare(condition, outcome);
  if (!comparison)
    return std::nullopt;
  Requirements required;
  const Polynomial left = polynomialOf(comparison->left, {}, required);
  const Polynomial right = polynomialOf(comparison->right, {}, required);
  if (!requireWithin(left, comparison->bits, comparison->isSigned, {}, required) ||
      !requireWithin(right, comparison->bits, comparison->isSigned, {}, required))
    return std::nullopt;
  std::vector<Bound> bounds = {makeBound(left, right, comparison->isStrict, required)};
  if (comparison->isEquality)
    bounds.push_back(makeBound(right, left, false, required));
  for (const Bound &bound : bounds)
    if (!bound.bound.isKnown())
      return std::nullopt;
  return bounds;
}

Bound Numbers::makeBound(const Polynomial &left, const Polynomial &right, bool isStrict,
                         const Requirements &required) const {
  const Polynomial difference = left - right + Polynomial(isStrict ? 1 : 0); // at most 0
  Polynomial shared, own;
  for (const auto &[monomial, coefficient] : difference.terms())
    (llvm::all_of(monomial, [&](Leaf leaf) { return isShared(leaf); }) ? shared : own) +=
        Polynomial::product(monomial, coefficient);
  const Polynomial exact = difference.isKnown() ? Polynomial() - shared : Polynomial::unknown();
  return {own, extentOf(exact), exact, required};
}

std::optional<Numbers::LoopBound> Numbers::boundOfLoop(const Loop &loop) {
  const auto known = loopBounds_.find(&loop);
  if (known != loopBounds_.end())
    return known->second;
  loopBounds_[&loop] = std::nullopt; // for whoever asks on the way
  const std::optional<LoopBound> found = findBoundOfLoop(loop);
  loopBounds_[&loop] = found;
  return found;
}

std::optional<Numbers::LoopBound> Numbers::findBoundOfLoop(const Loop &loop) {
  const BasicBlock *const latch = loop.getLoopLatch();
  if (!latch || !loop.getLoopPredecessor() || !loop.isLoopExiting(latch))
    return std::nullopt;
  const auto *const branch = llvm::dyn_cast<llvm::BranchInst>(latch->getTerminator());
  if (!branch || !branch->isConditional())
    return std::nullopt;
  const std::optional<Comparison> stay = compare(branch->getCondition(), branch->getSuccessor(0) == loop.getHeader());
  if (!stay || stay->isEquality)
    return std::nullopt;

  LoopBound found;
  Requirements required;
  const std::vector<Bound> outside = boundsBefore(loop);
  const Polynomial left = polynomialOf(stay->left, outside, required);
  const Polynomial right = polynomialOf(stay->right, outside, required);
  const Leaf counter = counterOf(loop);
  const Polynomial step = left.coefficientOf(counter);
  if (step.isZero() || !isShared(step) || !isShared(right))
    return std::nullopt;
  // What is compared at the end of an iteration is what the next one starts with.
  const Polynomial number = left.replaced(counter, Polynomial::leaf(counter) - Polynomial(1));
  found.first = number.without(counter);
  // The number grows from within the machine integer's range, and the step beyond the bound stays in it.
  if (!isNeverNegative(step))
    required.push_back(extentOf(step));
  required.push_back(Extent::constant(limitsOf(stay->bits, stay->isSigned).largest) - extentOf(right) - extentOf(step));
  if (!requireWithin(found.first, stay->bits, stay->isSigned, outside, required) ||
      !requireWithin(right, stay->bits, stay->isSigned, outside, required))
    return std::nullopt;
  found.bound = makeBound(number, right, stay->isStrict, required);
  if (!found.bound.bound.isKnown())
    return std::nullopt;
  found.holdsInFirst = isEnteredWithin(loop, *stay, found);
  return found;
}

/// Whether a branch before the loop says of its first iteration what the branch at its end says of the others.
bool Numbers::isEnteredWithin(const Loop &loop, const Comparison &stay, const LoopBound &found) {
  const Bound first = makeBound(found.first, found.bound.exactBound, false, {});
  for (const Bound &bound : boundsBefore(loop))
    if (bound.polynomial == first.polynomial && !bound.polynomial.isZero() &&
        bound.exactBound == found.bound.exactBound)
      return true;
  const auto *const compared = llvm::dyn_cast<llvm::SCEVAddRecExpr>(evolution_.getSCEV(stay.left));
  if (!compared || compared->getLoop() != &loop || !compared->isAffine())
    return false;
  const SCEV *const start = evolution_.getMinusSCEV(compared->getStart(), compared->getStepRecurrence(evolution_));
  const auto predicate = stay.isSigned ? (stay.isStrict ? llvm::CmpInst::ICMP_SLT : llvm::CmpInst::ICMP_SLE)
                                       : (stay.isStrict ? llvm::CmpInst::ICMP_ULT : llvm::CmpInst::ICMP_ULE);
  return evolution_.isLoopEntryGuardedByCond(&loop, predicate, start, evolution_.getSCEV(stay.right));
}

Polynomial Numbers::polynomialOf(Value *number, const std::vector<Bound> &bounds, Requirements &required) {
  return evolution_.isSCEVable(number->getType()) ? polynomialOf(evolution_.getSCEV(number), bounds, required)
                                                  : Polynomial::unknown();
}

Polynomial Numbers::polynomialOf(const SCEV *number, const std::vector<Bound> &bounds, Requirements &required) {
  const auto operandsOf = [&](auto combine, Polynomial result) {
    for (const SCEV *operand : llvm::cast<llvm::SCEVNAryExpr>(number)->operands())
      result = combine(result, polynomialOf(operand, bounds, required));
    return result;
  };
  switch (number->getSCEVType()) {
  case llvm::scConstant: {
    const llvm::APInt &value = llvm::cast<llvm::SCEVConstant>(number)->getAPInt();
    return value.getBitWidth() <= 64 ? Polynomial(value.getSExtValue()) : Polynomial::unknown();
  }
  case llvm::scAddExpr:
    return operandsOf([](const Polynomial &a, const Polynomial &b) { return a + b; }, Polynomial(0));
  case llvm::scMulExpr:
    return operandsOf([](const Polynomial &a, const Polynomial &b) { return a * b; }, Polynomial(1));
  case llvm::scTruncate:
    return polynomialOf(llvm::cast<llvm::SCEVTruncateExpr>(number)->getOperand(), bounds, required);
  case llvm::scZeroExtend:
  case llvm::scSignExtend:
    return polynomialOfCast(llvm::cast<llvm::SCEVCastExpr>(number), bounds, required);
  case llvm::scAddRecExpr: {
    const auto *const recurrence = llvm::cast<llvm::SCEVAddRecExpr>(number);
    if (!recurrence->isAffine())
      return polynomialOfOther(number, bounds, required);
    return polynomialOf(recurrence->getStart(), bounds, required) +
           polynomialOf(recurrence->getStepRecurrence(evolution_), bounds, required) *
               Polynomial::leaf(counterOf(*recurrence->getLoop()));
  }
  default:
    return polynomialOfOther(number, bounds, required);
  }
}

Polynomial Numbers::polynomialOfCast(const llvm::SCEVCastExpr *cast, const std::vector<Bound> &bounds,
                                     Requirements &required) {
  const SCEV *const operand = cast->getOperand();
  // What is left of a number by a mask has a range of its own; that it be the whole number is not asked for.
  if (!llvm::isa<llvm::SCEVTruncateExpr>(operand)) {
    const size_t before = required.size();
    const Polynomial polynomial = polynomialOf(operand, bounds, required);
    const auto bits = static_cast<unsigned>(evolution_.getTypeSizeInBits(operand->getType()));
    if (requireWithin(polynomial, bits, cast->getSCEVType() == llvm::scSignExtend, bounds, required))
      return polynomial;
    required.resize(before);
  }
  return polynomialOfOther(cast, bounds, required);
}

/// The same number with every index and dimension of the launch as it is read first, however often it is read.
const SCEV *Numbers::readOnce(const SCEV *number) {
  if (!areReadingsKnown_) {
    areReadingsKnown_ = true;
    llvm::DenseMap<llvm::Intrinsic::ID, const SCEV *> first;
    for (Instruction &instruction : llvm::instructions(*dominators_.getRoot()->getParent()))
      if (const auto *const call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction); call && factsOf(&instruction)) {
        const SCEV *&reading = first[call->getIntrinsicID()];
        reading = reading ? reading : evolution_.getSCEV(&instruction);
        readings_[&instruction] = reading;
      }
  }
  return llvm::SCEVParameterRewriter::rewrite(number, evolution_, readings_);
}

/// What a phi stands for if it is the same number wherever control comes from; null if it is not.
const SCEV *Numbers::sameOnAllWays(Value *value) {
  const auto *const phi = llvm::dyn_cast<llvm::PHINode>(value);
  if (!phi)
    return nullptr;
  const SCEV *const first = readOnce(evolution_.getSCEV(phi->getIncomingValue(0)));
  const auto changesInLoop = [](const SCEV *part) { return llvm::isa<llvm::SCEVAddRecExpr>(part); };
  const bool isSame = llvm::all_of(phi->incoming_values(), [&](const llvm::Use &incoming) {
    return incoming.get() != phi && readOnce(evolution_.getSCEV(incoming.get())) == first;
  });
  return isSame && !llvm::SCEVExprContains(first, changesInLoop) ? first : nullptr;
}

/// A leaf of its own.
Polynomial Numbers::polynomialOfOther(const SCEV *number, const std::vector<Bound> &bounds, Requirements &required) {
  if (const auto *const unknown = llvm::dyn_cast<llvm::SCEVUnknown>(number)) {
    if (const std::optional<LeafFacts> known = factsOf(unknown->getValue()))
      return Polynomial::leaf(intern(*known));
    if (const SCEV *const same = sameOnAllWays(unknown->getValue()))
      return polynomialOf(same, bounds, required);
  }
  LeafFacts leaf;
  leaf.number = number;
  leaf.value = sharedValueOf(number, bounds, required);
  return Polynomial::leaf(intern(leaf));
}

/// Quotients, minima and maxima of numbers that all threads share.
Extent Numbers::sharedValueOf(const SCEV *number, const std::vector<Bound> &bounds, Requirements &required) {
  Requirements own;
  const auto valueOf = [&](const SCEV *operand, bool isSigned) {
    const Polynomial polynomial = polynomialOf(operand, bounds, own);
    const auto bits = static_cast<unsigned>(evolution_.getTypeSizeInBits(operand->getType()));
    if (!isShared(polynomial) || !requireWithin(polynomial, bits, isSigned, bounds, own))
      return Extent();
    return extentOf(polynomial);
  };
  const auto fold = [&](auto combine, bool isSigned) {
    const auto operands = llvm::cast<llvm::SCEVNAryExpr>(number)->operands();
    Extent result = valueOf(operands.front(), isSigned);
    for (const SCEV *operand : llvm::drop_begin(operands))
      result = combine(result, valueOf(operand, isSigned));
    return result;
  };
  Extent value;
  switch (number->getSCEVType()) {
  case llvm::scUDivExpr: {
    const auto *const division = llvm::cast<llvm::SCEVUDivExpr>(number);
    value = valueOf(division->getLHS(), false) / valueOf(division->getRHS(), false);
    break;
  }
  case llvm::scSMaxExpr:
  case llvm::scUMaxExpr:
    value = fold(maximum, number->getSCEVType() == llvm::scSMaxExpr);
    break;
  case llvm::scSMinExpr:
  case llvm::scUMinExpr:
    value = fold(minimum, number->getSCEVType() == llvm::scSMinExpr);
    break;
  case llvm::scUnknown: {
    // A signed quotient; below zero it rounds the other way.
    using namespace llvm::PatternMatch;
    Value *dividend = nullptr;
    const llvm::APInt *divisor = nullptr;
    if (!match(llvm::cast<llvm::SCEVUnknown>(number)->getValue(), m_SDiv(m_Value(dividend), m_APInt(divisor))) ||
        !divisor->isStrictlyPositive() || !divisor->isSignedIntN(63))
      return {};
    value = valueOf(evolution_.getSCEV(dividend), false) / Extent::constant(divisor->getSExtValue());
    break;
  }
  default:
    return {};
  }
  if (value.isKnown())
    required.insert(required.end(), own.begin(), own.end());
  return value;
}

std::optional<std::pair<Numbers::Kind, unsigned>> Numbers::placeIn(const llvm::CallBase &call) {
  using Place = std::pair<Kind, unsigned>;
  switch (call.getIntrinsicID()) {
  case llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x:
    return Place{Kind::threadIndex, 0};
  case llvm::Intrinsic::nvvm_read_ptx_sreg_tid_y:
    return Place{Kind::threadIndex, 1};
  case llvm::Intrinsic::nvvm_read_ptx_sreg_tid_z:
    return Place{Kind::threadIndex, 2};
  case llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x:
    return Place{Kind::blockIndex, 0};
  case llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_y:
    return Place{Kind::blockIndex, 1};
  case llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_z:
    return Place{Kind::blockIndex, 2};
  case llvm::Intrinsic::nvvm_read_ptx_sreg_ntid_x:
    return Place{Kind::blockDim, 0};
  case llvm::Intrinsic::nvvm_read_ptx_sreg_ntid_y:
    return Place{Kind::blockDim, 1};
  case llvm::Intrinsic::nvvm_read_ptx_sreg_ntid_z:
    return Place{Kind::blockDim, 2};
  case llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_x:
    return Place{Kind::gridDim, 0};
  case llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_y:
    return Place{Kind::gridDim, 1};
  case llvm::Intrinsic::nvvm_read_ptx_sreg_nctaid_z:
    return Place{Kind::gridDim, 2};
  default:
    return std::nullopt;
  }
}

std::optional<Numbers::LeafFacts> Numbers::factsOf(Value *value) {
  LeafFacts facts;
  if (const auto *const call = llvm::dyn_cast<llvm::IntrinsicInst>(value)) {
    const std::optional<std::pair<Kind, unsigned>> place = placeIn(*call);
    if (!place)
      return std::nullopt;
    std::tie(facts.kind, facts.axis) = *place;
    return facts;
  }
  const unsigned bits = value->getType()->isIntegerTy() ? value->getType()->getIntegerBitWidth() : 0;
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64)
    return std::nullopt;
  facts.kind = Kind::parameter;
  facts.bits = bits;
  if (const auto *const parameter = llvm::dyn_cast<llvm::Argument>(value)) {
    facts.value = Extent::parameter(parameter->getArgNo(), 0, bits / 8);
    return facts;
  }
  auto *const load = llvm::dyn_cast<llvm::LoadInst>(value);
  if (!load)
    return std::nullopt;
  const LocalAddress from = findLocalObject(load->getPointerOperand(), load->getModule()->getDataLayout());
  const auto *const parameter = llvm::dyn_cast_or_null<llvm::Argument>(from.object);
  if (!parameter || !from.place || parameter->getParent() != dominators_.getRoot()->getParent() ||
      objects_.of(from.object).isWritten || objects_.of(from.object).escapes)
    return std::nullopt;
  facts.value = Extent::parameter(parameter->getArgNo(), static_cast<uint64_t>(*from.place), bits / 8);
  return facts;
}

Leaf Numbers::intern(const LeafFacts &facts) {
  for (Leaf leaf = 0; leaf < leaves_.size(); ++leaf) {
    const LeafFacts &known = leaves_[leaf];
    if (known.kind == facts.kind && known.axis == facts.axis && known.loop == facts.loop &&
        known.number == facts.number && (isDimension(leaf) || known.value == facts.value))
      return leaf;
  }
  leaves_.push_back(facts);
  LeafFacts &added = leaves_.back();
  if (facts.kind == Kind::gridDim)
    added.value = Extent::gridDim(facts.axis);
  if (facts.kind == Kind::blockDim)
    added.value = Extent::blockDim(facts.axis);
  return static_cast<Leaf>(leaves_.size() - 1);
}

Leaf Numbers::dimension(Kind kind, unsigned axis) {
  LeafFacts facts;
  facts.kind = kind;
  facts.axis = axis;
  return intern(facts);
}

Leaf Numbers::numberOfLaunch(const Extent &value) {
  LeafFacts facts;
  facts.value = value;
  return intern(facts);
}

Leaf Numbers::counterOf(const Loop &loop) {
  LeafFacts facts;
  facts.kind = Kind::loopCounter;
  facts.loop = &loop;
  return intern(facts);
}

bool Numbers::isShared(Leaf leaf) const {
  return facts(leaf).value.isKnown();
}

bool Numbers::isShared(const Polynomial &polynomial) const {
  return polynomial.isKnown() && countThreadTerms(polynomial) == 0;
}

bool Numbers::isDimension(Leaf leaf) const {
  return facts(leaf).kind == Kind::gridDim || facts(leaf).kind == Kind::blockDim;
}

bool Numbers::isNeverNegative(const Polynomial &polynomial) const {
  return polynomial.isKnown() && llvm::all_of(polynomial.terms(), [&](const auto &term) {
           return term.second > 0 && llvm::all_of(term.first, [&](Leaf leaf) {
                    const Kind kind = facts(leaf).kind;
                    return kind != Kind::parameter && kind != Kind::other;
                  });
         });
}

size_t Numbers::countThreadTerms(const Polynomial &polynomial) const {
  return static_cast<size_t>(llvm::count_if(polynomial.terms(), [&](const auto &term) {
    return !llvm::all_of(term.first, [&](Leaf leaf) { return isShared(leaf); });
  }));
}

Extent Numbers::extentOf(const Polynomial &polynomial) const {
  if (!polynomial.isKnown())
    return {};
  Extent sum = Extent::constant(0);
  for (const auto &[monomial, coefficient] : polynomial.terms()) {
    Extent product = Extent::constant(coefficient);
    for (const Leaf leaf : monomial)
      product = product * facts(leaf).value;
    sum = sum + product;
  }
  return sum;
}

/// Whether no launch can bring it out of `bits`: dimensions, and the indices below them, have 31 of them.
bool Numbers::isSmall(const Polynomial &polynomial, unsigned bits) const {
  const bool isWide = bits >= 63;
  return bits >= 32 && isNeverNegative(polynomial) && polynomial.terms().size() <= (isWide ? 4 : 1) &&
         llvm::all_of(polynomial.terms(), [&](const auto &term) {
           const auto &[leaves, coefficient] = term;
           const bool ofLaunch =
               llvm::none_of(leaves, [&](Leaf leaf) { return facts(leaf).kind == Kind::loopCounter; });
           const bool hasBlock = llvm::any_of(leaves, [&](Leaf leaf) {
             return facts(leaf).kind == Kind::blockDim || facts(leaf).kind == Kind::threadIndex;
           });
           return ofLaunch && (isWide ? coefficient <= 1 << 10 : coefficient == 1) &&
                  (leaves.size() <= 1 || (isWide && leaves.size() == 2 && hasBlock));
         });
}

/// Adds what must hold for the polynomial to be the machine integer itself. False if that cannot be said.
bool Numbers::requireWithin(const Polynomial &polynomial, unsigned bits, bool isSigned,
                            const std::vector<Bound> &bounds, Requirements &required) {
  if (!polynomial.isKnown())
    return false;
  const Limits limits = limitsOf(bits, isSigned);
  if (const std::optional<int64_t> value = polynomial.asConstant())
    return *value >= limits.least && *value <= limits.largest;
  if (polynomial.terms().size() == 1 && polynomial.terms().begin()->second == 1 &&
      polynomial.terms().begin()->first.size() == 1) {
    const LeafFacts &leaf = facts(polynomial.terms().begin()->first.front());
    if (leaf.kind == Kind::parameter && isSigned && leaf.bits <= bits)
      return true;
  }
  if (isSmall(polynomial, bits))
    return true;
  const bool isNatural = isNeverNegative(polynomial);
  Requirements own;
  const Range range = rangeOf(polynomial, bounds, own);
  if (!range.largest.isKnown() || (!isNatural && !range.least.isKnown()))
    return false;
  required.insert(required.end(), own.begin(), own.end());
  required.push_back(Extent::constant(limits.largest) - range.largest + Extent::constant(1));
  if (!isNatural)
    required.push_back(range.least - Extent::constant(limits.least) + Extent::constant(1));
  return true;
}

Range Numbers::rangeOf(const Polynomial &polynomial, const std::vector<Bound> &bounds, Requirements &required) {
  if (isShared(polynomial))
    return {extentOf(polynomial), extentOf(polynomial)};
  return {negated(largestOf(Polynomial() - polynomial, bounds, required, 0)),
          largestOf(polynomial, bounds, required, 0)};
}

/// The largest value by the bounds that fit its terms, and by the range of every leaf on its own.
Extent Numbers::largestOf(const Polynomial &polynomial, const std::vector<Bound> &bounds, Requirements &required,
                          int depth) {
  if (!polynomial.isKnown() || depth > deepest)
    return {};
  const size_t terms = countThreadTerms(polynomial);
  if (terms == 0)
    return extentOf(polynomial);

  const Bound *best = nullptr;
  Polynomial bestRest, bestFactor;
  size_t bestTerms = terms;
  for (const Bound &bound : bounds) {
    if (bound.polynomial.isZero() || !bound.polynomial.isKnown())
      continue;
    const auto &[leaves, coefficient] = *bound.polynomial.terms().begin();
    for (const auto &[monomial, own] : polynomial.terms()) {
      const auto factor = Polynomial::product(monomial, own).dividedBy(Polynomial::product(leaves, coefficient));
      if (!factor || !isShared(*factor) || factor->terms().begin()->second < 0)
        continue;
      const Polynomial rest = polynomial - *factor * bound.polynomial;
      if (!rest.isKnown() || countThreadTerms(rest) >= bestTerms)
        continue;
      best = &bound;
      bestRest = rest;
      bestFactor = *factor;
      bestTerms = countThreadTerms(rest);
    }
  }

  Requirements byLeaves;
  Extent natural = largestByLeaves(polynomial, bounds, byLeaves);
  if (!best) {
    required.insert(required.end(), byLeaves.begin(), byLeaves.end());
    return natural;
  }
  Requirements byBound = best->required;
  if (!isNeverNegative(bestFactor))
    byBound.push_back(extentOf(bestFactor) + Extent::constant(1));
  Extent bounded = extentOf(bestFactor) * best->bound + largestOf(bestRest, bounds, byBound, depth + 1);
  if (bounded.isKnown())
    required.insert(required.end(), byBound.begin(), byBound.end());
  if (!bounded.isKnown() || (natural.isKnown() && byLeaves.empty())) {
    required.insert(required.end(), byLeaves.begin(), byLeaves.end());
    return bounded.isKnown() ? minimum(bounded, natural) : natural;
  }
  return bounded;
}

Extent Numbers::largestByLeaves(const Polynomial &polynomial, const std::vector<Bound> &bounds,
                                Requirements &required) {
  Extent sum = Extent::constant(0);
  for (const auto &[monomial, coefficient] : polynomial.terms())
    sum = sum + largestOfProduct(monomial, coefficient, bounds, required);
  return sum;
}

Extent Numbers::largestOfProduct(const Polynomial::Monomial &leaves, int64_t coefficient,
                                 const std::vector<Bound> &bounds, Requirements &required) {
  Polynomial shared(coefficient);
  Range product = {Extent::constant(1), Extent::constant(1)};
  unsigned ofThreads = 0;
  for (const Leaf leaf : leaves) {
    if (isShared(leaf)) {
      shared = shared * Polynomial::leaf(leaf);
      continue;
    }
    const Range range = rangeOfLeaf(leaf, bounds, required);
    const bool mayBeNegative = range.least.asConstant().value_or(-1) < 0;
    if (mayBeNegative && ofThreads > 0)
      return {};
    product = {product.least * range.least, product.largest * range.largest};
    ofThreads += mayBeNegative ? 2 : 1;
  }
  const Extent factor = extentOf(shared);
  if (isNeverNegative(shared))
    return factor * product.largest;
  if (isNeverNegative(Polynomial() - shared))
    return factor * product.least;
  return maximum(factor * product.least, factor * product.largest);
}

Range Numbers::rangeOfLeaf(Leaf leaf, const std::vector<Bound> &bounds, Requirements &required) {
  const LeafFacts leafFacts = facts(leaf);
  const Extent zero = Extent::constant(0), one = Extent::constant(1);
  switch (leafFacts.kind) {
  case Kind::threadIndex:
    return {zero, Extent::blockDim(leafFacts.axis) - one};
  case Kind::blockIndex:
    return {zero, Extent::gridDim(leafFacts.axis) - one};
  case Kind::loopCounter: {
    const SCEV *const repeats = evolution_.getSymbolicMaxBackedgeTakenCount(leafFacts.loop);
    if (llvm::isa<llvm::SCEVCouldNotCompute>(repeats))
      return {zero, {}};
    const std::vector<Bound> outside = boundsBefore(*leafFacts.loop);
    Requirements own;
    const Polynomial polynomial = polynomialOf(repeats, outside, own);
    const auto bits = static_cast<unsigned>(evolution_.getTypeSizeInBits(repeats->getType()));
    if (!requireWithin(polynomial, bits, false, outside, own))
      return {zero, {}};
    const Extent largest = largestOf(polynomial, outside, own, 1);
    if (largest.isKnown())
      required.insert(required.end(), own.begin(), own.end());
    return {zero, largest};
  }
  case Kind::other:
    return rangeOfOther(leafFacts.number, bounds, required);
  default:
    return {leafFacts.value, leafFacts.value};
  }
}

Range Numbers::rangeOfOther(const SCEV *number, const std::vector<Bound> &bounds, Requirements &required) {
  if (evolution_.getTypeSizeInBits(number->getType()) > 64 || !number->getType()->isIntegerTy())
    return {};
  if (const auto *const division = llvm::dyn_cast<llvm::SCEVUDivExpr>(number)) {
    Requirements own;
    const Polynomial dividend = polynomialOf(division->getLHS(), bounds, own);
    const Polynomial divisor = polynomialOf(division->getRHS(), bounds, own);
    const auto bits = static_cast<unsigned>(evolution_.getTypeSizeInBits(number->getType()));
    // One bit less, so that signed and unsigned are the same.
    if (isShared(divisor) && requireWithin(dividend, bits - 1, false, bounds, own) &&
        requireWithin(divisor, bits - 1, false, bounds, own)) {
      const Range range = rangeOf(dividend, bounds, own);
      if (range.largest.isKnown()) {
        required.insert(required.end(), own.begin(), own.end());
        return {Extent::constant(0), range.largest / extentOf(divisor)};
      }
    }
  }
  const llvm::ConstantRange range = evolution_.getSignedRange(number);
  if (range.isFullSet() && range.getBitWidth() > 32)
    return {};
  return {Extent::constant(range.getSignedMin().getSExtValue()), Extent::constant(range.getSignedMax().getSExtValue())};
}

Polynomial Numbers::tripsOf(const Loop &loop, Requirements &required) {
  const SCEV *const repeats = evolution_.getBackedgeTakenCount(&loop);
  if (llvm::isa<llvm::SCEVCouldNotCompute>(repeats))
    return Polynomial::unknown();
  const Polynomial polynomial = polynomialOf(repeats, {}, required);
  const auto bits = static_cast<unsigned>(evolution_.getTypeSizeInBits(repeats->getType()));
  if (!isShared(polynomial) || !requireWithin(polynomial, bits, false, {}, required))
    return Polynomial::unknown();
  return polynomial + Polynomial(1);
}

Polynomial Numbers::offsetOf(Value *address, const llvm::DenseSet<Value *> &roots, const std::vector<Bound> &bounds,
                             Requirements &required) {
  Polynomial offset;
  for (;;) {
    while (auto *const cast = llvm::dyn_cast<llvm::CastInst>(address)) {
      if (roots.contains(address) || !llvm::isa<llvm::AddrSpaceCastInst, llvm::PtrToIntInst, llvm::IntToPtrInst>(cast))
        break;
      address = cast->getOperand(0);
    }
    if (roots.contains(address))
      return offset;
    if (!address->getType()->isPointerTy())
      return Polynomial::unknown();
    const SCEV *const number = evolution_.getSCEV(address);
    const auto *const base = llvm::dyn_cast<llvm::SCEVUnknown>(evolution_.getPointerBase(number));
    if (!base)
      return Polynomial::unknown();
    if (base->getValue() == address) {
      if (!sameOnAllWays(address))
        return Polynomial::unknown();
      address = llvm::cast<llvm::PHINode>(address)->getIncomingValue(0);
      continue;
    }
    offset += polynomialOf(evolution_.removePointerBase(number), bounds, required);
    address = base->getValue();
  }
}

} // namespace pumpgraph::annotate
