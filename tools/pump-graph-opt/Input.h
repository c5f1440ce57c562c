// SPDX-License-Identifier: Apache-2.0
/// \file
/// Input files: IR text or bytecode, gzipped or not.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>
#include <string>

namespace pumpgraph {

/// Reads a file ("-": standard input) and unpacks it if it is gzipped. Null, with a message in `error`, if it cannot be
/// read or is damaged.
std::unique_ptr<llvm::MemoryBuffer> openInput(llvm::StringRef fileName, std::string &error);

/// The same of a step in IR. Messages show lines of the text and the name of the file, so neither holds what is not
/// printable(): in the text it is spelled as the strings of IR spell it, "\1B", and read as what it was.
std::unique_ptr<llvm::MemoryBuffer> openStep(llvm::StringRef fileName, std::string &error);

} // namespace pumpgraph
