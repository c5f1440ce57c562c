// SPDX-License-Identifier: Apache-2.0
// Kernel parameters under arbitrary layouts: decoding reads only bytes that the node has.
#include "runtime/capture/KernelParameters.h"

#include "test/fuzz/Bytes.h"

#include <cstdio>
#include <cstdlib>

using namespace pumpgraph::runtime;
using pumpgraph::fuzz::Bytes;

namespace {

constexpr CUdeviceptr base = 0x2000'0000'0000;
constexpr std::uint64_t arenaBytes = 64 * pageBytes;

/// A kernel node as the driver shows it.
struct Shown {
  std::vector<std::pair<std::size_t, std::size_t>> places; ///< offset and size, by parameter
  CUDA_KERNEL_NODE_PARAMS_v2 launch{};
  std::vector<std::vector<char>> separate;
  std::vector<void *> pointers, extra;
  std::vector<char> packed;
  std::size_t packedBytes = 0;

  explicit Shown(Bytes &bytes) {
    const bool isPacked = bytes.upTo(1) == 1;
    std::size_t end = 0;
    for (std::size_t left = bytes.upTo(5); left > 0; --left) {
      const std::size_t size = bytes.upTo(40);
      places.emplace_back(isPacked && bytes.upTo(7) == 1 ? bytes.number() : end, size);
      if (isPacked && bytes.upTo(15) == 1)
        places.back().second = bytes.number();
      end += size;
    }
    if (isPacked) {
      packed = withAddresses(bytes.block(bytes.upTo(7) == 1 ? bytes.upTo(64) : end), bytes);
      packedBytes = packed.size();
      if (bytes.upTo(7) != 1)
        extra = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed.data()};
      if (bytes.upTo(7) != 1)
        extra.insert(extra.end(), {CU_LAUNCH_PARAM_BUFFER_SIZE, &packedBytes});
      extra.push_back(CU_LAUNCH_PARAM_END);
      launch.extra = extra.data();
    } else {
      for (const auto &[offset, size] : places)
        pointers.push_back(separate.emplace_back(withAddresses(bytes.block(size), bytes)).data());
      launch.kernelParams = pointers.data();
    }
    launch.func = reinterpret_cast<CUfunction>(this);
  }

  static std::vector<char> withAddresses(std::vector<char> block, Bytes &bytes) {
    for (std::size_t at = bytes.upTo(2) * 4; at + 8 <= block.size(); at += 8 + bytes.upTo(2) * 4) {
      const CUdeviceptr address = base + bytes.number(pageBytes) % arenaBytes;
      std::memcpy(block.data() + at, &address, sizeof address);
    }
    return block;
  }
};

Shown *shown = nullptr; // the driver's functions are plain C functions

Driver driverThatShows() {
  Driver driver;
  driver.graphKernelNodeGetParams.function = [](CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v2 *launch) {
    *launch = shown->launch;
    return CUDA_SUCCESS;
  };
  driver.funcGetName.function = [](const char **name, CUfunction) {
    *name = "kernel";
    return CUDA_SUCCESS;
  };
  driver.funcGetParamInfo.function = [](CUfunction, std::size_t index, std::size_t *offset, std::size_t *bytes) {
    if (index >= shown->places.size())
      return CUDA_ERROR_INVALID_VALUE;
    std::tie(*offset, *bytes) = shown->places[index];
    return CUDA_SUCCESS;
  };
  driver.bind();
  return driver;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  static const Driver driver = driverThatShows();
  static const std::unique_ptr<AddressSpace> addresses = AddressSpace::within(driver, base, arenaBytes);
  Bytes bytes(data, size);
  Shown node(bytes);
  shown = &node;
  LiftedNode lifted;
  KernelParameters(driver, *addresses, nullptr).read(nullptr, 0, lifted);
  if (!lifted.refusal.empty())
    return 0;
  const KernelLaunch &launch = lifted.launches.front();
  PUMPGRAPH_FUZZ_CHECK(launch.ends.size() == node.places.size(), "a parameter is missing");
  std::size_t words = 0;
  for (std::size_t index = 0; index < node.places.size(); ++index) {
    const std::span<const char> parameter = launch.parameter(index);
    PUMPGRAPH_FUZZ_CHECK(parameter.size() == node.places[index].second, "a parameter has another size");
    for (std::size_t at = 0; at + 8 <= parameter.size(); at += 4) {
      std::uint64_t value = 0;
      std::memcpy(&value, parameter.data() + at, sizeof value);
      words += addresses->contains(value) ? 1 : 0;
    }
  }
  PUMPGRAPH_FUZZ_CHECK(lifted.words.size() == words, "a word is missing, or there twice");
  return 0;
}
