// SPDX-License-Identifier: Apache-2.0
/// \file
/// A loop in a program that is linked with a library which reaches memory past the driver's calls.
#include "test/preload/Loop.h"

extern "C" int pumpgraphFakeVideo;

int main() {
  openBy("proc");
  Loop loop(4 * mebibyte);
  for (int i = 0; i < 40; ++i)
    loop.round(0.5F);
  loop.print();
  return pumpgraphFakeVideo - 1;
}
