// SPDX-License-Identifier: Apache-2.0
// The C API: captures, and steps made from them.
#include "runtime/api/Call.h"
#include "runtime/capture/DeadStack.h"

#include <cmath>
#include <utility>
#include <vector>

using namespace pumpgraph::runtime;

static Expected<AdoptOptions> adoptOptions(const pumpgraph_adopt_options *given) {
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
  options.trustPurity = read->trust_purity != 0;
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

static Status hand(Expected<Step *> made, pumpgraph_session *session, pumpgraph_step **out) {
  if (!made)
    return tl::unexpected<Error>(std::move(made).error());
  *out = new pumpgraph_step{session, *made};
  return {};
}

extern "C" {

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

pumpgraph_status pumpgraph_declare_extents(pumpgraph_session *session, pumpgraph_stream stream,
                                           const pumpgraph_byte_range *extents, size_t count, pumpgraph_error *error) {
  const pumpgraph_status status = onSession(session, error, [&](Session &self) -> Status {
    if (!extents && count != 0)
      return nullArgument("extents");
    std::vector<DeclaredExtent> declared;
    for (size_t i = 0; i < count; ++i)
      declared.push_back({reinterpret_cast<CUdeviceptr>(extents[i].pointer), extents[i].bytes});
    return self.declareExtents(reinterpret_cast<CUstream>(stream), declared);
  });
  return betweenLaunches(session, status);
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

pumpgraph_status pumpgraph_declare_reach(pumpgraph_session *session, pumpgraph_stream stream, const void *const *read,
                                         size_t read_count, const void *const *written, size_t written_count,
                                         pumpgraph_error *error) {
  const pumpgraph_status status = onSession(session, error, [&](Session &self) -> Status {
    if (!read && read_count != 0)
      return nullArgument("read");
    if (!written && written_count != 0)
      return nullArgument("written");
    return self.declareReach(reinterpret_cast<CUstream>(stream),
                             {addressesOf(read, read_count), addressesOf(written, written_count)});
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

} // extern "C"
