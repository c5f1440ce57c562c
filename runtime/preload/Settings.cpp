// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/Settings.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace pumpgraph::preload {

const char *nameOf(Level level) {
  constexpr const char *names[] = {"error", "warning", "info", "debug"};
  return names[static_cast<int>(level)];
}

Settings Settings::fromEnvironment() {
  const auto text = [](const char *variable) {
    const char *const value = std::getenv(variable);
    return std::string(value ? value : "");
  };
  Settings settings;
  settings.budgetBytes = std::strtoull(text(budgetVariable).c_str(), nullptr, 10);
  if (const std::string host = text(hostVariable); !host.empty())
    settings.hostBytes = std::strtoull(host.c_str(), nullptr, 10);
  settings.reportFolder = text(reportVariable);
  settings.plans = !text(planVariable).empty();
  if (const std::string patience = text(patienceVariable); !patience.empty())
    settings.patience = std::chrono::milliseconds(std::strtol(patience.c_str(), nullptr, 10));
  if (auto &[up, down, both] = settings.linkSpeed;
      std::sscanf(text(linkVariable).c_str(), "%lf,%lf,%lf", &up, &down, &both) != 3)
    settings.linkSpeed = {};
  settings.process = static_cast<int>(std::strtol(text(processVariable).c_str(), nullptr, 10));
  for (const Level level : {Level::Error, Level::Warning, Level::Info, Level::Debug})
    if (text(levelVariable) == nameOf(level))
      settings.level = level;
  return settings;
}

void write(Level level, const std::string &message) {
  const std::string line = level == Level::Info ? fmt::format("pump-graph-run: {}\n", message)
                                                : fmt::format("pump-graph-run: {}: {}\n", nameOf(level), message);
  // In one call, so that lines of several processes stay whole. Nobody is left to tell where it fails.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

} // namespace pumpgraph::preload
