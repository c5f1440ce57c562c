// SPDX-License-Identifier: Apache-2.0
#include "runtime/agent/Evictors.h"

#include "runtime/agent/ManagedLocation.h"
#include "runtime/memory/AddressSpace.h"

#include <algorithm>

namespace pumpgraph::runtime {
namespace {

/// At most `most`, in whole pages, of about the same size.
std::vector<ManagedRange> piecesOf(ManagedRange range, std::size_t most) {
  const std::uint64_t pages = pagesFor(range.bytes), count = std::min<std::uint64_t>(most, pages);
  std::vector<ManagedRange> pieces;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t begin = pages * i / count * pageBytes;
    const std::uint64_t end = std::min(range.bytes, pages * (i + 1) / count * pageBytes);
    pieces.push_back({range.address + begin, end - begin});
  }
  return pieces;
}

} // namespace

Expected<std::unique_ptr<Evictors>> Evictors::create(const Driver &driver, const std::vector<CUcontext> &contexts) {
  std::unique_ptr<Evictors> evictors(new Evictors(driver));
  for (const CUcontext context : contexts) {
    evictors->lanes_.push_back(std::make_unique<StreamLane>(driver, context));
    PUMPGRAPH_TRY(evictors->lanes_.back()->open());
  }
  for (const std::unique_ptr<StreamLane> &lane : evictors->lanes_)
    evictors->threads_.emplace_back([own = evictors.get(), &lane = *lane] { own->run(lane); });
  return evictors;
}

Evictors::~Evictors() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  begun_.notify_all();
  for (std::thread &thread : threads_)
    thread.join();
}

std::uint64_t Evictors::streamChanges() const {
  std::uint64_t changes = 0;
  for (const std::unique_ptr<StreamLane> &lane : lanes_)
    changes += lane->streamChanges();
  return changes;
}

Status Evictors::evict(ManagedRange range) {
  std::unique_lock lock(mutex_);
  ++underWay_;
  Eviction eviction;
  eviction.pieces = piecesOf(range, (count() + underWay_ - 1) / underWay_);
  waiting_.push_back(&eviction);
  begun_.notify_all();
  over_.wait(lock, [&] { return eviction.over == eviction.pieces.size(); });
  --underWay_;
  return eviction.status;
}

void Evictors::run(StreamLane &lane) {
  std::unique_lock lock(mutex_);
  while (true) {
    begun_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty())
      return;
    Eviction &eviction = *waiting_.front();
    const ManagedRange piece = eviction.pieces[eviction.begun++];
    if (eviction.begun == eviction.pieces.size())
      waiting_.pop_front();
    lock.unlock();
    const Status status = evictPiece(lane, piece);
    lock.lock();
    if (eviction.status)
      eviction.status = status;
    if (++eviction.over == eviction.pieces.size())
      over_.notify_all();
  }
}

Status Evictors::evictPiece(StreamLane &lane, ManagedRange piece) const {
  const auto issue = [&](CUstream stream) {
    return driver_.memPrefetchAsync(piece.address, piece.bytes, inHostMemory(), 0, stream);
  };
  PUMPGRAPH_TRY(lane.carryOut(piece.bytes, issue));
  return {};
}

} // namespace pumpgraph::runtime
