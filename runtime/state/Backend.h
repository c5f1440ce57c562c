// SPDX-License-Identifier: Apache-2.0
/// \file
/// Whether a session's memory is virtual or managed, and the way from one to the other.
#pragma once

#include "runtime/state/StepState.h"

namespace pumpgraph::runtime {

/// Whether the session is to be on managed memory; says why in `backend.why`.
Expected<bool> chooseManaged(SessionState &session, CUdevice device);
Status openArena(SessionState &session);
/// Whether each step has the memory that it needs, in turns with others.
bool choosesByStep(const SessionState &session);
/// Of addresses that managed memory can take.
Expected<std::uint64_t> bytesForManaged(const SessionState &session);
bool hasManagedStep(const SessionState &session);
/// Puts managed memory behind all of the session's addresses, or memory of their own behind blocks, with the values
/// that are there; no plan is in force then. Returns why not; empty: it is done.
Expected<std::string> moveToManaged(SessionState &session);
Expected<std::string> moveToVirtual(SessionState &session);
/// Whichever the step is planned for.
Status takeMemoryFor(const StepState &step);
/// That of a plan of the step that is no longer, but for buffers for which another step has given some.
void takeAdviceBack(const StepState &step, const Description &lowered);

} // namespace pumpgraph::runtime
