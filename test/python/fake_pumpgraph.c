/* SPDX-License-Identifier: Apache-2.0 */
/**
 * \file
 * Stands in for libpumpgraph.so in the tests of the Python package: writes down what it is called with, answers with
 * fixed figures, and fails when told to. It keeps state in the file, which a test may do and the library may not.
 */
#include "pumpgraph/pumpgraph.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAKE __attribute__((visibility("default")))

static char log_text[1 << 16];
static char failing[64];
static pumpgraph_status failing_status;
static char failing_message[512];
static char torch_snapshot_text[1 << 12] =
    "{\"recording\": false, \"events\": [], \"live\": [], \"stacks\": [], \"blocks\": []}";
static char report_text[1 << 14] = "{\"name\": \"step\"}";

/** What was called since the last time, one call a line. */
FAKE const char *fake_log(void) {
  return log_text;
}
FAKE void fake_clear(void) {
  log_text[0] = failing[0] = '\0';
}

/** The next call of `function` fails so. */
FAKE void fake_fail(const char *function, int status, const char *message) {
  snprintf(failing, sizeof failing, "%s", function);
  snprintf(failing_message, sizeof failing_message, "%s", message);
  failing_status = (pumpgraph_status)status;
}

static char budget_message[256];

/* What the next pumpgraph_keep_to_budget() says. */
FAKE void fake_exceed_budget(const char *message) {
  snprintf(budget_message, sizeof budget_message, "%s", message);
}

static char launches[64];
static const char *next_launch = launches;

/* A letter for each call of pumpgraph_before_launch(): w is watched; C is watched, and the graph has changed; c is
 * changed, and watched no more; . is neither, as is every call after the last letter. */
FAKE void fake_set_launches(const char *letters) {
  snprintf(launches, sizeof launches, "%s", letters);
  next_launch = launches;
}

FAKE void fake_set_torch_snapshot(const char *json) {
  snprintf(torch_snapshot_text, sizeof torch_snapshot_text, "%s", json);
}

FAKE void fake_set_report(const char *json) {
  snprintf(report_text, sizeof report_text, "%s", json);
}

static void write_down(const char *format, ...) {
  const size_t used = strlen(log_text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(log_text + used, sizeof log_text - used, format, arguments);
  va_end(arguments);
}

/** For the test's own lines between the library's. */
FAKE void fake_note(const char *line) {
  write_down("%s\n", line);
}

static pumpgraph_status answer(const char *function, pumpgraph_error *error) {
  if (strcmp(failing, function) != 0)
    return PUMPGRAPH_OK;
  failing[0] = '\0';
  if (error != NULL) {
    error->status = failing_status;
    snprintf(error->message, sizeof error->message, "%s", failing_message);
  }
  return failing_status;
}

static const char *or_null(const char *text) {
  return text != NULL ? text : "NULL";
}

/* Handles are numbers, so that a test can read them in the log. */
static pumpgraph_session *const the_session = (pumpgraph_session *)0x5e55;
static pumpgraph_step *const the_step = (pumpgraph_step *)0x57e9;

FAKE pumpgraph_status pumpgraph_session_create(const pumpgraph_session_options *options, pumpgraph_session **session,
                                               pumpgraph_error *error) {
  write_down("session_create size=%d budget=%llu unlimited=%d device=%d host_limit=%llu cache=%s compiler=%s "
             "process=%d backend=%d oversubscribed=%d managed=%llu limit=%llu rematerialize=%d planning=%d\n",
             options->struct_size == sizeof *options, (unsigned long long)options->budget_bytes, options->unlimited,
             options->device, (unsigned long long)options->host_limit_bytes, or_null(options->cache_directory),
             or_null(options->compiler_library), options->whole_process, options->backend,
             options->allow_oversubscription, (unsigned long long)options->managed_bytes,
             (unsigned long long)options->managed_limit_bytes, options->rematerialize, options->planning);
  const pumpgraph_status status = answer("session_create", error);
  if (status == PUMPGRAPH_OK)
    *session = the_session;
  return status;
}

FAKE void pumpgraph_session_destroy(pumpgraph_session *session) {
  write_down("session_destroy %p\n", (void *)session);
}

static pumpgraph_message_callback message_callback;
static int32_t message_level;

FAKE pumpgraph_status pumpgraph_set_message_callback(int32_t level, pumpgraph_message_callback callback, void *user,
                                                     pumpgraph_error *error) {
  (void)user;
  message_level = level;
  message_callback = callback;
  return answer("set_message_callback", error);
}

/** Sends a message as the library does; returns whether anybody gets it. */
FAKE int fake_message(int32_t level, const char *message) {
  if (message_callback == NULL || level > message_level)
    return 0;
  message_callback(level, message, NULL);
  return 1;
}

FAKE pumpgraph_status pumpgraph_set_progress_callback(pumpgraph_session *session, pumpgraph_progress_callback callback,
                                                      void *user, pumpgraph_error *error) {
  (void)session, (void)callback, (void)user;
  return answer("set_progress_callback", error);
}

static pumpgraph_progress progress_now;

FAKE void fake_set_progress(int32_t phase, uint64_t done, uint64_t total, double best_us) {
  progress_now = (pumpgraph_progress){0, phase, done, total, best_us, 1};
}

FAKE pumpgraph_status pumpgraph_get_progress(pumpgraph_session *session, pumpgraph_progress *progress,
                                             pumpgraph_error *error) {
  (void)session;
  *progress = progress_now;
  return answer("get_progress", error);
}

static uintptr_t next_address;

/** Every allocation is 64 KiB behind the one before, from here on; 0: all are at one address. */
FAKE void fake_allocate_from(uint64_t address) {
  next_address = address;
}

FAKE pumpgraph_status pumpgraph_allocate(pumpgraph_session *session, size_t size, pumpgraph_stream stream,
                                         const char *name, void **pointer, pumpgraph_error *error) {
  write_down("allocate %p %zu %p %s\n", (void *)session, size, (void *)stream, or_null(name));
  *pointer = (void *)(next_address ? next_address : 0x1000);
  if (next_address)
    next_address += 1 << 16;
  return answer("allocate", error);
}

FAKE pumpgraph_status pumpgraph_free(pumpgraph_session *session, void *pointer, pumpgraph_stream stream,
                                     pumpgraph_error *error) {
  write_down("free %p %p %p\n", (void *)session, pointer, (void *)stream);
  return answer("free", error);
}

FAKE pumpgraph_status pumpgraph_declare_private(pumpgraph_session *session, void *pointer, pumpgraph_error *error) {
  write_down("declare_private %p %p\n", (void *)session, pointer);
  return answer("declare_private", error);
}

FAKE pumpgraph_status pumpgraph_declare_present(pumpgraph_session *session, void *pointer, pumpgraph_error *error) {
  write_down("declare_present %p %p\n", (void *)session, pointer);
  return answer("declare_present", error);
}

FAKE pumpgraph_status pumpgraph_name(pumpgraph_session *session, void *pointer, const char *name,
                                     pumpgraph_error *error) {
  write_down("name %p %p %s\n", (void *)session, pointer, or_null(name));
  return answer("name", error);
}

FAKE pumpgraph_status pumpgraph_memory_statistics(pumpgraph_session *session, pumpgraph_memory_stats *stats,
                                                  pumpgraph_error *error) {
  write_down("memory_statistics %p size=%d\n", (void *)session, stats->struct_size == sizeof *stats);
  stats->budget_bytes = 1;
  stats->device_bytes = 2;
  stats->device_peak_bytes = 3;
  stats->host_backed_bytes = 4;
  stats->pinned_bytes = 5;
  stats->live_bytes = 6;
  stats->live_allocations = 7;
  stats->frame_budget_bytes = 8;
  stats->process_bytes = 1;
  stats->live_peak_bytes = 9;
  stats->live_peak_allocations = 10;
  stats->allocated_bytes = 11;
  stats->allocations = 12;
  return answer("memory_statistics", error);
}

FAKE void pumpgraph_release(pumpgraph_session *session, void *pointer, pumpgraph_stream stream, int32_t waits) {
  write_down("release %p %p %p %d\n", (void *)session, pointer, (void *)stream, waits);
}

static char tags_text[1 << 10] = "[]";

FAKE void fake_set_tags(const char *json) {
  snprintf(tags_text, sizeof tags_text, "%s", json);
}

FAKE pumpgraph_status pumpgraph_tag_begin(pumpgraph_session *session, const char *name, uint64_t *tag,
                                          pumpgraph_error *error) {
  write_down("tag_begin %p %s\n", (void *)session, name);
  *tag = 7;
  return answer("tag_begin", error);
}

FAKE pumpgraph_status pumpgraph_tag_end(pumpgraph_session *session, uint64_t tag, pumpgraph_error *error) {
  write_down("tag_end %p %llu\n", (void *)session, (unsigned long long)tag);
  return answer("tag_end", error);
}

FAKE pumpgraph_status pumpgraph_tags(pumpgraph_session *session, int32_t reset_peaks, char **json,
                                     pumpgraph_error *error) {
  write_down("tags %p %d\n", (void *)session, reset_peaks);
  *json = strdup(tags_text);
  return answer("tags", error);
}

FAKE pumpgraph_status pumpgraph_reset_peaks(pumpgraph_session *session, pumpgraph_error *error) {
  write_down("reset_peaks %p\n", (void *)session);
  return answer("reset_peaks", error);
}

FAKE pumpgraph_status pumpgraph_map(pumpgraph_session *session, void *pointer, pumpgraph_error *error) {
  write_down("map %p %p\n", (void *)session, pointer);
  return answer("map", error);
}

FAKE pumpgraph_status pumpgraph_unmap(pumpgraph_session *session, void *pointer, pumpgraph_error *error) {
  write_down("unmap %p %p\n", (void *)session, pointer);
  return answer("unmap", error);
}

FAKE pumpgraph_status pumpgraph_keep_freed(pumpgraph_session *session, int32_t on, pumpgraph_error *error) {
  write_down("keep_freed %p %d\n", (void *)session, on);
  return answer("keep_freed", error);
}

static uint64_t departures;

FAKE pumpgraph_status pumpgraph_departures(pumpgraph_session *session, const uint64_t **counter,
                                           pumpgraph_error *error) {
  (void)session;
  (void)error;
  *counter = &departures;
  return PUMPGRAPH_OK;
}

/* As if the values of one call had to leave for those of the next. */
FAKE void fake_depart(void) {
  ++departures;
}

FAKE pumpgraph_status pumpgraph_bring(pumpgraph_session *session, void *const *pointers, size_t count, int32_t use,
                                      pumpgraph_error *error) {
  static const char *const uses[] = {"read", "write", "keep"};
  write_down("bring %p to %s", (void *)session, uses[use]);
  for (size_t i = 0; i < count; ++i)
    write_down(" %p", pointers[i]);
  write_down("\n");
  return answer("bring", error);
}

FAKE pumpgraph_status pumpgraph_take_back(pumpgraph_session *session, pumpgraph_error *error) {
  write_down("take_back %p\n", (void *)session);
  return answer("take_back", error);
}

FAKE pumpgraph_status pumpgraph_empty_cache(pumpgraph_session *session, pumpgraph_error *error) {
  write_down("empty_cache %p\n", (void *)session);
  return answer("empty_cache", error);
}

FAKE pumpgraph_status pumpgraph_measure_link(pumpgraph_session *session, double seconds, pumpgraph_error *error) {
  write_down("measure_link %p %.1f\n", (void *)session, seconds);
  return answer("measure_link", error);
}

static uint64_t paged_bytes = 0;
static int32_t is_paged = 0;

/* As if there was a budget, and so many bytes moved in each call that is paged. */
FAKE void fake_page(int32_t is_on, uint64_t bytes) {
  is_paged = is_on;
  paged_bytes = bytes;
}

FAKE pumpgraph_status pumpgraph_begin_paging(pumpgraph_session *session, pumpgraph_stream stream, int32_t *begun,
                                             pumpgraph_error *error) {
  if (is_paged)
    write_down("begin_paging %p %p\n", (void *)session, (void *)stream);
  *begun = is_paged;
  return answer("begin_paging", error);
}

FAKE pumpgraph_status pumpgraph_page_in(pumpgraph_session *session, void *const *pointers, size_t count,
                                        pumpgraph_error *error) {
  write_down("page_in %p", (void *)session);
  for (size_t i = 0; i < count; ++i)
    write_down(" %p", pointers[i]);
  write_down("\n");
  return answer("page_in", error);
}

FAKE pumpgraph_status pumpgraph_end_paging(pumpgraph_session *session, uint64_t *moved_bytes, pumpgraph_error *error) {
  write_down("end_paging %p\n", (void *)session);
  *moved_bytes = paged_bytes;
  return answer("end_paging", error);
}

FAKE pumpgraph_status pumpgraph_capture_begin(pumpgraph_session *session, pumpgraph_error *error) {
  write_down("capture_begin %p\n", (void *)session);
  return answer("capture_begin", error);
}

FAKE pumpgraph_status pumpgraph_capture_end(pumpgraph_session *session, pumpgraph_error *error) {
  write_down("capture_end %p\n", (void *)session);
  return answer("capture_end", error);
}

static pumpgraph_status declare(const char *name, pumpgraph_session *session, pumpgraph_stream stream,
                                const void *const *pointers, size_t count, pumpgraph_error *error) {
  write_down("%s %p %p", name, (void *)session, (void *)stream);
  for (size_t i = 0; i < count; ++i)
    write_down(" %p", pointers[i]);
  write_down("\n");
  return answer(name, error);
}

FAKE pumpgraph_status pumpgraph_declare_reads(pumpgraph_session *session, pumpgraph_stream stream,
                                              const void *const *pointers, size_t count, pumpgraph_error *error) {
  return declare("declare_reads", session, stream, pointers, count, error);
}

FAKE pumpgraph_status pumpgraph_declare_writes(pumpgraph_session *session, pumpgraph_stream stream,
                                               const void *const *pointers, size_t count, pumpgraph_error *error) {
  return declare("declare_writes", session, stream, pointers, count, error);
}

FAKE pumpgraph_status pumpgraph_declare_reach(pumpgraph_session *session, pumpgraph_stream stream,
                                              const void *const *read, size_t read_count, const void *const *written,
                                              size_t written_count, pumpgraph_error *error) {
  const pumpgraph_status status = declare("declare_reach of what is read", session, stream, read, read_count, error);
  return status ? status : declare("declare_reach", session, stream, written, written_count, error);
}

FAKE pumpgraph_status pumpgraph_declare_extents(pumpgraph_session *session, pumpgraph_stream stream,
                                                const pumpgraph_byte_range *extents, size_t count,
                                                pumpgraph_error *error) {
  const void *pointers[64];
  for (size_t i = 0; i < count && i < 64; ++i)
    pointers[i] = (const char *)extents[i].pointer + extents[i].bytes;
  return declare("declare_extents up to", session, stream, pointers, count, error);
}

FAKE pumpgraph_status pumpgraph_declare_aside(pumpgraph_session *session, pumpgraph_stream stream,
                                              const void *const *pointers, size_t count, pumpgraph_error *error) {
  return declare("declare_aside", session, stream, pointers, count, error);
}

FAKE pumpgraph_status pumpgraph_declare_kernel_reads(pumpgraph_session *session, const char *name,
                                                     const uint32_t *parameters, size_t count, pumpgraph_error *error) {
  write_down("declare_kernel_reads %p %s", (void *)session, or_null(name));
  for (size_t i = 0; i < count; ++i)
    write_down(" %u", parameters[i]);
  write_down("\n");
  return answer("declare_kernel_reads", error);
}

FAKE pumpgraph_status pumpgraph_name_nodes(pumpgraph_session *session, pumpgraph_stream stream, const char *name,
                                           pumpgraph_error *error) {
  write_down("name_nodes %p %p %s\n", (void *)session, (void *)stream, or_null(name));
  return answer("name_nodes", error);
}

FAKE pumpgraph_status pumpgraph_declare_operation(pumpgraph_session *session, pumpgraph_stream stream, int32_t kind,
                                                  pumpgraph_error *error) {
  write_down("declare_operation %p %p %d\n", (void *)session, (void *)stream, kind);
  return answer("declare_operation", error);
}

FAKE pumpgraph_status pumpgraph_declare_arithmetic(pumpgraph_session *session, pumpgraph_stream stream,
                                                   double operations, int32_t kind, pumpgraph_error *error) {
  write_down("declare_arithmetic %p %p %g %d\n", (void *)session, (void *)stream, operations, kind);
  return answer("declare_arithmetic", error);
}

FAKE pumpgraph_status pumpgraph_free_scratch(pumpgraph_session *session, int32_t on, pumpgraph_error *error) {
  write_down("free_scratch %p %d\n", (void *)session, on);
  return answer("free_scratch", error);
}

FAKE pumpgraph_status pumpgraph_rehearse(pumpgraph_session *session, pumpgraph_cuda_graph graph,
                                         pumpgraph_error *error) {
  write_down("rehearse %p %p\n", (void *)session, (void *)graph);
  return answer("rehearse", error);
}

static int32_t rehearsal_matches = 1;

FAKE void fake_match_rehearsal(int32_t same) {
  rehearsal_matches = same;
}

FAKE pumpgraph_status pumpgraph_record_stream(pumpgraph_session *session, void *pointer, pumpgraph_stream stream,
                                              pumpgraph_error *error) {
  write_down("record_stream %p %p %p\n", (void *)session, pointer, (void *)stream);
  return answer("record_stream", error);
}

FAKE pumpgraph_status pumpgraph_rehearsal_matches(pumpgraph_session *session, pumpgraph_cuda_graph graph, int32_t *same,
                                                  pumpgraph_error *error) {
  write_down("rehearsal_matches %p %p\n", (void *)session, (void *)graph);
  *same = rehearsal_matches;
  return answer("rehearsal_matches", error);
}

FAKE pumpgraph_status pumpgraph_adopt(pumpgraph_session *session, pumpgraph_cuda_graph graph,
                                      const pumpgraph_adopt_options *options, pumpgraph_step **step,
                                      pumpgraph_error *error) {
  write_down("adopt %p %p size=%d name=%s costs=%s leave=%d keep=%d calibrate=%d boundary=%d%s%s%s%s%s\n",
             (void *)session, (void *)graph, options->struct_size == sizeof *options, or_null(options->name),
             or_null(options->costs_ir), options->leave_as_captured, options->keep_first_plan, options->calibrate,
             options->boundary, options->prefetching ? " prefetching" : "", options->hosting ? " hosting" : "",
             options->rematerialize ? " never again" : "", options->plan_others_again ? " others" : "",
             options->trust_purity ? " trusting" : "");
  const pumpgraph_status status = answer("adopt", error);
  if (status == PUMPGRAPH_OK)
    *step = the_step;
  return status;
}

FAKE pumpgraph_status pumpgraph_capture(pumpgraph_session *session, int (*record)(pumpgraph_stream, void *), void *user,
                                        const pumpgraph_adopt_options *options, pumpgraph_step **step,
                                        pumpgraph_error *error) {
  (void)options;
  write_down("capture %p %d\n", (void *)session, record(NULL, user));
  *step = the_step;
  return answer("capture", error);
}

FAKE void pumpgraph_step_destroy(pumpgraph_step *step) {
  write_down("step_destroy %p\n", (void *)step);
}

FAKE pumpgraph_status pumpgraph_replay(pumpgraph_step *step, pumpgraph_stream stream, pumpgraph_error *error) {
  write_down("replay %p %p\n", (void *)step, (void *)stream);
  return answer("replay", error);
}

FAKE pumpgraph_status pumpgraph_put_in_force(pumpgraph_step *step, pumpgraph_error *error) {
  write_down("put_in_force %p\n", (void *)step);
  return answer("put_in_force", error);
}

FAKE pumpgraph_status pumpgraph_prepare_replay(pumpgraph_step *step, pumpgraph_stream stream,
                                               const pumpgraph_copy *copies, size_t count, pumpgraph_error *error) {
  write_down("put_in_force %p\n", (void *)step);
  (void)stream;
  const pumpgraph_status status = answer("put_in_force", error);
  for (size_t i = 0; status == PUMPGRAPH_OK && i < count; ++i)
    write_down("copy %zu bytes from %p to %p\n", copies[i].bytes, copies[i].source, copies[i].destination);
  return status;
}

FAKE pumpgraph_status pumpgraph_keep_to_budget(pumpgraph_session *session, pumpgraph_budget_state *state,
                                               pumpgraph_error *error) {
  write_down("keep_to_budget %p size=%d\n", (void *)session, state->struct_size == sizeof *state);
  snprintf(state->message, sizeof state->message, "%s", budget_message);
  budget_message[0] = '\0';
  return answer("keep_to_budget", error);
}

FAKE pumpgraph_status pumpgraph_before_launch(pumpgraph_step *step, pumpgraph_stream stream, pumpgraph_launch *launch,
                                              pumpgraph_error *error) {
  const char now = *next_launch == '\0' ? '.' : *next_launch++;
  write_down("before_launch %p %p size=%d\n", (void *)step, (void *)stream, launch->struct_size == sizeof *launch);
  launch->graph_has_changed = now == 'C' || now == 'c';
  launch->is_watched = now == 'w' || now == 'C';
  return answer("before_launch", error);
}

FAKE pumpgraph_status pumpgraph_after_launch(pumpgraph_step *step, pumpgraph_stream stream, pumpgraph_error *error) {
  write_down("after_launch %p %p\n", (void *)step, (void *)stream);
  return answer("after_launch", error);
}

FAKE pumpgraph_status pumpgraph_report(pumpgraph_step *step, char **json, pumpgraph_error *error) {
  write_down("report %p\n", (void *)step);
  const pumpgraph_status status = answer("report", error);
  if (status == PUMPGRAPH_OK)
    *json = strdup(report_text);
  return status;
}

FAKE void pumpgraph_string_free(char *string) {
  write_down("string_free\n");
  free(string);
}

/* {"segments": [], "device_traces": [[]]} */
FAKE pumpgraph_status pumpgraph_memory_snapshot(pumpgraph_step *step, const char *path, pumpgraph_error *error) {
  write_down("memory snapshot %p\n", (void *)step);
  const pumpgraph_status status = answer("memory_snapshot", error);
  if (status != PUMPGRAPH_OK)
    return status;
  FILE *file = fopen(path, "wb");
  if (file == NULL)
    return PUMPGRAPH_INVALID_ARGUMENT;
  fputs("\x80\x04}(X\x08", file);
  fwrite("\0\0\0segments]X\x0d\0\0\0device_traces](]eu.", 1, 36, file);
  fclose(file);
  return PUMPGRAPH_OK;
}

FAKE pumpgraph_status pumpgraph_save(pumpgraph_step *step, const char *path, pumpgraph_error *error) {
  write_down("save %p\n", (void *)step);
  const pumpgraph_status status = answer("save", error);
  if (status != PUMPGRAPH_OK)
    return status;
  FILE *file = fopen(path, "w");
  if (file == NULL)
    return PUMPGRAPH_INVALID_ARGUMENT;
  fputs("pump.graph @step {\n}\n", file);
  fclose(file);
  return PUMPGRAPH_OK;
}

FAKE pumpgraph_status pumpgraph_measure(pumpgraph_step *step, int32_t repeats, pumpgraph_measurement *measurement,
                                        pumpgraph_error *error) {
  write_down("measure %p %d size=%d\n", (void *)step, repeats, measurement->struct_size == sizeof *measurement);
  measurement->step_us = 1234.5;
  measurement->timed_nodes = 67;
  return answer("measure", error);
}

FAKE pumpgraph_status pumpgraph_replan(pumpgraph_step *step, pumpgraph_replanning *result, pumpgraph_error *error) {
  write_down("replan %p size=%d\n", (void *)step, result->struct_size == sizeof *result);
  result->predicted_before_us = 1;
  result->measured_before_us = 2;
  result->predicted_us = 3;
  result->measured_us = 4;
  result->timed_nodes = 5;
  result->kept_first = 1;
  return answer("replan", error);
}

FAKE pumpgraph_status pumpgraph_validate(pumpgraph_step *step, pumpgraph_validation *result, pumpgraph_error *error) {
  write_down("validate %p size=%d\n", (void *)step, result->struct_size == sizeof *result);
  result->compared_buffers = 8;
  result->compared_bytes = 9;
  result->different_buffers = 10;
  result->unstable_buffers = 11;
  strcpy(result->first_difference, "fc1.weight at byte 12");
  result->impure_nodes = 12;
  strcpy(result->impure, "\"noisy\"");
  return answer("validate", error);
}

FAKE pumpgraph_status pumpgraph_observe(pumpgraph_step *step, const void *const *values, size_t value_count,
                                        pumpgraph_observation *result, pumpgraph_error *error) {
  write_down("observe %p size=%d values=%zu%s\n", (void *)step, result->struct_size == sizeof *result, value_count,
             value_count != 0 && values[0] == (void *)0x3000 ? " first=0x3000" : "");
  result->runs = 1;
  result->kernels = 2;
  result->slots = 3;
  result->covered = 4;
  result->differing = 5;
  result->disagreements = 6;
  strcpy(result->first_disagreement, "node 7");
  return answer("observe", error);
}

FAKE pumpgraph_status pumpgraph_torch_attach(pumpgraph_session *session, pumpgraph_error *error) {
  write_down("torch_attach %p\n", (void *)session);
  return answer("torch_attach", error);
}

FAKE void *pumpgraph_torch_malloc(size_t size, int device, pumpgraph_stream stream) {
  write_down("torch_malloc %zu %d %p\n", size, device, (void *)stream);
  return (void *)0x2000;
}

FAKE void pumpgraph_torch_free(void *pointer, size_t size, int device, pumpgraph_stream stream) {
  write_down("torch_free %p %zu %d %p\n", pointer, size, device, (void *)stream);
}

FAKE void pumpgraph_torch_record_stream(void *pointer, pumpgraph_stream stream) {
  (void)pointer;
  (void)stream;
}

FAKE void pumpgraph_torch_empty_cache(void) {
  write_down("torch_empty_cache\n");
}

FAKE void pumpgraph_torch_keep(void *pointer) {
  write_down("torch_keep %p\n", pointer);
}

FAKE pumpgraph_status pumpgraph_torch_record(pumpgraph_session *session, const pumpgraph_torch_recording *recording,
                                             pumpgraph_error *error) {
  if (recording == NULL)
    write_down("torch_record %p off\n", (void *)session);
  else
    write_down("torch_record %p events %llu stacks %d keep %d\n", (void *)session,
               (unsigned long long)recording->most_events, recording->stacks, recording->keep_events);
  return answer("torch_record", error);
}

FAKE pumpgraph_status pumpgraph_torch_snapshot(pumpgraph_session *session, char **json, pumpgraph_error *error) {
  write_down("torch_snapshot %p\n", (void *)session);
  *json = strdup(torch_snapshot_text);
  return answer("torch_snapshot", error);
}

FAKE const char *pumpgraph_version(void) {
  return "0.1.0";
}

FAKE char *pumpgraph_doctor(void) {
  return strdup("no driver\n");
}
