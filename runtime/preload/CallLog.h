// SPDX-License-Identifier: Apache-2.0
/// \file
/// The program's calls that work on the device, in order, and the period in them.
#pragma once

#include "runtime/driver/Error.h"
#include "runtime/preload/Memory.h"
#include "runtime/streams/Period.h"

#include <cuda.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace pumpgraph::preload {

/// A call that works on the device, as it is compared with others and described.
struct Call {
  const char *name = ""; ///< of the kernel, or of the driver's function
  runtime::IdentityBuilder identity;
  std::vector<Extent> operands; ///< allocations that its words lead into, each once
};

/// The calls of all threads in the order in which the driver got them.
///
/// Of a kernel's parameters only words that lead into an allocation belong to its identity: numbers change from round
/// to round, and each launch keeps its own. Not thread-safe.
class CallLog {
public:
  void resolveBy(const Memory *memory) { memory_ = memory; }
  /// Whether rounds are described for a report, too.
  void describe(bool on) { describes_ = on; }

  // A call is begun, gets its parts, and ends.
  void begin(std::uint64_t function, CUstream stream, const char *name);
  void value(std::uint64_t number) { call_.identity.add(number); }
  /// Part of the identity if it leads into an allocation.
  void word(std::uint64_t word);
  void words(const void *data, std::size_t bytes);
  void end();

  /// The parts of calls on events: the record that a wait waits for, counted back from the wait.
  void records(CUevent event) { lastRecord_[event] = detector_.calls(); }
  void waits(CUevent event);

  /// The program does something that no round of calls holds: a capture.
  void interrupt() { detector_.interrupt(); }

  std::uint64_t calls() const { return detector_.calls(); }
  /// "12,304 calls on the device; a period of 50 calls, 200 rounds of it, from call 128 on"
  std::string summary() const;
  /// Each known period as a trace that pump-graph-opt reads.
  runtime::Status writeReport(const std::string &folder) const;

private:
  /// A call of a described round.
  struct Described {
    std::string name;
    std::vector<Extent> operands;
  };

  const Memory *memory_ = nullptr;
  bool describes_ = false;
  Call call_;
  runtime::PeriodDetector detector_;
  std::unordered_map<CUevent, std::uint64_t> lastRecord_;
  std::vector<Described> recent_;                                    ///< a ring; empty unless rounds are described
  std::unordered_map<std::uint32_t, std::vector<Described>> rounds_; ///< by Period::number
};

} // namespace pumpgraph::preload
