// SPDX-License-Identifier: Apache-2.0
// The C API: sessions, messages, progress, and what is of the process.
#include "pumpgraph/access_table.h"
#include "runtime/api/Call.h"
#include "runtime/capture/AccessTables.h"

#include <string_view>
#include <utility>

using namespace pumpgraph::runtime;

namespace pumpgraph::runtime {

Expected<std::unique_ptr<pumpgraph_session>> makeSession(const pumpgraph_session_options &given,
                                                         std::shared_ptr<const Driver> driver) {
  SessionOptions options;
  options.budgetBytes = given.budget_bytes;
  options.unlimited = given.unlimited != 0;
  options.device = given.device;
  options.hostLimitBytes = given.host_limit_bytes;
  options.cacheDirectory = given.cache_directory ? given.cache_directory : "";
  options.compilerLibrary = given.compiler_library ? given.compiler_library : "";
  if (given.whole_process) {
    CUuuid uuid{};
    PUMPGRAPH_TRY_WHILE(driver->deviceGetUuid(&uuid, given.device), "opening device {}", given.device);
    options.processMemory = openProcessMemory(uuid);
  }
  if (given.backend < PUMPGRAPH_BACKEND_VIRTUAL || given.backend > PUMPGRAPH_BACKEND_AUTOMATIC)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "options->backend is {}", given.backend);
  options.backend = static_cast<BackendChoice>(given.backend);
  if (given.rematerialize < PUMPGRAPH_REMATERIALIZE_AUTOMATIC || given.rematerialize > PUMPGRAPH_REMATERIALIZE_NEVER)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "options->rematerialize is {}", given.rematerialize);
  options.rematerialize = static_cast<RematerializeChoice>(given.rematerialize);
  if (given.planning < PUMPGRAPH_PLANNING_ASIDE || given.planning > PUMPGRAPH_PLANNING_IN_REPLAY)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "options->planning is {}", given.planning);
  options.plansAside = given.planning == PUMPGRAPH_PLANNING_ASIDE;
  options.managedBytes = given.managed_bytes;
  options.managedGuard.allowOversubscription = given.allow_oversubscription != 0;
  if (given.managed_limit_bytes != 0)
    options.managedGuard.limitBytes = given.managed_limit_bytes;
  Expected<std::unique_ptr<Session>> session = Session::create(options, std::move(driver));
  if (!session)
    return tl::unexpected<Error>(session.error());
  auto made = std::make_unique<pumpgraph_session>();
  made->session = std::move(*session);
  return made;
}

} // namespace pumpgraph::runtime

#define PUMPGRAPH_TEXT(number) #number
#define PUMPGRAPH_VERSION_TEXT(major, minor, patch)                                                                    \
  PUMPGRAPH_TEXT(major) "." PUMPGRAPH_TEXT(minor) "." PUMPGRAPH_TEXT(patch)
static constexpr const char *headerVersion =
    PUMPGRAPH_VERSION_TEXT(PUMPGRAPH_VERSION_MAJOR, PUMPGRAPH_VERSION_MINOR, PUMPGRAPH_VERSION_PATCH);
static_assert(std::string_view(headerVersion) == PUMPGRAPH_BUILT_VERSION, "the header's version is not the project's");

static pumpgraph_progress toC(const ProgressState &state) {
  return {sizeof(pumpgraph_progress),
          static_cast<std::int32_t>(state.phase),
          state.done,
          state.total,
          state.bestUs,
          state.seconds};
}

extern "C" {

const char *pumpgraph_version() {
  return headerVersion;
}

pumpgraph_status pumpgraph_session_create(const pumpgraph_session_options *options, pumpgraph_session **session,
                                          pumpgraph_error *error) {
  return guard(error, [&]() -> Status {
    if (!options)
      return nullArgument("options");
    if (!session)
      return nullArgument("session");
    const Expected<pumpgraph_session_options> read = readStruct(options, "options");
    if (!read)
      return tl::unexpected<Error>(read.error());
    const QueueWish queues = read->backend == PUMPGRAPH_BACKEND_MANAGED ? QueueWish::Any : QueueWish::Few;
    const Expected<std::shared_ptr<const Driver>> driver = Driver::load(queues);
    if (!driver)
      return tl::unexpected<Error>(driver.error());
    Expected<std::unique_ptr<pumpgraph_session>> made = makeSession(*read, *driver);
    if (!made)
      return tl::unexpected<Error>(made.error());
    *session = made->release();
    Log::ofProcess().deliver((*session)->session->messages());
    return {};
  });
}

void pumpgraph_session_destroy(pumpgraph_session *session) {
  detachFromTorch(session);
  guard(nullptr, [&]() -> Status {
    if (session)
      Log::ofProcess().deliver(session->session->messages());
    delete session;
    return {};
  });
}

pumpgraph_status pumpgraph_set_message_callback(int32_t level, pumpgraph_message_callback callback, void *user,
                                                pumpgraph_error *error) {
  return guard(error, [&]() -> Status {
    if (level < PUMPGRAPH_MESSAGE_NONE || level > PUMPGRAPH_MESSAGE_DEBUG)
      return fail(PUMPGRAPH_INVALID_ARGUMENT, "level is {}", level);
    Log::ofProcess().setCallback(level, callback, user);
    return {};
  });
}

pumpgraph_status pumpgraph_set_progress_callback(pumpgraph_session *session, pumpgraph_progress_callback callback,
                                                 void *user, pumpgraph_error *error) {
  return onSession(session, error, [&](Session &self) -> Status {
    Progress::Receiver receiver;
    if (callback)
      receiver = [callback, user](const ProgressState &state) {
        const pumpgraph_progress progress = toC(state);
        callback(&progress, user);
      };
    self.progress().setReceiver(std::move(receiver));
    return {};
  });
}

pumpgraph_status pumpgraph_get_progress(pumpgraph_session *session, pumpgraph_progress *progress,
                                        pumpgraph_error *error) {
  return guard(error, [&]() -> Status {
    if (!session)
      return nullArgument("session");
    return writeStruct(progress, toC(session->session->progress().now()), "progress");
  });
}

// Called by constructors, where nobody could handle an error. A kernel without a table is one that nothing is known of.
void pumpgraph_register_access_table(const pumpgraph_access_table *table) {
  try {
    AccessTables::ofProcess().add(table);
  } catch (const std::exception &exception) {
    Log::ofProcess().tellLater(Level::Warning, std::string("an access table is left out: ") + exception.what());
  }
}

void pumpgraph_unregister_access_table(const pumpgraph_access_table *table) {
  try {
    AccessTables::ofProcess().remove(table);
  } catch (const std::exception &exception) {
    Log::ofProcess().tellLater(Level::Warning, std::string("an access table stays known: ") + exception.what());
  }
}

char *pumpgraph_doctor(void) {
  try {
    return copyString(examineMachine());
  } catch (const std::exception &) {
    return nullptr;
  }
}

} // extern "C"
