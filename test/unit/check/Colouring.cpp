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
    // No search uses more colours than there are pages.
    colours_ = std::min(colours_, neighbours_.size());
    colour_.assign(neighbours_.size(), none);
    around_.assign(neighbours_.size() * colours_, 0);
    coloursAround_.assign(neighbours_.size(), 0);
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

  void give(std::size_t page, std::size_t colour) {
    colour_[page] = colour;
    for (const std::size_t neighbour : neighbours_[page])
      coloursAround_[neighbour] += around_[neighbour * colours_ + colour]++ == 0;
  }
  void takeBack(std::size_t page) {
    for (const std::size_t neighbour : neighbours_[page])
      coloursAround_[neighbour] -= --around_[neighbour * colours_ + colour_[page]] == 0;
    colour_[page] = none;
  }

  bool colourRest(std::size_t coloursUsed) {
    if (++steps_ >= mostSteps)
      return false;
    std::size_t page = none;
    std::pair<std::size_t, std::size_t> most;
    for (std::size_t candidate = 0; candidate < colour_.size(); ++candidate) {
      const std::pair rank(coloursAround_[candidate], neighbours_[candidate].size());
      if (colour_[candidate] == none && (page == none || rank > most)) {
        page = candidate;
        most = rank;
      }
    }
    if (page == none)
      return true;
    for (std::size_t colour = 0; colour < std::min<std::size_t>(coloursUsed + 1, colours_); ++colour) {
      if (around_[page * colours_ + colour] > 0)
        continue;
      give(page, colour);
      if (colourRest(std::max(coloursUsed, colour + 1)))
        return true;
      takeBack(page);
    }
    return false;
  }

  bool isPossible_ = true;
  std::size_t colours_ = 0;
  std::vector<std::set<std::size_t>> neighbours_;
  std::vector<std::size_t> colour_;
  std::vector<std::uint32_t> around_;      ///< by page and colour: how many of its neighbours have it
  std::vector<std::size_t> coloursAround_; ///< by page: how many that is so for
  unsigned steps_ = 0;
};

} // namespace

std::optional<bool> fitsFrames(const Description &captured, std::uint64_t frames) {
  return Colouring(captured, frames).run();
}

} // namespace pumpgraph::test
