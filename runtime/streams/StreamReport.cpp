// SPDX-License-Identifier: Apache-2.0
// What planned rounds say at the end of a program.
#include "runtime/streams/StreamRun.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace pumpgraph::runtime {
namespace {

/// "median 38.1 ms (predicted 37.7)"
std::string timesText(const StreamPlan &plan) {
  return fmt::format("median {:.1f} ms (predicted {:.1f})", plan.times.medianUs() * 1e-3, plan.predictedUs * 1e-3);
}

} // namespace

std::vector<const StreamPlan *> StreamRun::history() const {
  std::vector<const StreamPlan *> all;
  for (const std::unique_ptr<StreamPlan> &plan : retired_)
    all.push_back(plan.get());
  for (const auto &[period, plan] : plans_)
    all.push_back(plan.get());
  return all;
}

Status StreamRun::writeReport(const std::string &folder) const {
  std::map<std::uint32_t, int> pages;
  for (const StreamPlan *plan : history()) {
    const std::uint32_t period = plan->script.period;
    const int page = ++pages[period];
    const std::string path =
        fmt::format("{}/{}-period-{}{}.txt", folder, getpid(), period, page == 1 ? "" : fmt::format("-{}", page));
    std::ofstream file(path);
    file << fmt::format("period {}: {} calls and allocations, {} rounds as planned, in force {} times\n", period,
                        plan->script.events.size(), plan->rounds, plan->inForce);
    file << timesText(*plan) << "\n";
    for (const auto &[event, count] : plan->deviations)
      file << fmt::format("left {} times by {}\n", count, event);
    file << "\n" << plan->reportText;
    file.close();
    if (!file)
      return fail(PUMPGRAPH_INVALID_ARGUMENT, "the report {} cannot be written: {}", path, std::strerror(errno));
  }
  return {};
}

std::vector<std::string> StreamRun::summary() const {
  std::vector<std::string> lines;
  if (planning_.count() != 0) {
    const auto seconds = [](Driver::Clock::duration time) { return std::chrono::duration<double>(time).count(); };
    const Driver::Clock::duration last = plan_ ? Driver::Clock::duration{} : tools_.driver.now() - unplannedSince_;
    lines.push_back(fmt::format("planning took {:.1f} s; {:.1f} s passed without a plan", seconds(planning_),
                                seconds(unplannedTime_ + last)));
  }
  for (const StreamPlan *plan : history()) {
    std::string &line =
        lines.emplace_back(fmt::format("planned: {} rounds of period {}, {}, in force {} times", plan->rounds,
                                       plan->script.period, timesText(*plan), plan->inForce));
    if (plan->takenBack != 0)
      line += fmt::format(", left {} times, the last time by {}", plan->takenBack, plan->lastDeviation);
  }
  std::size_t shown = 0;
  for (const auto &[period, reason] : unplanned_)
    if (shown++ < mostUnplannedShown)
      lines.push_back(fmt::format("period {} is not planned: {}", period, reason));
  if (shown > mostUnplannedShown)
    lines.push_back(fmt::format("{} more periods are not planned", shown - mostUnplannedShown));
  if (isRefused())
    lines.push_back("nothing was planned since: " + refusal_);
  return lines;
}

} // namespace pumpgraph::runtime
