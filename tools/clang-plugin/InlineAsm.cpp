// SPDX-License-Identifier: Apache-2.0
#include "InlineAsm.h"

#include "Accesses.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/Twine.h"
#include "llvm/IR/InlineAsm.h"

#include <string>

namespace pumpgraph::annotate {
namespace {

using llvm::SmallVector;
using llvm::StringRef;
using Strings = SmallVector<StringRef, 8>;

struct Statement {
  StringRef mnemonic; ///< with its modifiers
  Strings operands;
  bool isConditional = false;

  StringRef opcode() const { return mnemonic.split('.').first; }
  bool has(StringRef modifier) const {
    Strings parts;
    mnemonic.split(parts, '.');
    return llvm::is_contained(parts, modifier);
  }
};

/// The text without comments, one line.
std::string withoutComments(StringRef text) {
  std::string result;
  while (!text.empty()) {
    if (text.starts_with("//")) {
      text = text.drop_until([](char c) { return c == '\n'; });
    } else if (text.starts_with("/*")) {
      const size_t end = text.find("*/", 2);
      text = end == StringRef::npos ? StringRef() : text.substr(end + 2);
      result += ' ';
    } else {
      result += text.front() == '\n' || text.front() == '\t' || text.front() == '\r' ? ' ' : text.front();
      text = text.drop_front();
    }
  }
  return result;
}

/// Splits at the commas outside brackets and braces.
Strings splitOperands(StringRef text) {
  Strings operands;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      if (const StringRef operand = text.slice(begin, i).trim(); !operand.empty())
        operands.push_back(operand);
      begin = i + 1;
    } else if (StringRef("[{(").contains(text[i])) {
      ++depth;
    } else if (StringRef("]})").contains(text[i])) {
      --depth;
    }
  }
  return operands;
}

/// `DONE: { st...` without what stands before the instruction. Two colons are a modifier's.
StringRef withoutLabels(StringRef line) {
  for (;;) {
    const StringRef name = line.take_while([](char c) { return c != ' ' && c != ':'; });
    const StringRef rest = line.drop_front(name.size());
    if (name.empty() || !rest.starts_with(":") || rest.starts_with("::"))
      return line;
    line = rest.drop_front().ltrim(" {}");
  }
}

SmallVector<Statement> parse(StringRef text) {
  SmallVector<Statement> statements;
  while (!text.empty()) {
    StringRef line;
    std::tie(line, text) = text.split(';');
    line = withoutLabels(line.trim(" {}"));
    Statement statement;
    if (line.starts_with("@")) {
      statement.isConditional = true;
      line = line.drop_until([](char c) { return c == ' '; }).ltrim();
    }
    if (line.empty())
      continue;
    statement.mnemonic = line.take_until([](char c) { return c == ' '; });
    // Braces were trimmed away with the block's, so a trailing list has none; it does not matter to the commas.
    statement.operands = splitOperands(line.drop_front(statement.mnemonic.size()));
    statements.push_back(std::move(statement));
  }
  return statements;
}

bool isNameCharacter(char c) {
  return llvm::isAlnum(c) || c == '_' || c == '$' || c == '%';
}

/// The registers that `operand` names; ${1:x} counts as $1.
Strings registersOf(StringRef operand) {
  Strings names;
  while (!operand.empty()) {
    operand = operand.drop_until(isNameCharacter);
    StringRef name = operand.take_while(isNameCharacter);
    operand = operand.drop_front(name.size());
    if (name == "$" && operand.consume_front("{")) {
      const StringRef number = operand.take_while(llvm::isDigit);
      names.push_back(StringRef(number.data() - 2, number.size() + 2)); // "${1"
      operand = operand.drop_until([](char c) { return c == '}'; });
    } else if (!name.empty()) {
      names.push_back(name);
    }
  }
  return names;
}

/// The registers that hold the address or something made of it.
class Tainted {
public:
  void add(unsigned operand) {
    names_.insert(nameOf(operand));
    names_.insert(("${" + llvm::Twine(operand)).str());
  }
  void addAll(StringRef operand) {
    for (const StringRef name : registersOf(operand))
      if (!StringRef("$").starts_with(name))
        names_.insert(name);
  }
  bool in(StringRef operand) const {
    return llvm::any_of(registersOf(operand), [&](StringRef name) { return names_.contains(name); });
  }
  bool holds(unsigned operand) const { return names_.contains(nameOf(operand)); }
  size_t size() const { return names_.size(); }

private:
  static std::string nameOf(unsigned operand) { return ("$" + llvm::Twine(operand)).str(); }

  llvm::StringSet<> names_;
};

bool isOneOf(StringRef opcode, llvm::ArrayRef<StringRef> names) {
  return llvm::is_contained(names, opcode);
}

/// Bytes that one access moves, by the type in its mnemonic; 0 if there is none.
uint64_t accessBytes(const Statement &statement) {
  Strings parts;
  statement.mnemonic.split(parts, '.');
  uint64_t bytes = 0, lanes = 1;
  for (StringRef part : parts) {
    unsigned number = 0;
    if (part.size() == 2 && part.consume_front("v") && !part.getAsInteger(10, number)) {
      lanes = number;
      continue;
    }
    if (part.starts_with("bf16"))
      part = part.drop_front();
    const bool isPair = part.consume_back("x2");
    if (!part.empty() && StringRef("busf").contains(part.front()) && !part.drop_front().getAsInteger(10, number))
      bytes = number / 8 * (isPair ? 2 : 1);
  }
  return bytes * lanes;
}

bool isAddress(StringRef operand) {
  return operand.starts_with("[");
}

class Effects {
public:
  explicit Effects(Tainted &tainted) : tainted_(tainted) {}

  void visit(const Statement &statement) {
    const Strings &operands = statement.operands;
    if (statement.mnemonic.starts_with(".") ||
        llvm::none_of(operands, [&](StringRef operand) { return tainted_.in(operand); }))
      return;
    const StringRef opcode = statement.opcode();
    if (opcode == "cp")
      return visitCopy(statement);
    if (isOneOf(opcode, {"ld", "ldu", "ldmatrix"}))
      return access(statement, reads);
    if (opcode == "st")
      return visitStore(statement, writes);
    if (isOneOf(opcode, {"atom", "red", "multimem"}))
      return visitStore(statement, readsAndWrites);
    if (isOneOf(opcode, {"mov", "cvta", "cvt", "add", "sub", "and", "or", "xor", "shl", "shr", "mad", "mul", "selp"}))
      return compute(statement);
    // No data comes or goes. A predicate that is computed from an address is not one.
    if (isOneOf(opcode, {"setp", "isspacep", "prefetch", "prefetchu", "applypriority", "createpolicy"}))
      return;
    effects.unresolved = true;
  }

  AsmEffects effects;

private:
  void access(const Statement &statement, uint8_t mode, uint64_t bytes) {
    effects.sizeBytes = effects.mode == 0 || effects.sizeBytes == bytes ? bytes : 0;
    effects.mode |= mode;
    effects.exactAddress = effects.exactAddress && !statement.isConditional && !isMoved_ &&
                           llvm::none_of(statement.operands,
                                         [](StringRef operand) { return isAddress(operand) && operand.contains('+'); });
  }
  void access(const Statement &statement, uint8_t mode) { access(statement, mode, accessBytes(statement)); }

  /// `st [address], value` and `atom result, [address], values`.
  void visitStore(const Statement &statement, uint8_t mode) {
    for (const StringRef operand : statement.operands) {
      if (!tainted_.in(operand))
        continue;
      if (isAddress(operand)) {
        const bool isBulk = statement.has("bulk") || statement.has("async");
        access(statement, mode, isBulk ? 0 : accessBytes(statement));
        effects.atomic |= mode == readsAndWrites;
      } else {
        effects.escapes = true;
      }
    }
  }

  /// `cp.async... [to], [from], ...`
  void visitCopy(const Statement &statement) {
    if (statement.has("tensor") || statement.has("reduce")) {
      effects.unresolved |= statement.has("tensor");
      return access(statement, readsAndWrites, 0);
    }
    if (statement.has("prefetch"))
      return;
    unsigned address = 0;
    for (const StringRef operand : statement.operands) {
      if (isAddress(operand) && tainted_.in(operand)) {
        // A barrier behind the two is in shared memory.
        effects.unresolved |= address > 1;
        access(statement, address == 0 ? writes : reads, 0);
      } else if (tainted_.in(operand)) {
        effects.unresolved = true;
      }
      address += isAddress(operand);
    }
  }

  void compute(const Statement &statement) {
    if (!statement.operands.empty() &&
        llvm::any_of(llvm::drop_begin(statement.operands), [&](StringRef operand) { return tainted_.in(operand); })) {
      tainted_.addAll(statement.operands.front());
      isMoved_ = isMoved_ || !isOneOf(statement.opcode(), {"mov", "cvta"});
    }
  }

  Tainted &tainted_;
  bool isMoved_ = false;
};

SmallVector<Statement> statementsOf(const llvm::CallBase &call, std::string &text) {
  text = withoutComments(llvm::cast<llvm::InlineAsm>(call.getCalledOperand())->getAsmString());
  return parse(text);
}

} // namespace

AsmEffects effectsOfAsm(const llvm::CallBase &call, unsigned argument) {
  const auto *const assembly = llvm::cast<llvm::InlineAsm>(call.getCalledOperand());
  Tainted tainted;
  SmallVector<unsigned> results;
  bool isIndirect = false;
  unsigned operand = 0, nextArgument = 0;
  for (const llvm::InlineAsm::ConstraintInfo &constraint : assembly->ParseConstraints()) {
    if (constraint.Type == llvm::InlineAsm::isClobber || constraint.Type == llvm::InlineAsm::isLabel)
      continue;
    if (constraint.Type == llvm::InlineAsm::isOutput && !constraint.isIndirect)
      results.push_back(operand);
    if (constraint.hasArg() && nextArgument++ == argument) {
      isIndirect = constraint.isIndirect;
      tainted.add(operand);
      for (const std::string &code : constraint.Codes)
        if (unsigned tied = 0; !StringRef(code).getAsInteger(10, tied))
          tainted.add(tied);
    }
    ++operand;
  }

  std::string text;
  const SmallVector<Statement> statements = statementsOf(call, text);
  Effects effects(tainted);
  // A loop may carry an address back to a statement before the one that made it.
  for (size_t before = 0; before != tainted.size();) {
    before = tainted.size();
    for (const Statement &statement : statements)
      effects.visit(statement);
  }
  effects.effects.unresolved |= isIndirect;
  for (const unsigned result : results)
    effects.effects.reachesResults |= tainted.holds(result);
  if (statements.size() > 1 && mayLeave(call))
    effects.effects.exactAddress = false;
  return effects.effects;
}

bool mayLeave(const llvm::CallBase &call) {
  std::string text;
  return llvm::any_of(statementsOf(call, text), [](const Statement &statement) {
    return isOneOf(statement.opcode(), {"exit", "ret", "bra", "brx", "call", "trap"});
  });
}

bool readsThroughHandles(const llvm::CallBase &call) {
  std::string text;
  return llvm::any_of(statementsOf(call, text), [](const Statement &statement) {
    return isOneOf(statement.opcode(), {"tex", "tld4", "suld", "sust", "sured"}) || statement.has("tensor");
  });
}

} // namespace pumpgraph::annotate
