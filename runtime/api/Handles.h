// SPDX-License-Identifier: Apache-2.0
/// \file
/// Definitions of the C API's opaque handles, and a session on a driver that the caller provides.
#pragma once

#include "pumpgraph/pumpgraph.h"
#include "runtime/api/TorchHistory.h"
#include "runtime/session/Session.h"
#include "runtime/session/Step.h"

struct pumpgraph_step {
  pumpgraph_session *session;
  pumpgraph::runtime::Step *step;
};

struct pumpgraph_session {
  std::unique_ptr<pumpgraph::runtime::Session> session;
  pumpgraph::runtime::TorchHistory history;
};

namespace pumpgraph::runtime {

/// As pumpgraph_session_create(), with any driver table: the real one, or a test's.
Expected<std::unique_ptr<pumpgraph_session>> makeSession(const pumpgraph_session_options &options,
                                                         std::shared_ptr<const Driver> driver);

/// PyTorch gets no memory of a session that ends.
void detachFromTorch(pumpgraph_session *session);

/// The text of pumpgraph_doctor().
std::string examineMachine();

} // namespace pumpgraph::runtime
