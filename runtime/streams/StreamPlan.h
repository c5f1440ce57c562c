// SPDX-License-Identifier: Apache-2.0
/// \file
/// The plan of a period: its round, the operations that are issued between calls, and the memory behind them.
#pragma once

#include "runtime/lower/Residence.h"
#include "runtime/state/Compiler.h"
#include "runtime/streams/Call.h"
#include "runtime/streams/CutStates.h"
#include "runtime/streams/IssueList.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace pumpgraph::runtime {

struct StreamPlan {
  RoundScript script;
  Description lowered;
  IssueList list;
  std::vector<BlockId> blocks;          ///< by buffer
  std::vector<std::uint64_t> addresses; ///< of these blocks
  std::unique_ptr<Residence> residence;
  double predictedUs = 0;

  // For the report.
  std::uint64_t rounds = 0;    ///< that came as planned
  std::uint64_t inForce = 0;   ///< how often it came into force
  std::uint64_t takenBack = 0; ///< because another event came
  std::string lastDeviation;
  std::map<std::string, std::uint64_t> deviations; ///< how often by each event
  std::string reportText;                          ///< the planner's

  /// Whether it is left so often that the program is faster without it.
  bool isLeftTooOften() const { return takenBack >= 3 && rounds < 2 * takenBack; }
};

/// Plans a round with the compiler library, derives the operations, and has them checked: as what the driver will do by
/// the checker of captured steps, and for a program that leaves the round anywhere by checkCuts().
/// `staying`: blocks, by address, that are not moved. Null, if everything of the round fits on the device.
Expected<std::unique_ptr<StreamPlan>> planRound(const MemoryTools &tools, const Compiler &compiler, RoundScript script,
                                                const std::set<std::uint64_t> &staying);

} // namespace pumpgraph::runtime
