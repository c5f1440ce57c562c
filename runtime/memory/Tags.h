// SPDX-License-Identifier: Apache-2.0
/// \file
/// Sums over allocations: of a heap, and by the tags that its threads have open.
#pragma once

#include "runtime/driver/Error.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace pumpgraph::runtime {

/// Sizes as requested.
struct HeapStats {
  std::uint64_t liveBytes = 0;
  std::uint64_t liveAllocations = 0;
  std::uint64_t livePeakBytes = 0, livePeakAllocations = 0; ///< since the peaks were reset
  std::uint64_t allocatedBytes = 0, allocations = 0;        ///< ever

  void allocated(std::uint64_t size) {
    liveBytes += size;
    livePeakBytes = std::max(livePeakBytes, liveBytes);
    livePeakAllocations = std::max(livePeakAllocations, ++liveAllocations);
    allocatedBytes += size;
    ++allocations;
  }
  void freed(std::uint64_t size) {
    liveBytes -= size;
    --liveAllocations;
  }
  /// Sets the peaks to the present values.
  void resetPeaks() {
    livePeakBytes = liveBytes;
    livePeakAllocations = liveAllocations;
  }
};

/// A tag of a session.
using TagId = std::uint32_t;
constexpr TagId noTag = 0;

/// A tag and the allocations that carry it or a tag inside it.
struct TagRow {
  std::string tag;
  HeapStats bytes;
};

/// The tags of a session. Which ones are open is each thread's own: a tag that another thread has open, or that a
/// thread has open in another session, tags nothing. A thread that ends closes its tags.
///
/// Not thread-safe.
class Tags {
public:
  static constexpr std::size_t longestName = 255, mostTags = 4096;

  /// Opens a tag inside this thread's innermost one of the session, and gives a number that is used once.
  Expected<std::uint64_t> begin(std::string_view name);
  /// Closes it, if it is this thread's innermost one of the session.
  Status end(std::uint64_t opened);
  /// The innermost open one. Costs a read of a thread-local pointer if the thread has none in any session.
  TagId ofThread() const { return innermost == nullptr ? noTag : findOfThread(); }

  void allocated(TagId tag, std::uint64_t size) {
    for (; tag != noTag; tag = all_[tag - 1].outer)
      all_[tag - 1].row.bytes.allocated(size);
  }
  void freed(TagId tag, std::uint64_t size) {
    for (; tag != noTag; tag = all_[tag - 1].outer)
      all_[tag - 1].row.bytes.freed(size);
  }
  const std::string &nameOf(TagId tag) const { return all_[tag - 1].row.tag; }
  /// Ascending by tag.
  std::vector<TagRow> rows() const;
  void resetPeaks();

private:
  struct Tag {
    TagRow row;
    TagId outer = noTag;
  };
  /// Of a thread, which may outlive the session: `session` keeps the identity from being used again.
  struct Open {
    std::shared_ptr<const char> session;
    TagId tag = noTag;
    std::uint64_t number = 0;
    std::unique_ptr<Open> outer;
  };
  static thread_local constinit Open *innermost;

  static std::unique_ptr<Open> &ownedByThread();
  TagId findOfThread() const;

  std::shared_ptr<const char> identity_ = std::make_shared<const char>('\0');
  std::vector<Tag> all_;
  std::map<std::string, TagId, std::less<>> byName_;
  std::uint64_t lastNumber_ = 0;
};

} // namespace pumpgraph::runtime
