// SPDX-License-Identifier: Apache-2.0
/// \file
/// Where every value is in the middle of a planned round, where a program may leave it.
#pragma once

#include "runtime/streams/Call.h"
#include "runtime/streams/IssueList.h"

#include <map>
#include <string>
#include <vector>

namespace pumpgraph::runtime {

/// A page of a buffer, once everything that is issued has completed.
struct PageState {
  bool hasValue = false;
  bool onDevice = false; ///< in its frame
  bool onHost = false;   ///< at its place in host memory, or hosted
};

/// Follows a round of a lowered description, event by event, in the order of issue. That order speaks for all legal
/// ones: the checker has every frame see the same tenants in each.
///
/// A program may leave the round after any event. A value that its memory still holds must then be somewhere, whether
/// the rest of the round would have used it or not. The contract of plans asks for less: there a value that nothing
/// needs again may be lost.
class CutStates {
public:
  CutStates(const Description &lowered, const IssueList &list);

  /// The first `count` operations ahead of the k-th node, or behind the last event.
  void issueCopies(std::size_t node, std::size_t count = SIZE_MAX);
  /// The event has come; a call with all that is issued before it.
  void pass(const RoundEvent &event);

  const std::vector<PageState> &pages(BufferIndex buffer) const { return pages_[buffer]; }
  /// The first value that was lost: "block3 is lost ahead of call 17". Empty: none.
  const std::string &lost() const { return lost_; }
  /// Its buffer; noBuffer: none.
  BufferIndex lostBuffer() const { return lostBuffer_; }

private:
  struct Tenant {
    BufferIndex buffer = noBuffer;
    std::uint64_t page = 0;
  };
  void occupy(BufferIndex buffer, std::uint64_t page);
  void access(const Access &access);
  template <typename Visit> void eachPage(const Range &range, Visit visit) const;

  const Description &lowered_;
  const IssueList &list_;
  std::vector<std::vector<PageState>> pages_;   ///< by buffer
  std::vector<std::vector<bool>> hosted_;       ///< by buffer, page
  std::vector<Tenant> tenants_;                 ///< by frame
  std::map<std::uint64_t, BufferIndex> blocks_; ///< by address
  std::size_t copiesIssued_ = 0;                ///< nodes whose copies are issued
  std::size_t node_ = 0;                        ///< of the round, that is next
  std::string lost_;
  BufferIndex lostBuffer_ = noBuffer;
};

/// Follows the whole round. The reason why a program that leaves it somewhere could lack a value; empty: none.
/// `lost`: the buffer.
std::string checkCuts(const Description &lowered, const RoundScript &script, const IssueList &list, BufferIndex &lost);

} // namespace pumpgraph::runtime
