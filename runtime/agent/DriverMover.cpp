// SPDX-License-Identifier: Apache-2.0
#include "runtime/agent/DriverMover.h"

#include "runtime/agent/ManagedLocation.h"
#include "runtime/memory/AddressSpace.h"

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
  Expected<std::unique_ptr<Evictors>> evictors = Evictors::create(driver, contexts.down());
  if (!evictors)
    return inContext(std::move(evictors).error(), "opening the agent's streams down");
  mover->evictors_ = std::move(*evictors);
  return mover;
}

void DriverMover::forgetCopies() {
  const std::lock_guard lock(mutex_);
  copiedAfter_.clear();
}

std::uint64_t DriverMover::streamChanges() const {
  return up_.streamChanges() + evictors_->streamChanges();
}

Mover::Outcome DriverMover::move(const Operation &operation) {
  return tryMove(operation).value_or(Outcome::Failed);
}

Expected<Mover::Outcome> DriverMover::tryMove(const Operation &operation) {
  switch (operation.kind) {
  case Operation::Kind::Evict:
    PUMPGRAPH_TRY(evictors_->evict({operation.address, operation.bytes}));
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

/// Whether the copy of a range in host memory is good.
bool DriverMover::isCopied(ManagedRange range, std::uint64_t surprises) {
  const std::lock_guard lock(mutex_);
  return range.bytes >= leastBytesThatTell && copiedAfter_[range.address] == surprises;
}

/// Of two copies of what is read mostly the one at its preferred location stays, that in host memory. There is one
/// there unless somebody has written the page of whom the plan does not know: if that was a kernel, the only copy is on
/// the device, where the next prefetch finds it.
Status DriverMover::drop(ManagedRange range) {
  const std::uint64_t surprises = surprises_;
  if (!isCopied(range, surprises))
    PUMPGRAPH_TRY(evictors_->evict(range));
  const std::lock_guard lock(mutex_);
  copiedAfter_[range.address] = surprises;
  PUMPGRAPH_TRY(evictors_->makeCurrent());
  const CUmemLocation location = onDevice(device_);
  PUMPGRAPH_TRY(driver_.memAdvise(range.address, range.bytes, CU_MEM_ADVISE_UNSET_READ_MOSTLY, location));
  return driver_.memAdvise(range.address, range.bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, location);
}

} // namespace pumpgraph::runtime
