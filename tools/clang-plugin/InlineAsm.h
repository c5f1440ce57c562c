// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a piece of inline assembly does with an address, and with what memory holds.
///
/// The text is interpreted over sets of provenances: a register holds something made of the argument in question,
/// something that came out of memory, both or neither. Half of an address, or any other piece, counts as made of it.
/// Registers only gain, so the order of statements does not matter, and loops need no care. An instruction that is not
/// known here does anything with its operands, and a text that is not understood does anything at all.
#pragma once

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/InstrTypes.h"

#include <cstdint>
#include <optional>
#include <string>

namespace pumpgraph::annotate {

/// Of what a value is made, as a set.
enum Provenance : uint8_t {
  ofAddress = 1, ///< the address in question
  ofMemory = 2,  ///< something loaded from memory that it leads to, perhaps an address
};

struct AsmEffects {
  /// Through addresses made of the one in question.
  uint8_t mode = 0; ///< Mode
  bool atomic = false;
  uint64_t sizeBytes = 0;   ///< of all accesses; 0 if they differ or it is not known
  bool exactAddress = true; ///< accesses are at the address itself, on every path

  uint8_t modeThroughMemory = 0;      ///< through addresses that came out of memory
  uint8_t escaping = 0;               ///< provenances of what goes where it cannot be followed
  uint8_t unresolved = 0;             ///< provenances of what reaches something that is not understood
  bool storesMemory = false;          ///< what came out of memory goes back into some
  llvm::SmallVector<uint8_t> results; ///< provenances of each

  uint8_t result(unsigned index) const { return index < results.size() ? results[index] : 0; }
};

/// What `call`, of inline assembly, does if its argument has that provenance.
AsmEffects effectsOfAsm(const llvm::CallBase &call, unsigned argument, Provenance provenance);

/// What it does if any memory may hold something that is of memory.
AsmEffects effectsOfAsmOnMemory(const llvm::CallBase &call);

struct AsmSummary {
  bool mayLeave = false;          ///< the thread may end, or what follows may not run
  bool otherMemory = false;       ///< it may touch memory that no operand leads to
  bool mayReadParameters = false; ///< of the kernel, by their names
  std::string impurity;           ///< what shows that it is not pure (Purity.h); empty if nothing does
  bool isArithmetic = false;      ///< no more than results that are made of the thread's own operands
  bool isRead = false;            ///< one load of what nobody writes meanwhile, at the address that is its operand
};
AsmSummary summarizeAsm(const llvm::CallBase &call);

} // namespace pumpgraph::annotate
