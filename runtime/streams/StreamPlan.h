// SPDX-License-Identifier: Apache-2.0
/// \file
/// The plan of a period: its round, the operations that are issued between calls, and the memory behind them.
#pragma once

#include "runtime/link/Link.h"
#include "runtime/lower/Residence.h"
#include "runtime/state/Compiler.h"
#include "runtime/streams/Call.h"
#include "runtime/streams/CutStates.h"
#include "runtime/streams/IssueList.h"
#include "runtime/streams/RoundTimes.h"

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
  /// Of the round whose calls are timed, by node: then it may be planned again.
  std::vector<CallClock> clocks;
  enum class Timing : std::uint8_t { Ahead, Running, Past, Over } timing = Timing::Ahead;

  // For the report.
  std::uint64_t rounds = 0;    ///< that came as planned
  std::uint64_t inForce = 0;   ///< how often it came into force
  std::uint64_t takenBack = 0; ///< because another event came
  std::uint64_t leftAside = 0; ///< because a call came that no round holds, maybe another thread's
  RoundTimes times;
  std::string lastDeviation;
  std::map<std::string, std::uint64_t> deviations; ///< how often by each event
  std::string reportText;                          ///< the planner's

  /// The same round's, planned before.
  void continueReportOf(const StreamPlan &earlier) {
    timing = Timing::Over;
    rounds = earlier.rounds;
    inForce = earlier.inForce;
    takenBack = earlier.takenBack;
    leftAside = earlier.leftAside;
    lastDeviation = earlier.lastDeviation;
    deviations = earlier.deviations;
  }
  /// Whether it is left so often that the program is faster without it. Calls that no round holds have more patience:
  /// another thread's may hit the first rounds by chance.
  bool isLeftTooOften() const {
    return (takenBack >= 3 && rounds < 2 * takenBack) || (leftAside >= 12 && rounds < leftAside);
  }
};

/// Plans a round with the compiler library, derives the operations, and has them checked: as what the driver will do by
/// the checker of captured steps, and for a program that leaves the round anywhere by checkCuts().
/// `staying`: blocks, by address, that are not moved. `link`: 0 where it is not known. Null, if everything of the round
/// fits on the device.
Expected<std::unique_ptr<StreamPlan>> planRound(const MemoryTools &tools, const Compiler &compiler, RoundScript script,
                                                const std::set<std::uint64_t> &staying, const LinkSpeed &link);

/// The time of a round of the plan with the times of `round`'s nodes.
double predictWith(const Compiler &compiler, const StreamPlan &plan, const Description &round, const LinkSpeed &link);

} // namespace pumpgraph::runtime
