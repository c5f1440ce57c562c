// SPDX-License-Identifier: Apache-2.0
#include "LocalObject.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/DataLayout.h"
#include "llvm/IR/Module.h"

namespace pumpgraph::annotate {
namespace {

using llvm::CallBase;
using llvm::Instruction;
using llvm::Use;
using llvm::Value;

/// A value that stands for more places than this stands for any: a pointer that a loop moves on.
constexpr size_t mostPlaces = 4;

class Follower {
public:
  Follower(LocalObject &object, const llvm::DataLayout &layout) : object_(object), layout_(layout) {}

  void follow(Value *start) {
    reach(start, 0);
    while (!work_.empty()) {
      const auto [value, place] = work_.pop_back_val();
      for (Use &use : value->uses())
        visit(use, place);
    }
  }

private:
  void reach(Value *value, Place place) {
    llvm::SmallVector<Place, 4> &places = places_[value];
    if (llvm::is_contained(places, Place()) || llvm::is_contained(places, place))
      return;
    if (places.size() >= mostPlaces)
      place = std::nullopt;
    places.push_back(place);
    work_.push_back({value, place});
  }

  void visit(Use &use, Place place) {
    auto *const user = llvm::dyn_cast<Instruction>(use.getUser());
    if (!user) {
      object_.escapes = true;
    } else if (auto *load = llvm::dyn_cast<llvm::LoadInst>(user)) {
      object_.loads.push_back({load, place});
    } else if (llvm::isa<llvm::StoreInst>(user)) {
      const bool isAddressStored = use.getOperandNo() == 0;
      object_.escapes |= isAddressStored;
      object_.isWritten |= !isAddressStored;
    } else if (auto *element = llvm::dyn_cast<llvm::GetElementPtrInst>(user)) {
      llvm::APInt offset(64, 0);
      const bool isConstant = place && element->accumulateConstantOffset(layout_, offset);
      reach(element, isConstant ? Place(*place + offset.getSExtValue()) : std::nullopt);
    } else if (llvm::isa<llvm::AddrSpaceCastInst, llvm::PHINode, llvm::SelectInst, llvm::FreezeInst>(user)) {
      object_.hasOtherNames |= llvm::isa<llvm::PHINode, llvm::SelectInst>(user);
      reach(user, place);
    } else if (auto *call = llvm::dyn_cast<CallBase>(user)) {
      visitCall(*call, use, place);
    } else if (!llvm::isa<llvm::ICmpInst>(user)) {
      object_.escapes = true;
    }
  }

  void visitCall(CallBase &call, Use &use, Place place) {
    if (auto *transfer = llvm::dyn_cast<llvm::MemTransferInst>(&call)) {
      if (use.getOperandNo() == 0)
        object_.isWritten = true;
      else
        object_.copies.push_back({transfer->getRawDest(), place, transfer});
      return;
    }
    if (llvm::isa<llvm::MemSetInst>(call)) {
      object_.isWritten = true;
      return;
    }
    if (llvm::isa<llvm::LifetimeIntrinsic, llvm::AssumeInst, llvm::DbgInfoIntrinsic>(call))
      return;
    const llvm::Function *const called = call.getCalledFunction();
    if (called && called->getName() == "vprintf")
      return; // prints what is in it
    llvm::Function *const body = bodyOf(call);
    if (!body || !call.isArgOperand(&use) || call.getArgOperandNo(&use) >= body->arg_size()) {
      object_.escapes = true;
      return;
    }
    llvm::Argument *const argument = body->getArg(call.getArgOperandNo(&use));
    if (argument->hasByValAttr()) {
      object_.copies.push_back({argument, place, &call});
      return;
    }
    object_.hasOtherNames = true;
    reach(argument, place);
  }

  LocalObject &object_;
  const llvm::DataLayout &layout_;
  llvm::DenseMap<Value *, llvm::SmallVector<Place, 4>> places_;
  llvm::SmallVector<std::pair<Value *, Place>, 16> work_;
};

bool isLocalObject(const Value *value) {
  const auto *const argument = llvm::dyn_cast<llvm::Argument>(value);
  return llvm::isa<llvm::AllocaInst>(value) || (argument && argument->hasByValAttr());
}

} // namespace

bool LocalObject::overlaps(const Load &load, Place place, int64_t bytes, const llvm::DataLayout &layout) {
  if (!load.place || !place)
    return true;
  const auto loaded = static_cast<int64_t>(layout.getTypeStoreSize(load.instruction->getType()).getFixedValue());
  return *load.place < *place + bytes && *place < *load.place + loaded;
}

LocalAddress findLocalObject(Value *address, const llvm::DataLayout &layout) {
  llvm::APInt offset(64, 0);
  Value *const base = address->stripAndAccumulateConstantOffsets(layout, offset, /*AllowNonInbounds=*/true);
  if (isLocalObject(base))
    return {base, offset.getSExtValue()};
  Value *const object = llvm::getUnderlyingObject(address, /*MaxLookup=*/0);
  if (isLocalObject(object))
    return {object, std::nullopt};
  return {};
}

std::optional<int64_t> localObjectBytes(const Value *object, const llvm::DataLayout &layout) {
  if (const auto *const argument = llvm::dyn_cast<llvm::Argument>(object))
    return layout.getTypeAllocSize(argument->getParamByValType()).getFixedValue();
  const std::optional<llvm::TypeSize> size = llvm::cast<llvm::AllocaInst>(object)->getAllocationSize(layout);
  return size ? std::optional<int64_t>(size->getFixedValue()) : std::nullopt;
}

const LocalObject &LocalObjects::of(Value *object) {
  std::unique_ptr<LocalObject> &known = objects_[object];
  if (!known) {
    known = std::make_unique<LocalObject>();
    const auto *const argument = llvm::dyn_cast<llvm::Argument>(object);
    const llvm::Module *const module =
        argument ? argument->getParent()->getParent() : llvm::cast<Instruction>(object)->getModule();
    Follower(*known, module->getDataLayout()).follow(object);
  }
  return *known;
}

llvm::Function *bodyOf(const CallBase &call) {
  llvm::Function *const called = call.getCalledFunction();
  return called && !called->isDeclaration() && !called->isInterposable() ? called : nullptr;
}

} // namespace pumpgraph::annotate
