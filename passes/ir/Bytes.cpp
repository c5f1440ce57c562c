// SPDX-License-Identifier: Apache-2.0
#include "passes/ir/Bytes.h"

#include "passes/report/Quantity.h"

namespace pumpgraph::ir {

llvm::raw_ostream &operator<<(llvm::raw_ostream &stream, Bytes bytes) {
  return stream << bytes.count;
}

} // namespace pumpgraph::ir

namespace llvm::cl {

bool parser<pumpgraph::ir::Bytes>::parse(Option &option, StringRef, StringRef text, pumpgraph::ir::Bytes &bytes) {
  const pumpgraph::Parsed<std::uint64_t> count = pumpgraph::parseBytes(text);
  if (!count)
    return option.error("'" + text + "' is not a number of bytes such as 4096, 2MiB or 1.5GiB: " + count.error());
  bytes.count = *count;
  return false;
}

void parser<pumpgraph::ir::Bytes>::printOptionDiff(const Option &option, pumpgraph::ir::Bytes bytes,
                                                   const OptionValue<pumpgraph::ir::Bytes> &,
                                                   size_t globalWidth) const {
  printOptionName(option, globalWidth);
  outs() << "= " << bytes << '\n';
}

} // namespace llvm::cl
