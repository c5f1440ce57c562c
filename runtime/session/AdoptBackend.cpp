// SPDX-License-Identifier: Apache-2.0
// The memory that an adopted step gets in a session that chooses.
#include "runtime/session/Adoption.h"

#include "runtime/lower/RenewCopies.h"
#include "runtime/state/Backend.h"

#include <algorithm>

namespace pumpgraph::runtime {

Expected<bool> Adoption::isShortOfFrames() {
  PUMPGRAPH_TRY(makeRoom());
  std::uint64_t pages = 0;
  for (const std::vector<BlockId> *blocks : {&step_->captured.blocks, &step_->captured.besides})
    for (const BlockId id : *blocks)
      pages += heap_.block(id).hasMemory() ? 0 : heap_.block(id).pages;
  return !heap_.hasFramesFor(pages);
}

Status Adoption::renewIfCapturedElsewhere() {
  if (session_.capture.copiesAreOfManaged == session_.backend.isManaged)
    return {};
  PUMPGRAPH_TRY(renewCopies(driver_, graph_, *session_.memory.addresses));
  session_.capture.copiesAreOfManaged = session_.backend.isManaged;
  return {};
}

bool Adoption::mayHaveBodies() const {
  return std::any_of(step_->graph.lifted.nodes.begin(), step_->graph.lifted.nodes.end(), [](const LiftedNode &node) {
    return node.kind == NodeKind::Conditional || (node.kind == NodeKind::ChildGraph && !node.refusal.empty());
  });
}

Status Adoption::chooseBackend() {
  if (!choosesByStep(session_))
    return {};
  std::vector<std::string> &notes = step_->captured.notes;
  const bool isUnseen = !step_->captured.refusals.empty();
  const bool isLeft = options_.leaveAsCaptured || !compilerOf(session_);
  // What is left as captured could be anywhere, and should be where the other steps are.
  const bool wantsManaged = isLeft ? hasManagedStep(session_) && !before_ : isUnseen;
  // A plan of frames is not for addresses in turns, which a capture that was rehearsed on managed memory has.
  const bool hasAddressesInTurns = session_.backend.isManaged && session_.capture.rehearsal;
  if (wantsManaged == session_.backend.isManaged || (isLeft ? wantsManaged : hasAddressesInTurns))
    return {};
  if (wantsManaged && mayHaveBodies()) {
    notes.push_back("managed memory would take this step if it were captured there, which a rehearsal decides: copies "
                    "in the body of a conditional node go by the memory that they were captured on");
    return {};
  }
  if (wantsManaged && !hasManagedStep(session_)) { // else that step could not have its memory back
    const Expected<bool> isShort = isShortOfFrames();
    if (!isShort)
      return tl::unexpected<Error>(isShort.error());
    if (!*isShort) {
      notes.push_back("the budget has room for all of the step as it was captured, so managed memory would gain "
                      "nothing");
      return {};
    }
  }
  const Expected<std::string> obstacle = wantsManaged ? moveToManaged(session_) : moveToVirtual(session_);
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
  if (!choosesByStep(session_))
    return session_.backend.why;
  if (step_->isRewritten())
    return "virtual memory, because every node of the step can be seen into";
  if (!session_.backend.isManaged)
    return session_.backend.why;
  return !step_->isManaged() || step_->captured.refusals.empty()
             ? "managed memory, where the session is"
             : fmt::format("managed memory, because virtual memory does not take {}", step_->captured.refusals.front());
}

} // namespace pumpgraph::runtime
