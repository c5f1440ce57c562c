// SPDX-License-Identifier: Apache-2.0
// A library of the program's that is linked with the other one.
extern int pumpgraphFakeVideo;
__attribute__((visibility("default"))) int *pumpgraphPlayer(void) {
  return &pumpgraphFakeVideo;
}
