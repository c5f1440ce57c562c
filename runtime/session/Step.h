// SPDX-License-Identifier: Apache-2.0
/// \file
/// A captured step: its graph, what was planned for it, and what can be done with it.
#pragma once

#include "runtime/lower/LowerGraph.h"
#include "runtime/session/Session.h"

#include <nlohmann/json.hpp>

namespace pumpgraph::runtime {

/// Wall time of the stages of an adoption, milliseconds.
struct AdoptionTimes {
  double captureMs = 0;
  double liftMs = 0;
  double scanMs = 0; ///< looking for pointers in memory
  double planMs = 0; ///< the compiler: plan, lower, check
  double pinnedMs = 0;
  double mapMs = 0;
  double lowerMs = 0; ///< changing the driver's graph
  double checkMs = 0; ///< lifting it again and checking it
};

struct Measurement {
  double stepUs = 0;
  std::uint64_t timedNodes = 0;
};

struct Validation {
  std::uint64_t comparedBuffers = 0;
  std::uint64_t comparedBytes = 0;
  std::uint64_t differentBuffers = 0;
  std::uint64_t unstableBuffers = 0;
  std::string firstDifference;
};

/// Owned by its session. `residence` exists if and only if the graph was rewritten; else `reason` says why not.
class Step {
public:
  Step(Session &session, CUgraph graph, const AdoptOptions &options)
      : session_(session), graph_(graph), ownsGraph_(options.ownsGraph) {}
  ~Step();
  Step(const Step &) = delete;
  Step &operator=(const Step &) = delete;

  Session &session() const { return session_; }
  bool rewritten() const { return residence_ != nullptr; }

  Status replay(CUstream stream);
  std::string report();
  Status save(const std::string &path);
  Expected<Measurement> measure(int repeats);
  Expected<Validation> validate();

private:
  friend class Adoption;
  friend class Session;
  friend class Measuring;
  friend class Validating;

  Status instantiate();
  /// Gives the memory back to the session's heap.
  void letGo();
  /// A buffer's value at the boundary, wherever it is.
  Status readValue(BufferIndex buffer, char *target);
  Status writeValue(BufferIndex buffer, const char *source);

  Session &session_;
  CUgraph graph_;
  bool ownsGraph_;
  CUgraph original_ = nullptr; ///< a copy of the graph as captured; rewritten steps only
  CUgraphExec exec_ = nullptr;
  CapturedStep captured_;
  RewrittenStep rewritten_;
  std::unique_ptr<Residence> residence_;
  std::string reason_;
  nlohmann::ordered_json report_;
  AdoptionTimes times_;
};

} // namespace pumpgraph::runtime
