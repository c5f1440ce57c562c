// SPDX-License-Identifier: Apache-2.0
// PyTorch's pluggable allocator over one session. Its malloc may throw, which the rest of the C API never does: PyTorch
// looks at no status and takes NULL for memory.
#include "runtime/api/Handles.h"
#include "runtime/api/Log.h"
#include "runtime/api/TorchErrors.h"

#include <atomic>
#include <cstdio>
#include <utility>

using namespace pumpgraph::runtime;

namespace {

/// PyTorch's allocator interface has no place for a user pointer.
std::atomic<pumpgraph_session *> attachedSession{nullptr};

/// An address that changes from one owner in PyTorch to another, which both do in this thread.
struct KeptForTorch {
  void *pointer = nullptr;
  pumpgraph_stream stream = nullptr;
  bool isFreed = false; ///< the first has let go of it
};
thread_local KeptForTorch keptForTorch;

bool isShortage(pumpgraph_status status) {
  return status == PUMPGRAPH_OUT_OF_DEVICE_MEMORY || status == PUMPGRAPH_OUT_OF_HOST_MEMORY;
}

/// What an exception needs, in a form that leaves nothing to destroy.
struct Failure {
  TorchError kind = TorchError::Other;
  char text[3072] = {};
};

/// Begins as PyTorch's own message does: programs that look for a batch size that fits search for this text.
std::string outOfMemoryText(const MemoryStatistics &statistics, std::size_t bytes, const char *reason) {
  const std::string budget =
      statistics.budgetBytes != 0 ? fmt::format("a budget of {}", bytesText(statistics.budgetBytes)) : "no budget";
  const std::string left =
      statistics.frameBudgetBytes != 0 && statistics.frameBudgetBytes < statistics.budgetBytes
          ? fmt::format(", of which the rest of the process leaves {}", bytesText(statistics.frameBudgetBytes))
          : "";
  return fmt::format("CUDA out of memory. Tried to allocate {} beside {} in use. PumpGraph has {} on the device ({}{}) "
                     "and {} of host memory (limit {}): {}",
                     bytesText(bytes), bytesText(statistics.live.liveBytes), bytesText(statistics.deviceBytes), budget,
                     left, bytesText(statistics.hostBackedBytes + statistics.pinnedBytes),
                     bytesText(statistics.hostLimitBytes), reason);
}

/// Of a call that failed. Apart from the throw, for here is what has to be destroyed.
[[gnu::noinline]] void describe(pumpgraph_session *session, std::size_t bytes, const pumpgraph_error &error,
                                Failure &failure) noexcept {
  try {
    std::string text;
    if (!session) {
      text = fmt::format("PyTorch asked PumpGraph for {}: no session is attached", bytesText(bytes));
    } else if (isShortage(error.status)) {
      failure.kind = TorchError::OutOfMemory;
      text = outOfMemoryText(session->session->statistics(), bytes, error.message);
    } else {
      text = fmt::format("PyTorch asked PumpGraph for {}: {}", bytesText(bytes), error.message);
    }
    std::snprintf(failure.text, sizeof failure.text, "%s", text.c_str());
  } catch (const std::exception &) {
    std::snprintf(failure.text, sizeof failure.text, "%s", error.message);
  }
}

} // namespace

namespace pumpgraph::runtime {

void detachFromTorch(pumpgraph_session *session) {
  attachedSession.compare_exchange_strong(session, nullptr);
}

} // namespace pumpgraph::runtime

extern "C" {

pumpgraph_status pumpgraph_torch_attach(pumpgraph_session *session, pumpgraph_error * /*error*/) {
  attachedSession = session;
  return PUMPGRAPH_OK;
}

void *pumpgraph_torch_malloc(size_t size, int /*device*/, pumpgraph_stream stream) {
  if (size == 0)
    return nullptr;
  if (keptForTorch.isFreed)
    return std::exchange(keptForTorch, {}).pointer;
  void *pointer = nullptr;
  pumpgraph_error error{};
  pumpgraph_session *session = attachedSession;
  if (pumpgraph_allocate(session, size, stream, nullptr, &pointer, &error) == PUMPGRAPH_OK) {
    if (session->history.isOn())
      session->history.allocated(pointer, size, stream);
    return pointer;
  }
  if (session && session->history.isOn() && isShortage(error.status))
    session->history.ranOut(size, stream, session->session->statistics().freeBytes);
  Failure failure;
  describe(session, size, error, failure);
  throwForTorch(failure.kind, failure.text);
  Log::ofProcess().tellLater(Level::Error, failure.text);
  return nullptr;
}

/// Called by destructors, which cannot throw.
void pumpgraph_torch_free(void *pointer, size_t size, int /*device*/, pumpgraph_stream stream) {
  pumpgraph_error error{};
  pumpgraph_session *session = attachedSession;
  if (!pointer || !session) // the session is gone, and all its memory with it
    return;
  if (pointer == keptForTorch.pointer) {
    keptForTorch = {pointer, stream, true};
    return;
  }
  if (session->history.isOn())
    session->history.freed(pointer, size, stream);
  if (pumpgraph_free(session, pointer, stream, &error) != PUMPGRAPH_OK)
    Log::ofProcess().tellLater(Level::Error, fmt::format("PyTorch freed {}: {}", pointer, error.message));
}

/// PyTorch asks for tensors of any owner, as those of DLPack: memory that is not the session's is not its business.
void pumpgraph_torch_record_stream(void *pointer, pumpgraph_stream stream) {
  pumpgraph_error error{};
  if (pumpgraph_session *session = attachedSession; session && pointer)
    (void)pumpgraph_record_stream(session, pointer, stream, &error);
}

void pumpgraph_torch_keep(void *pointer) {
  const KeptForTorch before = std::exchange(keptForTorch, {pointer, nullptr, false});
  if (before.isFreed) // nobody has it
    pumpgraph_torch_free(before.pointer, 0, 0, before.stream);
}

void pumpgraph_torch_empty_cache() {
  pumpgraph_error error{};
  pumpgraph_session *session = attachedSession;
  if (!session || pumpgraph_empty_cache(session, &error) == PUMPGRAPH_OK)
    return;
  throwForTorch(TorchError::Other, error.message);
  Log::ofProcess().tellLater(Level::Error, fmt::format("PyTorch emptied its cache: {}", error.message));
}

} // extern "C"
