// SPDX-License-Identifier: Apache-2.0
/// \file
/// Results of running a step's kernels one by one: the observed uses of their operands.
#pragma once

#include "runtime/capture/DescribeStep.h"

#include <nlohmann/json_fwd.hpp>

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace pumpgraph::runtime {

enum class Answer : std::uint8_t { No, Yes, Unknown };

/// The observation of one operand in one run. `No` means "not seen": with other inputs the kernel can behave
/// differently.
struct Sighting {
  Answer read = Answer::Unknown;
  Answer written = Answer::Unknown;
  Answer overwritten = Answer::Unknown; ///< every written byte, independently of the old contents

  bool isKnown() const { return read != Answer::Unknown && written != Answer::Unknown; }
  Mode mode() const {
    return static_cast<Mode>((read == Answer::Yes ? modeRead : 0) | (written == Answer::Yes ? modeWrite : 0));
  }
  friend bool operator==(const Sighting &, const Sighting &) = default;
};

/// The memory behind one address among a kernel's parameters: the allocation from there to the next such address, or to
/// its end. The first operand of an allocation includes the bytes ahead of it. Several words can hold the address.
struct ObservedOperand {
  NodeIndex node = 0;
  BufferIndex buffer = 0;
  Range range;
  std::vector<OperandWord> words;
  std::vector<Sighting> sightings; ///< one for each run

  bool agrees() const;
  /// Whether several runs agree and leave nothing open.
  bool isCovered() const;
};

/// An observed access that proved, declared or assumed accesses exclude.
struct ObservedDisagreement {
  NodeIndex node = 0;
  BufferIndex buffer = 0;
  Evidence evidence = Evidence::Assumed;
  std::string message;

  friend auto operator<=>(const ObservedDisagreement &, const ObservedDisagreement &) = default;
};

/// The operands of a kernel, of which nothing was seen yet.
std::vector<ObservedOperand> operandsOf(NodeIndex node, const std::vector<OperandWord> &words);

struct Observation {
  /// Runs that have to agree before anything is believed.
  static constexpr std::size_t leastRuns = 2;

  std::uint64_t runs = 0;
  std::uint64_t kernels = 0;      ///< that were observed
  std::uint64_t nodesRun = 0;     ///< that were only run
  double milliseconds = 0;        ///< all runs together
  std::uint64_t scratchBytes = 0; ///< of device memory that a run took beside the step's own
  std::vector<ObservedOperand> operands;
  std::set<ObservedDisagreement> disagreements;

  std::uint64_t covered() const;
  std::uint64_t differing() const;
  /// Gives what only was assumed of `step` the modes that runs agree on, as `observed`, and takes back what later runs
  /// do not confirm.
  void mergeInto(Description &step) const;
  nlohmann::ordered_json report(const Description &step) const;
};

} // namespace pumpgraph::runtime
