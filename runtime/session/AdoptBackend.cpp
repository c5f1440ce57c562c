// SPDX-License-Identifier: Apache-2.0
// The memory that an adopted step gets in a session that chooses.
#include "runtime/session/Adoption.h"

#include "runtime/lower/RenewCopies.h"

#include <algorithm>

namespace pumpgraph::runtime {

Expected<bool> Adoption::isShortOfFrames() {
  PUMPGRAPH_TRY(makeRoom());
  std::uint64_t pages = 0;
  for (const std::vector<BlockId> *blocks : {&step_->captured_.blocks, &step_->captured_.besides})
    for (const BlockId id : *blocks)
      pages += heap_.block(id).hasMemory() ? 0 : heap_.block(id).pages;
  return !heap_.hasFramesFor(pages);
}

Status Adoption::renewIfCapturedElsewhere() {
  if (session_.copiesAreOfManaged_ == session_.managed_)
    return {};
  PUMPGRAPH_TRY(renewCopies(driver_, graph_, *session_.addresses_));
  session_.copiesAreOfManaged_ = session_.managed_;
  return {};
}

bool Adoption::mayHaveBodies() const {
  return std::any_of(step_->lifted_.nodes.begin(), step_->lifted_.nodes.end(), [](const LiftedNode &node) {
    return node.kind == NodeKind::Conditional || (node.kind == NodeKind::ChildGraph && !node.refusal.empty());
  });
}

Status Adoption::chooseBackend() {
  if (!session_.choosesByStep())
    return {};
  std::vector<std::string> &notes = step_->captured_.notes;
  const bool isUnseen = !step_->captured_.refusals.empty();
  const bool isLeft = options_.leaveAsCaptured || !session_.compiler();
  // What is left as captured could be anywhere, and should be where the other steps are.
  const bool wantsManaged = isLeft ? session_.hasManagedStep() && !before_ : isUnseen;
  // A plan of frames is not for addresses in turns, which a capture that was rehearsed on managed memory has.
  const bool hasAddressesInTurns = session_.managed_ && session_.rehearsal_;
  if (wantsManaged == session_.managed_ || (isLeft ? wantsManaged : hasAddressesInTurns))
    return {};
  if (wantsManaged && mayHaveBodies()) {
    notes.push_back("managed memory would take this step if it were captured there, which a rehearsal decides: copies "
                    "in the body of a conditional node go by the memory that they were captured on");
    return {};
  }
  if (wantsManaged && !session_.hasManagedStep()) { // else that step could not have its memory back
    const Expected<bool> isShort = isShortOfFrames();
    if (!isShort)
      return tl::unexpected<Error>(isShort.error());
    if (!*isShort) {
      notes.push_back("the budget has room for all of the step as it was captured, so managed memory would gain "
                      "nothing");
      return {};
    }
  }
  const Expected<std::string> obstacle = wantsManaged ? session_.moveToManaged() : session_.moveToVirtual();
  if (!obstacle)
    return inContext(obstacle.error(), fmt::format("taking other memory for \"{}\"", options_.name));
  if (!obstacle->empty()) {
    notes.push_back(
        fmt::format("{} memory would take this step, but {}", wantsManaged ? "managed" : "virtual", *obstacle));
    return {};
  }
  stoodIn_.clear();
  PUMPGRAPH_TRY(renewIfCapturedElsewhere());
  return describe();
}

std::string Adoption::backendWhy() const {
  if (!session_.choosesByStep())
    return session_.backendWhy_;
  if (step_->rewritten())
    return "virtual memory, because every node of the step can be seen into";
  if (!session_.managed_)
    return session_.backendWhy_;
  return !step_->isManaged() || step_->captured_.refusals.empty()
             ? "managed memory, where the session is"
             : fmt::format("managed memory, because virtual memory does not take {}",
                           step_->captured_.refusals.front());
}

} // namespace pumpgraph::runtime
