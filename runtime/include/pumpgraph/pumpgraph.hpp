// SPDX-License-Identifier: Apache-2.0
/// \file
/// The C API of PumpGraph with ownership and types, for C++20. Header only; needs pumpgraph.h and libpumpgraph.so.
///
/// ```cpp
/// using namespace pumpgraph::literals;
/// auto session = pumpgraph::Session::create({.budget = 16_GiB});
/// auto weights = session->allocate<float>(n, {.privacy = pumpgraph::Privacy::Private, .name = "weights"});
/// auto step = session->capture([&](CUstream stream) -> pumpgraph::Status { ... });
/// step->replay(stream);
/// auto view = session->map(*weights);
/// ```
///
/// Errors are values: a call that can fail returns an Expected, to be checked ahead of the use of its value, with the
/// statuses of the C function that it names. Nothing here throws.
/// Threading and units are those of pumpgraph.h: one call at a time on a session, sizes in bytes unless noted.
#pragma once

#include "pumpgraph/pumpgraph.h"

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace pumpgraph {

/// `16_GiB` and the like, in bytes.
namespace literals {
/// Bytes of so many KiB.
constexpr std::uint64_t operator""_KiB(unsigned long long value) {
  return value << 10;
}
/// Bytes of so many MiB.
constexpr std::uint64_t operator""_MiB(unsigned long long value) {
  return value << 20;
}
/// Bytes of so many GiB.
constexpr std::uint64_t operator""_GiB(unsigned long long value) {
  return value << 30;
}
} // namespace literals

/// The reason of a failure.
struct Error {
  pumpgraph_status code = PUMPGRAPH_INTERNAL; ///< for programs
  std::string message;                        ///< for people
};

/// A value, or the error in its place. Dereferencing an error is undefined; asserts catch it in debug builds.
template <typename Value> class [[nodiscard]] Expected {
public:
  /// Success with a value.
  Expected(Value value) : state_(std::in_place_index<0>, std::move(value)) {}
  /// Failure.
  Expected(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const { return state_.index() == 0; } ///< Tells success.
  explicit operator bool() const { return has_value(); } ///< Tells success.
  Value &operator*() & { return *get(); }                ///< The value of a success.
  const Value &operator*() const & { return *get(); }    ///< The value of a success.
  Value &&operator*() && { return std::move(*get()); }   ///< The value of a success.
  Value *operator->() { return get(); }                  ///< The value of a success.
  const Value *operator->() const { return get(); }      ///< The value of a success.
  /// The error of a failure.
  const Error &error() const {
    assert(!has_value() && "there is no error");
    return *std::get_if<1>(&state_);
  }

private:
  Value *get() {
    assert(has_value() && "there is no value");
    return std::get_if<0>(&state_);
  }
  const Value *get() const {
    assert(has_value() && "there is no value");
    return std::get_if<0>(&state_);
  }

  std::variant<Value, Error> state_;
};

/// Success, or the error in its place.
template <> class [[nodiscard]] Expected<void> {
public:
  Expected() = default;
  /// Failure.
  Expected(Error error) : failed_(true), error_(std::move(error)) {}

  bool has_value() const { return !failed_; }            ///< Tells success.
  explicit operator bool() const { return has_value(); } ///< Tells success.
  /// The error of a failure.
  const Error &error() const {
    assert(failed_ && "there is no error");
    return error_;
  }

private:
  bool failed_ = false;
  Error error_;
};

/// The result of a call without a value.
using Status = Expected<void>;

/// The permitted accesses to a buffer, which decide whether it can leave the device.
enum class Privacy {
  Exclusive, ///< by anything at any time; the buffer stays on the device. The safe default
  Present,   ///< by the program between replays only; the buffer can leave the device while a step runs
  Private    ///< by captured steps only; the buffer can be in host memory between replays (see Session::map())
};

/// The kind of memory behind a session's addresses: see pumpgraph_backend.
enum class Backend {
  Virtual = PUMPGRAPH_BACKEND_VIRTUAL,
  Managed = PUMPGRAPH_BACKEND_MANAGED,
  Automatic = PUMPGRAPH_BACKEND_AUTOMATIC
};

/// The caller's use of values that Session::bring() brings to their addresses.
enum class Use {
  Read = PUMPGRAPH_USE_READ,               ///< read only: writes are lost
  Write = PUMPGRAPH_USE_WRITE,             ///< read and written
  UntilReplay = PUMPGRAPH_USE_UNTIL_REPLAY ///< read and written; no other call takes the frames until the next replay
};

/// The permission of plans to run kernels again: see pumpgraph_rematerialize.
enum class Rematerialize { Automatic = PUMPGRAPH_REMATERIALIZE_AUTOMATIC, Never = PUMPGRAPH_REMATERIALIZE_NEVER };

/// Where a step is planned that is planned again by itself: see pumpgraph_planning.
enum class Planning { Aside = PUMPGRAPH_PLANNING_ASIDE, InReplay = PUMPGRAPH_PLANNING_IN_REPLAY };

/// On managed memory, the time at which pages come back: see pumpgraph_prefetching.
enum class Prefetching {
  Ahead = PUMPGRAPH_PREFETCHING_AHEAD,
  AtLaunch = PUMPGRAPH_PREFETCHING_AT_LAUNCH,
  None = PUMPGRAPH_PREFETCHING_NONE
};

/// On managed memory, the choice of pages that stay in host memory: see pumpgraph_hosting.
enum class Hosting {
  Automatic = PUMPGRAPH_HOSTING_AUTOMATIC,
  NoRoom = PUMPGRAPH_HOSTING_NO_ROOM,
  Measured = PUMPGRAPH_HOSTING_MEASURED
};

/// The options of Session::create(). pumpgraph_session_options has the details.
struct SessionOptions {
  std::uint64_t budget = 0;           ///< bytes of device memory for all buffers; required unless `unlimited`
  bool unlimited = false;             ///< every buffer gets device memory
  int device = 0;                     ///< CUDA device ordinal
  std::uint64_t hostLimit = 0;        ///< bytes of pinned and host-backed memory; 0: three quarters of the free memory
  std::string cacheDirectory = {};    ///< folder for measured link bandwidths; empty: they are not kept
  std::string compilerLibrary = {};   ///< path of libpumpgraph-compiler.so; empty: beside libpumpgraph.so
  bool wholeProcess = false;          ///< the budget covers all device memory of the process
  Backend backend = Backend::Virtual; ///< the memory of all buffers
  std::uint64_t managedBytes = 0;     ///< bytes of managed memory; 0: as much as limit and device allow
  std::uint64_t managedLimit = 0;     ///< bytes of the largest managed arena; 0: 4 GiB
  bool allowOversubscription = false; ///< a managed arena can exceed the device's free memory; slow
  Rematerialize rematerialize = Rematerialize::Automatic; ///< whether plans may run kernels again
  Planning planning = Planning::Aside;                    ///< where a step is planned that misses its prediction
};

/// The options of Session::allocate().
struct AllocateOptions {
  Privacy privacy = Privacy::Exclusive; ///< who touches the buffer
  std::string name = {};                ///< for reports
  pumpgraph_stream stream = nullptr;    ///< stream of the first use and of the free
};

/// The places of private buffers between replays: see pumpgraph_boundary.
enum class Boundary {
  Automatic = PUMPGRAPH_BOUNDARY_AUTOMATIC,
  Own = PUMPGRAPH_BOUNDARY_OWN,
  Shared = PUMPGRAPH_BOUNDARY_SHARED
};

/// The options of Session::capture() and Session::adopt(). pumpgraph_adopt_options has the details.
struct AdoptOptions {
  std::string name = "step";    ///< for reports
  std::string costsIr = {};     ///< IR text of a saved step with node times of this kind of GPU; empty: estimates
  bool leaveAsCaptured = false; ///< rewrite nothing: a baseline
  bool keepFirstPlan = false;   ///< Step::replay() never plans again by itself
  bool calibrate = false;       ///< run the step to find addresses that kernels store, and false purity; slow
  Boundary boundary = Boundary::Automatic;                ///< places of private buffers between replays
  Prefetching prefetching = Prefetching::Ahead;           ///< of managed memory: when pages come to the device
  Hosting hosting = Hosting::Automatic;                   ///< of managed memory: which buffers stay in host memory
  Rematerialize rematerialize = Rematerialize::Automatic; ///< where the session allows it
  bool planOthersAgain = false; ///< with Boundary::Shared: their graphs change, see pumpgraph_adopt_options
  bool trustPurity = false;     ///< with calibrate: nodes declared pure do not run a second time
};

namespace detail {

/// Calls a function of the C API, whose last argument is the error, and returns the outcome as a Status.
template <typename Function, typename... Arguments> Status call(Function function, Arguments... arguments) {
  pumpgraph_error error{};
  if (function(arguments..., &error) == PUMPGRAPH_OK)
    return {};
  return Error{error.status, error.message};
}

using SessionHandle = std::shared_ptr<pumpgraph_session>;

inline const char *orNull(const std::string &text) {
  return text.empty() ? nullptr : text.c_str();
}

} // namespace detail

/// An allocation of `size()` elements, freed by the destructor. Freed inside a capture, it is a temporary of the step.
/// Movable. The session's memory lives until the last of its sessions, steps and buffers is destroyed.
template <typename Element> class Buffer {
public:
  /// Leaves `other` empty.
  Buffer(Buffer &&other) noexcept { *this = std::move(other); }
  /// Exchanges the two.
  Buffer &operator=(Buffer &&other) noexcept {
    std::swap(session_, other.session_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Buffer() {
    if (data_)
      pumpgraph_free(session_.get(), data_, stream_, nullptr);
  }

  /// The device address, which never changes.
  Element *data() const { return static_cast<Element *>(data_); }
  /// Says that work on another stream than the buffer's uses it: see pumpgraph_record_stream().
  Status usedOn(pumpgraph_stream stream) {
    return detail::call(pumpgraph_record_stream, session_.get(), data_, stream);
  }
  /// The number of elements.
  std::size_t size() const { return size_; }
  /// The number of bytes.
  std::size_t sizeBytes() const { return size_ * sizeof(Element); }

private:
  friend class Session;
  Buffer(detail::SessionHandle session, void *data, std::size_t size, pumpgraph_stream stream)
      : session_(std::move(session)), data_(data), size_(size), stream_(stream) {}

  detail::SessionHandle session_;
  void *data_ = nullptr;
  std::size_t size_ = 0;
  pumpgraph_stream stream_ = nullptr;
};

/// The mapping of a buffer: while it lives, the buffer's value is at its address, and no step can be replayed.
class Mapped {
public:
  /// Leaves `other` empty.
  Mapped(Mapped &&other) noexcept { *this = std::move(other); }
  /// Exchanges the two.
  Mapped &operator=(Mapped &&other) noexcept {
    std::swap(session_, other.session_);
    std::swap(pointer_, other.pointer_);
    return *this;
  }
  ~Mapped() { (void)unmap(); }

  /// Ends the mapping, as the destructor does, and returns the outcome. See pumpgraph_unmap().
  Status unmap() {
    void *pointer = std::exchange(pointer_, nullptr);
    return pointer ? detail::call(pumpgraph_unmap, session_.get(), pointer) : Status{};
  }

private:
  friend class Session;
  Mapped(detail::SessionHandle session, void *pointer) : session_(std::move(session)), pointer_(pointer) {}

  detail::SessionHandle session_;
  void *pointer_ = nullptr;
};

/// A captured step. Its destructor gives the step's buffers memory of their own again. Movable; holds its session.
class Step {
public:
  /// Leaves `other` empty.
  Step(Step &&other) noexcept { *this = std::move(other); }
  /// Exchanges the two.
  Step &operator=(Step &&other) noexcept {
    std::swap(session_, other.session_);
    std::swap(step_, other.step_);
    return *this;
  }
  ~Step() { pumpgraph_step_destroy(step_); }

  /// Launches the step on `stream`, asynchronously, unless another step's plan is in force: see putInForce() and
  /// pumpgraph_replay().
  Status replay(pumpgraph_stream stream) { return detail::call(pumpgraph_replay, step_, stream); }

  /// Puts the step's plan in force, ahead of a launch of the caller's own instantiation. If another step's plan is in
  /// force, waits for the device and moves the values that both steps keep; no other thread may use the session's
  /// memory meanwhile. See pumpgraph_put_in_force().
  Status putInForce() { return detail::call(pumpgraph_put_in_force, step_); }

  /// Does the same as putInForce(), then enqueues `count` copies on `stream`. `copies` is read within the call. See
  /// pumpgraph_prepare_replay().
  Status prepareReplay(pumpgraph_stream stream, const pumpgraph_copy *copies, size_t count) {
    return detail::call(pumpgraph_prepare_replay, step_, stream, copies, count);
  }
  /// Call ahead of each launch of the caller's own instantiation, and afterLaunch() after it, until `is_watched` is 0.
  /// See pumpgraph_before_launch().
  Expected<pumpgraph_launch> beforeLaunch(pumpgraph_stream stream) {
    pumpgraph_launch launch{};
    launch.struct_size = sizeof launch;
    if (const Status done = detail::call(pumpgraph_before_launch, step_, stream, &launch); !done)
      return done.error();
    return launch;
  }
  /// See pumpgraph_after_launch().
  Status afterLaunch(pumpgraph_stream stream) { return detail::call(pumpgraph_after_launch, step_, stream); }

  /// The report as JSON: planned figures, reasons and times (docs/reference/report.md).
  Expected<std::string> report() const {
    char *json = nullptr;
    if (const Status made = detail::call(pumpgraph_report, step_, &json); !made)
      return made.error();
    std::string text = json;
    pumpgraph_string_free(json);
    return text;
  }

  /// Writes the captured step to a file as IR text, the input of pump-graph-opt. See pumpgraph_save().
  Status save(const std::string &path) const { return detail::call(pumpgraph_save, step_, path.c_str()); }

  /// Writes the plan's device memory over one predicted replay to a file, for PyTorch's memory viewer. See
  /// pumpgraph_memory_snapshot().
  Status memorySnapshot(const std::string &path) const {
    return detail::call(pumpgraph_memory_snapshot, step_, path.c_str());
  }

  /// Times every node of a step that is left as captured, or whose plan moves nothing, over `repeats` replays. See
  /// pumpgraph_measure().
  Expected<pumpgraph_measurement> measure(int repeats) {
    pumpgraph_measurement measurement{};
    measurement.struct_size = sizeof measurement;
    if (const Status made = detail::call(pumpgraph_measure, step_, repeats, &measurement); !made)
      return made.error();
    return measurement;
  }

  /// Measures node times on the rewritten step, plans it again with them and keeps the faster plan. Changes the graph
  /// in place. See pumpgraph_replan().
  Expected<pumpgraph_replanning> replan() {
    pumpgraph_replanning replanning{};
    replanning.struct_size = sizeof replanning;
    if (const Status made = detail::call(pumpgraph_replan, step_, &replanning); !made)
      return made.error();
    return replanning;
  }

  /// Compares the rewritten step with the captured one: an error with PUMPGRAPH_MISMATCH if they differ. Slow. See
  /// pumpgraph_validate().
  Expected<pumpgraph_validation> validate() {
    pumpgraph_validation validation{};
    validation.struct_size = sizeof validation;
    if (const Status made = detail::call(pumpgraph_validate, step_, &validation); !made)
      return made.error();
    return validation;
  }

  /// Observes which operands the step's kernels read and write, with the buffers' present contents. `values`: pointers
  /// into allocations by whose contents kernels find nothing. Slow. See pumpgraph_observe().
  Expected<pumpgraph_observation> observe(const std::vector<const void *> &values = {}) {
    pumpgraph_observation observation{};
    observation.struct_size = sizeof observation;
    if (const Status made = detail::call(pumpgraph_observe, step_, values.data(), values.size(), &observation); !made)
      return made.error();
    return observation;
  }

private:
  friend class Session;
  Step(detail::SessionHandle session, pumpgraph_step *step) : session_(std::move(session)), step_(step) {}

  detail::SessionHandle session_;
  pumpgraph_step *step_ = nullptr;
};

/// One device, one budget, and the memory under it. Copies share the session, which ends with the last of them and of
/// its buffers, mappings and steps.
class Session {
public:
  /// See pumpgraph_session_create().
  static Expected<Session> create(const SessionOptions &options) {
    pumpgraph_session_options given{};
    given.struct_size = sizeof given;
    given.budget_bytes = options.budget;
    given.unlimited = options.unlimited;
    given.device = options.device;
    given.host_limit_bytes = options.hostLimit;
    given.backend = static_cast<std::int32_t>(options.backend);
    given.managed_bytes = options.managedBytes;
    given.managed_limit_bytes = options.managedLimit;
    given.allow_oversubscription = options.allowOversubscription;
    given.cache_directory = detail::orNull(options.cacheDirectory);
    given.compiler_library = detail::orNull(options.compilerLibrary);
    given.whole_process = options.wholeProcess;
    given.rematerialize = static_cast<std::int32_t>(options.rematerialize);
    given.planning = static_cast<std::int32_t>(options.planning);
    pumpgraph_session *session = nullptr;
    if (const Status made = detail::call(pumpgraph_session_create, &given, &session); !made)
      return made.error();
    return Session(detail::SessionHandle(session, pumpgraph_session_destroy));
  }

  /// Allocates `count` elements of device memory and declares the buffer's privacy. See pumpgraph_allocate(),
  /// pumpgraph_declare_private() and pumpgraph_declare_present().
  template <typename Element>
  Expected<Buffer<Element>> allocate(std::size_t count, const AllocateOptions &options = {}) {
    void *pointer = nullptr;
    if (const Status made = detail::call(pumpgraph_allocate, session_.get(), count * sizeof(Element), options.stream,
                                         detail::orNull(options.name), &pointer);
        !made)
      return made.error();
    Buffer<Element> buffer(session_, pointer, count, options.stream);
    if (options.privacy == Privacy::Private)
      if (const Status declared = detail::call(pumpgraph_declare_private, session_.get(), pointer); !declared)
        return declared.error();
    if (options.privacy == Privacy::Present)
      if (const Status declared = detail::call(pumpgraph_declare_present, session_.get(), pointer); !declared)
        return declared.error();
    return Expected<Buffer<Element>>(std::move(buffer)); // nvcc does not move it by itself
  }

  /// Captures a step by two calls of `record(stream)` under stream capture, and adopts the second capture. `record`
  /// enqueues the step and returns a Status; its error is the result if there is one. Buffers that it allocates and
  /// frees can leave the device. See pumpgraph_capture() and pumpgraph_adopt().
  template <typename Record> Expected<Step> capture(Record &&record, const AdoptOptions &options = {}) {
    struct Recording {
      std::remove_reference_t<Record> &record;
      Status outcome;
    } recording{record, {}};
    const auto trampoline = [](pumpgraph_stream stream, void *user) -> int {
      auto &self = *static_cast<Recording *>(user);
      (void)(self.outcome = self.record(stream)); // nvcc warns of the assignment's own value
      return self.outcome ? 0 : 1;
    };
    const pumpgraph_adopt_options given = toC(options);
    pumpgraph_step *step = nullptr;
    const Status made =
        detail::call(pumpgraph_capture, session_.get(), +trampoline, static_cast<void *>(&recording), &given, &step);
    if (!recording.outcome) // the caller's own error says more
      return recording.outcome.error();
    if (!made)
      return made.error();
    return Step(session_, step);
  }

  /// Begins a capture by means of the caller's own. After captureEnd(), adopt() takes the graph, which must outlive the
  /// step. See pumpgraph_capture_begin().
  Status captureBegin() { return detail::call(pumpgraph_capture_begin, session_.get()); }
  /// See pumpgraph_capture_end().
  Status captureEnd() { return detail::call(pumpgraph_capture_end, session_.get()); }
  /// Declares that the nodes new to the capture on `stream` only read these allocations: see pumpgraph_declare_reads().
  Status declareReads(pumpgraph_stream stream, const std::vector<const void *> &pointers) {
    return detail::call(pumpgraph_declare_reads, session_.get(), stream, pointers.data(), pointers.size());
  }
  /// Declares that kernels of this name only read the memory behind these parameters: see
  /// pumpgraph_declare_kernel_reads().
  Status declareKernelReads(const std::string &name, const std::vector<std::uint32_t> &parameters) {
    return detail::call(pumpgraph_declare_kernel_reads, session_.get(), name.c_str(), parameters.data(),
                        parameters.size());
  }
  /// Declares that of the program's memory the nodes new to the capture on `stream` write these allocations alone;
  /// std::nullopt declares nothing. See pumpgraph_declare_writes().
  Status declareWrites(pumpgraph_stream stream, const std::optional<std::vector<const void *>> &pointers) {
    static const void *const none[] = {nullptr};
    if (!pointers)
      return detail::call(pumpgraph_declare_writes, session_.get(), stream, nullptr, std::size_t{0});
    return detail::call(pumpgraph_declare_writes, session_.get(), stream, pointers->empty() ? none : pointers->data(),
                        pointers->size());
  }
  /// Declares that nothing which the nodes new to the capture on `stream` write elsewhere depends on these allocations:
  /// see pumpgraph_declare_aside().
  Status declareAside(pumpgraph_stream stream, const std::vector<const void *> &pointers) {
    return detail::call(pumpgraph_declare_aside, session_.get(), stream, pointers.data(), pointers.size());
  }
  /// Declares that of the allocations of these extents the nodes new to the capture on `stream` touch the extents
  /// alone: see pumpgraph_declare_extents().
  Status declareExtents(pumpgraph_stream stream, const std::vector<pumpgraph_byte_range> &extents) {
    return detail::call(pumpgraph_declare_extents, session_.get(), stream, extents.data(), extents.size());
  }
  /// Declares that the nodes new to the capture on `stream` reach these allocations by addresses in memory: see
  /// pumpgraph_declare_reach().
  Status declareReach(pumpgraph_stream stream, const std::vector<const void *> &read,
                      const std::vector<const void *> &written) {
    return detail::call(pumpgraph_declare_reach, session_.get(), stream, read.data(), read.size(), written.data(),
                        written.size());
  }
  /// Names the nodes new to the capture on `stream`, for reports: see pumpgraph_name_nodes().
  Status nameNodes(pumpgraph_stream stream, const std::string &name) {
    return detail::call(pumpgraph_name_nodes, session_.get(), stream, name.c_str());
  }
  /// Declares the nodes new to the capture on `stream` one operation: see pumpgraph_declare_operation().
  Status declareOperation(pumpgraph_stream stream, pumpgraph_operation kind) {
    return detail::call(pumpgraph_declare_operation, session_.get(), stream, static_cast<int32_t>(kind));
  }
  /// Declares the arithmetic of the nodes new to the capture on `stream`: see pumpgraph_declare_arithmetic().
  Status declareArithmetic(pumpgraph_stream stream, double operations, pumpgraph_arithmetic kind) {
    return detail::call(pumpgraph_declare_arithmetic, session_.get(), stream, operations, static_cast<int32_t>(kind));
  }
  /// While on, freed allocations of the last capture count as scratch memory: see pumpgraph_free_scratch().
  Status freeScratch(bool on) { return detail::call(pumpgraph_free_scratch, session_.get(), on ? 1 : 0); }
  /// Remembers the pointer words of a first capture, to tell pointers from integers in the next: see
  /// pumpgraph_rehearse().
  Status rehearse(pumpgraph_cuda_graph graph) { return detail::call(pumpgraph_rehearse, session_.get(), graph); }
  /// pumpgraph_rehearsal_matches().
  Expected<bool> rehearsalMatches(pumpgraph_cuda_graph graph) {
    std::int32_t same = 0;
    if (const Status asked = detail::call(pumpgraph_rehearsal_matches, session_.get(), graph, &same); !asked)
      return asked.error();
    return same != 0;
  }
  /// Plans the captured graph under the budget and rewrites it in place: see pumpgraph_adopt().
  Expected<Step> adopt(pumpgraph_cuda_graph graph, const AdoptOptions &options = {}) {
    const pumpgraph_adopt_options given = toC(options);
    pumpgraph_step *step = nullptr;
    if (const Status made = detail::call(pumpgraph_adopt, session_.get(), graph, &given, &step); !made)
      return made.error();
    return Step(session_, step);
  }

  /// Brings a buffer's value to its address until the result is destroyed. Waits for the device. See pumpgraph_map().
  template <typename Element> Expected<Mapped> map(const Buffer<Element> &buffer) {
    if (const Status made = detail::call(pumpgraph_map, session_.get(), static_cast<void *>(buffer.data())); !made)
      return made.error();
    return Mapped(session_, buffer.data());
  }

  /// Brings the values of these allocations to their addresses, for kernels that are launched ahead of the next call
  /// that brings values, replays a step or prepares a replay. Waits for the device. See pumpgraph_bring().
  Status bring(const std::vector<void *> &pointers, Use use) {
    return detail::call(pumpgraph_bring, session_.get(), pointers.data(), pointers.size(), static_cast<int32_t>(use));
  }

  /// The address of a counter that advances whenever values may have left the addresses that bring() brought them to.
  /// Valid as long as the session.
  Expected<const std::uint64_t *> departures() const {
    const std::uint64_t *counter = nullptr;
    if (const Status found = detail::call(pumpgraph_departures, session_.get(), &counter); !found)
      return found.error();
    return counter;
  }

  /// Takes the plan in force back: every value is at its address until the next replay of a rewritten step. Waits for
  /// the device. See pumpgraph_take_back().
  Status takeBack() { return detail::call(pumpgraph_take_back, session_.get()); }

  /// Measures the link while other processes of this host do the same: later plans count on the speed that these leave.
  /// See pumpgraph_measure_link().
  Status measureLink(double seconds) { return detail::call(pumpgraph_measure_link, session_.get(), seconds); }

  /// Gives up freed allocations that are cached for reuse. Waits for the device. See pumpgraph_empty_cache().
  Status emptyCache() { return detail::call(pumpgraph_empty_cache, session_.get()); }

  /// The present memory of the session, in bytes.
  Expected<pumpgraph_memory_stats> statistics() const {
    pumpgraph_memory_stats stats{};
    stats.struct_size = sizeof stats;
    if (const Status made = detail::call(pumpgraph_memory_statistics, session_.get(), &stats); !made)
      return made.error();
    return stats;
  }

  /// Sets the peaks of statistics() to the present values: see pumpgraph_reset_peaks().
  Status resetPeaks() { return detail::call(pumpgraph_reset_peaks, session_.get()); }

  /// Takes ownership of a session of the C API.
  static Session own(pumpgraph_session *session) {
    return Session(detail::SessionHandle(session, pumpgraph_session_destroy));
  }
  /// The session for calls of the C API. The Session keeps owning it.
  pumpgraph_session *handle() const { return session_.get(); }

private:
  explicit Session(detail::SessionHandle session) : session_(std::move(session)) {}

  static pumpgraph_adopt_options toC(const AdoptOptions &options) {
    pumpgraph_adopt_options given{};
    given.struct_size = sizeof given;
    given.name = options.name.c_str();
    given.costs_ir = detail::orNull(options.costsIr);
    given.leave_as_captured = options.leaveAsCaptured;
    given.keep_first_plan = options.keepFirstPlan;
    given.calibrate = options.calibrate;
    given.boundary = static_cast<std::int32_t>(options.boundary);
    given.prefetching = static_cast<std::int32_t>(options.prefetching);
    given.hosting = static_cast<std::int32_t>(options.hosting);
    given.rematerialize = static_cast<std::int32_t>(options.rematerialize);
    given.plan_others_again = options.planOthersAgain;
    given.trust_purity = options.trustPurity;
    return given;
  }

  detail::SessionHandle session_;
};

} // namespace pumpgraph
