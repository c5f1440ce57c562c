/* SPDX-License-Identifier: Apache-2.0 */
/* A library whose constructor calls a function of the program. */
#include <stdlib.h>

__attribute__((constructor)) static void construct(void) {
  const char *const address = getenv("PUMPGRAPH_CONSTRUCTOR");
  if (address)
    ((void (*)(void))strtoull(address, NULL, 10))();
}
