// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/Shim.h"

#include "runtime/driver/Error.h"
#include "runtime/preload/EntryPoints.h"
#include "runtime/preload/Interpose.h"
#include "runtime/preload/Libraries.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace pumpgraph::preload {

using runtime::bytesText;

Shim::Shim()
    : settings_(Settings::fromEnvironment()),
      standing_(settings_.budgetBytes != 0 ? Standing::Active : Standing::LeftAlone) {
  pthread_atfork(nullptr, nullptr, [] { shim().isForked(); });
}

Shim &shim() {
  static Shim &only = *new Shim;
  return only;
}

bool Shim::follows() {
  if (!hasBegun_.load(std::memory_order_relaxed) && !hasBegun_.exchange(true))
    begin();
  return isActive();
}

void Shim::begin() {
  if (settings_.budgetBytes == 0) {
    say(Level::Warning, "libpumpgraph_preload.so does nothing by itself: start the program with pump-graph-run");
    return;
  }
  if (isFork_) {
    say(Level::Info, fmt::format("process {}, forked from one that uses CUDA, is left alone", getpid()));
    return;
  }
  if (const std::string other = otherPreload(); !other.empty())
    stepAside(fmt::format("{} stands before the driver, too", other));
  else if (settings_.process != getpid())
    say(Level::Info, fmt::format("process {} ({}), a child, has a budget of {} of its own", getpid(),
                                 program_invocation_short_name, bytesText(settings_.budgetBytes)));
  if (!plans())
    return;
  looksAtLibraries();
  openCompiler();
}

void Shim::looksAtLibraries() {
  if (!plans() || !hasBegun_ || !isActive() || isUnplanned_)
    return;
  if (const std::string library = loadedPastTheDriver(); !library.empty())
    stopPlanningBeside(library);
}

void Shim::stopPlanningBeside(std::string_view library) {
  if (!plans() || !follows() || isUnplanned_)
    return;
  const bool isInCall = mutex_.isMine(); // or between two calls: the next one is an event, too
  const std::lock_guard lock(mutex_);
  if (!isInCall || !streams_)
    static_cast<void>(endPlanning(library, pastTheDriver)); // if the plan stays, the next event tries again
  else {
    isUnplanned_ = true;
    unplanned_ = fmt::format("{}: {}", library, pastTheDriver);
    streams_->refuseLater(unplanned_);
  }
}

/// Not under the lock: the loader has one of its own, which a thread may hold that waits for the shim's.
void Shim::openCompiler() {
  driverFunction("cuCtxGetDevice", 2000); // finds the driver, too
  runtime::Expected<runtime::Compiler> opened = runtime::Compiler::open({});
  if (opened)
    compiler_ = new runtime::Compiler(*opened);
  else
    stopPlanning("dlopen", opened.error().message);
}

CUresult Shim::stepAside(const std::string &reason) {
  if (mutex_.isMine()) { // the driver itself opens a library; the next event finds the reason
    pending_ = reason;
    return CUDA_SUCCESS;
  }
  const std::lock_guard lock(mutex_);
  return stepAsideNow(reason);
}

/// Calls go past the shim only once all values are at their addresses. Until then the next event tries again.
CUresult Shim::stepAsideNow(const std::string &reason) {
  if (!isActive())
    return CUDA_SUCCESS;
  if (streams_)
    if (const runtime::Status back = streams_->takeBack(reason); !back) {
      pending_ = reason;
      return refuse(back.error());
    }
  Standing active = Standing::Active;
  if (!standing_.compare_exchange_strong(active, Standing::Aside))
    return CUDA_SUCCESS;
  const std::lock_guard lock(reasonMutex_);
  reason_ = reason;
  say(Level::Warning, reason + ": the program goes on without PumpGraph");
  return CUDA_SUCCESS;
}

void Shim::nextEvent() {
  if (!pending_.empty())
    stepAsideNow(std::exchange(pending_, {}));
  if (!streams_ || !isActive() || isCapturing())
    return;
  log_.goOn();
  const runtime::Compiler *const compiler = compiler_;
  if (inDriver_ != 0 || !compiler)
    return;
  std::optional<runtime::RoundScript> round = log_.takeDescribed();
  const auto [period, phase] = log_.place();
  if (round || streams_->mayBeginRound(period, phase))
    looksAtLibraries();
  if (round)
    streams_->plan(std::move(*round), *compiler);
  streams_->planAgain(*compiler);
  if (!log_.isWriting())
    streams_->clocks().restart();
  if (period != 0 && executables_.areAllKnown())
    streams_->beginRound(period, phase);
  if (streams_->takeGivenUp())
    log_.describeAgain();
}

std::unique_ptr<runtime::Call> Shim::takeCall() {
  if (calls_.empty())
    return std::make_unique<runtime::Call>();
  std::unique_ptr<runtime::Call> call = std::move(calls_.back());
  calls_.pop_back();
  return call;
}

CUresult Shim::stopPlanning(std::string_view symbol, std::string_view reason) {
  if (!plans() || !follows())
    return CUDA_SUCCESS;
  const std::lock_guard lock(mutex_);
  nextEvent();
  return endPlanning(symbol, reason);
}

CUresult Shim::endPlanning(std::string_view symbol, std::string_view reason) {
  isUnplanned_ = true;
  unplanned_ = fmt::format("{}: {}", symbol, reason);
  const runtime::Status back = streams_ ? streams_->refuse(unplanned_) : runtime::Status{};
  return back ? CUDA_SUCCESS : refuse(back.error());
}

CUresult Shim::refuse(const runtime::Error &error) {
  say(Level::Error, "the call is refused, because values of the program are not at their addresses: " + error.message);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void Shim::captureBegins(CUstream stream) {
  const std::lock_guard lock(mutex_);
  captures_.fetch_add(1, std::memory_order_relaxed);
  log_.interrupt();
  if (memory_)
    memory_->beginsCapture(stream);
}

void Shim::captureEnds(CUstream stream) {
  const std::lock_guard lock(mutex_);
  if (memory_)
    memory_->endsCapture(stream);
  // A capture that somebody began ahead of the shim ends, too.
  int running = captures_.load();
  while (running > 0 && !captures_.compare_exchange_weak(running, running - 1))
    ;
}

void Shim::beginsContext(CUdevice device, bool isPrimary) {
  std::unique_lock lock(mutex_);
  if (isPrimary && primary_ == device)
    return;
  if (isPrimary)
    primary_ = device;
  if (++contexts_ == 1)
    return;
  lock.unlock();
  stepAside(fmt::format("a second context, on device {}", device));
}

Memory *Shim::memory() {
  if (memory_ || !isActive())
    return memory_.get();
  const std::optional<CUdevice> device = Memory::currentDevice();
  if (!device)
    return nullptr;
  runtime::Expected<std::unique_ptr<Memory>> opened = Memory::open(*device, settings_.budgetBytes, settings_.hostBytes);
  if (!opened) {
    stepAsideNow(opened.error().message);
    return nullptr;
  }
  memory_ = std::move(*opened);
  log_.resolveBy(memory_.get());
  log_.describe(!settings_.reportFolder.empty() || settings_.plans);
  if (settings_.plans)
    openStreams(*device);
  if (streams_ && !unplanned_.empty())
    static_cast<void>(streams_->refuse(unplanned_)); // none is in force
  return memory_.get();
}

void Shim::openStreams(CUdevice device) {
  static const auto ask =
      reinterpret_cast<PFN_cuDeviceGetAttribute_v2000>(driverFunction("cuDeviceGetAttribute", 2000));
  int reachesAll = 0;
  hostRanges_.reachesAll(!ask || ask(&reachesAll, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, device) != CUDA_SUCCESS ||
                         reachesAll != 0);
  StreamRun::Options options{.patience = settings_.patience, .link = std::nullopt};
  if (const auto &[up, down, both] = settings_.linkSpeed; up != 0)
    options.link = {up * 1e9, down * 1e9, both * 1e9};
  streams_ = std::make_unique<StreamRun>(
      memory_->tools(),
      runtime::NamedBlocks::Beside{.ranges = [this] { return memory_->beside(); },
                                   .isOfHost = [this](std::uint64_t word) { return hostRanges_.contains(word); },
                                   .hostBounds = [this] { return hostRanges_.bounds(); }},
      options, [this](StreamRun::Level level, const std::string &text) {
        say(level == StreamRun::Level::Info ? Level::Info : Level::Debug, text);
      });
}

void Shim::isForked() {
  // Its threads and locks are the parent's. What has not used CUDA yet may begin as if started anew.
  if (!hasBegun_.exchange(false))
    return;
  isFork_ = true;
  standing_ = Standing::LeftAlone;
}

void Shim::summarize() {
  if (!hasBegun_ || isFork_ || settings_.budgetBytes == 0)
    return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) // a thread is in the driver at the end, and does not come back
    return;
  if (memory_)
    say(Level::Info, memory_->summary());
  if (log_.calls() != 0)
    say(Level::Info, log_.summary());
  if (streams_)
    say(Level::Info, fmt::format("{} calls came as planned, {} without a plan", streams_->plannedCalls(),
                                 log_.calls() - streams_->plannedCalls()));
  for (const std::string &line : streams_ ? streams_->summary() : std::vector<std::string>())
    say(Level::Info, line);
  if (const std::lock_guard reasonLock(reasonMutex_); !reason_.empty())
    say(Level::Info, "without PumpGraph since: " + reason_);
  if (settings_.reportFolder.empty())
    return;
  runtime::Status written = log_.writeReport(settings_.reportFolder);
  if (written && streams_)
    written = streams_->writeReport(settings_.reportFolder);
  if (!written)
    say(Level::Error, written.error().message);
}

namespace {
__attribute__((destructor)) void atEnd() {
  shim().summarize();
}
} // namespace

} // namespace pumpgraph::preload
