// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/ComparedRuns.h"

#include <algorithm>
#include <set>
#include <utility>

namespace pumpgraph::runtime {
namespace {

constexpr std::uint64_t wordBytes = 4;
constexpr std::uint64_t alignment = 512; ///< of the copies

std::uint64_t down(std::uint64_t bytes) {
  return bytes / wordBytes * wordBytes;
}
std::uint64_t up(std::uint64_t bytes) {
  return down(bytes + wordBytes - 1);
}

std::uint64_t countsBytes(std::size_t pieces) {
  return roundUp(pieces * sizeof(ByteCounts), alignment);
}

} // namespace

Range inWholeWords(const Range &range) {
  const std::uint64_t from = down(range.offset);
  return {from, up(range.end()) - from};
}

std::vector<Range> cutAtAccesses(const Range &whole, BufferIndex buffer, const std::vector<Access> &accesses) {
  const Range words = inWholeWords(whole);
  std::set<std::uint64_t> cuts{words.offset, words.end()};
  for (const Access &access : accesses)
    if (access.buffer == buffer)
      for (const std::uint64_t end : {access.range.offset, access.range.end()})
        for (const std::uint64_t at : {down(end), up(end)})
          if (words.offset < at && at < words.end())
            cuts.insert(at);
  std::vector<Range> ranges;
  for (auto from = cuts.begin(); std::next(from) != cuts.end(); ++from)
    ranges.push_back({*from, *std::next(from) - *from});
  return ranges;
}

std::uint64_t ComparedRuns::scratchBytes(const std::vector<Piece> &pieces) {
  std::uint64_t bytes = countsBytes(pieces.size());
  for (const Piece &piece : pieces)
    bytes += (piece.isKept + piece.isCompared) * piece.range.size;
  return bytes;
}

Status ComparedRuns::reserve(std::uint64_t bytes) {
  Expected<std::unique_ptr<ByteProbe>> probe = ByteProbe::load(driver_, stream_);
  if (!probe)
    return tl::unexpected<Error>(probe.error());
  probe_ = std::move(*probe);
  if (bytes == 0)
    return {};
  const Expected<CUdeviceptr> scratch = heap_.allocate(bytes, stream_, "copies for comparison");
  if (!scratch)
    return inContext(scratch.error(), fmt::format("getting {} for copies of operands", bytesText(bytes)));
  scratch_ = *scratch;
  bytes_ = bytes;
  return {};
}

Status ComparedRuns::release() {
  probe_.reset();
  bytes_ = 0;
  if (scratch_ == 0)
    return {};
  PUMPGRAPH_TRY(heap_.free(std::exchange(scratch_, 0), stream_));
  return heap_.flushCache();
}

void ComparedRuns::placeCopies() {
  CUdeviceptr next = scratch_ + countsBytes(pieces_.size());
  const auto take = [&](const Piece &piece) { return std::exchange(next, next + piece.range.size); };
  for (Piece &piece : pieces_) {
    piece.probed.bytes = piece.range.size;
    piece.probed.before = piece.isKept ? take(piece) : 0;
    piece.probed.clean = piece.isCompared ? take(piece) : piece.probed.before;
    if (!piece.isKept) // what is counted as changed then says nothing
      piece.probed.before = piece.probed.clean;
  }
}

Status ComparedRuns::begin(std::vector<Piece> pieces, Launch launch) {
  pieces_ = std::move(pieces);
  launch_ = std::move(launch);
  placeCopies();
  for (const Piece &piece : pieces_)
    if (piece.isKept)
      PUMPGRAPH_TRY(copy(piece.probed.before, piece.probed.address, piece.range.size));
  PUMPGRAPH_TRY(launch_());
  PUMPGRAPH_TRY(driver_.streamSynchronize(stream_));
  for (Piece &piece : pieces_) {
    if (piece.isCompared)
      PUMPGRAPH_TRY(copy(piece.probed.clean, piece.probed.address, piece.range.size));
    piece.isDirty = true;
  }
  return {};
}

Status ComparedRuns::bringBack() {
  for (Piece &piece : pieces_)
    if (piece.isBroughtBack && std::exchange(piece.isDirty, false))
      PUMPGRAPH_TRY(copy(piece.probed.address, piece.probed.before, piece.range.size));
  return {};
}

Expected<std::vector<ByteCounts>> ComparedRuns::runAndCount(std::size_t group, PoisonKind kind, std::uint32_t poison) {
  PUMPGRAPH_TRY(launch_());
  PUMPGRAPH_TRY(driver_.memsetD8Async(scratch_, 0, countsBytes(pieces_.size()), stream_));
  for (std::size_t i = 0; i < pieces_.size(); ++i)
    PUMPGRAPH_TRY(probe_->count(pieces_[i].probed, pieces_[i].group == group ? kind : PoisonKind::None, poison,
                                scratch_ + i * sizeof(ByteCounts)));
  std::vector<ByteCounts> counts(pieces_.size());
  PUMPGRAPH_TRY(driver_.memcpyDtoHAsync(counts.data(), scratch_, counts.size() * sizeof(ByteCounts), stream_));
  PUMPGRAPH_TRY(driver_.streamSynchronize(stream_));
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    Piece &piece = pieces_[i];
    piece.isWritten = piece.isWritten || (piece.isKept && counts[i].changed != 0);
    piece.isDirty = piece.isDirty || counts[i].changed != 0;
    piece.isOtherwise = piece.isCompared && counts[i].other != 0;
  }
  return counts;
}

Status ComparedRuns::runAgain() {
  PUMPGRAPH_TRY(bringBack());
  const Expected<std::vector<ByteCounts>> counts = runAndCount(noGroup, PoisonKind::None, 0);
  if (!counts)
    return tl::unexpected<Error>(counts.error());
  for (Piece &piece : pieces_)
    piece.isStable = !piece.isOtherwise;
  return {};
}

Expected<std::vector<ByteCounts>> ComparedRuns::runPoisoned(std::size_t group, PoisonKind kind, std::uint32_t poison) {
  PUMPGRAPH_TRY(bringBack());
  for (Piece &piece : pieces_)
    if (piece.group == group) {
      PUMPGRAPH_TRY(probe_->poison(piece.probed, kind, poison));
      piece.isDirty = true;
    }
  return runAndCount(group, kind, poison);
}

Status ComparedRuns::finish() {
  for (Piece &piece : pieces_)
    if (std::exchange(piece.isOtherwise, false))
      PUMPGRAPH_TRY(copy(piece.probed.address, piece.probed.clean, piece.range.size));
  return driver_.streamSynchronize(stream_);
}

} // namespace pumpgraph::runtime
