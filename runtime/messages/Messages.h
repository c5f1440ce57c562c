// SPDX-License-Identifier: Apache-2.0
/// \file
/// Messages for people: gathered while a session is locked, handed on by the API once it is not.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace pumpgraph::runtime {

/// The importance of a message. The values are part of the C ABI.
enum class Level : std::uint8_t {
  Error = 1,   ///< something failed, and no call could return it
  Warning = 2, ///< a step is left as captured, a budget is exceeded
  Info = 3,    ///< a step was captured and planned, a plan was replaced
  Debug = 4    ///< the notes of reports, exchanges of plans
};

struct Message {
  Level level = Level::Info;
  std::string text; ///< one sentence or more, without a trailing period
};

/// Nobody is called here: a receiver may take locks that another thread has while it waits for the session. Any thread
/// may call.
class Messages {
public:
  void add(Level level, std::string text);
  /// Removes all, in order.
  std::vector<Message> take();
  /// Without waiting.
  bool isEmpty() const { return isEmpty_; }

private:
  std::mutex mutex_;
  std::vector<Message> messages_;
  std::atomic<bool> isEmpty_ = true;
};

} // namespace pumpgraph::runtime
