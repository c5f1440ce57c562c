// SPDX-License-Identifier: Apache-2.0
// The C++ header from outside.
#include <pumpgraph/pumpgraph.hpp>

#include <cstdio>

int main() {
  using namespace pumpgraph::literals;
  std::printf("%s\n", pumpgraph_version());
  return 0;
}
