// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/Call.h"

#include "pumpgraph/graph/Printable.h"
#include "runtime/capture/DeadStack.h"

#include <cstdlib>

namespace pumpgraph::runtime {

void writeMessage(char *to, std::size_t size, const std::string &message) {
  const std::string shown = pumpgraph::printable(message);
  std::size_t length = std::min(shown.size(), size - 1);
  while (length < shown.size() && (static_cast<unsigned char>(shown[length]) & 0xc0) == 0x80)
    --length;
  std::memcpy(to, shown.data(), length);
  to[length] = '\0';
}

pumpgraph_status report(const Error &error, pumpgraph_error *out) {
  if (out) {
    out->status = error.status;
    writeMessage(out->message, sizeof out->message, error.message);
  }
  return error.status;
}

tl::unexpected<Error> nullArgument(const char *name) {
  return fail(PUMPGRAPH_INVALID_ARGUMENT, "{} is NULL", name);
}

char *copyString(const std::string &text) {
  auto *copy = static_cast<char *>(std::malloc(text.size() + 1));
  if (copy)
    std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

pumpgraph_status betweenLaunches(const pumpgraph_session *session, pumpgraph_status status) {
  if (session && session->session->isCapturing())
    clearDeadStack();
  return status;
}

} // namespace pumpgraph::runtime
