// SPDX-License-Identifier: Apache-2.0
#include "test/unit/runtime/FakeSession.h"

#include "runtime/api/Handles.h"
#include "test/unit/runtime/FakeDriver.h"
#include "test/unit/runtime/Program.h"

#include <cstdio>
#include <memory>
#include <string>

namespace pumpgraph::test {
namespace {

std::unique_ptr<runtime::test::FakeDriver> &driver() {
  static std::unique_ptr<runtime::test::FakeDriver> instance;
  return instance;
}

void check(const runtime::Status &status) {
  if (!status)
    std::fprintf(stderr, "%s\n", status.error().message.c_str());
}

const runtime::Driver &table() {
  return *driver()->table();
}

CUdeviceptr addressOf(void *pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

pumpgraph_session *open(std::uint64_t budgetBytes, const char *compilerLibrary, std::uint64_t hostLimitBytes,
                        const std::string &cacheDirectory) {
  pumpgraph_session_options options{};
  options.struct_size = sizeof options;
  options.budget_bytes = budgetBytes;
  options.host_limit_bytes = hostLimitBytes;
  options.compiler_library = compilerLibrary ? compilerLibrary : PUMPGRAPH_COMPILER_LIBRARY;
  options.cache_directory = cacheDirectory.empty() ? nullptr : cacheDirectory.c_str();
  runtime::Expected<std::unique_ptr<pumpgraph_session>> made = runtime::makeSession(options, driver()->table());
  if (made)
    return made->release();
  std::fprintf(stderr, "%s\n", made.error().message.c_str());
  return nullptr;
}

} // namespace

pumpgraph_session *makeFakeSession(std::uint64_t budgetBytes, const char *compilerLibrary) {
  driver() = std::make_unique<runtime::test::FakeDriver>();
  return open(budgetBytes, compilerLibrary, 0, "");
}

pumpgraph_session *makeQuickFakeSession(std::uint64_t budgetBytes, std::uint32_t seed, std::uint64_t hostLimitBytes) {
  driver() = std::make_unique<runtime::test::FakeDriver>(runtime::test::FakeDriver::Options{.deferringSeed = seed});
  return open(budgetBytes, nullptr, hostLimitBytes, runtime::test::folderWithLink(*driver()));
}

pumpgraph_session *makeAnotherFakeSession(std::uint64_t budgetBytes) {
  return open(budgetBytes, nullptr, 0, runtime::test::folderWithLink(*driver()));
}

void destroyFakeDriver() {
  driver().reset();
}

void launchIncrement(pumpgraph_stream stream, std::uint64_t *counter) {
  static runtime::test::FakeKernel kernel{"increment", {8}, [](const runtime::test::FakeKernel::Arguments &arguments) {
                                            ++*runtime::test::argument<std::uint64_t *>(arguments, 0);
                                          }};
  driver()->launch(stream, kernel, {runtime::test::bytesOf(counter)});
}

void launchSuccessor(pumpgraph_stream stream, std::uint64_t *to, std::uint64_t *from) {
  static runtime::test::FakeKernel kernel{
      "successor", {8, 8}, [](const runtime::test::FakeKernel::Arguments &arguments) {
        *runtime::test::argument<std::uint64_t *>(arguments, 0) =
            *runtime::test::argument<std::uint64_t *>(arguments, 1) + 1;
      }};
  driver()->launch(stream, kernel, {runtime::test::bytesOf(to), runtime::test::bytesOf(from)});
}

void launchFill(pumpgraph_stream stream, void *target, unsigned char value, std::uint64_t bytes) {
  driver()->fill(stream, target, value, bytes);
}

pumpgraph_stream createFakeStream() {
  CUstream stream = nullptr;
  check(table().streamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

void fillOn(pumpgraph_stream stream, void *target, unsigned char value, std::uint64_t bytes) {
  check(table().memsetD8Async(addressOf(target), value, bytes, stream));
}

void copyOn(pumpgraph_stream stream, void *target, void *source, std::uint64_t bytes) {
  check(table().memcpyDtoDAsync(addressOf(target), addressOf(source), bytes, stream));
}

void waitForFakeStream(pumpgraph_stream stream) {
  check(table().streamSynchronize(stream));
}

void beginFakeCapture(pumpgraph_stream stream) {
  check(table().streamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

pumpgraph_cuda_graph endFakeCapture(pumpgraph_stream stream) {
  CUgraph graph = nullptr;
  check(table().streamEndCapture(stream, &graph));
  return graph;
}

void destroyFakeGraph(pumpgraph_cuda_graph graph) {
  check(table().graphDestroy(graph));
}

void failFakeWait(int nth) {
  driver()->failCall("cuCtxSynchronize", nth, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

bool stopFailingFakeWait() {
  return !driver()->stopFailing("cuCtxSynchronize");
}

} // namespace pumpgraph::test
