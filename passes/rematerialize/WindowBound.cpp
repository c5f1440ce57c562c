// SPDX-License-Identifier: Apache-2.0
#include "passes/rematerialize/WindowBound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace pumpgraph {
namespace {

constexpr std::size_t parts = 128; ///< of the step
constexpr std::size_t ends = 2 * parts + 1;
constexpr std::size_t beyond = SIZE_MAX; ///< after both rounds

/// A square of sums that is filled by its differences.
class Grid {
public:
  Grid() : cells_(ends * ends) {}

  /// Adds to all cells of rows [row, endRow) and columns [column, endColumn).
  void add(std::size_t row, std::size_t endRow, std::size_t column, std::size_t endColumn, double bytes) {
    at(row, column) += bytes;
    if (endColumn < ends)
      at(row, endColumn) -= bytes;
    if (endRow < ends) {
      at(endRow, column) -= bytes;
      if (endColumn < ends)
        at(endRow, endColumn) += bytes;
    }
  }
  void sumRows() {
    for (std::size_t row = 1; row < ends; ++row)
      for (std::size_t column = 0; column < ends; ++column)
        at(row, column) += at(row - 1, column);
  }
  void sumColumns() {
    for (std::size_t row = 0; row < ends; ++row)
      for (std::size_t column = 1; column < ends; ++column)
        at(row, column) += at(row, column - 1);
  }
  double &at(std::size_t row, std::size_t column) { return cells_[row * ends + column]; }
  double at(std::size_t row, std::size_t column) const { return cells_[row * ends + column]; }

private:
  std::vector<double> cells_;
};

/// A touch of an atom in a part of the step.
struct Touch {
  std::size_t part = 0;
  bool finds = false;  ///< what was there
  bool leaves = false; ///< something else
};

} // namespace

/// Two rounds of the step, so that windows may reach around its end.
struct WindowBound::Tables {
  std::array<double, parts> costUs{};
  Grid found; ///< [i][j]: bytes that are found in [i, j) and were last touched before i
  Grid left;  ///< [i][j]: bytes that are written in [i, j) and found at j or later
};

WindowBound::WindowBound(const Description &captured, const StepValues &values, const Machine &machine,
                         std::uint64_t budgetBytes)
    : captured_(captured), values_(values), machine_(machine), roomBytes_(static_cast<double>(budgetBytes)) {
  for (BufferIndex buffer = 0; buffer < captured.buffers.size(); ++buffer)
    if (!captured.buffers[buffer].isPrivate)
      roomBytes_ -= static_cast<double>(captured.pageCount(buffer) * captured.pageBytes);
}

static double costOf(const Node &node) {
  return std::isnan(node.costUs) ? 0 : node.costUs;
}

double WindowBound::computeUs(std::span<const Turn> turns) const {
  return std::accumulate(turns.begin(), turns.end(), 0.0,
                         [&](double sum, const Turn &turn) { return sum + costOf(captured_.nodes[turn.node]); });
}

WindowBound::Tables WindowBound::tablesOf(std::span<const Turn> turns) const {
  Tables tables;
  // Parts of about equal time and number of nodes.
  const double all = computeUs(turns);
  const double each = 1.0 / static_cast<double>(turns.size());
  double passed = 0;
  std::vector<std::vector<Touch>> touches(values_.atoms().size());
  for (const Turn &turn : turns) {
    const double cost = costOf(captured_.nodes[turn.node]);
    const double share = ((all > 0 ? cost / all : each) + each) / 2;
    const auto part = std::min(static_cast<std::size_t>((passed + share / 2) * parts), parts - 1);
    passed += share;
    tables.costUs[part] += cost;
    const auto touch = [&](ValueIndex value, bool leaves) {
      const AtomIndex atom = values_.values()[value].atom;
      if (!captured_.buffers[values_.atoms()[atom].buffer].isPrivate)
        return;
      std::vector<Touch> &those = touches[static_cast<std::size_t>(atom)];
      if (leaves && !those.empty() && those.back().part == part && !those.back().leaves)
        those.back().leaves = true; // found by the same node, or by one close to it
      else
        those.push_back({part, !leaves, leaves});
    };
    for (const ValueIndex operand : turn.again ? values_.operandsAgain(turn.node) : values_.operands(turn.node))
      touch(operand, false);
    for (const ValueIndex result : turn.again ? values_.resultsAgain(turn.node) : values_.results(turn.node))
      touch(result, true);
  }

  for (std::size_t index = 0; index < touches.size(); ++index) {
    const std::vector<Touch> &those = touches[index];
    const Atom &atom = values_.atoms()[static_cast<AtomIndex>(index)];
    const Buffer &buffer = captured_.buffers[atom.buffer];
    const auto bytes = static_cast<double>(atom.range.size);
    const bool goesRound = buffer.liveIn || buffer.liveOut;
    const std::size_t count = those.size();
    for (std::size_t k = 0; k < 2 * count; ++k) {
      const Touch &touch = those[k % count];
      const std::size_t at = touch.part + (k < count ? 0 : parts);
      if (touch.finds) {
        const std::size_t previous = k == 0 || (k == count && !goesRound)
                                         ? (goesRound ? 0 : at + 1)
                                         : those[(k - 1) % count].part + (k - 1 < count ? 0 : parts) + 1;
        if (previous <= at)
          tables.found.add(previous, at + 1, at + 1, ends, bytes);
      }
      if (!touch.leaves)
        continue;
      std::size_t last = at; // until which it is found
      for (std::size_t next = k + 1;; ++next) {
        if (next == 2 * count || (next == count && !goesRound)) {
          if (goesRound)
            last = beyond;
          break;
        }
        const Touch &later = those[next % count];
        if (!later.finds)
          break;
        last = later.part + (next < count ? 0 : parts);
        if (later.leaves)
          break;
      }
      if (last > at)
        tables.left.add(0, at + 1, at + 1, last == beyond ? ends : std::min(last + 1, ends), bytes);
    }
  }
  tables.found.sumRows();
  tables.found.sumColumns();
  tables.left.sumRows();
  tables.left.sumColumns();
  return tables;
}

double WindowBound::totalUs(std::span<const Turn> turns) const {
  const Tables tables = tablesOf(turns);
  std::array<double, ends> start{};
  for (std::size_t end = 1; end < ends; ++end)
    start[end] = start[end - 1] + tables.costUs[(end - 1) % parts];
  const double up = machine_.upBytesPerSecond / 1e6, down = machine_.downBytesPerSecond / 1e6;
  const double slower =
      std::max(0.0, (machine_.upBytesPerSecond + machine_.downBytesPerSecond) / machine_.bothBytesPerSecond - 1);
  const auto window = [&](std::size_t from, std::size_t to) {
    const double upUs = std::max(0.0, tables.found.at(from, to) - roomBytes_) / up;
    const double downUs = std::max(0.0, tables.left.at(from, to) - roomBytes_) / down;
    return std::max({start[to] - start[from], upUs + slower * downUs, downUs + slower * upUs});
  };
  double most = 0;
  for (std::size_t fifth = 0; fifth < 5; ++fifth) {
    const std::size_t from = fifth * parts / 5;
    std::array<double, parts + 1> best{};
    for (std::size_t to = 1; to <= parts; ++to)
      for (std::size_t cut = 0; cut < to; ++cut)
        best[to] = std::max(best[to], best[cut] + window(from + cut, from + to));
    most = std::max(most, best[parts]);
  }
  return most;
}

} // namespace pumpgraph
