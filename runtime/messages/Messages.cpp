// SPDX-License-Identifier: Apache-2.0
#include "runtime/messages/Messages.h"

#include <utility>

namespace pumpgraph::runtime {

void Messages::add(Level level, std::string text) {
  const std::lock_guard lock(mutex_);
  messages_.push_back({level, std::move(text)});
  isEmpty_ = false;
}

std::vector<Message> Messages::take() {
  const std::lock_guard lock(mutex_);
  isEmpty_ = true;
  return std::exchange(messages_, {});
}

} // namespace pumpgraph::runtime
