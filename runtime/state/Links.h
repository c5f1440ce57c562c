// SPDX-License-Identifier: Apache-2.0
/// \file
/// A session's link: measured when it opens or when its first step is planned, and kept for other sessions.
#pragma once

#include "runtime/state/SessionState.h"

#include <nlohmann/json_fwd.hpp>

#include <chrono>

namespace pumpgraph::runtime {

/// Of a session on virtual memory.
Status openLink(SessionState &session);
/// Measures it once more, for `time`, while other processes do so too: plans from now on count on the speed that those
/// leave. For a session on virtual memory, outside captures.
Status measureLinkBesideOthers(SessionState &session, std::chrono::duration<double> time);
/// Of a session on managed memory: measured when its first step is planned.
Expected<const ManagedLink *> managedLinkOf(SessionState &session);
/// Measures it once more, some time after the first. Whether that shows that something was in the way then, so that
/// managedLinkOf() is another now. Once in a session; false from then on.
Expected<bool> managedLinkWasDisturbed(SessionState &session);
nlohmann::ordered_json linkReport(const SessionState &session);

} // namespace pumpgraph::runtime
