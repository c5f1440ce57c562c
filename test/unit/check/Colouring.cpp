// SPDX-License-Identifier: Apache-2.0
#include "test/unit/check/Colouring.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace pumpgraph::test {

namespace {

using PageKey = std::pair<BufferIndex, std::uint64_t>;

/// Exact colouring by backtracking: always the page with the fewest frames left (DSATUR).
class Colouring {
public:
  Colouring(const Description &captured, std::uint64_t frames) {
    std::map<PageKey, std::size_t> numbers;
    std::uint64_t exclusive = 0;
    for (BufferIndex buffer = 0; buffer < captured.buffers.size(); ++buffer)
      exclusive += captured.buffers[buffer].isPrivate ? 0 : captured.pageCount(buffer);
    colours_ = frames < exclusive ? 0 : frames - exclusive;
    isPossible_ = frames >= exclusive;

    for (const Node &node : captured.nodes) {
      std::set<std::size_t> together;
      for (const Access &access : node.accesses)
        if (captured.buffers[access.buffer].isPrivate && access.range.size > 0)
          for (std::uint64_t page = access.range.offset / captured.pageBytes;
               page * captured.pageBytes < access.range.end(); ++page)
            together.insert(numbers.try_emplace({access.buffer, page}, numbers.size()).first->second);
      neighbours_.resize(numbers.size());
      for (const std::size_t left : together)
        for (const std::size_t right : together)
          if (left != right)
            neighbours_[left].insert(right);
    }
    colour_.assign(neighbours_.size(), none);
  }

  std::optional<bool> run() {
    const bool found = isPossible_ && colourRest(0);
    if (!found && steps_ >= mostSteps)
      return std::nullopt;
    return found;
  }

private:
  static constexpr std::size_t none = SIZE_MAX;
  static constexpr unsigned mostSteps = 20'000;

  std::set<std::size_t> takenAround(std::size_t page) const {
    std::set<std::size_t> taken;
    for (const std::size_t neighbour : neighbours_[page])
      if (colour_[neighbour] != none)
        taken.insert(colour_[neighbour]);
    return taken;
  }

  bool colourRest(std::size_t coloursUsed) {
    if (++steps_ >= mostSteps)
      return false;
    std::size_t page = none;
    std::pair<std::size_t, std::size_t> most;
    for (std::size_t candidate = 0; candidate < colour_.size(); ++candidate) {
      const std::pair rank(takenAround(candidate).size(), neighbours_[candidate].size());
      if (colour_[candidate] == none && (page == none || rank > most)) {
        page = candidate;
        most = rank;
      }
    }
    if (page == none)
      return true;
    const std::set<std::size_t> taken = takenAround(page);
    for (std::size_t colour = 0; colour < std::min<std::size_t>(coloursUsed + 1, colours_); ++colour) {
      if (taken.contains(colour))
        continue;
      colour_[page] = colour;
      if (colourRest(std::max(coloursUsed, colour + 1)))
        return true;
      colour_[page] = none;
    }
    return false;
  }

  bool isPossible_ = true;
  std::size_t colours_ = 0;
  std::vector<std::set<std::size_t>> neighbours_;
  std::vector<std::size_t> colour_;
  unsigned steps_ = 0;
};

} // namespace

std::optional<bool> fitsFrames(const Description &captured, std::uint64_t frames) {
  return Colouring(captured, frames).run();
}

} // namespace pumpgraph::test
