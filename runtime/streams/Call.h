// SPDX-License-Identifier: Apache-2.0
/// \file
/// A call of the program that works on the device.
#pragma once

#include "runtime/streams/Identity.h"
#include "runtime/streams/Round.h"

#include <cuda.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pumpgraph::runtime {

/// A stream as a call of the driver takes it.
struct CallStream {
  CUstream handle = nullptr;
  bool isOfThread = false; ///< the default one of the calling thread

  /// For the driver, whatever its default stream is.
  CUstream forDriver() const { return isOfThread ? CU_STREAM_PER_THREAD : handle ? handle : CU_STREAM_LEGACY; }
};

/// Events around a call that is timed; null: it is not.
struct CallClock {
  CUevent begin = nullptr, end = nullptr;
};

struct Call {
  NodeKind kind = NodeKind::Kernel;
  std::string name; ///< of the kernel, or of the driver's function
  CallStream stream;
  std::uint64_t streamId = 0; ///< as RoundStream::id
  /// All that makes it the same call in two rounds: function, stream, dimensions, sizes, words into allocations. Of
  /// other parameters the bytes do not count, since each launch keeps its own.
  std::vector<std::uint64_t> parts;
  std::vector<RoundAccess> accesses;
  std::optional<Round::EventId> awaited; ///< of a wait
  std::string_view unplannable;          ///< why no plan may hold it; empty: its accesses are all that it does
  /// Host memory that it reads, which may hold addresses.
  const void *uploaded = nullptr;
  std::uint64_t uploadedBytes = 0;
  std::uint64_t uploadedTo = 0;
  CallClock clock;

  CallIdentity identity() const {
    IdentityBuilder builder;
    for (const std::uint64_t part : parts)
      builder.add(part);
    return builder.identity();
  }
};

/// An event of a round, as a plan of it expects it: a call, or memory that is allocated or freed between calls.
struct RoundEvent {
  enum class Kind : std::uint8_t { Call, Allocate, Free };

  Kind kind = Kind::Call;
  std::vector<std::uint64_t> parts; ///< of memory: bytes, stream; its address
  std::string name;
  std::uint64_t streamId = 0; ///< of a call
  bool isNode = false;        ///< of a call: in the description; a wait is not
  std::uint64_t block = 0;    ///< of memory: the address of the block that it has for itself; 0: it shares one
};

/// A round of a period.
struct RoundScript {
  std::uint32_t period = 0; ///< its number
  std::uint64_t phase = 0;  ///< of the period, at which the round begins
  Description description;
  std::vector<RoundEvent> events;
  std::vector<CallClock> clocks; ///< by node
  std::string unplannable;       ///< why it cannot be planned; empty: nothing is known against it
};

} // namespace pumpgraph::runtime
