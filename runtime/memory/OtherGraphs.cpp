// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/OtherGraphs.h"

#include <algorithm>
#include <thread>

namespace pumpgraph::runtime {

/// On a thread of the driver's, which must not call the driver.
void CUDA_CB OtherGraphs::ended(void *ending) {
  const std::unique_ptr<std::shared_ptr<Ending>> own(static_cast<std::shared_ptr<Ending> *>(ending));
  (*own)->isOver = true;
  ++*(*own)->count;
}

Expected<GraphNumber> OtherGraphs::capturedOn(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t capture = 0;
  CUgraph graph = nullptr;
  const CUgraphNode *nodes = nullptr; // asked for, with the edges, for the driver may refuse to answer without
  const CUgraphEdgeData *edges = nullptr;
  std::size_t count = 0;
  const CUresult asked = driver_.streamGetCaptureInfo.raw(stream, &status, &capture, &graph, &nodes, &edges, &count);
  // The legacy stream has no answer while another one is captured; it is never captured itself.
  if (asked == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
      (asked == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_ACTIVE))
    return GraphNumber{0};
  if (asked != CUDA_SUCCESS)
    return tl::unexpected<Error>(driverError("cuStreamGetCaptureInfo", asked, driver_.getErrorName));
  // Among the youngest: a capture is over before many others begin.
  const auto known =
      std::find_if(alive_.rbegin(), alive_.rend(), [&](const auto &entry) { return entry.second.capture == capture; });
  if (known != alive_.rend())
    return known->first;

  const auto ending = std::make_shared<Ending>();
  ending->count = endings_;
  auto handed = std::make_unique<std::shared_ptr<Ending>>(ending);
  CUuserObject object = nullptr;
  PUMPGRAPH_TRY_WHILE(driver_.userObjectCreate(&object, handed.get(), &ended, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
                      "following a graph that allocates while it is captured");
  (void)handed.release(); // the driver's now
  if (const Status held = driver_.graphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE); !held) {
    driver_.userObjectRelease.raw(object, 1);
    return inContext(held.error(), "following a graph that allocates while it is captured");
  }
  alive_.emplace(++last_, Alive{capture, ending});
  return last_;
}

std::vector<GraphNumber> OtherGraphs::takeEnded() {
  const std::uint64_t endings = *endings_;
  std::vector<GraphNumber> over;
  if (endings == endingsTaken_)
    return over;
  endingsTaken_ = endings;
  for (const auto &[number, graph] : alive_)
    if (graph.ending->isOver)
      over.push_back(number);
  for (const GraphNumber number : over)
    alive_.erase(number);
  return over;
}

std::vector<GraphNumber> OtherGraphs::waitForEnded(std::chrono::milliseconds atMost) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<GraphNumber> over = takeEnded();
  while (over.empty() && !alive_.empty() && std::chrono::steady_clock::now() - start < atMost) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    over = takeEnded();
  }
  return over;
}

} // namespace pumpgraph::runtime
