// SPDX-License-Identifier: Apache-2.0
/// \file
/// What stays in host memory: a search over sets of candidates, which are buffers or parts of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <vector>

namespace pumpgraph {

/// Sets of candidates by number, ascending, and what a step is predicted to take with each of them in host memory;
/// `impossible` if there is no plan then.
using CandidateIndex = std::uint32_t;
using HostedSet = std::vector<CandidateIndex>;
inline constexpr double impossible = std::numeric_limits<double>::infinity();
using PredictAll = std::function<std::vector<double>(const std::vector<HostedSet> &)>;
/// Which set stands for this one and others that are as good. Of what it returns it returns the same.
using NormalForm = std::function<HostedSet(HostedSet)>;

/// Climbs from a set to better ones: each candidate is added to it or taken away, and of the changes that gain the best
/// one, two, four, eight and so on are made together. Where no such change gains, pairs are exchanged: one of the
/// changes that lose least for another. Deterministic.
class HostingSearch {
public:
  /// `count` candidates. `predict` and `normalForm` are referred to. After `mostTrials` sets nothing more is tried.
  HostingSearch(CandidateIndex count, const NormalForm &normalForm, const PredictAll &predict, std::size_t mostTrials)
      : count_(count), normalForm_(normalForm), predict_(predict), trialsLeft_(mostTrials) {}

  /// From the normal form of `start`. Keeps the best of all sets that any climb has come to.
  void climbFrom(HostedSet start);

  const HostedSet &best() const { return best_; }
  double bestUs() const { return bestUs_; }

private:
  struct Change {
    double us = impossible; ///< with this change alone
    CandidateIndex candidate = 0;
  };

  /// Those that were not predicted before.
  std::vector<double> predict(const std::vector<HostedSet> &sets);
  /// Each of these added or taken away, in normal form.
  HostedSet changed(const HostedSet &set, HostedSet by) const;
  /// From the least time on, those after which the set is in normal form.
  std::vector<Change> changesOf(const HostedSet &set);
  bool goOnWithChanges(HostedSet &set, double &us, const std::vector<Change> &changes);
  bool goOnWithExchange(HostedSet &set, double &us, const std::vector<Change> &changes);
  /// Takes the best of these if it gains.
  bool takeBest(HostedSet &set, double &us, const std::vector<HostedSet> &sets);

  CandidateIndex count_;
  const NormalForm &normalForm_;
  const PredictAll &predict_;
  std::size_t trialsLeft_;
  std::map<HostedSet, double> known_;
  HostedSet best_;
  double bestUs_ = impossible;
};

} // namespace pumpgraph
