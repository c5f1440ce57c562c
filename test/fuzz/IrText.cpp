// SPDX-License-Identifier: Apache-2.0
// IR text is refused with a message, or holds valid steps that survive printing and parsing.
#include "test/fuzz/IrText.h"

#include "mlir/Bytecode/BytecodeReader.h"
#include "llvm/Support/MemoryBufferRef.h"

using namespace pumpgraph;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  const std::string text(reinterpret_cast<const char *>(data), size); // MLIR reads the zero at its end
  if (mlir::isBytecode(llvm::MemoryBufferRef(text, "input")))
    return 0; // PumpGraph reads no bytecode
  std::string diagnostics;
  for (const Description &description : fuzz::parse(text, diagnostics)) {
    const std::string fault = validate(description);
    PUMPGRAPH_FUZZ_CHECK(fault.empty(), "verified, but " + fault);
    fuzz::checkRoundTrip(description);
  }
  return 0;
}
