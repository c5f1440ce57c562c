// SPDX-License-Identifier: Apache-2.0
/// \file
/// An analytical query over more rows than the device-memory budget holds, in three ways with the same result bit for
/// bit: captured once and replayed under PumpGraph, all in device memory (--plain), and chunk by chunk with copies of
/// the program's own (--chunks).
#include "analytics_query.cuh"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

using namespace analytics;

namespace {

constexpr const char *usage = R"(usage: pumpgraph-example-analytics [OPTIONS]
  --rows N        sales; 2^24 by default
  --budget SIZE   device memory for PumpGraph, such as 2GiB; without it unlimited
  --plain         everything in device memory, without PumpGraph
  --chunks N      rows in host memory, copied and worked on in N chunks, without PumpGraph
  --by-batch      all stages for a batch of rows ahead of the next one, in place of each stage for all batches
  --repeat N      timed runs; 5 by default
  --save FILE     the captured step, for pump-graph-opt
)";

struct Options {
  Shape shape{std::size_t{1} << 24, 0};
  std::uint64_t budget = 0;
  bool isPlain = false;
  int chunks = 0, repeats = 5;
  std::string save;
};

std::uint64_t parse(const char *text) {
  char *end = nullptr;
  const double value = std::strtod(text, &end);
  const std::pair<const char *, double> units[] = {{"", 1}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
  for (const auto &[name, factor] : units)
    if (end != text && std::string(end) == name && value >= 1)
      return static_cast<std::uint64_t>(value * factor);
  fail(std::string("\"") + text + "\" is no number of rows, times or bytes");
}

Options parseOptions(int count, char **arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string option = arguments[i];
    const auto text = [&]() -> const char * {
      if (++i == count)
        fail(option + " needs a value");
      return arguments[i];
    };
    const auto value = [&] { return parse(text()); };
    if (option == "--rows")
      options.shape.rows = value();
    else if (option == "--budget")
      options.budget = value();
    else if (option == "--chunks")
      options.chunks = static_cast<int>(value());
    else if (option == "--repeat")
      options.repeats = static_cast<int>(value());
    else if (option == "--by-batch")
      options.shape.isByBatch = true;
    else if (option == "--save")
      options.save = text();
    else if (option == "--plain")
      options.isPlain = true;
    else if (option == "--help")
      std::exit((std::fputs(usage, stdout), 0));
    else
      fail("unknown option " + option + "; --help lists them");
  }
  const std::size_t multiple = std::size_t{1024} * (options.chunks > 0 ? options.chunks : options.shape.batches);
  if (options.shape.rows % multiple != 0 || options.shape.rows / multiple > (std::size_t{1} << 20))
    fail("--rows: " + std::to_string(options.shape.rows) + " is no multiple of " + std::to_string(multiple) +
         ", or over 2^20 times that");
  options.shape.customers = 1024;
  while (options.shape.customers * 32 <= options.shape.rows)
    options.shape.customers *= 2;
  return options;
}

void show(const Result &result, std::vector<float> milliseconds, std::uint64_t peakBytes) {
  std::uint64_t checksum = 0;
  const auto add = [&](std::uint64_t value) { checksum = mix(checksum ^ value) + 1; };
  for (const std::uint64_t sum : result.bySegment)
    add(sum);
  for (int i = 0; i < topCount; ++i)
    add(result.topRevenue[i] ^ mix(result.topCustomer[i]));
  add(result.ofGroups);
  std::sort(milliseconds.begin(), milliseconds.end());
  std::printf("result %016llx, top customer %u with %llu\n", static_cast<unsigned long long>(checksum),
              result.topCustomer[0], static_cast<unsigned long long>(result.topRevenue[0]));
  std::printf("time   %.2f ms (%.2f-%.2f, %zu runs)\n", milliseconds[milliseconds.size() / 2], milliseconds.front(),
              milliseconds.back(), milliseconds.size());
  std::printf("peak   %llu bytes\n", static_cast<unsigned long long>(peakBytes));
}

/// Milliseconds of each run, the first left out, which sets things up.
std::vector<float> timeRuns(int count, cudaStream_t stream, const std::function<void()> &enqueue) {
  std::vector<float> milliseconds(count);
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  for (int i = -1; i < count; ++i) {
    check(cudaEventRecord(begin, stream), "cudaEventRecord");
    enqueue();
    check(cudaEventRecord(end, stream), "cudaEventRecord");
    check(cudaStreamSynchronize(stream), "the query");
    if (i >= 0)
      check(cudaEventElapsedTime(&milliseconds[i], begin, end), "cudaEventElapsedTime");
  }
  return milliseconds;
}

cudaStream_t makeStream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream), "cudaStreamCreate");
  return stream;
}

Result read(const Result *result) {
  Result copy;
  check(cudaMemcpy(&copy, result, sizeof copy, cudaMemcpyDeviceToHost), "reading the result");
  return copy;
}

void runPlain(const Options &options, cudaStream_t stream) {
  const Shape &shape = options.shape;
  PoolMemory memory;
  std::vector<Array<std::uint32_t, PoolMemory>> arrays;
  Columns rows;
  for (int column = 0; column < columns; ++column) {
    rows[column] = arrays.emplace_back(memory, stream, shape.rows).data();
    generate(shape, column, rows[column], 0, shape.rows, stream);
  }
  Array<std::uint32_t, PoolMemory> keys(memory, stream, shape.customers), segmentOf(memory, stream, shape.customers);
  generateCustomers(shape, keys.data(), segmentOf.data(), stream);
  Array<Result, PoolMemory> result(memory, stream, 1);
  const std::vector<float> times = timeRuns(options.repeats, stream, [&] {
    run(memory, shape, rows, keys.data(), segmentOf.data(), result.data(), stream, shape.batches);
  });
  show(read(result.data()), times, memory.peakBytes());
}

/// Rows in pinned memory; while one chunk is worked on, the next one is copied.
void runChunks(const Options &options, cudaStream_t stream) {
  const Shape &shape = options.shape;
  const std::size_t count = shape.rows / options.chunks;
  PoolMemory memory;
  Array<std::uint32_t, PoolMemory> keys(memory, stream, shape.customers), segmentOf(memory, stream, shape.customers);
  generateCustomers(shape, keys.data(), segmentOf.data(), stream);
  Array<Result, PoolMemory> result(memory, stream, 1);
  std::vector<Array<std::uint32_t, PoolMemory>> arrays;
  Columns host, slots[2];
  for (int column = 0; column < columns; ++column) {
    for (Columns &slot : slots)
      slot[column] = arrays.emplace_back(memory, stream, count).data();
    check(cudaMallocHost(&host[column], shape.rows * sizeof(std::uint32_t)), "host memory");
    for (int chunk = 0; chunk < options.chunks; ++chunk) {
      generate(shape, column, slots[0][column], chunk * count, count, stream);
      check(cudaMemcpyAsync(host[column] + chunk * count, slots[0][column], count * sizeof(std::uint32_t),
                            cudaMemcpyDeviceToHost, stream),
            "generate");
    }
  }
  cudaStream_t copies = nullptr;
  cudaEvent_t arrived[2], used[2], begun = nullptr;
  check(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking), "cudaStreamCreate");
  check(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming), "cudaEventCreate");
  for (int slot = 0; slot < 2; ++slot) {
    check(cudaEventCreateWithFlags(&arrived[slot], cudaEventDisableTiming), "cudaEventCreate");
    check(cudaEventCreateWithFlags(&used[slot], cudaEventDisableTiming), "cudaEventCreate");
  }
  const std::vector<float> times = timeRuns(options.repeats, stream, [&] {
    check(cudaEventRecord(begun, stream), "cudaEventRecord");
    check(cudaStreamWaitEvent(copies, begun), "cudaStreamWaitEvent");
    Query<PoolMemory> query(memory, shape, keys.data(), segmentOf.data(), stream);
    for (int chunk = 0; chunk < options.chunks; ++chunk) {
      const int slot = chunk % 2;
      if (chunk >= 2)
        check(cudaStreamWaitEvent(copies, used[slot]), "cudaStreamWaitEvent");
      for (int column = 0; column < columns; ++column)
        check(cudaMemcpyAsync(slots[slot][column], host[column] + chunk * count, count * sizeof(std::uint32_t),
                              cudaMemcpyHostToDevice, copies),
              "copying a chunk");
      check(cudaEventRecord(arrived[slot], copies), "cudaEventRecord");
      check(cudaStreamWaitEvent(stream, arrived[slot]), "cudaStreamWaitEvent");
      auto kept = query.scan(slots[slot], 0, count);
      check(cudaEventRecord(used[slot], stream), "cudaEventRecord");
      query.join(kept);
      query.group(kept);
    }
    query.finish(result.data());
  });
  show(read(result.data()), times, memory.peakBytes());
}

double numberIn(const std::string &report, const std::string &key) {
  const std::size_t place = report.find("\"" + key + "\":");
  return place == std::string::npos ? 0 : std::strtod(report.c_str() + place + key.size() + 3, nullptr);
}

void runUnderPumpGraph(const Options &options) {
  using pumpgraph::Privacy;
  const Shape &shape = options.shape;
  pumpgraph::Session session =
      take(pumpgraph::Session::create({.budget = options.budget, .unlimited = options.budget == 0}));
  const cudaStream_t stream = makeStream(); // after the session, which chooses hardware queues
  SessionMemory memory(session);
  const auto allocate = [&](std::size_t count, const char *name) {
    return take(session.allocate<std::uint32_t>(count, {.privacy = Privacy::Private, .name = name, .stream = stream}));
  };
  const char *const names[columns] = {"key", "price", "quantity", "day"};
  std::vector<pumpgraph::Buffer<std::uint32_t>> buffers;
  Columns rows;
  for (int column = 0; column < columns; ++column) {
    rows[column] = buffers.emplace_back(allocate(shape.rows, names[column])).data();
    generate(shape, column, rows[column], 0, shape.rows, stream);
  }
  const pumpgraph::Buffer<std::uint32_t> keys = allocate(shape.customers, "customers.key");
  const pumpgraph::Buffer<std::uint32_t> segmentOf = allocate(shape.customers, "customers.segment");
  generateCustomers(shape, keys.data(), segmentOf.data(), stream);
  const pumpgraph::Buffer<Result> result =
      take(session.allocate<Result>(1, {.privacy = Privacy::Present, .name = "result", .stream = stream}));

  const auto runBatches = [&](cudaStream_t recording, int batches) {
    run(memory, shape, rows, keys.data(), segmentOf.data(), result.data(), recording, batches);
  };
  runBatches(stream, 1); // loads every kernel, which a capture cannot
  check(cudaStreamSynchronize(stream), "warming up");
  take(session.emptyCache()); // so that the capture need not
  const auto record = [&](pumpgraph_stream recording) -> pumpgraph::Status {
    runBatches(recording, shape.batches);
    return {};
  };
  pumpgraph::Step step = take(session.capture(record, {.name = "query"}));
  if (!options.save.empty())
    take(step.save(options.save));
  take(session.resetPeaks());
  const std::vector<float> times = timeRuns(options.repeats, stream, [&] { take(step.replay(stream)); });
  show(read(result.data()), times, memory.peakBytes());
  const std::string report = take(step.report());
  std::printf("plan   bound %.2f ms, predicted %.2f ms, in memory %.2f ms\n", 1e3 * numberIn(report, "plan_bound_s"),
              1e3 * numberIn(report, "predicted_s"), 1e3 * numberIn(report, "in_memory_s"));
  std::printf("tags   %s\n", take(pumpgraph::tags(session)).c_str());
}

} // namespace

int main(int count, char **arguments) {
  const Options options = parseOptions(count, arguments);
  if (options.isPlain)
    runPlain(options, makeStream());
  else if (options.chunks > 0)
    runChunks(options, makeStream());
  else
    runUnderPumpGraph(options);
  return 0;
}
