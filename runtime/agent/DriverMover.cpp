// SPDX-License-Identifier: Apache-2.0
#include "runtime/agent/DriverMover.h"

#include "runtime/agent/ManagedLocation.h"
#include "runtime/memory/AddressSpace.h"

#include <algorithm>

namespace pumpgraph::runtime {
namespace {

using std::chrono::microseconds;

/// What seems to come faster than that has been there. Small pieces take about as long either way.
constexpr std::uint64_t impossibleBytesPerUs = 110'000;
constexpr std::uint64_t leastBytesThatTell = std::uint64_t{8} << 20;

} // namespace

Expected<std::unique_ptr<DriverMover>> DriverMover::create(const Driver &driver, int device,
                                                           const LaneContexts &contexts) {
  std::unique_ptr<DriverMover> mover(new DriverMover(driver, device, contexts));
  PUMPGRAPH_TRY_WHILE(mover->up_.open(), "opening the agent's streams up");
  PUMPGRAPH_TRY_WHILE(mover->down_.open(), "opening the agent's streams down");
  for (const CUcontext context : contexts.beside()) {
    Expected<std::unique_ptr<Evictor>> evictor = Evictor::create(driver, context);
    if (!evictor)
      return inContext(std::move(evictor).error(), "opening the streams of an evictor");
    mover->evictors_.push_back(std::move(*evictor));
  }
  return mover;
}

std::uint64_t DriverMover::streamChanges() const {
  std::uint64_t changes = up_.streamChanges() + down_.streamChanges();
  for (const std::unique_ptr<Evictor> &evictor : evictors_)
    changes += evictor->streamChanges();
  return changes;
}

Mover::Outcome DriverMover::move(const Operation &operation) {
  return tryMove(operation).value_or(Outcome::Failed);
}

Expected<Mover::Outcome> DriverMover::tryMove(const Operation &operation) {
  switch (operation.kind) {
  case Operation::Kind::Evict:
    PUMPGRAPH_TRY(evictTogether({operation.address, operation.bytes}));
    return Outcome::Moved;
  case Operation::Kind::Drop:
    PUMPGRAPH_TRY(drop({operation.address, operation.bytes}));
    return Outcome::Moved;
  case Operation::Kind::Prefetch:
  case Operation::Kind::Discard:
    break;
  }
  return moveUp(operation);
}

Status DriverMover::issue(const Operation &operation, CUstream stream) const {
  CUdeviceptr address = operation.address;
  std::size_t bytes = operation.bytes;
  if (operation.kind == Operation::Kind::Discard)
    return driver_.memDiscardBatchAsync(&address, &bytes, 1, 0, stream);
  return driver_.memPrefetchAsync(address, bytes, onDevice(device_), 0, stream);
}

Expected<Mover::Outcome> DriverMover::moveUp(const Operation &operation) {
  const auto done = up_.carryOut(operation.bytes, [&](CUstream stream) { return issue(operation, stream); });
  PUMPGRAPH_TRY(done);
  const bool tells = operation.kind == Operation::Kind::Prefetch && !operation.mayBringNothing && !done->isRepeated &&
                     operation.bytes >= leastBytesThatTell;
  if (!tells || done->took >= microseconds(operation.bytes / impossibleBytesPerUs))
    return Outcome::Moved;
  ++surprises_;
  return Outcome::WasThere;
}

/// In whole pages, of about the same size.
std::vector<ManagedRange> DriverMover::piecesOf(ManagedRange range) const {
  const std::uint64_t pages = pagesFor(range.bytes), count = std::min<std::uint64_t>(evictedAtOnce(), pages);
  std::vector<ManagedRange> pieces;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t begin = pages * i / count * pageBytes;
    const std::uint64_t end = std::min(range.bytes, pages * (i + 1) / count * pageBytes);
    pieces.push_back({range.address + begin, end - begin});
  }
  return pieces;
}

Status DriverMover::evictTogether(ManagedRange range) {
  const std::vector<ManagedRange> pieces = piecesOf(range);
  for (std::size_t i = 1; i < pieces.size(); ++i)
    evictors_[i - 1]->begin(pieces[i]);
  Status status = evict(driver_, down_, pieces.front());
  for (std::size_t i = 1; i < pieces.size(); ++i) // all of them have to be over, whatever the first one says
    if (const Status other = evictors_[i - 1]->end(); status)
      status = other;
  return status;
}

/// Of two copies of what is read mostly the one at its preferred location stays, that in host memory. There is one
/// there unless somebody has written the page of whom the plan does not know: if that was a kernel, the only copy is on
/// the device, where the next prefetch finds it.
Status DriverMover::drop(ManagedRange range) {
  const std::uint64_t surprises = surprises_;
  std::uint64_t &copiedAfter = copiedAfter_[range.address];
  if (copiedAfter != surprises || range.bytes < leastBytesThatTell)
    PUMPGRAPH_TRY(evictTogether(range));
  copiedAfter = surprises;
  PUMPGRAPH_TRY(down_.makeCurrent());
  const CUmemLocation location = onDevice(device_);
  PUMPGRAPH_TRY(driver_.memAdvise(range.address, range.bytes, CU_MEM_ADVISE_UNSET_READ_MOSTLY, location));
  return driver_.memAdvise(range.address, range.bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, location);
}

} // namespace pumpgraph::runtime
