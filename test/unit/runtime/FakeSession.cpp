// SPDX-License-Identifier: Apache-2.0
#include "test/unit/runtime/FakeSession.h"

#include "runtime/api/Handles.h"
#include "test/unit/runtime/FakeDriver.h"

#include <cstdio>

namespace pumpgraph::test {
namespace {

std::unique_ptr<runtime::test::FakeDriver> &driver() {
  static std::unique_ptr<runtime::test::FakeDriver> instance;
  return instance;
}

} // namespace

pumpgraph_session *makeFakeSession(std::uint64_t budgetBytes, const char *compilerLibrary) {
  driver() = std::make_unique<runtime::test::FakeDriver>();
  pumpgraph_session_options options{};
  options.struct_size = sizeof options;
  options.budget_bytes = budgetBytes;
  options.compiler_library = compilerLibrary ? compilerLibrary : PUMPGRAPH_COMPILER_LIBRARY;
  runtime::Expected<std::unique_ptr<pumpgraph_session>> made = runtime::makeSession(options, driver()->table());
  if (made)
    return made->release();
  std::fprintf(stderr, "%s\n", made.error().message.c_str());
  return nullptr;
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

void launchFill(pumpgraph_stream stream, void *target, unsigned char value, std::uint64_t bytes) {
  driver()->fill(stream, target, value, bytes);
}

} // namespace pumpgraph::test
