/* SPDX-License-Identifier: Apache-2.0 */
/* Another library that stands before the driver. */
#define _GNU_SOURCE
#include <dlfcn.h>

typedef unsigned long word;

int cuLaunchKernel(word function, word gridX, word gridY, word gridZ, word blockX, word blockY, word blockZ,
                   word sharedBytes, word stream, word parameters, word extra) {
  static int (*real)(word, word, word, word, word, word, word, word, word, word, word);
  if (!real)
    *(void **)&real = dlsym(RTLD_NEXT, "cuLaunchKernel");
  return real(function, gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes, stream, parameters, extra);
}
