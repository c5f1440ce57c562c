// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/CallLog.h"

#include "runtime/preload/EntryPoints.h"
#include "runtime/state/Compiler.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace pumpgraph::preload {

using runtime::Compiler;
using runtime::Expected;
using runtime::Period;
using runtime::Recognition;

namespace {

/// The one whose rounds make up most of the calls.
const Period *longestFollowed(const std::list<Period> &periods) {
  const auto most = std::max_element(periods.begin(), periods.end(), [](const Period &one, const Period &other) {
    return one.followed + one.calls.size() < other.followed + other.calls.size();
  });
  return most == periods.end() ? nullptr : &*most;
}

/// The legacy default stream has two names; each thread's has one for all of them.
std::uint64_t idOf(const CallStream &stream) {
  const std::uint64_t handle = stream.handle == CU_STREAM_LEGACY ? 0 : reinterpret_cast<std::uintptr_t>(stream.handle);
  return stream.isOfThread ? static_cast<std::uint64_t>(gettid()) << 8 | 2 : handle;
}

bool isBlocking(const CallStream &stream) {
  static const auto flagsOf =
      reinterpret_cast<CUresult (*)(CUstream, unsigned *)>(driverFunction("cuStreamGetFlags", 2000));
  unsigned flags = 0;
  if (stream.isOfThread || idOf(stream) == 0)
    return true;
  // Unless that is sure, the stream follows no other.
  return flagsOf && flagsOf(stream.handle, &flags) == CUDA_SUCCESS && (flags & CU_STREAM_NON_BLOCKING) == 0;
}

} // namespace

runtime::RoundStream CallLog::roundStream(const CallStream &stream) const {
  return {idOf(stream), isBlocking(stream)};
}

void CallLog::begin(NodeKind kind, std::uint64_t function, const CallStream &stream, const char *name) {
  goOn();
  identity_ = {};
  identity_.add(function).add(idOf(stream));
  // A wait is no node: what comes next on its stream follows the record.
  if (round_ && kind != NodeKind::EventWait)
    round_->begin(kind, name, roundStream(stream), kind == NodeKind::Opaque ? "its accesses are not known" : "");
}

void CallLog::word(std::uint64_t word, std::int32_t parameter) {
  if (!memory_ || !memory_->mayHold(word))
    return;
  const std::optional<Extent> extent = memory_->find(word);
  if (!extent)
    return;
  identity_.add(word);
  if (round_)
    round_->access({.block = extent->block, .range = extent->range(), .parameter = parameter});
}

void CallLog::words(const void *data, std::size_t bytes, std::int32_t parameter) {
  // A parameter that is the address, and no more.
  const std::int32_t known = bytes == sizeof(std::uint64_t) ? parameter : unknownParameter;
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= bytes; at += sizeof(std::uint64_t)) {
    std::uint64_t value;
    std::memcpy(&value, static_cast<const char *>(data) + at, sizeof value);
    word(value, known);
  }
}

void CallLog::span(std::uint64_t address, std::uint64_t bytes, Mode mode) {
  identity_.add(bytes);
  while (bytes != 0) {
    const std::optional<Extent> extent = memory_ ? memory_->find(address) : std::nullopt;
    if (!extent || address == extent->address + extent->bytes)
      return;
    identity_.add(address);
    const std::uint64_t here = std::min<std::uint64_t>(bytes, extent->address + extent->bytes - address);
    if (round_)
      round_->access({.block = extent->block,
                      .range = Range{address - extent->block.address, here},
                      .may = mode,
                      .must = mode,
                      .evidence = Evidence::Proved});
    address += here;
    bytes -= here;
  }
}

void CallLog::records(CUevent event, const CallStream &stream) {
  lastRecord_[event] = detector_.calls();
  if (round_)
    round_->records(reinterpret_cast<std::uintptr_t>(event), roundStream(stream));
}

void CallLog::waits(const CallStream &stream, CUevent event) {
  const auto record = lastRecord_.find(event);
  value(record == lastRecord_.end() ? 0 : detector_.calls() - record->second);
  if (round_)
    round_->waits(roundStream(stream), reinterpret_cast<std::uintptr_t>(event));
}

void CallLog::allocated(CUdeviceptr address) {
  goOn();
  if (!round_)
    return;
  if (const std::optional<Extent> extent = memory_->find(address); extent && !extent->isShared)
    round_->allocated(extent->block);
}

void CallLog::freed(CUdeviceptr address) {
  if (!round_ || !hasBegun_)
    return;
  if (const std::optional<Extent> extent = memory_->find(address); extent && !extent->isShared)
    round_->freed(extent->block);
}

void CallLog::end() {
  const Recognition recognition = detector_.add(identity_.identity());
  if (!describes_)
    return;
  if (recognition == Recognition::Following) {
    missing_ -= round_ ? 1 : 0;
    return;
  }
  round_.reset();
  if (recognition != Recognition::Found || rounds_.contains(detector_.inForce()->number))
    return;
  round_.emplace();
  number_ = detector_.inForce()->number;
  missing_ = detector_.inForce()->calls.size();
  hasBegun_ = false;
}

/// Memory that is freed behind the last call of a round belongs to that round.
void CallLog::goOn() {
  hasBegun_ = true;
  if (round_ && missing_ == 0)
    endRound();
}

void CallLog::endRound() {
  rounds_[number_] = round_->describe(fmt::format("period{}", number_));
  round_.reset();
}

void CallLog::interrupt() {
  detector_.interrupt();
  round_.reset();
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
  if (round_ && missing_ == 0)
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
