// SPDX-License-Identifier: Apache-2.0
/// \file
/// The program's calls that work on the device, in order, and the period in them.
#pragma once

#include "runtime/driver/Error.h"
#include "runtime/preload/Memory.h"
#include "runtime/streams/Call.h"
#include "runtime/streams/Period.h"

#include <cuda.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

namespace pumpgraph::preload {

/// The calls of all threads in the order in which they came back from the driver. Not thread-safe.
class CallLog {
public:
  void resolveBy(const Memory *memory) { memory_ = memory; }
  /// Whether one round of each period is written down.
  void describe(bool on) { describes_ = on; }

  /// Whether a round is written down, so that its calls are timed.
  bool isWriting() const { return writing_.has_value(); }
  /// A call or an allocation is next: memory that is freed behind the last call of a round belongs to that round.
  void goOn();
  /// Part of a wait: the distance to the record, and its stream.
  void addRecord(runtime::Call &wait) const;
  void add(const runtime::Call &call);
  /// A record is about to be issued, beside calls of other threads: those in the log are ahead of it. Until it has been
  /// issued nobody knows which record a wait for the event follows.
  struct Recording {
    CUevent event = nullptr;
    std::uint64_t place = 0, stream = 0;
    std::uint64_t writing = 0; ///< the number of the round that is written down; 0: none
    runtime::Round::Nodes before;
  };
  Recording recordBegins(CUevent event, const runtime::CallStream &stream);
  void recordEnds(Recording recording, bool isRecorded);
  /// The event is destroyed: its handle may come back.
  void forgets(CUevent event);
  /// Memory of allocations. `stream`: the heap's key.
  void allocated(CUdeviceptr address, std::uint64_t bytes, CUstream stream);
  void freed(CUdeviceptr address, CUstream stream);
  /// The program does something that no round of calls holds: a capture.
  void interrupt();

  /// The round that goOn() has completed; once.
  std::optional<runtime::RoundScript> takeDescribed() { return std::exchange(described_, std::nullopt); }
  /// Periods that were written down are so once more: the one in force from now on, others when they return.
  void describeAgain();
  /// What the last round used may be gone.
  void dropDescribed() { described_.reset(); }
  /// The number of the period in force and the place of the next call in it; 0: none.
  std::pair<std::uint32_t, std::uint64_t> place() const;

  std::uint64_t calls() const { return detector_.calls(); }
  /// "12,304 calls on the device; a period of 50 calls, 200 rounds of it, from call 128 on"
  std::string summary() const;
  /// Each described period as IR, which pump-graph-opt reads.
  runtime::Status writeReport(const std::string &folder);

private:
  /// A round while it is written down.
  struct Writing {
    std::uint64_t number = 0;
    runtime::Round round;
    runtime::RoundScript script;
    std::size_t missing = 0; ///< calls of it
    bool hasBegun = false;   ///< by a call or an allocation
  };
  struct Record {
    std::uint64_t place = 0, stream = 0;
  };
  void write(const runtime::Call &call);
  void beginWriting();
  void endRound();

  const Memory *memory_ = nullptr;
  bool describes_ = false;
  runtime::PeriodDetector detector_;
  std::unordered_map<CUevent, Record> lastRecord_;
  /// Records of an event that are under way. Of several nobody knows which one comes last.
  struct UnderWay {
    unsigned count = 0;
    bool isAlone = true;
  };
  std::unordered_map<CUevent, UnderWay> underWay_;
  std::optional<Writing> writing_; ///< of the period in force
  std::uint64_t lastWriting_ = 0;
  std::optional<runtime::RoundScript> described_;
  std::set<std::uint32_t> written_;             ///< numbers of periods
  std::map<std::uint32_t, Description> rounds_; ///< by Period::number
};

} // namespace pumpgraph::preload
