// SPDX-License-Identifier: Apache-2.0
#include "runtime/link/Link.h"

#include <nlohmann/json.hpp>

#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace pumpgraph::runtime {
namespace {

/// Enough pieces that what the processor takes to submit them does not count.
constexpr int piecesPerRun = 12, runs = 6;

/// Two pieces of device memory and two of pinned memory, with a stream each.
class Bench {
public:
  explicit Bench(const MemoryTools &tools) : tools_(tools) {}
  ~Bench() {
    if (mayBeBusy_) // after a failure
      tools_.driver.ctxSynchronize.raw();
    if (mapped_)
      (void)tools_.mapper.unmapFrames(address_, frames_);
    if (!frames_.empty() && address_ != 0)
      tools_.addresses.giveBack(address_, frames_.size());
    for (const FrameId frame : frames_)
      tools_.frames.give(frame);
    if (second_)
      tools_.driver.streamDestroy.raw(second_);
  }
  Bench(const Bench &) = delete;
  Bench &operator=(const Bench &) = delete;

  /// On memory whose values stay.
  Status prepareOn(CUdeviceptr address, std::uint64_t bytes) {
    const std::uint64_t pages = pagesOf(bytes / pageBytes);
    if (pages < 2)
      return fail(PUMPGRAPH_OUT_OF_DEVICE_MEMORY, "too little memory to measure the link with");
    PUMPGRAPH_TRY(preparePieces(pages));
    address_ = address;
    mayBeBusy_ = true;
    PUMPGRAPH_TRY(tools_.driver.memcpyDtoHAsync(pool_->at(0), address_, pieceBytes_, tools_.stream));
    PUMPGRAPH_TRY(tools_.driver.streamSynchronize(tools_.stream));
    mayBeBusy_ = false;
    return {};
  }

  Status prepare() {
    const std::uint64_t pages = pagesOf(tools_.frames.available());
    if (pages == 0)
      return fail(PUMPGRAPH_OUT_OF_DEVICE_MEMORY, "no device frame is left to measure the link with");
    PUMPGRAPH_TRY(tools_.frames.ensureFree(pages));
    for (std::uint64_t page = 0; page < pages; ++page)
      frames_.push_back(*tools_.frames.take());
    const Expected<CUdeviceptr> address = tools_.addresses.carveApart(pages);
    if (!address)
      return tl::unexpected<Error>(address.error());
    address_ = *address;
    PUMPGRAPH_TRY(tools_.mapper.mapFrames(address_, frames_));
    mapped_ = true;
    return preparePieces(pages);
  }

  /// Bytes per second of copies up, down, or both at once. The fastest run counts: what else is on the link can only
  /// make a copy slower, and a bound must not rest on that.
  Expected<double> fastest(bool up, bool down) {
    double best = 0;
    for (int run = 0; run < runs; ++run) {
      const Expected<double> speed = speedOfRun(up, down);
      if (!speed)
        return speed;
      best = std::max(best, *speed);
    }
    return best;
  }

  /// The median of the runs until `end`, one at least.
  Expected<double> typicalUntil(Driver::Clock::time_point end, bool up, bool down) {
    std::vector<double> speeds;
    do {
      const Expected<double> speed = speedOfRun(up, down);
      if (!speed)
        return speed;
      speeds.push_back(*speed);
    } while (tools_.driver.now() < end);
    const auto middle = speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 2);
    std::nth_element(speeds.begin(), middle, speeds.end());
    return *middle;
  }

private:
  Expected<double> speedOfRun(bool up, bool down) {
    PUMPGRAPH_TRY(tools_.driver.ctxSynchronize());
    const Driver::Clock::time_point start = tools_.driver.now();
    mayBeBusy_ = true;
    for (int piece = 0; piece < piecesPerRun; ++piece) {
      if (up)
        PUMPGRAPH_TRY(tools_.driver.memcpyHtoDAsync(address_, pool_->at(0), pieceBytes_, tools_.stream));
      if (down)
        PUMPGRAPH_TRY(
            tools_.driver.memcpyDtoHAsync(pool_->at(pieceBytes_), address_ + downOffset_, pieceBytes_, second_));
    }
    PUMPGRAPH_TRY(tools_.driver.ctxSynchronize());
    mayBeBusy_ = false;
    const std::chrono::duration<double> took = tools_.driver.now() - start;
    return static_cast<double>(pieceBytes_) * piecesPerRun * (up && down ? 2 : 1) / took.count();
  }

  /// A quarter of the host memory allowed at most, for it is only a measurement.
  std::uint64_t pagesOf(std::uint64_t available) const {
    return std::min(
        {pagesToMeasureWith, available, std::max<std::uint64_t>(tools_.host.limitBytes() / 4 / pageBytes, 1)});
  }
  Status preparePieces(std::uint64_t pages) {
    pieceBytes_ = std::max<std::uint64_t>(pages / 2, 1) * pageBytes;
    Expected<std::unique_ptr<PinnedPool>> pool = PinnedPool::create(tools_.driver, tools_.host, 2 * pieceBytes_);
    if (!pool)
      return tl::unexpected<Error>(pool.error());
    pool_ = std::move(*pool);
    downOffset_ = pages > 1 ? pieceBytes_ : 0;
    return tools_.driver.streamCreate(&second_, CU_STREAM_NON_BLOCKING);
  }

  MemoryTools tools_;
  std::vector<FrameId> frames_;
  CUdeviceptr address_ = 0; ///< with `frames_`, unless the memory is in use
  bool mapped_ = false;
  bool mayBeBusy_ = false; ///< with copies
  std::unique_ptr<PinnedPool> pool_;
  std::uint64_t pieceBytes_ = 0;
  std::uint64_t downOffset_ = 0;
  CUstream second_ = nullptr;
};

double roundSpeed(double bytesPerSecond) {
  constexpr double unit = 0.5e9;
  return std::max(unit, std::round(bytesPerSecond / unit) * unit);
}

} // namespace

LinkSpeed fastestOf(const LinkSpeed &one, const LinkSpeed &other) {
  return {std::max(one.up, other.up), std::max(one.down, other.down), std::max(one.both, other.both)};
}

static Expected<LinkSpeed> measureOn(Bench &bench) {
  LinkSpeed speed;
  const auto measure = [&](bool up, bool down, double &result) -> Status {
    const Expected<double> measured = bench.fastest(up, down);
    if (!measured)
      return inContext(measured.error(), "measuring the link");
    result = roundSpeed(*measured);
    return {};
  };
  PUMPGRAPH_TRY(measure(true, true, speed.both)); // the first run also warms up
  PUMPGRAPH_TRY(measure(true, false, speed.up));
  PUMPGRAPH_TRY(measure(false, true, speed.down));
  PUMPGRAPH_TRY(measure(true, true, speed.both));
  return speed;
}

Expected<LinkSpeed> measureLink(const MemoryTools &tools) {
  Bench bench(tools);
  PUMPGRAPH_TRY_WHILE(bench.prepare(), "measuring the link");
  return measureOn(bench);
}

Expected<LinkSpeed> measureLinkOn(const MemoryTools &tools, CUdeviceptr address, std::uint64_t bytes) {
  Bench bench(tools);
  PUMPGRAPH_TRY_WHILE(bench.prepareOn(address, bytes), "measuring the link");
  return measureOn(bench);
}

Expected<LinkSpeed> measureLinkBesideOthers(const MemoryTools &tools, std::chrono::duration<double> time) {
  Bench bench(tools);
  PUMPGRAPH_TRY_WHILE(bench.prepare(), "measuring the link");
  const Driver::Clock::time_point start = tools.driver.now();
  LinkSpeed speed;
  // Phases end by the clock, so that processes which begin together stay in the same one.
  const auto measure = [&](int phase, bool up, bool down, double &result) -> Status {
    const auto until = std::chrono::duration_cast<Driver::Clock::duration>(time * phase / 3);
    const Expected<double> measured = bench.typicalUntil(start + until, up, down);
    if (!measured)
      return inContext(measured.error(), "measuring the link");
    result = roundSpeed(*measured);
    return {};
  };
  PUMPGRAPH_TRY(measure(1, true, true, speed.both));
  PUMPGRAPH_TRY(measure(2, true, false, speed.up));
  PUMPGRAPH_TRY(measure(3, false, true, speed.down));
  return speed;
}

std::string processorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (const std::size_t colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  utsname system{}; // not every architecture has a model name
  return uname(&system) == 0 ? system.machine : "an unknown processor";
}

std::string linkCacheFile(const std::string &directory, const CUuuid &device, int driverVersion) {
  std::string name = directory + "/link-";
  for (const char byte : device.bytes)
    name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return name + fmt::format("-{}.json", driverVersion);
}

std::optional<KeptLink> loadLink(const std::string &file) {
  std::ifstream stream(file);
  const nlohmann::json json = nlohmann::json::parse(stream, nullptr, false);
  if (!json.is_object())
    return std::nullopt;
  KeptLink link;
  LinkSpeed &speed = link.speed;
  const auto read = [&](const char *key, double &value) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_number())
      return false;
    value = found->get<double>();
    return value > 0;
  };
  if (!read("up_bytes_per_second", speed.up) || !read("down_bytes_per_second", speed.down) ||
      !read("both_bytes_per_second", speed.both))
    return std::nullopt;
  if (const auto machine = json.find("machine"); machine != json.end() && machine->is_string())
    link.machine = machine->get<std::string>();
  if (const auto count = json.find("measurements"); count != json.end() && count->is_number_integer())
    link.measurements = count->get<int>();
  return link;
}

void storeLink(const std::string &file, const KeptLink &link) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), ignored);
  const nlohmann::json json = {{"machine", link.machine},
                               {"up_bytes_per_second", link.speed.up},
                               {"down_bytes_per_second", link.speed.down},
                               {"both_bytes_per_second", link.speed.both},
                               {"measurements", link.measurements}};
  // Written beside and renamed, so that another process never reads half a file.
  const std::string draft = file + ".draft";
  {
    std::ofstream stream(draft);
    stream << json.dump(2) << "\n";
    if (!stream)
      return;
  }
  std::filesystem::rename(draft, file, ignored);
}

} // namespace pumpgraph::runtime
