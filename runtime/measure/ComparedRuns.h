// SPDX-License-Identifier: Apache-2.0
/// \file
/// Runs a kernel several times from the same state and compares the results on the device.
#pragma once

#include "runtime/memory/ByteProbe.h"
#include "runtime/memory/Heap.h"

#include <functional>
#include <vector>

namespace pumpgraph::runtime {

/// The smallest run of whole words that ByteProbe can look at.
Range inWholeWords(const Range &range);
/// `whole`, cut where one of the `accesses` to `buffer` begins or ends, at whole words.
std::vector<Range> cutAtAccesses(const Range &whole, BufferIndex buffer, const std::vector<Access> &accesses);

/// Copies of a kernel's memory, and counts of the bytes that differ between runs. One kernel after another: the first
/// run of each begins with the present contents.
class ComparedRuns {
public:
  /// Bytes under the same accesses.
  struct Piece {
    BufferIndex buffer = 0;
    Range range;               ///< of whole words
    ProbedPiece probed;        ///< the address is given, copies are placed by begin()
    std::size_t group = 0;     ///< pieces that are poisoned together
    bool isKept = true;        ///< the contents ahead of the first run are copied
    bool isBroughtBack = true; ///< further runs begin with that copy; else with the results of the run before
    bool isCompared = true;    ///< with the first run's results
    bool isWritten = false;    ///< if kept: a run has changed it
    bool isStable = true;      ///< if compared: the second run's results equal the first's
    bool isDirty = false;      ///< differs from the contents ahead of the first run, as far as is known
    bool isOtherwise = false;  ///< if compared: differs from the first run's results
  };
  using Launch = std::function<Status()>; ///< onto the stream
  static constexpr std::size_t noGroup = SIZE_MAX;

  ComparedRuns(const Driver &driver, Heap &heap, CUstream stream) : driver_(driver), heap_(heap), stream_(stream) {}
  ~ComparedRuns() { static_cast<void>(release()); }
  ComparedRuns(const ComparedRuns &) = delete;
  ComparedRuns &operator=(const ComparedRuns &) = delete;

  /// The memory that begin() needs for these pieces.
  static std::uint64_t scratchBytes(const std::vector<Piece> &pieces);
  /// Gets so much memory, on the device while the budget lasts.
  Status reserve(std::uint64_t bytes);
  /// Gives it back. Nothing may be running.
  Status release();
  std::uint64_t reservedBytes() const { return bytes_; }

  /// Runs a kernel for the first time. Waits for it.
  Status begin(std::vector<Piece> pieces, Launch launch);
  /// A second run; sets isStable. Waits.
  Status runAgain();
  /// A further run, for which the pieces of `group`, which are kept, are poisoned. Waits. By piece.
  Expected<std::vector<ByteCounts>> runPoisoned(std::size_t group, PoisonKind kind, std::uint32_t poison);
  /// Restores the first run's results where they are compared and gone. Waits.
  Status finish();

  const std::vector<Piece> &pieces() const { return pieces_; }

private:
  Status copy(CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes) const {
    return driver_.memcpyDtoDAsync(to, from, bytes, stream_);
  }
  void placeCopies();
  Status bringBack();
  Expected<std::vector<ByteCounts>> runAndCount(std::size_t group, PoisonKind kind, std::uint32_t poison);

  const Driver &driver_;
  Heap &heap_;
  CUstream stream_;
  std::unique_ptr<ByteProbe> probe_;
  CUdeviceptr scratch_ = 0; ///< counts, then copies
  std::uint64_t bytes_ = 0;
  // Of the kernel that is looked at.
  std::vector<Piece> pieces_;
  Launch launch_;
};

} // namespace pumpgraph::runtime
