// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a probe does about a failing call of the driver.
#pragma once

#include <cuda.h>

#include <cstdio>
#include <cstdlib>

inline const char *nameOf(CUresult status) {
  const char *name = "?";
  cuGetErrorName(status, &name);
  return name;
}

/// Ends the program unless the call that did `what` succeeded.
inline void check(CUresult status, const char *what) {
  if (status == CUDA_SUCCESS)
    return;
  std::fprintf(stderr, "%s: %s\n", what, nameOf(status));
  std::exit(1);
}
