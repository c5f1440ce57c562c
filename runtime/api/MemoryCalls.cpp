// SPDX-License-Identifier: Apache-2.0
// The C API: memory of a session.
#include "runtime/api/Call.h"

#include <nlohmann/json.hpp>

#include <cstdio>

using namespace pumpgraph::runtime;

static constexpr double mostSecondsOfMeasurement = 60;

extern "C" {

pumpgraph_status pumpgraph_allocate(pumpgraph_session *session, size_t size, pumpgraph_stream stream, const char *name,
                                    void **pointer, pumpgraph_error *error) {
  const pumpgraph_status status = onSessionQuietly(session, error, [&](Session &self) -> Status {
    if (!pointer)
      return nullArgument("pointer");
    const Expected<void *> allocated = self.allocate(size, stream, name ? name : "");
    if (!allocated)
      return tl::unexpected<Error>(allocated.error());
    *pointer = *allocated;
    return {};
  });
  return betweenLaunches(session, status);
}

pumpgraph_status pumpgraph_free(pumpgraph_session *session, void *pointer, pumpgraph_stream stream,
                                pumpgraph_error *error) {
  const pumpgraph_status status =
      onSessionQuietly(session, error, [&](Session &self) -> Status { return self.free(pointer, stream); });
  return betweenLaunches(session, status);
}

void pumpgraph_release(pumpgraph_session *session, void *pointer, pumpgraph_stream stream, int32_t waits) {
  if (!pointer)
    return;
  pumpgraph_error error{};
  const pumpgraph_status status = onSessionQuietly(session, &error, [&](Session &self) -> Status {
    return waits ? self.freeWhenIdle(pointer) : self.freeFor(pointer, stream);
  });
  if (status != PUMPGRAPH_OK && status != PUMPGRAPH_DEVICE_LOST) // a lost device is the error of every later call
    guard(nullptr, [&]() -> Status {
      Log::ofProcess().tellLater(Level::Error, fmt::format("{} stays allocated: {}", pointer, error.message));
      return {};
    });
  betweenLaunches(session, status);
}

pumpgraph_status pumpgraph_record_stream(pumpgraph_session *session, void *pointer, pumpgraph_stream stream,
                                         pumpgraph_error *error) {
  return onSessionQuietly(session, error, [&](Session &self) -> Status { return self.recordStream(pointer, stream); });
}

pumpgraph_status pumpgraph_declare_private(pumpgraph_session *session, void *pointer, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status { return self.declarePrivate(pointer); });
}

pumpgraph_status pumpgraph_declare_present(pumpgraph_session *session, void *pointer, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status { return self.declarePresent(pointer); });
}

pumpgraph_status pumpgraph_name(pumpgraph_session *session, void *pointer, const char *name, pumpgraph_error *error) {
  return onSession(session, error,
                   [&](Session &self) -> Status { return name ? self.name(pointer, name) : nullArgument("name"); });
}

pumpgraph_status pumpgraph_memory_statistics(pumpgraph_session *session, pumpgraph_memory_stats *stats,
                                             pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    const MemoryStatistics current = self.statistics();
    pumpgraph_memory_stats filled{};
    filled.budget_bytes = current.budgetBytes;
    filled.device_bytes = current.deviceBytes;
    filled.device_peak_bytes = current.devicePeakBytes;
    filled.host_backed_bytes = current.hostBackedBytes;
    filled.pinned_bytes = current.pinnedBytes;
    filled.live_bytes = current.live.liveBytes;
    filled.live_allocations = current.live.liveAllocations;
    filled.frame_budget_bytes = current.frameBudgetBytes;
    filled.process_bytes = current.processBytes;
    filled.live_peak_bytes = current.live.livePeakBytes;
    filled.live_peak_allocations = current.live.livePeakAllocations;
    filled.allocated_bytes = current.live.allocatedBytes;
    filled.allocations = current.live.allocations;
    return writeStruct(stats, filled, "stats");
  });
}

pumpgraph_status pumpgraph_reset_peaks(pumpgraph_session *session, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    self.resetPeaks();
    return {};
  });
}

pumpgraph_status pumpgraph_tag_begin(pumpgraph_session *session, const char *name, uint64_t *tag,
                                     pumpgraph_error *error) {
  return onSessionQuietly(session, error, [&](Session &self) -> Status {
    if (!name)
      return nullArgument("name");
    if (!tag)
      return nullArgument("tag");
    const Expected<std::uint64_t> begun = self.beginTag(name);
    if (!begun)
      return tl::unexpected<Error>(begun.error());
    *tag = *begun;
    return {};
  });
}

/// Of a session whose device is lost, too: the thread's later sessions have no part in it.
pumpgraph_status pumpgraph_tag_end(pumpgraph_session *session, uint64_t tag, pumpgraph_error *error) {
  return guard(error, [&]() -> Status { return session ? session->session->endTag(tag) : nullArgument("session"); });
}

pumpgraph_status pumpgraph_tags(pumpgraph_session *session, int32_t reset_peaks, char **json, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    if (!json)
      return nullArgument("json");
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const TagRow &row : self.tags(reset_peaks != 0))
      rows.push_back({{"tag", row.tag},
                      {"live_bytes", row.bytes.liveBytes},
                      {"peak_bytes", row.bytes.livePeakBytes},
                      {"live_allocations", row.bytes.liveAllocations},
                      {"allocated_bytes", row.bytes.allocatedBytes},
                      {"allocations", row.bytes.allocations}});
    *json = copyString(rows.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return *json ? Status() : fail(PUMPGRAPH_OUT_OF_HOST_MEMORY, "host memory ran out");
  });
}

pumpgraph_status pumpgraph_keep_to_budget(pumpgraph_session *session, pumpgraph_budget_state *state,
                                          pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    if (!state)
      return nullArgument("state");
    const Expected<BudgetState> found = self.keepToBudget();
    if (!found)
      return tl::unexpected<Error>(found.error());
    pumpgraph_budget_state filled{};
    filled.budget_bytes = found->budgetBytes;
    filled.process_bytes = found->processBytes;
    std::snprintf(filled.message, sizeof filled.message, "%s", found->message.c_str());
    return writeStruct(state, filled, "state");
  });
}

pumpgraph_status pumpgraph_map(pumpgraph_session *session, void *pointer, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status { return self.map(pointer); });
}

pumpgraph_status pumpgraph_unmap(pumpgraph_session *session, void *pointer, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status { return self.unmap(pointer); });
}

pumpgraph_status pumpgraph_bring(pumpgraph_session *session, void *const *pointers, size_t count, int32_t use,
                                 pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    if (!pointers && count != 0)
      return nullArgument("pointers");
    if (use < PUMPGRAPH_USE_READ || use > PUMPGRAPH_USE_UNTIL_REPLAY)
      return fail(PUMPGRAPH_INVALID_ARGUMENT, "use is {}; it is one of PUMPGRAPH_USE_READ, _WRITE and _UNTIL_REPLAY",
                  use);
    return self.bring({pointers, count}, static_cast<Use>(use));
  });
}

pumpgraph_status pumpgraph_departures(pumpgraph_session *session, const uint64_t **departures, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    if (!departures)
      return nullArgument("departures");
    *departures = &self.departures();
    return {};
  });
}

pumpgraph_status pumpgraph_take_back(pumpgraph_session *session, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status { return self.takeBack(); });
}

pumpgraph_status pumpgraph_empty_cache(pumpgraph_session *session, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status { return self.emptyCache(); });
}

pumpgraph_status pumpgraph_measure_link(pumpgraph_session *session, double seconds, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    if (!(seconds > 0 && seconds <= mostSecondsOfMeasurement))
      return fail(PUMPGRAPH_INVALID_ARGUMENT, "seconds is {}, outside (0, {}]", seconds, mostSecondsOfMeasurement);
    return self.measureLink(std::chrono::duration<double>(seconds));
  });
}

pumpgraph_status pumpgraph_begin_paging(pumpgraph_session *session, pumpgraph_stream stream, int32_t *begun,
                                        pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    const bool isOn = self.beginPaging(stream);
    if (begun)
      *begun = isOn ? 1 : 0;
    return {};
  });
}

pumpgraph_status pumpgraph_page_in(pumpgraph_session *session, void *const *pointers, size_t count,
                                   pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    if (!pointers && count != 0)
      return nullArgument("pointers");
    return self.pageIn({pointers, count});
  });
}

pumpgraph_status pumpgraph_end_paging(pumpgraph_session *session, uint64_t *moved_bytes, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    const std::uint64_t moved = self.endPaging();
    if (moved_bytes)
      *moved_bytes = moved;
    return {};
  });
}

pumpgraph_status pumpgraph_keep_freed(pumpgraph_session *session, int32_t on, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    self.keepFreedForGraphs(on != 0);
    return {};
  });
}

} // extern "C"
