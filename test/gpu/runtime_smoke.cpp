// SPDX-License-Identifier: Apache-2.0
// The runtime on a real GPU: `runtime_smoke [--list | --list-managed | --only NAME | --managed-row STEP WAY]`. One line
// a case; exit status 1 if any failed.
#include "pumpgraph/pumpgraph.hpp"
#include "test/gpu/FaultySession.h"
#include "test/gpu/SmokeKernels.h"

#include <cuda_runtime_api.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <regex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace pumpgraph::smoke {
namespace {

using namespace pumpgraph::literals;
using Word = std::uint32_t;

/// A case ends at the first thing that is wrong.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void require(bool holds, const std::string &what) {
  if (!holds)
    throw Failure(what);
}

void cuda(cudaError_t result, const char *what) {
  if (result != cudaSuccess)
    throw Failure(std::string(what) + ": " + cudaGetErrorName(result));
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): a value is moved out of it
template <typename Value> Value take(Expected<Value> result, const char *what) {
  if (!result)
    throw Failure(std::string(what) + ": status " + std::to_string(result.error().code) + ": " +
                  result.error().message);
  if constexpr (!std::is_void_v<Value>)
    return std::move(*result);
}

double nowMs() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::uint64_t freeDeviceBytes() {
  std::size_t free = 0, total = 0;
  cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

/// What every net of these tests looks like.
struct Shape {
  int layers = 12;
  std::size_t activationBytes = 48_MiB;
  std::size_t weightBytes = 16_MiB;
  bool branches = false;     ///< weight updates on a second stream
  bool programmatic = false; ///< dependent launches in the backward pass
  bool otherNodes = false;   ///< copies and fills between the kernels
  bool table = false;        ///< a table of pointers in device memory is read
  bool privateLoss = false;  ///< which kernels add to atomically
  bool fills = false;        ///< of a large buffer

  std::size_t count() const { return activationBytes / sizeof(Word); }
  std::size_t weights() const { return weightBytes / sizeof(Word); }
};

/// A chain of layers, forward and backward, whose weights change with each step.
class Net {
public:
  Net(Session session, const Shape &shape) : session_(std::move(session)), shape_(shape) {
    cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    cuda(cudaStreamCreateWithFlags(&side_, cudaStreamNonBlocking), "stream");
    cuda(cudaEventCreateWithFlags(&fork_, cudaEventDisableTiming), "event");
    cuda(cudaEventCreateWithFlags(&join_, cudaEventDisableTiming), "event");
    cuda(cudaMallocHost(reinterpret_cast<void **>(&upload_), 4096), "cudaMallocHost");
    cuda(cudaMallocHost(reinterpret_cast<void **>(&download_), 4096), "cudaMallocHost");
    std::fill_n(upload_, 4096 / sizeof(Word), Word{5});
    input_.emplace(take(session_.allocate<Word>(shape.count(), {.name = "input"}), "input"));
    fill(input_->data(), shape.count(), 1);
    for (int layer = 0; layer < shape.layers; ++layer) {
      const std::string name = "weight" + std::to_string(layer);
      weights_.push_back(
          take(session_.allocate<Word>(shape.weights(), {.privacy = Privacy::Private, .name = name}), "weights"));
      fill(weights_.back().data(), shape.weights(), 100 + static_cast<Word>(layer));
    }
    const Privacy privacy = shape.privateLoss ? Privacy::Private : Privacy::Exclusive;
    loss_.emplace(take(session_.allocate<Word>(1, {.privacy = privacy, .name = "loss"}), "loss"));
    fill(loss_->data(), 1, 0);
    if (shape.table)
      makeTable();
  }
  ~Net() {
    step_.reset();
    cudaDeviceSynchronize();
    cudaFreeHost(upload_);
    cudaFreeHost(download_);
    cudaEventDestroy(fork_);
    cudaEventDestroy(join_);
    cudaStreamDestroy(stream_);
    cudaStreamDestroy(side_);
  }
  Net(const Net &) = delete;
  Net &operator=(const Net &) = delete;

  Session &session() { return session_; }
  Step &step() { return *step_; }
  cudaStream_t stream() const { return stream_; }
  const std::vector<Buffer<Word>> &weights() const { return weights_; }

  /// Captures with pumpgraph_capture.
  Status capture(const AdoptOptions &options = {}) {
    Expected<Step> step = session_.capture([&](pumpgraph_stream stream) { return record(stream); }, options);
    if (!step)
      return step.error();
    step_.emplace(std::move(*step));
    return {};
  }

  /// Captures by hand, so that the caller has the graph.
  cudaGraph_t captureGraph() {
    take(session_.captureBegin(), "captureBegin");
    cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "begin capture");
    take(record(stream_), "record");
    cudaGraph_t graph = nullptr;
    cuda(cudaStreamEndCapture(stream_, &graph), "end capture");
    take(session_.captureEnd(), "captureEnd");
    return graph;
  }
  Status adopt(cudaGraph_t graph, const AdoptOptions &options = {}) {
    Expected<Step> step = session_.adopt(graph, options);
    if (!step)
      return step.error();
    step_.emplace(std::move(*step));
    return {};
  }
  void dropStep() { step_.reset(); }

  /// Returns milliseconds per replay.
  double replay(int times) {
    cuda(cudaDeviceSynchronize(), "before replays");
    const double start = nowMs();
    for (int i = 0; i < times; ++i)
      take(step_->replay(stream_), "replay");
    cuda(cudaStreamSynchronize(stream_), "replays");
    return (nowMs() - start) / times;
  }

  nlohmann::json report() { return nlohmann::json::parse(take(step_->report(), "report")); }

  /// Everything that outlives a step: the loss, the download, all weights.
  std::vector<Word> state() {
    cuda(cudaDeviceSynchronize(), "reading the state");
    std::vector<Word> all(1);
    const Mapped loss = take(session_.map(*loss_), "map");
    cuda(cudaMemcpy(all.data(), loss_->data(), sizeof(Word), cudaMemcpyDefault), "reading the loss");
    all.push_back(shape_.otherNodes ? download_[0] : 0);
    for (const Buffer<Word> &weight : weights_) {
      const Mapped mapped = take(session_.map(weight), "map");
      const std::size_t begin = all.size();
      all.resize(begin + weight.size());
      cuda(cudaMemcpy(all.data() + begin, weight.data(), weight.sizeBytes(), cudaMemcpyDefault), "reading a weight");
    }
    return all;
  }

private:
  void fill(Word *target, std::size_t count, Word seed) {
    std::vector<Word> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = seed + static_cast<Word>(i * 2654435761u);
    cuda(cudaMemcpy(target, values.data(), count * sizeof(Word), cudaMemcpyDefault), "initial values");
  }

  void makeTable() {
    table_.emplace(take(session_.allocate<Word *>(weights_.size(), {.name = "table"}), "table"));
    std::vector<Word *> rows;
    for (const Buffer<Word> &weight : weights_)
      rows.push_back(weight.data());
    cuda(cudaMemcpy(table_->data(), rows.data(), table_->sizeBytes(), cudaMemcpyDefault), "filling the table");
  }

  /// For the stream that is captured, unless another one uses temporaries that this one has freed.
  Expected<Buffer<Word>> temporary(const std::string &name) {
    return session_.allocate<Word>(shape_.count(), {.name = name, .stream = shape_.branches ? nullptr : recording_});
  }

  Status record(cudaStream_t stream) {
    const std::size_t count = shape_.count(), weights = shape_.weights();
    recording_ = stream;
    std::vector<Buffer<Word>> activations;
    for (int layer = 0; layer < shape_.layers; ++layer) {
      Expected<Buffer<Word>> out = temporary("activation" + std::to_string(layer));
      if (!out)
        return out.error();
      const Word *in = layer == 0 ? input_->data() : activations.back().data();
      activations.push_back(std::move(*out));
      forward(stream, in, weights_[static_cast<std::size_t>(layer)].data(), activations.back().data(), count, weights);
    }
    addLoss(stream, activations.back().data(), count, loss_->data());
    if (shape_.table)
      sumTable(stream, table_->data(), shape_.layers, activations.back().data(), weights);
    if (shape_.otherNodes)
      if (const Status added = recordOtherNodes(stream, activations.back()); !added)
        return added;
    if (shape_.fills)
      if (const Status added = recordFills(stream); !added)
        return added;
    Buffer<Word> gradient = std::move(activations.back());
    for (int layer = shape_.layers - 1; layer >= 0; --layer) {
      Expected<Buffer<Word>> next = temporary("gradient" + std::to_string(layer));
      if (!next)
        return next.error();
      const Word *activation = layer == 0 ? input_->data() : activations[static_cast<std::size_t>(layer) - 1].data();
      backward(stream, gradient.data(), activation, next->data(), count, shape_.programmatic);
      cudaStream_t updating = shape_.branches ? side_ : stream;
      if (shape_.branches) {
        cudaEventRecord(fork_, stream);
        cudaStreamWaitEvent(side_, fork_);
      }
      update(updating, weights_[static_cast<std::size_t>(layer)].data(), next->data(), count, weights);
      gradient = std::move(*next);
    }
    if (shape_.branches) {
      cudaEventRecord(join_, side_);
      cudaStreamWaitEvent(stream, join_);
    }
    return {};
  }

  /// What is filled is used by fewer nodes than what is made of it.
  Status recordFills(cudaStream_t stream) {
    Expected<Buffer<Word>> filled = temporary("filled"), scaled = temporary("scaled");
    if (!filled || !scaled)
      return filled ? scaled.error() : filled.error();
    cudaMemsetAsync(filled->data(), 7, filled->sizeBytes(), stream);
    scalePacked(stream, {filled->data(), 3, static_cast<Word>(shape_.count()), scaled->data()});
    for (int time = 0; time < 3; ++time)
      addLoss(stream, scaled->data(), shape_.count(), loss_->data());
    return {};
  }

  /// Fills, in rows and with bytes that make no words, copies in all directions, a struct by value.
  Status recordOtherNodes(cudaStream_t stream, Buffer<Word> &value) {
    Expected<Buffer<Word>> copy = temporary("copy"), scaled = temporary("scaled");
    if (!copy || !scaled)
      return copy ? scaled.error() : copy.error();
    cudaMemsetAsync(copy->data(), 7, copy->sizeBytes(), stream);
    cudaMemcpyAsync(copy->data() + 1024, value.data() + 1024, copy->sizeBytes() - 4096, cudaMemcpyDefault, stream);
    cudaMemcpyAsync(copy->data(), upload_, 4096, cudaMemcpyDefault, stream);
    char *bytes = reinterpret_cast<char *>(copy->data());
    cudaMemsetAsync(bytes + 5001, 9, 1003, stream);
    cudaMemset2DAsync(bytes + 8192, 4096, 3, 37, 100, stream);
    scalePacked(stream, {copy->data(), 3, static_cast<Word>(shape_.count()), scaled->data()});
    cudaMemcpyAsync(value.data(), scaled->data(), value.sizeBytes(), cudaMemcpyDefault, stream);
    cudaMemcpyAsync(download_, value.data(), 4096, cudaMemcpyDefault, stream);
    return {};
  }

  Session session_;
  Shape shape_;
  cudaStream_t stream_ = nullptr, side_ = nullptr, recording_ = nullptr;
  cudaEvent_t fork_ = nullptr, join_ = nullptr;
  Word *upload_ = nullptr, *download_ = nullptr;
  std::optional<Buffer<Word>> input_, loss_;
  std::optional<Buffer<Word *>> table_;
  std::vector<Buffer<Word>> weights_;
  std::optional<Step> step_;
};

/// The runtime is part of this program, so the compiler library is not beside it: bin and lib are neighbours.
std::string compilerLibrary() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib" /
          "libpumpgraph-compiler.so")
      .string();
}

std::unique_ptr<Net> open(SessionOptions options, const Shape &shape) {
  options.compilerLibrary = compilerLibrary();
  return std::make_unique<Net>(take(Session::create(options), "session"), shape);
}

/// What the unmodified step leaves behind after `steps` replays, with memory for everything.
std::vector<Word> expectedState(const Shape &shape, int steps) {
  const std::unique_ptr<Net> net = open({.unlimited = true}, shape);
  take(net->capture({.leaveAsCaptured = true}), "capture");
  net->replay(steps);
  return net->state();
}

/// Pages the step needs without transfers, of the report of a plan without a budget.
std::uint64_t peakBytes(const Shape &shape) {
  const std::unique_ptr<Net> net = open({.unlimited = true}, shape);
  take(net->capture(), "capture");
  const nlohmann::json report = net->report();
  require(report["runtime"]["backend"] == "virtual", "not rewritten: " + report["runtime"].dump());
  return report.at("peak_bytes_before");
}

std::uint64_t shareOf(std::uint64_t bytes, double share) {
  return static_cast<std::uint64_t>(static_cast<double>(bytes) * share) / 2_MiB * 2_MiB;
}

/// Where two states differ first.
void requireEqual(const std::vector<Word> &found, const std::vector<Word> &expected, const std::string &which) {
  require(found.size() == expected.size(), which + ": another size");
  const auto [f, e] = std::mismatch(found.begin(), found.end(), expected.begin());
  if (f != found.end())
    throw Failure(which + ": word " + std::to_string(f - found.begin()) + " of " + std::to_string(found.size()) +
                  " is " + std::to_string(*f) + ", expected " + std::to_string(*e));
}

std::string note(const char *format, auto... values) {
  char text[512];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

/// The same results at 100, 50 and 30 % of the peak as with memory for everything.
std::string sameAtEveryBudget(const Shape &shape) {
  const std::vector<Word> expected = expectedState(shape, 4);
  const std::uint64_t peak = peakBytes(shape);
  std::string notes = note("peak %llu MiB", static_cast<unsigned long long>(peak >> 20));
  for (const double share : {1.0, 0.5, 0.3}) {
    const std::unique_ptr<Net> net = open({.budget = shareOf(peak, share)}, shape);
    const std::string which = note("at %.0f %%", share * 100);
    take(net->capture(), which.c_str());
    net->replay(4);
    requireEqual(net->state(), expected, which);
    net->replay(2); // the first of them may plan the step again
    const double ms = net->replay(20);
    const nlohmann::json report = net->report();
    require(report["runtime"]["backend"] == "virtual", which + " not rewritten: " + report["runtime"].dump());
    if (share == 1.0)
      require(report.at("added_nodes") == 0, which + ": " + report.at("added_nodes").dump() + " nodes added");
    notes += note("; %.0f %%: %.2f ms, plan bound %.2f, predicted %.2f", share * 100, ms,
                  report.at("plan_bound_s").get<double>() * 1e3, report.at("predicted_s").get<double>() * 1e3);
  }
  return notes;
}

std::string budgets() {
  return sameAtEveryBudget({});
}
/// Fills of a step with branches are done by kernels, those of the step as captured by memset nodes.
std::string fillsInBranches() {
  return sameAtEveryBudget({.branches = true, .otherNodes = true});
}
std::string twoStreams() {
  return sameAtEveryBudget({.branches = true});
}
std::string otherNodes() {
  return sameAtEveryBudget({.otherNodes = true});
}

/// A dependent launch whose operand moves has to wait for completion: its edge is demoted.
std::string programmaticEdges() {
  return sameAtEveryBudget({.programmatic = true});
}

/// What a table in device memory points at is found, stays on the device, and is read correctly.
std::string pointerTable() {
  const Shape shape{.table = true};
  const std::vector<Word> expected = expectedState(shape, 3);
  const std::unique_ptr<Net> net = open({.budget = shareOf(peakBytes(shape), 0.6)}, shape);
  take(net->capture(), "capture");
  net->replay(3);
  requireEqual(net->state(), expected, "at 60 %");
  const std::string notes = net->report()["runtime"]["notes"].dump();
  require(notes.find("table") != std::string::npos, "the table is not in the notes: " + notes);
  return "";
}

/// A child graph counts as one node that touches what its nodes touch.
std::string childGraph() {
  const Shape shape;
  const std::vector<Word> expected = expectedState(shape, 2);
  const std::unique_ptr<Net> net = open({.budget = shareOf(peakBytes(shape), 0.5)}, shape);
  cudaGraph_t graph = net->captureGraph(), inner = nullptr;
  // Adds 0 to the first weight, on behalf of a graph inside the graph.
  cudaStream_t stream = nullptr;
  cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin inner capture");
  update(stream, net->weights()[0].data(), net->weights()[0].data(), 0, shape.weights());
  cuda(cudaStreamEndCapture(stream, &inner), "end inner capture");
  std::size_t count = 0;
  cuda(cudaGraphGetNodes(graph, nullptr, &count), "nodes");
  std::vector<cudaGraphNode_t> nodes(count);
  cuda(cudaGraphGetNodes(graph, nodes.data(), &count), "nodes");
  cudaGraphNode_t child = nullptr;
  cuda(cudaGraphAddChildGraphNode(&child, graph, &nodes.back(), 1, inner), "child graph");
  take(net->adopt(graph), "adopt");
  require(net->report()["runtime"]["backend"] == "virtual", "not rewritten");
  net->replay(2);
  requireEqual(net->state(), expected, "with a child graph");
  net->dropStep();
  cudaGraphDestroy(graph);
  cudaGraphDestroy(inner);
  cudaStreamDestroy(stream);
  return "";
}

/// Device memory stays below the budget and a constant, and a thousand replays change nothing.
std::string hardBudgetNoGrowth() {
  const Shape shape{.layers = 6, .activationBytes = 16_MiB, .weightBytes = 4_MiB};
  const std::uint64_t budget = shareOf(peakBytes(shape), 0.5);
  constexpr std::uint64_t constant = 64_MiB; // page tables, instantiated graphs, the driver's own
  cuda(cudaDeviceSynchronize(), "sync");
  const std::uint64_t before = freeDeviceBytes();
  const std::unique_ptr<Net> net = open({.budget = budget}, shape);
  take(net->capture(), "capture");
  net->replay(4);
  net->replay(1); // may plan the step again
  const double ms = net->replay(20);
  const std::uint64_t used = before - std::min(before, freeDeviceBytes());
  require(used <= budget + constant, note("%llu MiB used at a budget of %llu MiB", (unsigned long long)used >> 20,
                                          (unsigned long long)budget >> 20));
  net->replay(1000);
  const std::uint64_t after = before - std::min(before, freeDeviceBytes());
  require(after == used,
          note("device memory grew from %llu to %llu bytes", (unsigned long long)used, (unsigned long long)after));
  const pumpgraph_memory_stats stats = take(net->session().statistics(), "statistics");
  require(stats.device_peak_bytes <= budget, "frames above the budget");
  return note("budget %llu MiB, used %llu MiB, %.2f ms a replay", (unsigned long long)budget >> 20,
              (unsigned long long)used >> 20, ms);
}

std::string validates() {
  const Shape shape{.branches = true};
  const std::vector<Word> expected = expectedState(shape, 2);
  const std::unique_ptr<Net> net = open({.budget = shareOf(peakBytes(shape), 0.4)}, shape);
  take(net->capture(), "capture");
  net->replay(1);
  const double start = nowMs();
  const pumpgraph_validation result = take(net->step().validate(), "validate");
  const double ms = nowMs() - start;
  require(result.compared_buffers > 0 && result.unstable_buffers == 0,
          note("compared %llu, unstable %llu", (unsigned long long)result.compared_buffers,
               (unsigned long long)result.unstable_buffers));
  net->replay(1);
  requireEqual(net->state(), expected, "after validation");
  return note("%llu buffers, %llu MiB compared in %.0f ms", (unsigned long long)result.compared_buffers,
              (unsigned long long)result.compared_bytes >> 20, ms);
}

/// Where frames are short buffers go on at other addresses: kernels are given these, and compute the same, also under
/// the plan that comes after.
std::string continuations() {
  std::string notes;
  for (const Shape &shape : {Shape{}, Shape{.branches = true}, Shape{.programmatic = true}}) {
    const std::vector<Word> expected = expectedState(shape, 4);
    const std::unique_ptr<Net> net = open({.budget = shareOf(peakBytes(shape), 0.25)}, shape);
    take(net->capture({.keepFirstPlan = true}), "capture");
    const nlohmann::json first = net->report();
    require(first["runtime"]["backend"] == "virtual", "not rewritten: " + first["runtime"].dump());
    require(first.at("continuations") > 0, "no buffer goes on at another address");
    net->replay(2);
    const pumpgraph_validation result = take(net->step().validate(), "validate");
    require(result.compared_buffers > 0 && result.unstable_buffers == 0, "validation compared nothing");
    net->replay(1);
    take(net->step().replan(), "replan");
    net->replay(1);
    requireEqual(net->state(), expected, "at 25 %");
    notes += note("%s%llu buffers at other addresses, then %llu", notes.empty() ? "" : "; ",
                  first.at("continuations").get<unsigned long long>(),
                  net->report().at("continuations").get<unsigned long long>());
  }
  return notes;
}

/// Takes half of every copy to the device away: validation has to see it.
std::string validationCatchesSabotage() {
  const Shape shape;
  const std::unique_ptr<Net> net = open({.budget = shareOf(peakBytes(shape), 0.4)}, shape);
  cudaGraph_t graph = net->captureGraph();
  take(net->adopt(graph), "adopt");
  std::size_t count = 0;
  cuda(cudaGraphGetNodes(graph, nullptr, &count), "nodes");
  std::vector<cudaGraphNode_t> nodes(count);
  cuda(cudaGraphGetNodes(graph, nodes.data(), &count), "nodes");
  int shortened = 0;
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    cuda(cudaGraphNodeGetType(node, &type), "node type");
    if (type != cudaGraphNodeTypeMemcpy)
      continue;
    cudaMemcpy3DParms copy{};
    cuda(cudaGraphMemcpyNodeGetParams(node, &copy), "copy parameters");
    if (copy.kind != cudaMemcpyHostToDevice)
      continue;
    const std::size_t half = std::max<std::size_t>(copy.extent.width / 2, 512);
    cuda(cudaGraphMemcpyNodeSetParams1D(node, copy.dstPtr.ptr, copy.srcPtr.ptr, half, cudaMemcpyHostToDevice),
         "shortening a copy");
    ++shortened;
  }
  require(shortened > 0, "the plan has no copy to the device");
  const Expected<pumpgraph_validation> result = net->step().validate();
  require(!result, "validation did not notice");
  require(result.error().code == PUMPGRAPH_MISMATCH, result.error().message);
  const std::string message = result.error().message;
  net->dropStep();
  cudaGraphDestroy(graph);
  return note("%d copies shortened: %s", shortened, message.c_str());
}

/// A value written under map() is what the next replay reads.
std::string mapping() {
  const Shape shape;
  const std::unique_ptr<Net> net = open({.budget = shareOf(peakBytes(shape), 0.4)}, shape);
  take(net->capture(), "capture");
  net->replay(1);
  const Buffer<Word> &weight = net->weights()[3];
  const double start = nowMs();
  {
    Mapped mapped = take(net->session().map(weight), "map");
    cuda(cudaMemset(weight.data(), 0, weight.sizeBytes()), "writing a mapped buffer");
    const Status refused = net->step().replay(net->stream());
    require(!refused && refused.error().code == PUMPGRAPH_INVALID_ARGUMENT, "replayed while mapped");
    take(mapped.unmap(), "unmap");
  }
  const double ms = nowMs() - start;
  const std::vector<Word> state = net->state();
  const std::size_t begin = 2 + 3 * shape.weights();
  for (std::size_t i = 0; i < shape.weights(); ++i)
    require(state[begin + i] == 0, "a mapped buffer's new value was lost");
  net->replay(1);
  return note("map, write, unmap of 16 MiB: %.1f ms", ms);
}

/// Two steps over the same weights, of two lengths, with a sum that only one of them keeps.
class TwoSteps {
public:
  TwoSteps(const SessionOptions &options, const AdoptOptions &adoptOptions)
      : session_(take(Session::create(options), "session")), options_(adoptOptions) {
    input_.emplace(take(session_.allocate<Word>(longer, {.name = "input"}), "input"));
    sum_.emplace(take(session_.allocate<Word>(longer, {.privacy = Privacy::Private, .name = "sum"}), "sum"));
    loss_.emplace(take(session_.allocate<Word>(1, {.name = "loss"}), "loss"));
    fill(*input_, 1);
    fill(*sum_, 2);
    fill(*loss_, 3);
    for (Word layer = 0; layer < layers; ++layer) {
      weights_.push_back(take(session_.allocate<Word>(weightCount, {.privacy = Privacy::Private}), "weight"));
      fill(weights_.back(), 100 + layer);
    }
    for (const std::size_t count : {longer, shorter})
      steps_.push_back(
          take(session_.capture([&, count](pumpgraph_stream stream) { return record(stream, count); }, options_),
               "capture"));
  }

  Session &session() { return session_; }
  nlohmann::json report(std::size_t step) { return nlohmann::json::parse(take(steps_[step].report(), "report")); }
  Step &step(std::size_t index) { return steps_[index]; }
  void drop(std::size_t index) { steps_.erase(steps_.begin() + static_cast<std::ptrdiff_t>(index)); }

  void replay(std::size_t step) { take(steps_[step].replay(nullptr), "replay"); }

  /// Everything that outlives a replay.
  std::vector<Word> state() {
    cuda(cudaDeviceSynchronize(), "reading the state");
    std::vector<Word> all(1);
    cuda(cudaMemcpy(all.data(), loss_->data(), sizeof(Word), cudaMemcpyDefault), "reading the loss");
    append(all, *sum_);
    for (const Buffer<Word> &weight : weights_)
      append(all, weight);
    return all;
  }

private:
  static constexpr Word layers = 8;
  static constexpr std::size_t longer = 24_MiB / sizeof(Word), shorter = longer / 2,
                               weightCount = 16_MiB / sizeof(Word);

  void fill(Buffer<Word> &target, Word seed) {
    std::vector<Word> values(target.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = seed + static_cast<Word>(i * 2654435761u);
    cuda(cudaMemcpy(target.data(), values.data(), target.sizeBytes(), cudaMemcpyDefault), "initial values");
  }

  void append(std::vector<Word> &all, const Buffer<Word> &buffer) {
    const Mapped mapped = take(session_.map(buffer), "map");
    const std::size_t begin = all.size();
    all.resize(begin + buffer.size());
    cuda(cudaMemcpy(all.data() + begin, buffer.data(), buffer.sizeBytes(), cudaMemcpyDefault), "reading");
  }

  Status record(cudaStream_t stream, std::size_t count) {
    std::vector<Buffer<Word>> activations;
    for (const Buffer<Word> &weight : weights_) {
      Expected<Buffer<Word>> out = session_.allocate<Word>(count);
      if (!out)
        return out.error();
      forward(stream, activations.empty() ? input_->data() : activations.back().data(), weight.data(), out->data(),
              count, weightCount);
      activations.push_back(std::move(*out));
    }
    addLoss(stream, activations.back().data(), count, loss_->data());
    if (count == longer) // the other keeps no sum
      update(stream, sum_->data(), activations.back().data(), count, count);
    for (Word layer = layers; layer-- > 0;)
      update(stream, weights_[layer].data(), activations[layer].data(), count, weightCount);
    return {};
  }

  Session session_;
  AdoptOptions options_;
  std::optional<Buffer<Word>> input_, sum_, loss_;
  std::vector<Buffer<Word>> weights_;
  std::vector<Step> steps_;
};

/// Replayed in turns, in runs, and after one is gone, both leave what the unmodified graphs leave, bit for bit.
std::string twoSteps() {
  const std::vector<std::size_t> order = {0, 1, 0, 0, 1, 1, 0, 1, 0, 1, 1, 0};
  constexpr std::size_t afterDrop = 2;
  std::string notes;
  // Room for both; for what both keep; and for less than that, so that values lie in two pinned pools.
  for (const std::uint64_t budget : {600_MiB, 200_MiB, 120_MiB}) {
    TwoSteps found({.budget = budget, .compilerLibrary = compilerLibrary()}, {.boundary = Boundary::Own});
    TwoSteps fresh({.unlimited = true, .compilerLibrary = compilerLibrary()}, {.leaveAsCaptured = true});
    for (const std::size_t step : {0, 1})
      require(found.report(step)["runtime"]["backend"] == "virtual", "not rewritten");
    std::size_t exchanges = 0, inForce = 1; // captured last
    double exchangeMs = 0;
    for (const std::size_t step : order) {
      exchanges += step != inForce ? 1 : 0;
      inForce = step;
      found.replay(step);
      fresh.replay(step);
      requireEqual(found.state(), fresh.state(), note("at %llu MiB", (unsigned long long)budget >> 20));
    }
    std::size_t counted = 0;
    for (const std::size_t step : {0, 1}) {
      counted += found.report(step)["runtime"]["exchanges"].get<std::size_t>();
      exchangeMs += found.report(step)["runtime"]["exchange_ms"].get<double>();
      take(found.step(step).validate(), "validate");
    }
    require(counted == exchanges, note("%zu exchanges reported, %zu expected", counted, exchanges));
    take(found.session().takeBack(), "take back");
    requireEqual(found.state(), fresh.state(), "after taking back");
    take(found.step(0).putInForce(), "put in force");
    found.drop(0);
    for (std::size_t i = 0; i < afterDrop; ++i) {
      found.replay(0);
      fresh.replay(1);
    }
    requireEqual(found.state(), fresh.state(), "after one is gone");
    const pumpgraph_memory_stats stats = take(found.session().statistics(), "statistics");
    require(stats.device_peak_bytes <= budget, "frames above the budget");
    notes += note("%s%llu MiB: %zu exchanges of %.1f ms", notes.empty() ? "" : "; ", (unsigned long long)budget >> 20,
                  exchanges, exchangeMs / static_cast<double>(exchanges));
  }
  return notes;
}

/// Replayed in turns without any exchange, both leave what the unmodified graphs leave, bit for bit; and turns take as
/// long as either step alone.
std::string twoStepsShareABoundary() {
  const std::vector<std::size_t> order = {0, 1, 0, 0, 1, 1, 0, 1, 0, 1, 1, 0};
  constexpr int rounds = 20;
  std::string notes;
  for (const std::uint64_t budget : {600_MiB, 200_MiB, 120_MiB}) {
    const std::string which = note("at %llu MiB", (unsigned long long)budget >> 20);
    TwoSteps found({.budget = budget, .compilerLibrary = compilerLibrary()},
                   {.keepFirstPlan = true, .boundary = Boundary::Shared});
    TwoSteps fresh({.unlimited = true, .compilerLibrary = compilerLibrary()}, {.leaveAsCaptured = true});
    for (const std::size_t step : order) {
      found.replay(step);
      fresh.replay(step);
      requireEqual(found.state(), fresh.state(), which);
    }
    for (const std::size_t step : {0, 1})
      take(found.step(step).validate(), "validate");
    const auto timed = [&](const std::vector<std::size_t> &steps) {
      cuda(cudaDeviceSynchronize(), "timing");
      const double start = nowMs();
      for (int i = 0; i < rounds; ++i)
        for (const std::size_t step : steps)
          found.replay(step);
      cuda(cudaDeviceSynchronize(), "timing");
      const double ms = (nowMs() - start) / rounds;
      for (int i = 0; i < rounds; ++i)
        for (const std::size_t step : steps)
          fresh.replay(step);
      return ms;
    };
    const double apart = timed({0}) + timed({1}), inTurns = timed({0, 1});
    requireEqual(found.state(), fresh.state(), which + ", after replays in turns");
    for (const std::size_t step : {0, 1}) {
      const nlohmann::json runtime = found.report(step)["runtime"];
      require(runtime["boundary"] == "shared with step", which + ": " + runtime["notes"].dump());
      require(runtime["exchanges"] == 0, which + ": plans were exchanged");
    }
    // Streams of their own are ordered by the runtime.
    cudaStream_t streams[2];
    for (cudaStream_t &stream : streams)
      cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    for (std::size_t i = 0; i < 2 * rounds; ++i) {
      take(found.step(i % 2).replay(streams[i % 2]), "replay");
      fresh.replay(i % 2);
    }
    requireEqual(found.state(), fresh.state(), which + ", on two streams");
    for (const cudaStream_t stream : streams)
      cuda(cudaStreamDestroy(stream), "stream");
    found.drop(0);
    found.replay(0);
    fresh.replay(1);
    requireEqual(found.state(), fresh.state(), which + ", after one is gone");
    const pumpgraph_memory_stats stats = take(found.session().statistics(), "statistics");
    require(stats.device_peak_bytes <= budget, "frames above the budget");
    notes += note("%s%s: in turns %.2f ms, one after the other %.2f", notes.empty() ? "" : "; ", which.c_str(), inTurns,
                  apart);
  }
  return notes;
}

/// Below what one kernel touches, the rest of it is always in host memory.
std::string sameWithOperandsInHostMemory(const Shape &shape, const std::vector<std::uint64_t> &budgets) {
  const std::vector<Word> expected = expectedState(shape, 4);
  std::string notes;
  for (const std::uint64_t budget : budgets) {
    const std::string which = note("at %llu MiB", static_cast<unsigned long long>(budget >> 20));
    const std::unique_ptr<Net> net = open({.budget = budget}, shape);
    take(net->capture({.keepFirstPlan = true}), which.c_str());
    const nlohmann::json report = net->report();
    require(report["runtime"]["backend"] == "virtual", which + " not rewritten: " + report["runtime"].dump());
    const std::uint64_t hosted = report.at("hosted_bytes");
    require(hosted > 0, which + ": nothing is hosted");
    if (shape.fills)
      require(report["hosted"].dump().find("\"filled\"") != std::string::npos,
              which + ": what is filled is not hosted");
    net->replay(2);
    take(net->step().validate(), "validate");
    const double ms = net->replay(2);
    requireEqual(net->state(), expected, which);
    const pumpgraph_memory_stats stats = take(net->session().statistics(), "statistics");
    require(stats.device_peak_bytes <= budget, which + ": frames above the budget");
    notes += note("%s%s: %llu MiB hosted, %.2f ms, predicted %.2f, of it on the link %.2f", notes.empty() ? "" : "; ",
                  which.c_str(), static_cast<unsigned long long>(hosted >> 20), ms,
                  report.at("predicted_s").get<double>() * 1e3, report.at("hosted_link_s").get<double>() * 1e3);
  }
  return notes;
}

std::string operandsInHostMemory() {
  return sameWithOperandsInHostMemory({.layers = 4}, {160_MiB, 100_MiB, 52_MiB});
}
std::string atomicsInHostMemory() {
  return sameWithOperandsInHostMemory({.layers = 4, .privateLoss = true}, {160_MiB, 100_MiB, 52_MiB});
}
/// A memset node may not be able to write them, so a kernel does.
std::string fillsInHostMemory() {
  return sameWithOperandsInHostMemory({.layers = 4, .fills = true}, {80_MiB, 52_MiB});
}
/// Operands of the step's own copies need frames, whatever else is in host memory.
std::string copiesNeedFrames() {
  const std::unique_ptr<Net> net = open({.budget = 160_MiB}, {.layers = 4, .otherNodes = true});
  const Status refused = net->capture();
  require(!refused, "planned under 160 MiB");
  require(refused.error().code == PUMPGRAPH_UNPLANNABLE, refused.error().message);
  require(refused.error().message.find("operands of copies") != std::string::npos, refused.error().message);
  return refused.error().message;
}

std::string budgetBelowWhatStays() {
  const std::unique_ptr<Net> net = open({.budget = 40_MiB}, {});
  const Status refused = net->capture();
  require(!refused, "planned under 40 MiB");
  require(refused.error().code == PUMPGRAPH_UNPLANNABLE, refused.error().message);
  return refused.error().message;
}

std::string hostLimitTooSmall() {
  const Shape shape;
  const std::uint64_t peak = peakBytes(shape);
  // Enough for what the program allocates beyond the budget, not for what is spilled.
  const std::unique_ptr<Net> net = open({.budget = shareOf(peak, 0.6), .hostLimit = 48_MiB}, shape);
  const Status refused = net->capture();
  require(!refused, "captured with 48 MiB of host memory");
  require(refused.error().code == PUMPGRAPH_OUT_OF_HOST_MEMORY, refused.error().message);
  return refused.error().message;
}

/// Whatever fails between capture and instantiation, the caller's graph is as it was and runs; the next try succeeds.
std::string failuresLeaveTheGraphUsable() {
  const Shape shape{.layers = 5, .activationBytes = 16_MiB, .weightBytes = 4_MiB};
  const std::vector<Word> expected = expectedState(shape, 1), expectedTwice = expectedState(shape, 2);
  const std::uint64_t budget = shareOf(peakBytes(shape), 0.7);
  for (const auto &[fault, nth] : {std::pair{Fault::AddCopy, 1},
                                   {Fault::AddCopy, 3},
                                   {Fault::AddEdge, 2},
                                   {Fault::AddEdge, 9},
                                   {Fault::CloneGraph, 1}}) {
    pumpgraph_session_options options{};
    options.struct_size = sizeof options;
    options.budget_bytes = budget;
    const std::string compiler = compilerLibrary();
    options.compiler_library = compiler.c_str();
    pumpgraph_session *made = makeFaultySession(options);
    require(made, "no session");
    Net net(Session::own(made), shape);
    cudaGraph_t graph = net.captureGraph();
    std::size_t before = 0, after = 0;
    cuda(cudaGraphGetNodes(graph, nullptr, &before), "nodes");
    arm(fault, nth);
    const Status refused = net.adopt(graph);
    require(!refused, "the injected failure did not surface");
    require(refused.error().message.find(fault == Fault::CloneGraph ? "OUT_OF_MEMORY" : "INVALID_VALUE") !=
                std::string::npos,
            "not the injected failure: " + refused.error().message);
    cuda(cudaGraphGetNodes(graph, nullptr, &after), "nodes");
    require(before == after, note("%zu nodes before, %zu after: %s", before, after, refused.error().message.c_str()));
    if (fault != Fault::CloneGraph) { // that one comes before any memory is given
      cudaGraphExec_t exec = nullptr;
      cuda(cudaGraphInstantiate(&exec, graph, 0), "instantiating the graph as it was");
      cuda(cudaGraphLaunch(exec, net.stream()), "launching the graph as it was");
      cuda(cudaStreamSynchronize(net.stream()), "running the graph as it was");
      cuda(cudaGraphExecDestroy(exec), "destroy");
      requireEqual(net.state(), expected, "as it was");
    }
    take(net.adopt(graph), "second try");
    net.replay(1);
    requireEqual(net.state(), fault == Fault::CloneGraph ? expected : expectedTwice, "second try");
    net.dropStep();
    cudaGraphDestroy(graph);
  }
  return "";
}

std::string measures() {
  const Shape shape;
  const std::unique_ptr<Net> net = open({.unlimited = true}, shape);
  take(net->capture({.leaveAsCaptured = true}), "capture");
  const std::vector<Word> before = net->state();
  const pumpgraph_measurement measured = take(net->step().measure(5), "measure");
  requireEqual(net->state(), before, "after measuring");
  require(measured.timed_nodes == static_cast<std::uint64_t>(3 * shape.layers + 1),
          note("%llu nodes timed", (unsigned long long)measured.timed_nodes));
  const double ms = net->replay(20);
  require(measured.step_us > 0 && measured.step_us < 2e3 * ms, "the measured step is not what a replay takes");

  // Planned, with frames that are used again, it can be timed as well: nothing is moved.
  const std::unique_ptr<Net> planned = open({.budget = peakBytes(shape)}, shape);
  take(planned->capture(), "capture");
  const std::vector<Word> start = planned->state();
  const pumpgraph_measurement again = take(planned->step().measure(5), "measuring a planned step");
  requireEqual(planned->state(), start, "after measuring a planned step");
  require(again.timed_nodes == measured.timed_nodes, "other nodes were timed");
  return note("step %.2f ms, measured %.2f ms, planned %.2f ms", ms, measured.step_us / 1e3, again.step_us / 1e3);
}

std::string plansOf(const nlohmann::json &report) {
  std::string text;
  for (const nlohmann::json &plan : report.at("runtime").at("plans"))
    text += note("; %s: predicted %.3f ms, measured %.3f", plan.at("costs").get<std::string>().c_str(),
                 plan.at("predicted_s").get<double>() * 1e3,
                 plan.at("measured_s").is_null() ? 0.0 : plan.at("measured_s").get<double>() * 1e3);
  return text;
}

/// A second plan with node times measured on the rewritten step: it predicts better, and changes no contents.
std::string replans() {
  std::string notes;
  for (const Shape &shape : {Shape{}, Shape{.branches = true}, Shape{.programmatic = true, .otherNodes = true}}) {
    const std::vector<Word> expected = expectedState(shape, 3);
    const std::unique_ptr<Net> net = open({.budget = shareOf(peakBytes(shape), 0.4)}, shape);
    take(net->capture({.keepFirstPlan = true}), "capture");
    net->replay(1);
    const double start = nowMs();
    const pumpgraph_replanning result = take(net->step().replan(), "replan");
    notes += note("%sin %.0f ms%s", notes.empty() ? "" : "; ", nowMs() - start, plansOf(net->report()).c_str());
    require(result.timed_nodes >= static_cast<std::uint64_t>(3 * shape.layers + 1), "not every node was timed");
    require(result.measured_us > 0 && result.measured_before_us > 0, "nothing was measured");
    net->replay(2);
    requireEqual(net->state(), expected, "after planning again");
    const pumpgraph_validation validation = take(net->step().validate(), "validate");
    require(validation.unstable_buffers == 0, "unstable");
    const double missed = std::abs(result.predicted_us - result.measured_us) / result.measured_us;
    require(missed < 0.1, note("the second plan predicts %.3f ms, measured are %.3f", result.predicted_us / 1e3,
                               result.measured_us / 1e3));
  }
  return notes;
}

/// Node times that are far off make the first plan's prediction miss. The replays that follow measure what nodes take:
/// four more where the plan moves nothing, else eight; the one after them plans again.
std::string replansByItself() {
  const Shape shape;
  const std::vector<Word> expected = expectedState(shape, 16);
  const std::uint64_t budget = shareOf(peakBytes(shape), 0.9);
  std::string costs;
  {
    const std::unique_ptr<Net> net = open({.unlimited = true}, shape);
    take(net->capture({.leaveAsCaptured = true}), "capture");
    take(net->step().measure(2), "measure");
    const std::string path = std::filesystem::temp_directory_path() / "pumpgraph-smoke-costs.mlir";
    take(net->step().save(path), "save");
    std::ifstream file(path);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    // Some microseconds become many thousand.
    costs = std::regex_replace(text, std::regex("cost\\("), "cost(99");
    require(costs != text, "the saved step has no costs");
  }
  const std::unique_ptr<Net> net = open({.budget = budget, .planning = Planning::InReplay}, shape);
  take(net->capture({.costsIr = costs}), "capture");
  net->replay(4);
  require(net->report()["runtime"]["plans"].size() == 1, "planned again too early");
  net->replay(9);
  const nlohmann::json report = net->report();
  require(report["runtime"]["plans"].size() >= 2, "not planned again: " + report["runtime"].dump());
  net->replay(3);
  requireEqual(net->state(), expected, "after planning again");
  return plansOf(report);
}

/// What kernels of the step store in a table, read through it later, and overwrite in the end. Without calibration the
/// planner gives the frames of the rows away, and validation says so; with it they stay.
std::string calibrates() {
  constexpr int rows = 4;
  constexpr std::size_t count = 8_MiB / sizeof(Word), fillers = 3;
  std::string notes;
  for (const bool calibrate : {false, true}) {
    // The largest filler and the rows fit into the larger budget only.
    const std::uint64_t budget = calibrate ? 96_MiB : 64_MiB;
    Session session = take(Session::create({.budget = budget, .compilerLibrary = compilerLibrary()}), "session");
    const Buffer<Word> input = take(session.allocate<Word>(count, {.name = "input"}), "input");
    const Buffer<Word> result = take(session.allocate<Word>(count, {.name = "result"}), "result");
    std::vector<Word> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<Word>(i * 2654435761u);
    cuda(cudaMemcpy(input.data(), values.data(), input.sizeBytes(), cudaMemcpyDefault), "input");
    cuda(cudaMemset(result.data(), 0, result.sizeBytes()), "result");
    const auto record = [&](cudaStream_t stream) -> Status {
      Expected<Buffer<Word *>> table = session.allocate<Word *>(2_MiB / sizeof(Word *), {.name = "table"});
      Expected<Buffer<Word>> hidden = session.allocate<Word>(rows * count, {.name = "hidden"});
      if (!table || !hidden)
        return table ? hidden.error() : table.error();
      for (int row = 0; row < rows; ++row)
        forward(stream, input.data(), input.data(), hidden->data() + row * count, count, count);
      storeAddresses(stream, table->data(),
                     reinterpret_cast<char *>(hidden->data()) - reinterpret_cast<char *>(table->data()),
                     count * sizeof(Word), rows);
      for (std::size_t i = 0; i < fillers; ++i) {
        Expected<Buffer<Word>> filler = session.allocate<Word>(5 * count, {.name = "filler"});
        if (!filler)
          return filler.error();
        cudaMemsetAsync(filler->data(), 0xee, filler->sizeBytes(), stream);
      }
      sumTable(stream, table->data(), rows, result.data(), count);
      cudaMemsetAsync(table->data(), 0, table->sizeBytes(), stream);
      return {};
    };
    const double start = nowMs();
    Step step = take(session.capture(record, {.calibrate = calibrate}), "capture");
    const double ms = nowMs() - start;
    const Expected<pumpgraph_validation> validation = step.validate();
    const std::string said = nlohmann::json::parse(take(step.report(), "report"))["runtime"]["notes"].dump();
    if (!calibrate) {
      require(!validation && validation.error().code == PUMPGRAPH_MISMATCH, "validation saw nothing: " + said);
      notes += note("captured in %.0f ms; ", ms);
      continue;
    }
    require(said.find("\\\"table\\\" holds") != std::string::npos, "the table was not found: " + said);
    take(Expected<pumpgraph_validation>(validation), "validate");
    take(step.replay(nullptr), "replay");
    std::vector<Word> sums(count);
    cuda(cudaMemcpy(sums.data(), result.data(), result.sizeBytes(), cudaMemcpyDefault), "result");
    for (std::size_t i = 0; i < count; ++i)
      require(sums[i] == rows * (values[i] * 4), note("word %zu is wrong", i));
    notes += note("calibrated in %.0f ms: %s", ms, said.c_str());
  }
  return notes;
}

/// Beyond the budget buffers are host memory: slow, and right.
std::string hostBacked() {
  const Shape shape{.layers = 4, .activationBytes = 16_MiB, .weightBytes = 4_MiB, .otherNodes = true};
  const std::vector<Word> expected = expectedState(shape, 2);
  const std::unique_ptr<Net> net = open({.budget = 2_MiB}, shape);
  take(net->capture({.leaveAsCaptured = true}), "capture");
  const double ms = net->replay(2);
  requireEqual(net->state(), expected, "host-backed");
  return note("%.2f ms a step", ms);
}

/// Allocating and freeing the same sizes again is quick: the mapping is kept.
std::string eagerAllocations() {
  Session session = take(Session::create({.budget = 1_GiB}), "session");
  double start = nowMs();
  {
    const Buffer<Word> first = take(session.allocate<Word>(32_MiB / sizeof(Word)), "allocate");
  }
  const double firstMs = nowMs() - start;
  start = nowMs();
  constexpr int times = 1000;
  for (int i = 0; i < times; ++i)
    const Buffer<Word> again = take(session.allocate<Word>(32_MiB / sizeof(Word)), "allocate");
  const double againUs = (nowMs() - start) * 1e3 / times;
  require(againUs < 20, note("%.1f us for an allocation and its free", againUs));
  return note("first 32 MiB %.2f ms, again %.2f us", firstMs, againUs);
}

// ---- managed memory: at most 4,000 MiB in a process, each case in one of its own
// ----------------------------------------

constexpr std::uint64_t managedBytes = 2_GiB;
/// The most that a process here may have.
constexpr std::uint64_t mostManagedBytes = 4000_MiB;

SessionOptions onManaged(std::uint64_t budget, std::uint64_t arenaBytes = managedBytes) {
  return {.budget = budget, .backend = Backend::Managed, .managedBytes = arenaBytes, .managedLimit = arenaBytes};
}

/// About 0.7 GiB in each capture.
Shape managedShape() {
  Shape shape;
  shape.activationBytes = 24_MiB;
  shape.weightBytes = 8_MiB;
  return shape;
}

/// Of buffers four times as large, half as many layers.
Shape largeManagedShape() {
  Shape shape;
  shape.layers = 6;
  shape.activationBytes = 96_MiB;
  shape.weightBytes = 32_MiB;
  return shape;
}

std::string agentText(const nlohmann::json &report) {
  const nlohmann::json &agent = report["runtime"]["agent"];
  return note("%d operations, %.0f MiB up, %.0f MiB down, %d discards, %d dropped, %d released, %d failed",
              agent.at("operations").get<int>(), agent.at("up_bytes").get<double>() / 1_MiB,
              agent.at("down_bytes").get<double>() / 1_MiB, agent.at("discards").get<int>(),
              agent.at("dropped").get<int>(), agent.at("released").get<int>(), agent.at("failed").get<int>());
}

/// What the backend rests on and nobody has measured: how long the driver takes, and what it gives back.
std::string managedFacts() {
  constexpr std::size_t bytes = 512_MiB;
  char *memory = nullptr;
  cuda(cudaMallocManaged(reinterpret_cast<void **>(&memory), bytes), "cudaMallocManaged");
  cudaStream_t stream = nullptr;
  cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  const cudaMemLocation device{cudaMemLocationTypeDevice, 0}, host{cudaMemLocationTypeHost, 0};
  const auto timed = [&](const auto &work) {
    cuda(cudaStreamSynchronize(stream), "before a measurement");
    const double start = nowMs();
    work();
    cuda(cudaStreamSynchronize(stream), "a measurement");
    return nowMs() - start;
  };
  const auto move = [&](const cudaMemLocation &where) {
    return timed([&] { cuda(cudaMemPrefetchAsync(memory, bytes, where, 0, stream), "prefetch"); });
  };
  const auto write = [&] { return timed([&] { cuda(cudaMemsetAsync(memory, 1, bytes, stream), "fill"); }); };
  const auto discard = [&] {
    void *pieces[1] = {memory};
    std::size_t sizes[1] = {bytes};
    return timed([&] { cuda(cudaMemDiscardBatchAsync(pieces, sizes, 1, 0, stream), "discard"); });
  };
  std::string notes;
  const auto tell = [&](const char *what, double ms) {
    notes += note("%s%s %.2f ms (%.1f GB/s)", notes.empty() ? "" : "; ", what, ms, bytes / ms * 1e-6);
  };
  write();
  const std::uint64_t full = freeDeviceBytes();
  tell("down", move(host));
  tell("up", move(device));
  tell("down again", move(host));
  const std::uint64_t empty = freeDeviceBytes();
  tell("up again", move(device));
  tell("discard", discard());
  const std::uint64_t discarded = freeDeviceBytes();
  tell("write after a discard", write());
  discard();
  tell("down after a discard", move(host));
  const std::uint64_t gone = freeDeviceBytes();
  tell("up after that", move(device));
  write();
  move(host);
  tell("write by faults", write());
  cuda(cudaMemAdvise(memory, bytes, cudaMemAdviseSetReadMostly, device), "read mostly");
  move(host);
  tell("read mostly: up", move(device));
  tell("read mostly: down", move(host));
  notes += note("; free memory: an eviction gives back %lld MiB, a discard %lld, a discard and an eviction %lld",
                static_cast<long long>(empty - full) >> 20, static_cast<long long>(discarded - full) >> 20,
                static_cast<long long>(gone - full) >> 20);
  cuda(cudaFree(memory), "free");
  return notes;
}

/// A buffer that is touched thinly, and one that is read as a whole, in each step: brought to the device and sent back,
/// as a plan does that moves them, or hosted with the advice there is for that. The first step and the median of
/// others.
std::string managedAccessedBy() {
  constexpr std::size_t bytes = 256_MiB, words = bytes / sizeof(Word), thinly = (std::size_t{64} << 10) / sizeof(Word);
  const cudaMemLocation device{cudaMemLocationTypeDevice, 0}, host{cudaMemLocationTypeHost, 0};
  cudaStream_t stream = nullptr;
  cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  Word *loss = nullptr;
  cuda(cudaMalloc(reinterpret_cast<void **>(&loss), sizeof(Word)), "loss");
  cuda(cudaMemset(loss, 0, sizeof(Word)), "loss");
  std::string notes;
  const auto measure = [&](const char *name, const std::vector<cudaMemoryAdvise> &advice, bool moves, bool whole) {
    Word *memory = nullptr;
    cuda(cudaMallocManaged(reinterpret_cast<void **>(&memory), bytes), "cudaMallocManaged");
    cuda(cudaMemPrefetchAsync(memory, bytes, device, 0, stream), "prefetch");
    cuda(cudaMemsetAsync(memory, 0, bytes, stream), "fill");
    cuda(cudaMemPrefetchAsync(memory, bytes, host, 0, stream), "prefetch");
    for (const cudaMemoryAdvise each : advice)
      cuda(cudaMemAdvise(memory, bytes, each, each == cudaMemAdviseSetAccessedBy ? device : host), "advice");
    std::vector<double> ms;
    for (int run = 0; run < 6; ++run) {
      cuda(cudaStreamSynchronize(stream), "before a step");
      const double start = nowMs();
      if (moves)
        cuda(cudaMemPrefetchAsync(memory, bytes, device, 0, stream), "prefetch");
      if (whole)
        addLoss(stream, memory, words, loss);
      else
        touchThinly(stream, memory, words, thinly);
      if (moves)
        cuda(cudaMemPrefetchAsync(memory, bytes, host, 0, stream), "prefetch");
      cuda(cudaStreamSynchronize(stream), "a step");
      ms.push_back(nowMs() - start);
    }
    std::sort(ms.begin() + 1, ms.end());
    notes += note("%s%s %s %.2f, then %.2f ms", notes.empty() ? "" : "; ", whole ? "all of it" : "thinly", name, ms[0],
                  ms[3]);
    cuda(cudaFree(memory), "free");
  };
  for (const bool whole : {false, true}) {
    measure("migrated", {}, true, whole);
    measure("prefer_host", {cudaMemAdviseSetPreferredLocation}, false, whole);
    measure("prefer_host and accessed_by", {cudaMemAdviseSetPreferredLocation, cudaMemAdviseSetAccessedBy}, false,
            whole);
  }
  return notes;
}

/// The same results at 100, 60 and 40 % of the peak as with memory for everything; discards are poisoned by the
/// driver's own zeroes or garbage.
std::string managedBudgets() {
  const Shape shape = managedShape();
  const std::vector<Word> expected = expectedState(shape, 4);
  const std::uint64_t peak = peakBytes(shape);
  std::string notes = note("peak %llu MiB", static_cast<unsigned long long>(peak >> 20));
  for (const bool calibrate : {false, true})
    for (const double share : {1.0, 0.6, 0.4}) {
      const std::unique_ptr<Net> net = open(onManaged(shareOf(peak, share)), shape);
      const std::string which = note("at %.0f %%%s", share * 100, calibrate ? ", calibrated" : "");
      take(net->capture({.calibrate = calibrate, .hosting = Hosting::NoRoom}), which.c_str());
      net->replay(4);
      requireEqual(net->state(), expected, which);
      const double ms = net->replay(10);
      const nlohmann::json report = net->report();
      require(report["runtime"]["backend"] == "managed", which + " not rewritten: " + report["runtime"].dump());
      notes += note("; %s: %.2f ms, plan bound %.2f, predicted %.2f (%s)", which.c_str(), ms,
                    report.at("plan_bound_s").get<double>() * 1e3, report.at("predicted_s").get<double>() * 1e3,
                    agentText(report).c_str());
    }
  return notes;
}

/// What the replays of a step on managed memory took, milliseconds each, what they left behind, and its report.
struct ManagedRun {
  std::vector<double> stepMs;
  std::string state;
  nlohmann::json report;

  double medianMs() const {
    std::vector<double> sorted = stepMs;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

/// Replays follow one another in batches, as in training: `replay` returns milliseconds each.
template <typename Replay> std::vector<double> timedBatches(const Replay &replay) {
  constexpr int batches = 5, batch = 5;
  replay(3);
  std::vector<double> stepMs;
  for (int i = 0; i < batches; ++i)
    stepMs.push_back(replay(batch));
  return stepMs;
}

/// Equal for equal words.
std::string digestOf(const std::vector<Word> &words) {
  std::uint64_t hash = 0xcbf29ce484222325; // FNV-1a
  for (const Word word : words)
    hash = (hash ^ word) * 0x100000001b3;
  return note("%016llx", static_cast<unsigned long long>(hash));
}

ManagedRun runTraining(const SessionOptions &options, const Shape &shape, const AdoptOptions &adoption) {
  const std::unique_ptr<Net> net = open(options, shape);
  take(net->capture(adoption), "capture");
  std::vector<double> stepMs = timedBatches([&](int times) { return net->replay(times); });
  return {std::move(stepMs), digestOf(net->state()), net->report()};
}

/// Weights that are only read, one after another.
struct Stream {
  int layers = 16;
  std::size_t weightBytes = 64_MiB;
};

ManagedRun runStreaming(SessionOptions options, const Stream &shape, const AdoptOptions &adoption) {
  const std::size_t words = shape.weightBytes / sizeof(Word);
  options.compilerLibrary = compilerLibrary();
  Session session = take(Session::create(options), "session");
  cudaStream_t stream = nullptr;
  cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  Buffer<Word> loss = take(session.allocate<Word>(1, {.name = "loss"}), "loss");
  cuda(cudaMemset(loss.data(), 0, sizeof(Word)), "loss");
  std::vector<Buffer<Word>> weights;
  for (int layer = 0; layer < shape.layers; ++layer) {
    weights.push_back(take(session.allocate<Word>(words, {.privacy = Privacy::Private, .name = "weight"}), "weight"));
    cuda(cudaMemset(weights.back().data(), layer, weights.back().sizeBytes()), "weight");
  }
  const auto record = [&](pumpgraph_stream recording) -> Status {
    for (const Buffer<Word> &weight : weights)
      addLoss(recording, weight.data(), words, loss.data());
    return {};
  };
  Step step = take(session.capture(record, adoption), "capture");
  const auto replay = [&](int times) {
    cuda(cudaDeviceSynchronize(), "before replays");
    const double start = nowMs();
    for (int i = 0; i < times; ++i)
      take(step.replay(stream), "replay");
    cuda(cudaStreamSynchronize(stream), "replays");
    return (nowMs() - start) / times;
  };
  std::vector<double> stepMs = timedBatches(replay);
  std::vector<Word> result(1);
  cuda(cudaMemcpy(result.data(), loss.data(), sizeof(Word), cudaMemcpyDefault), "reading the loss");
  return {std::move(stepMs), digestOf(result), nlohmann::json::parse(take(step.report(), "report"))};
}

/// Three ways to bring back the pages of one plan, and the plan of a step whose nodes were timed with operands in host
/// memory.
struct ManagedWay {
  const char *name;
  Prefetching prefetching;
  Hosting hosting;
};
constexpr ManagedWay managedWays[] = {{"faults", Prefetching::None, Hosting::NoRoom},
                                      {"launch", Prefetching::AtLaunch, Hosting::NoRoom},
                                      {"ahead", Prefetching::Ahead, Hosting::NoRoom},
                                      {"hosted", Prefetching::Ahead, Hosting::Measured}};

/// The step in all of these ways. Returns a row of the table.
template <typename Run> std::string compareRow(const Run &run) {
  std::string row, state;
  for (const auto &[name, prefetching, hosting] : managedWays) {
    const ManagedRun result = run(AdoptOptions{.calibrate = true, .prefetching = prefetching, .hosting = hosting});
    require(state.empty() || result.state == state, std::string(name) + ": another result");
    state = result.state;
    row += note("%s%s %.2f ms", row.empty() ? "" : ", ", name, result.medianMs());
    if (prefetching == Prefetching::Ahead)
      row += note(", bound %.2f, predicted %.2f (%s)", result.report.at("plan_bound_s").get<double>() * 1e3,
                  result.report.at("predicted_s").get<double>() * 1e3, agentText(result.report).c_str());
  }
  return row;
}

std::string managedCompareTraining() {
  const SessionOptions options = onManaged(shareOf(peakBytes(managedShape()), 0.5));
  return compareRow([&](const AdoptOptions &adoption) { return runTraining(options, managedShape(), adoption); });
}

std::string managedCompareStreaming() {
  return compareRow([](const AdoptOptions &adoption) { return runStreaming(onManaged(256_MiB), {}, adoption); });
}

/// "streaming", "training-60" and "unknown-40" (accesses), with the percentage of the peak; "large-" before any of
/// them.
struct ManagedRow {
  enum class Kind : std::uint8_t { Streaming, Training, Unknown };
  Kind kind = Kind::Streaming;
  bool isLarge = false;
  int percent = 0;

  static std::optional<ManagedRow> named(std::string name) {
    ManagedRow row;
    if (const std::string large = "large-"; name.starts_with(large)) {
      row.isLarge = true;
      name.erase(0, large.size());
    }
    if (name == "streaming")
      return row;
    const std::size_t dash = name.find('-');
    const std::string kind = name.substr(0, dash);
    row.percent = dash == std::string::npos ? 0 : std::atoi(name.c_str() + dash + 1);
    row.kind = kind == "unknown" ? Kind::Unknown : Kind::Training;
    if ((kind != "training" && kind != "unknown") || row.percent <= 0 || row.percent > 100)
      return std::nullopt;
    return row;
  }

  Shape shape() const { return isLarge ? largeManagedShape() : managedShape(); }
  Stream stream() const { return isLarge ? Stream{8, 256_MiB} : Stream{}; }
  std::uint64_t arenaBytes() const { return isLarge ? mostManagedBytes : managedBytes; }
  std::uint64_t budget() const {
    return kind == Kind::Streaming ? 4 * stream().weightBytes : shareOf(peakBytes(shape()), percent / 100.0);
  }
  ManagedRun run(const SessionOptions &options, const AdoptOptions &adoption) const {
    return kind == Kind::Streaming ? runStreaming(options, stream(), adoption)
                                   : runTraining(options, shape(), adoption);
  }
};

/// One cell of the table of pump-graph-bench --managed, in one of the ways, or as captured with room for everything.
/// Prints one line of JSON.
int runManagedRow(const std::string &step, const std::string &way) {
  const auto known =
      std::find_if(std::begin(managedWays), std::end(managedWays), [&](const auto &one) { return one.name == way; });
  const bool isCaptured = way == "captured";
  const std::optional<ManagedRow> row = ManagedRow::named(step);
  if (!row || (!isCaptured && known == std::end(managedWays))) {
    std::fprintf(stderr, "no row \"%s\", or no way \"%s\"\n", step.c_str(), way.c_str());
    return 2;
  }
  try {
    AdoptOptions adoption{.leaveAsCaptured = isCaptured, .calibrate = row->kind != ManagedRow::Kind::Unknown};
    if (!isCaptured) {
      adoption.prefetching = known->prefetching;
      adoption.hosting = known->hosting;
    }
    const SessionOptions options =
        isCaptured ? SessionOptions{.unlimited = true} : onManaged(row->budget(), row->arenaBytes());
    const ManagedRun run = row->run(options, adoption);
    nlohmann::json line = {{"step_ms", run.stepMs}, {"state", run.state}};
    if (!isCaptured) {
      const nlohmann::json &runtime = run.report.at("runtime");
      require(runtime.at("backend") == "managed", "not rewritten: " + runtime.dump());
      line["budget_bytes"] = options.budget;
      line["arena_bytes"] = options.managedBytes;
      for (const char *figure : {"plan_bound_s", "moving_bound_s", "hosted_bytes"})
        line[figure] = run.report.at(figure);
      line["predicted_s"] = run.report.at("predicted_s");
      line["link"] = runtime.at("link");
      line["agent"] = runtime.at("agent");
      line["plans"] = runtime.at("plans");
    }
    std::printf("%s\n", line.dump().c_str());
    return 0;
  } catch (const Failure &failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}

/// Pointers in device memory: right here, and in the notes of the virtual backend.
std::string managedPointers() {
  Shape shape = managedShape();
  shape.table = true;
  const std::vector<Word> expected = expectedState(shape, 3);
  const std::unique_ptr<Net> net = open(onManaged(shareOf(peakBytes(shape), 0.6)), shape);
  take(net->capture(), "capture");
  net->replay(3);
  requireEqual(net->state(), expected, "at 60 %");
  return agentText(net->report());
}

/// Adds a node that nobody can see into. Its body touches a weight that the rest of the step does not know it touches:
/// it adds 0.
void addConditional(cudaGraph_t graph, Net &net, const Shape &shape) {
  cudaGraphConditionalHandle handle{};
  cuda(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault), "conditional handle");
  cudaGraphNodeParams parameters{};
  parameters.type = cudaGraphNodeTypeConditional;
  parameters.conditional.handle = handle;
  parameters.conditional.type = cudaGraphCondTypeIf;
  parameters.conditional.size = 1;
  cudaGraphNode_t node = nullptr;
  cuda(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &parameters), "conditional node");
  cudaStream_t stream = nullptr;
  cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  cuda(cudaStreamBeginCaptureToGraph(stream, parameters.conditional.phGraph_out[0], nullptr, nullptr, 0,
                                     cudaStreamCaptureModeThreadLocal),
       "capture of the body");
  update(stream, net.weights()[0].data(), net.weights()[0].data(), 0, shape.weights());
  cudaGraph_t body = nullptr;
  cuda(cudaStreamEndCapture(stream, &body), "end of the body");
}

/// A conditional node: left as captured on virtual memory, with the reason, and rewritten here.
std::string managedConditional() {
  const Shape shape = managedShape();
  const std::uint64_t budget = shareOf(peakBytes(shape), 0.6);
  std::vector<std::vector<Word>> states;
  std::string notes;
  for (const bool managed : {false, true}) {
    const std::unique_ptr<Net> net = open(managed ? onManaged(budget) : SessionOptions{.unlimited = true}, shape);
    cudaGraph_t graph = net->captureGraph();
    addConditional(graph, *net, shape);
    take(net->adopt(graph), "adopt");
    net->replay(3);
    states.push_back(net->state());
    const nlohmann::json runtime = net->report()["runtime"];
    require(runtime["backend"] == (managed ? "managed" : "as captured"), runtime.dump());
    notes += managed ? agentText(net->report()) : runtime["left_as_captured"].get<std::string>() + "; ";
  }
  requireEqual(states[1], states[0], "managed");
  return notes;
}

/// The same in a session that chooses: it begins on virtual memory, and moves to managed memory at the same addresses
/// when the step comes, if there is a rehearsal. The graph has copies and fills of either kind.
std::string managedAutomatic() {
  std::string notes;
  for (const bool branches : {false, true}) {
    Shape shape = managedShape();
    shape.otherNodes = true;
    shape.branches = branches;
    const std::uint64_t budget = shareOf(peakBytes(shape), 0.6);
    std::vector<Word> expected;
    for (const Backend backend : {Backend::Virtual, Backend::Managed, Backend::Automatic})
      for (const bool rehearses : {false, true}) {
        SessionOptions options = onManaged(budget);
        options.backend = backend;
        const std::unique_ptr<Net> net = open(options, shape);
        const Word *weight = net->weights()[0].data();
        cudaGraph_t graph = net->captureGraph();
        addConditional(graph, *net, shape);
        if (rehearses) {
          take(net->session().rehearse(graph), "rehearse");
          cuda(cudaGraphDestroy(graph), "rehearsal");
          graph = net->captureGraph();
          addConditional(graph, *net, shape);
        }
        take(net->adopt(graph), "adopt");
        net->replay(3);
        const std::vector<Word> state = net->state();
        expected.empty() ? void(expected = state) : requireEqual(state, expected, "another backend");
        const nlohmann::json runtime = net->report()["runtime"];
        // The body of the conditional node is captured, so what it is captured on has to be known before.
        const bool isManaged = backend == Backend::Managed || (backend == Backend::Automatic && rehearses);
        require(runtime["backend"] == (isManaged ? "managed" : "as captured"), runtime.dump());
        require(net->weights()[0].data() == weight, "a weight has another address");
        const double ms = net->replay(5);
        notes += note("%s%s%s %.1f ms", notes.empty() ? "" : ", ", branches ? "branches " : "",
                      backend == Backend::Virtual   ? "as captured"
                      : backend == Backend::Managed ? "managed"
                                                    : "automatic",
                      ms);
        notes += rehearses ? " rehearsed" : "";
        if (!isManaged)
          continue;
        const nlohmann::json agent = net->report()["runtime"]["agent"];
        require(agent.at("dropped") == 0 && agent.at("released") == 0 && agent.at("failed") == 0, agent.dump());
        notes += note(" (%d streams changed)", agent.at("stream_changes").get<int>());
      }
  }
  return notes;
}

/// In such a session steps of both kinds take turns. The graphs were instantiated once, by the caller; they hold copies
/// and fills, which the driver takes for those of the memory that was there then.
std::string managedTurns() {
  Shape shape = managedShape();
  shape.otherNodes = true;
  const std::vector<std::size_t> order = {1, 0, 0, 1, 1, 0, 1, 0};
  SessionOptions options = onManaged(shareOf(peakBytes(shape), 0.6));
  options.backend = Backend::Automatic;
  std::string notes;
  for (const bool unseenFirst : {true, false}) {
    const std::unique_ptr<Net> net = open(options, shape);
    std::vector<Step> steps;
    std::vector<cudaGraphExec_t> execs;
    for (const bool isUnseen : {unseenFirst, !unseenFirst}) {
      const auto capture = [&] {
        cudaGraph_t graph = net->captureGraph();
        if (isUnseen)
          addConditional(graph, *net, shape);
        return graph;
      };
      cudaGraph_t rehearsal = capture();
      take(net->session().rehearse(rehearsal), "rehearse");
      cuda(cudaGraphDestroy(rehearsal), "rehearsal");
      cudaGraph_t graph = capture();
      steps.push_back(take(net->session().adopt(graph), "adopt"));
      const nlohmann::json runtime = nlohmann::json::parse(take(steps.back().report(), "report"))["runtime"];
      require(runtime["backend"] == (isUnseen ? "managed" : "virtual"), runtime.dump());
      cuda(cudaGraphInstantiate(&execs.emplace_back(), graph, 0), "instantiate");
    }
    const auto replay = [&](std::size_t which) {
      take(steps[which].putInForce(), "put in force");
      cuda(cudaGraphLaunch(execs[which], net->stream()), "launch");
      cuda(cudaStreamSynchronize(net->stream()), "replay");
    };
    int replayed = 0;
    for (const std::size_t which : order) {
      replay(which);
      ++replayed;
      requireEqual(net->state(), expectedState(shape, replayed), note("after %d replays", replayed));
    }
    double exchanges = 0, exchangeMs = 0;
    for (Step &step : steps) {
      const nlohmann::json runtime = nlohmann::json::parse(take(step.report(), "report"))["runtime"];
      exchanges += runtime.at("exchanges").get<double>();
      exchangeMs += runtime.at("exchange_ms").get<double>();
      if (runtime.contains("agent"))
        require(runtime["agent"].at("dropped") == 0 && runtime["agent"].at("failed") == 0, runtime.dump());
      if (runtime["backend"] == "virtual") // the driver copies no graph with a conditional node
        take(step.validate(), "validate");
    }
    notes += note("%s%.0f exchanges of %.0f ms", notes.empty() ? "" : ", ", exchanges, exchangeMs / exchanges);
    for (cudaGraphExec_t exec : execs)
      cuda(cudaGraphExecDestroy(exec), "exec");
  }
  return notes;
}

/// Many replays of a small step at full rate, on two streams in turns and after pauses of random length: no hang,
/// nothing dropped, the right result.
std::string managedReplays() {
  Shape shape;
  shape.layers = 3;
  shape.activationBytes = 2_MiB;
  shape.weightBytes = 2_MiB;
  constexpr int replays = 10000;
  std::mt19937 random(1);
  const std::vector<Word> expected = expectedState(shape, replays);
  const std::unique_ptr<Net> net = open(onManaged(shareOf(peakBytes(shape), 0.6)), shape);
  take(net->capture({.calibrate = true, .hosting = Hosting::NoRoom}), "capture"); // it is the agent that is tried
  cudaStream_t other = nullptr;
  cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "stream");
  const std::uint64_t before = freeDeviceBytes();
  const double start = nowMs();
  for (int i = 0; i < replays; ++i) {
    take(net->step().replay(i % 2 == 0 ? net->stream() : other), "replay");
    if (i % 2000 == 1999)
      std::fprintf(stderr, "%d replays in %.1f s: %s\n", i + 1, (nowMs() - start) / 1e3,
                   agentText(net->report()).c_str());
    if (random() % 8 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
  }
  requireEqual(net->state(), expected, "after many replays");
  const double ms = (nowMs() - start) / replays;
  const nlohmann::json agent = net->report()["runtime"]["agent"];
  require(agent.at("dropped") == 0 && agent.at("released") == 0 && agent.at("failed") == 0, agent.dump());
  return note("%.3f ms each; %lld MiB of device memory more; %s", ms,
              (static_cast<long long>(before) - static_cast<long long>(freeDeviceBytes())) >> 20,
              agentText(net->report()).c_str());
}

/// More than the guard allows is refused before the driver is asked.
std::string managedGuard() {
  SessionOptions options = onManaged(256_MiB);
  options.managedBytes = managedBytes + 2_MiB;
  options.compilerLibrary = compilerLibrary();
  const Expected<Session> refused = Session::create(options);
  require(!refused, "an arena beyond the limit");
  return refused.error().message;
}

using Cases = std::map<std::string, std::string (*)()>;

/// Only by name: whatever hangs or breaks here does so alone.
const Cases managedCases = {
    {"managed_facts", managedFacts},
    {"managed_accessed_by", managedAccessedBy},
    {"managed_budgets", managedBudgets},
    {"managed_compare_training", managedCompareTraining},
    {"managed_compare_streaming", managedCompareStreaming},
    {"managed_pointers", managedPointers},
    {"managed_conditional", managedConditional},
    {"managed_automatic", managedAutomatic},
    {"managed_turns", managedTurns},
    {"managed_replays", managedReplays},
    {"managed_guard", managedGuard},
};

const Cases cases = {
    {"budgets", budgets},
    {"two_streams", twoStreams},
    {"two_steps", twoSteps},
    {"two_steps_share_a_boundary", twoStepsShareABoundary},
    {"other_nodes", otherNodes},
    {"fills_in_branches", fillsInBranches},
    {"programmatic_edges", programmaticEdges},
    {"pointer_table", pointerTable},
    {"child_graph", childGraph},
    {"hard_budget_no_growth", hardBudgetNoGrowth},
    {"validates", validates},
    {"continuations", continuations},
    {"validation_catches_sabotage", validationCatchesSabotage},
    {"mapping", mapping},
    {"operands_in_host_memory", operandsInHostMemory},
    {"atomics_in_host_memory", atomicsInHostMemory},
    {"fills_in_host_memory", fillsInHostMemory},
    {"copies_need_frames", copiesNeedFrames},
    {"budget_below_what_stays", budgetBelowWhatStays},
    {"host_limit_too_small", hostLimitTooSmall},
    {"failures_leave_the_graph_usable", failuresLeaveTheGraphUsable},
    {"measures", measures},
    {"replans", replans},
    {"replans_by_itself", replansByItself},
    {"calibrates", calibrates},
    {"host_backed", hostBacked},
    {"eager_allocations", eagerAllocations},
};

int run(const std::string &only) {
  int failed = 0, passed = 0;
  Cases chosen = cases;
  if (!only.empty()) {
    chosen.insert(managedCases.begin(), managedCases.end());
    std::erase_if(chosen, [&](const auto &one) { return one.first != only; });
  }
  for (const auto &[name, test] : chosen) {
    const double start = nowMs();
    try {
      const std::string notes = test();
      std::printf("ok     %s (%.1f s) %s\n", name.c_str(), (nowMs() - start) / 1e3, notes.c_str());
      ++passed;
    } catch (const Failure &failure) {
      std::printf("FAILED %s (%.1f s): %s\n", name.c_str(), (nowMs() - start) / 1e3, failure.what());
      ++failed;
    }
    std::fflush(stdout);
    // A broken context fails every case after it; say so once.
    if (const cudaError_t sticky = cudaDeviceSynchronize(); sticky != cudaSuccess) {
      std::printf("FAILED the device is lost: %s\n", cudaGetErrorName(sticky));
      return 1;
    }
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}

} // namespace
} // namespace pumpgraph::smoke

int main(int argc, char **argv) {
  using namespace pumpgraph::smoke;
  const bool lists = argc == 2 && std::strcmp(argv[1], "--list") == 0;
  if (lists || (argc == 2 && std::strcmp(argv[1], "--list-managed") == 0)) {
    for (const auto &[name, test] : lists ? cases : managedCases)
      std::printf("%s\n", name.c_str());
    return 0;
  }
  if (argc == 3 && std::strcmp(argv[1], "--only") == 0)
    return run(argv[2]);
  if (argc == 4 && std::strcmp(argv[1], "--managed-row") == 0)
    return runManagedRow(argv[2], argv[3]);
  if (argc == 1)
    return run("");
  std::fprintf(stderr, "usage: runtime_smoke [--list | --list-managed | --only NAME | --managed-row STEP WAY]\n");
  return 2;
}
