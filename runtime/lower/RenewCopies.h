// SPDX-License-Identifier: Apache-2.0
/// \file
/// Renews the copies of a graph whose memory has moved.
#pragma once

#include "runtime/driver/Driver.h"
#include "runtime/memory/AddressSpace.h"

namespace pumpgraph::runtime {

/// Sets the parameters of every copy in the graph, and in its child graphs, that works on `addresses` again. The driver
/// keeps the kind of memory that an address had when the copy got its parameters. It is managed memory or not, so this
/// follows a session's change between the two. All addresses of the graph must be mapped; an instantiation is stale
/// afterwards.
Status renewCopies(const Driver &driver, CUgraph graph, const AddressSpace &addresses);

/// Where a copy leads to at one end; 0: to an array.
CUdeviceptr placeOf(CUmemorytype type, CUdeviceptr address, const void *host);

} // namespace pumpgraph::runtime
