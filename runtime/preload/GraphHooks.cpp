// SPDX-License-Identifier: Apache-2.0
/// \file
/// Executable graphs: the program's own, whose memory stays in place.
#include "runtime/preload/Hooks.h"

namespace pumpgraph::preload {

bool isInstantiation(const EntryPoint &entry) {
  return std::string_view(entry.name).starts_with("cuGraphInstantiate");
}

void noteExecutable(const EntryPoint &entry, const GraphArguments &given) {
  if (!shim().plans() || !shim().isActive())
    return;
  const std::lock_guard lock(shim().mutex());
  Executables &executables = shim().executables();
  const CUgraphExec executable = isInstantiation(entry) ? *given.made : given.changed;
  // The graph of another call is a child's, whose memory is a part of the executable's.
  const bool isOfTheWhole = isInstantiation(entry) || std::string_view(entry.name).starts_with("cuGraphExecUpdate");
  if (!given.graph || !isOfTheWhole)
    return executables.change(executable);
  Memory *const memory = shim().memoryIfOpen();
  // The device launches others by handles that nobody sees.
  const bool isOfDevice = (given.flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0;
  std::optional<GraphWords> words;
  if (memory && !isOfDevice)
    words = wordsOf(memory->tools().driver, given.graph, *memory, shim().kernels());
  if (words && shim().streams())
    shim().streams()->keepInPlace(*words);
  executables.begin(executable, std::move(words));
}

CUresult Hook<tag::cuGraphLaunch>::call(const Real<CUresult (*)(CUgraphExec, CUstream)> &real, CUgraphExec executable,
                                        CUstream stream) {
  const auto describe = [&](CallBuilder &call) {
    const Executables::Known *const known = shim().executables().find(executable);
    call.begin(known ? NodeKind::Kernel : NodeKind::Opaque, reinterpret_cast<std::uintptr_t>(&real.entry()),
               callStream(real.entry(), stream), real.entry().symbol);
    if (!known)
      return Parts<tag::cuGraphLaunch>::add(call, executable, stream);
    if (shim().streams())
      shim().streams()->keepInPlace(known->words); // younger memory may have an address that it names
    call.value(known->number);
    for (const std::uint64_t word : known->words)
      call.words(&word, sizeof word, unknownParameter);
  };
  return perform(describe, [&] { return real(executable, stream); });
}

CUresult Hook<tag::cuGraphExecDestroy>::call(const Real<CUresult (*)(CUgraphExec)> &real, CUgraphExec executable) {
  if (shim().plans() && shim().isActive()) { // ahead of it, since the handle comes back
    const std::lock_guard lock(shim().mutex());
    shim().executables().end(executable);
  }
  return real(executable);
}

} // namespace pumpgraph::preload
