// SPDX-License-Identifier: Apache-2.0
#include "Slots.h"

#include "InlineAsm.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/IR/DataLayout.h"
#include "llvm/IR/Module.h"

#include <algorithm>
#include <set>

namespace pumpgraph::annotate {
namespace {

using llvm::Type;
using llvm::Value;

constexpr uint64_t addressBytes = 8;

class Finder {
public:
  Finder(llvm::Function &kernel, LocalObjects &objects)
      : kernel_(kernel), objects_(objects), layout_(kernel.getParent()->getDataLayout()) {}

  std::vector<Slot> find() {
    for (llvm::Argument &parameter : kernel_.args()) {
      if (parameter.hasByValAttr())
        findInStruct(parameter);
      else if (layout_.getTypeStoreSize(parameter.getType()).getFixedValue() >= addressBytes &&
               becomesAddress(&parameter))
        add(parameter, 0);
    }
    return {slots_.begin(), slots_.end()};
  }

private:
  void add(const llvm::Argument &parameter, uint64_t offset) { slots_.insert({parameter.getArgNo(), offset}); }

  void findInStruct(llvm::Argument &parameter) {
    addDeclared(parameter, parameter.getParamByValType(), 0);
    const uint64_t size = layout_.getTypeAllocSize(parameter.getParamByValType()).getFixedValue();
    for (const LocalObject::Load &load : objects_.of(&parameter).loads) {
      if (!becomesAddress(load.instruction))
        continue;
      const uint64_t loaded = layout_.getTypeStoreSize(load.instruction->getType()).getFixedValue();
      const uint64_t begin = load.place ? static_cast<uint64_t>(*load.place) : 0;
      const uint64_t end = load.place ? begin + loaded : size;
      for (uint64_t offset = begin; offset + addressBytes <= end && end <= size; offset += addressBytes)
        add(parameter, offset);
    }
  }

  void addDeclared(const llvm::Argument &parameter, Type *type, uint64_t offset) {
    if (type->isPointerTy())
      return add(parameter, offset);
    if (auto *record = llvm::dyn_cast<llvm::StructType>(type)) {
      const llvm::StructLayout *const layout = layout_.getStructLayout(record);
      for (unsigned i = 0; i < record->getNumElements(); ++i)
        addDeclared(parameter, record->getElementType(i), offset + layout->getElementOffset(i));
    }
    if (auto *array = llvm::dyn_cast<llvm::ArrayType>(type); array && mayHoldPointers(array->getElementType()))
      for (uint64_t i = 0; i < array->getNumElements(); ++i)
        addDeclared(parameter, array->getElementType(),
                    offset + i * layout_.getTypeAllocSize(array->getElementType()).getFixedValue());
  }

  static bool mayHoldPointers(Type *type) {
    if (auto *array = llvm::dyn_cast<llvm::ArrayType>(type))
      return mayHoldPointers(array->getElementType());
    return type->isPointerTy() || type->isStructTy();
  }

  /// Whether memory is accessed through this value: it is a pointer, or an integer that becomes one.
  static bool becomesAddress(Value *value) {
    llvm::SmallVector<Value *, 8> work{value};
    llvm::DenseSet<Value *> seen;
    while (!work.empty()) {
      Value *const next = work.pop_back_val();
      if (!seen.insert(next).second)
        continue;
      if (next->getType()->isPtrOrPtrVectorTy())
        return true;
      for (llvm::Use &use : next->uses()) {
        llvm::User *const user = use.getUser();
        auto *const call = llvm::dyn_cast<llvm::CallBase>(user);
        if (call && call->isInlineAsm() && call->isArgOperand(&use)) {
          const AsmEffects effects = effectsOfAsm(*call, call->getArgOperandNo(&use), ofAddress);
          if (effects.mode != touchesNothing || effects.unresolved)
            return true;
          if (llvm::any_of(effects.results, [](uint8_t result) { return result & ofAddress; }))
            work.push_back(call);
        }
        llvm::Function *const body = call ? bodyOf(*call) : nullptr;
        if (body && call->isArgOperand(&use) && call->getArgOperandNo(&use) < body->arg_size())
          work.push_back(body->getArg(call->getArgOperandNo(&use)));
        if (llvm::isa<llvm::CastInst, llvm::PHINode, llvm::FreezeInst, llvm::BinaryOperator, llvm::SelectInst,
                      llvm::ExtractElementInst, llvm::InsertElementInst, llvm::ExtractValueInst, llvm::InsertValueInst>(
                user))
          work.push_back(user);
      }
    }
    return false;
  }

  llvm::Function &kernel_;
  LocalObjects &objects_;
  const llvm::DataLayout &layout_;
  std::set<Slot> slots_;
};

/// Which bytes of a struct parameter the kernel may look at.
std::vector<bool> readBytes(llvm::Argument &parameter, LocalObjects &objects, const llvm::DataLayout &layout) {
  std::vector<bool> isRead(layout.getTypeAllocSize(parameter.getParamByValType()).getFixedValue());
  const LocalObject &object = objects.of(&parameter);
  const auto read = [&](Place place, uint64_t bytes) {
    const uint64_t begin = place && *place >= 0 ? static_cast<uint64_t>(*place) : 0;
    const uint64_t end = place && begin + bytes < isRead.size() ? begin + bytes : isRead.size();
    for (uint64_t i = begin; i < end; ++i)
      isRead[i] = true;
  };
  if (object.escapes)
    read(std::nullopt, 0);
  for (const LocalObject::Load &load : object.loads)
    read(load.place, layout.getTypeStoreSize(load.instruction->getType()).getFixedValue());
  for (const LocalObject::Copy &copy : object.copies)
    read(copy.place, isRead.size());
  return isRead;
}

} // namespace

std::vector<Slot> findUnreadWords(llvm::Function &kernel, LocalObjects &objects, const std::vector<Slot> &slots) {
  std::vector<Slot> words;
  for (llvm::Argument &parameter : kernel.args()) {
    if (!parameter.hasByValAttr())
      continue;
    const std::vector<bool> isRead = readBytes(parameter, objects, kernel.getParent()->getDataLayout());
    for (uint64_t offset = 0; offset + addressBytes <= isRead.size(); offset += addressBytes) {
      const auto begin = isRead.begin() + static_cast<std::ptrdiff_t>(offset);
      const Slot word{parameter.getArgNo(), offset};
      if (std::find(begin, begin + addressBytes, false) != begin + addressBytes &&
          !std::binary_search(slots.begin(), slots.end(), word))
        words.push_back(word);
    }
  }
  return words;
}

std::vector<Slot> findSlots(llvm::Function &kernel, LocalObjects &objects) {
  return Finder(kernel, objects).find();
}

} // namespace pumpgraph::annotate
