// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/ByteProbe.h"

#include <algorithm>

namespace pumpgraph::runtime {
namespace {

constexpr char kernels[] =
#include "runtime/memory/ByteProbe.ptx.inc"
    ;

constexpr unsigned threads = 256, mostBlocks = 1024;

} // namespace

Expected<std::unique_ptr<ByteProbe>> ByteProbe::load(const Driver &driver, CUstream stream) {
  std::unique_ptr<ByteProbe> probe(new ByteProbe(driver, stream));
  PUMPGRAPH_TRY_WHILE(driver.moduleLoadData(&probe->module_, kernels), "loading the kernels that compare memory");
  PUMPGRAPH_TRY(driver.moduleGetFunction(&probe->poison_, probe->module_, "pumpgraphPoison"));
  PUMPGRAPH_TRY(driver.moduleGetFunction(&probe->count_, probe->module_, "pumpgraphCount"));
  return probe;
}

ByteProbe::~ByteProbe() {
  if (module_)
    driver_.moduleUnload.raw(module_);
}

Status ByteProbe::launch(CUfunction kernel, std::uint64_t words, void **arguments) const {
  const auto blocks = static_cast<unsigned>(std::clamp<std::uint64_t>(words / threads, 1, mostBlocks));
  return driver_.launchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream_, arguments, nullptr);
}

Status ByteProbe::poison(const ProbedPiece &piece, PoisonKind kind, std::uint32_t poison) const {
  CUdeviceptr target = piece.address, before = piece.before;
  std::uint64_t words = piece.bytes / 4, firstWord = piece.address / 4;
  void *arguments[] = {&target, &before, &words, &firstWord, &kind, &poison};
  return launch(poison_, words, arguments);
}

Status ByteProbe::count(const ProbedPiece &piece, PoisonKind kind, std::uint32_t poison, CUdeviceptr counts) const {
  CUdeviceptr now = piece.address, before = piece.before, clean = piece.clean;
  std::uint64_t words = piece.bytes / 4, firstWord = piece.address / 4;
  void *arguments[] = {&now, &before, &clean, &words, &firstWord, &kind, &poison, &counts};
  return launch(count_, words, arguments);
}

} // namespace pumpgraph::runtime
