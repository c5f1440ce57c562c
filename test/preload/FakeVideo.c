// SPDX-License-Identifier: Apache-2.0
// Has the name of NVIDIA's library, and nothing else of it.
__attribute__((visibility("default"))) int pumpgraphFakeVideo = 1;
