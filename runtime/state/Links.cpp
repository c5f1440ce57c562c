// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/Links.h"

#include "runtime/state/CompiledPlan.h"

#include <nlohmann/json.hpp>

#include <utility>

namespace pumpgraph::runtime {
namespace {

/// As many as evictions gain from (docs/decisions/12-managed-evictions.md).
constexpr std::size_t contextsForEvictions = 4;

} // namespace

Status openLink(SessionState &session) {
  if (session.backend.isManaged)
    return {}; // see managedLinkOf(session)
  const std::string machine = fmt::format("{} beside {}", session.device.name, processorName());
  std::string file;
  KeptLink known{machine, {}, 0};
  if (!session.options.cacheDirectory.empty()) {
    CUuuid uuid{};
    int version = 0;
    PUMPGRAPH_TRY(session.driver->deviceGetUuid(&uuid, session.options.device));
    PUMPGRAPH_TRY(session.driver->driverGetVersion(&version));
    file = linkCacheFile(session.options.cacheDirectory, uuid, version);
    const std::optional<KeptLink> kept = loadLink(file);
    if (kept && kept->machine == machine)
      known = *kept;
    else if (kept)
      session.notes.push_back(fmt::format("the link speeds in {} are of another machine ({}); they were measured anew",
                                          file, kept->machine.empty() ? "it does not say which" : kept->machine));
  }
  session.link.copies = known.speed;
  if (known.measurements >= wantedMeasurements)
    return {};
  const Expected<LinkSpeed> measured = measureLink(memoryTools(session));
  if (!measured)
    return tl::unexpected<Error>(measured.error());
  session.link.copies = fastestOf(known.speed, *measured);
  session.messages.add(Level::Info,
                       fmt::format("the link of {} moves {:.1f} GB/s up, {:.1f} down and {:.1f} in both directions",
                                   session.device.name, session.link.copies.up / 1e9, session.link.copies.down / 1e9,
                                   session.link.copies.both / 1e9));
  if (!file.empty())
    storeLink(file, {machine, session.link.copies, known.measurements + 1});
  return {};
}

Status measureLinkBesideOthers(SessionState &session, std::chrono::duration<double> time) {
  if (session.memory.frames->available() < pagesToMeasureWith)
    PUMPGRAPH_TRY(session.memory.heap->flushCache(pagesToMeasureWith));
  const Expected<LinkSpeed> measured = measureLinkBesideOthers(memoryTools(session), time);
  if (!measured)
    return tl::unexpected<Error>(measured.error());
  session.messages.add(Level::Info, fmt::format("beside other processes the link of {} moves {:.1f} GB/s up, {:.1f} "
                                                "down and {:.1f} in both directions, {:.1f} alone",
                                                session.device.name, measured->up / 1e9, measured->down / 1e9,
                                                measured->both / 1e9, session.link.copies.both / 1e9));
  session.link.copies = *measured;
  return {};
}

static Expected<ManagedLink> measureArenaLink(SessionState &session) {
  return measureManagedLink(*session.driver, session.options.device, *session.memory.addresses,
                            session.memory.frames->budgetFrames() * pageBytes, *session.link.lanes);
}

Expected<const ManagedLink *> managedLinkOf(SessionState &session) {
  if (!session.link.managed) {
    if (!session.link.lanes) {
      const std::uint64_t mostOnDevice =
          std::min(session.memory.frames->budgetFrames() * pageBytes, session.memory.arena->bytes());
      session.link.lanes = LaneContexts::create(*session.driver, session.options.device, session.device.context,
                                                mostOnDevice, contextsForEvictions);
      session.backend.deviceFreeBytes -= std::min(session.backend.deviceFreeBytes, session.link.lanes->deviceBytes());
      if (session.link.lanes->ownContexts() < contextsForEvictions)
        session.notes.push_back(fmt::format("the agent has {} contexts of its own in place of {}: evictions are slower",
                                            session.link.lanes->ownContexts(), contextsForEvictions));
    }
    const Expected<ManagedLink> measured = measureArenaLink(session);
    if (!measured)
      return tl::unexpected<Error>(measured.error());
    session.link.managed = *measured;
    if (measured->bytes == 0)
      session.notes.push_back(
          "the arena has no room to measure the link in: plans count on the figures of another machine");
  }
  return &*session.link.managed;
}

Expected<bool> managedLinkWasDisturbed(SessionState &session) {
  if (std::exchange(session.link.isMeasuredAgain, true) || session.link.managed->bytes == 0)
    return false;
  const Expected<ManagedLink> again = measureArenaLink(session);
  if (!again)
    return tl::unexpected<Error>(again.error());
  const ManagedLink first = *session.link.managed;
  if (again->bytes == 0 || !wasDisturbed(first, *again))
    return false;
  session.link.managed = together(first, *again);
  session.notes.push_back(fmt::format(
      "something was in the way when the link was first measured: {:.1f} GB/s up and {:.1f} "
      "down, after planning {:.1f} and {:.1f}; planned again with the faster figures",
      first.typical.up / 1e9, first.typical.down / 1e9, again->typical.up / 1e9, again->typical.down / 1e9));
  return true;
}

nlohmann::ordered_json linkReport(const SessionState &session) {
  const auto json = [](const LinkSpeed &speed) -> nlohmann::ordered_json {
    return {{"up_bytes_per_second", speed.up},
            {"down_bytes_per_second", speed.down},
            {"both_bytes_per_second", speed.both}};
  };
  if (!session.backend.isManaged)
    return json(session.link.copies);
  if (!session.link.managed)
    return nullptr;
  nlohmann::ordered_json link = json(session.link.managed->typical);
  link["best_up_bytes_per_second"] = session.link.managed->best.up;
  link["best_down_bytes_per_second"] = session.link.managed->best.down;
  link["up_overhead_s"] = session.link.managed->upOverheadUs / usPerSecond;
  link["down_overhead_s"] = session.link.managed->downOverheadUs / usPerSecond;
  link["request_s"] = session.link.managed->requestUs / usPerSecond;
  link["empty_bytes_per_second"] = session.link.managed->emptyBytesPerSecond;
  link["measured_bytes"] = session.link.managed->bytes;
  link["context_bytes"] = session.link.lanes->deviceBytes();
  return link;
}

} // namespace pumpgraph::runtime
