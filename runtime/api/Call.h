// SPDX-License-Identifier: Apache-2.0
/// \file
/// What every function of the C API does: checks arguments, turns errors into statuses, lets no exception out.
#pragma once

#include "runtime/api/Handles.h"
#include "runtime/api/Log.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

namespace pumpgraph::runtime {

/// Names in a message are from outside: it is printable(), and cut between two characters if it is too long.
void writeMessage(char *to, std::size_t size, const std::string &message);
pumpgraph_status report(const Error &error, pumpgraph_error *out);
tl::unexpected<Error> nullArgument(const char *name);
/// For pumpgraph_string_free(); null where memory has run out.
char *copyString(const std::string &text);
/// The end of a call that comes between launches of a capture: what it and they left on the stack must not be in what
/// the next one hands over.
pumpgraph_status betweenLaunches(const pumpgraph_session *session, pumpgraph_status status);

/// Runs a call; its Status, or what was thrown on the way, becomes the call's status.
template <typename Call> pumpgraph_status guard(pumpgraph_error *error, Call call) noexcept {
  try {
    const Status status = call();
    return status ? PUMPGRAPH_OK : report(status.error(), error);
  } catch (const std::bad_alloc &) {
    return report({PUMPGRAPH_OUT_OF_HOST_MEMORY, "host memory ran out"}, error);
  } catch (const std::exception &exception) {
    return report({PUMPGRAPH_INTERNAL, exception.what()}, error);
  }
}

/// The same for a call on a session. Once the device is lost, that is the error of each.
template <typename Call>
pumpgraph_status onSessionQuietly(pumpgraph_session *session, pumpgraph_error *error, Call call) noexcept {
  return guard(error, [&]() -> Status {
    if (!session)
      return fail(PUMPGRAPH_INVALID_ARGUMENT, "session is NULL");
    PUMPGRAPH_TRY(session->session->health());
    Status done = call(*session->session);
    if (!done)
      PUMPGRAPH_TRY(session->session->health());
    return done;
  });
}

/// The same for a call after which messages are handed on. Those of allocation do not: destructors call them.
template <typename Call>
pumpgraph_status onSession(pumpgraph_session *session, pumpgraph_error *error, Call call) noexcept {
  const pumpgraph_status status = onSessionQuietly(session, error, call);
  if (session)
    guard(nullptr, [&]() -> Status {
      Log::ofProcess().deliver(session->session->messages());
      return {};
    });
  return status;
}

template <typename Call> pumpgraph_status onStep(pumpgraph_step *step, pumpgraph_error *error, Call call) noexcept {
  if (!step)
    return guard(error, [] { return Status(fail(PUMPGRAPH_INVALID_ARGUMENT, "step is NULL")); });
  return onSession(step->session, error, [&](Session &) -> Status { return call(*step->step); });
}

/// A struct of the caller's may be older, and shorter, than ours: what it lacks is zero.
template <typename Struct> Expected<Struct> readStruct(const Struct *given, const char *name) {
  Struct copy{};
  copy.struct_size = sizeof copy;
  if (!given)
    return copy;
  if (given->struct_size < sizeof(std::size_t) || given->struct_size > 4096)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "{}->struct_size is {}", name, given->struct_size);
  std::memcpy(&copy, given, std::min(given->struct_size, sizeof copy));
  return copy;
}

/// The other way round: fills in no more than the caller's struct has room for.
template <typename Struct> Status writeStruct(Struct *target, Struct value, const char *name) {
  if (!target)
    return nullArgument(name);
  if (target->struct_size < sizeof(std::size_t) || target->struct_size > 4096)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "{}->struct_size is {}", name, target->struct_size);
  value.struct_size = target->struct_size;
  std::memcpy(target, &value, std::min(target->struct_size, sizeof value));
  return {};
}

} // namespace pumpgraph::runtime
