// SPDX-License-Identifier: Apache-2.0
/// \file
/// LLVM's support library calls arc4random(), which glibc has from 2.36 on. What is linked with this one, hidden, loads
/// with older ones.
#include <cstdint>
#include <sys/random.h>

extern "C" __attribute__((visibility("hidden"))) std::uint32_t arc4random() noexcept {
  std::uint32_t value = 0;
  // It picks names of temporary files, nothing that has to be secret: a short read does no harm.
  static_cast<void>(!getrandom(&value, sizeof value, 0));
  return value;
}
