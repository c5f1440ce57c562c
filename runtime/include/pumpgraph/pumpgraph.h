/* SPDX-License-Identifier: Apache-2.0 */
/**
 * \file
 * The C API of PumpGraph: memory that may leave the device, capture, plan, replay.
 *
 * Threading: a session and its steps may be used from any thread, one call at a time; the allocation calls lock
 * themselves and may be made from several threads. A call that puts a plan in force or takes it back (replay, put in
 * force, take back, capture begin, adopt, replan, validate, observe, destroy) may map any of the session's memory anew:
 * while it runs, no other thread may start work on that memory, nor capture a stream. Every call that fails returns a
 * status other than PUMPGRAPH_OK, fills
 * `*error` when it is not NULL, and leaves its arguments as they were. Sizes are bytes. No call throws,
 * but for two of those that PyTorch makes.
 *
 * The CUDA driver is loaded at pumpgraph_session_create(); nothing here needs the CUDA toolkit, and CUDA handles are
 * passed as opaque pointers (CUstream, CUgraph, CUgraphExec: the same values as the runtime API's).
 */
#ifndef PUMPGRAPH_H
#define PUMPGRAPH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PUMPGRAPH_API __attribute__((visibility("default")))
#else
#define PUMPGRAPH_API
#endif

/** The version of this header. Until 1.0 a minor version may change the interface; the library's name and its symbols
 *  carry it, so a program loads the one that it was built for. */
#define PUMPGRAPH_VERSION_MAJOR 0
#define PUMPGRAPH_VERSION_MINOR 1
#define PUMPGRAPH_VERSION_PATCH 0

/** The version of the library, such as "0.1.0". Static; may be called at any time, from any thread. */
PUMPGRAPH_API const char *pumpgraph_version(void);

typedef struct pumpgraph_session pumpgraph_session;
typedef struct pumpgraph_step pumpgraph_step;
typedef struct CUstream_st *pumpgraph_stream;
typedef struct CUgraph_st *pumpgraph_cuda_graph;

typedef enum pumpgraph_status {
  PUMPGRAPH_OK = 0,
  PUMPGRAPH_INVALID_ARGUMENT = 1, /* the call's own fault */
  PUMPGRAPH_NO_DRIVER = 2,        /* no libcuda.so.1, no GPU, or a driver too old: the message says what to do */
  PUMPGRAPH_OUT_OF_DEVICE_MEMORY = 3,
  PUMPGRAPH_OUT_OF_HOST_MEMORY = 4,
  PUMPGRAPH_DRIVER_ERROR = 5, /* a CUDA driver call failed: its name and error are in the message */
  PUMPGRAPH_UNPLANNABLE = 6,  /* e.g. what has to stay on the device exceeds the budget */
  PUMPGRAPH_CAPTURE_FAILED = 7,
  PUMPGRAPH_MISMATCH = 8,    /* validate: results differ */
  PUMPGRAPH_INTERNAL = 9,    /* a check of our own refused the plan or the lowered graph; nothing was changed */
  PUMPGRAPH_DEVICE_LOST = 10 /* a kernel ended the context, such as by an illegal address: the message names the error.
                                Every call but the destroying ones returns this from then on */
} pumpgraph_status;

typedef struct pumpgraph_error {
  pumpgraph_status status;
  char message[2048]; /* always NUL-terminated; cut if longer */
} pumpgraph_error;

/** Where a session's memory is. A program's addresses stay what they are from its first allocation on, whatever stands
 * behind them. AUTOMATIC: virtual, where the device can; a step that cannot be seen into, and for which the budget has
 * not enough room, gets managed memory at the same addresses, as far as `managed_bytes` goes. Where that cannot be, the
 * step is left as captured, and the notes of its report say why (docs/design/managed.md, "Chosen by the step"). */
typedef enum pumpgraph_backend {
  PUMPGRAPH_BACKEND_VIRTUAL = 0,  /* frames and copies: steps that can be seen into, at the speed of the link */
  PUMPGRAPH_BACKEND_MANAGED = 1,  /* managed memory, moved in time: any step, at the speed of the driver */
  PUMPGRAPH_BACKEND_AUTOMATIC = 2 /* either, as each step needs it */
} pumpgraph_backend;

/** Whether plans for virtual memory may run kernels of a step again, where that is predicted to be faster than moving
 * what they make. Only what is known to be a function of its operands is run again: results stay the same, bit for bit.
 */
typedef enum pumpgraph_rematerialize {
  PUMPGRAPH_REMATERIALIZE_AUTOMATIC = 0,
  PUMPGRAPH_REMATERIALIZE_NEVER = 1
} pumpgraph_rematerialize;

/** Zero-initialise, set `struct_size`, then set what differs from the default. */
typedef struct pumpgraph_session_options {
  size_t struct_size;
  uint64_t budget_bytes;     /* for all buffers; at most the device's memory; 2 MiB pages; required unless unlimited */
  int32_t unlimited;         /* 1: no budget; every buffer gets device memory */
  int32_t device;            /* CUDA device ordinal */
  uint64_t host_limit_bytes; /* pinned and host-backed memory in all; 0: three quarters of what the system has free */
  const char *cache_directory; /* where the measured link bandwidths are kept; NULL: measured anew, not kept */
  const char
      *compiler_library; /* path of libpumpgraph-compiler.so; NULL: beside libpumpgraph.so, then the loader's path */
  int32_t whole_process; /* 1: the budget is what the process may have on the device in all, as nvidia-smi shows it:
                            contexts, kernels, graphs and others' memory too. Looked at when buffers get memory and when
                            a step is adopted; 64 MiB are kept for what comes in between. Where the driver does not tell
                            (libnvidia-ml.so.1), the budget is that of buffers, and reports say so */
  int32_t backend;       /* a pumpgraph_backend */
  int32_t allow_oversubscription; /* 1: a managed arena may be larger than the device's free memory. Everything is slow
                                     then, for other programs too */
  uint64_t managed_bytes;         /* managed memory for all allocations, those of both captures included; 0: as much as
                                     the next line and the device's free memory allow */
  uint64_t managed_limit_bytes;   /* no managed arena is larger; 0: 4 GiB */
  int32_t rematerialize;          /* a pumpgraph_rematerialize */
} pumpgraph_session_options;

/** Creates a session on the device's primary context, which becomes current if the thread has none.
 *  Unless the backend is PUMPGRAPH_BACKEND_MANAGED: if CUDA is not yet initialised in this process and the environment
 *  has no CUDA_DEVICE_MAX_CONNECTIONS, sets that to 2, so that copies are not slowed down by branches of a step that
 *  wait (docs/decisions/10-copies-at-link-speed.md); no other thread may read the environment meanwhile.
 *  Errors: PUMPGRAPH_NO_DRIVER, PUMPGRAPH_INVALID_ARGUMENT, PUMPGRAPH_DRIVER_ERROR. The caller owns the session. */
PUMPGRAPH_API pumpgraph_status pumpgraph_session_create(const pumpgraph_session_options *options,
                                                        pumpgraph_session **session, pumpgraph_error *error);

/** Waits for the device, frees everything. Steps of the session become invalid. NULL is allowed. */
PUMPGRAPH_API void pumpgraph_session_destroy(pumpgraph_session *session);

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/** Allocates `size` bytes of device-addressable memory, 512-byte aligned, for use on `stream`. Between
 *  pumpgraph_capture_begin() and pumpgraph_capture_end() the result is an address without memory behind it, which gets
 *  its memory when the step is adopted. `name` may be NULL; it is copied.
 *
 *  If `stream` is captured outside of these, into a graph of the program's own, the memory is that graph's: freed, it
 *  serves later allocations of the same capture on the same stream, and nobody else until the graph, its clones and
 *  what was instantiated from them are destroyed. It stays on the device whatever is declared. Then too the result has
 *  memory at once, and nothing waits for the device: what is cached is not given up, so pumpgraph_empty_cache() before
 *  the capture keeps the graph out of host memory. */
PUMPGRAPH_API pumpgraph_status pumpgraph_allocate(pumpgraph_session *session, size_t size, pumpgraph_stream stream,
                                                  const char *name, void **pointer, pumpgraph_error *error);

/** Frees what pumpgraph_allocate() gave. Memory may be reused at once by later allocations on the same stream, as in a
 *  stream-ordered allocator. Inside a capture that is so on managed memory alone, after a rehearsal, for allocations on
 *  the stream under capture: what uses the memory on another stream has to be joined before it is freed, or adoption
 *  fails with PUMPGRAPH_INVALID_ARGUMENT. */
PUMPGRAPH_API pumpgraph_status pumpgraph_free(pumpgraph_session *session, void *pointer, pumpgraph_stream stream,
                                              pumpgraph_error *error);

/** Declares that the allocation holding `pointer` is touched by captured steps alone from the next adoption on: it may
 *  leave the device, and is read or written from outside only under pumpgraph_map(). */
PUMPGRAPH_API pumpgraph_status pumpgraph_declare_private(pumpgraph_session *session, void *pointer,
                                                         pumpgraph_error *error);

/** Declares that, from the next adoption on, nobody else touches the allocation holding `pointer` while any captured
 *  step of the session runs: a step's input, say. It may leave the device during a step, and is on the device at its
 *  address between replays, where it may be read and written without pumpgraph_map(). Stands in place of a declaration
 *  as private: PUMPGRAPH_INVALID_ARGUMENT if the plan of a step relies on that one. On managed memory it has no effect.
 */
PUMPGRAPH_API pumpgraph_status pumpgraph_declare_present(pumpgraph_session *session, void *pointer,
                                                         pumpgraph_error *error);

/** Gives the allocation holding `pointer` a name for reports (copied). */
PUMPGRAPH_API pumpgraph_status pumpgraph_name(pumpgraph_session *session, void *pointer, const char *name,
                                              pumpgraph_error *error);

typedef struct pumpgraph_memory_stats {
  size_t struct_size;
  uint64_t budget_bytes;
  uint64_t device_bytes;      /* device frames that exist now */
  uint64_t device_peak_bytes; /* most there ever were, or since pumpgraph_reset_peaks() */
  uint64_t host_backed_bytes; /* device-addressable memory that is host memory now */
  uint64_t pinned_bytes;      /* pinned pool for spilled data */
  uint64_t live_bytes;        /* as requested, live now */
  uint64_t live_allocations;
  uint64_t frame_budget_bytes; /* what buffers may have of the budget now; 0: unlimited */
  uint64_t process_bytes;      /* with whole_process: what the process has on the device now; 0: not known */
  uint64_t live_peak_bytes;    /* most that were live at once */
  uint64_t live_peak_allocations;
  uint64_t allocated_bytes; /* as requested, of all allocations ever */
  uint64_t allocations;     /* ever */
} pumpgraph_memory_stats;

PUMPGRAPH_API pumpgraph_status pumpgraph_memory_statistics(pumpgraph_session *session, pumpgraph_memory_stats *stats,
                                                           pumpgraph_error *error);

/** The peaks of pumpgraph_memory_statistics() are what is there now, and count from here. */
PUMPGRAPH_API pumpgraph_status pumpgraph_reset_peaks(pumpgraph_session *session, pumpgraph_error *error);

typedef struct pumpgraph_budget_state {
  size_t struct_size;
  uint64_t budget_bytes;
  uint64_t process_bytes; /* what the process has on the device; 0: not known, or the budget is not the process's */
  char message[512];      /* not empty once, when others than the session have come to exceed the budget */
} pumpgraph_budget_state;

/** Looks at what the process has on the device, in about 0.1 ms. Where that has come to exceed a budget for the whole
 * process, gives back what nobody uses, and has every step planned again, before its next replay, for what others
 * leave; a step for which there is no such plan keeps the one it has, with a warning in its report. pumpgraph_replay()
 * does this once a second, and what it finds is a warning of the step. A caller that launches instantiations of its own
 * calls this, and pumpgraph_before_launch() before each step's next launch where there is a message. */
PUMPGRAPH_API pumpgraph_status pumpgraph_keep_to_budget(pumpgraph_session *session, pumpgraph_budget_state *state,
                                                        pumpgraph_error *error);

/** Makes the true value of a private buffer readable and writable at its address from outside captured steps: waits for
 *  the device, brings the buffer to its address. No step may be replayed until pumpgraph_unmap(). Nests. For a buffer
 *  that is not private this does nothing. Where the plan in force does not name the buffer it is at its address
 * already: then this waits for the device and keeps replays out. */
PUMPGRAPH_API pumpgraph_status pumpgraph_map(pumpgraph_session *session, void *pointer, pumpgraph_error *error);
PUMPGRAPH_API pumpgraph_status pumpgraph_unmap(pumpgraph_session *session, void *pointer, pumpgraph_error *error);

enum {
  PUMPGRAPH_USE_READ = 0,
  PUMPGRAPH_USE_WRITE = 1,
  PUMPGRAPH_USE_UNTIL_REPLAY = 2 /* written, and no other call takes their frames: other threads may go on with them */
};

/** Brings the values of `count` allocations to their addresses, all at the same time, for a caller that looks at
 *  private buffers between replays. Waits for the device before and after. Costs the bytes that are away over the link,
 *  and those of values that have to leave for them. Values leave again, which pumpgraph_departures() counts, in a later
 *  call that needs their frames and in every call that replays a step or prepares a replay: kernels that use them are
 *  launched before, but for PUMPGRAPH_USE_UNTIL_REPLAY.
 *
 *  `use`: PUMPGRAPH_USE_WRITE where a value may be written; what is written to one that was brought to be read is lost.
 *  Buffers that are not private are left alone. PUMPGRAPH_OUT_OF_HOST_MEMORY if there is no room; values are where they
 *  should be then. */
PUMPGRAPH_API pumpgraph_status pumpgraph_bring(pumpgraph_session *session, void *const *pointers, size_t count,
                                               int32_t use, pumpgraph_error *error);

/** A counter that has moved on whenever values may have left the addresses that pumpgraph_bring() brought them to. It
 * is the session's, and is read by the thread that calls it. */
PUMPGRAPH_API pumpgraph_status pumpgraph_departures(pumpgraph_session *session, const uint64_t **departures,
                                                    pumpgraph_error *error);

/** Brings the value of every buffer to its address, as pumpgraph_map() does for one, but for good: the plan in force is
 *  taken back, and the next replay of a rewritten step puts its plan in force. Waits for the device and moves data: see
 *  pumpgraph_put_in_force(). Not while a stream is capturing. Where no plan is in force this does nothing.
 *  PUMPGRAPH_INVALID_ARGUMENT while a buffer is mapped; PUMPGRAPH_OUT_OF_HOST_MEMORY if there is no room. */
PUMPGRAPH_API pumpgraph_status pumpgraph_take_back(pumpgraph_session *session, pumpgraph_error *error);

/** Gives up freed allocations that are kept to be used again. Their device memory stays the session's, for others of
 *  its allocations and plans; their host memory goes back to the system. Waits for the device, so not while any stream
 *  is capturing, unless between pumpgraph_capture_begin() and pumpgraph_capture_end(), where it does nothing. A capture
 *  is quicker after it where the budget is used up, by milliseconds for each GiB that it allocates. */
PUMPGRAPH_API pumpgraph_status pumpgraph_empty_cache(pumpgraph_session *session, pumpgraph_error *error);

/** From here to pumpgraph_end_paging() the caller runs operators eagerly on `stream`, which may need more than the
 * budget together. What is allocated on that stream gets device memory: what was used least recently moves to host
 * memory for it, and stays at its address there. pumpgraph_page_in() brings the operands of the next operator to the
 * device, as far as they find room at the same time; pointers that are not the session's are left alone. Both may wait
 * for the device: no other thread may start work on that memory meanwhile. pumpgraph_end_paging() returns the bytes
 * that have moved; `moved_bytes` may be NULL. Blocks stay where they are then, until a capture, pumpgraph_empty_cache()
 * or a plan wants frames: call the former before a stream capture, which does not allow it. On managed memory, without
 * a budget, and while a plan is in force these do nothing; `begun`, which may be NULL, is 0 then. */
PUMPGRAPH_API pumpgraph_status pumpgraph_begin_paging(pumpgraph_session *session, pumpgraph_stream stream,
                                                      int32_t *begun, pumpgraph_error *error);
PUMPGRAPH_API pumpgraph_status pumpgraph_page_in(pumpgraph_session *session, void *const *pointers, size_t count,
                                                 pumpgraph_error *error);
PUMPGRAPH_API pumpgraph_status pumpgraph_end_paging(pumpgraph_session *session, uint64_t *moved_bytes,
                                                    pumpgraph_error *error);

/** While this is on (1), what is freed stays as it is for graphs of the program's own that were captured since it was
 *  allocated, until they are gone. Around frees of memory that libraries allocate once and find again in every capture,
 *  such as their workspaces. Off (0) at first. */
PUMPGRAPH_API pumpgraph_status pumpgraph_keep_freed(pumpgraph_session *session, int32_t on, pumpgraph_error *error);

/* ---- capture --------------------------------------------------------------------------------------------------- */

/** From here to pumpgraph_capture_end() allocations belong to the step being captured. The caller captures with
 * whatever means it has (stream capture, torch.cuda.graph). A plan in force is taken back first, which a stream capture
 * does not allow: begin before it, or call pumpgraph_take_back(). Until the end the calls that may come between two
 * launches (allocate, free, declare_reads, declare_writes, name_nodes) also set the stack below their caller's frame to
 * zero: what is left there of one launch looks like an operand of the next, if that hands over a struct with fields
 * that nobody set.
 */
PUMPGRAPH_API pumpgraph_status pumpgraph_capture_begin(pumpgraph_session *session, pumpgraph_error *error);
PUMPGRAPH_API pumpgraph_status pumpgraph_capture_end(pumpgraph_session *session, pumpgraph_error *error);

/** Says of the nodes that the capture on `stream` got since the last call, or since it began, that they only read the
 *  `count` allocations that hold `pointers`. With a `count` of 0 nothing is said of them, as if nobody had called.
 * Plans rely on it: what has only been read since it came from the host does not go back there. For kernels whose
 * parameters do not tell; copies and fills are known anyway. Pointers that are none of the session's are left out.
 * Between pumpgraph_capture_begin() and pumpgraph_capture_end(), while `stream` is being captured;
 * PUMPGRAPH_INVALID_ARGUMENT otherwise. */
PUMPGRAPH_API pumpgraph_status pumpgraph_declare_reads(pumpgraph_session *session, pumpgraph_stream stream,
                                                       const void *const *pointers, size_t count,
                                                       pumpgraph_error *error);

/** Says that kernels of this name only read what the pointers in `count` of their parameters, counted from 0, lead to.
 *  `name`: a function with its namespaces, "at::native::softmax"; of a template it stands for all instances. For closed
 *  knowledge of a library's kernels. Holds for what is adopted from now on. PUMPGRAPH_INVALID_ARGUMENT for NULL or a
 * name with an empty part. Any thread. */
PUMPGRAPH_API pumpgraph_status pumpgraph_declare_kernel_reads(pumpgraph_session *session, const char *name,
                                                              const uint32_t *parameters, size_t count,
                                                              pumpgraph_error *error);

/** Says of the nodes that the capture on `stream` got since the last call, or since it began, that of the program's
 *  memory they write only the `count` allocations that hold `pointers`, and none if that is 0. NULL: nothing is said of
 *  them. It counts for allocations that were there before the capture, and are private or at most 8 bytes large, as
 *  the state of a random-number generator is. When and where it can be called, and the errors, are those of
 *  pumpgraph_declare_reads(); it has calls of its own to count from. */
PUMPGRAPH_API pumpgraph_status pumpgraph_declare_writes(pumpgraph_session *session, pumpgraph_stream stream,
                                                        const void *const *pointers, size_t count,
                                                        pumpgraph_error *error);

/** Says of the nodes that the capture on `stream` got since the last call, or since it began, that what they find in
 * the `count` allocations that hold `pointers` reaches nothing that they write elsewhere: state that they update
 * besides, such as the running statistics of a batch norm. With a `count` of 0 nothing is said of them. Plans rely on
 * it: where a kernel of a pure operation runs again, its parameters lead to other memory in place of these allocations.
 * It counts for parameters that are pointers, not for those inside structs. When and where it can be called, and the
 * errors, are those of pumpgraph_declare_reads(); it has calls of its own to count from. */
PUMPGRAPH_API pumpgraph_status pumpgraph_declare_aside(pumpgraph_session *session, pumpgraph_stream stream,
                                                       const void *const *pointers, size_t count,
                                                       pumpgraph_error *error);

/** Says what the program calls the nodes that the capture on `stream` got since the last call, or since it began:
 *  "layer3.conv2 backward (convolution_backward)". Reports show it in place of a kernel's symbol; nothing else depends
 *  on it. NULL or "": these nodes keep their symbols. `name` is copied. When and where it can be called, and the
 * errors, are those of pumpgraph_declare_reads(); each of the two has calls of its own to count from. */
PUMPGRAPH_API pumpgraph_status pumpgraph_name_nodes(pumpgraph_session *session, pumpgraph_stream stream,
                                                    const char *name, pumpgraph_error *error);

typedef enum pumpgraph_operation {
  PUMPGRAPH_OPERATION_UNKNOWN = 0, /* nothing is said of the nodes */
  PUMPGRAPH_OPERATION_WHOLE = 1,   /* they find nothing in scratch memory, and leave nothing there */
  PUMPGRAPH_OPERATION_PURE = 2     /* besides, what they write is a function, bit for bit, of what they read and of
                                    * their parameters, and they do nothing else: they may run again */
} pumpgraph_operation;

/** Says of the nodes that the capture on `stream` got since the last call, or since it began, that they are one
 *  operation of this kind. Plans rely on it: what a pure operation leaves may be computed again in place of being kept
 *  or moved. Sums whose order is not fixed (atomics), numbers drawn from a state that the operation advances, and what
 *  goes through pointers in memory are not pure. Scratch memory is what pumpgraph_free_scratch() says. When and where
 * it can be called, and the errors, are those of pumpgraph_declare_reads(); it has calls of its own to count from.
 *  PUMPGRAPH_INVALID_ARGUMENT for another `kind`. */
PUMPGRAPH_API pumpgraph_status pumpgraph_declare_operation(pumpgraph_session *session, pumpgraph_stream stream,
                                                           int32_t kind, pumpgraph_error *error);

/** While this is on (1), what is freed after having been allocated in the last capture was scratch memory: what one
 *  operation leaves there no other looks at. Around the calls by which libraries give up their workspaces, between
 *  the capture and its adoption. Off (0) at first. */
PUMPGRAPH_API pumpgraph_status pumpgraph_free_scratch(pumpgraph_session *session, int32_t on, pumpgraph_error *error);

/** Remembers the pointer words of `graph`, captured between the last begin and end, as a rehearsal: the next
 *  adopted graph is compared with it, and words that do not move with the addresses of what was allocated during the
 *  capture are not pointers. The graph is not kept and not changed. */
PUMPGRAPH_API pumpgraph_status pumpgraph_rehearse(pumpgraph_session *session, pumpgraph_cuda_graph graph,
                                                  pumpgraph_error *error);

/** Where private buffers are between replays: as the step in force before has them, so that either can be replayed
 * after the other at once, or as is best for the step alone, so that plans are exchanged (pumpgraph_put_in_force()).
 * The report says how a step was planned, and a note why it is not shared. Replays of steps that share are ordered
 * among each other by pumpgraph_replay(), whatever their streams; who launches a graph of his own orders it himself. */
typedef enum pumpgraph_boundary {
  PUMPGRAPH_BOUNDARY_AUTOMATIC = 0, /* shared, unless the step is predicted to take over 1.3 times as long then */
  PUMPGRAPH_BOUNDARY_OWN = 1,       /* best for steps that are replayed hundreds of times before another */
  PUMPGRAPH_BOUNDARY_SHARED = 2     /* if there is any such plan: best for steps that take turns */
} pumpgraph_boundary;

/** On managed memory: when pages come back to the device. What is not AHEAD is there to be compared with. */
typedef enum pumpgraph_prefetching {
  PUMPGRAPH_PREFETCHING_AHEAD = 0,     /* as soon as there is room */
  PUMPGRAPH_PREFETCHING_AT_LAUNCH = 1, /* when the node that needs them could start */
  PUMPGRAPH_PREFETCHING_NONE = 2       /* by faults */
} pumpgraph_prefetching;

/** On managed memory: what stays in host memory for good, where the device's kernels reach it over the link. */
typedef enum pumpgraph_hosting {
  PUMPGRAPH_HOSTING_AUTOMATIC = 0, /* MEASURED for a step that is calibrated, else NO_ROOM */
  PUMPGRAPH_HOSTING_NO_ROOM = 1,   /* what finds no room on the device, or is there for another step of the session */
  PUMPGRAPH_HOSTING_MEASURED = 2   /* what is faster there: the step is run to find out */
} pumpgraph_hosting;

typedef struct pumpgraph_adopt_options {
  size_t struct_size;
  const char *name;          /* of the step, for reports; NULL: "step" */
  const char *costs_ir;      /* IR text of a saved step whose node times are used, unless they are those of another GPU;
                                NULL: static estimates */
  int32_t leave_as_captured; /* 1: give the buffers memory and lift the graph, but rewrite nothing (baselines) */
  int32_t keep_first_plan;   /* 1: pumpgraph_replay() never plans again by itself */
  int32_t calibrate;         /* 1: the step is run once as captured, part by part, to find addresses that its kernels
                                compute and store; what they name stays on the device. Nodes that are declared pure
                                run twice: those that do not reproduce are never run again by a plan. Slow */
  int32_t boundary;          /* a pumpgraph_boundary */
  int32_t prefetching;       /* managed memory: a pumpgraph_prefetching */
  int32_t hosting;           /* managed memory: a pumpgraph_hosting */
  int32_t rematerialize;     /* a pumpgraph_rematerialize; where the session's is NEVER, so is the step's */
  int32_t
      plan_others_again; /* 1, with PUMPGRAPH_BOUNDARY_SHARED: where no plan keeps the boundary, the steps that share
                            it are planned again. That changes their graphs: instantiations of the caller's own are
                            stale. The caller launches none without pumpgraph_before_launch() from then on, until
                            `is_watched` is 0, even if this call fails; the report names them as `planned_again` */
} pumpgraph_adopt_options;

/** Lifts `graph` (captured between the last begin and end), plans it under the session's budget, checks the plan, gives
 *  every buffer its memory, rewrites the graph in place (adds copies and edges, and may give kernels other addresses of
 * temporaries), lifts it again and checks it again. The caller keeps owning the graph, which must outlive the step, and
 * may instantiate and launch it itself. A step that cannot be rewritten safely is left as captured with the reason in
 * its report: that is PUMPGRAPH_OK. On any error the graph is as it was, and the plan that was in force is in force
 * again. A session may hold any number of steps; the new one's plan is in force afterwards. With `calibrate`,
 * PUMPGRAPH_OUT_OF_HOST_MEMORY if device and host memory together have no room for every buffer at once; the buffers'
 * contents stay. Measured `hosting` runs the step several dozen times, if it does not fit and has nothing but kernels,
 * copies and fills: not for steps that wait for other processes. See "runs of PumpGraph's own". */
PUMPGRAPH_API pumpgraph_status pumpgraph_adopt(pumpgraph_session *session, pumpgraph_cuda_graph graph,
                                               const pumpgraph_adopt_options *options, pumpgraph_step **step,
                                               pumpgraph_error *error);

/** Captures by calling `record(stream, user)` twice between stream captures of a stream of the session's own (the
 * second time to tell pointers from integers), then adopts. The step owns the graph. `record` returns 0, or anything
 * else to give up. */
PUMPGRAPH_API pumpgraph_status pumpgraph_capture(pumpgraph_session *session,
                                                 int (*record)(pumpgraph_stream stream, void *user), void *user,
                                                 const pumpgraph_adopt_options *options, pumpgraph_step **step,
                                                 pumpgraph_error *error);

/** Frees the step; what it captured can not be replayed any more. NULL is allowed. */
PUMPGRAPH_API void pumpgraph_step_destroy(pumpgraph_step *step);

/* ---- replay ---------------------------------------------------------------------------------------------------- */

/** Launches the step on `stream`, asynchronously. The first call instantiates it. Where another step was replayed since
 * the last time, this does what pumpgraph_put_in_force() does first.
 *
 * The second to fourth replays are timed on the device. If their median and the plan's prediction differ by over a
 * tenth of the former, the step is planned again with node times from the replays that follow: eight of them run with
 * clocks between their nodes, and take longer; then the step is planned again, the new plan is timed in turn, and the
 * faster one stays. No replay is added, so that no value differs. A failure on the way is a note in the report, and the
 * plan stays. Not so with `keep_first_plan`. */
PUMPGRAPH_API pumpgraph_status pumpgraph_replay(pumpgraph_step *step, pumpgraph_stream stream, pumpgraph_error *error);

/** Puts the step's plan in force in place of another's, so that its graph can run: before an instantiation of the
 * caller's own is launched, whenever another step may have run since. Nothing happens where it is in force already, or
 * where the step is left as captured. Else this waits for the device and moves values between the frames, the pinned
 * pools and host memory of the two plans, which takes about as long as copying twice what the steps keep between
 * replays, and longer where new host memory is needed; `exchanges` and `exchange_ms` of the report say how often and
 * how long. Instantiated graphs stay valid.
 *
 * PUMPGRAPH_INVALID_ARGUMENT while a buffer is mapped; PUMPGRAPH_OUT_OF_HOST_MEMORY if what the other step keeps finds
 * no room. On an error the plan that was goes on; where the driver fails so that this cannot be, replays of the steps
 * that it concerns are refused with PUMPGRAPH_INTERNAL. In a session that chooses its memory by the step this may take
 * virtual memory in place of managed memory, or the opposite, with every value that the session has:
 * PUMPGRAPH_INVALID_ARGUMENT, with the reason, where that cannot be. */
PUMPGRAPH_API pumpgraph_status pumpgraph_put_in_force(pumpgraph_step *step, pumpgraph_error *error);

typedef struct pumpgraph_copy {
  void *destination;  /* on the device */
  const void *source; /* on the device; it does not overlap with the destination */
  size_t bytes;
} pumpgraph_copy;

/** What pumpgraph_put_in_force() does, and then `count` copies, in this order, on `stream`, asynchronously: of what the
 * step takes as its arguments, say. For a caller to whom every call is dear. `copies` is read before this returns; NULL
 * is allowed if there are none. What they read and write may be private to no step whose plan is in force.
 *
 * Errors as there, and PUMPGRAPH_DRIVER_ERROR where a copy is refused: those before it are on the stream by then. */
PUMPGRAPH_API pumpgraph_status pumpgraph_prepare_replay(pumpgraph_step *step, pumpgraph_stream stream,
                                                        const pumpgraph_copy *copies, size_t count,
                                                        pumpgraph_error *error);

typedef struct pumpgraph_launch {
  size_t struct_size;
  int32_t
      graph_has_changed; /* 1: since the last time; the caller's instantiation is to be made anew before the launch */
  int32_t is_watched;    /* 1: pumpgraph_after_launch() is to be called after this launch, and this before the next */
} pumpgraph_launch;

/** For a caller that launches an instantiation of its own: what pumpgraph_replay() does to plan the step again where
 * its first replays miss the prediction. They are called around each launch on `stream`, from the first on, until
 * `is_watched` is 0; they launch nothing. The first does what pumpgraph_put_in_force() does; it may put clocks into the
 * graph or take them out, plan the step again and change the graph, and waits for the device then. Before
 * pumpgraph_prepare_replay(), if that is called too. Errors as there; where planning again fails the plan stays, and
 * the report says why. */
PUMPGRAPH_API pumpgraph_status pumpgraph_before_launch(pumpgraph_step *step, pumpgraph_stream stream,
                                                       pumpgraph_launch *launch, pumpgraph_error *error);
PUMPGRAPH_API pumpgraph_status pumpgraph_after_launch(pumpgraph_step *step, pumpgraph_stream stream,
                                                      pumpgraph_error *error);

/** The report as JSON (docs/reference/report.md): planned figures, backend, reasons, timings of capture, plan and
 * lowering. The string belongs to the caller: pumpgraph_string_free(). */
PUMPGRAPH_API pumpgraph_status pumpgraph_report(pumpgraph_step *step, char **json, pumpgraph_error *error);
PUMPGRAPH_API void pumpgraph_string_free(char *string);

/** Writes the captured step as IR text, with measured node times where there are some: what pump-graph-opt reads. */
PUMPGRAPH_API pumpgraph_status pumpgraph_save(pumpgraph_step *step, const char *path, pumpgraph_error *error);

/** Writes what the step's plan has on the device over one predicted replay: a snapshot of PyTorch's allocator, pickled,
 * as pump-graph-opt --report=memory-viz writes it (docs/reference/report.md, "The memory snapshot").
 * PUMPGRAPH_INVALID_ARGUMENT, with the reason, if the step is left as captured: all of its memory is on the device
 * then, at all times. */
PUMPGRAPH_API pumpgraph_status pumpgraph_memory_snapshot(pumpgraph_step *step, const char *path,
                                                         pumpgraph_error *error);

/* ---- runs of PumpGraph's own ------------------------------------------------------------------------------------
 *
 * The calls below run the step for PumpGraph's sake, as adoption does with `calibrate` and measured `hosting`. Each
 * such run begins with the values with which the program's next replay would begin, and the program finds them again
 * afterwards: those of all buffers of the session that the step may reach, what its copies write elsewhere, and device
 * allocations outside the session that its kernels' parameters lead into. They are kept in host memory meanwhile;
 * PUMPGRAPH_OUT_OF_HOST_MEMORY if there is no room. PUMPGRAPH_INVALID_ARGUMENT, with the reason, where a run has an
 * effect that nothing can put back: the step calls host functions, a kernel has the address of host memory outside the
 * session as a parameter, it writes arrays, or it signals others. Then nothing is run: adoption leaves a step as
 * captured that was to be calibrated, and measures no `hosting`, with the reason in the report. Nobody sees what
 * kernels keep in variables of their own modules, reach by addresses stored outside the session, or write to host
 * memory whose address is a member of a struct. */

typedef struct pumpgraph_measurement {
  size_t struct_size;
  double step_us;       /* median time of a whole replay */
  uint64_t timed_nodes; /* nodes whose own time was measured */
} pumpgraph_measurement;

/** Times every captured node of a step that was left as captured, or whose plan moves nothing, on the device, as the
 * median of `repeats` instrumented replays (fewer, two at least, where they take seconds) whose sum is scaled to the
 * time of the plain replay. The buffers' contents before and after are the same. PUMPGRAPH_INVALID_ARGUMENT if the
 * step's plan moves data or a buffer is mapped. */
PUMPGRAPH_API pumpgraph_status pumpgraph_measure(pumpgraph_step *step, int32_t repeats,
                                                 pumpgraph_measurement *measurement, pumpgraph_error *error);

typedef struct pumpgraph_replanning {
  size_t struct_size;
  double predicted_before_us; /* by the plan that was in force */
  double measured_before_us;  /* median time of its replay */
  double predicted_us;        /* by the best plan made from measured node times, whether it was kept or not */
  double measured_us;
  uint64_t timed_nodes;
  int32_t kept_first; /* 1: every new plan was over 1 % slower; the one that was is in force again */
} pumpgraph_replanning;

/** Times every captured node of a rewritten step on the device, its transfers running beside it, plans the step again
 * with these times, and keeps the faster plan, of two within 1 % the newer. Where nodes reach operands in host memory
 * and the new plan's step is over 2 % off its prediction, or over 1 % faster than all before, that is done again, up to
 * four times in all. Waits for the device. Runs the step some dozen times (see "runs of PumpGraph's own"). The graph is
 * changed in place: a caller that instantiated it must do so again, after an error too.
 *
 * PUMPGRAPH_INVALID_ARGUMENT if the step is left as captured, or on managed memory, or a buffer is mapped;
 * PUMPGRAPH_OUT_OF_HOST_MEMORY if there is no room for a second pinned pool beside the first. On an error the plan in
 * force stays; where the driver fails so that this cannot be, replays are refused with PUMPGRAPH_INTERNAL. */
PUMPGRAPH_API pumpgraph_status pumpgraph_replan(pumpgraph_step *step, pumpgraph_replanning *result,
                                                pumpgraph_error *error);

typedef struct pumpgraph_validation {
  size_t struct_size;
  uint64_t compared_buffers;
  uint64_t compared_bytes;
  uint64_t different_buffers;
  uint64_t unstable_buffers; /* the captured step itself does not reproduce these from the same state */
  char first_difference[512];
  uint64_t impure_nodes; /* that the plan runs again, though they are not what is declared pure */
  char impure[512];      /* their kernels, and what shows it; or why none was looked at */
} pumpgraph_validation;

/** Replays the step as captured (twice) and the rewritten one, with frames poisoned whenever they change hands, from
 * the same state, and compares every live-out buffer byte for byte. Slow. Where any is not the same in all three, and
 * the plan runs nodes again, the captured step is run once more, and each of these nodes twice from the same state, as
 * adoption does with `calibrate`.
 * PUMPGRAPH_MISMATCH if any differ that the captured step reproduces, if a value that the plan keeps on the device
 * and in host memory is not the same in both, or if there are `impure_nodes`. */
PUMPGRAPH_API pumpgraph_status pumpgraph_validate(pumpgraph_step *step, pumpgraph_validation *result,
                                                  pumpgraph_error *error);

typedef struct pumpgraph_observation {
  size_t struct_size;
  uint64_t runs;          /* calls so far, this one included */
  uint64_t kernels;       /* that were observed */
  uint64_t slots;         /* operands of these kernels */
  uint64_t covered;       /* of which at least two runs agree and leave nothing open */
  uint64_t differing;     /* of which runs say different things */
  uint64_t disagreements; /* with what is proved, declared or assumed */
  char first_disagreement[512];
} pumpgraph_observation;

/** Runs every kernel of the step alone, as captured: as it is, again, and with one operand after the other poisoned,
 * twice each; what then comes out otherwise tells what the kernel reads and writes. One call looks at one state of the
 * buffers: call again with other inputs in them. What is only assumed of an access becomes `observed` once two calls
 * agree; that overrules nothing and is nothing to plan by. The report has the figures and each disagreement
 * (`observation`), pumpgraph_save() the modes.
 *
 * Poisoned is what no node has set yet, and else what looks like floating-point numbers, which stay finite. In the
 * allocations that hold the `value_count` pointers of `values` any word may be changed: kernels find nothing by what
 * they hold (no indices, lengths, flags to wait for).
 *
 * Slow: each kernel runs 2 + 2 * (its operands) times. Needs device memory (or host memory, slowly) for two copies of
 * what the largest kernel touches. PUMPGRAPH_INVALID_ARGUMENT while a buffer is mapped (on managed memory nobody counts
 * that: look at nothing meanwhile) or a capture runs. On an error the step is as before, if the driver lets us. */
PUMPGRAPH_API pumpgraph_status pumpgraph_observe(pumpgraph_step *step, const void *const *values, size_t value_count,
                                                 pumpgraph_observation *result, pumpgraph_error *error);

/* ---- PyTorch's pluggable allocator ------------------------------------------------------------------------------ */

/** Makes `session` the one that pumpgraph_torch_malloc() and pumpgraph_torch_free() serve (NULL: none). The only
 * process-wide state there is; PyTorch's allocator interface has no place for a user pointer.
 *
 * PyTorch looks at no status, so where there is no memory pumpgraph_torch_malloc() throws a C++ exception:
 * c10::OutOfMemoryError in a process with PyTorch, std::runtime_error elsewhere. Its text begins with "CUDA out of
 * memory." and has the bytes that were asked for, those in use, the budget and the host limit. Any other failure is a
 * std::runtime_error that names it, as is one of pumpgraph_torch_empty_cache(). The session goes on. */
PUMPGRAPH_API pumpgraph_status pumpgraph_torch_attach(pumpgraph_session *session, pumpgraph_error *error);
PUMPGRAPH_API void *pumpgraph_torch_malloc(size_t size, int device, pumpgraph_stream stream);
PUMPGRAPH_API void pumpgraph_torch_free(void *pointer, size_t size, int device, pumpgraph_stream stream);
/** The next pumpgraph_torch_free() of `pointer` in this thread frees nothing, and the pumpgraph_torch_malloc() after
 * that gives it again, whatever the size: so memory changes from one owner in PyTorch to another. NULL calls it off. */
PUMPGRAPH_API void pumpgraph_torch_keep(void *pointer);

typedef struct pumpgraph_torch_recording {
  size_t struct_size;
  uint64_t most_events; /* so many are kept, the last ones; 0: none */
  int32_t stacks;       /* 0: none; 1: of live allocations; 2: also of the events of allocations; 3: also of frees */
  int32_t keep_events;  /* 1: what was recorded before stays */
  /* CPython's functions, which are called with its lock held: PyGILState_Ensure, PyGILState_Release, PyEval_GetFrame,
   * PyFrame_GetBack, PyFrame_GetCode, PyFrame_GetLineNumber, Py_DecRef. */
  const void *gil_state_ensure;
  const void *gil_state_release;
  const void *eval_get_frame;
  const void *frame_get_back;
  const void *frame_get_code;
  const void *frame_get_line;
  const void *dec_ref;
} pumpgraph_torch_recording;

/** From now on what PyTorch allocates and frees is recorded, with Python's frames. NULL: no more; what was recorded is
 * forgotten. It has to be off before Python is finalized. Not to be called in two threads at once, nor beside
 * pumpgraph_torch_snapshot(). While it is off an allocation pays for one atomic load. PUMPGRAPH_INVALID_ARGUMENT if a
 * function is NULL. */
PUMPGRAPH_API pumpgraph_status pumpgraph_torch_record(pumpgraph_session *session,
                                                      const pumpgraph_torch_recording *recording,
                                                      pumpgraph_error *error);
/** What was recorded and the memory that is there, as JSON, which is the caller's: pumpgraph_string_free().
 * `recording`: whether it is on. `events`, the oldest first: `action` (`alloc`, `free`, `oom`), `address`, `bytes`,
 * `stream`, `time_us` since 1970, `stack`; of `oom` also the `left_bytes` of the budget. `live`: address and stack of
 * allocations that were recorded and are not freed. `stacks`: the frames of each, the innermost first, as the address
 * of a code object, which lives until recording ends, and a line. A stack is a position there, or null. `blocks`:
 * address ranges, ascending, with `address`, `bytes`, `is_shared` (by small allocations) and `allocations`, those that
 * are alive: `address`, `bytes`, `stream`. */
PUMPGRAPH_API pumpgraph_status pumpgraph_torch_snapshot(pumpgraph_session *session, char **json,
                                                        pumpgraph_error *error);
/** pumpgraph_empty_cache() for the session: what torch.cuda.empty_cache() does, also before each capture. */
PUMPGRAPH_API void pumpgraph_torch_empty_cache(void);

/** What this machine offers, as text for `tools/dev doctor`: driver, attributes, memory limits, what works and what
 *  will not, and the fix. Works without a driver. The string belongs to the caller. */
PUMPGRAPH_API char *pumpgraph_doctor(void);

#ifdef __cplusplus
}
#endif
#endif
