// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline/HostingSearch.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace pumpgraph {

namespace {

/// What a change has to gain: less is no more than the model knows.
constexpr double leastGain = 0.001;
/// Of the changes that lose least, so many of each kind are tried in pairs.
constexpr std::size_t mostOfEachKind = 12;

HostedSet toggled(const HostedSet &set, HostedSet changed) {
  std::sort(changed.begin(), changed.end());
  HostedSet result;
  std::set_symmetric_difference(set.begin(), set.end(), changed.begin(), changed.end(), std::back_inserter(result));
  return result;
}

} // namespace

std::vector<double> HostingSearch::predict(const std::vector<HostedSet> &sets) {
  std::vector<HostedSet> unknown;
  for (const HostedSet &set : sets)
    if (unknown.size() < trialsLeft_ && known_.try_emplace(set, impossible).second)
      unknown.push_back(set);
  trialsLeft_ -= unknown.size();
  const std::vector<double> predicted = predict_(unknown);
  for (std::size_t i = 0; i < unknown.size(); ++i)
    known_[unknown[i]] = predicted[i];
  std::vector<double> times;
  for (const HostedSet &set : sets) {
    const auto found = known_.find(set);
    times.push_back(found == known_.end() ? impossible : found->second);
  }
  return times;
}

HostedSet HostingSearch::changed(const HostedSet &set, HostedSet by) const {
  return normalForm_(toggled(set, std::move(by)));
}

void HostingSearch::climbFrom(HostedSet start) {
  HostedSet set = normalForm_(std::move(start));
  double us = predict({set}).front();
  for (;;) {
    const std::vector<Change> changes = changesOf(set);
    if (!goOnWithChanges(set, us, changes) && !goOnWithExchange(set, us, changes))
      break;
  }
  if (us < bestUs_)
    std::tie(best_, bestUs_) = std::pair(std::move(set), us);
}

std::vector<HostingSearch::Change> HostingSearch::changesOf(const HostedSet &set) {
  std::vector<HostedSet> sets;
  std::vector<Change> changes;
  for (CandidateIndex candidate = 0; candidate < count_; ++candidate)
    if (HostedSet other = toggled(set, {candidate}); normalForm_(other) == other) {
      sets.push_back(std::move(other));
      changes.push_back({impossible, candidate});
    }
  const std::vector<double> times = predict(sets);
  for (std::size_t i = 0; i < changes.size(); ++i)
    changes[i].us = times[i];
  std::stable_sort(changes.begin(), changes.end(), [](const Change &a, const Change &b) { return a.us < b.us; });
  return changes;
}

bool HostingSearch::goOnWithChanges(HostedSet &set, double &us, const std::vector<Change> &changes) {
  HostedSet gaining;
  std::vector<HostedSet> sets;
  for (const Change &change : changes) {
    if (change.us >= us)
      break;
    gaining.push_back(change.candidate);
    if ((gaining.size() & (gaining.size() - 1)) == 0)
      sets.push_back(changed(set, gaining));
  }
  if ((gaining.size() & (gaining.size() - 1)) != 0)
    sets.push_back(changed(set, gaining));
  return takeBest(set, us, sets);
}

bool HostingSearch::goOnWithExchange(HostedSet &set, double &us, const std::vector<Change> &changes) {
  std::vector<CandidateIndex> added, taken;
  for (const Change &change : changes)
    if (std::vector<CandidateIndex> &kind =
            std::binary_search(set.begin(), set.end(), change.candidate) ? taken : added;
        change.us < impossible && kind.size() < mostOfEachKind)
      kind.push_back(change.candidate);
  std::vector<HostedSet> sets;
  for (const CandidateIndex one : added)
    for (const CandidateIndex other : taken)
      sets.push_back(changed(set, {one, other}));
  return takeBest(set, us, sets);
}

bool HostingSearch::takeBest(HostedSet &set, double &us, const std::vector<HostedSet> &sets) {
  const std::vector<double> times = predict(sets);
  const auto best = std::min_element(times.begin(), times.end());
  if (best == times.end() || *best >= us * (1 - leastGain))
    return false;
  us = *best;
  set = sets[static_cast<std::size_t>(best - times.begin())];
  return true;
}

} // namespace pumpgraph
