// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/Step.h"

#include <fstream>

namespace pumpgraph::runtime {

Step::~Step() {
  const Driver &driver = *session_.driver_;
  if (exec_)
    driver.graphExecDestroy.raw(exec_);
  if (original_)
    driver.graphDestroy.raw(original_);
  if (ownsGraph_ && graph_)
    driver.graphDestroy.raw(graph_);
}

Status Step::instantiate() {
  if (exec_)
    return {};
  PUMPGRAPH_TRY_WHILE(session_.driver_->graphInstantiate(&exec_, graph_, 0), "instantiating \"{}\"",
                      captured_.description.name);
  return {};
}

Status Step::replay(CUstream stream) {
  const std::lock_guard lock(session_.mutex_);
  const ContextScope scope(*session_.driver_, session_.context_);
  if (residence_ && residence_->lendsAnything())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" cannot be replayed while one of its buffers is mapped",
                captured_.description.name);
  if (residence_ && !residence_->installed())
    return fail(PUMPGRAPH_INTERNAL, "\"{}\" has lost its memory in an earlier failure; destroy it and capture anew",
                captured_.description.name);
  PUMPGRAPH_TRY(instantiate());
  PUMPGRAPH_TRY_WHILE(session_.driver_->graphLaunch(exec_, stream), "replaying \"{}\"", captured_.description.name);
  return {};
}

void Step::letGo() {
  Heap &heap = *session_.heap_;
  // What cannot be moved back stays where the plan has it until the session ends; its blocks are not released then.
  if (residence_ && !residence_->remove(false))
    return;
  for (const std::vector<BlockId> *blocks : {&captured_.blocks, &captured_.besides})
    for (const BlockId block : *blocks)
      heap.release(heap.block(block));
}

Status Step::readValue(BufferIndex buffer, char *target) {
  if (residence_ && residence_->installed())
    return residence_->readValue(buffer, target);
  const Buffer &described = captured_.description.buffers[buffer];
  PUMPGRAPH_TRY_WHILE(session_.driver_->memcpyDtoHAsync(target, described.address, described.size, session_.stream_),
                      "reading \"{}\"", described.name);
  PUMPGRAPH_TRY_WHILE(session_.driver_->streamSynchronize(session_.stream_), "reading \"{}\"", described.name);
  return {};
}

Status Step::writeValue(BufferIndex buffer, const char *source) {
  if (residence_ && residence_->installed())
    return residence_->writeValue(buffer, source);
  const Buffer &described = captured_.description.buffers[buffer];
  PUMPGRAPH_TRY_WHILE(session_.driver_->memcpyHtoDAsync(described.address, source, described.size, session_.stream_),
                      "writing \"{}\"", described.name);
  PUMPGRAPH_TRY_WHILE(session_.driver_->streamSynchronize(session_.stream_), "writing \"{}\"", described.name);
  return {};
}

std::string Step::report() {
  const std::lock_guard lock(session_.mutex_);
  // Names of kernels come from binaries; a byte that is no UTF-8 must not take the report down.
  return report_.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Status Step::save(const std::string &path) {
  const std::lock_guard lock(session_.mutex_);
  const Expected<const Compiler *> compiler = session_.compiler();
  if (!compiler)
    return inContext(compiler.error(), "saving a step");
  const DescriptionView view(captured_.description);
  char *text = (*compiler)->print(view.get());
  if (!text)
    return fail(PUMPGRAPH_INTERNAL, "the compiler library cannot print \"{}\"", captured_.description.name);
  std::ofstream file(path, std::ios::binary);
  file << text;
  (*compiler)->freeString(text);
  file.close();
  if (!file)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "{} cannot be written", path);
  return {};
}

} // namespace pumpgraph::runtime
