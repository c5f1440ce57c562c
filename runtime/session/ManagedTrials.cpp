// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/ManagedTrials.h"

#include "runtime/session/Measuring.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace pumpgraph::runtime {
namespace {

constexpr int warmups = 2, batches = 3, mostInBatch = 4;
/// Of a long step fewer replays do.
constexpr double batchUs = 250e3;
/// What another plan has to gain over the first ones.
constexpr double leastGain = 0.01;

} // namespace

Status ManagedTrials::putInForce(const ManagedTrial &trial) {
  PUMPGRAPH_TRY(rewriting_.putInForceManaged(trial.plan));
  step_.beginPlan(costs_, trial.why);
  return {};
}

Expected<double> ManagedTrials::timeReplays() {
  PUMPGRAPH_TRY(step_.instantiate());
  const auto replay = [&](int times) -> Status {
    for (int i = 0; i < times; ++i) {
      step_.managed_->waitForRoom();
      step_.managed_->wake();
      PUMPGRAPH_TRY(driver_.graphLaunch(step_.exec_, session_.stream_));
    }
    return driver_.streamSynchronize(session_.stream_);
  };
  const auto timeOf = [&](int times) -> Expected<double> {
    const auto start = std::chrono::steady_clock::now();
    PUMPGRAPH_TRY_WHILE(replay(times), "replaying \"{}\" to time it", step_.captured_.description.name);
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / times;
  };
  const Expected<double> first = timeOf(warmups);
  if (!first)
    return first;
  const int batch = std::clamp(static_cast<int>(batchUs / *first), 1, mostInBatch);
  std::vector<double> times;
  for (int i = 0; i < batches; ++i) {
    const Expected<double> us = timeOf(batch);
    if (!us)
      return us;
    times.push_back(*us);
  }
  return median(std::move(times));
}

Status ManagedTrials::run(std::vector<ManagedTrial> trials) {
  Measuring values(step_);
  if (const Status kept = trials.size() > 1 ? values.keepValues() : Status{}; !kept) {
    note(trials.front(), kept.error());
    trials.resize(1);
  }
  if (trials.size() == 1)
    return putInForce(trials.front());
  const Stopwatch watch;
  const Expected<std::size_t> best = findFastest(trials);
  const Status restored = values.restoreValues();
  if (!restored)
    return inContext(restored.error(),
                     "restoring the values after timing plans" + (best ? "" : ", for " + best.error().message));
  if (!best)
    return tl::unexpected<Error>(best.error());
  step_.times_.trialsMs = watch.milliseconds();
  PUMPGRAPH_TRY(rewriting_.putInForceManaged(trials[*best].plan));
  const auto record = std::find_if(step_.plans_.begin(), step_.plans_.end(),
                                   [&](const PlanRecord &plan) { return plan.why == trials[*best].why; });
  if (record + 1 != step_.plans_.end()) {
    step_.plans_.push_back(PlanRecord(*record));
    step_.plans_.back().why += ", which is the fastest";
  }
  return {};
}

Expected<std::size_t> ManagedTrials::findFastest(const std::vector<ManagedTrial> &trials) {
  std::optional<std::size_t> best;
  double leastUs = 0;
  Error first;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const Expected<double> us = timeTrial(trials[i]);
    if (!us && !rewriting_.restored())
      return tl::unexpected<Error>(us.error());
    if (!us) {
      note(trials[i], us.error());
      first = i == 0 ? us.error() : first;
    } else if (!best || *us < leastUs * (1 - leastGain)) {
      best = i;
      leastUs = *us;
    }
  }
  if (!best)
    return tl::unexpected<Error>(first);
  return *best;
}

Expected<double> ManagedTrials::timeTrial(const ManagedTrial &trial) {
  PUMPGRAPH_TRY(putInForce(trial));
  const Expected<double> us = timeReplays();
  if (us)
    step_.plans_.back().measuredUs = *us;
  else
    step_.plans_.pop_back();
  PUMPGRAPH_TRY(rewriting_.takeBackManaged());
  return us;
}

void ManagedTrials::note(const ManagedTrial &trial, const Error &why) {
  step_.captured_.notes.push_back(fmt::format("the plan \"{}\" could not be timed: {}", trial.why, why.message));
}

} // namespace pumpgraph::runtime
