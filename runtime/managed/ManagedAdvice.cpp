// SPDX-License-Identifier: Apache-2.0
#include "runtime/managed/ManagedAdvice.h"

#include "runtime/agent/ManagedLocation.h"

#include <optional>
#include <utility>

namespace pumpgraph::runtime {

namespace {

struct Call {
  CUmem_advise give, takeBack;
  CUmemLocation where;
};

std::optional<Call> callFor(Advice advice, int device) {
  switch (advice) {
  case Advice::ReadMostly:
    return Call{CU_MEM_ADVISE_SET_READ_MOSTLY, CU_MEM_ADVISE_UNSET_READ_MOSTLY, onDevice(device)};
  case Advice::PreferHost:
    return Call{CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, inHostMemory()};
  case Advice::PreferDevice:
    return Call{CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, onDevice(device)};
  case Advice::AccessedBy:
    return Call{CU_MEM_ADVISE_SET_ACCESSED_BY, CU_MEM_ADVISE_UNSET_ACCESSED_BY, onDevice(device)};
  case Advice::None:
    break;
  }
  return std::nullopt;
}

} // namespace

Status advise(const Driver &driver, int device, const ManagedRange &range, Advice advice) {
  const std::optional<Call> call = callFor(advice, device);
  return call ? driver.memAdvise(range.address, range.bytes, call->give, call->where) : Status{};
}

Status takeBack(const Driver &driver, int device, const ManagedRange &range, Advice advice) {
  const std::optional<Call> call = callFor(advice, device);
  return call ? driver.memAdvise(range.address, range.bytes, call->takeBack, call->where) : Status{};
}

Status moveFromHostMemory(const Driver &driver, int device, CUstream stream, const ManagedRange &range,
                          bool mayStayOnDevice) {
  PUMPGRAPH_TRY(driver.memPrefetchAsync(range.address, range.bytes, onDevice(device), 0, stream));
  if (mayStayOnDevice)
    return {};
  return driver.memPrefetchAsync(range.address, range.bytes, inHostMemory(), 0, stream);
}

ManagedRange rangeOf(const Description &lowered, const Node &node) {
  return rangeOf(lowered, node.buffer, node.range);
}

ManagedRange rangeOf(const Description &lowered, BufferIndex buffer, const Range &range) {
  return {lowered.buffers[buffer].address + range.offset, range.size};
}

Status takeAdviceBack(const Driver &driver, int device, CUstream stream, const Description &lowered,
                      const std::function<std::vector<Range>(const Node &)> &remaining) {
  Status all;
  const auto forEachAdvice = [&](const auto &visit) {
    for (const Node &node : lowered.nodes)
      if (node.kind == NodeKind::Advise)
        for (const Range &range : remaining(node))
          visit(node.advice, rangeOf(lowered, node.buffer, range));
  };
  forEachAdvice(
      [&](Advice advice, const ManagedRange &range) { keepFirst(all, takeBack(driver, device, range, advice)); });
  forEachAdvice([&](Advice advice, const ManagedRange &range) {
    if (advice == Advice::AccessedBy)
      keepFirst(all, moveFromHostMemory(driver, device, stream, range, false));
  });
  keepFirst(all, driver.streamSynchronize(stream));
  return all;
}

} // namespace pumpgraph::runtime
