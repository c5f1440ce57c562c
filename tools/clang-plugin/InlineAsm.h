// SPDX-License-Identifier: Apache-2.0
/// \file
/// Inline assembly as CUDA's headers have it: what a piece of PTX text does with an address it is given.
#pragma once

#include "llvm/IR/InstrTypes.h"

#include <cstdint>

namespace pumpgraph::annotate {

struct AsmEffects {
  uint8_t mode = 0; ///< Mode
  bool atomic = false;
  uint64_t sizeBytes = 0;      ///< of all accesses; 0 if they differ or it is not known
  bool exactAddress = true;    ///< accesses are at the address itself, on every path
  bool escapes = false;        ///< the address is stored
  bool unresolved = false;     ///< an instruction that is not known here
  bool reachesResults = false; ///< a result is an address made of it
};

/// What `call`, of inline assembly, does with the address in its argument.
AsmEffects effectsOfAsm(const llvm::CallBase &call, unsigned argument);

/// Whether control may leave: the thread may end, or what follows may not run.
bool mayLeave(const llvm::CallBase &call);

/// Whether it reaches memory through a texture, a surface or a tensor map.
bool readsThroughHandles(const llvm::CallBase &call);

} // namespace pumpgraph::annotate
