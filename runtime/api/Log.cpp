// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/Log.h"

#include "pumpgraph/graph/Printable.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace pumpgraph::runtime {
namespace {

constexpr std::array<std::string_view, 5> names{"none", "error", "warning", "info", "debug"};

/// An unknown word is as no word: nobody could be told.
std::int32_t levelOfEnvironment() {
  const char *wanted = std::getenv("PUMPGRAPH_LOG");
  for (std::size_t level = 0; wanted && level < names.size(); ++level)
    if (names[level] == wanted)
      return static_cast<std::int32_t>(level);
  return PUMPGRAPH_MESSAGE_WARNING;
}

} // namespace

Log::Log() : level_(levelOfEnvironment()) {}

Log &Log::ofProcess() {
  static Log &log = *new Log; // threads may outlive static objects
  return log;
}

void Log::setCallback(std::int32_t level, pumpgraph_message_callback callback, void *user) {
  const std::lock_guard lock(mutex_);
  level_ = callback ? level : levelOfEnvironment();
  callback_ = callback;
  user_ = user;
}

void Log::deliver(Messages &messages) {
  for (Messages *source : {&later_, &messages})
    if (!source->isEmpty())
      for (const Message &message : source->take())
        tell(message);
}

void Log::tellLater(Level level, std::string text) {
  std::unique_lock lock(mutex_);
  const bool hasCallback = callback_ != nullptr;
  lock.unlock();
  if (hasCallback)
    later_.add(level, std::move(text));
  else
    tell({level, std::move(text)});
}

void Log::tell(const Message &message) {
  std::unique_lock lock(mutex_);
  const auto callback = callback_;
  void *user = user_;
  const bool isWanted = static_cast<std::int32_t>(message.level) <= level_;
  lock.unlock();
  if (!isWanted)
    return;
  const std::string text = printable(message.text);
  if (callback)
    callback(static_cast<std::int32_t>(message.level), text.c_str(), user);
  else
    std::fputs(fmt::format("pumpgraph: {}: {}\n", names[static_cast<std::size_t>(message.level)], text).c_str(),
               stderr);
}

} // namespace pumpgraph::runtime
