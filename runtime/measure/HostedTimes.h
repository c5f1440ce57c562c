// SPDX-License-Identifier: Apache-2.0
/// \file
/// Times of a managed step's nodes with their operands in host memory.
#pragma once

#include "runtime/state/StepState.h"

#include <optional>
#include <vector>

namespace pumpgraph::runtime {

class Measuring;

/// The planner's knowledge of a managed step beside its description.
struct Hosting {
  enum Choice : std::uint8_t { WhereNoRoom = 0, WhereFaster = 1, Always = 2 };
  std::vector<std::uint8_t> choices;     ///< by BufferIndex, a Choice
  std::vector<std::vector<Range>> stays; ///< by BufferIndex, where the choice is Always: what other steps keep there
  std::vector<std::uint8_t> rounds;      ///< by BufferIndex, where the choice is WhereFaster: of the measurement
  /// By round, and in it by captured position: with the buffers of that round in host memory, and the others on the
  /// device. Empty: nobody knows.
  std::vector<double> nodesUs;
};

/// Times a captured step node by node in a few runs. The step must be on managed memory and not rewritten.
class HostedTimes {
public:
  explicit HostedTimes(StepState &step) : step_(step), session_(step.session), driver_(*step.session.driver) {}
  HostedTimes(const HostedTimes &) = delete;
  HostedTimes &operator=(const HostedTimes &) = delete;

  /// Why the step cannot be run for it, or would run too long; empty if it can.
  std::string obstacle() const;

  /// Sets `nodesUs` and `rounds`, or returns why it cannot. Where the device has room for the whole step, there are
  /// several rounds, and its nodes also get the times that they take there, but for those that use what other steps
  /// keep in host memory. Else all is in host memory in one round. All values are as before in the end, which is an
  /// error if they are not, but what the step writes outside of the session's memory is written.
  Expected<std::string> measure(Hosting &hosting);
  /// Whether nodes got the times that they take on the device.
  bool hasDeviceTimes() const { return hasDeviceTimes_; }

private:
  using Round = std::optional<std::uint8_t>; ///< none: all of them

  Status run(Measuring &measuring, Hosting &hosting);
  Status runOnDevice(Measuring &measuring, const Hosting &hosting);
  Status runRound(Measuring &measuring, Hosting &hosting, std::uint8_t round);
  /// Whether it reaches host memory wherever the rest of the step is.
  static bool usesWhatStays(const Node &node, const Hosting &hosting);
  template <typename Visit> Status forEachBlock(const Hosting &hosting, Round round, Visit visit) const;
  Status stayInHostMemory(const Hosting &hosting, std::uint8_t round) const;
  Status stayAnywhere(const Hosting &hosting, std::uint8_t round) const;
  bool fitsDevice() const;

  StepState &step_;
  SessionState &session_;
  const Driver &driver_;
  bool hasDeviceTimes_ = false;
};

} // namespace pumpgraph::runtime
