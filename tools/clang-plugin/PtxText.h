// SPDX-License-Identifier: Apache-2.0
/// \file
/// A piece of PTX text, as inline assembly has it, as statements. It says which names stand where; what they mean is
/// InlineAsm's.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>
#include <vector>

namespace pumpgraph::annotate {

struct PtxName {
  enum class Kind : uint8_t {
    operand, ///< of the assembly
    own,     ///< declared in the text, inside braces
    kept,    ///< declared in the text, outside of braces: texts that follow may name it
    symbol,  ///< declared elsewhere: a variable, a parameter, a register of another text
  };
  Kind kind;
  std::string text; ///< empty for an operand
};

struct PtxOperand {
  llvm::SmallVector<unsigned, 2> names; ///< indices into PtxText::names, as often as they stand there
  bool isAddress = false;               ///< in brackets
  bool isPlain = false;                 ///< one name, in brackets or not, and nothing else
};

/// `@guard opcode.modifier.modifier operand, operand;`
struct PtxStatement {
  std::string opcode;
  llvm::SmallVector<std::string, 6> modifiers; ///< in order
  llvm::SmallVector<PtxOperand, 4> operands;
  bool isConditional = false;

  bool has(llvm::StringRef modifier) const { return llvm::is_contained(modifiers, modifier); }
  /// `shared::cta` too, for `shared`.
  bool hasSpace(llvm::StringRef space) const {
    return llvm::any_of(modifiers, [&](llvm::StringRef modifier) { return modifier.split("::").first == space; });
  }
};

struct PtxText {
  std::vector<PtxName> names; ///< the assembly's operands first
  std::vector<PtxStatement> statements;
  std::vector<std::string> specialRegisters; ///< that operands name, such as `%laneid`, and constants; no names
  bool isUnderstood = true;                  ///< otherwise it may do anything, whatever the statements say
};

/// What stands for an operand of the assembly: a register, or a number in its place.
using PtxImmediates = llvm::ArrayRef<std::optional<int64_t>>;

/// Reads `text` as LLVM keeps it, with `$0` for the first operand.
PtxText parsePtx(llvm::StringRef text, PtxImmediates operands);

} // namespace pumpgraph::annotate
