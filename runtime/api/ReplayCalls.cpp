// SPDX-License-Identifier: Apache-2.0
// The C API: replays of steps, and what is known of them.
#include "runtime/api/Call.h"

#include <cstdlib>

using namespace pumpgraph::runtime;

extern "C" {

pumpgraph_status pumpgraph_replay(pumpgraph_step *step, pumpgraph_stream stream, pumpgraph_error *error) {
  return onStep(step, error, [&](Step &self) -> Status { return self.replay(stream); });
}

pumpgraph_status pumpgraph_put_in_force(pumpgraph_step *step, pumpgraph_error *error) {
  return onStep(step, error, [&](Step &self) -> Status { return self.putInForce(); });
}

pumpgraph_status pumpgraph_prepare_replay(pumpgraph_step *step, pumpgraph_stream stream, const pumpgraph_copy *copies,
                                          size_t count, pumpgraph_error *error) {
  return onStep(step, error, [&](Step &self) -> Status {
    if (!copies && count != 0)
      return nullArgument("copies");
    return self.prepareReplay(stream, {copies, count});
  });
}

pumpgraph_status pumpgraph_before_launch(pumpgraph_step *step, pumpgraph_stream stream, pumpgraph_launch *launch,
                                         pumpgraph_error *error) {
  return onStep(step, error, [&](Step &self) -> Status {
    if (!launch)
      return nullArgument("launch");
    const Expected<LaunchState> state = self.beforeLaunch(stream);
    if (!state)
      return tl::unexpected<Error>(state.error());
    pumpgraph_launch filled{};
    filled.graph_has_changed = state->graphHasChanged;
    filled.is_watched = state->isWatched;
    return writeStruct(launch, filled, "launch");
  });
}

pumpgraph_status pumpgraph_after_launch(pumpgraph_step *step, pumpgraph_stream stream, pumpgraph_error *error) {
  return onStep(step, error, [&](Step &self) -> Status { return self.afterLaunch(stream); });
}

pumpgraph_status pumpgraph_report(pumpgraph_step *step, char **json, pumpgraph_error *error) {
  return onStep(step, error, [&](Step &self) -> Status {
    if (!json)
      return nullArgument("json");
    *json = copyString(self.report());
    if (!*json)
      return fail(PUMPGRAPH_OUT_OF_HOST_MEMORY, "host memory ran out");
    return {};
  });
}

void pumpgraph_string_free(char *string) {
  std::free(string);
}

pumpgraph_status pumpgraph_save(pumpgraph_step *step, const char *path, pumpgraph_error *error) {
  return onStep(step, error, [&](Step &self) -> Status { return path ? self.save(path) : nullArgument("path"); });
}

pumpgraph_status pumpgraph_memory_snapshot(pumpgraph_step *step, const char *path, pumpgraph_error *error) {
  return onStep(step, error,
                [&](Step &self) -> Status { return path ? self.memorySnapshot(path) : nullArgument("path"); });
}

} // extern "C"
