// SPDX-License-Identifier: Apache-2.0
/// \file
/// The period of a program's calls: the iteration of its training loop, found while it runs.
#pragma once

#include "runtime/streams/Identity.h"

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

namespace pumpgraph::runtime {

/// Calls that follow one another again and again.
struct Period {
  std::uint32_t number = 0; ///< counts the periods of a detector, from 1
  std::vector<CallIdentity> calls;
  std::uint64_t foundAt = 0;    ///< the call, counted from 0, that completed its second round in a row
  std::uint64_t followed = 0;   ///< calls that came as it says since it was found
  std::uint64_t deviations = 0; ///< how often another call came instead
};

/// What a call means for the detector.
enum class Recognition : std::uint8_t {
  Searching, ///< no period is in force
  Found,     ///< the call completes two equal rounds in a row, or one round of a period that is known already
  Following, ///< the call is the expected one
  Deviated   ///< another call was expected; no period is in force any more
};

/// Finds the period of a sequence of calls as they come, in constant time for each.
///
/// The last few calls are looked up in a table of earlier places with the same ones. The distance to the latest of them
/// is a hypothesis, which lives as long as each further call equals the one that distance before. Once as many calls
/// have agreed as the distance is long, two rounds are equal. A loop within the iteration is found first, and deviates
/// at its end. The hypothesis that begins there spans the whole iteration, since its calls come nowhere else.
///
/// After a deviation, a period that is known comes into force again after one whole round of it.
///
/// Not thread-safe.
class PeriodDetector {
public:
  struct Options {
    std::uint32_t lookedUp = 8;      ///< calls that have to agree before a distance becomes a hypothesis
    std::uint32_t longest = 1 << 18; ///< calls of a period
    std::uint32_t known = 16;        ///< periods that are kept; beyond that the one that was used last goes
  };

  explicit PeriodDetector(const Options &options);
  PeriodDetector() : PeriodDetector(Options{}) {}

  Recognition add(CallIdentity call);

  /// The period in force; null if there is none. It lives as long as it is known.
  const Period *inForce() const { return inForce_; }
  /// The position in the period of the next call. Only while one is in force.
  std::uint64_t phase() const { return phase_; }
  std::uint64_t calls() const { return count_; }
  /// Those that are known, the one used last first.
  const std::list<Period> &known() const { return known_; }
  /// Something came that is no call and that no round holds: no period is in force, no hypothesis lives.
  void interrupt();

private:
  /// A place in a known period.
  struct Place {
    Period *period = nullptr;
    std::uint64_t phase = 0; ///< of the call that ends the looked-up ones
  };
  struct Seen {
    std::uint64_t calls = 0; ///< as lookUp_
    std::uint64_t end = 0;   ///< the place after the last of them; 0: none
  };

  CallIdentity at(std::uint64_t place) const { return recent_[place & (recent_.size() - 1)]; }
  bool canLookUp() const { return count_ - since_ >= options_.lookedUp; }
  void note(CallIdentity call);
  bool follow(CallIdentity call);
  bool testHypothesis();
  bool testKnown(CallIdentity call);
  void putInForce(Period &period, std::uint64_t nextPhase);
  Place find(std::uint64_t length);
  Period &remember(std::uint64_t length);
  void forget(Period &period);
  /// Calls `visit` with the looked-up calls that end at each phase.
  template <typename Visit> void eachPlace(const Period &period, Visit visit) const;

  Options options_;
  std::vector<CallIdentity> recent_; ///< a ring; its size is a power of 2
  std::vector<Seen> seen_;           ///< by the looked-up calls; its size is a power of 2
  std::uint64_t count_ = 0;
  std::uint64_t since_ = 0;    ///< the first call after the last interruption
  std::uint64_t lookUp_ = 0;   ///< the last calls as one number, oldest first
  std::uint64_t oldest_ = 1;   ///< the weight of the oldest of them
  std::uint64_t distance_ = 0; ///< the hypothesis; 0: none
  std::uint64_t agreed_ = 0;   ///< calls up to here that equal those `distance_` before

  std::list<Period> known_;
  std::unordered_map<std::uint64_t, Place> places_; ///< of known periods, by the calls that end there
  std::uint32_t lastNumber_ = 0;
  Place returning_;            ///< to a known period
  std::uint64_t returned_ = 0; ///< calls of it up to here
  Period *inForce_ = nullptr;
  std::uint64_t phase_ = 0;
  std::uint64_t inARow_ = 0; ///< calls since it came into force, two rounds included
};

} // namespace pumpgraph::runtime
