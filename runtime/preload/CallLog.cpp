// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/CallLog.h"

#include "runtime/preload/Trace.h"

#include <algorithm>
#include <cstring>

namespace pumpgraph::preload {

using runtime::Period;
using runtime::Progress;

namespace {

constexpr std::size_t mostDescribed = std::size_t{1} << 16; // calls

/// The one whose rounds make up most of the calls.
const Period *longestFollowed(const std::list<Period> &periods) {
  const auto most = std::max_element(periods.begin(), periods.end(), [](const Period &one, const Period &other) {
    return one.followed + one.calls.size() < other.followed + other.calls.size();
  });
  return most == periods.end() ? nullptr : &*most;
}

} // namespace

void CallLog::begin(std::uint64_t function, CUstream stream, const char *name) {
  call_.name = name;
  call_.identity = {};
  call_.operands.clear();
  call_.identity.add(function).add(reinterpret_cast<std::uintptr_t>(stream));
}

void CallLog::word(std::uint64_t word) {
  const std::optional<Extent> extent = memory_ ? memory_->find(word) : std::nullopt;
  if (!extent)
    return;
  call_.identity.add(word);
  const auto isSame = [&](const Extent &known) { return known.serial == extent->serial; };
  if (describes_ && std::none_of(call_.operands.begin(), call_.operands.end(), isSame))
    call_.operands.push_back(*extent);
}

void CallLog::words(const void *data, std::size_t bytes) {
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= bytes; at += sizeof(std::uint64_t)) {
    std::uint64_t value;
    std::memcpy(&value, static_cast<const char *>(data) + at, sizeof value);
    word(value);
  }
}

void CallLog::waits(CUevent event) {
  const auto record = lastRecord_.find(event);
  value(record == lastRecord_.end() ? 0 : detector_.calls() - record->second);
}

void CallLog::end() {
  if (describes_) {
    recent_.resize(mostDescribed);
    recent_[detector_.calls() % mostDescribed] = {call_.name, call_.operands};
  }
  if (detector_.add(call_.identity.identity()) != Progress::Found || !describes_)
    return;
  const Period &period = *detector_.inForce();
  std::vector<Described> &round = rounds_[period.number];
  if (!round.empty() || period.calls.size() > mostDescribed)
    return;
  for (std::uint64_t place = detector_.calls() - period.calls.size(); place < detector_.calls(); ++place)
    round.push_back(recent_[place % mostDescribed]);
}

std::string CallLog::summary() const {
  const Period *const period = longestFollowed(detector_.known());
  std::string text = fmt::format("{} calls on the device", detector_.calls());
  if (!period)
    return text + ", without a period";
  text += fmt::format("; a period of {} of them, found at call {}, for {} rounds", period->calls.size(),
                      period->foundAt, 2 + period->followed / period->calls.size());
  if (period->deviations != 0)
    text += fmt::format(", left {} times", period->deviations);
  return text;
}

runtime::Status CallLog::writeReport(const std::string &folder) const {
  for (const Period &period : detector_.known()) {
    const auto round = rounds_.find(period.number);
    if (round == rounds_.end())
      continue;
    TraceWriter trace(fmt::format("period {}", period.number));
    for (const Described &call : round->second)
      trace.add(call.name, call.operands);
    PUMPGRAPH_TRY(trace.write(folder, fmt::format("period-{}.json", period.number)));
  }
  return {};
}

} // namespace pumpgraph::preload
