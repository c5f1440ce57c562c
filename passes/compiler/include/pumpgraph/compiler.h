/* SPDX-License-Identifier: Apache-2.0 */
/**
 * \file
 * The only door of libpumpgraph-compiler.so: a flat description goes in, a checked and lowered one comes out.
 * Everything behind it (MLIR included) is hidden. No call keeps state between calls; calls may be made from several
 * threads.
 */
#ifndef PUMPGRAPH_COMPILER_H
#define PUMPGRAPH_COMPILER_H

#include "pumpgraph/description_c.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PUMPGRAPH_COMPILER_API __attribute__((visibility("default")))

/** Pages of a buffer, whole or in part. Neighbours in an array with one `group` number are a group. */
typedef struct pumpgraph_apart_pages {
  uint32_t group;
  uint32_t buffer;
  uint64_t offset;
  uint64_t size;
} pumpgraph_apart_pages;

/** Zero-initialise, set `struct_size` and `budget_bytes`; zero elsewhere means the default in
 * passes/analysis/Machine.h. */
typedef struct pumpgraph_compiler_options {
  size_t struct_size;
  uint64_t budget_bytes; /* 0: as much as the step needs */
  double up_bytes_per_second;
  double down_bytes_per_second;
  double both_bytes_per_second;
  double device_bytes_per_second;
  double copy_overhead_us;
  uint64_t host_bytes;  /* pinned host memory that may be used */
  const char *costs_ir; /* IR text of a saved step: its node times are taken where position and name agree; or NULL */
  const char *device;   /* the GPU's name: times that were saved on another are not taken; NULL: taken from any */
  /* What other steps have decided for all of them (docs/design/plan-correctness.md, "A shared boundary"), lowered for
   * virtual memory; NULL: nothing. */
  const pumpgraph_description *boundary;
  int32_t managed;                 /* 1: the step runs on managed memory; it is lowered to operations of an agent */
  int32_t prefetching;             /* managed only: a pumpgraph_prefetching of pumpgraph.h */
  int32_t every_access_known;      /* managed only. 0: nothing is discarded */
  double best_up_bytes_per_second; /* what bounds count on, where the link is faster at times; 0: as above */
  double best_down_bytes_per_second;
  uint32_t down_at_once;   /* copies to the host side by side, which share that bandwidth; 0: one */
  double down_overhead_us; /* of copies to the host; 0: as copy_overhead_us */
  double request_us;       /* managed only: from the end of a node to the beginning of what is asked for after it */
  double empty_bytes_per_second; /* managed only: of memory that is given or taken without a value; 0: at once */
  /* Managed only, by buffer: 0 it is hosted where it finds no room; 1 also where that is faster, all of it or parts; 2
   * what the description has of it in host memory stays there, which is not looked at elsewhere. NULL: 0 for all of
   * them. */
  const uint8_t *hosting;
  /* Managed only, microseconds, by round and in it by node: what it takes alone with those buffers in host memory whose
   * `hosting` is 1 and whose `hosted_round` is this one, and what stays of those with 2. NULL: nobody knows, and 1 is
   * as 0. */
  const double *hosted_us;
  uint32_t hosted_rounds;      /* managed only: of `hosted_us`; 0: one */
  const uint8_t *hosted_round; /* managed only, by buffer, from 0 on; NULL: 0 for all of them */
  int32_t rematerialize;       /* virtual memory only: 1: pure nodes may run again */
  /* Virtual memory only, of private buffers: no two pages of a group have one frame, because a node of another step,
   * which is to be planned into the boundary that this one leaves, uses them at once. NULL: none. */
  const pumpgraph_apart_pages *apart;
  uint64_t apart_count;
  /* Called with the predicted time, microseconds, of each plan that is the best of its search so far, from any thread
   * of the planner; not the time of the plan that comes out, which can be lowered to more. NULL: nobody is. */
  void (*found_plan)(double predicted_us, void *found_plan_user);
  void *found_plan_user;
} pumpgraph_compiler_options;

typedef enum pumpgraph_compiler_status {
  PUMPGRAPH_COMPILED = 0,
  PUMPGRAPH_COMPILER_UNPLANNABLE = 1, /* the message names the node or the memory that is too small */
  PUMPGRAPH_COMPILER_INVALID = 2,     /* the description or the costs are malformed */
  PUMPGRAPH_COMPILER_REFUSED = 3,     /* our own checker refused our own plan: a bug, reported as such */
  PUMPGRAPH_COMPILER_NO_MEMORY = 4    /* memory ran out; `*out` is NULL */
} pumpgraph_compiler_status;

typedef struct pumpgraph_compilation pumpgraph_compilation;

/** A plan of the step. Belongs to the compilation, as does all that it points at. */
typedef struct pumpgraph_candidate {
  const char *name; /* "as predicted"; no two of a compilation are equal */
  const pumpgraph_description *lowered;
  const char *report_json;
  const char *report_text;
} pumpgraph_candidate;

/* Every function below says of which stage (pumpgraph::Stage) its descriptions have to be, and refuses another by a
 * message that names both. */

/** Of a captured step: runs annotate-accesses, estimate-costs, plan-residency, check-residency, then lower-virtual and
 * check-residency, or lower-managed and check-managed. `*out` is
 * set in every case but PUMPGRAPH_COMPILER_NO_MEMORY (it carries the message) and belongs to the caller. `options` may
 * be NULL. */
PUMPGRAPH_COMPILER_API pumpgraph_compiler_status pumpgraph_compiler_compile(const pumpgraph_description *captured,
                                                                            const pumpgraph_compiler_options *options,
                                                                            pumpgraph_compilation **out);
/** The plans of a compiled step, from 0 on; NULL behind the last. There are several where the prediction does not tell
 * which is the fastest: on managed memory with `hosted_us`. The caller times them and keeps one; the first of equally
 * fast ones is to be preferred. */
PUMPGRAPH_COMPILER_API const pumpgraph_candidate *pumpgraph_compilation_candidate(const pumpgraph_compilation *,
                                                                                  uint64_t position);
PUMPGRAPH_COMPILER_API const char *pumpgraph_compilation_message(const pumpgraph_compilation *); /* "" if compiled */
/** Sentences for people, from 0 on; NULL behind the last. */
PUMPGRAPH_COMPILER_API const char *pumpgraph_compilation_note(const pumpgraph_compilation *, uint64_t position);
/** How many nodes have their time from `costs_ir`; a note says so if those are not all nodes. */
PUMPGRAPH_COMPILER_API uint64_t pumpgraph_compilation_saved_times(const pumpgraph_compilation *);
PUMPGRAPH_COMPILER_API void pumpgraph_compilation_free(pumpgraph_compilation *);

/** Runs the checker on a description that is lowered for virtual memory, re-lifted or not, and, if `captured` is not
 * NULL, checks that it preserves that captured step. Returns NULL if correct, else a message to be freed with
 * pumpgraph_compiler_string_free(). */
PUMPGRAPH_COMPILER_API char *pumpgraph_compiler_check(const pumpgraph_description *lowered,
                                                      const pumpgraph_description *captured);

/** The same for a step that is lowered for managed memory. */
PUMPGRAPH_COMPILER_API char *pumpgraph_compiler_check_managed(const pumpgraph_description *lowered,
                                                              const pumpgraph_description *captured);

/** Checks that a description that is lowered for virtual memory keeps a boundary that it shares with other steps, which
 * is of that stage too. Returns NULL if it does, else a message to be freed with pumpgraph_compiler_string_free(). */
PUMPGRAPH_COMPILER_API char *pumpgraph_compiler_check_boundary(const pumpgraph_description *rewritten,
                                                               const pumpgraph_description *boundary);

/** What a replay of a step that is lowered for virtual memory takes, microseconds, with the node times and the
 * slowdowns in the description: a compilation's, or others that have been measured since. Of `options`, which may be
 * NULL, only those count that say how fast the machine is. Returns NULL and sets `*predicted_us`, or a message to be
 * freed with pumpgraph_compiler_string_free(). */
PUMPGRAPH_COMPILER_API char *pumpgraph_compiler_predict(const pumpgraph_description *lowered,
                                                        const pumpgraph_compiler_options *options,
                                                        double *predicted_us);

/** The figures of a plan for virtual memory with the node times and the slowdowns in the descriptions, which may have
 * been measured since: `captured` as it was compiled with these `options`, `lowered` as it came out.
 * `peak_bytes_before` is that of the compilation's report. Returns NULL and sets `*json` to an object with the keys of
 * that report which depend on node times (docs/reference/report.md), or returns a message. Both are freed with
 * pumpgraph_compiler_string_free(). */
PUMPGRAPH_COMPILER_API char *pumpgraph_compiler_retime(const pumpgraph_description *captured,
                                                       const pumpgraph_description *lowered,
                                                       const pumpgraph_compiler_options *options,
                                                       uint64_t peak_bytes_before, char **json);

/** What a replay of a lowered step has on the device, as a snapshot for PyTorch's memory viewer
 * (docs/reference/report.md, "The memory snapshot"), with the node times in the description. Of `options`, which may be
 * NULL, only those count that say how fast the machine is. Returns NULL and sets `*pickle` and its `*size` in bytes, or
 * returns a message. Both are freed with pumpgraph_compiler_string_free(). */
PUMPGRAPH_COMPILER_API char *pumpgraph_compiler_memory_viz(const pumpgraph_description *lowered,
                                                           const pumpgraph_compiler_options *options, char **pickle,
                                                           size_t *size);

/** The description, of any stage, as IR text; NULL if it is malformed. `device` is the name of the GPU that its node
 * times are of; NULL if nobody knows. Freed with pumpgraph_compiler_string_free(). */
PUMPGRAPH_COMPILER_API char *pumpgraph_compiler_print(const pumpgraph_description *description, const char *device);
PUMPGRAPH_COMPILER_API void pumpgraph_compiler_string_free(char *);

#ifdef __cplusplus
}
#endif
#endif
