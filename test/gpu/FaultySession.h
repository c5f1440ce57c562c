// SPDX-License-Identifier: Apache-2.0
/// \file
/// A session on the real driver in which one chosen driver call fails.
#pragma once

#include "pumpgraph/pumpgraph.h"

namespace pumpgraph::smoke {

enum class Fault { AddCopy, AddEdge, CloneGraph };

/// The `nth` call (from 1) of the kind after arm() fails; later ones work. NULL, with the reason on stderr, if there is
/// no session to be had.
pumpgraph_session *makeFaultySession(const pumpgraph_session_options &options);
void arm(Fault fault, int nth);

} // namespace pumpgraph::smoke
