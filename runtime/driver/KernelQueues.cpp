// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver/KernelQueues.h"

#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

namespace pumpgraph::runtime {

KernelQueues settleKernelQueues(QueueWish wish, bool driverIsInitialised) {
  if (wish == QueueWish::Few && !driverIsInitialised)
    setenv(KernelQueues::variable, std::to_string(KernelQueues::few).c_str(), /*overwrite=*/0);
  KernelQueues queues;
  const char *const given = std::getenv(KernelQueues::variable);
  const std::string_view text = given ? given : "";
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error == std::errc() && end == text.data() + text.size() && count > 0)
    queues.count = count;
  return queues;
}

} // namespace pumpgraph::runtime
