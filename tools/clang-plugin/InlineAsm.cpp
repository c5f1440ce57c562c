// SPDX-License-Identifier: Apache-2.0
#include "InlineAsm.h"

#include "Accesses.h"
#include "PtxText.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/InlineAsm.h"

#include <string>

namespace pumpgraph::annotate {
namespace {

using llvm::SmallVector;
using llvm::StringRef;

/// A call's operands, numbered as in its text.
struct Operands {
  SmallVector<std::optional<int64_t>> immediates;
  SmallVector<unsigned> registers; ///< of each, the first operand that is the same register
  SmallVector<unsigned> of;        ///< of each argument, its operand
  SmallVector<unsigned> results;
  SmallVector<bool> isMemory; ///< of each, whether it stands for memory at an address
};

Operands operandsOf(const llvm::CallBase &call) {
  Operands operands;
  for (const llvm::InlineAsm::ConstraintInfo &constraint :
       llvm::cast<llvm::InlineAsm>(call.getCalledOperand())->ParseConstraints()) {
    if (constraint.Type == llvm::InlineAsm::isClobber)
      continue;
    const unsigned operand = operands.registers.size();
    operands.registers.push_back(operand);
    operands.immediates.emplace_back();
    operands.isMemory.push_back(constraint.isIndirect);
    if (constraint.Type == llvm::InlineAsm::isOutput && !constraint.isIndirect)
      operands.results.push_back(operand);
    for (const std::string &code : constraint.Codes)
      if (unsigned tied = 0; !StringRef(code).getAsInteger(10, tied) && tied < operand)
        operands.registers.back() = operands.registers[tied];
    if (constraint.Type == llvm::InlineAsm::isLabel || !constraint.hasArg())
      continue;
    const auto *const constant = llvm::dyn_cast<llvm::ConstantInt>(call.getArgOperand(operands.of.size()));
    const bool isImmediate = llvm::any_of(constraint.Codes, [](StringRef code) { return code == "i" || code == "n"; });
    if (constant && isImmediate && constant->getBitWidth() <= 64)
      operands.immediates.back() = constant->getSExtValue();
    operands.of.push_back(operand);
  }
  return operands;
}

PtxText textOf(const llvm::CallBase &call, const Operands &operands) {
  return parsePtx(llvm::cast<llvm::InlineAsm>(call.getCalledOperand())->getAsmString(), operands.immediates);
}

/// What an instruction does with its operands.
enum class Action : uint8_t {
  unknown,
  nothing,  ///< no data comes or goes
  compute,  ///< the first operand is made of the others
  load,     ///< `load result, [address]`
  store,    ///< `store [address], values`
  atomic,   ///< `atomic result, [address], values`, `reduction [address], values`
  copy,     ///< `cp.async... [to], [from], ...`
  onChip,   ///< works on registers, and on shared or tensor memory
  byHandle, ///< through a texture or a surface
};

struct Opcodes {
  Action action;
  StringRef names; ///< a blank before and after each
};

constexpr Opcodes knownOpcodes[] = {
    {Action::nothing, " applypriority bra brkpt createpolicy exit fence griddepcontrol isspacep membar nanosleep "
                      "pmevent prefetch prefetchu ret setmaxnreg setp testp trap "},
    {Action::compute, " abs activemask add addc and bar barrier bfe bfi bfind bmsk brev clz cnot copysign cos cvt cvta "
                      "div dp2a dp4a elect ex2 fma fns getctarank lg2 lop3 mad mad24 madc mapa match max min mma mov "
                      "movmatrix mul mul24 neg not or popc prmt rcp redux rem rsqrt sad selp set shf shfl shl shr sin "
                      "slct sqrt sub subc szext tanh vote xor "},
    {Action::load, " ld ldu "},
    {Action::store, " st discard "},
    {Action::atomic, " atom red multimem "},
    {Action::copy, " cp "},
    {Action::onChip, " clusterlaunchcontrol ldmatrix mbarrier stmatrix tcgen05 wgmma "},
    {Action::byHandle, " istypep suld suq sured sust tex tld4 txq "}};

Action actionOf(const PtxStatement &statement) {
  if (statement.opcode == "wmma")
    return statement.has("load") ? Action::load : statement.has("store") ? Action::store : Action::compute;
  const std::string name = " " + statement.opcode + " ";
  const auto *const known =
      llvm::find_if(knownOpcodes, [&](const Opcodes &opcodes) { return opcodes.names.contains(name); });
  return known == std::end(knownOpcodes) ? Action::unknown : known->action;
}

/// Bytes that one access moves, by the type in its mnemonic; 0 if there is none.
uint64_t accessBytes(const PtxStatement &statement) {
  uint64_t bytes = 0, lanes = 1;
  if (statement.opcode == "wmma" || statement.opcode == "discard")
    return 0;
  for (StringRef part : statement.modifiers) {
    unsigned number = 0;
    if (part.size() == 2 && part.consume_front("v") && !part.getAsInteger(10, number)) {
      lanes = number;
      continue;
    }
    if (part.starts_with("bf16"))
      part = part.drop_front();
    const bool isPair = part.consume_back("x2");
    if (!part.empty() && StringRef("busf").contains(part.front()) && !part.drop_front().getAsInteger(10, number))
      bytes = uint64_t{number} / 8 * (isPair ? 2 : 1);
  }
  return bytes * lanes;
}

/// Not global memory.
bool isOnChip(StringRef space) {
  space = space.split("::").first;
  return space == "shared" || space == "local";
}

class Interpreter {
public:
  Interpreter(const PtxText &text, const Operands &operands, bool memoryIsOfMemory)
      : text_(text), registers_(operands.registers), memoryIsOfMemory_(memoryIsOfMemory), held_(text.names.size()),
        writes_(text.names.size()) {
    for (const PtxStatement &statement : text.statements)
      for (const unsigned name : resultsOf(statement))
        ++writes_[registerOf(name)];
  }

  void give(unsigned operand, Provenance provenance) {
    given_ = registerOf(operand);
    held_[*given_] |= provenance;
  }

  AsmEffects run(llvm::ArrayRef<unsigned> results) {
    do {
      hasChanged_ = false;
      for (const PtxStatement &statement : text_.statements)
        visit(statement);
    } while (hasChanged_);
    for (const unsigned result : results)
      effects_.results.push_back(held_[registerOf(result)]);
    return effects_;
  }

private:
  unsigned registerOf(unsigned name) const { return name < registers_.size() ? registers_[name] : name; }

  uint8_t heldBy(const PtxOperand &operand) const {
    uint8_t held = 0;
    for (const unsigned name : operand.names)
      held |= held_[registerOf(name)];
    return held;
  }

  /// What the operand in front names, unless it is an address.
  static llvm::ArrayRef<unsigned> resultsOf(const PtxStatement &statement) {
    if (statement.operands.empty() || statement.operands.front().isAddress)
      return {};
    return statement.operands.front().names;
  }

  /// A register of the text that is only ever the argument itself.
  bool isGiven(unsigned name) const {
    name = registerOf(name);
    if (given_ == name)
      return writes_[name] == 0;
    if (writes_[name] != 1 || text_.names[name].kind != PtxName::Kind::own)
      return false;
    for (const PtxStatement &statement : text_.statements) {
      const bool isMove = statement.opcode == "mov" || statement.opcode == "cvta";
      const bool is64Bits = statement.has("u64") || statement.has("b64") || statement.has("s64");
      if (isMove && is64Bits && !statement.isConditional && !statement.hasSpace("shared") &&
          statement.operands.size() == 2 && statement.operands[0].isPlain && statement.operands[0].names[0] == name &&
          statement.operands[1].isPlain && !statement.operands[1].isAddress)
        return isGiven(statement.operands[1].names[0]);
    }
    return false;
  }

  void visit(const PtxStatement &statement) {
    switch (actionOf(statement)) {
    case Action::nothing:
      return;
    case Action::compute:
      return makeResults(statement, heldByInputs(statement));
    case Action::load:
      return visitLoad(statement);
    case Action::store:
      return visitStore(statement, writes);
    case Action::atomic:
      return visitStore(statement, readsAndWrites);
    case Action::copy:
      return visitCopy(statement);
    case Action::byHandle:
    case Action::onChip:
      return visitElsewhere(statement);
    case Action::unknown:
      effects_.unresolved |= heldByAll(statement);
    }
  }

  uint8_t heldByAll(const PtxStatement &statement) const {
    uint8_t held = 0;
    for (const PtxOperand &operand : statement.operands)
      held |= heldBy(operand);
    return held;
  }

  uint8_t heldByInputs(const PtxStatement &statement) const {
    uint8_t held = 0;
    for (const PtxOperand &operand : llvm::drop_begin(statement.operands, statement.operands.empty() ? 0 : 1))
      held |= heldBy(operand);
    return held;
  }

  void makeResults(const PtxStatement &statement, uint8_t provenances) {
    for (const unsigned name : resultsOf(statement)) {
      uint8_t &held = held_[registerOf(name)];
      hasChanged_ |= (held | provenances) != held;
      held |= provenances;
      const PtxName::Kind kind = text_.names[name].kind;
      if (kind == PtxName::Kind::kept || kind == PtxName::Kind::symbol) // another text may go on with it
        effects_.escaping |= provenances;
    }
  }

  void visitLoad(const PtxStatement &statement) {
    uint8_t loaded = memoryIsOfMemory_ ? ofMemory : 0;
    for (const PtxOperand &operand : statement.operands)
      if (operand.isAddress && access(statement, operand, reads, isInSpaceOnChip(statement)))
        loaded = ofMemory;
    makeResults(statement, loaded);
  }

  void visitStore(const PtxStatement &statement, uint8_t mode) {
    uint8_t stored = 0, loaded = memoryIsOfMemory_ ? ofMemory : 0;
    for (const PtxOperand &operand : llvm::drop_begin(statement.operands, resultsOf(statement).empty() ? 0 : 1)) {
      if (!operand.isAddress)
        stored |= heldBy(operand);
      else if (access(statement, operand, mode, isInSpaceOnChip(statement)))
        loaded = ofMemory;
    }
    effects_.escaping |= stored & ofAddress;
    effects_.storesMemory |= (stored & ofMemory) != 0;
    if (mode == readsAndWrites)
      makeResults(statement, loaded);
  }

  /// `cp.async... [to], [from], ...`, `cp.reduce.async.bulk... [to], [from], ...`: their spaces in the same order.
  void visitCopy(const PtxStatement &statement) {
    if (statement.has("prefetch"))
      return;
    if (statement.has("tensor")) {
      if (heldByAll(statement) & ofAddress)
        note(statement, readsAndWrites, false);
      effects_.unresolved |= heldByAll(statement) & ofAddress;
      return;
    }
    SmallVector<StringRef, 2> spaces;
    for (const StringRef modifier : statement.modifiers)
      if (const StringRef space = modifier.split("::").first; space == "shared" || space == "global")
        spaces.push_back(space);
    unsigned address = 0;
    for (const PtxOperand &operand : statement.operands) {
      const bool isPlace = operand.isAddress && address < 2;
      if (isPlace) {
        const uint8_t mode = address == 1 ? reads : statement.has("reduce") ? readsAndWrites : writes;
        const bool isRead = access(statement, operand, mode, address < spaces.size() && isOnChip(spaces[address]));
        effects_.storesMemory |= isRead && address == 1;
      } else { // a barrier, a size, a policy
        effects_.unresolved |= heldBy(operand) & ofAddress;
      }
      address += operand.isAddress;
    }
  }

  /// Memory that no address leads to holds what is put there.
  void visitElsewhere(const PtxStatement &statement) {
    const uint8_t held = heldByAll(statement);
    effects_.unresolved |= held & ofAddress;
    effects_.storesMemory |= (held & ofMemory) != 0;
    makeResults(statement, (held & ofMemory) | (memoryIsOfMemory_ ? ofMemory : 0));
  }

  static bool isInSpaceOnChip(const PtxStatement &statement) { return llvm::any_of(statement.modifiers, isOnChip); }

  /// Whether what is read there is of memory.
  bool access(const PtxStatement &statement, const PtxOperand &operand, uint8_t mode, bool staysOnChip) {
    const uint8_t held = heldBy(operand);
    if (held & ofAddress)
      note(statement, mode, !statement.isConditional && operand.isPlain && isGiven(operand.names[0]));
    const bool isThroughMemory = (held & ofMemory) && !staysOnChip;
    if (isThroughMemory)
      effects_.modeThroughMemory |= mode;
    const bool isUsed = isThroughMemory || (held & ofAddress);
    effects_.atomic |= isUsed && mode == readsAndWrites && statement.opcode != "cp";
    return isUsed;
  }

  void note(const PtxStatement &statement, uint8_t mode, bool isExact) {
    const bool movesOneValue = statement.opcode != "cp" && !statement.has("bulk") && !statement.has("async");
    const uint64_t bytes = movesOneValue ? accessBytes(statement) : 0;
    effects_.sizeBytes = effects_.mode == 0 || effects_.sizeBytes == bytes ? bytes : 0;
    effects_.mode |= mode;
    effects_.exactAddress = effects_.exactAddress && isExact;
  }

  const PtxText &text_;
  llvm::ArrayRef<unsigned> registers_;
  const bool memoryIsOfMemory_;
  std::vector<uint8_t> held_;    ///< provenances, by name
  std::vector<unsigned> writes_; ///< statements that write it, by name
  std::optional<unsigned> given_;
  bool hasChanged_ = false;
  AsmEffects effects_;
};

/// Everything that may be done with something of these provenances.
AsmEffects anything(uint8_t provenances, size_t results) {
  AsmEffects effects;
  effects.unresolved = effects.escaping = provenances;
  effects.exactAddress = false;
  effects.storesMemory = true;
  effects.results.assign(results, provenances | ofMemory);
  return effects;
}

bool mayLeave(const PtxStatement &statement) {
  return llvm::is_contained({"exit", "ret", "bra", "brx", "call", "trap"}, statement.opcode) ||
         actionOf(statement) == Action::unknown;
}

std::string impurityOf(const PtxStatement &statement) {
  const Action action = actionOf(statement);
  if (action == Action::unknown)
    return "has inline assembly that is not understood";
  if (action == Action::atomic || statement.has("reduce"))
    return "has an atomic operation";
  const auto isOrdered = [](StringRef modifier) {
    return llvm::is_contained({"volatile", "cv", "relaxed", "acquire", "release", "mmio"}, modifier);
  };
  if ((action == Action::load || action == Action::store) && llvm::any_of(statement.modifiers, isOrdered))
    return "has an access that other threads take part in";
  if (statement.opcode == "trap" || statement.opcode == "brkpt")
    return "may stop the program";
  if (llvm::is_contained({"activemask", "nanosleep", "pmevent", "discard", "clusterlaunchcontrol"}, statement.opcode))
    return "uses " + statement.opcode + ", whose effect the launch does not decide";
  return "";
}

/// Whether two runs of a launch may find something else in a special register.
bool mayDiffer(StringRef name) {
  constexpr StringRef sameAlways[] = {"_", "WARP_SZ", "%tid", "%ntid", "%ctaid", "%nctaid", "%laneid"};
  return !llvm::is_contained(sameAlways, name) && !name.starts_with("%lanemask_") && !name.starts_with("%cluster") &&
         !name.starts_with("%ncluster") && !name.starts_with("%is_explicit_cluster") && !name.ends_with("_smem_size");
}

std::string impurityOf(const PtxText &text) {
  if (!text.isUnderstood)
    return "has inline assembly that is not understood";
  for (const PtxStatement &statement : text.statements)
    if (std::string impurity = impurityOf(statement); !impurity.empty())
      return impurity;
  for (const StringRef name : text.specialRegisters)
    if (mayDiffer(name))
      return ("reads " + name + ", which the launch does not decide").str();
  return "";
}

bool isArithmetic(const PtxText &text) {
  const auto isOfOneThread = [](const PtxStatement &statement) {
    const bool isTest = statement.opcode == "setp" || statement.opcode == "testp";
    return isTest || (actionOf(statement) == Action::compute &&
                      !llvm::is_contained({"activemask", "bar", "barrier", "elect", "match", "mma", "movmatrix",
                                           "redux", "shfl", "vote", "wmma"},
                                          statement.opcode));
  };
  const auto isHere = [](const PtxName &name) {
    return name.kind == PtxName::Kind::operand || name.kind == PtxName::Kind::own;
  };
  return text.isUnderstood && text.specialRegisters.empty() && llvm::all_of(text.statements, isOfOneThread) &&
         llvm::all_of(text.names, isHere);
}

/// `ld.global.nc result, [address]`
bool isRead(const PtxText &text) {
  if (!text.isUnderstood || text.statements.size() != 1)
    return false;
  const PtxStatement &load = text.statements.front();
  return actionOf(load) == Action::load && load.has("nc") && !load.isConditional && load.operands.size() == 2 &&
         load.operands[1].isAddress && load.operands[1].isPlain;
}

} // namespace

AsmEffects effectsOfAsm(const llvm::CallBase &call, unsigned argument, Provenance provenance) {
  const Operands operands = operandsOf(call);
  const PtxText text = textOf(call, operands);
  if (!text.isUnderstood || argument >= operands.of.size() || operands.isMemory[operands.of[argument]])
    return anything(provenance, operands.results.size());
  Interpreter interpreter(text, operands, /*memoryIsOfMemory=*/false);
  interpreter.give(operands.of[argument], provenance);
  AsmEffects effects = interpreter.run(operands.results);
  if (text.statements.size() > 1 && llvm::any_of(text.statements, mayLeave))
    effects.exactAddress = false;
  return effects;
}

AsmEffects effectsOfAsmOnMemory(const llvm::CallBase &call) {
  const Operands operands = operandsOf(call);
  const PtxText text = textOf(call, operands);
  if (!text.isUnderstood || llvm::is_contained(operands.isMemory, true))
    return anything(ofMemory, operands.results.size());
  return Interpreter(text, operands, /*memoryIsOfMemory=*/true).run(operands.results);
}

AsmSummary summarizeAsm(const llvm::CallBase &call) {
  const Operands operands = operandsOf(call);
  const PtxText text = textOf(call, operands);
  AsmSummary summary;
  summary.impurity = impurityOf(text);
  summary.isArithmetic = isArithmetic(text) && !llvm::is_contained(operands.isMemory, true);
  summary.isRead = isRead(text);
  if (!text.isUnderstood) {
    summary.mayLeave = summary.otherMemory = summary.mayReadParameters = true;
    return summary;
  }
  for (const PtxStatement &statement : text.statements) {
    const Action action = actionOf(statement);
    summary.mayLeave |= mayLeave(statement);
    summary.otherMemory |= action == Action::unknown || action == Action::byHandle || statement.has("tensor");
    summary.mayReadParameters |= statement.hasSpace("param");
  }
  for (const PtxName &name : text.names) {
    if (name.kind != PtxName::Kind::symbol)
      continue;
    summary.otherMemory = true;
    // The compiler's own registers, and what it calls the parameters and the stack.
    const StringRef text = name.text;
    summary.mayReadParameters |= text.starts_with("%") || text.contains("_param_") || text.contains("__local_depot");
  }
  return summary;
}

} // namespace pumpgraph::annotate
