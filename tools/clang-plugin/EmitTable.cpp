// SPDX-License-Identifier: Apache-2.0
#include "EmitTable.h"

#include "llvm/IR/Constants.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Instructions.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"

namespace pumpgraph::annotate {
namespace {

using llvm::Constant;
using llvm::ConstantStruct;
using llvm::GlobalVariable;

std::optional<std::string> stringIn(const llvm::Value *value) {
  const auto *const variable = llvm::dyn_cast<GlobalVariable>(value->stripPointerCasts());
  const auto *const text = variable && variable->hasInitializer()
                               ? llvm::dyn_cast<llvm::ConstantDataSequential>(variable->getInitializer())
                               : nullptr;
  return text && text->isCString() ? std::optional(text->getAsCString().str()) : std::nullopt;
}

/// __cudaRegisterFunction(handle, stub, device name, device name, ...), where one object holds the program.
void findRegistrations(const llvm::Module &module, std::vector<HostKernel> &kernels) {
  const llvm::Function *const registration = module.getFunction("__cudaRegisterFunction");
  if (!registration)
    return;
  for (const llvm::User *const user : registration->users()) {
    const auto *const call = llvm::dyn_cast<llvm::CallBase>(user);
    if (!call || call->arg_size() < 4)
      continue;
    auto *const stub = llvm::dyn_cast<Constant>(call->getArgOperand(1)->stripPointerCasts());
    if (const std::optional<std::string> name = stringIn(call->getArgOperand(3)))
      kernels.push_back({stub, *name});
  }
}

/// Entries that the linker collects, where device code is linked: {0, version, kind, flags, address, name, size, ...}.
void findEntries(const llvm::Module &module, std::vector<HostKernel> &kernels) {
  for (const GlobalVariable &variable : module.globals()) {
    const auto *const entry =
        variable.hasInitializer() ? llvm::dyn_cast<ConstantStruct>(variable.getInitializer()) : nullptr;
    if (variable.getSection() != "llvm_offload_entries" || !entry || entry->getNumOperands() < 7)
      continue;
    auto *const stub = llvm::dyn_cast<llvm::Function>(entry->getOperand(4)->stripPointerCasts());
    const std::optional<std::string> name = stringIn(entry->getOperand(5));
    if (stub && name)
      kernels.push_back({stub, *name});
  }
}

/// Makes constants in the layout of access_table.h.
class Builder {
public:
  explicit Builder(llvm::Module &module) : module_(module), context_(module.getContext()) {}

  Constant *number(unsigned bits, uint64_t value) {
    return llvm::ConstantInt::get(llvm::IntegerType::get(context_, bits), value);
  }
  Constant *null() { return llvm::ConstantPointerNull::get(llvm::PointerType::getUnqual(context_)); }
  Constant *record(llvm::ArrayRef<Constant *> fields) { return ConstantStruct::getAnon(context_, fields); }
  Constant *text(const std::string &text) {
    return place(llvm::ConstantDataArray::getString(context_, text), "pumpgraph.name");
  }

  /// A private variable with this value.
  GlobalVariable *place(Constant *value, const char *name) {
    auto *const variable = new GlobalVariable(module_, value->getType(), /*isConstant=*/true,
                                              llvm::GlobalValue::PrivateLinkage, value, name);
    variable->setAlignment(llvm::Align(8));
    return variable;
  }
  Constant *array(const std::vector<Constant *> &elements, const char *name) {
    if (elements.empty())
      return null();
    return place(llvm::ConstantArray::get(llvm::ArrayType::get(elements.front()->getType(), elements.size()), elements),
                 name);
  }

  /// pumpgraph_extent
  Constant *extent(const Extent &extent) {
    std::vector<Constant *> steps;
    for (const pumpgraph_extent_step &step : extent.steps())
      steps.push_back(record({number(8, step.op), number(8, step.size), number(16, 0), number(32, step.parameter),
                              number(64, static_cast<uint64_t>(step.value))}));
    return record({array(steps, "pumpgraph.extent"), number(64, steps.size())});
  }

  /// pumpgraph_slot
  Constant *slot(const SlotAccesses &slot) {
    const unsigned flags = (slot.escapes ? PUMPGRAPH_SLOT_ESCAPES : 0) | (slot.atomic ? PUMPGRAPH_SLOT_ATOMIC : 0) |
                           (slot.holdsPointers ? PUMPGRAPH_SLOT_HOLDS_POINTERS : 0) |
                           (slot.unresolved ? PUMPGRAPH_SLOT_UNRESOLVED : 0);
    llvm::Type *const reserved = llvm::ArrayType::get(llvm::Type::getInt8Ty(context_), 5);
    return record({number(32, slot.slot.parameter), number(32, slot.slot.offset), number(8, slot.may),
                   number(8, slot.overwrites() ? writes : touchesNothing), number(8, flags),
                   llvm::Constant::getNullValue(reserved), extent(slot.begin), extent(slot.end), extent(slot.mustBegin),
                   extent(slot.mustEnd)});
  }

  /// pumpgraph_kernel_accesses
  Constant *kernel(const HostKernel &kernel, const KernelAccesses &accesses) {
    std::vector<Constant *> slots;
    for (const SlotAccesses &known : accesses.slots)
      slots.push_back(slot(known));
    const unsigned flags = (accesses.otherMemory ? PUMPGRAPH_KERNEL_OTHER_MEMORY : 0) |
                           (accesses.purity == Purity::always ? PUMPGRAPH_KERNEL_PURE : 0) |
                           (accesses.purity == Purity::apart ? PUMPGRAPH_KERNEL_PURE_APART : 0);
    return record({kernel.stub ? kernel.stub : null(), text(kernel.name), array(slots, "pumpgraph.slots"),
                   number(64, slots.size()), number(32, flags), number(32, 0)});
  }

  /// pumpgraph_access_table, in a section of its own.
  GlobalVariable *table(const std::vector<Constant *> &kernels) {
    Constant *const value = record({number(32, PUMPGRAPH_ACCESS_TABLE_VERSION), number(32, 0),
                                    array(kernels, "pumpgraph.kernels"), number(64, kernels.size())});
    auto *const table = new GlobalVariable(module_, value->getType(), true, llvm::GlobalValue::InternalLinkage, value,
                                           "pumpgraph.access_table");
    table->setAlignment(llvm::Align(8));
    table->setSection("pumpgraph_access");
    return table;
  }

  /// A function that hands the table to `callee`, if the program has one.
  llvm::Function *caller(const char *callee, GlobalVariable *table) {
    llvm::Type *const none = llvm::Type::getVoidTy(context_);
    auto *const pointer = llvm::PointerType::getUnqual(context_);
    llvm::FunctionCallee declared =
        module_.getOrInsertFunction(callee, llvm::FunctionType::get(none, {pointer}, false));
    auto *const function = llvm::cast<llvm::Function>(declared.getCallee());
    if (function->isDeclaration())
      function->setLinkage(llvm::GlobalValue::ExternalWeakLinkage);
    auto *const caller =
        llvm::Function::Create(llvm::FunctionType::get(none, false), llvm::GlobalValue::InternalLinkage,
                               std::string("pumpgraph.call.") + callee, module_);
    auto *const start = llvm::BasicBlock::Create(context_, "", caller);
    auto *const call = llvm::BasicBlock::Create(context_, "", caller);
    auto *const end = llvm::BasicBlock::Create(context_, "", caller);
    llvm::IRBuilder<> builder(start);
    builder.CreateCondBr(builder.CreateIsNotNull(function), call, end);
    builder.SetInsertPoint(call);
    builder.CreateCall(declared, {table});
    builder.CreateBr(end);
    builder.SetInsertPoint(end);
    builder.CreateRetVoid();
    return caller;
  }

private:
  llvm::Module &module_;
  llvm::LLVMContext &context_;
};

} // namespace

std::vector<HostKernel> findHostKernels(const llvm::Module &module) {
  std::vector<HostKernel> kernels;
  findRegistrations(module, kernels);
  findEntries(module, kernels);
  std::sort(kernels.begin(), kernels.end(), [](const HostKernel &a, const HostKernel &b) { return a.name < b.name; });
  return kernels;
}

size_t emitTable(llvm::Module &module, const std::vector<HostKernel> &kernels, const DeviceResult &device) {
  Builder builder(module);
  std::vector<Constant *> entries;
  for (const HostKernel &kernel : kernels)
    if (const auto known = device.kernels.find(kernel.name); known != device.kernels.end())
      entries.push_back(builder.kernel(kernel, known->second));
  if (entries.empty())
    return kernels.size();
  GlobalVariable *const table = builder.table(entries);
  llvm::appendToCompilerUsed(module, {table});
  constexpr int priority = 65535;
  llvm::appendToGlobalCtors(module, builder.caller("pumpgraph_register_access_table", table), priority);
  llvm::appendToGlobalDtors(module, builder.caller("pumpgraph_unregister_access_table", table), priority);
  return kernels.size() - entries.size();
}

} // namespace pumpgraph::annotate
