// SPDX-License-Identifier: Apache-2.0
// The C API: PumpGraph's own runs of a step.
#include "runtime/api/Call.h"

#include <vector>

using namespace pumpgraph::runtime;

extern "C" {

pumpgraph_status pumpgraph_measure(pumpgraph_step *step, int32_t repeats, pumpgraph_measurement *measurement,
                                   pumpgraph_error *error) {
  return onStep(step, error, [&](Step &self) -> Status {
    if (!measurement)
      return nullArgument("measurement");
    const Expected<Measurement> measured = self.measure(repeats);
    if (!measured)
      return tl::unexpected<Error>(measured.error());
    pumpgraph_measurement filled{};
    filled.step_us = measured->stepUs;
    filled.timed_nodes = measured->timedNodes;
    return writeStruct(measurement, filled, "measurement");
  });
}

pumpgraph_status pumpgraph_replan(pumpgraph_step *step, pumpgraph_replanning *result, pumpgraph_error *error) {
  return onStep(step, error, [&](Step &self) -> Status {
    if (!result)
      return nullArgument("result");
    const Expected<Replanning> replanned = self.replan();
    if (!replanned)
      return tl::unexpected<Error>(replanned.error());
    pumpgraph_replanning filled{};
    filled.predicted_before_us = replanned->before.predictedUs;
    filled.measured_before_us = replanned->before.measuredUs.value_or(0);
    filled.predicted_us = replanned->after.predictedUs;
    filled.measured_us = replanned->after.measuredUs.value_or(0);
    filled.timed_nodes = replanned->timedNodes;
    filled.kept_first = replanned->keptFirst;
    return writeStruct(result, filled, "result");
  });
}

pumpgraph_status pumpgraph_validate(pumpgraph_step *step, pumpgraph_validation *result, pumpgraph_error *error) {
  return onStep(step, error, [&](Step &self) -> Status {
    if (!result)
      return nullArgument("result");
    const Expected<Validation> validated = self.validate();
    if (!validated)
      return tl::unexpected<Error>(validated.error());
    pumpgraph_validation filled{};
    filled.compared_buffers = validated->comparedBuffers;
    filled.compared_bytes = validated->comparedBytes;
    filled.different_buffers = validated->differentBuffers;
    filled.unstable_buffers = validated->unstableBuffers;
    writeMessage(filled.first_difference, sizeof filled.first_difference, validated->firstDifference);
    filled.impure_nodes = validated->impureNodes;
    writeMessage(filled.impure, sizeof filled.impure, validated->impure);
    if (const Status written = writeStruct(result, filled, "result"); !written)
      return written;
    const std::string impure = validated->impure.empty() ? "" : "; " + validated->impure;
    if (validated->differentBuffers != 0)
      return fail(PUMPGRAPH_MISMATCH, "{} of {} buffers differ from the step as captured; {}{}",
                  validated->differentBuffers, validated->comparedBuffers, validated->firstDifference, impure);
    if (validated->impureNodes != 0)
      return fail(PUMPGRAPH_MISMATCH, "the step as captured does not reproduce {} buffers{}",
                  validated->unstableBuffers, impure);
    return {};
  });
}

pumpgraph_status pumpgraph_observe(pumpgraph_step *step, const void *const *values, size_t value_count,
                                   pumpgraph_observation *result, pumpgraph_error *error) {
  return onStep(step, error, [&](Step &self) -> Status {
    if (!values && value_count != 0)
      return nullArgument("values");
    if (!result)
      return nullArgument("result");
    std::vector<CUdeviceptr> addresses;
    for (size_t i = 0; i < value_count; ++i)
      addresses.push_back(reinterpret_cast<CUdeviceptr>(values[i]));
    const Expected<Observation> observed = self.observe(addresses);
    if (!observed)
      return tl::unexpected<Error>(observed.error());
    pumpgraph_observation filled{};
    filled.runs = observed->runs;
    filled.kernels = observed->kernels;
    filled.slots = observed->operands.size();
    filled.covered = observed->covered();
    filled.differing = observed->differing();
    filled.disagreements = observed->disagreements.size();
    if (!observed->disagreements.empty())
      writeMessage(filled.first_disagreement, sizeof filled.first_disagreement,
                   observed->disagreements.begin()->message);
    return writeStruct(result, filled, "result");
  });
}

} // extern "C"
