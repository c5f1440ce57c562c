// SPDX-License-Identifier: Apache-2.0
#include "pumpgraph/graph/Dialect.h"

#include "graph/Syntax.h"
#include "pumpgraph/graph/Printable.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;

#include "graph/PumpDialect.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "graph/PumpTypes.cpp.inc"

#include "graph/PumpInterfaces.cpp.inc"

#define GET_OP_CLASSES
#include "graph/PumpOps.cpp.inc"

namespace pumpgraph::ir {

namespace {

/// Names in a message are from outside, and messages go to terminals.
void makePrintable(Diagnostic &diagnostic) {
  for (std::size_t i = 0, count = diagnostic.getArguments().size(); i < count; ++i) {
    const DiagnosticArgument argument = diagnostic.getArguments()[i];
    if (argument.getKind() != DiagnosticArgument::DiagnosticArgumentKind::String)
      continue;
    const StringRef text = argument.getAsString();
    std::string shown = printable(text);
    if (text == shown)
      continue;
    diagnostic << shown; // owns the text; the argument goes where it belongs, and leaves none
    diagnostic.getArguments()[i] = diagnostic.getArguments().back();
    diagnostic.getArguments().back() = DiagnosticArgument(StringRef());
  }
}

/// Hands every message on to whoever prints it.
LogicalResult makeAllPrintable(Diagnostic &diagnostic) {
  makePrintable(diagnostic);
  for (Diagnostic &note : diagnostic.getNotes()) {
    // That is IR, which spells names in ASCII and has lines of its own.
    const ArrayRef<DiagnosticArgument> arguments = note.getArguments();
    const bool showsOp = !arguments.empty() &&
                         arguments.front().getKind() == DiagnosticArgument::DiagnosticArgumentKind::String &&
                         arguments.front().getAsString().starts_with("see current operation");
    if (!showsOp)
      makePrintable(note);
  }
  return failure();
}

} // namespace

void PumpDialect::initialize() {
  getContext()->getDiagEngine().registerHandler(makeAllPrintable);
  addTypes<
#define GET_TYPEDEF_LIST
#include "graph/PumpTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "graph/PumpOps.cpp.inc"
      >();
}

BufferOp bufferOf(RangeOpInterface node) {
  return node.getBuffer().getDefiningOp<BufferOp>();
}

Range rangeOf(RangeOpInterface node) {
  if (!node.getOffsetAttr())
    return {0, bufferOf(node).getSize()};
  return {static_cast<std::uint64_t>(node.getOffsetAttr().getInt()),
          static_cast<std::uint64_t>(node.getSizeAttr().getInt())};
}

std::vector<Range> rangesOf(ArrayRef<std::int64_t> offsets, ArrayRef<std::int64_t> sizes) {
  std::vector<Range> ranges;
  for (const auto [offset, size] : llvm::zip_equal(offsets, sizes))
    ranges.push_back({static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(size)});
  return ranges;
}

//===----------------------------------------------------------------------===//
// Names in text
//===----------------------------------------------------------------------===//

namespace {

StringRef tokenPrefix(NodeKind kind) {
  switch (kind) {
  case NodeKind::Kernel:
    return "k";
  case NodeKind::Memcpy:
    return "copy";
  case NodeKind::Memset:
    return "set";
  case NodeKind::Rematerialize:
    return "again";
  default:
    return "n";
  }
}

} // namespace

void BufferOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getBuffer(), getName().empty() ? StringRef("buffer") : getName());
}

void nameToken(NodeOpInterface node, OpAsmSetValueNameFn setName) {
  SmallString<64> name;
  llvm::raw_svector_ostream stream(name);
  BufferOp buffer;
  if (auto added = dyn_cast<RangeOpInterface>(node.getOperation()))
    buffer = bufferOf(added);
  if (buffer)
    stream << buffer.getName() << '.' << node->getName().stripDialect();
  else
    stream << tokenPrefix(node.getNodeKind());
  if (!buffer && node.getCaptured())
    stream << *node.getCaptured();
  if (auto again = dyn_cast<RematerializeOp>(node.getOperation()))
    stream << again.getRepeats();
  setName(node.getDone(), name);
}

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

namespace {

/// `bytes` may come from text: negative offsets and sizes are possible.
bool isInside(std::int64_t offset, std::int64_t size, std::uint64_t bytes) {
  return offset >= 0 && size > 0 && static_cast<std::uint64_t>(offset) < bytes &&
         static_cast<std::uint64_t>(size) <= bytes - static_cast<std::uint64_t>(offset);
}

bool isPageAligned(std::uint64_t offset, std::uint64_t size, std::uint64_t pageBytes, std::uint64_t bytes) {
  return offset % pageBytes == 0 && (size % pageBytes == 0 || offset + size == bytes);
}

std::uint64_t pageBytesOf(Operation *op) {
  return cast<GraphOp>(op->getParentOp()).getPageBytes();
}

InFlightDiagnostic &pointAt(InFlightDiagnostic &diagnostic, BufferOp buffer) {
  diagnostic.attachNote(buffer.getLoc()) << "the buffer has " << buffer.getSize() << " bytes";
  return diagnostic;
}

/// The ranges in one `state`.
LogicalResult verifyRanges(BufferOp buffer, StringRef state, ArrayRef<std::int64_t> offsets,
                           ArrayRef<std::int64_t> sizes) {
  if (offsets.size() != sizes.size())
    return buffer.emitOpError() << "has " << offsets.size() << ' ' << state << " offsets but " << sizes.size()
                                << " sizes";
  std::int64_t end = 0;
  for (const auto &[i, offset, size] : llvm::enumerate(offsets, sizes)) {
    if (!isInside(offset, size, buffer.getSize()))
      return buffer.emitOpError() << state << " range #" << i << " [" << offset << ", " << size
                                  << "] is not inside the buffer of " << buffer.getSize() << " bytes";
    if (!isPageAligned(offset, size, pageBytesOf(buffer), buffer.getSize()))
      return buffer.emitOpError() << state << " range #" << i << " [" << offset << ", " << size
                                  << "] is not made of whole pages of " << pageBytesOf(buffer) << " bytes";
    if (offset < end)
      return buffer.emitOpError() << state << " range #" << i << " begins at byte " << offset
                                  << ", before the end of the one before it at byte " << end;
    end = offset + size;
  }
  return success();
}

LogicalResult verifyMirrored(BufferOp buffer) {
  const std::vector<Range> resident = rangesOf(buffer.getResidentOffsets(), buffer.getResidentSizes());
  const std::vector<Range> mirrored = rangesOf(buffer.getMirroredOffsets(), buffer.getMirroredSizes());
  for (const auto &[i, range] : llvm::enumerate(mirrored)) {
    if (!buffer.getIsPrivate() || !buffer.getLiveOut())
      return buffer.emitOpError() << "has mirrored range #" << i << " [" << range.offset << ", " << range.size
                                  << "] but is not " << (buffer.getIsPrivate() ? "live_out" : "private");
    if (!covers(resident, range))
      return buffer.emitOpError() << "mirrored range #" << i << " [" << range.offset << ", " << range.size
                                  << "] is not inside the resident ranges";
  }
  return success();
}

LogicalResult verifyPresent(BufferOp buffer) {
  if (!buffer.getPresent())
    return success();
  if (!buffer.getIsPrivate() || !buffer.getLiveOut())
    return buffer.emitOpError() << "is present, but not " << (buffer.getIsPrivate() ? "live_out" : "private");
  if (!buffer.getMirroredSizes().empty())
    return buffer.emitOpError()
           << "is present, so it cannot have mirrored ranges: what is written meanwhile makes them stale";
  return success();
}

LogicalResult verifyHosted(BufferOp buffer) {
  const std::vector<Range> resident = rangesOf(buffer.getResidentOffsets(), buffer.getResidentSizes());
  const std::vector<Range> hosted = rangesOf(buffer.getHostedOffsets(), buffer.getHostedSizes());
  for (const auto &[i, range] : llvm::enumerate(hosted)) {
    if (!buffer.getIsPrivate())
      return buffer.emitOpError() << "has hosted range #" << i << " [" << range.offset << ", " << range.size
                                  << "] but is not private";
    if (overlaps(resident, range))
      return buffer.emitOpError() << "hosted range #" << i << " [" << range.offset << ", " << range.size
                                  << "] is resident in part";
  }
  return success();
}

} // namespace

LogicalResult BufferOp::verify() {
  if (getAddress() && *getAddress() > std::numeric_limits<std::int64_t>::max() - getSize())
    return emitOpError() << "of " << getSize() << " bytes at address 0x" << llvm::utohexstr(*getAddress(), true)
                         << " leaves the address space";
  const std::uint64_t pages = (getSize() - 1) / pageBytesOf(*this) + 1;
  if (pages > mostPages)
    return emitOpError() << "has " << pages << " pages of " << pageBytesOf(*this) << " bytes; at most " << mostPages
                         << " can be planned";
  if (const std::optional<ArrayRef<std::int32_t>> frames = getFrames()) {
    if (frames->size() != pages)
      return emitOpError() << "has " << pages << " pages of " << pageBytesOf(*this) << " bytes but names "
                           << frames->size() << " frames";
    for (const auto &[page, frame] : llvm::enumerate(*frames))
      if (frame < noFrame)
        return emitOpError() << "page " << page << " names frame " << frame;
  }
  if (failed(verifyRanges(*this, "resident", getResidentOffsets(), getResidentSizes())) ||
      failed(verifyRanges(*this, "mirrored", getMirroredOffsets(), getMirroredSizes())) ||
      failed(verifyRanges(*this, "hosted", getHostedOffsets(), getHostedSizes())) || failed(verifyMirrored(*this)) ||
      failed(verifyPresent(*this)))
    return failure();
  if (getContinues())
    if (auto before = getContinues().getDefiningOp<BufferOp>(); before && before.getSize() != getSize())
      return emitOpError() << "of " << getSize() << " bytes continues one of " << before.getSize() << " bytes";
  return verifyHosted(*this);
}

LogicalResult GraphOp::verify() {
  if (const std::uint32_t stage = getStage(); stage > static_cast<std::uint32_t>(Stage::LoweredManaged))
    return emitOpError("is of the unknown stage ") << stage;
  return success();
}

/// `captured`: the ops before it, by their position.
static LogicalResult verifyRepetition(RematerializeOp again,
                                      const llvm::DenseMap<std::uint32_t, Operation *> &captured) {
  if (again.getCaptured())
    return again.emitOpError("is captured as well");
  const auto original = captured.find(again.getRepeats());
  if (original == captured.end())
    return again.emitOpError("repeats captured node ") << again.getRepeats() << ", which does not come before it";
  if (isRepeatable(cast<NodeOpInterface>(original->second).getNodeKind()))
    return success();
  InFlightDiagnostic diagnostic = again.emitOpError("repeats what is no kernel, copy or fill");
  diagnostic.attachNote(original->second->getLoc()) << "the node that it repeats";
  return diagnostic;
}

LogicalResult GraphOp::verifyRegions() {
  llvm::DenseMap<std::uint32_t, Operation *> nodes;
  const auto stage = static_cast<Stage>(getStage());
  for (Operation &op : getBody().front()) {
    auto node = dyn_cast<NodeOpInterface>(op);
    auto buffer = dyn_cast<BufferOp>(op);
    if (!node && !buffer)
      return op.emitOpError("is neither a buffer nor a node of a step");
    const std::string fault = node ? stageFault(node.getNodeKind(), stage)
                                   : stageFault(bool(buffer.getFrames()), bool(buffer.getContinues()), stage);
    if (!fault.empty())
      return op.emitOpError() << fault;
    if (auto again = dyn_cast<RematerializeOp>(op); again && failed(verifyRepetition(again, nodes)))
      return failure();
    if (!node || !node.getCaptured())
      continue;
    const auto [found, isNew] = nodes.try_emplace(*node.getCaptured(), &op);
    if (isNew)
      continue;
    InFlightDiagnostic diagnostic = op.emitOpError("captured node ") << *node.getCaptured() << " occurs twice";
    diagnostic.attachNote(found->second->getLoc()) << "here for the first time";
    return diagnostic;
  }
  return success();
}

/// Of what is given in microseconds, if it is.
static LogicalResult verifyTime(Operation *node, StringRef what, std::optional<llvm::APFloat> given) {
  if (!given)
    return success();
  const double time = given->convertToDouble();
  if (std::isnan(time))
    return node->emitOpError(what) << " is not a number";
  if (time < 0 || std::isinf(time))
    return node->emitOpError(what) << " is " << (time < 0 ? "negative" : "infinite");
  return success();
}

LogicalResult verifyNode(NodeOpInterface node) {
  const ArrayRef<std::int8_t> kinds = node.getEdgeKinds();
  const std::size_t deps = node.getDeps().size();
  if (!kinds.empty() && kinds.size() != deps)
    return node.emitOpError() << "has " << deps << " dependencies but " << kinds.size() << " edge kinds";
  for (const auto &[i, kind] : llvm::enumerate(kinds))
    if (kind != static_cast<std::int8_t>(EdgeKind::Full) && kind != static_cast<std::int8_t>(EdgeKind::Programmatic))
      return node.emitOpError() << "dependency #" << i << " is of the unknown kind " << static_cast<int>(kind);

  llvm::SmallDenseMap<Value, std::size_t> seen;
  for (const auto &[i, dep] : llvm::enumerate(node.getDeps()))
    if (const auto [found, isNew] = seen.try_emplace(dep, i); !isNew)
      return node.emitOpError() << "dependencies #" << found->second << " and #" << i << " are the same node";

  return verifyTime(node, "cost", node.getCostUs());
}

namespace {

LogicalResult verifyAccess(AccessOpInterface node, std::size_t i) {
  const std::int64_t offset = node.getOffsets()[i], size = node.getSizes()[i];
  const std::int8_t may = node.getMay()[i], must = node.getMust()[i], evidence = node.getEvidence()[i];
  if (may <= modeNone || may > modeReadWrite)
    return node.emitOpError("access #") << i << " has the unknown mode " << static_cast<int>(may);
  if (must < modeNone || (must & ~may) != 0)
    return node.emitOpError("access #") << i << " must do what it may not do";
  if (evidence < 0 || evidence > static_cast<std::int8_t>(Evidence::Allocated))
    return node.emitOpError("access #") << i << " has the unknown evidence " << static_cast<int>(evidence);
  if (node.getParameters()[i] < unknownParameter)
    return node.emitOpError("access #") << i << " has the parameter position " << node.getParameters()[i];
  if (const ArrayRef<float> slowdowns = node.getSlowdowns(); !slowdowns.empty() && !isSlowdown(slowdowns[i]))
    return node.emitOpError("access #") << i << " has the slowdown " << slowdowns[i] << ", which is no positive number";
  if (size <= 0)
    return node.emitOpError("access #") << i << " has an empty range of " << size << " bytes";
  auto buffer = node.getBuffers()[i].getDefiningOp<BufferOp>();
  if (!buffer)
    return node.emitOpError("access #") << i << " is to a value that no pump.buffer defines";
  if (isInside(offset, size, buffer.getSize()))
    return success();
  InFlightDiagnostic diagnostic = node.emitOpError("access #")
                                  << i << " [" << offset << ", " << size << "] is not inside its buffer";
  return pointAt(diagnostic, buffer);
}

} // namespace

/// What no access of the node says alone.
static LogicalResult verifyAsides(AccessOpInterface node, NodeKind kind) {
  std::vector<Access> accesses;
  for (const auto &[i, isAside] : llvm::enumerate(node.getAsides())) {
    Access &access = accesses.emplace_back();
    access.isAside = isAside;
    access.range = {static_cast<std::uint64_t>(node.getOffsets()[i]), static_cast<std::uint64_t>(node.getSizes()[i])};
    const auto named = llvm::find(node.getBuffers(), node.getBuffers()[i]);
    access.buffer = static_cast<BufferIndex>(std::distance(node.getBuffers().begin(), named));
    if (!isAside)
      continue;
    if (kind == NodeKind::Rematerialize)
      return node.emitOpError("access #") << i << " is aside, but a repetition leaves such accesses out";
    if (!node.getIsPure())
      return node.emitOpError("access #") << i << " is aside, but the node is not pure";
    if (node.getParameters()[i] == unknownParameter)
      return node.emitOpError("access #") << i << " is aside, but its parameter is not known";
  }
  if (const std::size_t other = accessBesideOneAside(accesses); other < accesses.size())
    return node.emitOpError("access #") << other << " is not aside, but another one of the same bytes is";
  return success();
}

LogicalResult verifyAccesses(AccessOpInterface node) {
  const NodeKind kind = cast<NodeOpInterface>(node.getOperation()).getNodeKind();
  if (node.getIsPure() && !isRepeatable(kind) && kind != NodeKind::Rematerialize)
    return node.emitOpError("is pure, but no kernel, copy or fill");
  const std::size_t count = node.getBuffers().size();
  for (const std::size_t length : {node.getOffsets().size(), node.getSizes().size(), node.getMay().size(),
                                   node.getMust().size(), node.getEvidence().size(), node.getParameters().size()})
    if (length != count)
      return node.emitOpError() << "accesses " << count << " buffers but describes " << length << " accesses";
  if (const std::size_t length = node.getSlowdowns().size(); length != 0 && length != count)
    return node.emitOpError() << "accesses " << count << " buffers but tells the slowdown of " << length;
  if (const std::size_t length = node.getAsides().size(); length != 0 && length != count)
    return node.emitOpError() << "accesses " << count << " buffers but tells of " << length
                              << " whether they are aside";
  if (failed(verifyTime(node, "arithmetic", node.getArithmeticUs())))
    return failure();
  for (std::size_t i = 0; i < count; ++i)
    if (failed(verifyAccess(node, i)))
      return failure();
  return verifyAsides(node, kind);
}

namespace {

LogicalResult verifyAdvice(AdviseOp advise) {
  const auto advice = static_cast<std::int32_t>(advise.getAdvice());
  if (advice <= static_cast<int>(Advice::None) || advice > static_cast<int>(Advice::AccessedBy))
    return advise.emitOpError("gives the unknown advice ") << advice;
  return success();
}

LogicalResult verifyTransfer(RangeOpInterface node, BufferOp buffer, const Range &range) {
  if (!buffer.getIsPrivate()) {
    InFlightDiagnostic diagnostic = node.emitOpError("moves a buffer that is not private");
    diagnostic.attachNote(buffer.getLoc()) << "the buffer's frames are its own at all times";
    return diagnostic;
  }
  std::uint64_t hostOffset = 0;
  if (auto copy = dyn_cast<CopyToHostOp>(node.getOperation()))
    hostOffset = copy.getHostOffset();
  if (auto copy = dyn_cast<CopyToDeviceOp>(node.getOperation()))
    hostOffset = copy.getHostOffset();
  if (hostOffset > std::numeric_limits<std::int64_t>::max() - range.size)
    return node.emitOpError("host offset ") << hostOffset << " is too large for " << range.size << " bytes";
  return success();
}

} // namespace

LogicalResult verifyRange(RangeOpInterface node) {
  BufferOp buffer = bufferOf(node);
  if (!buffer)
    return node.emitOpError("concerns a value that no pump.buffer defines");
  if (!node.getOffsetAttr() != !node.getSizeAttr())
    return node.emitOpError("names an offset or a size, but not both");
  const Range range = rangeOf(node);
  const auto offset = static_cast<std::int64_t>(range.offset), size = static_cast<std::int64_t>(range.size);
  if (size <= 0)
    return node.emitOpError("has an empty range of ") << size << " bytes";
  if (!isInside(offset, size, buffer.getSize())) {
    InFlightDiagnostic diagnostic = node.emitOpError("range [")
                                    << offset << ", " << size << "] is not inside its buffer";
    return pointAt(diagnostic, buffer);
  }
  if (!isPageAligned(range.offset, range.size, pageBytesOf(node), buffer.getSize()))
    return node.emitOpError("range [") << offset << ", " << size << "] is not made of whole pages of "
                                       << pageBytesOf(node) << " bytes";
  if (auto advise = dyn_cast<AdviseOp>(node.getOperation()))
    return verifyAdvice(advise);
  return verifyTransfer(node, buffer, range);
}

} // namespace pumpgraph::ir
