// SPDX-License-Identifier: Apache-2.0
/// \file
/// A session's link: measured when it opens or when its first step is planned, and kept for other sessions.
#pragma once

#include "runtime/state/SessionState.h"

#include <nlohmann/json_fwd.hpp>

namespace pumpgraph::runtime {

/// Of a session on virtual memory.
Status openLink(SessionState &session);
/// Of a session on managed memory: measured when its first step is planned.
Expected<const ManagedLink *> managedLinkOf(SessionState &session);
/// Measures it once more, some time after the first. Whether that shows that something was in the way then, so that
/// managedLinkOf() is another now. Once in a session; false from then on.
Expected<bool> managedLinkWasDisturbed(SessionState &session);
nlohmann::ordered_json linkReport(const SessionState &session);

} // namespace pumpgraph::runtime
