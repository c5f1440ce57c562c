// SPDX-License-Identifier: Apache-2.0
/// \file
/// Renews the copies of a graph whose memory has moved.
#pragma once

#include "runtime/driver/Driver.h"
#include "runtime/memory/AddressSpace.h"

#include <functional>

namespace pumpgraph::runtime {

/// Gives every copy in the graph, and in its child graphs, that works on `addresses` its parameters once more. When it
/// gets them, the driver looks what memory they lead to, and keeps that: a copy between buffers that were in host
/// memory when it was captured is done by the processor, and ends the process once they are in frames. For use whenever
/// buffers of a captured graph have come from the host or gone there; all its addresses must be mapped. A graph that
/// was instantiated before has to be so again.
Status renewCopies(const Driver &driver, CUgraph graph, const AddressSpace &addresses);

/// Calls `visit` for every copy node in the graph and in its child graphs, until one fails.
Status forEachCopy(const Driver &driver, CUgraph graph, const std::function<Status(CUgraphNode)> &visit);

/// Where a copy leads to at one end; 0: to an array.
CUdeviceptr placeOf(CUmemorytype type, CUdeviceptr address, const void *host);

} // namespace pumpgraph::runtime
