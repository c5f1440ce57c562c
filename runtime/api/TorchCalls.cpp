// SPDX-License-Identifier: Apache-2.0
// The C API: snapshots of the memory for PyTorch's viewer.
#include "runtime/api/Call.h"

#include <nlohmann/json.hpp>

#include <utility>

using namespace pumpgraph::runtime;
using Json = nlohmann::ordered_json;

static Json blocksOf(Session &session) {
  Json blocks = Json::array();
  for (const LiveBlock &block : session.liveBlocks()) {
    Json allocations = Json::array();
    for (const LiveBlock::Part &part : block.parts)
      allocations.push_back(
          {{"address", part.address}, {"bytes", part.bytes}, {"stream", reinterpret_cast<std::uint64_t>(part.stream)}});
    blocks.push_back({{"address", block.address},
                      {"bytes", block.bytes},
                      {"is_shared", block.isShared},
                      {"allocations", std::move(allocations)}});
  }
  return blocks;
}

extern "C" {

pumpgraph_status pumpgraph_torch_record(pumpgraph_session *session, const pumpgraph_torch_recording *recording,
                                        pumpgraph_error *error) {
  return guard(error, [&]() -> Status { // of a lost device too: nothing is asked of it
    if (!session)
      return nullArgument("session");
    if (!recording) {
      session->history.stop();
      return {};
    }
    const Expected<pumpgraph_torch_recording> read = readStruct(recording, "recording");
    if (!read)
      return tl::unexpected<Error>(read.error());
    for (const void *function : {read->gil_state_ensure, read->gil_state_release, read->eval_get_frame,
                                 read->frame_get_back, read->frame_get_code, read->frame_get_line, read->dec_ref})
      if (!function)
        return nullArgument("a function of the interpreter's");
    session->history.record(*read);
    return {};
  });
}

pumpgraph_status pumpgraph_torch_snapshot(pumpgraph_session *session, char **json, pumpgraph_error *error) {
  return guard(error, [&]() -> Status {
    if (!session)
      return nullArgument("session");
    if (!json)
      return nullArgument("json");
    *json = copyString(
        session->history.snapshot([&](Json &snapshot) { snapshot["blocks"] = blocksOf(*session->session); }).dump());
    if (!*json)
      return fail(PUMPGRAPH_OUT_OF_HOST_MEMORY, "host memory ran out");
    return {};
  });
}

} // extern "C"
