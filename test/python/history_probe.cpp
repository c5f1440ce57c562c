// SPDX-License-Identifier: Apache-2.0
// runtime/api/TorchHistory.h as C functions: what pumpgraph_torch_malloc() and pumpgraph_torch_free() do with it.
#include "runtime/api/TorchHistory.h"

#include <nlohmann/json.hpp>

#include <cstring>

using pumpgraph::runtime::TorchHistory;

static TorchHistory history;

extern "C" {

void probe_record(const pumpgraph_torch_recording *recording) {
  if (recording)
    history.record(*recording);
  else
    history.stop();
}

void probe_allocate(void *pointer, std::size_t bytes) {
  if (history.isOn())
    history.allocated(pointer, bytes, nullptr);
}

void probe_free(void *pointer) {
  if (history.isOn())
    history.freed(pointer, 0, nullptr);
}

/// While an exception is under way. To be called with the interpreter's lock held.
void probe_free_in_flight(void *pointer, void (*setError)(void *, const char *), void *kind) {
  setError(kind, "under way");
  probe_free(pointer);
}

void probe_run_out(std::size_t bytes) {
  if (history.isOn())
    history.ranOut(bytes, nullptr, 7);
}

char *probe_snapshot() {
  return strdup(history.snapshot([](nlohmann::ordered_json &) {}).dump().c_str());
}

} // extern "C"
