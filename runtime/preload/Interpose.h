// SPDX-License-Identifier: Apache-2.0
/// \file
/// The dynamic loader and the driver past the shim's own functions.
#pragma once

#include <string>

namespace pumpgraph::preload {

/// The loader's dlsym(). For RTLD_NEXT the caller is this library.
void *realDlsym(void *handle, const char *name);
/// libcuda.so.1; null if it cannot be loaded. Never closed, so its functions stay whatever a program closes.
void *libcuda();
/// Another library ahead of the driver with functions of its names; empty if there is none.
std::string otherPreload();

} // namespace pumpgraph::preload
