// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/ManagedTrials.h"

#include "runtime/measure/KeptValues.h"
#include "runtime/measure/ReplayWatch.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace pumpgraph::runtime {
namespace {

constexpr int warmups = 2, timedReplays = 9, leastReplays = 3;
/// Of a long step fewer replays do.
constexpr double enoughUs = 750e3;
/// What another plan has to gain over the first ones.
constexpr double leastGain = 0.01;

} // namespace

Status ManagedTrials::putInForce(const CompiledPlan &plan) {
  PUMPGRAPH_TRY(rewriting_.putInForceManaged(plan));
  beginPlan(step_, costs_, plan.name);
  return {};
}

Expected<double> ManagedTrials::timeReplay(KeptValues &values) {
  PUMPGRAPH_TRY_WHILE(values.rewind(), "putting the state back before a run");
  step_.memory.managed->waitForRoom();
  const Driver::Clock::time_point start = driver_.now();
  step_.memory.managed->wake();
  PUMPGRAPH_TRY(driver_.graphLaunch(step_.graph.exec, session_.device.stream));
  PUMPGRAPH_TRY(driver_.streamSynchronize(session_.device.stream));
  return std::chrono::duration<double, std::micro>(driver_.now() - start).count();
}

Expected<double> ManagedTrials::timeReplays(KeptValues &values) {
  PUMPGRAPH_TRY(instantiate(step_));
  std::vector<double> times;
  double allUs = 0;
  for (int replay = 0; replay < warmups + timedReplays; ++replay) {
    const Expected<double> us = timeReplay(values);
    if (!us)
      return inContext(us.error(), fmt::format("replaying \"{}\" to time it", step_.name()));
    if (replay < warmups)
      continue;
    times.push_back(*us);
    allUs += *us;
    if (allUs > enoughUs && times.size() >= leastReplays)
      break;
  }
  return median(std::move(times));
}

Status ManagedTrials::run(std::vector<CompiledPlan> plans) {
  KeptValues values(step_);
  if (const Status kept = plans.size() > 1 ? values.keep() : Status{}; !kept) {
    note(plans.front(), kept.error());
    plans.resize(1);
  }
  if (plans.size() == 1)
    return putInForce(plans.front());
  const Stopwatch watch;
  const Expected<std::size_t> best = findFastest(plans, values);
  const Status restored = values.restore();
  if (!restored)
    return inContext(restored.error(),
                     "restoring the values after timing plans" + (best ? "" : ", for " + best.error().message));
  if (!best)
    return tl::unexpected<Error>(best.error());
  step_.history.times.trialsMs = watch.milliseconds();
  PUMPGRAPH_TRY(rewriting_.putInForceManaged(plans[*best]));
  const auto record = std::find_if(step_.history.plans.begin(), step_.history.plans.end(),
                                   [&](const PlanRecord &record) { return record.why == plans[*best].name; });
  if (record + 1 != step_.history.plans.end()) {
    step_.history.plans.push_back(PlanRecord(*record));
    step_.history.plans.back().why += ", which is the fastest";
  }
  return {};
}

Expected<std::size_t> ManagedTrials::findFastest(const std::vector<CompiledPlan> &plans, KeptValues &values) {
  std::optional<std::size_t> best;
  double leastUs = 0;
  Error first;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Expected<double> us = timeTrial(plans[i], values);
    if (!us && !rewriting_.restored())
      return tl::unexpected<Error>(us.error());
    if (!us) {
      note(plans[i], us.error());
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

Expected<double> ManagedTrials::timeTrial(const CompiledPlan &plan, KeptValues &values) {
  PUMPGRAPH_TRY(putInForce(plan));
  Expected<double> us = timeReplays(values);
  if (us)
    step_.history.plans.back().measuredUs = *us;
  else
    step_.history.plans.pop_back();
  PUMPGRAPH_TRY(rewriting_.takeBackManaged());
  return us;
}

void ManagedTrials::note(const CompiledPlan &plan, const Error &why) {
  step_.captured.notes.push_back(fmt::format("the plan \"{}\" could not be timed: {}", plan.name, why.message));
}

} // namespace pumpgraph::runtime
