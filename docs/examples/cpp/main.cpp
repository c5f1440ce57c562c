// SPDX-License-Identifier: Apache-2.0
/// \file
/// Trains a small transformer under a device-memory budget: its own kernels beside cuBLAS calls or, with
/// --matmul source, its own kernels alone, captured once as a CUDA graph. With --plain the same graph runs unmodified
/// on cudaMalloc. Both print the same losses, bit for bit.
#include "memory.h"
#include "model.h"
#include "options.h"
#include "pumpgraph_memory.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A captured training step: with PumpGraph or without.
class Step {
public:
  virtual ~Step() = default;
  virtual void replay(cudaStream_t stream) = 0;
  virtual std::uint64_t peakBytes() const = 0;
  /// Adds what PumpGraph has to say.
  virtual void describe(Json &) {}
};

class PlainStep : public Step {
public:
  PlainStep(PlainMemory &memory, Model &model, cudaStream_t stream) : memory_(memory) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    model.record(stream);
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable_, graph, 0), "cudaGraphInstantiate");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }
  ~PlainStep() override { cudaGraphExecDestroy(executable_); }

  void replay(cudaStream_t stream) override { check(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch"); }
  std::uint64_t peakBytes() const override { return memory_.peakBytes(); }

private:
  PlainMemory &memory_;
  cudaGraphExec_t executable_ = nullptr;
};

std::string readFile(const std::string &path) {
  std::ifstream file(path);
  if (!file)
    fail("there is no file " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The same step under PumpGraph: captured, planned, checked and rewritten in the constructor.
class RewrittenStep : public Step {
public:
  RewrittenStep(PumpGraphMemory &memory, Model &model, const Options &options)
      : memory_(memory), options_(options), step_(capture(memory, model, options)) {}

  void replay(cudaStream_t stream) override { take(step_.replay(stream)); }
  std::uint64_t peakBytes() const override { return memory_.statistics().device_peak_bytes; }

  void describe(Json &figures) override {
    const pumpgraph_memory_stats stats = memory_.statistics();
    figures["report"] = Json::parse(take(step_.report()));
    figures["memory"] = {{"budget_bytes", stats.budget_bytes},
                         {"device_bytes", stats.device_bytes},
                         {"device_peak_bytes", stats.device_peak_bytes},
                         {"pinned_bytes", stats.pinned_bytes}};
    if (options_.validate) {
      const pumpgraph_validation result = take(step_.validate());
      std::printf("valid  %llu buffers equal, %llu not reproduced by the captured step itself\n",
                  static_cast<unsigned long long>(result.compared_buffers - result.unstable_buffers),
                  static_cast<unsigned long long>(result.unstable_buffers));
    }
    if (options_.measure > 0)
      figures["measured"] = {{"step_us", take(step_.measure(options_.measure)).step_us}};
    if (!options_.save.empty())
      take(step_.save(options_.save));
  }

private:
  static pumpgraph::Step capture(PumpGraphMemory &memory, Model &model, const Options &options) {
    pumpgraph::AdoptOptions adopt{.name = "transformer", .leaveAsCaptured = options.leaveAsCaptured};
    if (!options.costs.empty())
      adopt.costsIr = readFile(options.costs);
    const auto record = [&](cudaStream_t stream) -> pumpgraph::Status {
      model.record(stream);
      return {};
    };
    return take(memory.session().capture(record, adopt));
  }

  PumpGraphMemory &memory_;
  const Options &options_;
  pumpgraph::Step step_;
};

/// Texts that count on by a stride of their own within 512 words, so that there is something to learn.
class Data {
public:
  static constexpr int batches = 4;

  explicit Data(const Shape &shape) : rows_(shape.rows()) {
    check(cudaMallocHost(&words_, sizeof(int) * 2 * batches * rows_), "host memory for the data");
    const int rows = shape.rows();
    for (int batch = 0; batch < batches; ++batch)
      for (int row = 0; row < rows; ++row) {
        const int text = row / shape.length + batch * shape.batch;
        const int start = text * 97 % 512, stride = text % 7 + 1, place = row % shape.length;
        const int words = std::min(512, shape.words);
        tokensOf(batch)[row] = (start + stride * place) % words;
        targetsOf(batch)[row] = (start + stride * (place + 1)) % words;
      }
  }
  ~Data() { cudaFreeHost(words_); }
  Data(const Data &) = delete;
  Data &operator=(const Data &) = delete;

  void upload(int step, const Model &model, cudaStream_t stream) {
    const int batch = step % batches;
    const std::size_t bytes = sizeof(int) * rows_;
    check(cudaMemcpyAsync(model.tokens(), tokensOf(batch), bytes, cudaMemcpyHostToDevice, stream), "upload");
    check(cudaMemcpyAsync(model.targets(), targetsOf(batch), bytes, cudaMemcpyHostToDevice, stream), "upload");
  }

private:
  int *tokensOf(int batch) { return words_ + std::size_t(2) * batch * rows_; }
  int *targetsOf(int batch) { return tokensOf(batch) + rows_; }

  std::size_t rows_;
  int *words_ = nullptr;
};

float readLoss(const Model &model, cudaStream_t stream) {
  float loss = 0;
  check(cudaMemcpyAsync(&loss, model.loss(), sizeof loss, cudaMemcpyDeviceToHost, stream), "reading the loss");
  check(cudaStreamSynchronize(stream), "replay");
  return loss;
}

std::vector<float> train(Step &step, Model &model, Data &data, int steps, cudaStream_t stream) {
  std::vector<float> losses;
  for (int i = 0; i < steps; ++i) {
    data.upload(i, model, stream);
    step.replay(stream);
    losses.push_back(readLoss(model, stream));
  }
  return losses;
}

/// Milliseconds of each of `count` replays, one right after the other.
std::vector<float> timeReplays(Step &step, int count, cudaStream_t stream) {
  std::vector<cudaEvent_t> marks(count + 1);
  for (cudaEvent_t &mark : marks)
    check(cudaEventCreate(&mark), "cudaEventCreate");
  check(cudaEventRecord(marks[0], stream), "cudaEventRecord");
  for (int i = 0; i < count; ++i) {
    step.replay(stream);
    check(cudaEventRecord(marks[i + 1], stream), "cudaEventRecord");
  }
  check(cudaStreamSynchronize(stream), "replay");
  std::vector<float> samples(count);
  for (int i = 0; i < count; ++i)
    check(cudaEventElapsedTime(&samples[i], marks[i], marks[i + 1]), "cudaEventElapsedTime");
  for (cudaEvent_t mark : marks)
    cudaEventDestroy(mark);
  return samples;
}

std::string hexadecimal(float value) {
  char text[64];
  std::snprintf(text, sizeof text, "%a", static_cast<double>(value));
  return text;
}

std::uint64_t deviceBytesUsed() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return total - free;
}

void show(const std::vector<float> &losses, std::vector<float> samples, std::uint64_t peakBytes) {
  std::printf("losses");
  for (float loss : losses)
    std::printf(" %.4f", loss);
  std::printf("\n");
  std::sort(samples.begin(), samples.end());
  if (!samples.empty())
    std::printf("step   %.2f ms (%.2f-%.2f, %zu replays)\n", samples[samples.size() / 2], samples.front(),
                samples.back(), samples.size());
  std::printf("peak   %.2f GiB\n", static_cast<double>(peakBytes) / (1 << 30));
}

std::string joinLines(const std::vector<std::string> &lines) {
  std::string text;
  for (const std::string &line : lines)
    text += line + "\n";
  return text;
}

void write(const std::string &path, const std::string &text) {
  if (path.empty())
    return;
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file)
    fail(path + " cannot be written");
}

cudaStream_t makeStream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream), "cudaStreamCreate");
  return stream;
}

std::string deviceName() {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  return properties.name;
}

/// Trains, prints, writes files. `capture` makes the step, once the eager steps are done.
template <typename Capture>
void run(const Options &options, Memory &memory, cudaStream_t stream, const Capture &capture) {
  KeptMemory kept(memory);
  Memory &chosen = options.allocatesOnce() ? static_cast<Memory &>(kept) : memory;
  const std::unique_ptr<Model> owner = makeTransformer(options.shape, options.matmul(), chosen, stream);
  Model &model = *owner;
  Data data(options.shape);
  data.upload(0, model, stream);
  for (int i = 0; i < options.warmup; ++i)
    model.record(stream);
  check(cudaStreamSynchronize(stream), "warming up");

  const Clock::time_point captureStart = Clock::now();
  const std::unique_ptr<Step> step = capture(model);
  const double captureSeconds = secondsSince(captureStart);
  const Clock::time_point replayStart = Clock::now();
  step->replay(stream);
  readLoss(model, stream);
  const double replaySeconds = secondsSince(replayStart);

  const std::vector<float> losses = train(*step, model, data, options.steps, stream);
  const std::vector<float> samples = timeReplays(*step, options.timed, stream);
  std::vector<std::string> lossTexts;
  for (const float loss : losses)
    lossTexts.push_back(hexadecimal(loss));
  Json figures = {{"example", "transformer"},
                  {"plain", options.plain},
                  {"matmul", options.products},
                  {"allocate", options.allocates},
                  {"device", deviceName()},
                  {"losses", lossTexts},
                  {"step_ms", samples},
                  {"timings", {{"capture_s", captureSeconds}, {"first_replay_s", replaySeconds}}},
                  {"device_used_bytes", deviceBytesUsed()},
                  {"peak_bytes", step->peakBytes()}};
  step->describe(figures);
  show(losses, samples, step->peakBytes());
  write(options.losses, joinLines(lossTexts));
  write(options.json, figures.dump(1) + "\n");
}

} // namespace

int main(int count, char **arguments) {
  const Options options = parseOptions(count, arguments);
  if (options.plain) {
    PlainMemory memory;
    const cudaStream_t stream = makeStream();
    run(options, memory, stream, [&](Model &model) { return std::make_unique<PlainStep>(memory, model, stream); });
    return 0;
  }
  PumpGraphMemory memory({.budget = options.budgetBytes, .unlimited = options.unlimited});
  const cudaStream_t stream = makeStream();
  run(options, memory, stream, [&](Model &model) { return std::make_unique<RewrittenStep>(memory, model, options); });
  return 0;
}
