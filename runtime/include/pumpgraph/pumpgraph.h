/* SPDX-License-Identifier: Apache-2.0 */
/**
 * \file
 * The C API of PumpGraph: allocate memory that can leave the device, capture a step, plan it under a budget, replay it.
 *
 * Errors: a call that fails returns a status other than PUMPGRAPH_OK, fills `*error` unless that is NULL, and leaves
 * its arguments as they were. Beside the statuses that its comment names, every call can return:
 * - PUMPGRAPH_INVALID_ARGUMENT for NULL where the comment does not allow it, and for a pointer outside the session's
 *   live allocations;
 * - PUMPGRAPH_DRIVER_ERROR for a failed CUDA call, and PUMPGRAPH_OUT_OF_HOST_MEMORY for a failed allocation;
 * - PUMPGRAPH_DEVICE_LOST once a kernel has ended the context.
 *
 * No call throws, except pumpgraph_torch_malloc() and pumpgraph_torch_empty_cache().
 *
 * Threading: a session and its steps can be used from any thread, one call at a time. The allocation calls lock
 * themselves, so several threads can make them at once. A call that puts a plan in force or takes it back can map any
 * of the session's memory anew: replay, prepare replay, before launch, put in force, take back, capture begin, adopt,
 * replan, validate, observe, destroy. While it runs, no other thread may start work on that memory or capture a stream.
 *
 * Sizes are bytes. Strings are NUL-terminated. A struct with `struct_size` is zero-initialized by the caller, who sets
 * that member to the struct's size: missing members of a shorter struct, from an older header, count as 0.
 *
 * pumpgraph_session_create() loads the CUDA driver. The header needs no CUDA toolkit: CUDA handles are opaque pointers
 * (CUstream, CUgraph, CUgraphExec) with the same values as in the runtime API.
 */
#ifndef PUMPGRAPH_H
#define PUMPGRAPH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Marks the exported functions of the library. */
#if defined(__GNUC__)
#define PUMPGRAPH_API __attribute__((visibility("default")))
#else
#define PUMPGRAPH_API
#endif

/** The version of this header. Until 1.0 a minor version can change the interface. The library's name and its symbols
 * carry the version, so a program loads the library that it was built for. */
#define PUMPGRAPH_VERSION_MAJOR 0
#define PUMPGRAPH_VERSION_MINOR 1 /**< see PUMPGRAPH_VERSION_MAJOR */
#define PUMPGRAPH_VERSION_PATCH 0 /**< see PUMPGRAPH_VERSION_MAJOR */

/** Returns the version of the library, such as "0.1.0". The string is static. Any thread can call this at any time. */
PUMPGRAPH_API const char *pumpgraph_version(void);

/** One device, one budget, and the memory and steps under it. */
typedef struct pumpgraph_session pumpgraph_session;
/** A captured step of a session. */
typedef struct pumpgraph_step pumpgraph_step;
/** A CUstream, or a cudaStream_t; NULL is the default stream. */
typedef struct CUstream_st *pumpgraph_stream;
/** A CUgraph, or a cudaGraph_t. */
typedef struct CUgraph_st *pumpgraph_cuda_graph;

/** The outcome of a call. */
typedef enum pumpgraph_status {
  PUMPGRAPH_OK = 0,
  PUMPGRAPH_INVALID_ARGUMENT = 1,     /**< an argument, or a call at the wrong time; the message names it */
  PUMPGRAPH_NO_DRIVER = 2,            /**< no libcuda.so.1, no GPU, or either too old; the message has the remedy */
  PUMPGRAPH_OUT_OF_DEVICE_MEMORY = 3, /**< the budget is used up, or the device has no more memory */
  PUMPGRAPH_OUT_OF_HOST_MEMORY = 4,   /**< the host limit is reached, or the system has no more memory */
  PUMPGRAPH_DRIVER_ERROR = 5,         /**< a CUDA driver call failed; the message has its name and its error */
  PUMPGRAPH_UNPLANNABLE = 6,          /**< no plan exists; too much memory has to stay on the device, for example */
  PUMPGRAPH_CAPTURE_FAILED = 7,       /**< the recording function gave up, or made a call that breaks captures */
  PUMPGRAPH_MISMATCH = 8,             /**< pumpgraph_validate() found different results */
  /** A check of PumpGraph refused the plan or the lowered graph; nothing has changed. */
  PUMPGRAPH_INTERNAL = 9,
  /** A kernel ended the context, by an illegal address for example; the message names the error. From then on every
   * call returns this status, except those that destroy. */
  PUMPGRAPH_DEVICE_LOST = 10
} pumpgraph_status;

/** The reason of a failure, filled by the failing call. */
typedef struct pumpgraph_error {
  pumpgraph_status status; /**< as the call returns it */
  char message[2048];      /**< always NUL-terminated; a longer text is cut */
} pumpgraph_error;

/** The kind of memory behind a session's addresses. An address is fixed from its first allocation on, independently of
 * the memory behind it. */
typedef enum pumpgraph_backend {
  PUMPGRAPH_BACKEND_VIRTUAL = 0, /**< frames and copies: for steps that can be lifted, at the speed of the link */
  PUMPGRAPH_BACKEND_MANAGED = 1, /**< managed memory, moved ahead of its use: for any step, at the driver's speed */
  /** Virtual memory where the device has it. A step that cannot be lifted, and that the budget has no room for, gets
   * managed memory at the same addresses, within `managed_bytes`. Otherwise the step is left as captured, and notes of
   * its report say why (docs/design/managed.md, "Chosen by the step"). */
  PUMPGRAPH_BACKEND_AUTOMATIC = 2
} pumpgraph_backend;

/** The permission of plans on virtual memory to run kernels of a step again, where that is predicted to be faster than
 * a move of their results. Only nodes that are known to be functions of their operands run again, so results stay the
 * same bit for bit. */
typedef enum pumpgraph_rematerialize {
  PUMPGRAPH_REMATERIALIZE_AUTOMATIC = 0,
  PUMPGRAPH_REMATERIALIZE_NEVER = 1
} pumpgraph_rematerialize;

/** Where a step is planned that is planned again by itself, because its first replays miss the prediction. */
typedef enum pumpgraph_planning {
  /** On a thread of the session, while replays go on with the first plan; a later replay puts the new one in force. One
   * step at a time. If the memory that the plan was made for has changed, it is made once more. */
  PUMPGRAPH_PLANNING_ASIDE = 0,
  PUMPGRAPH_PLANNING_IN_REPLAY = 1 /**< in a replay, which takes seconds longer: the same replay in every run */
} pumpgraph_planning;

/** The options of a session. Zero-initialize, set `struct_size`, then set members that differ from the default 0. */
typedef struct pumpgraph_session_options {
  size_t struct_size; /**< the size of the struct, set by the caller */
  /** Device memory of all buffers, counted in pages of 2 MiB; at most the device's memory. Required, unless
   * `unlimited`. */
  uint64_t budget_bytes; /**< the budget; 0: unlimited */
  int32_t unlimited;     /**< 1: no budget; every buffer gets device memory */
  int32_t device;        /**< CUDA device ordinal */
  /** Pinned and host-backed memory together; 0: three quarters of the system's free memory. */
  uint64_t host_limit_bytes;
  const char *cache_directory; /**< folder for measured link bandwidths; NULL: measure anew and keep nothing */
  /** Path of libpumpgraph-compiler.so; NULL: beside libpumpgraph.so, then the loader's path. */
  const char *compiler_library;
  /** 1: the budget covers all device memory of the process, as nvidia-smi shows it: contexts, kernels, graphs and
   * memory of other libraries too. That is measured when buffers get memory and when a step is adopted; 64 MiB are
   * reserved for growth between these points. Without libnvidia-ml.so.1 the budget covers buffers alone, and reports
   * say so. */
  int32_t whole_process;
  int32_t backend; /**< a pumpgraph_backend */
  /** 1: a managed arena can exceed the device's free memory. Everything is slow then, other programs included. */
  int32_t allow_oversubscription;
  /** Managed memory for all allocations, those of both captures included; 0: as much as the limit below and the
   * device's free memory allow. */
  uint64_t managed_bytes;
  uint64_t managed_limit_bytes; /**< the largest managed arena; 0: 4 GiB */
  int32_t rematerialize;        /**< a pumpgraph_rematerialize */
  int32_t planning;             /**< a pumpgraph_planning */
} pumpgraph_session_options;

/** Creates a session on the device's primary context, which becomes current if the thread has none. The caller owns the
 * session.
 *
 * Before CUDA is initialized in this process, and unless the backend is PUMPGRAPH_BACKEND_MANAGED, the call sets the
 * environment variable CUDA_DEVICE_MAX_CONNECTIONS to 2 if it is not set: waiting branches of a step slow copies down
 * otherwise (docs/decisions/10-copies-at-link-speed.md). No other thread may read the environment meanwhile.
 *
 * Errors: PUMPGRAPH_NO_DRIVER; PUMPGRAPH_INVALID_ARGUMENT for options, a device ordinal that does not exist, or a
 * budget below one page, above the device's memory, or, with `whole_process`, already used up;
 * PUMPGRAPH_OUT_OF_DEVICE_MEMORY for a managed arena beyond its limit. */
PUMPGRAPH_API pumpgraph_status pumpgraph_session_create(const pumpgraph_session_options *options,
                                                        pumpgraph_session **session, pumpgraph_error *error);

/** Waits for the device, and for a plan that is being made, and frees the session with all its memory. Its steps become
 * invalid. NULL is allowed. */
PUMPGRAPH_API void pumpgraph_session_destroy(pumpgraph_session *session);

/** The importance of a message. */
typedef enum pumpgraph_message_level {
  PUMPGRAPH_MESSAGE_NONE = 0,    /**< of no message; as a limit: none at all */
  PUMPGRAPH_MESSAGE_ERROR = 1,   /**< something failed, and no call could return it */
  PUMPGRAPH_MESSAGE_WARNING = 2, /**< a step is left as captured, a budget is exceeded */
  PUMPGRAPH_MESSAGE_INFO = 3,    /**< a step was captured and planned, a plan was replaced, the link was measured */
  PUMPGRAPH_MESSAGE_DEBUG = 4    /**< the notes of reports, exchanges of plans */
} pumpgraph_message_level;

/** Receives a message: a sentence or more, without a trailing period, valid during the call. It may call any function
 * of this header. It runs in the thread of a call on a session, at the end of the call, but not of
 * pumpgraph_allocate(), pumpgraph_free() and the calls of PyTorch's allocator. */
typedef void (*pumpgraph_message_callback)(int32_t level, const char *message, void *user);

/** Sends the messages of the process up to `level` (a pumpgraph_message_level) to `callback`. With NULL, as before the
 * first call, they go to stderr, and the environment variable PUMPGRAPH_LOG has the level: none, error, warning (also
 * without the variable), info or debug. A callback that another thread has begun may still run when this returns.
 *
 * Errors: PUMPGRAPH_INVALID_ARGUMENT for another level. */
PUMPGRAPH_API pumpgraph_status pumpgraph_set_message_callback(int32_t level, pumpgraph_message_callback callback,
                                                              void *user, pumpgraph_error *error);

/** The work of a call that takes long. */
typedef enum pumpgraph_phase {
  PUMPGRAPH_PHASE_NONE = 0,      /**< none of these */
  PUMPGRAPH_PHASE_CAPTURING = 1, /**< counts captures of the step */
  PUMPGRAPH_PHASE_PLANNING = 2,  /**< counts plans, each better than earlier ones of its search */
  PUMPGRAPH_PHASE_PINNING = 3    /**< counts bytes of host memory */
} pumpgraph_phase;

/** How far a call is. */
typedef struct pumpgraph_progress {
  size_t struct_size; /**< the size of the struct, set by the caller */
  int32_t phase;      /**< a pumpgraph_phase */
  uint64_t done;      /**< so many, or so much */
  uint64_t total;     /**< of so many; 0: unknown */
  double best_us;     /**< planning: the predicted time of the best plan so far, microseconds; 0: there is none */
  double seconds;     /**< since the phase began */
} pumpgraph_progress;

/** Receives progress, in whichever thread makes it, one call at a time. The session is locked meanwhile: the callback
 * must neither call a function on it nor wait for a thread that does, such as one that holds Python's lock. */
typedef void (*pumpgraph_progress_callback)(const pumpgraph_progress *progress, void *user);

/** Has `callback` told of each step of progress of the session's calls, and of the end of each phase. NULL: nobody is.
 */
PUMPGRAPH_API pumpgraph_status pumpgraph_set_progress_callback(pumpgraph_session *session,
                                                               pumpgraph_progress_callback callback, void *user,
                                                               pumpgraph_error *error);

/** Tells how far the session's present call is. Any thread may ask, beside any call but pumpgraph_session_destroy(),
 * and none waits. */
PUMPGRAPH_API pumpgraph_status pumpgraph_get_progress(pumpgraph_session *session, pumpgraph_progress *progress,
                                                      pumpgraph_error *error);

/** \defgroup memory Memory
 * Allocations, declarations of their use, and access to private values between replays.
 * \{ */

/** Allocates `size` bytes of device-addressable memory, 512-byte aligned, for use on `stream`. `name` can be NULL; it
 * is copied.
 *
 * Between pumpgraph_capture_begin() and pumpgraph_capture_end() the result is an address without memory, which gets
 * memory at adoption.
 *
 * If `stream` is under a capture outside of these two calls, the memory belongs to the captured graph. Freed, it serves
 * later allocations of the same capture on the same stream, and nothing else until the graph, its clones and all their
 * instantiations are destroyed. It stays on the device regardless of declarations. Such an allocation has memory at
 * once and does not wait for the device, so cached memory is not given up for it: call pumpgraph_empty_cache() ahead of
 * the capture to keep the graph out of host memory.
 *
 * Errors: PUMPGRAPH_INVALID_ARGUMENT for a `size` of 0; PUMPGRAPH_OUT_OF_DEVICE_MEMORY and PUMPGRAPH_OUT_OF_HOST_MEMORY
 * if neither budget nor host limit has room. */
PUMPGRAPH_API pumpgraph_status pumpgraph_allocate(pumpgraph_session *session, size_t size, pumpgraph_stream stream,
                                                  const char *name, void **pointer, pumpgraph_error *error);

/** Frees an allocation of pumpgraph_allocate(), given by its start. Later allocations on the same stream can reuse the
 * memory at once, as in a stream-ordered allocator.
 *
 * Inside a capture such reuse happens on managed memory alone, after a rehearsal, for allocations on the stream under
 * capture. Work on another stream that uses the memory must be joined ahead of the free, or adoption fails with
 * PUMPGRAPH_INVALID_ARGUMENT. */
PUMPGRAPH_API pumpgraph_status pumpgraph_free(pumpgraph_session *session, void *pointer, pumpgraph_stream stream,
                                              pumpgraph_error *error);

/** Frees an allocation for a caller that cannot return an error, such as a destructor. A failure becomes a message of
 * level error, and the memory stays allocated. NULL is allowed.
 *
 * \param waits 1: work on any stream may still use the memory. Outside a capture of the session the call waits for the
 *              device; the memory then serves allocations on CU_STREAM_LEGACY (1) alone. 0: as pumpgraph_free(), but
 *              if `stream` is under a capture of the program, the memory is kept until the graph is destroyed. */
PUMPGRAPH_API void pumpgraph_release(pumpgraph_session *session, void *pointer, pumpgraph_stream stream, int32_t waits);

/** Says that work on `stream` uses the allocation that holds `pointer`, whose own stream is another. On its free, work
 * that follows on the freeing stream waits for the work that `stream` has got until then. Where one of the two is
 * captured at that time, the allocation is freed by the first pumpgraph_allocate() or pumpgraph_free() after the
 * capture. `stream` has to live until the free.
 *
 * Errors: PUMPGRAPH_INVALID_ARGUMENT if `pointer` is in no live allocation. Callable from any thread. */
PUMPGRAPH_API pumpgraph_status pumpgraph_record_stream(pumpgraph_session *session, void *pointer,
                                                       pumpgraph_stream stream, pumpgraph_error *error);

/** Declares that from the next adoption on only captured steps touch the allocation that holds `pointer`. The
 * allocation can leave the device. The program reads and writes it under pumpgraph_map() only. */
PUMPGRAPH_API pumpgraph_status pumpgraph_declare_private(pumpgraph_session *session, void *pointer,
                                                         pumpgraph_error *error);

/** Declares that from the next adoption on only captured steps touch the allocation that holds `pointer` while a step
 * of the session runs, as for a step's input. The allocation can leave the device during a step. Between replays it is
 * on the device at its address, free to be read and written without pumpgraph_map(). On managed memory the call has no
 * effect.
 *
 * The declaration replaces one as private. Errors: PUMPGRAPH_INVALID_ARGUMENT if a step's plan relies on that one. */
PUMPGRAPH_API pumpgraph_status pumpgraph_declare_present(pumpgraph_session *session, void *pointer,
                                                         pumpgraph_error *error);

/** Names the allocation that holds `pointer`, for reports. `name` is copied. */
PUMPGRAPH_API pumpgraph_status pumpgraph_name(pumpgraph_session *session, void *pointer, const char *name,
                                              pumpgraph_error *error);

/** The memory of a session. */
typedef struct pumpgraph_memory_stats {
  size_t struct_size;             /**< the size of the struct, set by the caller */
  uint64_t budget_bytes;          /**< the budget; 0: unlimited */
  uint64_t device_bytes;          /**< existing device frames */
  uint64_t device_peak_bytes;     /**< their maximum, since pumpgraph_reset_peaks() if that was called */
  uint64_t host_backed_bytes;     /**< device-addressable memory that is host memory at present */
  uint64_t pinned_bytes;          /**< pinned pool for evicted data */
  uint64_t live_bytes;            /**< sum of the requested sizes of live allocations */
  uint64_t live_allocations;      /**< number of live allocations */
  uint64_t frame_budget_bytes;    /**< part of the budget that buffers can have at present; 0: unlimited */
  uint64_t process_bytes;         /**< with `whole_process`: device memory of the process; 0: unknown */
  uint64_t live_peak_bytes;       /**< maximum of `live_bytes` */
  uint64_t live_peak_allocations; /**< maximum of `live_allocations` */
  uint64_t allocated_bytes;       /**< sum of the requested sizes of all allocations ever */
  uint64_t allocations;           /**< number of all allocations ever */
} pumpgraph_memory_stats;

/** Fills `stats` with the present memory of the session. */
PUMPGRAPH_API pumpgraph_status pumpgraph_memory_statistics(pumpgraph_session *session, pumpgraph_memory_stats *stats,
                                                           pumpgraph_error *error);

/** Sets the peaks of pumpgraph_memory_statistics() to the present values, from which they count on. */
PUMPGRAPH_API pumpgraph_status pumpgraph_reset_peaks(pumpgraph_session *session, pumpgraph_error *error);

/** Begins a tag of this thread: until pumpgraph_tag_end(), allocations that the thread makes in the session carry it.
 * Tags nest: "join" inside "etl" is "etl/join". An allocation without a name has the tag's in reports. Callable from
 * any thread, beside any other call.
 *
 * \param name 1 to 255 bytes without "/"; a session has at most 4096 different tags.
 * \param tag receives a number for pumpgraph_tag_end(). */
PUMPGRAPH_API pumpgraph_status pumpgraph_tag_begin(pumpgraph_session *session, const char *name, uint64_t *tag,
                                                   pumpgraph_error *error);
/** Ends a tag. Errors: PUMPGRAPH_INVALID_ARGUMENT if it is not the innermost one that this thread has open in the
 * session: one of another thread, for example. */
PUMPGRAPH_API pumpgraph_status pumpgraph_tag_end(pumpgraph_session *session, uint64_t tag, pumpgraph_error *error);
/** Gives the bytes of all tags as a JSON array, ordered by tag. The caller owns the string and frees it with
 * pumpgraph_string_free(). The keys: `tag`; of allocations that carry it or a tag inside it, as requested:
 * `live_bytes`, `peak_bytes`, `live_allocations`, `allocated_bytes` and `allocations` (ever).
 *
 * \param reset_peaks 1: then sets the peaks to the present values. */
PUMPGRAPH_API pumpgraph_status pumpgraph_tags(pumpgraph_session *session, int32_t reset_peaks, char **json,
                                              pumpgraph_error *error);

/** The result of pumpgraph_keep_to_budget(). */
typedef struct pumpgraph_budget_state {
  size_t struct_size;     /**< the size of the struct, set by the caller */
  uint64_t budget_bytes;  /**< the budget; 0: unlimited */
  uint64_t process_bytes; /**< device memory of the process; 0: unknown, or the budget covers buffers alone */
  char message[512];      /**< non-empty in the one call that finds the budget newly exceeded by memory of others */
} pumpgraph_budget_state;

/** Compares the process's device memory with a budget for the whole process, in about 0.1 ms. If other libraries'
 * memory has grown beyond the budget, the call gives unused memory back and has every step planned again, ahead of its
 * next replay, for the remaining budget. A step without such a plan keeps its plan, with a warning in its report.
 *
 * pumpgraph_replay() makes this comparison once a second, and puts a finding into the step's warnings. A caller that
 * launches instantiations of its own calls this function; after a message it calls pumpgraph_before_launch() ahead of
 * each step's next launch. */
PUMPGRAPH_API pumpgraph_status pumpgraph_keep_to_budget(pumpgraph_session *session, pumpgraph_budget_state *state,
                                                        pumpgraph_error *error);

/** Brings the value of a private buffer to its address, to be read and written outside captured steps. Waits for the
 * device. No step can be replayed until the matching pumpgraph_unmap(); calls nest. A buffer that is not private is
 * left alone. If the plan in force does not name the buffer, the value is at its address already, and the call only
 * waits for the device and holds replays off. */
PUMPGRAPH_API pumpgraph_status pumpgraph_map(pumpgraph_session *session, void *pointer, pumpgraph_error *error);
/** Ends one pumpgraph_map() of the buffer that holds `pointer`; the value returns to its place in the plan. */
PUMPGRAPH_API pumpgraph_status pumpgraph_unmap(pumpgraph_session *session, void *pointer, pumpgraph_error *error);

/** The caller's use of values that pumpgraph_bring() brings. */
enum {
  PUMPGRAPH_USE_READ = 0,  /**< read alone: writes are lost */
  PUMPGRAPH_USE_WRITE = 1, /**< read and written */
  /** Read and written; no other call takes the frames until the next replay, so other threads can use the values. */
  PUMPGRAPH_USE_UNTIL_REPLAY = 2
};

/** Brings the values of `count` allocations to their addresses at the same time, for access to private buffers between
 * replays. Waits for the device at the start and at the end. The cost is the link time of all bytes that are away, and
 * of values that have to leave for them. Buffers that are not private are left alone.
 *
 * Values leave again, which pumpgraph_departures() counts, in a later call that needs their frames, and in every call
 * that replays a step or prepares a replay. Launch kernels that use the values ahead of such a call;
 * PUMPGRAPH_USE_UNTIL_REPLAY excludes the former kind of call.
 *
 * Errors: PUMPGRAPH_OUT_OF_HOST_MEMORY if there is no room; all values are in their places then.
 *
 * \param use PUMPGRAPH_USE_WRITE if a value can be written. */
PUMPGRAPH_API pumpgraph_status pumpgraph_bring(pumpgraph_session *session, void *const *pointers, size_t count,
                                               int32_t use, pumpgraph_error *error);

/** Gives the address of a counter that advances whenever values may have left the addresses that pumpgraph_bring()
 * brought them to. The session owns the counter. Read it in the thread that calls the session. */
PUMPGRAPH_API pumpgraph_status pumpgraph_departures(pumpgraph_session *session, const uint64_t **departures,
                                                    pumpgraph_error *error);

/** Takes the plan in force back: the value of every buffer comes to its address and stays there until the next replay
 * of a rewritten step puts a plan in force. Waits for the device and moves data; see pumpgraph_put_in_force() for the
 * cost. Does nothing if no plan is in force. Not allowed while a stream is capturing.
 *
 * Errors: PUMPGRAPH_INVALID_ARGUMENT while a buffer is mapped; PUMPGRAPH_OUT_OF_HOST_MEMORY if there is no room. */
PUMPGRAPH_API pumpgraph_status pumpgraph_take_back(pumpgraph_session *session, pumpgraph_error *error);

/** Gives up freed allocations that are cached for reuse. Their device memory stays with the session, for other
 * allocations and plans; their host memory goes back to the system.
 *
 * Waits for the device, so no stream may be capturing, except between pumpgraph_capture_begin() and
 * pumpgraph_capture_end(), where the call does nothing. Called ahead of a capture under a budget that is used up, it
 * saves the capture milliseconds for each GiB that the capture allocates. */
PUMPGRAPH_API pumpgraph_status pumpgraph_empty_cache(pumpgraph_session *session, pumpgraph_error *error);

/** Measures the link between host and device again, while other processes on this host do the same: call it in all of
 * them at one time. Later plans count on the speed that the others leave to this one.
 *
 * Waits for the device. Needs free memory under the budget, up to 128 MiB, and gives up freed allocations for it.
 *
 * \param seconds for which it copies, at most 60; the same in all processes.
 * \return PUMPGRAPH_OUT_OF_DEVICE_MEMORY without free memory: plans go on counting on the speed that was measured
 *         alone. PUMPGRAPH_INVALID_ARGUMENT during a capture, and on managed memory. */
PUMPGRAPH_API pumpgraph_status pumpgraph_measure_link(pumpgraph_session *session, double seconds,
                                                      pumpgraph_error *error);

/** Begins paging: until pumpgraph_end_paging() the caller runs operators eagerly on `stream` that together can need
 * more than the budget. An allocation on that stream gets device memory; the least recently used memory moves to host
 * memory for it, and stays at its address there.
 *
 * The call can wait for the device; no other thread may start work on the session's memory meanwhile. On managed
 * memory, without a budget, and while a plan is in force, the paging calls do nothing.
 *
 * \param begun receives 1, or 0 if the paging calls do nothing; NULL is allowed. */
PUMPGRAPH_API pumpgraph_status pumpgraph_begin_paging(pumpgraph_session *session, pumpgraph_stream stream,
                                                      int32_t *begun, pumpgraph_error *error);
/** Brings the operands of the next operator to the device, as far as all of them find room together. Pointers outside
 * the session are left alone. Can wait for the device, under the same rule as pumpgraph_begin_paging(). */
PUMPGRAPH_API pumpgraph_status pumpgraph_page_in(pumpgraph_session *session, void *const *pointers, size_t count,
                                                 pumpgraph_error *error);
/** Ends paging. Blocks stay in place until a capture, pumpgraph_empty_cache() or a plan needs frames. Call
 * pumpgraph_empty_cache() ahead of a stream capture, which does not allow such moves.
 *
 * \param moved_bytes receives the bytes that paging has moved; NULL is allowed. */
PUMPGRAPH_API pumpgraph_status pumpgraph_end_paging(pumpgraph_session *session, uint64_t *moved_bytes,
                                                    pumpgraph_error *error);

/** While on (1), keeps freed memory in place for the program's own graphs that were captured after its allocation,
 * until these graphs are gone. Use it around frees of memory that libraries allocate once and find again in every
 * capture, such as workspaces. Off (0) at first. */
PUMPGRAPH_API pumpgraph_status pumpgraph_keep_freed(pumpgraph_session *session, int32_t on, pumpgraph_error *error);

/** \} */

/** \defgroup capture Capture
 * From a captured CUDA graph to a planned step, with the caller's knowledge of its nodes.
 * \{ */

/** Begins a capture of the session: until pumpgraph_capture_end(), allocations belong to the captured step. The caller
 * captures by means of its own (stream capture, torch.cuda.graph).
 *
 * A plan in force is taken back first, which a stream capture does not allow: begin ahead of the stream capture, or
 * call pumpgraph_take_back(). Until the end, the calls that can come between two launches (allocate, free, declare
 * reads, declare writes, declare aside, declare extents, declare operation, declare arithmetic, name nodes) also zero
 * the stack below their caller's frame. Remains of one launch there look like operands of the next launch if that
 * passes a struct with unset fields.
 *
 * Errors: PUMPGRAPH_INVALID_ARGUMENT if a capture of the session is running. */
PUMPGRAPH_API pumpgraph_status pumpgraph_capture_begin(pumpgraph_session *session, pumpgraph_error *error);
/** Ends the capture. Errors: PUMPGRAPH_INVALID_ARGUMENT if none is running. */
PUMPGRAPH_API pumpgraph_status pumpgraph_capture_end(pumpgraph_session *session, pumpgraph_error *error);

/** Declares that the new nodes only read the `count` allocations that hold `pointers`. The new nodes are those that the
 * capture on `stream` got since the last call of this function, or since the capture began. A `count` of 0 declares
 * nothing of the new nodes. Pointers outside the session are ignored.
 *
 * Plans rely on it: a value that was only read since it came from the host does not go back there. Use it for kernels
 * whose parameters do not tell; copies and fills are known anyway.
 *
 * Errors: PUMPGRAPH_INVALID_ARGUMENT unless `stream` is capturing between pumpgraph_capture_begin() and
 * pumpgraph_capture_end(). */
PUMPGRAPH_API pumpgraph_status pumpgraph_declare_reads(pumpgraph_session *session, pumpgraph_stream stream,
                                                       const void *const *pointers, size_t count,
                                                       pumpgraph_error *error);

/** Declares that kernels named `name` only read the memory behind the pointers in `count` of their parameters, counted
 * from 0. For firm knowledge of a library's kernels. Holds from the next adoption on. Callable from any thread.
 *
 * Errors: PUMPGRAPH_INVALID_ARGUMENT for NULL, or a name with an empty part.
 *
 * \param name a function with its namespaces, "at::native::softmax"; for a template it covers all instances. */
PUMPGRAPH_API pumpgraph_status pumpgraph_declare_kernel_reads(pumpgraph_session *session, const char *name,
                                                              const uint32_t *parameters, size_t count,
                                                              pumpgraph_error *error);

/** Declares that of the program's memory the new nodes write only the `count` allocations that hold `pointers`: none if
 * `count` is 0. NULL declares nothing of the new nodes. The declaration covers allocations from outside the capture
 * that are private or at most 8 bytes large, such as the state of a random-number generator.
 *
 * New nodes are counted for this function alone. The rest, errors included, is as for pumpgraph_declare_reads(). */
PUMPGRAPH_API pumpgraph_status pumpgraph_declare_writes(pumpgraph_session *session, pumpgraph_stream stream,
                                                        const void *const *pointers, size_t count,
                                                        pumpgraph_error *error);

/** Declares the `count` allocations that hold `pointers` *aside*: their contents reach nothing that the new nodes write
 * elsewhere. An example is state that the nodes update on the side, such as the running statistics of a batch norm. A
 * `count` of 0 declares nothing of the new nodes.
 *
 * Plans rely on it: if a kernel of a pure operation runs again, its parameters lead to other memory in place of these
 * allocations. The declaration covers parameters that are pointers, not pointers inside structs.
 *
 * New nodes are counted for this function alone. The rest, errors included, is as for pumpgraph_declare_reads(). */
PUMPGRAPH_API pumpgraph_status pumpgraph_declare_aside(pumpgraph_session *session, pumpgraph_stream stream,
                                                       const void *const *pointers, size_t count,
                                                       pumpgraph_error *error);

/** Bytes of one allocation. */
typedef struct pumpgraph_byte_range {
  const void *pointer; /**< the first byte, anywhere in an allocation */
  uint64_t bytes;      /**< at least 1, within the allocation */
} pumpgraph_byte_range;

/** Declares that of the allocations that hold these `count` extents the new nodes touch the extents alone. An example
 * is a kernel that works on a batch of rows of a large column. A `count` of 0 declares nothing of the new nodes.
 * Pointers outside the session are ignored.
 *
 * Plans rely on it: the rest of these allocations may be elsewhere while the nodes run. An access table that knows the
 * parameter is believed in its place. Copies and fills are known anyway.
 *
 * New nodes are counted for this function alone. Errors beside those of pumpgraph_declare_reads():
 * PUMPGRAPH_INVALID_ARGUMENT for an extent without bytes, or beyond its allocation. */
PUMPGRAPH_API pumpgraph_status pumpgraph_declare_extents(pumpgraph_session *session, pumpgraph_stream stream,
                                                         const pumpgraph_byte_range *extents, size_t count,
                                                         pumpgraph_error *error);

/** Declares that the new nodes *reach* allocations by addresses in memory, beside those behind their parameters: those
 * that hold the `read_count` pointers of `read`, which they only read, and the `written_count` of `written`, which they
 * may read and write. Grouped products are such: one kernel writes a table of addresses, another one follows it. Both
 * counts 0 declare nothing of the new nodes. Pointers outside the session are ignored.
 *
 * Plans rely on it: these allocations are on the device while the nodes run, and may be elsewhere at other times.
 * Without it an allocation stays on the device for good once calibration finds its address in memory. With it,
 * it may move if the address is found in temporary memory alone that no other nodes read.
 *
 * New nodes are counted for this function alone. The rest, errors included, is as for pumpgraph_declare_reads(). */
PUMPGRAPH_API pumpgraph_status pumpgraph_declare_reach(pumpgraph_session *session, pumpgraph_stream stream,
                                                       const void *const *read, size_t read_count,
                                                       const void *const *written, size_t written_count,
                                                       pumpgraph_error *error);

/** Gives the new nodes the program's name for them, such as "layer3.conv2 backward (convolution_backward)". Reports
 * show it in place of the kernel's symbol; nothing else depends on it. With NULL or "" the new nodes keep their
 * symbols. `name` is copied.
 *
 * New nodes are counted for this function alone. The rest, errors included, is as for pumpgraph_declare_reads(). */
PUMPGRAPH_API pumpgraph_status pumpgraph_name_nodes(pumpgraph_session *session, pumpgraph_stream stream,
                                                    const char *name, pumpgraph_error *error);

/** The kind of an operation. Scratch memory is defined at pumpgraph_free_scratch(). */
typedef enum pumpgraph_operation {
  PUMPGRAPH_OPERATION_UNKNOWN = 0, /**< nothing is declared */
  PUMPGRAPH_OPERATION_WHOLE = 1,   /**< the nodes find nothing in scratch memory, and leave nothing there */
  /** WHOLE, and the nodes' writes are a function, bit for bit, of their reads and their parameters, and their only
   * effect: the nodes can run again. */
  PUMPGRAPH_OPERATION_PURE = 2
} pumpgraph_operation;

/** Declares that the new nodes are one operation of the given kind.
 *
 * Plans rely on it: the results of a pure operation can be computed again in place of being kept or moved. Not pure are
 * sums in no fixed order (atomics), numbers drawn from a state that the operation advances, and accesses through
 * pointers in memory.
 *
 * New nodes are counted for this function alone. Errors: PUMPGRAPH_INVALID_ARGUMENT for an unknown `kind`; the rest is
 * as for pumpgraph_declare_reads().
 *
 * \param kind a pumpgraph_operation. */
PUMPGRAPH_API pumpgraph_status pumpgraph_declare_operation(pumpgraph_session *session, pumpgraph_stream stream,
                                                           int32_t kind, pumpgraph_error *error);

/** The format of an arithmetic's factors. */
typedef enum pumpgraph_arithmetic {
  PUMPGRAPH_ARITHMETIC_UNKNOWN = 0, /**< nothing is declared */
  PUMPGRAPH_ARITHMETIC_FP64 = 1,
  PUMPGRAPH_ARITHMETIC_FP32 = 2,
  PUMPGRAPH_ARITHMETIC_TF32 = 3, /**< fp32 operands on tensor cores */
  PUMPGRAPH_ARITHMETIC_HALF = 4, /**< fp16 or bf16 */
  PUMPGRAPH_ARITHMETIC_FP8 = 5,
  PUMPGRAPH_ARITHMETIC_INT8 = 6
} pumpgraph_arithmetic;

/** Declares the arithmetic of the new nodes together, such as 2·m·n·k operations of a matrix product. Without it the
 * estimated time of a node counts its bytes alone, too little for products and convolutions.
 *
 * Only the first plan depends on it: it takes a node's bytes or its arithmetic, whichever takes longer. Of several new
 * nodes the kernel with the most bytes gets all of it, since libraries launch helpers around the kernel that computes.
 * The time is that of 80 % (fp64, fp32) or 70 % (tensor cores) of the device's peak. Devices and formats of unknown
 * peak count bytes alone. Measured node times replace the estimate.
 *
 * New nodes are counted for this function alone. Callable from any thread, as are all declarations: the new nodes are
 * those on `stream`. Errors: PUMPGRAPH_INVALID_ARGUMENT for an unknown `kind`, or `operations` that are negative or not
 * finite; the rest is as for pumpgraph_declare_reads().
 *
 * \param operations additions and multiplications; a fused multiply-add counts as two. 0 declares nothing.
 * \param kind a pumpgraph_arithmetic. */
PUMPGRAPH_API pumpgraph_status pumpgraph_declare_arithmetic(pumpgraph_session *session, pumpgraph_stream stream,
                                                            double operations, int32_t kind, pumpgraph_error *error);

/** While on (1), a freed allocation of the last capture counts as scratch memory: no operation reads the contents that
 * another one left there. Use it between the capture and its adoption, around the calls by which libraries give up
 * their workspaces. Off (0) at first. */
PUMPGRAPH_API pumpgraph_status pumpgraph_free_scratch(pumpgraph_session *session, int32_t on, pumpgraph_error *error);

/** Remembers the pointer words of `graph`, captured between the last begin and end, as a rehearsal. The next adopted
 * graph is compared with it: words that do not move with the addresses allocated during the capture are not pointers.
 * The graph is neither kept nor changed.
 *
 * Errors: PUMPGRAPH_INVALID_ARGUMENT during a capture, or if none has ended since the last rehearsal or adoption. */
PUMPGRAPH_API pumpgraph_status pumpgraph_rehearse(pumpgraph_session *session, pumpgraph_cuda_graph graph,
                                                  pumpgraph_error *error);

/** Whether `graph`, captured since the rehearsal, has the same nodes in the same order, of the same sizes, and the same
 * pointers at memory that was there before: `*same` becomes 1 or 0. Values that do not matter to a step are such that
 * rehearsals with and without them are the same. Numbers among parameters are not compared.
 *
 * Errors: PUMPGRAPH_INVALID_ARGUMENT during a capture, or if there has been no rehearsal since the last adoption. */
PUMPGRAPH_API pumpgraph_status pumpgraph_rehearsal_matches(pumpgraph_session *session, pumpgraph_cuda_graph graph,
                                                           int32_t *same, pumpgraph_error *error);

/** The places of private buffers between replays. Under a shared boundary they are those of the step in force before,
 * so that either step can follow the other at once. Under a boundary of its own they are the best for the step alone,
 * and plans are exchanged (pumpgraph_put_in_force()). The report says which boundary a step has, and notes why it is
 * not shared. pumpgraph_replay() orders replays of steps that share, regardless of their streams; a caller that
 * launches graphs of its own orders them itself. */
typedef enum pumpgraph_boundary {
  PUMPGRAPH_BOUNDARY_AUTOMATIC = 0, /**< shared, unless the step is predicted to take over 1.3 times as long then */
  PUMPGRAPH_BOUNDARY_OWN = 1,       /**< best for steps that are replayed hundreds of times in a row */
  PUMPGRAPH_BOUNDARY_SHARED = 2     /**< shared if any such plan exists: best for steps that take turns */
} pumpgraph_boundary;

/** On managed memory: the time at which pages come back to the device. AHEAD is for use, the others for comparison. */
typedef enum pumpgraph_prefetching {
  PUMPGRAPH_PREFETCHING_AHEAD = 0,     /**< as soon as there is room */
  PUMPGRAPH_PREFETCHING_AT_LAUNCH = 1, /**< as soon as the node that needs them could start */
  PUMPGRAPH_PREFETCHING_NONE = 2       /**< at faults */
} pumpgraph_prefetching;

/** On managed memory: the choice of pages that stay in host memory, where kernels reach them over the link. */
typedef enum pumpgraph_hosting {
  PUMPGRAPH_HOSTING_AUTOMATIC = 0, /**< MEASURED for a step that is calibrated, otherwise NO_ROOM */
  PUMPGRAPH_HOSTING_NO_ROOM = 1,   /**< pages without room on the device, or hosted for another step of the session */
  PUMPGRAPH_HOSTING_MEASURED = 2   /**< pages that are faster there, as runs of the step show */
} pumpgraph_hosting;

/** The options of an adoption. Zero-initialize, set `struct_size`, then set members that differ from the default 0. */
typedef struct pumpgraph_adopt_options {
  size_t struct_size; /**< the size of the struct, set by the caller */
  const char *name;   /**< name of the step in reports; NULL: "step" */
  /** IR text of a saved step, whose node times are used if they are of this kind of GPU; NULL: static estimates. */
  const char *costs_ir;
  int32_t leave_as_captured; /**< 1: give the buffers memory and lift the graph, but rewrite nothing (a baseline) */
  int32_t keep_first_plan;   /**< 1: pumpgraph_replay() never plans again by itself */
  /** 1: runs the step once as captured, part by part, to find addresses that its kernels compute and store; memory at
   * such an address stays on the device. Nodes declared pure run twice, and a plan never runs one again that does not
   * reproduce its results. Slow. */
  int32_t calibrate;
  int32_t boundary;      /**< a pumpgraph_boundary */
  int32_t prefetching;   /**< on managed memory: a pumpgraph_prefetching */
  int32_t hosting;       /**< on managed memory: a pumpgraph_hosting */
  int32_t rematerialize; /**< a pumpgraph_rematerialize; NEVER if the session's is NEVER */
  /** 1, with PUMPGRAPH_BOUNDARY_SHARED: where no plan keeps the boundary, the steps that share it are planned again,
   * and the report names them as `planned_again`. Their graphs change, so instantiations of the caller's own are stale:
   * from then on, even if this call fails, the caller launches none without pumpgraph_before_launch(), until
   * `is_watched` is 0. */
  int32_t plan_others_again;
  int32_t trust_purity; /**< 1, with `calibrate`: nodes declared pure do not run a second time */
} pumpgraph_adopt_options;

/** Plans a captured graph under the session's budget and rewrites it in place. `graph` was captured between the last
 * begin and end. Adoption lifts the graph, plans it, checks the plan, and gives every buffer its memory. It then adds
 * copies and edges, possibly gives kernels other addresses of temporaries, lifts the result and checks that too.
 *
 * The caller keeps owning the graph, which must outlive the step, and can instantiate and launch it. The step belongs
 * to the session until pumpgraph_step_destroy(). A session can hold any number of steps; the new step's plan is in
 * force afterwards.
 *
 * A step that cannot be rewritten safely is left as captured, with the reason in its report; the status is
 * PUMPGRAPH_OK.
 *
 * With `calibrate`, and with measured `hosting`, adoption runs the step ("Runs of PumpGraph's own" below). Measured
 * hosting runs it several dozen times if it does not fit and consists of kernels, copies and fills alone; it is not for
 * steps that wait for other processes. The contents of the buffers stay the same.
 *
 * Errors: PUMPGRAPH_INVALID_ARGUMENT for options, during a capture, or while a buffer is mapped; PUMPGRAPH_UNPLANNABLE;
 * PUMPGRAPH_INTERNAL; with `calibrate` PUMPGRAPH_OUT_OF_HOST_MEMORY if device and host memory together have no room for
 * every buffer at once. On any error the graph is as it was, and the plan that was in force is in force again.
 *
 * \param options NULL: all defaults. */
PUMPGRAPH_API pumpgraph_status pumpgraph_adopt(pumpgraph_session *session, pumpgraph_cuda_graph graph,
                                               const pumpgraph_adopt_options *options, pumpgraph_step **step,
                                               pumpgraph_error *error);

/** Captures a step by two calls of `record(stream, user)` and adopts it. Both calls happen under stream capture, on a
 * stream of the session; the comparison of the two captures tells pointers from integers. The step owns its graph.
 *
 * Errors: PUMPGRAPH_CAPTURE_FAILED if `record` gives up or breaks the capture; and those of pumpgraph_adopt().
 *
 * \param record returns 0 for success, any other value to give up. */
PUMPGRAPH_API pumpgraph_status pumpgraph_capture(pumpgraph_session *session,
                                                 int (*record)(pumpgraph_stream stream, void *user), void *user,
                                                 const pumpgraph_adopt_options *options, pumpgraph_step **step,
                                                 pumpgraph_error *error);

/** Waits for the device and frees the step, which cannot be replayed any more. NULL is allowed. */
PUMPGRAPH_API void pumpgraph_step_destroy(pumpgraph_step *step);

/** \} */

/** \defgroup replay Replay
 * Launches of a step, by PumpGraph or by the caller, and its report.
 * \{ */

/** Launches the step on `stream`, asynchronously. The first call instantiates the graph. If another step's plan is in
 * force, the call first does the same as pumpgraph_put_in_force(), and can fail as that does.
 *
 * Unless `keep_first_plan` is set, the second to fourth replays are timed on the device. If their median differs from
 * the plan's prediction by over a tenth of the median, the step is planned again: the next eight replays run with
 * clocks between their nodes and take longer; a new plan is made from these times and timed in turn; the faster plan
 * stays. No replay is added, so no value differs. After a failure the plan stays, and the report has a note. */
PUMPGRAPH_API pumpgraph_status pumpgraph_replay(pumpgraph_step *step, pumpgraph_stream stream, pumpgraph_error *error);

/** Puts the step's plan in force in place of another step's, so that its graph can run. Call it ahead of a launch of an
 * instantiation of the caller's own, whenever another step may have run since. Nothing happens if the plan is in force
 * already, or if the step is left as captured. Instantiated graphs stay valid.
 *
 * Otherwise the call waits for the device and moves values between the frames, pinned pools and host memory of the two
 * plans. That takes about as long as copying twice the memory that the steps keep between replays, and longer if new
 * host memory is needed. `exchanges` and `exchange_ms` of the report have the number and the time of these exchanges.
 * In a session with PUMPGRAPH_BACKEND_AUTOMATIC the call may move all values of the session from managed to virtual
 * memory, or back.
 *
 * Errors: PUMPGRAPH_INVALID_ARGUMENT while a buffer is mapped, or, with the reason, if the session cannot change to the
 * step's kind of memory; PUMPGRAPH_OUT_OF_HOST_MEMORY if the values kept by the other step find no room. On an error
 * the previous plan stays in force. If a driver failure makes that impossible, replays of the steps concerned are
 * refused with PUMPGRAPH_INTERNAL. */
PUMPGRAPH_API pumpgraph_status pumpgraph_put_in_force(pumpgraph_step *step, pumpgraph_error *error);

/** One copy of pumpgraph_prepare_replay(), from device memory to device memory. The ranges do not overlap. */
typedef struct pumpgraph_copy {
  void *destination;  /**< device address */
  const void *source; /**< device address */
  size_t bytes;       /**< length of both ranges */
} pumpgraph_copy;

/** Does the same as pumpgraph_put_in_force(), then enqueues `count` copies on `stream`, in order, asynchronously: of
 * the step's arguments, for example. It saves a caller calls on the critical path. The copies may not read or write
 * memory that is private to a step whose plan is in force.
 *
 * Errors: as pumpgraph_put_in_force(), and PUMPGRAPH_DRIVER_ERROR if a copy is refused; the copies ahead of it are on
 * the stream by then.
 *
 * \param copies read within the call; NULL is allowed if `count` is 0. */
PUMPGRAPH_API pumpgraph_status pumpgraph_prepare_replay(pumpgraph_step *step, pumpgraph_stream stream,
                                                        const pumpgraph_copy *copies, size_t count,
                                                        pumpgraph_error *error);

/** The result of pumpgraph_before_launch(). */
typedef struct pumpgraph_launch {
  size_t struct_size;        /**< the size of the struct, set by the caller */
  int32_t graph_has_changed; /**< 1: since the last call; instantiate the graph anew ahead of the launch */
  /** 1: call pumpgraph_after_launch() after this launch, and pumpgraph_before_launch() ahead of the next one. */
  int32_t is_watched;
} pumpgraph_launch;

/** Prepares a launch of the caller's own instantiation on `stream`, for callers that want the planning from measured
 * times that pumpgraph_replay() includes. Call this ahead of each launch and pumpgraph_after_launch() after it, from
 * the first launch on, until `is_watched` is 0. Neither launches anything.
 *
 * The call does the same as pumpgraph_put_in_force(). It can also put clocks into the graph or remove them, plan the
 * step again and change the graph; it waits for the device then. If pumpgraph_prepare_replay() is called too, that
 * comes second.
 *
 * Errors: as pumpgraph_put_in_force(). If planning again fails, the plan stays, and the report says why. */
PUMPGRAPH_API pumpgraph_status pumpgraph_before_launch(pumpgraph_step *step, pumpgraph_stream stream,
                                                       pumpgraph_launch *launch, pumpgraph_error *error);
/** Ends a launch that pumpgraph_before_launch() reported as watched. */
PUMPGRAPH_API pumpgraph_status pumpgraph_after_launch(pumpgraph_step *step, pumpgraph_stream stream,
                                                      pumpgraph_error *error);

/** Gives the step's report as JSON (docs/reference/report.md): planned figures, backend, reasons, and times of capture,
 * plan and lowering. The caller owns the string and frees it with pumpgraph_string_free(). */
PUMPGRAPH_API pumpgraph_status pumpgraph_report(pumpgraph_step *step, char **json, pumpgraph_error *error);
/** Frees a string that a call of this header gave to its caller. NULL is allowed. */
PUMPGRAPH_API void pumpgraph_string_free(char *string);

/** Writes the captured step to the file `path` as IR text, with measured node times if there are any: the input of
 * pump-graph-opt. Errors: PUMPGRAPH_INVALID_ARGUMENT if the file cannot be written. */
PUMPGRAPH_API pumpgraph_status pumpgraph_save(pumpgraph_step *step, const char *path, pumpgraph_error *error);

/** Writes the plan's device memory over one predicted replay to the file `path`: a pickled snapshot of PyTorch's
 * allocator, as pump-graph-opt --report=memory-viz writes it (docs/reference/report.md, "The memory snapshot").
 *
 * Errors: PUMPGRAPH_INVALID_ARGUMENT, with the reason, if the step is left as captured, since all of its memory is on
 * the device at all times then. */
PUMPGRAPH_API pumpgraph_status pumpgraph_memory_snapshot(pumpgraph_step *step, const char *path,
                                                         pumpgraph_error *error);

/** \} */

/** \defgroup runs Runs of PumpGraph's own
 * Calls that run the step, as adoption does with `calibrate` and measured `hosting` (docs/design/runtime.md).
 *
 * Each run begins with the values with which the program's next replay would begin, and the program finds these values
 * again afterwards. The values are those of all buffers of the session that the step may reach, of memory that its
 * copies write elsewhere, and of device allocations outside the session that its kernels' parameters lead into. Host
 * memory holds them meanwhile.
 *
 * Errors of these runs: PUMPGRAPH_OUT_OF_HOST_MEMORY if there is no room for the values. PUMPGRAPH_INVALID_ARGUMENT,
 * with the reason, if a run has an effect that cannot be undone: the step calls host functions, a kernel has the
 * address of host memory outside the session as a parameter, or the step writes arrays or signals others. Nothing runs
 * then. Adoption does not fail for it: it leaves a step as captured that was to be calibrated, or measures no hosting,
 * with the reason in the report.
 *
 * Three kinds of memory pass unnoticed: variables of the kernels' own modules, memory reached by addresses stored
 * outside the session, and host memory whose address is a member of a struct.
 * \{ */

/** The result of pumpgraph_measure(). */
typedef struct pumpgraph_measurement {
  size_t struct_size;   /**< the size of the struct, set by the caller */
  double step_us;       /**< median time of a whole replay, microseconds */
  uint64_t timed_nodes; /**< number of nodes with a time of their own */
} pumpgraph_measurement;

/** Times every captured node of a step that is left as captured, or whose plan moves nothing. A node's time is the
 * median over `repeats` instrumented replays (fewer, but at least two, if replays take seconds); the sum of the times
 * is scaled to the time of the plain replay. The buffers' contents stay the same.
 *
 * Errors: PUMPGRAPH_INVALID_ARGUMENT if `repeats` is below 1, the step's plan moves data, or a buffer is mapped. */
PUMPGRAPH_API pumpgraph_status pumpgraph_measure(pumpgraph_step *step, int32_t repeats,
                                                 pumpgraph_measurement *measurement, pumpgraph_error *error);

/** The result of pumpgraph_replan(). Times are microseconds. */
typedef struct pumpgraph_replanning {
  size_t struct_size;         /**< the size of the struct, set by the caller */
  double predicted_before_us; /**< prediction of the plan that was in force */
  double measured_before_us;  /**< median time of its replay */
  double predicted_us;        /**< prediction of the best plan made from measured node times, kept or not */
  double measured_us;         /**< median time of its replay */
  uint64_t timed_nodes;       /**< number of nodes with a time of their own */
  int32_t kept_first;         /**< 1: every new plan was over 0.5 % slower, and the first plan is in force again */
} pumpgraph_replanning;

/** Plans a rewritten step again from measured node times and keeps the faster plan, of two within 0.5 % the newer.
 * Every captured node is timed on the device, with the step's transfers beside it. If nodes reach operands in host
 * memory, and the new plan is over 2 % off its prediction or over 1 % faster than all earlier ones, this is repeated up
 * to four times in all.
 *
 * Waits for the device and runs the step some dozen times. The graph is changed in place: a caller that instantiated it
 * does so again, after an error too.
 *
 * Errors: PUMPGRAPH_INVALID_ARGUMENT if the step is left as captured or on managed memory, or a buffer is mapped;
 * PUMPGRAPH_OUT_OF_HOST_MEMORY if there is no room for a second pinned pool beside the first. On an error the plan in
 * force stays; if a driver failure makes that impossible, replays are refused with PUMPGRAPH_INTERNAL. */
PUMPGRAPH_API pumpgraph_status pumpgraph_replan(pumpgraph_step *step, pumpgraph_replanning *result,
                                                pumpgraph_error *error);

/** The result of pumpgraph_validate(). */
typedef struct pumpgraph_validation {
  size_t struct_size;         /**< the size of the struct, set by the caller */
  uint64_t compared_buffers;  /**< live-out buffers of the step */
  uint64_t compared_bytes;    /**< their bytes */
  uint64_t different_buffers; /**< buffers that differ from those of the captured step */
  uint64_t unstable_buffers;  /**< buffers that the captured step itself does not reproduce from the same state */
  char first_difference[512]; /**< the first different buffer; empty if there is none */
  uint64_t impure_nodes;      /**< nodes that the plan runs again although they turn out impure */
  char impure[512];           /**< their kernels with the evidence, or the reason why none was checked */
} pumpgraph_validation;

/** Compares the rewritten step with the captured one. Both run from the same state, the captured step twice, the
 * rewritten one with frames poisoned whenever they change hands; every live-out buffer is compared byte for byte. If a
 * buffer differs among the three runs and the plan runs nodes again, the captured step runs once more, and each of
 * these nodes twice from the same state, as adoption does with `calibrate`. Slow.
 *
 * Errors: PUMPGRAPH_MISMATCH, with `result` filled, if a buffer differs that the captured step reproduces, or if there
 * are `impure_nodes`; PUMPGRAPH_MISMATCH too if a value that the plan keeps both on the device and in host memory
 * differs between the two. */
PUMPGRAPH_API pumpgraph_status pumpgraph_validate(pumpgraph_step *step, pumpgraph_validation *result,
                                                  pumpgraph_error *error);

/** The result of all calls of pumpgraph_observe() for a step. */
typedef struct pumpgraph_observation {
  size_t struct_size;           /**< the size of the struct, set by the caller */
  uint64_t runs;                /**< calls, this one included */
  uint64_t kernels;             /**< observed kernels */
  uint64_t slots;               /**< operands of these kernels */
  uint64_t covered;             /**< operands on which at least two runs agree, with nothing left open */
  uint64_t differing;           /**< operands on which runs disagree */
  uint64_t disagreements;       /**< contradictions to proved, declared or assumed accesses */
  char first_disagreement[512]; /**< the first contradiction; empty if there is none */
} pumpgraph_observation;

/** Observes which operands the step's kernels read and write. Every kernel runs alone, as captured: unchanged, again
 * unchanged, and with one operand after the other poisoned, twice each. Differences in the results show the accesses.
 *
 * One call covers one state of the buffers; call again with other inputs in them. An assumed access becomes `observed`
 * once two calls agree. That overrules nothing, and plans do not rely on it. The report has the figures and each
 * disagreement (`observation`); pumpgraph_save() writes the modes.
 *
 * Poison goes to memory that no node has set yet, and otherwise to words that look like floating-point numbers, which
 * stay finite.
 *
 * Slow: each kernel runs 2 + 2 * (number of its operands) times. Needs device memory, or host memory at a loss of
 * speed, for two copies of the largest kernel's memory.
 *
 * Errors: PUMPGRAPH_INVALID_ARGUMENT during a capture or while a buffer is mapped. On managed memory mapped buffers are
 * not counted: do not use any meanwhile. On an error the step is as it was, if the driver allows.
 *
 * \param values `value_count` pointers; in the allocations that hold them any word can be poisoned, since kernels find
 * nothing by their contents (no indices, lengths, flags to wait for). */
PUMPGRAPH_API pumpgraph_status pumpgraph_observe(pumpgraph_step *step, const void *const *values, size_t value_count,
                                                 pumpgraph_observation *result, pumpgraph_error *error);

/** \} */

/** \defgroup torch PyTorch's pluggable allocator
 * Functions whose addresses PyTorch gets, and a recorder for its memory history.
 * \{ */

/** Makes `session` the one that pumpgraph_torch_malloc() and pumpgraph_torch_free() serve; NULL: none. This is the only
 * process-wide state of the library: PyTorch's allocator interface has no place for a user pointer. The destruction of
 * the session detaches it. */
PUMPGRAPH_API pumpgraph_status pumpgraph_torch_attach(pumpgraph_session *session, pumpgraph_error *error);
/** Allocates `size` bytes from the attached session. Returns NULL for a `size` of 0.
 *
 * PyTorch looks at no status, so a shortage of memory throws a C++ exception: c10::OutOfMemoryError in a process with
 * PyTorch, std::runtime_error elsewhere. Its text begins with "CUDA out of memory." and has the requested bytes, the
 * bytes in use, the budget and the host limit. Any other failure throws a std::runtime_error that names it. The session
 * stays usable. */
PUMPGRAPH_API void *pumpgraph_torch_malloc(size_t size, int device, pumpgraph_stream stream);
/** Frees an allocation of pumpgraph_torch_malloc(). Never throws: a failure is printed to stderr. */
PUMPGRAPH_API void pumpgraph_torch_free(void *pointer, size_t size, int device, pumpgraph_stream stream);
/** Does the same as pumpgraph_record_stream() for the attached session. PyTorch calls it for tensors that its autograd
 * or a collective uses on another stream, and from `Tensor.record_stream()`. Memory of other owners is left alone.
 * Never throws. */
PUMPGRAPH_API void pumpgraph_torch_record_stream(void *pointer, pumpgraph_stream stream);
/** Passes memory from one owner in PyTorch to another. The next pumpgraph_torch_free() of `pointer` in this thread
 * frees nothing, and the pumpgraph_torch_malloc() after it returns `pointer`, regardless of the size. NULL cancels
 * that. */
PUMPGRAPH_API void pumpgraph_torch_keep(void *pointer);

/** The options of pumpgraph_torch_record(). The function pointers are CPython's, called with the interpreter's lock
 * held: PyGILState_Ensure, PyGILState_Release, PyEval_GetFrame, PyFrame_GetBack, PyFrame_GetCode,
 * PyFrame_GetLineNumber, Py_DecRef. */
typedef struct pumpgraph_torch_recording {
  size_t struct_size;   /**< the size of the struct, set by the caller */
  uint64_t most_events; /**< number of events to keep, the last ones; 0: none */
  int32_t stacks;       /**< 0: none; 1: of live allocations; 2: also of allocation events; 3: also of free events */
  int32_t keep_events;  /**< 1: earlier events stay */
  const void *gil_state_ensure;  /**< PyGILState_Ensure */
  const void *gil_state_release; /**< PyGILState_Release */
  const void *eval_get_frame;    /**< PyEval_GetFrame */
  const void *frame_get_back;    /**< PyFrame_GetBack */
  const void *frame_get_code;    /**< PyFrame_GetCode */
  const void *frame_get_line;    /**< PyFrame_GetLineNumber */
  const void *dec_ref;           /**< Py_DecRef */
} pumpgraph_torch_recording;

/** Begins to record PyTorch's allocations and frees, with Python's frames. NULL ends the recording and forgets its
 * events. End it before Python is finalized. While it is off an allocation pays for one atomic load.
 *
 * Two threads may not call this at once, nor beside pumpgraph_torch_snapshot(). Errors: PUMPGRAPH_INVALID_ARGUMENT if a
 * function pointer is NULL. Works after the loss of the device too. */
PUMPGRAPH_API pumpgraph_status pumpgraph_torch_record(pumpgraph_session *session,
                                                      const pumpgraph_torch_recording *recording,
                                                      pumpgraph_error *error);
/** Gives the recorded events and the session's memory as JSON. The caller owns the string and frees it with
 * pumpgraph_string_free(). Works after the loss of the device too. The keys:
 * - `recording`: whether the recording is on.
 * - `events`, the oldest first: `action` (`alloc`, `free`, `oom`), `address`, `bytes`, `stream`, `time_us` since 1970,
 *   `stack`; for `oom` also `left_bytes` of the budget.
 * - `live`: `address` and `stack` of recorded allocations that are not freed.
 * - `stacks`: the frames of each stack, the innermost first: the address of a code object, which lives until the
 *   recording ends, and a line. A `stack` elsewhere is a position in this list, or null.
 * - `blocks`: address ranges, ascending: `address`, `bytes`, `is_shared` (by small allocations), and `allocations`, the
 *   live ones: `address`, `bytes`, `stream`. */
PUMPGRAPH_API pumpgraph_status pumpgraph_torch_snapshot(pumpgraph_session *session, char **json,
                                                        pumpgraph_error *error);
/** Does the same as pumpgraph_empty_cache() for the attached session: PyTorch calls it from torch.cuda.empty_cache()
 * and ahead of each capture. A failure throws a std::runtime_error. */
PUMPGRAPH_API void pumpgraph_torch_empty_cache(void);

/** \} */

/** Describes this machine as text, for `tools/dev doctor`: the driver, attributes of the device, memory limits, usable
 * and unusable features, and remedies. Works without a driver.
 *
 * \returns a string that the caller owns and frees with pumpgraph_string_free(); NULL if host memory ran out. */
PUMPGRAPH_API char *pumpgraph_doctor(void);

#ifdef __cplusplus
}
#endif
#endif
