// SPDX-License-Identifier: Apache-2.0
// Trace JSON is refused with a message, or describes a valid step.
#include "passes/trace/ImportTrace.h"

#include "test/fuzz/Bytes.h"

#include <cstdio>
#include <cstdlib>

using namespace pumpgraph;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  const tl::expected<Trace, TraceError> trace = importTrace({reinterpret_cast<const char *>(data), size});
  if (!trace) {
    PUMPGRAPH_FUZZ_CHECK(!trace.error().message.empty(), "refused without a message");
    return 0;
  }
  const std::string fault = validate(trace->step);
  PUMPGRAPH_FUZZ_CHECK(fault.empty(), fault);
  return 0;
}
