// SPDX-License-Identifier: Apache-2.0
/// \file
/// Compiles with nvcc and not with clang.
#ifdef __clang__
#error not for clang
#endif
__global__ void kernel(float *out) {
  *out = 1;
}
int main() {}
