// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/Choices.h"

#include <bit>
#include <vector>

namespace pumpgraph {

namespace {

/// FNV-1a over words.
class Hash {
public:
  void add(std::uint64_t word) { value_ = (value_ ^ word) * 0x100000001b3; }
  void add(double number) { add(std::bit_cast<std::uint64_t>(number)); }
  std::uint64_t value() const { return value_ ^ value_ >> 29; }

private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

} // namespace

std::uint64_t hashOf(const Choices &choices) {
  Hash hash;
  hash.add(std::uint64_t{choices.start.boundary.size()});
  for (const BoundaryState state : choices.start.boundary)
    hash.add(static_cast<std::uint64_t>(state));
  for (const std::uint8_t leaves : choices.start.leaves)
    hash.add(std::uint64_t{leaves});
  for (const PieceIndex piece : choices.start.first)
    hash.add(static_cast<std::uint64_t>(piece));
  hash.add(std::uint64_t{choices.start.leaves.size()});
  hash.add(std::uint64_t{choices.start.first.size()});
  for (const std::vector<std::int32_t> &frames : choices.start.homes) {
    hash.add(std::uint64_t{frames.size()});
    for (const std::int32_t frame : frames)
      hash.add(static_cast<std::uint64_t>(frame));
  }
  hash.add(choices.start.slackWeight);
  hash.add(std::uint64_t{choices.start.looksFurther});
  hash.add(static_cast<std::uint64_t>(choices.finish.joinReach));
  hash.add(std::uint64_t{choices.finish.deferrals});
  hash.add(choices.finish.rowBytes);
  return hash.value();
}

} // namespace pumpgraph
