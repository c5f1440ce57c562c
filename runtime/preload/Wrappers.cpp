// SPDX-License-Identifier: Apache-2.0
/// \file
/// The driver's functions as the shim exports them: each leads to its hook. The compiler compares every signature of
/// cudaTypedefs.h with that of the symbol which the table gives it.
#include "runtime/preload/Hooks.h"

#include <type_traits>

using namespace pumpgraph::preload;

extern "C" {
#include "runtime/preload/Wrappers.inc"
}
