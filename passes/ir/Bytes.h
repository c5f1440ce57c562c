// SPDX-License-Identifier: Apache-2.0
/// \file
/// Byte counts as people write them on a command line: 4096, 2MiB, 1.5GiB.
#pragma once

#include "llvm/Support/CommandLine.h"

#include <cstdint>
#include <optional>

namespace pumpgraph::ir {

/// A number with a unit of B, KiB, MiB, GiB or TiB, or bytes without one. Nothing if it is anything else, negative, or
/// more than an IR attribute holds.
std::optional<std::uint64_t> parseBytes(llvm::StringRef text);

/// The type of a command-line option that holds a byte count. It prints as a plain number.
struct Bytes {
  std::uint64_t count = 0;
};

llvm::raw_ostream &operator<<(llvm::raw_ostream &stream, Bytes bytes);

} // namespace pumpgraph::ir

namespace llvm::cl {

template <> class parser<pumpgraph::ir::Bytes> : public basic_parser<pumpgraph::ir::Bytes> {
public:
  using basic_parser::basic_parser;

  /// Returns true on error, as parsers of LLVM do.
  bool parse(Option &option, StringRef name, StringRef text, pumpgraph::ir::Bytes &bytes);
  StringRef getValueName() const override { return "bytes"; }
  void printOptionDiff(const Option &option, pumpgraph::ir::Bytes bytes,
                       const OptionValue<pumpgraph::ir::Bytes> &standard, size_t globalWidth) const;
};

} // namespace llvm::cl
