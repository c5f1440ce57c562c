// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/Arithmetic.h"

#include <map>

namespace pumpgraph::runtime {
namespace {

/// Of one multiprocessor in one clock.
struct Throughput {
  int major, minor;
  std::array<double, arithmeticKinds> operations; ///< by ArithmeticKind; 0: the device has no instructions for it
};

/// Twice the multiply-adds of the CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions", for fp64
/// and fp32. For tensor cores, dense, by the rates that NVIDIA's architecture white papers and data sheets state for
/// V100, T4, A100, A40, L40S, H100, B200 and RTX PRO 6000: rate / (multiprocessors x boost clock). fp64 is that of
/// tensor cores where they have it. Without tf32 such kernels compute in fp32.
constexpr Throughput throughputs[] = {
    //        unknown fp64 fp32  tf32  half   fp8   int8
    {7, 0, {0, 64, 128, 128, 1024, 0, 0}},
    {7, 5, {0, 4, 128, 128, 1024, 0, 2048}},
    {8, 0, {0, 128, 128, 1024, 2048, 0, 4096}},
    {8, 6, {0, 4, 256, 512, 1024, 0, 2048}},
    {8, 9, {0, 4, 256, 512, 1024, 2048, 2048}},
    {9, 0, {0, 256, 256, 2048, 4096, 8192, 8192}},
    {10, 0, {0, 128, 256, 4096, 8192, 16384, 16384}},
    {12, 0, {0, 4, 256, 512, 1024, 2048, 2048}},
};

/// The part of that which kernels of libraries reach, about: without tensor cores 0.41 on an H200
/// (estimates_count_arithmetic in test/gpu/torch_cases.py).
constexpr double efficiency = 0.5;
constexpr double tensorCoreEfficiency = 0.7;

/// The newest of the device's architecture that is not newer than it.
const Throughput *throughputOf(int major, int minor) {
  const Throughput *found = nullptr;
  for (const Throughput &throughput : throughputs)
    if (throughput.major == major && throughput.minor <= minor)
      found = &throughput;
  return found;
}

std::uint64_t bytesOf(const Node &node) {
  std::uint64_t bytes = 0;
  for (const Access &access : node.accesses)
    bytes += access.range.size;
  return bytes;
}

} // namespace

ArithmeticSpeed ArithmeticSpeed::of(const Driver &driver, CUdevice device) {
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    return driver.deviceGetAttribute.raw(&value, which, device) == CUDA_SUCCESS ? value : 0;
  };
  ArithmeticSpeed speed;
  const Throughput *throughput = throughputOf(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                                              attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  if (!throughput)
    return speed;
  const double clocksPerMicrosecond = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) * 1e-3; // it is in kHz
  const double multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  for (std::size_t kind = 0; kind < arithmeticKinds; ++kind) {
    const bool isPlain = kind <= static_cast<std::size_t>(ArithmeticKind::Fp32);
    speed.perMicrosecond_[kind] = throughput->operations[kind] * multiprocessors * clocksPerMicrosecond *
                                  (isPlain ? efficiency : tensorCoreEfficiency);
  }
  return speed;
}

double ArithmeticSpeed::microseconds(double operations, ArithmeticKind kind) const {
  const double perMicrosecond = perMicrosecond_[static_cast<std::size_t>(kind)];
  return perMicrosecond > 0 ? operations / perMicrosecond : 0;
}

void describeArithmetic(const LiftedGraph &graph, Description &step) {
  std::map<std::uint32_t, NodeIndex> largest; // by group
  for (NodeIndex i = 0; i < step.nodes.size(); ++i) {
    const std::uint32_t group = graph.nodes[i].arithmetic.group;
    if (group == 0 || (step.nodes[i].kind != NodeKind::Kernel && step.nodes[i].kind != NodeKind::ChildGraph))
      continue;
    const auto [found, isFirst] = largest.emplace(group, i);
    if (!isFirst && bytesOf(step.nodes[i]) > bytesOf(step.nodes[found->second]))
      found->second = i;
  }
  for (const auto &[group, node] : largest)
    step.nodes[node].arithmeticUs = graph.nodes[node].arithmetic.us;
}

} // namespace pumpgraph::runtime
