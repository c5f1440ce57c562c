// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/CallLog.h"

#include "runtime/preload/CallBuilder.h"
#include "runtime/preload/EntryPoints.h"
#include "runtime/state/Compiler.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace pumpgraph::preload {

using runtime::Call;
using runtime::CallStream;
using runtime::Compiler;
using runtime::Expected;
using runtime::Period;
using runtime::Recognition;
using runtime::Round;
using runtime::RoundStream;

namespace {

/// The one whose rounds make up most of the calls.
const Period *longestFollowed(const std::list<Period> &periods) {
  const auto most = std::max_element(periods.begin(), periods.end(), [](const Period &one, const Period &other) {
    return one.followed + one.calls.size() < other.followed + other.calls.size();
  });
  return most == periods.end() ? nullptr : &*most;
}

RoundStream roundStream(const CallStream &stream) {
  static const auto flagsOf =
      reinterpret_cast<CUresult (*)(CUstream, unsigned *)>(driverFunction("cuStreamGetFlags", 2000));
  const std::uint64_t id = idOf(stream);
  unsigned flags = 0;
  if (stream.isOfThread || id == 0)
    return {id, true};
  // Unless that is sure, the stream follows no other.
  return {id, flagsOf && flagsOf(stream.handle, &flags) == CUDA_SUCCESS && (flags & CU_STREAM_NON_BLOCKING) == 0};
}

std::uint64_t wordOf(CUstream stream) {
  return reinterpret_cast<std::uintptr_t>(stream);
}

} // namespace

void CallLog::addRecord(Call &wait) const {
  const auto record = lastRecord_.find(reinterpret_cast<CUevent>(*wait.awaited));
  const bool isKnown = record != lastRecord_.end();
  wait.parts.push_back(isKnown ? detector_.calls() - record->second.place : 0);
  wait.parts.push_back(isKnown ? record->second.stream : 0);
}

void CallLog::add(const Call &call) {
  goOn();
  if (writing_)
    write(call);
  const Recognition recognition = detector_.add(call.identity());
  if (!describes_)
    return;
  if (recognition == Recognition::Following) {
    if (writing_)
      --writing_->missing;
    return;
  }
  writing_.reset();
  if (recognition != Recognition::Found || written_.contains(detector_.inForce()->number))
    return;
  beginWriting();
}

void CallLog::beginWriting() {
  writing_.emplace();
  writing_->number = ++lastWriting_;
  writing_->script.period = detector_.inForce()->number;
  writing_->script.phase = detector_.phase();
  writing_->missing = detector_.inForce()->calls.size();
}

void CallLog::describeAgain() {
  written_.clear();
  dropDescribed();
  writing_.reset();
  if (describes_ && detector_.inForce())
    beginWriting();
}

void CallLog::write(const Call &call) {
  Round &round = writing_->round;
  writing_->script.events.push_back({.kind = runtime::RoundEvent::Kind::Call,
                                     .parts = call.parts,
                                     .name = call.name,
                                     .streamId = call.streamId,
                                     .isNode = !call.awaited});
  if (!call.unplannable.empty() && writing_->script.unplannable.empty())
    writing_->script.unplannable = fmt::format("{}: {}", call.name, call.unplannable);
  if (call.awaited) { // what comes next on its stream follows the record
    round.waits(roundStream(call.stream), *call.awaited);
    return;
  }
  writing_->script.clocks.push_back(call.clock);
  round.begin(call.kind, call.name, roundStream(call.stream),
              call.kind == NodeKind::Opaque ? std::string(call.unplannable) : "");
  for (const runtime::RoundAccess &access : call.accesses)
    round.access(access);
}

CallLog::Recording CallLog::recordBegins(CUevent event, const CallStream &stream) {
  forgets(event);
  UnderWay &underWay = underWay_[event];
  underWay.isAlone = underWay.count++ == 0;
  Recording recording{.event = event, .place = detector_.calls(), .stream = idOf(stream), .before = {}};
  if (writing_) {
    recording.writing = writing_->number;
    recording.before = writing_->round.before(roundStream(stream));
  }
  return recording;
}

void CallLog::recordEnds(Recording recording, bool isRecorded) {
  const auto underWay = underWay_.find(recording.event);
  if (isRecorded && underWay->second.isAlone) {
    lastRecord_[recording.event] = {recording.place, recording.stream};
    if (writing_ && writing_->number == recording.writing)
      writing_->round.records(reinterpret_cast<std::uintptr_t>(recording.event), std::move(recording.before));
  }
  if (--underWay->second.count == 0)
    underWay_.erase(underWay);
}

void CallLog::forgets(CUevent event) {
  lastRecord_.erase(event);
  if (const auto underWay = underWay_.find(event); underWay != underWay_.end())
    underWay->second.isAlone = false;
  if (writing_)
    writing_->round.forgets(reinterpret_cast<std::uintptr_t>(event));
}

void CallLog::allocated(CUdeviceptr address, std::uint64_t bytes, CUstream stream) {
  goOn();
  if (!writing_)
    return;
  const std::optional<Extent> extent = memory_->find(address);
  const bool isAlone = extent && !extent->isShared;
  if (isAlone)
    writing_->round.allocated(extent->block);
  writing_->script.events.push_back({.kind = runtime::RoundEvent::Kind::Allocate,
                                     .parts = {bytes, wordOf(stream), address},
                                     .name = {},
                                     .block = isAlone ? extent->block.address : 0});
}

void CallLog::freed(CUdeviceptr address, CUstream stream) {
  if (!writing_ || !writing_->hasBegun)
    return;
  const std::optional<Extent> extent = memory_->find(address);
  const bool isAlone = extent && !extent->isShared;
  if (isAlone)
    writing_->round.freed(extent->block);
  writing_->script.events.push_back({.kind = runtime::RoundEvent::Kind::Free,
                                     .parts = {wordOf(stream), address},
                                     .name = {},
                                     .block = isAlone ? extent->block.address : 0});
}

void CallLog::goOn() {
  if (!writing_)
    return;
  writing_->hasBegun = true;
  if (writing_->missing == 0)
    endRound();
}

void CallLog::endRound() {
  runtime::RoundScript &script = writing_->script;
  script.description = writing_->round.describe(fmt::format("period{}", script.period));
  written_.insert(script.period);
  rounds_[script.period] = script.description;
  described_ = std::move(script);
  writing_.reset();
}

void CallLog::interrupt() {
  detector_.interrupt();
  writing_.reset();
}

std::pair<std::uint32_t, std::uint64_t> CallLog::place() const {
  return detector_.inForce() ? std::pair(detector_.inForce()->number, detector_.phase())
                             : std::pair(0U, std::uint64_t{0});
}

std::string CallLog::summary() const {
  const Period *const period = longestFollowed(detector_.known());
  std::string text = fmt::format("{} calls on the device", detector_.calls());
  if (!period)
    return text + ", without a period";
  text += fmt::format("; a period of {} of them, found at call {}, for {} rounds", period->calls.size(),
                      period->foundAt, 2 + period->followed / period->calls.size());
  if (period->deviations != 0)
    text += fmt::format(", left {} times", period->deviations);
  return text;
}

runtime::Status CallLog::writeReport(const std::string &folder) {
  if (writing_ && writing_->missing == 0)
    endRound();
  if (rounds_.empty())
    return {};
  const Expected<Compiler> compiler = Compiler::open({});
  if (!compiler)
    return tl::unexpected(compiler.error());
  std::error_code ignored; // the file tells
  std::filesystem::create_directories(folder, ignored);
  for (const auto &[number, round] : rounds_) {
    const DescriptionView view(round);
    char *const text = compiler->print(view.get(), nullptr);
    // Several processes may report into one folder.
    const std::string path = fmt::format("{}/{}-period-{}.mlir", folder, getpid(), number);
    std::ofstream file(path);
    file << (text ? text : "");
    file.close();
    compiler->freeString(text);
    if (!text)
      return runtime::fail(PUMPGRAPH_INTERNAL, "period {} cannot be printed: {}", number, validate(round));
    if (!file)
      return runtime::fail(PUMPGRAPH_INVALID_ARGUMENT, "the report {} cannot be written: {}", path, strerror(errno));
  }
  return {};
}

} // namespace pumpgraph::preload
