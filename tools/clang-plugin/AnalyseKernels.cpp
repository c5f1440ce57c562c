// SPDX-License-Identifier: Apache-2.0
#include "AnalyseKernels.h"

#include "InlineAsm.h"
#include "Overwrites.h"
#include "Purity.h"
#include "Slots.h"
#include "Walk.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Analysis/PostDominators.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/Utils/Cloning.h"

namespace pumpgraph::annotate {
namespace {

using llvm::CallBase;
using llvm::Function;
using llvm::Instruction;
using llvm::Value;

constexpr char passName[] = "pumpgraph";

/// The kernel and all functions it may call that are here.
llvm::SetVector<Function *> reachableFrom(Function &kernel) {
  llvm::SetVector<Function *> functions;
  functions.insert(&kernel);
  for (size_t i = 0; i < functions.size(); ++i)
    for (Instruction &instruction : llvm::instructions(*functions[i]))
      if (const auto *const call = llvm::dyn_cast<CallBase>(&instruction))
        if (Function *const body = bodyOf(*call))
          functions.insert(body);
  return functions;
}

/// What the functions a kernel runs do beside its slots.
class Surroundings {
public:
  Surroundings(const llvm::SetVector<Function *> &functions, const llvm::DenseSet<Value *> &reached) {
    for (Function *const function : functions)
      for (Instruction &instruction : llvm::instructions(*function))
        visit(instruction, reached);
  }

  bool otherMemory = false;
  bool threadsMayLeave = false;   ///< before the end of the kernel
  bool mayReadParameters = false; ///< by their names in inline assembly

private:
  void visit(Instruction &instruction, const llvm::DenseSet<Value *> &reached) {
    if (llvm::isa<llvm::IntToPtrInst>(instruction))
      otherMemory |= isGlobalSpace(instruction.getType()->getPointerAddressSpace()) && !reached.contains(&instruction);
    for (const llvm::Use &operand : instruction.operands())
      otherMemory |= leadsToGlobals(operand.get());
    if (auto *const call = llvm::dyn_cast<CallBase>(&instruction))
      visitCall(*call, reached);
  }

  void visitAsm(const CallBase &call, const llvm::DenseSet<Value *> &reached) {
    const AsmSummary summary = summarizeAsm(call);
    otherMemory |= summary.otherMemory;
    threadsMayLeave |= summary.mayLeave;
    mayReadParameters |= summary.mayReadParameters;
    // Where a pointer comes from shows elsewhere, unless it comes from here.
    const auto isPointer = [](const llvm::Type *type) { return type->isPointerTy(); };
    const bool makesPointer = isPointer(call.getType()) || llvm::any_of(call.getType()->subtypes(), isPointer);
    otherMemory |= makesPointer && !reached.contains(&call);
    for (unsigned i = 0; i < call.arg_size(); ++i) {
      const Value *const argument = call.getArgOperand(i);
      if (argument->getType()->isIntegerTy() && !llvm::isa<llvm::Constant>(argument) && !reached.contains(argument))
        otherMemory |= effectsOfAsm(call, i, ofMemory).modeThroughMemory != touchesNothing;
    }
  }

  void visitCall(CallBase &call, const llvm::DenseSet<Value *> &reached) {
    if (call.isInlineAsm())
      return visitAsm(call, reached);
    const Function *const called = call.getCalledFunction();
    if (called && called->isIntrinsic()) {
      const llvm::StringRef name = called->getName();
      threadsMayLeave |= call.getIntrinsicID() == llvm::Intrinsic::nvvm_exit;
      for (const llvm::StringRef handle :
           {"llvm.nvvm.tex.", "llvm.nvvm.tld4.", "llvm.nvvm.suld.", "llvm.nvvm.sust.",
            "llvm.nvvm.cp.async.bulk.tensor.", "llvm.nvvm.cp.async.bulk.prefetch.tensor."})
        otherMemory |= name.starts_with(handle);
      return;
    }
    if (bodyOf(call) || isHarmless(call))
      return;
    otherMemory = true;
    threadsMayLeave = true;
  }

  static bool isGlobalSpace(unsigned space) { return space <= 1; }

  /// Variables in global memory, and those in constant memory that hold pointers which the host sets, or which lead
  /// there.
  bool leadsToGlobals(const Value *operand) {
    const auto *const constant = llvm::dyn_cast<llvm::Constant>(operand);
    if (!constant || llvm::isa<Function>(constant))
      return false;
    if (const auto *const variable = llvm::dyn_cast<llvm::GlobalVariable>(constant)) {
      constexpr unsigned constantSpace = 4;
      const bool isFixed = variable->isConstant() && !variable->isExternallyInitialized() && variable->hasInitializer();
      if (!isFixed)
        return isGlobalSpace(variable->getAddressSpace()) ||
               (variable->getAddressSpace() == constantSpace && holdsPointers(variable->getValueType()));
      return followed_.insert(variable).second && leadsToGlobals(variable->getInitializer());
    }
    return llvm::any_of(constant->operands(), [&](const llvm::Use &use) { return leadsToGlobals(use.get()); });
  }

  static bool holdsPointers(const llvm::Type *type) {
    return type->isPointerTy() || type->isIntegerTy(64) || llvm::any_of(type->subtypes(), holdsPointers);
  }

  llvm::DenseSet<const Value *> followed_; ///< variables
};

void remark(const Instruction &where, const Slot &slot, const std::string &text) {
  const Function &function = *where.getFunction();
  llvm::OptimizationRemarkAnalysis remark(passName, "Access", where.getDebugLoc(), where.getParent());
  remark << "parameter " << std::to_string(slot.parameter)
         << (slot.offset ? (" at byte " + llvm::Twine(slot.offset)).str() : "") << " " << text;
  function.getContext().diagnose(remark);
}

bool areRemarksWanted(const llvm::LLVMContext &context) {
  return context.getDiagHandlerPtr() && context.getDiagHandlerPtr()->isAnalysisRemarkEnabled(passName);
}

/// Why the planner has to move what the slot leads to both ways.
void explain(const SlotUses &uses) {
  if (uses.may != readsAndWrites)
    return;
  for (const Finding &finding : uses.findings)
    remark(*finding.instruction, uses.slot, finding.text);
}

void decidePurity(const Function &kernel, const KernelCode &code, const std::vector<WrittenSlot> &written,
                  Numbers &numbers, KernelAccesses &result) {
  const bool isSaid = isSaidToBePure(kernel);
  const std::string impurity = findImpurity(code, result);
  if (!impurity.empty())
    result.impurity = isSaid ? impurity : "";
  else if (isSaid)
    result.purity = Purity::always;
  else if (isPureApart(code, result, written, numbers))
    result.purity = Purity::apart;
}

KernelAccesses analyse(Function &kernel, LocalObjects &objects, llvm::FunctionAnalysisManager &functions) {
  KernelAccesses result;
  result.name = kernel.getName().str();
  std::vector<std::pair<SlotUses, SlotAccesses>> slots;
  llvm::DenseSet<Value *> reached;
  const std::vector<Slot> found = findSlots(kernel, objects);
  const KernelCode code(reachableFrom(kernel), objects);
  for (const Slot &slot : found) {
    SlotUses uses = followSlot(slot, code, objects, reached);
    slots.emplace_back(uses, SlotAccesses{uses, {}, {}, {}, {}});
  }
  const Surroundings surroundings(code.functions, reached);
  result.otherMemory = surroundings.otherMemory;

  Numbers numbers(functions.getResult<llvm::ScalarEvolutionAnalysis>(kernel),
                  functions.getResult<llvm::DominatorTreeAnalysis>(kernel),
                  functions.getResult<llvm::LoopAnalysis>(kernel), objects);
  std::vector<std::optional<std::vector<AccessGroup>>> groupsOf;
  for (auto &[uses, slot] : slots) {
    if (areRemarksWanted(kernel.getContext()))
      explain(uses);
    if (surroundings.mayReadParameters)
      slot = unresolvedSlot(slot.slot);
    const auto &groups = groupsOf.emplace_back(slot.unresolved ? std::nullopt : groupAccesses(uses, kernel, numbers));
    if (groups) {
      findExtents(*groups, numbers, slot);
      if (slot.may == writes && !surroundings.threadsMayLeave)
        findOverwrites(*groups, numbers, functions.getResult<llvm::PostDominatorTreeAnalysis>(kernel), slot);
    }
    result.slots.push_back(slot);
  }
  for (const Slot &word :
       surroundings.mayReadParameters ? std::vector<Slot>() : findUnreadWords(kernel, objects, found))
    result.slots.push_back({{.slot = word}, {}, {}, {}, {}});
  llvm::sort(result.slots, [](const SlotAccesses &a, const SlotAccesses &b) { return a.slot < b.slot; });

  std::vector<WrittenSlot> written;
  for (size_t i = 0; i < slots.size(); ++i)
    if (slots[i].second.may & writes)
      written.push_back({slots[i].second, groupsOf[i] ? &*groupsOf[i] : nullptr});
  decidePurity(kernel, code, written, numbers, result);
  return result;
}

/// So that the simplification goes on as if the module had been compiled to be fast.
void allowOptimisation(llvm::Module &module) {
  for (Function &function : module) {
    if (!function.hasOptNone())
      continue;
    function.removeFnAttr(llvm::Attribute::OptimizeNone);
    function.removeFnAttr(llvm::Attribute::NoInline);
  }
}

std::unique_ptr<llvm::TargetMachine> machineFor(const llvm::Module &module) {
  std::string error;
  const llvm::Target *const target = llvm::TargetRegistry::lookupTarget(module.getTargetTriple(), error);
  return std::unique_ptr<llvm::TargetMachine>(
      target ? target->createTargetMachine(module.getTargetTriple(), "", "", {}, std::nullopt) : nullptr);
}

} // namespace

std::vector<KernelAccesses> analyseKernels(llvm::Module &module, llvm::FunctionAnalysisManager &functions) {
  std::vector<KernelAccesses> kernels;
  LocalObjects objects;
  for (Function &function : module)
    if (function.getCallingConv() == llvm::CallingConv::PTX_Kernel && !function.isDeclaration())
      kernels.push_back(analyse(function, objects, functions));
  return kernels;
}

std::vector<KernelAccesses> analyseSimplifiedCopy(const llvm::Module &module) {
  const std::unique_ptr<llvm::Module> copy = llvm::CloneModule(module);
  allowOptimisation(*copy);
  const std::unique_ptr<llvm::TargetMachine> machine = machineFor(module);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(machine.get());
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  builder.buildModuleSimplificationPipeline(llvm::OptimizationLevel::O2, llvm::ThinOrFullLTOPhase::None)
      .run(*copy, modules);
  return analyseKernels(*copy, functions);
}

} // namespace pumpgraph::annotate
