// SPDX-License-Identifier: Apache-2.0
//
// The proof is for kernels whose threads have nothing to do with each other. What such a thread does is a function of
// the indices that the kernel reads, of its parameters, and of memory that the kernel does not write. So threads that
// agree in these indices write the same values, and all others must write elsewhere: the offsets are numbers whose
// digits are the indices.
#include "Purity.h"

#include "InlineAsm.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/Module.h"

#include <algorithm>
#include <optional>
#include <set>

namespace pumpgraph::annotate {
namespace {

using llvm::CallBase;
using llvm::Constant;
using llvm::Function;
using llvm::GlobalVariable;
using llvm::Instruction;
using llvm::StringRef;
using llvm::Value;

constexpr StringRef annotation = "pumpgraph.pure";
constexpr StringRef specialRegister = "llvm.nvvm.read.ptx.sreg.";
constexpr unsigned sharedSpace = 3;

/// The variables that a constant names.
void findVariables(const Value *operand, std::set<const GlobalVariable *> &variables) {
  const auto *const constant = llvm::dyn_cast<Constant>(operand);
  if (!constant || llvm::isa<Function>(constant))
    return;
  if (const auto *const variable = llvm::dyn_cast<GlobalVariable>(constant)) {
    variables.insert(variable);
    return;
  }
  for (const llvm::Use &part : constant->operands())
    findVariables(part.get(), variables);
}

std::set<const GlobalVariable *> variablesOf(const Instruction &instruction) {
  std::set<const GlobalVariable *> variables;
  for (const llvm::Use &operand : instruction.operands())
    findVariables(operand.get(), variables);
  return variables;
}

bool holdsPointers(const llvm::Type *type) {
  return type->isPtrOrPtrVectorTy() || llvm::any_of(type->subtypes(), holdsPointers);
}

/// The program has one value of it, which neither host nor device changes.
bool isFixed(const GlobalVariable &variable) {
  return variable.isConstant() && !variable.isExternallyInitialized() && variable.hasInitializer() &&
         !holdsPointers(variable.getValueType());
}

std::string impurityOfVariable(const GlobalVariable &variable) {
  if (variable.getAddressSpace() == sharedSpace || isFixed(variable))
    return "";
  return "uses the variable '" + variable.getName().str() + "', which lasts from one launch to the next";
}

std::string impurityOfIntrinsic(const CallBase &call) {
  StringRef name = call.getCalledFunction()->getName();
  if (const auto *const memory = llvm::dyn_cast<llvm::MemIntrinsic>(&call); memory && memory->isVolatile())
    return "has a volatile access";
  if (name.consume_front(specialRegister)) {
    constexpr StringRef changing[] = {"clock",   "globaltimer", "smid",   "nsmid", "warpid",
                                      "nwarpid", "gridid",      "envreg", "pm",    "current"};
    const bool changes = llvm::any_of(changing, [&](StringRef prefix) { return name.starts_with(prefix); });
    return changes ? ("reads %" + name + ", which the launch does not decide").str() : "";
  }
  switch (call.getIntrinsicID()) {
  case llvm::Intrinsic::readcyclecounter:
  case llvm::Intrinsic::readsteadycounter:
    return "reads a clock";
  case llvm::Intrinsic::trap:
  case llvm::Intrinsic::debugtrap:
  case llvm::Intrinsic::ubsantrap:
    return "may stop the program";
  default:
    break;
  }
  if (!name.consume_front("llvm.nvvm."))
    return "";
  if (name.contains("atom") || name.contains(".reduce.") || name.contains("multimem"))
    return "has an atomic operation";
  for (const StringRef part : {"activemask", "nanosleep", "pm.event", "discard", "clusterlaunchcontrol"})
    if (name.contains(part))
      return ("uses " + part + ", whose effect the launch does not decide").str();
  return "";
}

std::string impurityOfCall(const CallBase &call) {
  if (call.isInlineAsm())
    return summarizeAsm(call).impurity;
  const Function *const called = call.getCalledFunction();
  if (called && called->isIntrinsic())
    return impurityOfIntrinsic(call);
  if (bodyOf(call))
    return "";
  if (!called)
    return "calls a function through a pointer";
  const StringRef name = called->getName();
  if (name == "vprintf")
    return "prints";
  if (name == "__assertfail")
    return "may stop the program";
  if (name == "malloc" || name == "free")
    return "allocates or frees memory";
  return "calls " + name.str() + "(), whose body is not here";
}

std::string impurityOf(const Instruction &instruction) {
  if (instruction.isVolatile())
    return "has a volatile access";
  if (llvm::isa<llvm::AtomicRMWInst, llvm::AtomicCmpXchgInst>(instruction) ||
      (instruction.isAtomic() && !llvm::isa<llvm::FenceInst>(instruction)))
    return "has an atomic operation";
  if (const auto *const call = llvm::dyn_cast<CallBase>(&instruction))
    if (std::string impurity = impurityOfCall(*call); !impurity.empty())
      return impurity;
  for (const GlobalVariable *const variable : variablesOf(instruction))
    if (std::string impurity = impurityOfVariable(*variable); !impurity.empty())
      return impurity;
  return "";
}

/// Where in the source, if the compiler keeps that.
std::string placeOf(const Instruction &instruction) {
  const llvm::DebugLoc &place = instruction.getDebugLoc();
  return place ? (" (" + place->getFilename() + ":" + llvm::Twine(place.getLine()) + ")").str() : "";
}

std::string impurityOf(const SlotAccesses &slot) {
  const std::string parameter = "parameter " + std::to_string(slot.slot.parameter);
  if (slot.unresolved)
    return "has inline assembly that is not understood and that may use " + parameter;
  if (slot.escapes)
    return "passes the address in " + parameter + " where it cannot be followed";
  if (slot.holdsPointers)
    return "follows addresses in the memory that " + parameter + " leads to";
  return slot.atomic ? "has an atomic operation" : "";
}

/// An index of thread or block that a kernel reads.
using Index = std::pair<Numbers::Kind, unsigned>;

std::optional<Index> indexOf(const CallBase &call) {
  const std::optional<Index> place = Numbers::placeIn(call);
  const bool isIndex =
      place && (place->first == Numbers::Kind::threadIndex || place->first == Numbers::Kind::blockIndex);
  return isIndex ? place : std::nullopt;
}

/// Whether a number made of an address says no more than how it is aligned, which is so at every address that memory of
/// the step may have.
bool isAlignment(const llvm::PtrToIntInst &number) {
  constexpr uint64_t alignment = 512;
  return llvm::all_of(number.users(), [](const llvm::User *user) {
    const auto *const operation = llvm::dyn_cast<llvm::BinaryOperator>(user);
    const auto *const mask = operation && operation->getOpcode() == Instruction::And
                                 ? llvm::dyn_cast<llvm::ConstantInt>(operation->getOperand(1))
                                 : nullptr;
    return mask && mask->getValue().ult(alignment);
  });
}

/// Whether what a thread does is decided by its indices, the parameters, and memory that it reads by their addresses.
class ThreadsAlone {
public:
  ThreadsAlone(const KernelCode &code, const std::vector<SlotAccesses> &slots) : slots_(slots) {
    for (Function *const function : code.functions)
      for (const Instruction &instruction : llvm::instructions(*function))
        hold_ = hold_ && visit(instruction);
  }

  bool hold() const { return hold_; }
  const std::set<Index> &indices() const { return indices_; }

private:
  bool visit(const Instruction &instruction) {
    // Shared memory is what threads have in common.
    for (const GlobalVariable *const variable : variablesOf(instruction))
      if (!isFixed(*variable))
        return false;
    if (const auto *const call = llvm::dyn_cast<CallBase>(&instruction))
      return visitCall(*call);
    if (const auto *const number = llvm::dyn_cast<llvm::PtrToIntInst>(&instruction))
      return isAlignment(*number);
    if (llvm::isa<llvm::ICmpInst>(instruction) && instruction.getOperand(0)->getType()->isPtrOrPtrVectorTy())
      return llvm::isa<llvm::ConstantPointerNull>(instruction.getOperand(1));
    if (llvm::isa<llvm::IntToPtrInst, llvm::PtrToAddrInst>(instruction))
      return false;
    if (const auto *const load = llvm::dyn_cast<llvm::LoadInst>(&instruction))
      return load->getType()->isPtrOrPtrVectorTy() || !mayTakeAddress(*load);
    return llvm::isa<llvm::StoreInst>(instruction) || !instruction.mayReadOrWriteMemory();
  }

  /// Whether it may load an address from a struct parameter as a number.
  bool mayTakeAddress(const llvm::LoadInst &load) const {
    const llvm::DataLayout &layout = load.getModule()->getDataLayout();
    const LocalAddress from = findLocalObject(const_cast<Value *>(load.getPointerOperand()), layout);
    const auto *const parameter = llvm::dyn_cast_or_null<llvm::Argument>(from.object);
    const auto bytes = static_cast<int64_t>(layout.getTypeStoreSize(load.getType()).getFixedValue());
    return parameter && llvm::any_of(slots_, [&](const SlotAccesses &slot) {
             const auto begin = static_cast<int64_t>(slot.slot.offset);
             return slot.may != touchesNothing && slot.slot.parameter == parameter->getArgNo() &&
                    (!from.place || (*from.place < begin + addressBytes && begin < *from.place + bytes));
           });
  }

  bool visitCall(const CallBase &call) {
    if (call.isInlineAsm()) {
      const AsmSummary summary = summarizeAsm(call);
      const auto isPointer = [](const llvm::Use &use) { return use->getType()->isPtrOrPtrVectorTy(); };
      return summary.isRead || (summary.isArithmetic && llvm::none_of(call.args(), isPointer));
    }
    const auto *const intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(&call);
    if (!intrinsic)
      return bodyOf(call) != nullptr;
    if (intrinsic->isAssumeLikeIntrinsic() || llvm::isa<llvm::MemIntrinsic>(call))
      return true;
    if (const std::optional<Index> index = indexOf(call)) {
      indices_.insert(*index);
      return true;
    }
    StringRef name = call.getCalledFunction()->getName();
    if (name.consume_front(specialRegister))
      return name.starts_with("ntid.") || name.starts_with("nctaid.") || name == "warpsize";
    if (call.isConvergent() || name.contains("mma")) // threads of a warp work together
      return false;
    return call.doesNotAccessMemory() || (call.onlyReadsMemory() && call.onlyAccessesArgMemory());
  }

  static constexpr int64_t addressBytes = 8;

  const std::vector<SlotAccesses> &slots_;
  bool hold_ = true;
  std::set<Index> indices_;
};

/// The offsets of one slot, as a number.
class Offsets {
public:
  Offsets(const std::vector<AccessGroup> &groups, Numbers &numbers)
      : offset_(groups.front().offset), numbers_(numbers) {
    int64_t begin = groups.front().pieces.front().first, end = begin;
    for (const AccessGroup &group : groups) {
      isOne_ = isOne_ && group.offset == offset_ && group.length.isZero();
      for (const auto &[pieceBegin, pieceEnd] : group.pieces) {
        begin = std::min(begin, pieceBegin);
        end = std::max(end, pieceEnd);
      }
    }
    bytes_ = end - begin;
  }

  /// Whether threads that differ in one of these indices have no byte in common.
  bool tellApart(const std::set<Index> &indices) {
    if (indices.empty())
      return true;
    if (!isOne_ || !findDigits(indices))
      return false;
    // The digits below a stride make less than the stride.
    Polynomial period(bytes_);
    while (!digits_.empty()) {
      const auto next = llvm::find_if(digits_, [&](const Digit &digit) { return isAtLeast(digit.stride, period); });
      if (next == digits_.end())
        return false;
      period = next->stride * next->count;
      digits_.erase(next);
    }
    // Whatever the counters are, they add multiples of what all digits can make.
    return llvm::all_of(counterStrides_,
                        [&](const Polynomial &stride) { return stride.dividedBy(period).has_value(); });
  }

private:
  struct Digit {
    Polynomial stride, count;
  };

  static bool isAtLeast(const Polynomial &stride, const Polynomial &period) {
    const std::optional<int64_t> a = stride.asConstant(), b = period.asConstant();
    return stride == period || (a && b && *a >= *b);
  }

  bool findDigits(std::set<Index> missing) {
    std::set<Leaf> leaves;
    for (const auto &[monomial, coefficient] : offset_.terms())
      for (const Leaf leaf : monomial)
        if (!numbers_.isShared(leaf))
          leaves.insert(leaf);
    for (const Leaf leaf : leaves) {
      const Numbers::LeafFacts facts = numbers_.facts(leaf);
      const Polynomial stride = offset_.coefficientOf(leaf);
      if (!stride.isKnown() || !numbers_.isShared(stride))
        return false;
      switch (facts.kind) {
      case Numbers::Kind::threadIndex:
      case Numbers::Kind::blockIndex: {
        const bool isThread = facts.kind == Numbers::Kind::threadIndex;
        const Numbers::Kind dimension = isThread ? Numbers::Kind::blockDim : Numbers::Kind::gridDim;
        digits_.push_back({stride, Polynomial::leaf(numbers_.dimension(dimension, facts.axis))});
        missing.erase({facts.kind, facts.axis});
        break;
      }
      case Numbers::Kind::loopCounter:
        if (!addBoundedCounter(*facts.loop, stride))
          counterStrides_.push_back(stride);
        break;
      default:
        return false;
      }
    }
    return missing.empty();
  }

  /// A loop that runs a constant number of times.
  bool addBoundedCounter(const llvm::Loop &loop, const Polynomial &stride) {
    Requirements required;
    const Polynomial trips = numbers_.tripsOf(loop, required);
    const std::optional<int64_t> count = trips.isKnown() ? trips.asConstant() : std::nullopt;
    const bool isCertain = llvm::all_of(required, [](const Extent &each) { return each.isAtLeast(1); });
    if (!count || *count < 1 || !isCertain || !stride.asConstant() || *stride.asConstant() < 1)
      return false;
    digits_.push_back({stride, trips});
    return true;
  }

  Polynomial offset_;
  Numbers &numbers_;
  bool isOne_ = true; ///< all accesses are within constant distances of one polynomial
  int64_t bytes_ = 0; ///< from the first byte to the last that a thread writes at one value of it
  std::vector<Digit> digits_;
  std::vector<Polynomial> counterStrides_;
};

} // namespace

bool isSaidToBePure(const Function &kernel) {
  const GlobalVariable *const annotations = kernel.getParent()->getNamedGlobal("llvm.global.annotations");
  const auto *const entries = annotations && annotations->hasInitializer()
                                  ? llvm::dyn_cast<llvm::ConstantArray>(annotations->getInitializer())
                                  : nullptr;
  if (!entries)
    return false;
  return llvm::any_of(entries->operands(), [&](const llvm::Use &entry) {
    const auto *const fields = llvm::dyn_cast<llvm::ConstantStruct>(entry.get());
    if (!fields || fields->getNumOperands() < 2 || fields->getOperand(0)->stripPointerCasts() != &kernel)
      return false;
    const auto *const text = llvm::dyn_cast<GlobalVariable>(fields->getOperand(1)->stripPointerCasts());
    const auto *const characters =
        text && text->hasInitializer() ? llvm::dyn_cast<llvm::ConstantDataSequential>(text->getInitializer()) : nullptr;
    return characters && characters->isCString() && characters->getAsCString() == annotation;
  });
}

std::string findImpurity(const KernelCode &code, const KernelAccesses &accesses) {
  for (Function *const function : code.functions)
    for (const Instruction &instruction : llvm::instructions(*function))
      if (const std::string impurity = impurityOf(instruction); !impurity.empty())
        return impurity + placeOf(instruction);
  for (const SlotAccesses &slot : accesses.slots)
    if (std::string impurity = impurityOf(slot); !impurity.empty())
      return impurity;
  return accesses.otherMemory ? "touches memory that no parameter leads to" : "";
}

bool isPureApart(const KernelCode &code, const KernelAccesses &accesses, const std::vector<WrittenSlot> &written,
                 Numbers &numbers) {
  const auto isBoth = [](const SlotAccesses &slot) { return slot.may == readsAndWrites; };
  if (llvm::any_of(accesses.slots, isBoth))
    return false;
  const ThreadsAlone threads(code, accesses.slots);
  return threads.hold() && llvm::all_of(written, [&](const WrittenSlot &each) {
           return each.groups && !each.groups->empty() && each.slot.begin.isKnown() && each.slot.end.isKnown() &&
                  Offsets(*each.groups, numbers).tellApart(threads.indices());
         });
}

} // namespace pumpgraph::annotate
