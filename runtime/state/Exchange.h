// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which of a session's plans is in force, and how one takes the place of another.
#pragma once

#include "runtime/state/StepState.h"

namespace pumpgraph::runtime {

StepState *stepInForce(const SessionState &session);
/// The other steps that share this one's boundary.
std::vector<StepState *> sharers(const StepState &step);
/// The session's device frames that a plan of this step has to leave alone: those of allocations that no rewritten
/// step uses, and of other steps' exclusive buffers.
std::uint64_t otherFrames(const StepState &step);
/// Puts values that were brought back where a replay expects them. PUMPGRAPH_INVALID_ARGUMENT while one is mapped.
Status settle(const StepState &step, const char *purpose);
/// Has the steps that share one residence share another, made from it.
void replaceResidence(SessionState &session, const std::shared_ptr<Residence> &old,
                      const std::shared_ptr<Residence> &made);
/// Puts the plan of a rewritten step in force in place of the one that is. If that fails, that one goes on, unless a
/// driver failure cost it its memory.
Status putInForce(StepState &step);
/// Puts a residence in force while no other is, after getting it the frames it wants.
Status install(SessionState &session, Residence &residence);
Status takePlanBack(SessionState &session);

} // namespace pumpgraph::runtime
