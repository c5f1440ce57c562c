// SPDX-License-Identifier: Apache-2.0
// The C API: checks arguments, turns errors into statuses, lets no exception out.
#include "pumpgraph/access_table.h"
#include "pumpgraph/graph/Printable.h"
#include "runtime/api/Handles.h"
#include "runtime/api/Log.h"
#include "runtime/capture/AccessTables.h"
#include "runtime/capture/DeadStack.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

using namespace pumpgraph::runtime;
using Json = nlohmann::ordered_json;

namespace {

/// Names in a message are from outside: it is printable(), and cut between two characters if it is too long.
template <std::size_t size> void writeMessage(char (&to)[size], const std::string &message) {
  const std::string shown = pumpgraph::printable(message);
  std::size_t length = std::min(shown.size(), size - 1);
  while (length < shown.size() && (static_cast<unsigned char>(shown[length]) & 0xc0) == 0x80)
    --length;
  std::memcpy(to, shown.data(), length);
  to[length] = '\0';
}

pumpgraph_status report(const Error &error, pumpgraph_error *out) {
  if (out) {
    out->status = error.status;
    writeMessage(out->message, error.message);
  }
  return error.status;
}

/// Runs a call; its Status, or what was thrown on the way, becomes the call's status.
template <typename Call> pumpgraph_status guard(pumpgraph_error *error, Call call) noexcept {
  try {
    const Status status = call();
    return status ? PUMPGRAPH_OK : report(status.error(), error);
  } catch (const std::bad_alloc &) {
    return report({PUMPGRAPH_OUT_OF_HOST_MEMORY, "host memory ran out"}, error);
  } catch (const std::exception &exception) {
    return report({PUMPGRAPH_INTERNAL, exception.what()}, error);
  }
}

/// The same for a call on a session. Once the device is lost, that is the error of each.
template <typename Call>
pumpgraph_status onSessionQuietly(pumpgraph_session *session, pumpgraph_error *error, Call call) noexcept {
  return guard(error, [&]() -> Status {
    if (!session)
      return fail(PUMPGRAPH_INVALID_ARGUMENT, "session is NULL");
    PUMPGRAPH_TRY(session->session->health());
    Status done = call(*session->session);
    if (!done)
      PUMPGRAPH_TRY(session->session->health());
    return done;
  });
}

/// The same for a call after which messages are handed on. Those of allocation do not: destructors call them.
template <typename Call>
pumpgraph_status onSession(pumpgraph_session *session, pumpgraph_error *error, Call call) noexcept {
  const pumpgraph_status status = onSessionQuietly(session, error, call);
  if (session)
    guard(nullptr, [&]() -> Status {
      Log::ofProcess().deliver(session->session->messages());
      return {};
    });
  return status;
}

template <typename Call> pumpgraph_status onStep(pumpgraph_step *step, pumpgraph_error *error, Call call) noexcept {
  if (!step)
    return guard(error, [] { return Status(fail(PUMPGRAPH_INVALID_ARGUMENT, "step is NULL")); });
  return onSession(step->session, error, [&](Session &) -> Status { return call(*step->step); });
}

/// The end of a call that comes between launches of a capture: what it and they left on the stack must not be in what
/// the next one hands over.
pumpgraph_status betweenLaunches(const pumpgraph_session *session, pumpgraph_status status) {
  if (session && session->session->isCapturing())
    clearDeadStack();
  return status;
}

tl::unexpected<Error> nullArgument(const char *name) {
  return fail(PUMPGRAPH_INVALID_ARGUMENT, "{} is NULL", name);
}

char *copyString(const std::string &text) {
  auto *copy = static_cast<char *>(std::malloc(text.size() + 1));
  if (copy)
    std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

/// A struct of the caller's may be older, and shorter, than ours: what it lacks is zero.
template <typename Struct> Expected<Struct> readStruct(const Struct *given, const char *name) {
  Struct copy{};
  copy.struct_size = sizeof copy;
  if (!given)
    return copy;
  if (given->struct_size < sizeof(std::size_t) || given->struct_size > 4096)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "{}->struct_size is {}", name, given->struct_size);
  std::memcpy(&copy, given, std::min(given->struct_size, sizeof copy));
  return copy;
}

/// The other way round: fills in no more than the caller's struct has room for.
template <typename Struct> Status writeStruct(Struct *target, Struct value, const char *name) {
  if (!target)
    return nullArgument(name);
  if (target->struct_size < sizeof(std::size_t) || target->struct_size > 4096)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "{}->struct_size is {}", name, target->struct_size);
  value.struct_size = target->struct_size;
  std::memcpy(target, &value, std::min(target->struct_size, sizeof value));
  return {};
}

Json blocksOf(Session &session) {
  Json blocks = Json::array();
  for (const LiveBlock &block : session.liveBlocks()) {
    Json allocations = Json::array();
    for (const LiveBlock::Part &part : block.parts)
      allocations.push_back(
          {{"address", part.address}, {"bytes", part.bytes}, {"stream", reinterpret_cast<std::uint64_t>(part.stream)}});
    blocks.push_back({{"address", block.address},
                      {"bytes", block.bytes},
                      {"is_shared", block.isShared},
                      {"allocations", std::move(allocations)}});
  }
  return blocks;
}

Expected<AdoptOptions> adoptOptions(const pumpgraph_adopt_options *given) {
  const Expected<pumpgraph_adopt_options> read = readStruct(given, "options");
  if (!read)
    return tl::unexpected<Error>(read.error());
  AdoptOptions options;
  if (read->name)
    options.name = read->name;
  if (read->costs_ir)
    options.costsIr = read->costs_ir;
  options.leaveAsCaptured = read->leave_as_captured != 0;
  options.keepFirstPlan = read->keep_first_plan != 0;
  options.calibrate = read->calibrate != 0;
  if (read->boundary < PUMPGRAPH_BOUNDARY_AUTOMATIC || read->boundary > PUMPGRAPH_BOUNDARY_SHARED)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "options->boundary is {}", read->boundary);
  options.boundary = static_cast<BoundaryChoice>(read->boundary);
  options.plansOthersAgain = read->plan_others_again != 0;
  if (read->prefetching < PUMPGRAPH_PREFETCHING_AHEAD || read->prefetching > PUMPGRAPH_PREFETCHING_NONE)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "options->prefetching is {}", read->prefetching);
  options.prefetching = read->prefetching;
  if (read->hosting < PUMPGRAPH_HOSTING_AUTOMATIC || read->hosting > PUMPGRAPH_HOSTING_MEASURED)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "options->hosting is {}", read->hosting);
  options.hosting = static_cast<HostingChoice>(read->hosting);
  if (read->rematerialize < PUMPGRAPH_REMATERIALIZE_AUTOMATIC || read->rematerialize > PUMPGRAPH_REMATERIALIZE_NEVER)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "options->rematerialize is {}", read->rematerialize);
  options.rematerialize = static_cast<RematerializeChoice>(read->rematerialize);
  return options;
}

pumpgraph_progress toC(const ProgressState &state) {
  return {sizeof(pumpgraph_progress),
          static_cast<std::int32_t>(state.phase),
          state.done,
          state.total,
          state.bestUs,
          state.seconds};
}

Status hand(Expected<Step *> made, pumpgraph_session *session, pumpgraph_step **out) {
  if (!made)
    return tl::unexpected<Error>(std::move(made).error());
  *out = new pumpgraph_step{session, *made};
  return {};
}

} // namespace

namespace pumpgraph::runtime {

Expected<std::unique_ptr<pumpgraph_session>> makeSession(const pumpgraph_session_options &given,
                                                         std::shared_ptr<const Driver> driver) {
  SessionOptions options;
  options.budgetBytes = given.budget_bytes;
  options.unlimited = given.unlimited != 0;
  options.device = given.device;
  options.hostLimitBytes = given.host_limit_bytes;
  options.cacheDirectory = given.cache_directory ? given.cache_directory : "";
  options.compilerLibrary = given.compiler_library ? given.compiler_library : "";
  if (given.whole_process) {
    CUuuid uuid{};
    PUMPGRAPH_TRY_WHILE(driver->deviceGetUuid(&uuid, given.device), "opening device {}", given.device);
    options.processMemory = openProcessMemory(uuid);
  }
  if (given.backend < PUMPGRAPH_BACKEND_VIRTUAL || given.backend > PUMPGRAPH_BACKEND_AUTOMATIC)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "options->backend is {}", given.backend);
  options.backend = static_cast<BackendChoice>(given.backend);
  if (given.rematerialize < PUMPGRAPH_REMATERIALIZE_AUTOMATIC || given.rematerialize > PUMPGRAPH_REMATERIALIZE_NEVER)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "options->rematerialize is {}", given.rematerialize);
  options.rematerialize = static_cast<RematerializeChoice>(given.rematerialize);
  if (given.planning < PUMPGRAPH_PLANNING_ASIDE || given.planning > PUMPGRAPH_PLANNING_IN_REPLAY)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "options->planning is {}", given.planning);
  options.plansAside = given.planning == PUMPGRAPH_PLANNING_ASIDE;
  options.managedBytes = given.managed_bytes;
  options.managedGuard.allowOversubscription = given.allow_oversubscription != 0;
  if (given.managed_limit_bytes != 0)
    options.managedGuard.limitBytes = given.managed_limit_bytes;
  Expected<std::unique_ptr<Session>> session = Session::create(options, std::move(driver));
  if (!session)
    return tl::unexpected<Error>(session.error());
  auto made = std::make_unique<pumpgraph_session>();
  made->session = std::move(*session);
  return made;
}

} // namespace pumpgraph::runtime

#define PUMPGRAPH_TEXT(number) #number
#define PUMPGRAPH_VERSION_TEXT(major, minor, patch)                                                                    \
  PUMPGRAPH_TEXT(major) "." PUMPGRAPH_TEXT(minor) "." PUMPGRAPH_TEXT(patch)
static constexpr const char *headerVersion =
    PUMPGRAPH_VERSION_TEXT(PUMPGRAPH_VERSION_MAJOR, PUMPGRAPH_VERSION_MINOR, PUMPGRAPH_VERSION_PATCH);
static_assert(std::string_view(headerVersion) == PUMPGRAPH_BUILT_VERSION, "the header's version is not the project's");

extern "C" {

const char *pumpgraph_version() {
  return headerVersion;
}

pumpgraph_status pumpgraph_session_create(const pumpgraph_session_options *options, pumpgraph_session **session,
                                          pumpgraph_error *error) {
  return guard(error, [&]() -> Status {
    if (!options)
      return nullArgument("options");
    if (!session)
      return nullArgument("session");
    const Expected<pumpgraph_session_options> read = readStruct(options, "options");
    if (!read)
      return tl::unexpected<Error>(read.error());
    const QueueWish queues = read->backend == PUMPGRAPH_BACKEND_MANAGED ? QueueWish::Any : QueueWish::Few;
    const Expected<std::shared_ptr<const Driver>> driver = Driver::load(queues);
    if (!driver)
      return tl::unexpected<Error>(driver.error());
    Expected<std::unique_ptr<pumpgraph_session>> made = makeSession(*read, *driver);
    if (!made)
      return tl::unexpected<Error>(made.error());
    *session = made->release();
    Log::ofProcess().deliver((*session)->session->messages());
    return {};
  });
}

void pumpgraph_session_destroy(pumpgraph_session *session) {
  detachFromTorch(session);
  guard(nullptr, [&]() -> Status {
    if (session)
      Log::ofProcess().deliver(session->session->messages());
    delete session;
    return {};
  });
}

pumpgraph_status pumpgraph_set_message_callback(int32_t level, pumpgraph_message_callback callback, void *user,
                                                pumpgraph_error *error) {
  return guard(error, [&]() -> Status {
    if (level < PUMPGRAPH_MESSAGE_NONE || level > PUMPGRAPH_MESSAGE_DEBUG)
      return fail(PUMPGRAPH_INVALID_ARGUMENT, "level is {}", level);
    Log::ofProcess().setCallback(level, callback, user);
    return {};
  });
}

pumpgraph_status pumpgraph_set_progress_callback(pumpgraph_session *session, pumpgraph_progress_callback callback,
                                                 void *user, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    Progress::Receiver receiver;
    if (callback)
      receiver = [callback, user](const ProgressState &state) {
        const pumpgraph_progress progress = toC(state);
        callback(&progress, user);
      };
    self.progress().setReceiver(std::move(receiver));
    return {};
  });
}

pumpgraph_status pumpgraph_get_progress(pumpgraph_session *session, pumpgraph_progress *progress,
                                        pumpgraph_error *error) {
  return guard(error, [&]() -> Status {
    if (!session)
      return nullArgument("session");
    return writeStruct(progress, toC(session->session->progress().now()), "progress");
  });
}

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

pumpgraph_status pumpgraph_capture_begin(pumpgraph_session *session, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status { return self.captureBegin(); });
}

pumpgraph_status pumpgraph_capture_end(pumpgraph_session *session, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status { return self.captureEnd(); });
}

static std::vector<CUdeviceptr> addressesOf(const void *const *pointers, size_t count) {
  std::vector<CUdeviceptr> addresses;
  for (size_t i = 0; i < count; ++i)
    addresses.push_back(reinterpret_cast<CUdeviceptr>(pointers[i]));
  return addresses;
}

/// pumpgraph_declare_reads() or pumpgraph_declare_aside().
static pumpgraph_status declarePointers(pumpgraph_session *session, pumpgraph_stream stream,
                                        const void *const *pointers, size_t count, pumpgraph_error *error,
                                        Status (Session::*declare)(CUstream, const std::vector<CUdeviceptr> &)) {
  return onSession(session, error, [&](Session &self) -> Status {
    if (!pointers && count != 0)
      return nullArgument("pointers");
    return (self.*declare)(reinterpret_cast<CUstream>(stream), addressesOf(pointers, count));
  });
}

pumpgraph_status pumpgraph_declare_reads(pumpgraph_session *session, pumpgraph_stream stream,
                                         const void *const *pointers, size_t count, pumpgraph_error *error) {
  return betweenLaunches(session, declarePointers(session, stream, pointers, count, error, &Session::declareReads));
}

pumpgraph_status pumpgraph_declare_aside(pumpgraph_session *session, pumpgraph_stream stream,
                                         const void *const *pointers, size_t count, pumpgraph_error *error) {
  return betweenLaunches(session, declarePointers(session, stream, pointers, count, error, &Session::declareAside));
}

pumpgraph_status pumpgraph_declare_kernel_reads(pumpgraph_session *session, const char *name,
                                                const uint32_t *parameters, size_t count, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    if (!name)
      return nullArgument("name");
    if (!parameters && count != 0)
      return nullArgument("parameters");
    return self.declareKernelReads(name, std::span(parameters, count));
  });
}

pumpgraph_status pumpgraph_declare_writes(pumpgraph_session *session, pumpgraph_stream stream,
                                          const void *const *pointers, size_t count, pumpgraph_error *error) {
  const pumpgraph_status status = onSession(session, error, [&](Session &self) -> Status {
    if (!pointers && count != 0)
      return nullArgument("pointers");
    return self.declareWrites(reinterpret_cast<CUstream>(stream),
                              pointers ? std::optional(addressesOf(pointers, count)) : std::nullopt);
  });
  return betweenLaunches(session, status);
}

pumpgraph_status pumpgraph_name_nodes(pumpgraph_session *session, pumpgraph_stream stream, const char *name,
                                      pumpgraph_error *error) {
  const pumpgraph_status status = onSession(session, error, [&](Session &self) -> Status {
    return self.nameNodes(reinterpret_cast<CUstream>(stream), name ? name : "");
  });
  return betweenLaunches(session, status);
}

pumpgraph_status pumpgraph_declare_operation(pumpgraph_session *session, pumpgraph_stream stream, int32_t kind,
                                             pumpgraph_error *error) {
  const pumpgraph_status status = onSession(session, error, [&](Session &self) -> Status {
    if (kind < PUMPGRAPH_OPERATION_UNKNOWN || kind > PUMPGRAPH_OPERATION_PURE)
      return fail(PUMPGRAPH_INVALID_ARGUMENT, "{} is no kind of operation", kind);
    return self.declareOperation(reinterpret_cast<CUstream>(stream), static_cast<OperationKind>(kind));
  });
  return betweenLaunches(session, status);
}

pumpgraph_status pumpgraph_declare_arithmetic(pumpgraph_session *session, pumpgraph_stream stream, double operations,
                                              int32_t kind, pumpgraph_error *error) {
  const pumpgraph_status status = onSession(session, error, [&](Session &self) -> Status {
    if (kind < PUMPGRAPH_ARITHMETIC_UNKNOWN || kind > PUMPGRAPH_ARITHMETIC_INT8)
      return fail(PUMPGRAPH_INVALID_ARGUMENT, "{} is no kind of arithmetic", kind);
    if (!(operations >= 0 && std::isfinite(operations)))
      return fail(PUMPGRAPH_INVALID_ARGUMENT, "arithmetic of {} operations; a finite number of them, or 0", operations);
    return self.declareArithmetic(reinterpret_cast<CUstream>(stream), operations, static_cast<ArithmeticKind>(kind));
  });
  return betweenLaunches(session, status);
}

pumpgraph_status pumpgraph_free_scratch(pumpgraph_session *session, int32_t on, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    self.freedIsScratch(on != 0);
    return {};
  });
}

pumpgraph_status pumpgraph_rehearse(pumpgraph_session *session, pumpgraph_cuda_graph graph, pumpgraph_error *error) {
  return onSession(session, error,
                   [&](Session &self) -> Status { return graph ? self.rehearse(graph) : nullArgument("graph"); });
}

pumpgraph_status pumpgraph_rehearsal_matches(pumpgraph_session *session, pumpgraph_cuda_graph graph, int32_t *same,
                                             pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    if (!graph || !same)
      return nullArgument(graph ? "same" : "graph");
    const Expected<bool> answer = self.rehearsalMatches(graph);
    if (!answer)
      return tl::unexpected<Error>(answer.error());
    *same = *answer ? 1 : 0;
    return {};
  });
}

pumpgraph_status pumpgraph_adopt(pumpgraph_session *session, pumpgraph_cuda_graph graph,
                                 const pumpgraph_adopt_options *options, pumpgraph_step **step,
                                 pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    if (!graph)
      return nullArgument("graph");
    if (!step)
      return nullArgument("step");
    const Expected<AdoptOptions> read = adoptOptions(options);
    if (!read)
      return tl::unexpected<Error>(read.error());
    return hand(self.adopt(graph, *read), session, step);
  });
}

pumpgraph_status pumpgraph_capture(pumpgraph_session *session, int (*record)(pumpgraph_stream stream, void *user),
                                   void *user, const pumpgraph_adopt_options *options, pumpgraph_step **step,
                                   pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    if (!record)
      return nullArgument("record");
    if (!step)
      return nullArgument("step");
    const Expected<AdoptOptions> read = adoptOptions(options);
    if (!read)
      return tl::unexpected<Error>(read.error());
    return hand(self.capture([=](CUstream stream) { return record(stream, user); }, *read), session, step);
  });
}

void pumpgraph_step_destroy(pumpgraph_step *step) {
  guard(nullptr, [&]() -> Status {
    if (step)
      step->session->session->destroy(step->step);
    delete step;
    return {};
  });
}

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

pumpgraph_status pumpgraph_torch_record(pumpgraph_session *session, const pumpgraph_torch_recording *recording,
                                        pumpgraph_error *error) {
  return guard(error, [&]() -> Status { // of a lost device too: nothing is asked of it
    if (!session)
      return nullArgument("session");
    if (!recording) {
      session->history.stop();
      return {};
    }
    const Expected<pumpgraph_torch_recording> read = readStruct(recording, "recording");
    if (!read)
      return tl::unexpected<Error>(read.error());
    for (const void *function : {read->gil_state_ensure, read->gil_state_release, read->eval_get_frame,
                                 read->frame_get_back, read->frame_get_code, read->frame_get_line, read->dec_ref})
      if (!function)
        return nullArgument("a function of the interpreter's");
    session->history.record(*read);
    return {};
  });
}

pumpgraph_status pumpgraph_torch_snapshot(pumpgraph_session *session, char **json, pumpgraph_error *error) {
  return guard(error, [&]() -> Status {
    if (!session)
      return nullArgument("session");
    if (!json)
      return nullArgument("json");
    *json = copyString(
        session->history.snapshot([&](Json &snapshot) { snapshot["blocks"] = blocksOf(*session->session); }).dump());
    if (!*json)
      return fail(PUMPGRAPH_OUT_OF_HOST_MEMORY, "host memory ran out");
    return {};
  });
}

pumpgraph_status pumpgraph_memory_snapshot(pumpgraph_step *step, const char *path, pumpgraph_error *error) {
  return onStep(step, error,
                [&](Step &self) -> Status { return path ? self.memorySnapshot(path) : nullArgument("path"); });
}

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
    writeMessage(filled.first_difference, validated->firstDifference);
    filled.impure_nodes = validated->impureNodes;
    writeMessage(filled.impure, validated->impure);
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
      writeMessage(filled.first_disagreement, observed->disagreements.begin()->message);
    return writeStruct(result, filled, "result");
  });
}

// Called by constructors, where nobody could handle an error. A kernel without a table is one that nothing is known of.
void pumpgraph_register_access_table(const pumpgraph_access_table *table) {
  try {
    AccessTables::ofProcess().add(table);
  } catch (const std::exception &exception) {
    Log::ofProcess().tellLater(Level::Warning, std::string("an access table is left out: ") + exception.what());
  }
}

void pumpgraph_unregister_access_table(const pumpgraph_access_table *table) {
  try {
    AccessTables::ofProcess().remove(table);
  } catch (const std::exception &exception) {
    Log::ofProcess().tellLater(Level::Warning, std::string("an access table stays known: ") + exception.what());
  }
}

char *pumpgraph_doctor(void) {
  try {
    return copyString(examineMachine());
  } catch (const std::exception &) {
    return nullptr;
  }
}

} // extern "C"
