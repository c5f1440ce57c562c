// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/Report.h"

#include "pumpgraph/graph/PrintableJson.h"
#include "runtime/measure/MeasuredTimes.h"
#include "runtime/session/Rewriting.h"
#include "runtime/state/Exchange.h"
#include "runtime/state/Links.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace pumpgraph::runtime {

void writeReport(StepState &step) {
  using Json = nlohmann::ordered_json;
  step.report.json =
      std::make_shared<Json>(step.plan.report && step.plan.report->is_object() ? *step.plan.report : Json::object());
  Json &report = *step.report.json;
  if (report.empty()) {
    report["name"] = step.name();
    report["nodes"] = step.captured.description.nodes.size();
    report["buffers"] = step.captured.description.buffers.size();
  }
  const std::vector<Node> &nodes = step.plan.lowered.nodes;
  const auto repetitions =
      std::count_if(nodes.begin(), nodes.end(), [](const Node &node) { return node.kind == NodeKind::Rematerialize; });
  std::vector<std::string> notes = step.session.notes;
  notes.insert(notes.end(), step.captured.notes.begin(), step.captured.notes.end());
  Json runtime = {
      {"backend", step.isManaged()     ? "managed"
                  : step.isRewritten() ? "virtual"
                                       : "as captured"},
      {"backend_why", step.report.backendWhy},
      {"left_as_captured", step.isRewritten() || step.isManaged() ? Json(nullptr) : Json(step.report.reason)},
      {"replans_by_itself", step.planning.replanner != nullptr},
      {"repetitions", repetitions},
      {"capture_ms", step.history.times.captureMs},
      {"lift_ms", step.history.times.liftMs},
      {"scan_ms", step.history.times.scanMs},
      {"calibrate_ms", step.history.times.calibrateMs},
      {"hosted_ms", step.history.times.hostedMs},
      {"trials_ms", step.history.times.trialsMs},
      {"plan_ms", step.history.times.planMs},
      {"pinned_ms", step.history.times.pinnedMs},
      {"map_ms", step.history.times.mapMs},
      {"lower_ms", step.history.times.lowerMs},
      {"check_ms", step.history.times.checkMs},
      {"budget_bytes", step.session.memory.frames->budgetFrames() * pageBytes},
      {"device_bytes", step.session.memory.frames->created() * pageBytes},
      {"other_device_bytes", step.plan.otherFrames * pageBytes},
      {"host_backed_bytes", step.session.memory.host->backedBytes()},
      {"pinned_bytes", step.session.memory.host->pinnedBytes()},
      {"link", linkReport(step.session)},
      {"notes", std::move(notes)},
      {"warnings", step.captured.warnings}};
  report["runtime"] = std::move(runtime);
  step.report.timesAreTold = false;
}

/// Not when times are measured: bounds take their time, and nobody may ask.
static void tellTimes(StepState &step) {
  using Json = nlohmann::ordered_json;
  Json &runtime = (*step.report.json)["runtime"];
  if (step.history.plans.empty()) {
    runtime["costs"] = nullptr;
    return;
  }
  runtime["costs"] = step.plan.savedTimes != 0 ? "saved" : "static";
  if (!step.isRewritten() || !areMeasured(step.captured.description))
    return;
  if (!hasTimesOf(step.plan.lowered, step.captured.description)) {
    const Expected<const Compiler *> compiler = compilerOf(step.session);
    const Expected<Json> figures =
        compiler ? Rewriting(step, **compiler).retimedFigures() : tl::unexpected<Error>(compiler.error());
    if (!figures) {
      runtime["notes"].push_back("the step times are not by measured node times: " + figures.error().message);
      return;
    }
    step.report.json->update(*figures);
  }
  (*step.report.json)["runtime"]["costs"] = "measured";
}

std::string reportOf(StepState &step) {
  using Json = nlohmann::ordered_json;
  if (!std::exchange(step.report.timesAreTold, true))
    tellTimes(step);
  const auto seconds = [](const std::optional<double> &us) { return us ? Json(*us / usPerSecond) : Json(nullptr); };
  Json plans = Json::array();
  for (const PlanRecord &plan : step.history.plans)
    plans.push_back({{"costs", plan.costs},
                     {"why", plan.why},
                     {"predicted_s", plan.predictedUs / usPerSecond},
                     {"measured_s", seconds(plan.measuredUs)},
                     {"predicted_again_s", seconds(plan.predictedAgainUs)}});
  Json &runtime = (*step.report.json)["runtime"];
  runtime["plans"] = std::move(plans);
  std::string boundary;
  for (const StepState *other : sharers(step))
    boundary += (boundary.empty() ? "shared with " : ", ") + other->name();
  runtime["boundary"] = step.isRewritten() ? Json(boundary.empty() ? "own" : boundary) : Json(nullptr);
  if (!step.history.plannedAgain.empty())
    runtime["planned_again"] = step.history.plannedAgain;
  if (step.memory.managed)
    runtime["agent"] = step.memory.managed->report();
  if (step.planning.observation.runs != 0)
    runtime["observation"] = step.planning.observation.report(step.captured.description);
  runtime["exchanges"] = step.history.exchanges;
  runtime["exchange_ms"] = step.history.exchangeMs;
  return dumpPrintable(*step.report.json, 2);
}

} // namespace pumpgraph::runtime
