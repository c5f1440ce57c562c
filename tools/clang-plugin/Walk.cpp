// SPDX-License-Identifier: Apache-2.0
#include "Walk.h"

#include "InlineAsm.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/DataLayout.h"
#include "llvm/IR/InstIterator.h"
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

/// Whether a value of this type has room for a whole address.
bool mayHoldAddress(Type *type, const llvm::DataLayout &layout) {
  return type->isSized() && !type->getScalarType()->isFloatingPointTy() &&
         layout.getTypeStoreSize(type).getFixedValue() >= 8;
}

/// Whether it has room for a piece of one.
bool mayHoldPiece(Type *type) {
  return type->isSized() && !type->getScalarType()->isIntegerTy(1);
}

bool isKernel(const llvm::Function &function) {
  return function.getCallingConv() == llvm::CallingConv::PTX_Kernel;
}

/// Whether it is what a kernel's parameter holds, or so far from it.
bool isOfParameter(const Value *value, const llvm::DataLayout &layout) {
  while (const auto *const element = llvm::dyn_cast<llvm::GEPOperator>(value))
    value = element->getPointerOperand();
  if (const auto *const load = llvm::dyn_cast<llvm::LoadInst>(value)) {
    const LocalAddress from = findLocalObject(const_cast<Value *>(load->getPointerOperand()), layout);
    if (!from.place || *from.place % 8 != 0 || layout.getTypeStoreSize(load->getType()) != 8)
      return false;
    value = from.object;
  }
  const auto *const argument = llvm::dyn_cast<llvm::Argument>(value);
  return argument && isKernel(*argument->getParent());
}

/// Whether the lowest bits of the integer are those of a parameter: nothing has moved others there.
bool endsLikeParameter(const Value *integer, const llvm::DataLayout &layout) {
  for (;;) {
    if (isOfParameter(integer, layout))
      return true;
    const auto *const instruction = llvm::dyn_cast<Instruction>(integer);
    const bool keepsLowBits =
        instruction &&
        (llvm::isa<llvm::PtrToIntInst, llvm::TruncInst, llvm::ZExtInst, llvm::SExtInst, llvm::FreezeInst>(
             instruction) ||
         (llvm::is_contained({Instruction::Add, Instruction::Sub}, instruction->getOpcode()) &&
          llvm::isa<llvm::ConstantInt>(instruction->getOperand(1))));
    if (!keepsLowBits)
      return false;
    integer = instruction->getOperand(0);
  }
}

/// Bits that are left of an address by a mask for its alignment are none.
bool keepsNoAddress(const Instruction &instruction, const llvm::DataLayout &layout) {
  constexpr uint64_t largestAlignment = 4096;
  const auto *const mask = instruction.getOpcode() == Instruction::And
                               ? llvm::dyn_cast<llvm::ConstantInt>(instruction.getOperand(1))
                               : nullptr;
  return mask && mask->getValue().ult(largestAlignment) && endsLikeParameter(instruction.getOperand(0), layout);
}

/// Shared, local and distributed shared memory: nothing that a kernel gets the address of.
bool isOnChip(const Value *pointer) {
  return pointer->getType()->isPtrOrPtrVectorTy() &&
         llvm::is_contained({3U, 5U, 7U}, pointer->getType()->getPointerAddressSpace());
}

/// What a pointer may be an address of, or come from. Arguments of functions whose calls are all here are what the
/// calls pass.
std::vector<const Value *> originsOf(const Value *pointer, const llvm::SetVector<llvm::Function *> &functions) {
  llvm::SetVector<const Value *> found;
  llvm::SmallVector<const Value *, 8> work{pointer};
  llvm::SmallPtrSet<const Value *, 8> seen;
  while (!work.empty()) {
    llvm::SmallVector<const Value *, 4> objects;
    llvm::getUnderlyingObjects(work.pop_back_val(), objects, nullptr, /*MaxLookup=*/0);
    for (const Value *const object : objects) {
      const auto *const argument = llvm::dyn_cast<llvm::Argument>(object);
      if (!seen.insert(object).second)
        continue;
      const bool isPassedHere = argument && !argument->hasByValAttr() && !isKernel(*argument->getParent()) &&
                                llvm::all_of(argument->getParent()->uses(), [](const Use &use) {
                                  const auto *const call = llvm::dyn_cast<CallBase>(use.getUser());
                                  return call && call->isCallee(&use);
                                });
      if (!isPassedHere) {
        found.insert(object);
        continue;
      }
      for (const Use &use : argument->getParent()->uses())
        if (const auto *const call = llvm::cast<CallBase>(use.getUser()); functions.contains(call->getFunction()))
          work.push_back(call->getArgOperand(argument->getArgNo()));
    }
  }
  return {found.begin(), found.end()};
}

/// A struct parameter of a kernel that is as it was launched with.
bool isUnchangedParameter(const Value *object, LocalObjects &objects) {
  const auto *const argument = llvm::dyn_cast<llvm::Argument>(object);
  if (!argument || !argument->hasByValAttr() || !isKernel(*argument->getParent()))
    return false;
  const LocalObject &uses = objects.of(const_cast<Value *>(object));
  return !uses.isWritten && !uses.escapes;
}

/// Whether it leads to nothing but what a kernel's parameters and constants lead to: of an address that is put there
/// the slot shows that it is loaded again.
bool leadsToSlotsAlone(const Value *pointer, const llvm::SetVector<llvm::Function *> &functions,
                       LocalObjects &objects) {
  return llvm::all_of(originsOf(pointer, functions), [&](const Value *origin) {
    if (const auto *const argument = llvm::dyn_cast<llvm::Argument>(origin))
      return isKernel(*argument->getParent()) && !argument->hasByValAttr();
    if (const auto *const variable = llvm::dyn_cast<llvm::GlobalVariable>(origin))
      return variable->isConstant() || variable->getAddressSpace() == 4;
    const auto *const load = llvm::dyn_cast<llvm::LoadInst>(origin);
    return load && llvm::all_of(originsOf(load->getPointerOperand(), functions),
                                [&](const Value *from) { return isUnchangedParameter(from, objects); });
  });
}

bool hasPointer(const CallBase &call) {
  return llvm::any_of(call.args(), [](const Use &argument) { return argument->getType()->isPtrOrPtrVectorTy(); });
}

class Walk {
public:
  Walk(SlotUses &uses, const KernelCode &code, LocalObjects &objects, llvm::DenseSet<Value *> &reached)
      : uses_(uses), code_(code), objects_(objects), reached_(reached),
        layout_(code.functions.front()->getParent()->getDataLayout()) {}

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
    reachContents(&parameter, offset, nullptr, addressItself);
    run();
  }

private:
  static constexpr int64_t addressBytes = 8;

  /// What a value is to the slot.
  enum Kind : unsigned {
    addressItself, ///< an address made of the slot's
    loadedAddress, ///< something loaded from the memory that the slot leads to, perhaps an address
  };

  /// Which member of a struct; nothing: any.
  using Member = std::optional<unsigned>;

  void run() {
    while (!work_.empty()) {
      const auto [value, kind, member] = work_.pop_back_val();
      for (Use &use : value->uses())
        visit(use, kind, member);
    }
  }

  void reach(Value *value, Kind kind, Member member = {}) {
    if (!seen_.insert({value, kind, member ? static_cast<int>(*member) : -1}).second)
      return;
    reached_.insert(value);
    work_.push_back({value, kind, member});
  }

  /// An address, or something loaded, lies in a local object: a value of `type`, or eight bytes.
  void reachContents(Value *object, Place place, Type *type, Kind kind) {
    const int64_t bytes = type ? static_cast<int64_t>(sizeOf(type)) : addressBytes;
    const std::optional<int64_t> size = localObjectBytes(object, layout_);
    if (place && size && (*place + bytes <= 0 || *place >= *size))
      return; // beside what was copied from one object into another
    if (!seenContents_.insert({object, place.value_or(INT64_MIN), type, kind}).second)
      return;
    const LocalObject &uses = objects_.of(object);
    if (uses.escapes) {
      if (kind == addressItself || !type || mayHoldAddress(type, layout_))
        return lose(kind, llvm::dyn_cast<Instruction>(object), "is in a local variable whose address escapes");
      return reachOtherMemory();
    }
    for (const LocalObject::Load &load : uses.loads)
      if (LocalObject::overlaps(load, place, bytes, layout_))
        reach(load.instruction, kind);
    for (const LocalObject::Copy &copy : uses.copies)
      copyContents(copy, place, type, kind);
  }

  void copyContents(const LocalObject::Copy &copy, Place place, Type *type, Kind kind) {
    const LocalAddress to = findLocalObject(copy.to, layout_);
    if (to.object)
      reachContents(to.object, place && copy.place && to.place ? Place(*place - *copy.place + *to.place) : Place(),
                    type, kind);
    else if (kind == addressItself || !type || mayHoldAddress(type, layout_))
      lose(kind, copy.instruction, "is copied into memory");
    else
      reachMemory(copy.to);
  }

  /// Something loaded lies in memory that `pointer` leads to. Of what slots lead to it is seen when it is loaded again.
  void reachMemory(Value *pointer) {
    if (!leadsToSlotsAlone(pointer, code_.functions, objects_))
      reachOtherMemory();
  }

  /// Something loaded lies in memory, it is not known where. All that may come from there is followed.
  void reachOtherMemory() {
    if (hasReachedOthers_)
      return;
    hasReachedOthers_ = true;
    for (Instruction *const read : code_.otherReads) {
      auto *const call = llvm::dyn_cast<CallBase>(read);
      if (const auto *const transfer = llvm::dyn_cast<llvm::MemTransferInst>(read)) {
        if (const LocalAddress to = findLocalObject(transfer->getRawDest(), layout_); to.object)
          reachContents(to.object, std::nullopt, byteType(), loadedAddress);
      } else if (call && call->isInlineAsm()) {
        apply(*call, nullptr, effectsOfAsmOnMemory(*call));
      } else if (mayHoldPiece(read->getType())) {
        reach(read, loadedAddress);
      }
    }
    for (Value *const object : code_.sharedObjects) {
      const LocalObject &uses = objects_.of(object);
      for (const LocalObject::Load &load : uses.loads)
        reach(load.instruction, loadedAddress);
      for (const LocalObject::Copy &copy : uses.copies)
        copyContents(copy, std::nullopt, byteType(), loadedAddress);
    }
  }

  /// That of something smaller than an address.
  Type *byteType() const { return Type::getInt8Ty(code_.functions.front()->getContext()); }

  void visit(Use &use, Kind kind, Member member) {
    auto *const user = llvm::dyn_cast<Instruction>(use.getUser());
    if (!user)
      return lose(kind, nullptr, "is part of a constant");
    const bool isPointer = use->getType()->isPtrOrPtrVectorTy();
    if (auto *load = llvm::dyn_cast<llvm::LoadInst>(user)) {
      if (kind == loadedAddress && isOnChip(use.get()))
        return;
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
      return visitCall(*call, use, kind, member);
    if (llvm::isa<llvm::ReturnInst>(user))
      return reachCallers(*user->getFunction(), kind, member);
    if (llvm::isa<llvm::ICmpInst>(user))
      return;
    if (auto *select = llvm::dyn_cast<llvm::SelectInst>(user))
      return use.getOperandNo() == 0 ? void() : reach(select, kind, member);
    if (llvm::isa<llvm::PHINode, llvm::FreezeInst>(user))
      return reach(user, kind, member);
    if (auto *insert = llvm::dyn_cast<llvm::InsertValueInst>(user))
      return visitInsertion(*insert, use, kind, member);
    if (auto *extract = llvm::dyn_cast<llvm::ExtractValueInst>(user))
      return member && *member != extract->getIndices().front() ? void() : visitConversion(*extract, kind);
    if (llvm::isa<llvm::CastInst, llvm::ExtractElementInst, llvm::InsertElementInst, llvm::ShuffleVectorInst,
                  llvm::UnaryOperator>(user))
      return visitConversion(*user, kind);
    if (!isPointer && llvm::isa<llvm::BinaryOperator>(user))
      return visitArithmetic(*user, use, kind);
    if (kind == loadedAddress && !isPointer)
      return; // a number
    lose(kind, user, "is used in a way that is not understood");
  }

  void visitInsertion(llvm::InsertValueInst &insert, Use &use, Kind kind, Member member) {
    if (use.getOperandNo() != 0)
      return reach(&insert, kind, insert.getIndices().front());
    const bool isReplaced = insert.getNumIndices() == 1 && member == insert.getIndices().front();
    return isReplaced ? void() : reach(&insert, kind, member);
  }

  void visitConversion(Instruction &conversion, Kind kind) {
    const bool calculates = llvm::isa<llvm::FPToUIInst, llvm::FPToSIInst, llvm::UIToFPInst, llvm::SIToFPInst,
                                      llvm::FPTruncInst, llvm::FPExtInst>(conversion);
    if (calculates)
      return kind == loadedAddress ? void() : lose(kind, &conversion, "becomes a floating-point number");
    const auto *const cast = llvm::dyn_cast<llvm::CastInst>(&conversion);
    const bool isAddressOnChip = cast && (isOnChip(cast) || isOnChip(cast->getOperand(0)));
    if (!mayHoldPiece(conversion.getType()) || (kind == loadedAddress && isAddressOnChip))
      return;
    reach(&conversion, kind);
  }

  void visitArithmetic(Instruction &operation, Use &use, Kind kind) {
    if (keepsNoAddress(operation, layout_))
      return;
    // The distance between two addresses of one buffer.
    Value *const other = operation.getOperand(1 - use.getOperandNo());
    if (operation.getOpcode() == Instruction::Sub && isMadeOfRoot(other) && isMadeOfRoot(use.get()))
      return;
    if (kind == loadedAddress && operation.getType()->getScalarType()->isFloatingPointTy())
      return; // a number
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
      return reachContents(to.object, to.place, use->getType(), kind);
    storeInto(store.getPointerOperand(), kind, store);
  }

  void storeInto(Value *pointer, Kind kind, Instruction &where) {
    if (kind == addressItself)
      lose(kind, &where, "is stored");
    else
      reachMemory(pointer);
  }

  void visitAtomic(Instruction &atomic, Use &use, Kind kind) {
    if (use.getOperandNo() != 0)
      return storeInto(atomic.getOperand(0), kind, atomic);
    if (kind == loadedAddress && isOnChip(use.get()))
      return;
    uses_.atomic = true;
    access(kind, atomic, use.get(), readsAndWrites, sizeOf(atomic.getOperand(1)->getType()));
    reachLoaded(atomic);
  }

  void visitCall(CallBase &call, Use &use, Kind kind, Member member) {
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
      return reach(body->getArg(argument), kind, member);
    if (kind == loadedAddress && (use->getType()->getScalarType()->isFloatingPointTy() || isHarmless(call)))
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
        reachContents(to.object, std::nullopt, nullptr, loadedAddress);
      else if (isSource)
        reachMemory(transfer->getRawDest());
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
      // Minimum, maximum, shifts, shuffles: what comes out may still be an address.
      if (mayHoldPiece(call.getType()))
        reach(&call, kind);
      if (!call.mayWriteToMemory() || call.onlyAccessesInaccessibleMemory())
        return;
      return kind == addressItself ? lose(kind, &call, "is an integer passed to " + nameOf(call)) : reachOtherMemory();
    }
    if (kind == loadedAddress && isOnChip(use.get()))
      return;
    if (!call.doesNotCapture(argument) || call.getType()->isPtrOrPtrVectorTy())
      return lose(kind, &call, "is passed to " + nameOf(call));
    const uint8_t mode = call.doesNotAccessMemory(argument) || call.doesNotAccessMemory() ? touchesNothing
                         : call.onlyReadsMemory(argument)                                 ? reads
                         : call.onlyWritesMemory(argument)                                ? writes
                                                                                          : readsAndWrites;
    if (mode != touchesNothing)
      access(kind, call, use.get(), mode, uint64_t{0});
    uses_.atomic |= call.getCalledFunction()->getName().contains("atom");
    if ((mode & reads) && call.mayWriteToMemory()) // a copy
      reachOtherMemory();
    reachLoaded(call);
  }

  void visitAsm(CallBase &call, Use &use, Kind kind) {
    if (!call.isArgOperand(&use))
      return lose(kind, &call, "is used by inline assembly that is not understood");
    apply(call, use.get(),
          effectsOfAsm(call, call.getArgOperandNo(&use), kind == addressItself ? ofAddress : ofMemory));
  }

  void apply(CallBase &call, Value *address, const AsmEffects &effects) {
    if (effects.unresolved & ofAddress) {
      uses_.unresolved = true;
      uses_.may = readsAndWrites;
      note(&call, "is used by inline assembly that is not understood");
    } else if (effects.escaping & ofAddress) {
      lose(addressItself, &call, "is stored by inline assembly");
    }
    if ((effects.unresolved | effects.escaping) & ofMemory)
      lose(loadedAddress, &call, "is used by inline assembly that is not understood");
    uses_.atomic |= effects.atomic;
    if (effects.mode != touchesNothing)
      access(addressItself, call, address, effects.mode, effects.sizeBytes, effects.exactAddress);
    if (effects.modeThroughMemory != touchesNothing)
      access(loadedAddress, call, address, effects.modeThroughMemory, uint64_t{0});
    if (effects.storesMemory)
      reachOtherMemory();
    const auto *const type = llvm::dyn_cast<llvm::StructType>(call.getType());
    for (unsigned i = 0; i < effects.results.size(); ++i) {
      const Member member = type ? Member(i) : Member();
      if (effects.results[i] & ofAddress)
        reach(&call, addressItself, member);
      if (effects.results[i] & ofMemory)
        reach(&call, loadedAddress, member);
    }
  }

  /// `value` is read from memory that the slot leads to.
  void reachLoaded(Value &value) {
    if (mayHoldPiece(value.getType()))
      reach(&value, loadedAddress);
  }

  void reachCallers(llvm::Function &function, Kind kind, Member member) {
    for (Use &use : function.uses()) {
      auto *const call = llvm::dyn_cast<CallBase>(use.getUser());
      if (call && call->isCallee(&use) && !code_.functions.contains(call->getFunction()))
        continue; // another kernel's
      if (call && call->isCallee(&use))
        reach(call, kind, member);
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
    if (kind == loadedAddress && access.address && isOnChip(access.address))
      return;
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
    uses_.atomic |= kind == loadedAddress;
    uses_.escapes |= kind == addressItself;
    note(where, (kind == addressItself ? how : "holds an address that " + how).str());
  }

  void note(Instruction *where, const std::string &text) {
    const bool isNew = llvm::none_of(uses_.findings, [&](const Finding &known) { return known.text == text; });
    if (where && isNew)
      uses_.findings.push_back({where, text});
  }

  SlotUses &uses_;
  const KernelCode &code_;
  LocalObjects &objects_;
  llvm::DenseSet<Value *> &reached_;
  const llvm::DataLayout &layout_;
  llvm::SmallVector<std::tuple<Value *, Kind, Member>, 32> work_;
  llvm::DenseSet<std::tuple<Value *, unsigned, int>> seen_;
  llvm::DenseSet<std::tuple<Value *, int64_t, Type *, unsigned>> seenContents_;
  bool hasReachedOthers_ = false;
};

} // namespace

bool isHarmless(const CallBase &call) {
  const llvm::Function *const called = call.getCalledFunction();
  return called && llvm::is_contained({"vprintf", "__assertfail", "malloc"}, called->getName());
}

KernelCode::KernelCode(llvm::SetVector<llvm::Function *> all, LocalObjects &localObjects) : functions(std::move(all)) {
  const llvm::DataLayout &layout = functions.front()->getParent()->getDataLayout();
  const auto mayLeadElsewhere = [&](Value *pointer) {
    const auto isUnchanged = [&](const Value *origin) { return isUnchangedParameter(origin, localObjects); };
    return !findLocalObject(pointer, layout).object && !llvm::all_of(originsOf(pointer, functions), isUnchanged) &&
           !leadsToSlotsAlone(pointer, functions, localObjects);
  };
  const auto add = [&](Value *object) {
    if (localObjects.of(object).escapes || localObjects.of(object).hasOtherNames)
      sharedObjects.push_back(object);
  };
  for (llvm::Function *const function : functions) {
    for (llvm::Argument &argument : function->args())
      if (argument.hasByValAttr() && localObjects.of(&argument).isWritten)
        add(&argument);
    for (Instruction &instruction : llvm::instructions(*function)) {
      if (llvm::isa<llvm::AllocaInst>(instruction))
        add(&instruction);
      const auto *const call = llvm::dyn_cast<CallBase>(&instruction);
      if (const Value *const pointer = llvm::getLoadStorePointerOperand(&instruction)) {
        if (llvm::isa<llvm::LoadInst>(instruction) && mayLeadElsewhere(const_cast<Value *>(pointer)))
          otherReads.push_back(&instruction);
      } else if (llvm::isa<llvm::AtomicRMWInst, llvm::AtomicCmpXchgInst>(instruction)) {
        if (mayLeadElsewhere(instruction.getOperand(0)))
          otherReads.push_back(&instruction);
      } else if (const auto *const transfer = llvm::dyn_cast<llvm::MemTransferInst>(&instruction)) {
        if (mayLeadElsewhere(transfer->getRawSource()))
          otherReads.push_back(&instruction);
      } else if (call && (call->isInlineAsm() || (call->getIntrinsicID() != llvm::Intrinsic::not_intrinsic &&
                                                  call->mayReadFromMemory() && hasPointer(*call)))) {
        otherReads.push_back(&instruction);
      }
    }
  }
}

SlotUses followSlot(const Slot &slot, const KernelCode &code, LocalObjects &objects, llvm::DenseSet<Value *> &reached) {
  SlotUses uses;
  uses.slot = slot;
  llvm::Argument &parameter = *code.functions.front()->getArg(slot.parameter);
  Walk walk(uses, code, objects, reached);
  if (parameter.hasByValAttr())
    walk.followField(parameter, static_cast<int64_t>(slot.offset));
  else
    walk.followArgument(parameter);
  return uses;
}

} // namespace pumpgraph::annotate
