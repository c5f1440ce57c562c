// SPDX-License-Identifier: Apache-2.0
#include "test/gpu/FaultySession.h"

#include "runtime/api/Handles.h"

#include <cstdio>

namespace pumpgraph::smoke {
namespace {

using namespace pumpgraph::runtime;

/// The real functions, and which of their calls is to fail. Driver functions have no place for a user pointer.
struct Faults {
  Driver real;
  int addCopy = 0, addEdge = 0, cloneGraph = 0; ///< calls left until the one that fails; 0: none
};

Faults &faults() {
  static Faults instance;
  return instance;
}

bool isDue(int &left) {
  return left != 0 && --left == 0;
}

CUresult CUDAAPI addCopy(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                         const CUDA_MEMCPY3D *copy, CUcontext context) {
  return isDue(faults().addCopy) ? CUDA_ERROR_INVALID_VALUE
                                 : faults().real.graphAddMemcpyNode.raw(node, graph, after, count, copy, context);
}

CUresult CUDAAPI addEdge(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
                         size_t count) {
  return isDue(faults().addEdge) ? CUDA_ERROR_INVALID_VALUE
                                 : faults().real.graphAddDependencies.raw(graph, from, to, data, count);
}

CUresult CUDAAPI cloneGraph(CUgraph *clone, CUgraph graph) {
  return isDue(faults().cloneGraph) ? CUDA_ERROR_OUT_OF_MEMORY : faults().real.graphClone.raw(clone, graph);
}

} // namespace

pumpgraph_session *makeFaultySession(const pumpgraph_session_options &options) {
  const runtime::Expected<std::shared_ptr<const Driver>> loaded = Driver::load();
  if (!loaded) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    return nullptr;
  }
  faults().real = **loaded;
  auto driver = std::make_shared<Driver>(**loaded);
  driver->graphAddMemcpyNode.function = addCopy;
  driver->graphAddDependencies.function = addEdge;
  driver->graphClone.function = cloneGraph;
  runtime::Expected<std::unique_ptr<pumpgraph_session>> session = makeSession(options, driver);
  if (!session) {
    std::fprintf(stderr, "%s\n", session.error().message.c_str());
    return nullptr;
  }
  return session->release();
}

void arm(Fault fault, int nth) {
  Faults &all = faults();
  all.addCopy = fault == Fault::AddCopy ? nth : 0;
  all.addEdge = fault == Fault::AddEdge ? nth : 0;
  all.cloneGraph = fault == Fault::CloneGraph ? nth : 0;
}

} // namespace pumpgraph::smoke
