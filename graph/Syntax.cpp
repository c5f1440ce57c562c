// SPDX-License-Identifier: Apache-2.0
#include "graph/Syntax.h"

#include "llvm/ADT/StringSwitch.h"

#include <array>
#include <charconv>

using namespace mlir;

namespace pumpgraph::ir {
namespace {

// Words by the value of the enum they spell. No access has mode 0, no advise op the advice 0.
constexpr std::array<StringLiteral, 4> stageWords = {"captured", "planned", "lowered_virtual", "lowered_managed"};
constexpr std::array<StringLiteral, 4> modeWords = {"nothing", "read", "write", "readwrite"};
constexpr std::array<StringLiteral, 5> evidenceWords = {"proved", "declared", "observed", "assumed", "allocated"};
constexpr std::array<StringLiteral, 5> adviceWords = {"none", "read_mostly", "prefer_host", "prefer_device",
                                                      "accessed_by"};

/// Words from `first` on, with what stands between them in a message: "read, write or readwrite".
std::string alternatives(ArrayRef<StringLiteral> words) {
  std::string text = words.front().str();
  for (std::size_t i = 1; i < words.size(); ++i)
    text += (i + 1 == words.size() ? " or " : ", ") + words[i].str();
  return text;
}

/// Reads one of `words` from position `first` on; its position is the value.
ParseResult parseWord(OpAsmParser &parser, ArrayRef<StringLiteral> words, std::size_t first, std::int8_t &value) {
  const SMLoc where = parser.getCurrentLocation();
  StringRef word;
  if (parser.parseOptionalKeyword(&word))
    return parser.emitError(where, "expected ") << alternatives(words.drop_front(first));
  for (std::size_t i = first; i < words.size(); ++i)
    if (word == words[i]) {
      value = static_cast<std::int8_t>(i);
      return success();
    }
  return parser.emitError(where, "expected ") << alternatives(words.drop_front(first)) << ", got '" << word << "'";
}

/// The word for a value that the verifier has not seen yet.
StringRef wordFor(ArrayRef<StringLiteral> words, std::int64_t value) {
  if (value < 0 || value >= static_cast<std::int64_t>(words.size()))
    return "invalid";
  return words[value];
}

/// `[offset, size]`
ParseResult parseBytes(OpAsmParser &parser, std::int64_t &offset, std::int64_t &size) {
  return failure(parser.parseLSquare() || parser.parseInteger(offset) || parser.parseComma() ||
                 parser.parseInteger(size) || parser.parseRSquare());
}

/// The shortest decimal that reads back as `value`, with the point that MLIR's lexer wants of every real number.
template <std::floating_point Real> std::string spellReal(Real value) {
  std::array<char, 64> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  assert(error == std::errc() && "64 characters hold every number");
  std::string text(buffer.data(), end);
  if (text.find('.') == std::string::npos)
    text.insert(std::min(text.find('e'), text.size()), ".0");
  return text;
}

/// With or without a point.
ParseResult parseReal(OpAsmParser &parser, double &value) {
  const bool isNegative = succeeded(parser.parseOptionalMinus());
  std::int64_t whole = 0;
  const OptionalParseResult integer = parser.parseOptionalInteger(whole);
  if (integer.has_value() ? *integer : parser.parseFloat(value))
    return failure();
  if (integer.has_value())
    value = static_cast<double>(whole);
  if (isNegative)
    value = -value;
  return success();
}

} // namespace

ParseResult parseStage(OpAsmParser &parser, IntegerAttr &stage) {
  if (parser.parseOptionalKeyword("stage"))
    return success();
  std::int8_t value = 0;
  if (parser.parseLParen() || parseWord(parser, stageWords, 0, value) || parser.parseRParen())
    return failure();
  stage = parser.getBuilder().getI32IntegerAttr(value);
  return success();
}

void printStage(OpAsmPrinter &printer, Operation *, IntegerAttr stage) {
  if (stage && stage.getInt() != static_cast<std::int64_t>(Stage::Captured))
    printer << " stage(" << wordFor(stageWords, stage.getInt()) << ')';
}

ParseResult parseName(OpAsmParser &parser, StringAttr &name) {
  std::string text;
  if (succeeded(parser.parseOptionalString(&text)))
    name = parser.getBuilder().getStringAttr(text);
  return success();
}

void printName(OpAsmPrinter &printer, Operation *, StringAttr name) {
  if (!name || name.empty())
    return;
  printer << ' ';
  printer.printString(name.getValue());
}

ParseResult parseAddress(OpAsmParser &parser, IntegerAttr &address) {
  if (parser.parseOptionalKeyword("address"))
    return success();
  std::int64_t value = 0;
  if (parser.parseLParen() || parser.parseInteger(value) || parser.parseRParen())
    return failure();
  address = parser.getBuilder().getI64IntegerAttr(value);
  return success();
}

void printAddress(OpAsmPrinter &printer, Operation *, IntegerAttr address) {
  if (!address)
    return;
  printer << " address(0x";
  printer.getStream().write_hex(address.getInt());
  printer << ')';
}

//===----------------------------------------------------------------------===//
// Frames and ranges at the step boundary
//===----------------------------------------------------------------------===//

namespace {

/// `none` or `none * 4`, after the word itself.
ParseResult parseMissingFrames(OpAsmParser &parser, SmallVectorImpl<std::int32_t> &frames) {
  const SMLoc where = parser.getCurrentLocation();
  std::int64_t count = 1;
  if (succeeded(parser.parseOptionalStar()) && parser.parseInteger(count))
    return failure();
  if (count < 1 || count > static_cast<std::int64_t>(mostPages - frames.size()))
    return parser.emitError(where, "expected between 1 and ") << mostPages << " pages, got " << count;
  frames.append(count, noFrame);
  return success();
}

/// `7` or `0 to 15`
ParseResult parseFrameRun(OpAsmParser &parser, SmallVectorImpl<std::int32_t> &frames) {
  const SMLoc where = parser.getCurrentLocation();
  std::int32_t first = 0;
  if (parser.parseInteger(first))
    return failure();
  std::int32_t last = first;
  if (succeeded(parser.parseOptionalKeyword("to")) && parser.parseInteger(last))
    return failure();
  if (first < 0 || last < first)
    return parser.emitError(where, "expected an ascending run of frames, got ") << first << " to " << last;
  if (static_cast<std::size_t>(last) - first >= mostPages - frames.size())
    return parser.emitError(where, "more than ") << mostPages << " pages";
  for (std::int32_t frame = first; frame < last; ++frame)
    frames.push_back(frame);
  frames.push_back(last);
  return success();
}

/// How many frames from `begin` on are consecutive, or equally absent.
std::size_t runLength(ArrayRef<std::int32_t> frames, std::size_t begin) {
  const std::int32_t step = frames[begin] == noFrame ? 0 : 1;
  std::size_t end = begin + 1;
  while (end < frames.size() && frames[end] - step == frames[end - 1])
    ++end;
  return end - begin;
}

void printRun(OpAsmPrinter &printer, std::int32_t first, std::size_t length) {
  if (first == noFrame)
    printer << "none";
  else
    printer << first;
  if (length == 1)
    return;
  if (first == noFrame)
    printer << " * " << length;
  else
    printer << " to " << first + static_cast<std::int32_t>(length) - 1;
}

/// `keyword([0, 4096], [8192, 4096])`, or nothing.
ParseResult parseRanges(OpAsmParser &parser, StringRef keyword, DenseI64ArrayAttr &offsets, DenseI64ArrayAttr &sizes) {
  if (parser.parseOptionalKeyword(keyword))
    return success();
  SmallVector<std::int64_t> offsetList, sizeList;
  const auto parseOne = [&] { return parseBytes(parser, offsetList.emplace_back(), sizeList.emplace_back()); };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseOne))
    return failure();
  offsets = parser.getBuilder().getDenseI64ArrayAttr(offsetList);
  sizes = parser.getBuilder().getDenseI64ArrayAttr(sizeList);
  return success();
}

void printRanges(OpAsmPrinter &printer, StringRef keyword, DenseI64ArrayAttr offsets, DenseI64ArrayAttr sizes) {
  if (!offsets || offsets.empty())
    return;
  printer << ' ' << keyword << '(';
  for (std::int64_t i = 0; i < offsets.size(); ++i)
    printer << (i > 0 ? ", [" : "[") << offsets[i] << ", " << sizes[i] << ']';
  printer << ')';
}

} // namespace

ParseResult parseFrames(OpAsmParser &parser, DenseI32ArrayAttr &frames) {
  if (parser.parseOptionalKeyword("frames"))
    return success();
  SmallVector<std::int32_t> list;
  const auto parseRun = [&]() -> ParseResult {
    if (succeeded(parser.parseOptionalKeyword("none")))
      return parseMissingFrames(parser, list);
    return parseFrameRun(parser, list);
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseRun))
    return failure();
  frames = parser.getBuilder().getDenseI32ArrayAttr(list);
  return success();
}

void printFrames(OpAsmPrinter &printer, Operation *, DenseI32ArrayAttr frames) {
  if (!frames)
    return;
  const ArrayRef<std::int32_t> list = frames.asArrayRef();
  printer << " frames(";
  for (std::size_t i = 0; i < list.size();) {
    const std::size_t length = runLength(list, i);
    if (i > 0)
      printer << ", ";
    printRun(printer, list[i], length);
    i += length;
  }
  printer << ')';
}

ParseResult parseResident(OpAsmParser &parser, DenseI64ArrayAttr &offsets, DenseI64ArrayAttr &sizes) {
  return parseRanges(parser, "resident", offsets, sizes);
}

void printResident(OpAsmPrinter &printer, Operation *, DenseI64ArrayAttr offsets, DenseI64ArrayAttr sizes) {
  printRanges(printer, "resident", offsets, sizes);
}

ParseResult parseMirrored(OpAsmParser &parser, DenseI64ArrayAttr &offsets, DenseI64ArrayAttr &sizes) {
  return parseRanges(parser, "mirrored", offsets, sizes);
}

void printMirrored(OpAsmPrinter &printer, Operation *, DenseI64ArrayAttr offsets, DenseI64ArrayAttr sizes) {
  printRanges(printer, "mirrored", offsets, sizes);
}

ParseResult parseHosted(OpAsmParser &parser, DenseI64ArrayAttr &offsets, DenseI64ArrayAttr &sizes) {
  return parseRanges(parser, "hosted", offsets, sizes);
}

void printHosted(OpAsmPrinter &printer, Operation *, DenseI64ArrayAttr offsets, DenseI64ArrayAttr sizes) {
  printRanges(printer, "hosted", offsets, sizes);
}

//===----------------------------------------------------------------------===//
// What nodes have in common
//===----------------------------------------------------------------------===//

ParseResult parseLabel(OpAsmParser &parser, StringAttr &label) {
  if (parser.parseOptionalKeyword("label"))
    return success();
  std::string text;
  if (parser.parseLParen() || parser.parseString(&text) || parser.parseRParen())
    return failure();
  label = parser.getBuilder().getStringAttr(text);
  return success();
}

void printLabel(OpAsmPrinter &printer, Operation *, StringAttr label) {
  if (!label || label.empty())
    return;
  printer << " label(";
  printer.printString(label.getValue());
  printer << ')';
}

ParseResult parseCaptured(OpAsmParser &parser, IntegerAttr &captured) {
  if (parser.parseOptionalKeyword("node"))
    return success();
  std::int32_t position = 0;
  if (parser.parseLParen() || parser.parseInteger(position) || parser.parseRParen())
    return failure();
  captured = parser.getBuilder().getI32IntegerAttr(position);
  return success();
}

void printCaptured(OpAsmPrinter &printer, Operation *, IntegerAttr captured) {
  if (captured)
    printer << " node(" << captured.getInt() << ')';
}

ParseResult parseAfter(OpAsmParser &parser, UnresolvedOperands &deps, DenseI8ArrayAttr &edgeKinds) {
  if (parser.parseOptionalKeyword("after"))
    return success();
  SmallVector<std::int8_t> kinds;
  const auto parseOne = [&]() -> ParseResult {
    if (parser.parseOperand(deps.emplace_back()))
      return failure();
    const bool isProgrammatic = succeeded(parser.parseOptionalKeyword("programmatic"));
    kinds.push_back(static_cast<std::int8_t>(isProgrammatic ? EdgeKind::Programmatic : EdgeKind::Full));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseOne))
    return failure();
  if (llvm::is_contained(kinds, static_cast<std::int8_t>(EdgeKind::Programmatic)))
    edgeKinds = parser.getBuilder().getDenseI8ArrayAttr(kinds);
  return success();
}

void printAfter(OpAsmPrinter &printer, Operation *, OperandRange deps, DenseI8ArrayAttr edgeKinds) {
  if (deps.empty())
    return;
  printer << " after(";
  for (const auto &[i, dep] : llvm::enumerate(deps)) {
    printer << (i > 0 ? ", " : "") << dep;
    const bool isListed = edgeKinds && static_cast<std::int64_t>(i) < edgeKinds.size();
    if (isListed && static_cast<EdgeKind>(edgeKinds[i]) == EdgeKind::Programmatic)
      printer << " programmatic";
  }
  printer << ')';
}

ParseResult parseAccesses(OpAsmParser &parser, UnresolvedOperands &buffers, DenseI64ArrayAttr &offsets,
                          DenseI64ArrayAttr &sizes, DenseI8ArrayAttr &may, DenseI8ArrayAttr &must,
                          DenseI8ArrayAttr &evidence, DenseI32ArrayAttr &parameters, DenseF32ArrayAttr &slowdowns,
                          DenseBoolArrayAttr &asides) {
  SmallVector<std::int64_t, 16> offsetList, sizeList;
  SmallVector<std::int8_t, 16> mayList, mustList, evidenceList;
  SmallVector<std::int32_t, 16> parameterList;
  SmallVector<float, 16> slowdownList;
  SmallVector<bool, 16> asideList;
  const auto parseOne = [&]() -> ParseResult {
    if (parseWord(parser, modeWords, modeRead, mayList.emplace_back()) || parser.parseOperand(buffers.emplace_back()) ||
        parseBytes(parser, offsetList.emplace_back(), sizeList.emplace_back()) ||
        parseWord(parser, evidenceWords, 0, evidenceList.emplace_back()))
      return failure();
    std::int8_t &mustMode = mustList.emplace_back(modeNone);
    if (succeeded(parser.parseOptionalKeyword("must")) &&
        (parser.parseLParen() || parseWord(parser, modeWords, modeRead, mustMode) || parser.parseRParen()))
      return failure();
    std::int32_t &parameter = parameterList.emplace_back(unknownParameter);
    if (succeeded(parser.parseOptionalKeyword("parameter")) &&
        (parser.parseLParen() || parser.parseInteger(parameter) || parser.parseRParen()))
      return failure();
    double slowdown = 1;
    if (succeeded(parser.parseOptionalKeyword("slowdown")) &&
        (parser.parseLParen() || parseReal(parser, slowdown) || parser.parseRParen()))
      return failure();
    slowdownList.push_back(static_cast<float>(slowdown));
    asideList.push_back(succeeded(parser.parseOptionalKeyword("aside")));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::OptionalSquare, parseOne))
    return failure();
  Builder &builder = parser.getBuilder();
  offsets = builder.getDenseI64ArrayAttr(offsetList);
  sizes = builder.getDenseI64ArrayAttr(sizeList);
  may = builder.getDenseI8ArrayAttr(mayList);
  must = builder.getDenseI8ArrayAttr(mustList);
  evidence = builder.getDenseI8ArrayAttr(evidenceList);
  parameters = builder.getDenseI32ArrayAttr(parameterList);
  if (llvm::all_of(slowdownList, [](float slowdown) { return slowdown == 1; }))
    slowdownList.clear();
  slowdowns = builder.getDenseF32ArrayAttr(slowdownList);
  if (!llvm::is_contained(asideList, true))
    asideList.clear();
  asides = builder.getDenseBoolArrayAttr(asideList);
  return success();
}

void printAccesses(OpAsmPrinter &printer, AccessOpInterface, OperandRange buffers, DenseI64ArrayAttr offsets,
                   DenseI64ArrayAttr sizes, DenseI8ArrayAttr may, DenseI8ArrayAttr must, DenseI8ArrayAttr evidence,
                   DenseI32ArrayAttr parameters, DenseF32ArrayAttr slowdowns, DenseBoolArrayAttr asides) {
  if (buffers.empty())
    return;
  printer << " [";
  for (const auto &[i, buffer] : llvm::enumerate(buffers)) {
    printer << (i > 0 ? ", " : "") << wordFor(modeWords, may[i]) << ' ' << buffer << '[' << offsets[i] << ", "
            << sizes[i] << "] " << wordFor(evidenceWords, evidence[i]);
    if (must[i] != modeNone)
      printer << " must(" << wordFor(modeWords, must[i]) << ')';
    if (parameters[i] != unknownParameter)
      printer << " parameter(" << parameters[i] << ')';
    if (!slowdowns.empty() && slowdowns[i] != 1)
      printer << " slowdown(" << spellReal(slowdowns[i]) << ')';
    if (!asides.empty() && asides[i])
      printer << " aside";
  }
  printer << ']';
}

static ParseResult parseTime(OpAsmParser &parser, StringRef word, FloatAttr &time) {
  if (parser.parseOptionalKeyword(word))
    return success();
  if (parser.parseLParen())
    return failure();
  double value = 0;
  if (parseReal(parser, value) || parser.parseRParen())
    return failure();
  time = parser.getBuilder().getF64FloatAttr(value);
  return success();
}

static void printTime(OpAsmPrinter &printer, StringRef word, FloatAttr time) {
  if (time)
    printer << ' ' << word << '(' << spellReal(time.getValueAsDouble()) << ')';
}

ParseResult parseCost(OpAsmParser &parser, FloatAttr &cost) {
  return parseTime(parser, "cost", cost);
}

void printCost(OpAsmPrinter &printer, Operation *, FloatAttr cost) {
  printTime(printer, "cost", cost);
}

ParseResult parseArithmetic(OpAsmParser &parser, FloatAttr &time) {
  return parseTime(parser, "arithmetic", time);
}

void printArithmetic(OpAsmPrinter &printer, Operation *, FloatAttr time) {
  printTime(printer, "arithmetic", time);
}

//===----------------------------------------------------------------------===//
// Added nodes
//===----------------------------------------------------------------------===//

ParseResult parseRange(OpAsmParser &parser, IntegerAttr &offset, IntegerAttr &size) {
  if (parser.parseOptionalLSquare())
    return success();
  std::int64_t offsetBytes = 0, sizeBytes = 0;
  if (parser.parseInteger(offsetBytes) || parser.parseComma() || parser.parseInteger(sizeBytes) ||
      parser.parseRSquare())
    return failure();
  offset = parser.getBuilder().getI64IntegerAttr(offsetBytes);
  size = parser.getBuilder().getI64IntegerAttr(sizeBytes);
  return success();
}

void printRange(OpAsmPrinter &printer, Operation *, IntegerAttr offset, IntegerAttr size) {
  if (offset && size)
    printer << '[' << offset.getInt() << ", " << size.getInt() << ']';
}

ParseResult parseAdvice(OpAsmParser &parser, IntegerAttr &advice) {
  std::int8_t value = 0;
  if (parseWord(parser, adviceWords, 1, value))
    return failure();
  advice = parser.getBuilder().getI32IntegerAttr(value);
  return success();
}

void printAdvice(OpAsmPrinter &printer, Operation *, IntegerAttr advice) {
  printer << ' ' << wordFor(adviceWords, advice.getInt());
}

} // namespace pumpgraph::ir
