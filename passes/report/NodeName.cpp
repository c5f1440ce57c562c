// SPDX-License-Identifier: Apache-2.0
#include "passes/report/NodeName.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace pumpgraph {

const char *kindName(NodeKind kind) {
  switch (kind) {
  case NodeKind::Kernel:
    return "kernel";
  case NodeKind::Memcpy:
    return "memcpy";
  case NodeKind::Memset:
    return "memset";
  case NodeKind::Host:
    return "host";
  case NodeKind::Empty:
    return "empty";
  case NodeKind::ChildGraph:
    return "child_graph";
  case NodeKind::EventRecord:
    return "event_record";
  case NodeKind::EventWait:
    return "event_wait";
  case NodeKind::SemaphoreSignal:
    return "semaphore_signal";
  case NodeKind::SemaphoreWait:
    return "semaphore_wait";
  case NodeKind::MemAlloc:
    return "mem_alloc";
  case NodeKind::MemFree:
    return "mem_free";
  case NodeKind::BatchMemOp:
    return "batch_mem_op";
  case NodeKind::Conditional:
    return "conditional";
  case NodeKind::Opaque:
    return "opaque";
  case NodeKind::Evict:
    return "evict";
  case NodeKind::Prefetch:
    return "prefetch";
  case NodeKind::Discard:
    return "discard";
  case NodeKind::Advise:
    return "advise";
  case NodeKind::CopyToHost:
    return "copy_to_host";
  case NodeKind::CopyToDevice:
    return "copy_to_device";
  case NodeKind::Rematerialize:
    return "rematerialize";
  }
  return "unknown";
}

std::string demangle(const std::string &name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void *)> text(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                     std::free);
  return text ? std::string(text.get()) : name;
}

static void eraseAll(std::string &text, std::string_view what) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at))
    text.erase(at, what.size());
}

/// nvcc gives anonymous namespaces names of their own, with the file and a hash in them.
static void eraseAnonymous(std::string &text) {
  eraseAll(text, "(anonymous namespace)::");
  static constexpr std::string_view prefix = "_GLOBAL__N__";
  for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at)) {
    const std::size_t end = text.find("::", at);
    if (end == std::string::npos)
      return;
    text.erase(at, end + 2 - at);
  }
}

std::string withoutArguments(std::string_view demangled) {
  std::string text(demangled);
  eraseAnonymous(text);
  std::string outside;
  int depth = 0;
  for (const char c : text) {
    if (c == '<' || c == '(')
      ++depth;
    else if (c == '>' || c == ')')
      --depth;
    else if (depth == 0)
      outside += c;
    if (depth < 0)
      return text; // an operator with a bracket in its name: better long than wrong
  }
  // The return type, which only templates have.
  const std::size_t last = outside.find_last_not_of(' ');
  if (depth != 0 || last == std::string::npos)
    return text;
  outside.erase(last + 1);
  return outside.substr(outside.rfind(' ') + 1);
}

std::string displayName(const Node &node) {
  if (!node.label.empty())
    return node.label;
  if (node.name.empty())
    return kindName(node.kind);
  // What is not mangled is somebody's own name for it, blanks and brackets included.
  return node.name.starts_with("_Z") ? withoutArguments(demangle(node.name)) : node.name;
}

const char *directionName(const Node &node) {
  if (movesUp(node.kind))
    return "up";
  return movesDown(node.kind) ? "down" : "none";
}

} // namespace pumpgraph
