// SPDX-License-Identifier: Apache-2.0
/// \file
/// Options of passes that hold byte counts as people write them: passes/report/Quantity.h reads them.
#pragma once

#include "llvm/Support/CommandLine.h"

#include <cstdint>

namespace pumpgraph::ir {

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
