// SPDX-License-Identifier: Apache-2.0
#include "runtime/lower/PlannedBlock.h"

namespace pumpgraph::runtime {

std::vector<FrameId> PlannedBlock::residentFrames() const {
  std::vector<FrameId> found = frames;
  for (std::size_t page = 0; page < found.size(); ++page)
    if (!resident[page])
      found[page] = noFrame;
  return found;
}

std::vector<PlannedBlock::Piece> PlannedBlock::pieces() const {
  std::vector<Piece> found;
  for (std::size_t page = 0; page < place.size(); ++page) {
    const std::uint64_t offset = page * pageBytes;
    const bool isResident = resident[page];
    const std::uint64_t at = isResident && !mirrored[page] ? noPlace : place[page];
    if (!isResident && at == noPlace && !(hosted[page] && hasValue)) // no value
      continue;
    const bool continues =
        !found.empty() && found.back().resident == isResident && found.back().offset + found.back().bytes == offset &&
        (at == noPlace ? found.back().place == noPlace
                       : found.back().place != noPlace && found.back().place + found.back().bytes == at);
    if (continues)
      found.back().bytes += bytesOf(page);
    else
      found.push_back({offset, bytesOf(page), at, isResident});
  }
  return found;
}

Status ValueCopies::copyPlaces(const PlannedBlock &planned, CUdeviceptr base, bool toPlaces) const {
  for (const PlannedBlock::Piece &piece : planned.pieces()) {
    if (piece.isAtAddress())
      continue;
    const Status copied =
        toPlaces
            ? tools_.driver.memcpyDtoHAsync(pools_.at(piece.place), base + piece.offset, piece.bytes, tools_.stream)
            : tools_.driver.memcpyHtoDAsync(base + piece.offset, pools_.at(piece.place), piece.bytes, tools_.stream);
    PUMPGRAPH_TRY_WHILE(copied, "moving {} of block {} {} the pinned pool", bytesText(piece.bytes), planned.block,
                        toPlaces ? "to" : "from");
  }
  return {};
}

Status ValueCopies::copyResident(const PlannedBlock &planned, CUdeviceptr from, CUdeviceptr to) const {
  for (const PlannedBlock::Piece &piece : planned.pieces())
    if (piece.resident)
      PUMPGRAPH_TRY_WHILE(
          tools_.driver.memcpyDtoDAsync(to + piece.offset, from + piece.offset, piece.bytes, tools_.stream),
          "moving {} of block {}", bytesText(piece.bytes), planned.block);
  return {};
}

Status ValueCopies::copyMirrored(const PlannedBlock &planned, CUdeviceptr base) const {
  for (const PlannedBlock::Piece &piece : planned.pieces())
    if (piece.resident && piece.place != noPlace)
      PUMPGRAPH_TRY_WHILE(
          tools_.driver.memcpyDtoHAsync(pools_.at(piece.place), base + piece.offset, piece.bytes, tools_.stream),
          "mirroring {} of block {} in the pinned pool", bytesText(piece.bytes), planned.block);
  return {};
}

Status ValueCopies::copyHosted(const PlannedBlock &planned, CUdeviceptr base, bool toHosted) const {
  for (const HostedRun &run : planned.hostedRuns) {
    if (!planned.hasValue)
      return {};
    const std::uint64_t offset = run.firstPage * pageBytes;
    const std::uint64_t bytes = std::min(run.pages * pageBytes, planned.bytes - offset);
    Window window(tools_);
    PUMPGRAPH_TRY(window.open(run.pages, run.memory->handle()));
    const CUdeviceptr here = window.address(), there = base + offset;
    PUMPGRAPH_TRY_WHILE(
        tools_.driver.memcpyDtoDAsync(toHosted ? here : there, toHosted ? there : here, bytes, tools_.stream),
        "moving {} of block {} {} host memory", bytesText(bytes), planned.block, toHosted ? "to" : "from");
    PUMPGRAPH_TRY(waitForDevice(tools_, "memory is mapped anew"));
    PUMPGRAPH_TRY(window.close());
  }
  return {};
}

Status mapPlanned(const MemoryTools &tools, const PlannedBlock &planned) {
  const CUdeviceptr address = tools.heap.block(planned.block).address;
  PUMPGRAPH_TRY(tools.mapper.mapFrames(address, planned.frames));
  for (const HostedRun &run : planned.hostedRuns)
    PUMPGRAPH_TRY(
        tools.mapper.mapHandle(address + run.firstPage * pageBytes, run.pages * pageBytes, run.memory->handle()));
  return {};
}

Status unmapPlanned(const MemoryTools &tools, const PlannedBlock &planned) {
  const CUdeviceptr address = tools.heap.block(planned.block).address;
  PUMPGRAPH_TRY(tools.mapper.unmapFrames(address, planned.frames));
  for (const HostedRun &run : planned.hostedRuns)
    PUMPGRAPH_TRY(tools.mapper.unmapHandle(address + run.firstPage * pageBytes, run.pages * pageBytes));
  return {};
}

Status waitForDevice(const MemoryTools &tools, const char *purpose) {
  PUMPGRAPH_TRY_WHILE(tools.driver.ctxSynchronize(), "waiting for the device before {}", purpose);
  return {};
}

} // namespace pumpgraph::runtime
