// SPDX-License-Identifier: Apache-2.0
/// \file
/// The program's calls that work on the device, in order, and the period in them.
#pragma once

#include "runtime/driver/Error.h"
#include "runtime/preload/Memory.h"
#include "runtime/streams/Period.h"
#include "runtime/streams/Round.h"

#include <cuda.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

namespace pumpgraph::preload {

/// A stream as a call of the driver takes it.
struct CallStream {
  CUstream handle = nullptr;
  bool isOfThread = false; ///< the default one of the calling thread
};

/// The calls of all threads in the order in which they came back from the driver.
///
/// Of a kernel's parameters only words that lead into an allocation belong to its identity: numbers change from round
/// to round, and each launch keeps its own. Not thread-safe.
class CallLog {
public:
  void resolveBy(const Memory *memory) { memory_ = memory; }
  /// Whether one round of each period is written down.
  void describe(bool on) { describes_ = on; }

  // A call is begun, gets its parts, and ends.

  /// `name`: of the kernel, or of the driver's function.
  void begin(NodeKind kind, std::uint64_t function, const CallStream &stream, const char *name);
  void value(std::uint64_t number) { identity_.add(number); }
  /// If it leads into an allocation, the call may read and write all of that.
  void word(std::uint64_t word, std::int32_t parameter = unknownParameter);
  /// The words of a kernel's parameter.
  void words(const void *data, std::size_t bytes, std::int32_t parameter);
  /// These bytes are read, or overwritten.
  void span(std::uint64_t address, std::uint64_t bytes, Mode mode);
  void end();

  void records(CUevent event, const CallStream &stream);
  /// Part of the call that was begun: the distance to the record.
  void waits(const CallStream &stream, CUevent event);

  /// The memory of allocations, as far as it is a block of its own.
  void allocated(CUdeviceptr address);
  void freed(CUdeviceptr address);

  /// The program does something that no round of calls holds: a capture.
  void interrupt();

  std::uint64_t calls() const { return detector_.calls(); }
  /// "12,304 calls on the device; a period of 50 calls, 200 rounds of it, from call 128 on"
  std::string summary() const;
  /// Each described period as IR, which pump-graph-opt reads.
  runtime::Status writeReport(const std::string &folder);

private:
  void goOn();
  void endRound();
  runtime::RoundStream roundStream(const CallStream &stream) const;

  const Memory *memory_ = nullptr;
  bool describes_ = false;
  runtime::IdentityBuilder identity_;
  runtime::PeriodDetector detector_;
  std::unordered_map<CUevent, std::uint64_t> lastRecord_;
  std::optional<runtime::Round> round_;         ///< of the period in force, while it is written down
  std::uint32_t number_ = 0;                    ///< of its period
  std::size_t missing_ = 0;                     ///< calls of it
  bool hasBegun_ = false;                       ///< by a call or an allocation
  std::map<std::uint32_t, Description> rounds_; ///< by Period::number
};

} // namespace pumpgraph::preload
