// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a copy takes beside its bytes: 64 of one size, that begin and end at scattered places, less one copy of as many
/// bytes, by copy. As nodes of a graph in one chain and in several, one after the other on a stream, and as a batch, of
/// which it also says whether it can be captured. nvcc -O2 -std=c++20 -arch=sm_90 copy_nodes.cu
#include "check.h"
#include "device_timing.h"

#include <cstddef>
#include <cstdio>
#include <vector>

namespace {

constexpr std::size_t copies = 64, kibi = 1024, slotBytes = 4096 * kibi;

struct Copies {
  std::vector<void *> from, to;
  std::vector<std::size_t> bytes;
  cudaMemcpyKind kind = cudaMemcpyHostToDevice;
};

Copies scattered(char *device, char *host, std::size_t bytes, bool down) {
  Copies result;
  result.bytes.assign(copies, bytes);
  for (std::size_t i = 0; i < copies; ++i) {
    void *ends[] = {host + i * slotBytes, device + (i * 37 + 11) % copies * slotBytes};
    result.from.push_back(ends[down]);
    result.to.push_back(ends[!down]);
  }
  result.kind = down ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
  return result;
}

cudaStream_t stream;

double chainsUs(const Copies &each, std::size_t chains) {
  cudaGraph_t graph;
  check(cudaGraphCreate(&graph, 0), "graph");
  std::vector<cudaGraphNode_t> last(chains);
  for (std::size_t i = 0; i < copies; ++i) {
    cudaGraphNode_t node;
    const bool isFirst = i < chains;
    check(cudaGraphAddMemcpyNode1D(&node, graph, isFirst ? nullptr : &last[i % chains], isFirst ? 0 : 1, each.to[i],
                                   each.from[i], each.bytes[i], each.kind),
          "node");
    last[i % chains] = node;
  }
  cudaGraphExec_t exec;
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  const double us = timeUs(stream, [&] { check(cudaGraphLaunch(exec, stream), "launch"); });
  check(cudaGraphExecDestroy(exec), "destroy");
  check(cudaGraphDestroy(graph), "destroy");
  return us;
}

cudaError_t batch(Copies &each) {
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t first = 0;
  return cudaMemcpyBatchAsync(const_cast<const void **>(each.to.data()), const_cast<const void **>(each.from.data()),
                              each.bytes.data(), copies, &attributes, &first, 1, stream);
}

} // namespace

int main() {
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  char *device = nullptr, *host = nullptr;
  check(cudaMalloc(&device, copies * slotBytes), "device");
  check(cudaHostAlloc(&host, copies * slotBytes, 0), "host");
  std::printf("copies of  one chain  2 chains  4 chains  8 chains    stream     batch (us beside the bytes)\n");
  for (const bool down : {false, true})
    for (const std::size_t bytes : {256 * kibi, 1024 * kibi, 2048 * kibi}) {
      Copies each = scattered(device, host, bytes, down);
      Copies whole = scattered(device, host, 0, down);
      const double wholeUs = timeUs(stream, [&] {
        check(cudaMemcpyAsync(whole.to[0], whole.from[0], copies * bytes, each.kind, stream), "copy");
      });
      const auto beside = [&](double us) { return (us - wholeUs) / copies; };
      std::printf("%4zu KiB %s", bytes / kibi, down ? "down" : "up  ");
      for (const std::size_t chains : {1, 2, 4, 8})
        std::printf(" %9.2f", beside(chainsUs(each, chains)));
      std::printf(" %9.2f", beside(timeUs(stream, [&] {
                    for (std::size_t i = 0; i < copies; ++i)
                      check(cudaMemcpyAsync(each.to[i], each.from[i], bytes, each.kind, stream), "copy");
                  })));
      std::printf(" %9.2f\n", beside(timeUs(stream, [&] { check(batch(each), "batch"); })));
    }
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capture");
  Copies each = scattered(device, host, kibi, false);
  std::printf("a batch in a capture: %s\n", cudaGetErrorName(batch(each)));
  return 0;
}
