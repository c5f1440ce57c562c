// SPDX-License-Identifier: Apache-2.0
/// \file
/// Memory that only one thread sees: a local variable, or a struct parameter. Addresses pass through it on their way.
#pragma once

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"

#include <cstdint>
#include <memory>
#include <optional>

namespace pumpgraph::annotate {

/// Where in an object, in bytes; nothing: anywhere.
using Place = std::optional<int64_t>;

/// Every use of an object's address, in the functions that it is passed to as well.
struct LocalObject {
  struct Load {
    llvm::LoadInst *instruction;
    Place place;
  };
  struct Copy {
    llvm::Value *to;
    Place place; ///< in this object, of the first byte copied
    llvm::Instruction *instruction;
  };

  llvm::SmallVector<Load, 8> loads;
  llvm::SmallVector<Copy, 2> copies; ///< out of the object
  bool isWritten = false;            ///< after it was made
  bool escapes = false;              ///< its address goes where it cannot be followed
  bool hasOtherNames = false;        ///< its address is passed to functions, or one of several that a value may be

  /// Whether a load of `load` may hold any of the `bytes` at `place`.
  static bool overlaps(const Load &load, Place place, int64_t bytes, const llvm::DataLayout &layout);
};

/// The object that `address` points into, an alloca or a struct passed by value, and where; null if it is none.
struct LocalAddress {
  llvm::Value *object = nullptr;
  Place place;
};
LocalAddress findLocalObject(llvm::Value *address, const llvm::DataLayout &layout);

/// How large the object is; nothing: it is not known.
std::optional<int64_t> localObjectBytes(const llvm::Value *object, const llvm::DataLayout &layout);

/// Follows each object once.
class LocalObjects {
public:
  const LocalObject &of(llvm::Value *object);

private:
  llvm::DenseMap<llvm::Value *, std::unique_ptr<LocalObject>> objects_;
};

/// The function that `call` is sure to run, if its body is here.
llvm::Function *bodyOf(const llvm::CallBase &call);

} // namespace pumpgraph::annotate
