// SPDX-License-Identifier: Apache-2.0
/// \file
/// A program with the CUDA runtime linked in, for pump-graph-run: preload_static loops|captured|cost|room [MEBIBYTES].
/// It knows nothing of PumpGraph.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#define CHECK(call)                                                                                                    \
  if (const cudaError_t error = (call); error != cudaSuccess) {                                                        \
    std::printf("%s: %s\n", #call, cudaGetErrorString(error));                                                         \
    std::exit(1);                                                                                                      \
  }

namespace {

struct View {
  float *data;
  int count;
};

__global__ void fill(View view, float value) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < view.count; i += gridDim.x * blockDim.x)
    view.data[i] = value + static_cast<float>(i % 5);
}

__global__ void scaleAndAdd(View to, const float *from, float factor) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < to.count; i += gridDim.x * blockDim.x)
    to.data[i] = to.data[i] * factor + from[i];
}

__global__ void nothing(float *, int) {}

/// Layers that are written forward and read backward, as a training step does, with memory of its own in each round.
class Loop {
public:
  Loop(int layers, int count) : layers_(layers), count_(count) {
    CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&sum_, bytes()));
    CHECK(cudaMemsetAsync(sum_, 0, bytes(), stream_));
  }

  void round(int number, bool async) {
    std::vector<float *> kept(layers_);
    for (int i = 0; i < layers_; ++i) {
      CHECK(async ? cudaMallocAsync(&kept[i], bytes(), stream_) : cudaMalloc(&kept[i], bytes()));
      fill<<<256, 256, 0, stream_>>>({kept[i], count_}, static_cast<float>(number % 3 + i));
    }
    for (int i = layers_; i-- > 0;) {
      scaleAndAdd<<<256, 256, 0, stream_>>>({sum_, count_}, kept[i], 0.5F);
      CHECK(async ? cudaFreeAsync(kept[i], stream_) : cudaFree(kept[i]));
    }
  }

  void captured() {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    round(1, true);
    CHECK(cudaStreamEndCapture(stream_, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 5; ++i)
      CHECK(cudaGraphLaunch(exec, stream_));
    CHECK(cudaStreamSynchronize(stream_));
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
  }

  double sum() {
    std::vector<float> values(count_);
    CHECK(cudaMemcpyAsync(values.data(), sum_, bytes(), cudaMemcpyDeviceToHost, stream_));
    CHECK(cudaStreamSynchronize(stream_));
    double sum = 0;
    for (int i = 0; i < count_; ++i)
      sum += values[i] * (i % 7 + 1.0);
    return sum;
  }

private:
  std::size_t bytes() const { return count_ * sizeof(float); }

  int layers_, count_;
  cudaStream_t stream_ = nullptr;
  float *sum_ = nullptr;
};

void values(int mebibytes, bool captures) {
  const int layers = 8, count = std::max(1, mebibytes / layers) * (1 << 18);
  Loop loop(layers, count);
  for (int i = 0; i < 10; ++i)
    loop.round(i, true);
  std::printf("asynchronous %.17g\n", loop.sum());
  for (int i = 0; i < 10; ++i)
    loop.round(i, false);
  std::printf("synchronous %.17g\n", loop.sum());
  if (captures) {
    loop.captured();
    std::printf("captured %.17g\n", loop.sum());
  }
  double sums[3];
  std::vector<std::thread> threads;
  for (double &sum : sums)
    threads.emplace_back([&sum] {
      Loop own(4, 1 << 18);
      for (int i = 0; i < 20; ++i)
        own.round(i, i % 2 == 0);
      sum = own.sum();
    });
  for (std::thread &thread : threads)
    thread.join();
  for (const double sum : sums)
    std::printf("thread %.17g\n", sum);
}

/// Nanoseconds of the host for one launch: the best burst that fits the driver's queue.
void cost() {
  float *data;
  CHECK(cudaMalloc(&data, 1 << 20));
  double best = 1e9;
  for (int burst = 0; burst < 200; ++burst) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 500; ++i)
      nothing<<<1, 32>>>(data, i);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    CHECK(cudaDeviceSynchronize());
    best = std::min(best, took.count() / 500);
  }
  std::printf("%.0f ns a launch\n", best);
}

/// What the program is told of memory, and gets of it.
void room() {
  std::size_t free, total;
  CHECK(cudaMemGetInfo(&free, &total));
  std::printf("total %zu MiB\n", total >> 20);
  std::vector<void *> blocks;
  void *block;
  cudaError_t error = cudaSuccess;
  while (blocks.size() < 64 && (error = cudaMalloc(&block, std::size_t{64} << 20)) == cudaSuccess)
    blocks.push_back(block);
  std::printf("%zu blocks of 64 MiB, then %s\n", blocks.size(), cudaGetErrorName(error));
  for (void *each : blocks)
    CHECK(cudaFree(each));
  cudaGetLastError();
  CHECK(cudaMalloc(&block, std::size_t{64} << 20));
  CHECK(cudaMemset(block, 1, std::size_t{64} << 20));
  CHECK(cudaDeviceSynchronize());
}

} // namespace

int main(int count, char **arguments) {
  if (count < 2)
    return 2;
  const int mebibytes = count > 2 ? std::atoi(arguments[2]) : 256;
  if (!std::strcmp(arguments[1], "loops") || !std::strcmp(arguments[1], "captured"))
    values(mebibytes, !std::strcmp(arguments[1], "captured"));
  else if (!std::strcmp(arguments[1], "cost"))
    cost();
  else if (!std::strcmp(arguments[1], "room"))
    room();
  else
    return 2;
  return 0;
}
