// SPDX-License-Identifier: Apache-2.0
#include "runtime/streams/Period.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace pumpgraph::runtime {
namespace {

constexpr std::uint64_t weight = 0xd6e8feb86659fd93; // of a call relative to the next; odd
constexpr std::size_t mostSeen = std::size_t{1} << 18;

} // namespace

PeriodDetector::PeriodDetector(const Options &options)
    : options_(options), recent_(std::bit_ceil(std::size_t{options.longest} + options.lookedUp + 1)),
      seen_(std::min(mostSeen, std::bit_ceil(std::size_t{options.longest} * 2))) {
  assert(options_.lookedUp > 0 && options_.longest > 0 && options_.known > 0);
  for (std::uint32_t i = 0; i < options_.lookedUp; ++i)
    oldest_ *= weight;
}

void PeriodDetector::note(CallIdentity call) {
  if (count_ - since_ >= options_.lookedUp)
    lookUp_ -= at(count_ - options_.lookedUp) * oldest_;
  lookUp_ = (lookUp_ + call) * weight;
  recent_[count_ & (recent_.size() - 1)] = call;
  ++count_;
}

Recognition PeriodDetector::add(CallIdentity call) {
  note(call);
  const bool hadPeriod = inForce_ != nullptr;
  const bool follows = follow(call);
  // Both go on while a period is in force: a longer one may hold it.
  if (testHypothesis() || (!inForce_ && testKnown(call)))
    return Recognition::Found;
  if (follows)
    return Recognition::Following;
  return hadPeriod ? Recognition::Deviated : Recognition::Searching;
}

bool PeriodDetector::follow(CallIdentity call) {
  if (!inForce_)
    return false;
  if (inForce_->calls[phase_] != call) {
    ++inForce_->deviations;
    inForce_ = nullptr;
    returning_ = {};
    return false;
  }
  ++inForce_->followed;
  ++inARow_;
  phase_ = phase_ + 1 == inForce_->calls.size() ? 0 : phase_ + 1;
  return true;
}

/// Whether a period comes into force by two equal rounds.
bool PeriodDetector::testHypothesis() {
  if (distance_ != 0 && at(count_ - 1 - distance_) == at(count_ - 1))
    ++agreed_;
  else
    distance_ = 0;
  if (!canLookUp())
    return false;
  Seen &seen = seen_[(lookUp_ ^ (lookUp_ >> 32)) & (seen_.size() - 1)];
  const bool wasSeen = seen.end > since_ && seen.calls == lookUp_ && count_ - seen.end <= options_.longest;
  if (distance_ == 0 && wasSeen) {
    distance_ = count_ - seen.end;
    agreed_ = options_.lookedUp;
  }
  seen = {lookUp_, count_};
  if (distance_ == 0 || agreed_ < distance_)
    return false;
  // The period in force itself, or several rounds of it.
  if (inForce_ && inARow_ >= distance_)
    return false;
  const Place place = find(distance_);
  Period &period = place.period ? *place.period : remember(distance_);
  putInForce(period, place.period ? (place.phase + 1) % period.calls.size() : 0);
  return true;
}

/// Whether a known period comes into force again.
bool PeriodDetector::testKnown(CallIdentity call) {
  if (returning_.period) {
    returning_.phase = (returning_.phase + 1) % returning_.period->calls.size();
    if (returning_.period->calls[returning_.phase] == call)
      ++returned_;
    else
      returning_ = {};
  }
  if (!returning_.period && canLookUp())
    if (const auto place = places_.find(lookUp_); place != places_.end()) {
      returning_ = place->second;
      returned_ = options_.lookedUp;
    }
  if (!returning_.period || returned_ < returning_.period->calls.size())
    return false;
  putInForce(*returning_.period, (returning_.phase + 1) % returning_.period->calls.size());
  return true;
}

void PeriodDetector::putInForce(Period &period, std::uint64_t nextPhase) {
  inForce_ = &period;
  phase_ = nextPhase;
  inARow_ = period.calls.size();
  returning_ = {};
  const auto place = std::find_if(known_.begin(), known_.end(), [&](const Period &one) { return &one == &period; });
  known_.splice(known_.begin(), known_, place);
}

/// The known period that the last `length` calls are a round of, and where it is now.
PeriodDetector::Place PeriodDetector::find(std::uint64_t length) {
  const auto found = places_.find(lookUp_);
  if (found == places_.end() || found->second.period->calls.size() != length)
    return {};
  const Place place = found->second;
  for (std::uint64_t back = 0; back < length; ++back)
    if (place.period->calls[(place.phase + length - back) % length] != at(count_ - 1 - back))
      return {};
  return place;
}

template <typename Visit> void PeriodDetector::eachPlace(const Period &period, Visit visit) const {
  const std::uint64_t length = period.calls.size(), shown = options_.lookedUp;
  std::uint64_t lookUp = 0;
  for (std::uint64_t i = 0; i < length + shown; ++i) {
    if (i >= shown)
      lookUp -= period.calls[(i - shown) % length] * oldest_;
    lookUp = (lookUp + period.calls[i % length]) * weight;
    if (i >= shown)
      visit(lookUp, i % length);
  }
}

Period &PeriodDetector::remember(std::uint64_t length) {
  if (known_.size() == options_.known)
    forget(known_.back());
  Period &period = known_.emplace_front();
  period.number = ++lastNumber_;
  period.foundAt = count_ - 1;
  for (std::uint64_t place = count_ - length; place < count_; ++place)
    period.calls.push_back(at(place));
  eachPlace(period, [&](std::uint64_t lookUp, std::uint64_t phase) { places_[lookUp] = {&period, phase}; });
  return period;
}

void PeriodDetector::forget(Period &period) {
  eachPlace(period, [&](std::uint64_t lookUp, std::uint64_t) {
    if (const auto place = places_.find(lookUp); place != places_.end() && place->second.period == &period)
      places_.erase(place);
  });
  if (inForce_ == &period)
    inForce_ = nullptr;
  if (returning_.period == &period)
    returning_ = {};
  known_.remove_if([&](const Period &one) { return &one == &period; });
}

void PeriodDetector::interrupt() {
  if (inForce_)
    ++inForce_->deviations;
  inForce_ = nullptr;
  returning_ = {};
  distance_ = agreed_ = lookUp_ = 0;
  since_ = count_;
}

} // namespace pumpgraph::runtime
