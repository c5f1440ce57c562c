// SPDX-License-Identifier: Apache-2.0
/// \file
/// Follows an address from a kernel's parameter to every instruction that may use it.
#pragma once

#include "Accesses.h"
#include "LocalObject.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

#include <string>
#include <vector>

namespace pumpgraph::annotate {

/// One instruction that reads or writes what the slot's address leads to.
struct Access {
  llvm::Instruction *instruction;
  llvm::Value *address;
  uint8_t mode;
  llvm::Value *length = nullptr; ///< in bytes, where it is no constant
  uint64_t sizeBytes = 0;        ///< 0: not known
  bool isExact = true;           ///< at `address` itself whenever the instruction runs
};

/// Something to tell the author of a kernel, at the place in the source.
struct Finding {
  llvm::Instruction *instruction;
  std::string text;
};

struct SlotUses : SlotModes {
  /// Values that are the slot's address and nothing else, so that a distance from them is an offset into the buffer.
  llvm::DenseSet<llvm::Value *> roots;
  std::vector<Access> accesses; ///< all of them, unless it escapes, holds pointers or is unresolved
  std::vector<Finding> findings;

  bool isFullyKnown() const { return !escapes && !holdsPointers && !unresolved; }
};

/// Whether it calls a function of the device's runtime that touches no memory of the program, and returns unless it
/// ends the kernel.
bool isHarmless(const llvm::CallBase &call);

/// A kernel with the functions it may call that are here, and where they may take something out of memory that is
/// neither one local object's alone nor surely what a parameter leads to: shared memory, variables, whatever a pointer
/// leads to that was computed.
struct KernelCode {
  KernelCode(llvm::SetVector<llvm::Function *> functions, LocalObjects &localObjects);

  llvm::SetVector<llvm::Function *> functions; ///< the kernel first
  std::vector<llvm::Instruction *> otherReads; ///< loads, atomics, copies, calls
  std::vector<llvm::Value *> sharedObjects;    ///< local ones that a pointer may lead to which may also lead elsewhere
};

/// The uses of the addresses in one parameter's slots. `reached` collects the values that are addresses made of them.
SlotUses followSlot(const Slot &slot, const KernelCode &code, LocalObjects &objects,
                    llvm::DenseSet<llvm::Value *> &reached);

} // namespace pumpgraph::annotate
