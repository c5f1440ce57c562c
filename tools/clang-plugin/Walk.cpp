// SPDX-License-Identifier: Apache-2.0
#include "Walk.h"

#include "InlineAsm.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/DataLayout.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Operator.h"

namespace pumpgraph::annotate {
namespace {

using llvm::CallBase;
using llvm::Instruction;
using llvm::Type;
using llvm::Use;
using llvm::Value;

/// Whether a value of this type has room for an address.
bool mayHoldAddress(Type *type, const llvm::DataLayout &layout) {
  return type->isSized() && !type->getScalarType()->isFloatingPointTy() &&
         layout.getTypeStoreSize(type).getFixedValue() >= 8;
}

/// Bits that are left of an address by a mask for its alignment are none.
bool keepsNoAddress(const Instruction &instruction) {
  constexpr uint64_t largestAlignment = 4096;
  const auto *const constant =
      instruction.getNumOperands() == 2 ? llvm::dyn_cast<llvm::ConstantInt>(instruction.getOperand(1)) : nullptr;
  if (!constant || constant->getValue().getActiveBits() > 64)
    return false;
  const uint64_t value = constant->getZExtValue();
  return (instruction.getOpcode() == Instruction::And && value < largestAlignment) ||
         (instruction.getOpcode() == Instruction::URem && value <= largestAlignment);
}

class Walk {
public:
  Walk(SlotUses &uses, LocalObjects &objects, llvm::DenseSet<Value *> &reached, const llvm::DataLayout &layout)
      : uses_(uses), objects_(objects), reached_(reached), layout_(layout) {}

  void followArgument(llvm::Argument &parameter) {
    uses_.roots.insert(&parameter);
    reach(&parameter, addressItself);
    run();
  }

  void followField(llvm::Argument &parameter, int64_t offset) {
    const LocalObject &object = objects_.of(&parameter);
    for (const LocalObject::Load &load : object.loads)
      if (!object.isWritten && load.place == offset && sizeOf(load.instruction->getType()) == 8)
        uses_.roots.insert(load.instruction);
    reachContents(&parameter, offset, addressItself);
    run();
  }

private:
  /// What a value is to the slot.
  enum Kind : unsigned {
    addressItself, ///< an address made of the slot's
    loadedAddress, ///< something loaded from the memory that the slot leads to, perhaps an address
  };

  void run() {
    while (!work_.empty()) {
      const auto [value, kind] = work_.pop_back_val();
      for (Use &use : value->uses())
        visit(use, kind);
    }
  }

  void reach(Value *value, Kind kind) {
    if (!seen_.insert({value, kind}).second)
      return;
    reached_.insert(value);
    work_.push_back({value, kind});
  }

  /// An address, or something loaded, lies in a local object.
  void reachContents(Value *object, Place place, Kind kind) {
    const std::tuple<Value *, int64_t, unsigned> key(object, place.value_or(INT64_MIN), kind);
    if (!seenContents_.insert(key).second)
      return;
    const LocalObject &uses = objects_.of(object);
    if (uses.escapes)
      return lose(kind, llvm::dyn_cast<Instruction>(object), "is in a local variable whose address escapes");
    for (const LocalObject::Load &load : uses.loads)
      if (LocalObject::overlaps(load, place, layout_))
        reach(load.instruction, kind);
    for (const LocalObject::Copy &copy : uses.copies) {
      const LocalAddress to = findLocalObject(copy.to, layout_);
      if (!to.object)
        lose(kind, copy.instruction, "is copied into memory");
      else
        reachContents(to.object, place && copy.place && to.place ? Place(*place - *copy.place + *to.place) : Place(),
                      kind);
    }
  }

  void visit(Use &use, Kind kind) {
    auto *const user = llvm::dyn_cast<Instruction>(use.getUser());
    if (!user)
      return lose(kind, nullptr, "is part of a constant");
    const bool isPointer = use->getType()->isPtrOrPtrVectorTy();
    if (auto *load = llvm::dyn_cast<llvm::LoadInst>(user)) {
      access(kind, *load, use.get(), reads, sizeOf(load->getType()));
      uses_.atomic |= load->isAtomic();
      return reachLoaded(*load);
    }
    if (auto *store = llvm::dyn_cast<llvm::StoreInst>(user))
      return visitStore(*store, use, kind);
    if (llvm::isa<llvm::AtomicRMWInst, llvm::AtomicCmpXchgInst>(user))
      return visitAtomic(*user, use, kind);
    if (auto *element = llvm::dyn_cast<llvm::GetElementPtrInst>(user)) {
      if (use.getOperandNo() == 0)
        return reach(element, kind);
      return kind == loadedAddress ? void() : lose(kind, element, "is an index");
    }
    if (auto *call = llvm::dyn_cast<CallBase>(user))
      return visitCall(*call, use, kind);
    if (llvm::isa<llvm::ReturnInst>(user))
      return reachCallers(*user->getFunction(), kind);
    if (llvm::isa<llvm::ICmpInst>(user))
      return;
    if (auto *select = llvm::dyn_cast<llvm::SelectInst>(user))
      return use.getOperandNo() == 0 ? void() : reach(select, kind);
    if (llvm::isa<llvm::PHINode, llvm::CastInst, llvm::FreezeInst, llvm::ExtractValueInst, llvm::InsertValueInst,
                  llvm::ExtractElementInst, llvm::InsertElementInst, llvm::ShuffleVectorInst>(user))
      return visitConversion(*user, kind);
    if (!isPointer && llvm::isa<llvm::BinaryOperator>(user))
      return visitArithmetic(*user, use, kind);
    if (kind == loadedAddress && !isPointer)
      return; // a number
    lose(kind, user, "is used in a way that is not understood");
  }

  void visitConversion(Instruction &conversion, Kind kind) {
    if (conversion.getType()->getScalarType()->isFloatingPointTy() && !llvm::isa<llvm::BitCastInst>(conversion) &&
        llvm::isa<llvm::CastInst>(conversion))
      return kind == loadedAddress ? void() : lose(kind, &conversion, "becomes a floating-point number");
    const bool isMember = llvm::isa<llvm::ExtractValueInst>(conversion);
    if ((kind == loadedAddress || isMember) && !mayHoldAddress(conversion.getType(), layout_))
      return;
    reach(&conversion, kind);
  }

  void visitArithmetic(Instruction &operation, Use &use, Kind kind) {
    if (keepsNoAddress(operation))
      return;
    // The distance between two addresses of one buffer.
    Value *const other = operation.getOperand(1 - use.getOperandNo());
    if (operation.getOpcode() == Instruction::Sub && isMadeOfRoot(other) && isMadeOfRoot(use.get()))
      return;
    if (kind == loadedAddress && !mayHoldAddress(operation.getType(), layout_))
      return;
    reach(&operation, kind);
  }

  /// Whether the integer is a pointer into this slot's buffer, by nothing but constant or indexed steps.
  bool isMadeOfRoot(Value *integer) const {
    const auto *const cast = llvm::dyn_cast<llvm::PtrToIntInst>(integer);
    if (!cast)
      return false;
    const Value *pointer = cast->getPointerOperand();
    while (const auto *const element = llvm::dyn_cast<llvm::GEPOperator>(pointer))
      pointer = element->getPointerOperand();
    return uses_.roots.contains(const_cast<Value *>(pointer));
  }

  void visitStore(llvm::StoreInst &store, Use &use, Kind kind) {
    if (use.getOperandNo() == llvm::StoreInst::getPointerOperandIndex()) {
      uses_.atomic |= store.isAtomic();
      return access(kind, store, use.get(), writes, sizeOf(store.getValueOperand()->getType()));
    }
    const LocalAddress to = findLocalObject(store.getPointerOperand(), layout_);
    if (to.object)
      return reachContents(to.object, to.place, kind);
    // What was loaded is stored as data: the address was in memory before.
    if (kind == addressItself)
      lose(kind, &store, "is stored");
  }

  void visitAtomic(Instruction &atomic, Use &use, Kind kind) {
    if (use.getOperandNo() != 0)
      return kind == addressItself ? lose(kind, &atomic, "is stored") : void();
    uses_.atomic = true;
    access(kind, atomic, use.get(), readsAndWrites, sizeOf(atomic.getOperand(1)->getType()));
    reachLoaded(atomic);
  }

  void visitCall(CallBase &call, Use &use, Kind kind) {
    if (call.isInlineAsm())
      return visitAsm(call, use, kind);
    if (call.isCallee(&use)) // code is not data
      return;
    if (!call.isArgOperand(&use))
      return llvm::isa<llvm::AssumeInst>(call) ? void() : lose(kind, &call, "is passed in an operand bundle");
    if (call.getIntrinsicID() != llvm::Intrinsic::not_intrinsic)
      return visitIntrinsic(call, use, kind);
    llvm::Function *const body = bodyOf(call);
    const unsigned argument = call.getArgOperandNo(&use);
    if (body && argument < body->arg_size())
      return reach(body->getArg(argument), kind);
    if (kind == loadedAddress && !use->getType()->isPointerTy())
      return;
    if (call.getCalledFunction())
      lose(kind, &call, "is passed to " + nameOf(call) + "(), whose body is not here");
    else
      lose(kind, &call, "is passed to a function that is called through a pointer");
  }

  void visitIntrinsic(CallBase &call, Use &use, Kind kind) {
    if (auto *transfer = llvm::dyn_cast<llvm::MemTransferInst>(&call)) {
      if (use.getOperandNo() == 2)
        return kind == addressItself ? lose(kind, &call, "is a length") : void();
      const bool isSource = use.getOperandNo() == 1;
      access(kind, call, use.get(), isSource ? reads : writes, transfer->getLength());
      const LocalAddress to = isSource ? findLocalObject(transfer->getRawDest(), layout_) : LocalAddress();
      if (to.object)
        reachContents(to.object, std::nullopt, loadedAddress);
      return;
    }
    if (auto *set = llvm::dyn_cast<llvm::MemSetInst>(&call)) {
      if (use.getOperandNo() == 0)
        return access(kind, call, use.get(), writes, set->getLength());
      return kind == addressItself ? lose(kind, &call, "is a value to store") : void();
    }
    if (llvm::isa<llvm::LifetimeIntrinsic, llvm::AssumeInst, llvm::DbgInfoIntrinsic>(call))
      return;
    switch (call.getIntrinsicID()) {
    case llvm::Intrinsic::prefetch:
    case llvm::Intrinsic::nvvm_isspacep_const:
    case llvm::Intrinsic::nvvm_isspacep_global:
    case llvm::Intrinsic::nvvm_isspacep_local:
    case llvm::Intrinsic::nvvm_isspacep_shared:
    case llvm::Intrinsic::nvvm_isspacep_shared_cluster:
    case llvm::Intrinsic::fake_use:
      return;
    case llvm::Intrinsic::launder_invariant_group:
    case llvm::Intrinsic::strip_invariant_group:
    case llvm::Intrinsic::ptrmask:
    case llvm::Intrinsic::ssa_copy:
      return reach(&call, kind);
    default:
      break;
    }
    const unsigned argument = call.getArgOperandNo(&use);
    if (!use->getType()->isPointerTy()) {
      // Minimum, maximum, shifts: what comes out may still be an address.
      if (kind == loadedAddress ? mayHoldAddress(call.getType(), layout_) : true)
        reach(&call, kind);
      if (kind == addressItself && call.mayWriteToMemory())
        lose(kind, &call, "is an integer passed to " + nameOf(call));
      return;
    }
    if (!call.doesNotCapture(argument) || call.getType()->isPtrOrPtrVectorTy())
      return lose(kind, &call, "is passed to " + nameOf(call));
    const uint8_t mode = call.doesNotAccessMemory(argument) || call.doesNotAccessMemory() ? touchesNothing
                         : call.onlyReadsMemory(argument)                                 ? reads
                         : call.onlyWritesMemory(argument)                                ? writes
                                                                                          : readsAndWrites;
    if (mode != touchesNothing)
      access(kind, call, use.get(), mode, uint64_t{0});
    uses_.atomic |= call.getCalledFunction()->getName().contains("atom");
    reachLoaded(call);
  }

  void visitAsm(CallBase &call, Use &use, Kind kind) {
    if (!call.isArgOperand(&use))
      return lose(kind, &call, "is used by inline assembly that is not understood");
    const AsmEffects effects = effectsOfAsm(call, call.getArgOperandNo(&use));
    if (effects.unresolved) {
      if (kind == loadedAddress && !use->getType()->isPointerTy())
        return; // A number for an instruction that is not known; addresses are marked by the kernel's own flag.
      uses_.unresolved = true;
      uses_.may = readsAndWrites;
      return note(&call, "is used by inline assembly that is not understood");
    }
    if (effects.escapes && kind == addressItself)
      lose(kind, &call, "is stored by inline assembly");
    uses_.atomic |= effects.atomic;
    if (effects.mode != touchesNothing) {
      access(kind, call, use.get(), effects.mode, effects.sizeBytes, effects.exactAddress);
      reachLoaded(call);
    }
    if (effects.reachesResults)
      reach(&call, kind);
  }

  /// `value` is read from memory that the slot leads to.
  void reachLoaded(Value &value) {
    if (mayHoldAddress(value.getType(), layout_))
      reach(&value, loadedAddress);
  }

  void reachCallers(llvm::Function &function, Kind kind) {
    for (Use &use : function.uses()) {
      auto *const call = llvm::dyn_cast<CallBase>(use.getUser());
      if (call && call->isCallee(&use))
        reach(call, kind);
      else
        lose(kind, llvm::dyn_cast<Instruction>(use.getUser()), "is returned to callers that are not known");
    }
  }

  static llvm::StringRef nameOf(const CallBase &call) { return call.getCalledFunction()->getName(); }

  uint64_t sizeOf(Type *type) const { return layout_.getTypeStoreSize(type).getFixedValue(); }

  void access(Kind kind, Instruction &instruction, Value *address, uint8_t mode, uint64_t sizeBytes,
              bool isExact = true) {
    Access access{&instruction, address, mode};
    access.sizeBytes = sizeBytes;
    access.isExact = isExact;
    record(kind, access);
  }

  void access(Kind kind, Instruction &instruction, Value *address, uint8_t mode, Value *length) {
    Access access{&instruction, address, mode};
    const auto *const constant = llvm::dyn_cast<llvm::ConstantInt>(length);
    if (constant && constant->isZero())
      return;
    access.length = constant ? nullptr : length;
    access.sizeBytes = constant ? constant->getZExtValue() : 0;
    record(kind, access);
  }

  /// What an address loaded from the slot's memory leads to may be that memory again, so it counts.
  void record(Kind kind, const Access &access) {
    if ((uses_.may | access.mode) != uses_.may)
      note(access.instruction, access.mode == reads    ? "is read"
                               : access.mode == writes ? "is written"
                                                       : "is read and written");
    uses_.may |= access.mode;
    if (kind == loadedAddress && !uses_.holdsPointers) {
      uses_.holdsPointers = true;
      note(access.instruction, "holds addresses that memory is accessed through");
    }
    uses_.accesses.push_back(access);
  }

  /// The address goes where it cannot be followed.
  void lose(Kind kind, Instruction *where, const llvm::Twine &how) {
    uses_.may = readsAndWrites;
    uses_.holdsPointers |= kind == loadedAddress;
    uses_.escapes |= kind == addressItself;
    note(where, (kind == addressItself ? how : "holds an address that " + how).str());
  }

  void note(Instruction *where, const std::string &text) {
    const bool isNew = llvm::none_of(uses_.findings, [&](const Finding &known) { return known.text == text; });
    if (where && isNew)
      uses_.findings.push_back({where, text});
  }

  SlotUses &uses_;
  LocalObjects &objects_;
  llvm::DenseSet<Value *> &reached_;
  const llvm::DataLayout &layout_;
  llvm::SmallVector<std::pair<Value *, Kind>, 32> work_;
  llvm::DenseSet<std::pair<Value *, unsigned>> seen_;
  llvm::DenseSet<std::tuple<Value *, int64_t, unsigned>> seenContents_;
};

} // namespace

SlotUses followSlot(llvm::Argument &parameter, uint64_t offset, LocalObjects &objects,
                    llvm::DenseSet<Value *> &reached) {
  SlotUses uses;
  uses.slot = {parameter.getArgNo(), offset};
  Walk walk(uses, objects, reached, parameter.getParent()->getParent()->getDataLayout());
  if (parameter.hasByValAttr())
    walk.followField(parameter, static_cast<int64_t>(offset));
  else
    walk.followArgument(parameter);
  return uses;
}

} // namespace pumpgraph::annotate
