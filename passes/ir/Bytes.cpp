// SPDX-License-Identifier: Apache-2.0
#include "passes/ir/Bytes.h"

#include "llvm/ADT/StringSwitch.h"

#include <cmath>

namespace pumpgraph::ir {

std::optional<std::uint64_t> parseBytes(llvm::StringRef text) {
  const std::size_t numberEnd = text.find_first_not_of("0123456789.");
  const llvm::StringRef number = text.take_front(numberEnd);
  const llvm::StringRef unit = text.drop_front(number.size()).ltrim();
  const int shift = llvm::StringSwitch<int>(unit)
                        .Cases({"", "B"}, 0)
                        .Case("KiB", 10)
                        .Case("MiB", 20)
                        .Case("GiB", 30)
                        .Case("TiB", 40)
                        .Default(-1);
  double value = 0;
  if (shift < 0 || number.empty() || number.getAsDouble(value))
    return std::nullopt;
  const double bytes = std::floor(std::ldexp(value, shift));
  if (!(bytes < std::ldexp(1.0, 63)))
    return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

llvm::raw_ostream &operator<<(llvm::raw_ostream &stream, Bytes bytes) {
  return stream << bytes.count;
}

} // namespace pumpgraph::ir

namespace llvm::cl {

bool parser<pumpgraph::ir::Bytes>::parse(Option &option, StringRef, StringRef text, pumpgraph::ir::Bytes &bytes) {
  const std::optional<std::uint64_t> count = pumpgraph::ir::parseBytes(text);
  if (!count)
    return option.error("'" + text + "' is not a number of bytes such as 4096, 2MiB or 1.5GiB");
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
