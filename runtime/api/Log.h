// SPDX-License-Identifier: Apache-2.0
/// \file
/// Where the messages of the process go: to the program's callback, or to stderr.
#pragma once

#include "pumpgraph/pumpgraph.h"
#include "runtime/messages/Messages.h"

namespace pumpgraph::runtime {

/// Without a callback, messages up to the level that PUMPGRAPH_LOG names go to stderr: error, warning (without the
/// variable), info, debug, or none. No lock is held while a callback runs.
class Log {
public:
  static Log &ofProcess();

  /// `callback` may be null: stderr again.
  void setCallback(std::int32_t level, pumpgraph_message_callback callback, void *user);
  /// At the end of a call, once no session is locked.
  void deliver(Messages &messages);
  /// From where a callback must not be called, such as a destructor of the program's: to stderr at once, to a callback
  /// with the next delivery.
  void tellLater(Level level, std::string text);

private:
  Log();
  void tell(const Message &message);

  std::mutex mutex_;
  std::int32_t level_;
  pumpgraph_message_callback callback_ = nullptr;
  void *user_ = nullptr;
  Messages later_;
};

} // namespace pumpgraph::runtime
