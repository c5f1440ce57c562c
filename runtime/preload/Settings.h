// SPDX-License-Identifier: Apache-2.0
/// \file
/// What pump-graph-run tells the shim, by the environment, and the lines that the shim says.
#pragma once

#include <fmt/core.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace pumpgraph::preload {

enum class Level : std::uint8_t { Error, Warning, Info, Debug };

struct Settings {
  static constexpr const char *budgetVariable = "PUMPGRAPH_RUN_BUDGET";
  static constexpr const char *hostVariable = "PUMPGRAPH_RUN_HOST";
  static constexpr const char *reportVariable = "PUMPGRAPH_RUN_REPORT";
  static constexpr const char *planVariable = "PUMPGRAPH_RUN_PLAN";
  static constexpr const char *patienceVariable = "PUMPGRAPH_RUN_PATIENCE";
  static constexpr const char *linkVariable = "PUMPGRAPH_RUN_LINK";
  static constexpr const char *processVariable = "PUMPGRAPH_RUN_PROCESS";
  static constexpr const char *levelVariable = "PUMPGRAPH_LOG";

  std::uint64_t budgetBytes = 0; ///< 0: not started by pump-graph-run
  /// Of host memory for allocations beyond the budget.
  std::uint64_t hostBytes = UINT64_MAX;
  std::string reportFolder;                  ///< empty: none
  bool plans = false;                        ///< rounds of the program's calls
  std::chrono::milliseconds patience{60000}; ///< of plans, for the device to be idle
  std::array<double, 3> linkSpeed{};         ///< GB/s up, down and in both directions; 0: it is measured
  int process = 0;                           ///< the program's own; others are its children
  Level level = Level::Info;

  static Settings fromEnvironment();
};

/// One line on standard error: "pump-graph-run: warning: ...".
void write(Level level, const std::string &message);

/// "error", "warning", "info" or "debug".
const char *nameOf(Level level);

} // namespace pumpgraph::preload
