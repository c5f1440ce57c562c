// SPDX-License-Identifier: Apache-2.0
/// \file
/// Input files: IR text or bytecode, gzipped or not.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>
#include <string>

namespace pumpgraph {

/// Whether the bytes are a gzip stream.
bool isGzip(llvm::StringRef bytes);

/// The unpacked stream under the name of the packed one, or null with a message in `error`.
std::unique_ptr<llvm::MemoryBuffer> gunzip(const llvm::MemoryBuffer &packed, std::string &error);

/// Reads a file ("-": standard input) and unpacks it if it is gzipped. Null, with a message in `error`, if it cannot be
/// read or is damaged.
std::unique_ptr<llvm::MemoryBuffer> openInput(llvm::StringRef fileName, std::string &error);

} // namespace pumpgraph
