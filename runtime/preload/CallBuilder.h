// SPDX-License-Identifier: Apache-2.0
/// \file
/// Collects the parts of one of the program's calls.
#pragma once

#include "runtime/preload/HostRanges.h"
#include "runtime/preload/Memory.h"
#include "runtime/streams/Call.h"

#include <cstdint>

namespace pumpgraph::preload {

/// Of a kernel's parameters only words that lead into an allocation belong to a call: numbers change from round to
/// round, and each launch keeps its own.
class CallBuilder {
public:
  /// `memory`: null if there is none. `host`: null where nothing is planned.
  CallBuilder(runtime::Call &call, const Memory *memory, const HostRanges *host)
      : call_(call), memory_(memory), host_(host) {}

  /// `name`: of the kernel, or of the driver's function.
  void begin(NodeKind kind, std::uint64_t function, const runtime::CallStream &stream, const char *name);
  void value(std::uint64_t number) { call_.parts.push_back(number); }
  /// If it leads into an allocation or beside one, the call may read and write all of that.
  void word(std::uint64_t word, std::int32_t parameter = unknownParameter);
  /// The words of a kernel's parameter.
  void words(const void *data, std::size_t bytes, std::int32_t parameter);
  /// These bytes are read, or overwritten.
  void span(std::uint64_t address, std::uint64_t bytes, Mode mode);
  /// Memory that it reads and that is not the heap's may hold addresses.
  void uploads(std::uint64_t to, std::uint64_t address, std::uint64_t bytes);
  void waits(CUevent event) { call_.awaited = reinterpret_cast<std::uintptr_t>(event); }
  void unplannable(std::string_view reason) { call_.unplannable = reason; }

private:
  runtime::Call &call_;
  const Memory *memory_;
  const HostRanges *host_;
};

/// The legacy default stream has two names; each thread's has one for all of them.
std::uint64_t idOf(const runtime::CallStream &stream);

} // namespace pumpgraph::preload
