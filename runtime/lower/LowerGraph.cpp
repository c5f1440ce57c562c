// SPDX-License-Identifier: Apache-2.0
#include "runtime/lower/LowerGraph.h"

#include "pumpgraph/graph/CopyRows.h"
#include "pumpgraph/graph/HostedChains.h"
#include "runtime/lower/CloneNode.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <unordered_map>

namespace pumpgraph::runtime {
namespace {

/// Adds one lowered copy. Pages that are hosted at another address are host memory there, to kernels as to copies.
Expected<CUgraphNode> addCopy(GraphEditor &editor, const Node &copy, const Description &lowered,
                              const PinnedPools &pools, const HostedChains &hosted) {
  const CUdeviceptr device = lowered.buffers[copy.buffer].address + copy.range.offset;
  if (const BufferIndex host = hosted.at(copy.buffer, copy.range.offset); host != noBuffer) {
    void *there = reinterpret_cast<void *>(lowered.buffers[host].address + copy.range.offset);
    return movesDown(copy.kind) ? editor.addCopyToHost(there, device, copy.range.size)
                                : editor.addCopyToDevice(device, there, copy.range.size);
  }
  if (!pools.holds(copy.hostOffset, copy.range.size))
    return fail(PUMPGRAPH_INTERNAL, "copy \"{}\" of {} at {} lies outside the pinned pool of {}", copy.name,
                bytesText(copy.range.size), copy.hostOffset, bytesText(pools.bytes()));
  char *host = pools.at(copy.hostOffset);
  return movesDown(copy.kind) ? editor.addCopyToHost(host, device, copy.range.size)
                              : editor.addCopyToDevice(device, host, copy.range.size);
}

/// Adds the copy whose rows are these lowered copies.
Expected<CUgraphNode> addRows(GraphEditor &editor, const CopyRows &nodes, const JoinedCopies &joined,
                              const Description &lowered, const std::vector<BlockId> &blocks,
                              const Residence &residence) {
  if (std::string fault = joined.faultOf(nodes); !fault.empty())
    return fail(PUMPGRAPH_INTERNAL, "{} copies cannot be one: {}", nodes.size(), fault);
  const CopyRows ascending = joined.inHostOrder(nodes);
  const Node &first = lowered.nodes[ascending.front()];
  const Residence::Rows rows = Residence::rowsOf(lowered, ascending, blocks);
  const GraphEditor::Rows copied{.bytes = first.range.size,
                                 .count = ascending.size(),
                                 .hostDistance = joined.hostDistance(ascending),
                                 .deviceDistance = rows.pagesPerRow * pageBytes};
  const PinnedPools &pools = residence.pool();
  const std::uint64_t bytes = (copied.count - 1) * copied.hostDistance + copied.bytes;
  if (!pools.holds(first.hostOffset, bytes))
    return fail(PUMPGRAPH_INTERNAL, "{} rows from {} on do not lie in one piece of the pinned pool of {}", copied.count,
                bytesText(first.hostOffset), bytesText(pools.bytes()));
  char *host = pools.at(first.hostOffset);
  const CUdeviceptr device = residence.addressOf(rows);
  return movesDown(first.kind) ? editor.addCopyToHost(host, device, copied)
                               : editor.addCopyToDevice(device, host, copied);
}

/// The buffers in whose place a lowered node has others that continue them, and these.
Expected<std::map<BufferIndex, BufferIndex>> renamedBy(const Node &node, const std::vector<Buffer> &buffers) {
  std::map<BufferIndex, BufferIndex> all;
  for (const Access &access : node.accesses) {
    const auto [known, isNew] = all.emplace(capturedBuffer(buffers, access.buffer), access.buffer);
    if (!isNew && known->second != access.buffer)
      return fail(PUMPGRAPH_INTERNAL, "node {} \"{}\" has \"{}\" at two addresses", computedNode(node), node.name,
                  buffers[known->first].name);
  }
  std::erase_if(all, [](const auto &one) { return one.first == one.second; });
  return all;
}

/// Where a repetition has in `memory` what begins at `address` in its original: at the same place of an aligned piece.
std::uint64_t placeAside(CUdeviceptr memory, std::uint64_t address) {
  return memory + address % asideAlignment;
}

/// The parameters that a captured node or a repetition of one is to have, if they are not those it was captured with.
Expected<std::optional<KernelLaunch>> launchOf(const Node &node, const std::vector<Buffer> &buffers,
                                               const CapturedStep &step, const LiftedGraph &captured) {
  const Expected<std::map<BufferIndex, BufferIndex>> renamed = renamedBy(node, buffers);
  if (!renamed)
    return tl::unexpected<Error>(renamed.error());
  const auto position = static_cast<std::size_t>(computedNode(node));
  std::map<std::uint32_t, AsideWord> asides; // not yet found
  if (node.kind == NodeKind::Rematerialize)
    for (const AsideWord &aside : asideWords(step.description, position))
      asides.emplace(aside.parameter, aside);
  if (renamed->empty() && asides.empty())
    return std::nullopt;
  if (!asides.empty() && step.asideMemory == 0)
    return fail(PUMPGRAPH_INTERNAL, "node {} \"{}\" has something aside, and its repetitions have no memory for that",
                position, node.name);
  std::set<BufferIndex> found;
  std::optional<KernelLaunch> launch;
  for (const OperandWord &word : step.words[position]) { // kernels of the graph itself have some, nothing else does
    const auto to = renamed->find(word.buffer);
    const auto aside = asides.find(word.parameter);
    if (to == renamed->end() && aside == asides.end())
      continue;
    if (!launch)
      launch = captured.nodes[position].launches.front();
    const std::size_t at = launch->beginOf(word.parameter) + word.inParameter;
    std::uint64_t value = 0;
    std::memcpy(&value, launch->bytes.data() + at, sizeof value);
    if (aside != asides.end()) {
      value += placeAside(step.asideMemory, aside->second.address) - aside->second.address;
      asides.erase(aside);
    } else {
      value += buffers[to->second].address - buffers[word.buffer].address;
      found.insert(word.buffer);
    }
    std::memcpy(launch->bytes.data() + at, &value, sizeof value);
  }
  if (!asides.empty())
    return fail(PUMPGRAPH_INTERNAL, "node {} \"{}\" has parameter {} aside, and no address there to replace", position,
                node.name, asides.begin()->first);
  for (const auto &[from, to] : *renamed)
    if (!found.contains(from))
      return fail(PUMPGRAPH_INTERNAL, "node {} \"{}\" is to have \"{}\" at another address, and has none to replace",
                  computedNode(node), node.name, buffers[from].name);
  return launch;
}

/// Whether the compiler has those accesses aside that were so.
Status checkAsides(const Node &planned, const CapturedStep &step) {
  const auto position = static_cast<std::size_t>(planned.captured);
  const std::vector<AsideWord> words = asideWords(step.description, position);
  for (const Access &access : planned.accesses) {
    const bool isAside = std::any_of(words.begin(), words.end(), [&](const AsideWord &word) {
      return static_cast<std::int32_t>(word.parameter) == access.parameter;
    });
    if (access.isAside != isAside)
      return fail(PUMPGRAPH_INTERNAL, "the compiler library takes parameter {} of node {} \"{}\" for {}",
                  access.parameter, position, planned.name, isAside ? "one that is not aside" : "one that is aside");
  }
  return {};
}

/// Whatever the node that is repeated has got in its own place, the clone has what belongs here.
Expected<CUgraphNode> addRepetition(GraphEditor &editor, const Node &node, const std::vector<Buffer> &buffers,
                                    const CapturedStep &step, const LiftedGraph &captured) {
  const auto position = static_cast<std::size_t>(node.repeats);
  const Expected<std::optional<KernelLaunch>> changed = launchOf(node, buffers, step, captured);
  if (!changed)
    return tl::unexpected<Error>(changed.error());
  const LiftedNode &original = captured.nodes[position];
  const KernelLaunch *parameters = *changed                    ? &**changed
                                   : original.launches.empty() ? nullptr // a copy or a fill
                                                               : &original.launches.front();
  return editor.addClone(step.nodes[position], parameters);
}

/// The buffer that an address leads into.
std::optional<BufferIndex> bufferAt(const std::vector<Buffer> &buffers, std::uint64_t address) {
  const auto found = std::find_if(buffers.begin(), buffers.end(), [&](const Buffer &buffer) {
    return address >= buffer.address && address - buffer.address < buffer.size;
  });
  return found == buffers.end() ? std::nullopt : std::optional(static_cast<BufferIndex>(found - buffers.begin()));
}

/// Whether a node has the parameters of the captured one, or those that it is to have in their place. Of a kernel,
/// words are what its launch has, read once more.
bool hasParameters(const LiftedNode &node, const LiftedNode &captured, const std::optional<KernelLaunch> &changed) {
  return changed ? node.spans == captured.spans && node.launches == std::vector{*changed}
                 : node.hasParametersOf(captured);
}

/// Describes an added node as the repetition that it was added for, after finding that it is one.
Expected<Node> describeRepetition(const Driver &driver, const LiftedNode &lifted, const Node &planned,
                                  const LiftedGraph &captured, const CapturedStep &step,
                                  const std::vector<Buffer> &buffers) {
  const auto position = static_cast<std::size_t>(planned.repeats);
  const LiftedNode &original = captured.nodes[position];
  const auto refuse = [&](std::string_view difference) {
    return fail(PUMPGRAPH_INTERNAL, "what runs node {} \"{}\" again does not do what it does: {}", position,
                original.name, difference);
  };
  const Expected<std::optional<KernelLaunch>> changed = launchOf(planned, buffers, step, captured);
  if (!changed)
    return tl::unexpected<Error>(changed.error());
  if (lifted.kind != original.kind)
    return refuse("it is of another kind");
  if (!lifted.refusal.empty())
    return refuse(lifted.refusal);
  const Expected<std::string> difference = differenceOfClone(driver, lifted.handle, step.nodes[position]);
  if (!difference)
    return inContext(difference.error(),
                     fmt::format("comparing node {} \"{}\" with its clone", position, original.name));
  if (!difference->empty())
    return refuse(*difference);
  if (!hasParameters(lifted, original, *changed))
    return refuse("it has other parameters");
  Node node = step.description.nodes[position];
  node.kind = NodeKind::Rematerialize;
  node.captured = notCaptured;
  node.repeats = planned.repeats;
  node.accesses = planned.accesses;
  return node;
}

/// What is needed to know the copies of a rewritten graph again.
struct Places {
  const std::vector<Buffer> &buffers;
  const std::vector<BlockId> &blocks; ///< of the buffers
  const Residence &residence;
  HostedChains hosted;
};

Node copyNode(const Places &places, bool down, BufferIndex buffer, const Range &range) {
  Node node;
  node.kind = down ? NodeKind::CopyToHost : NodeKind::CopyToDevice;
  node.name = fmt::format("{} {}", down ? "evict" : "prefetch", places.buffers[buffer].name);
  node.buffer = buffer;
  node.range = range;
  return node;
}

/// The copies whose rows a memcpy node moves between addresses of such rows and the pinned pool; else none.
std::vector<Node> recogniseRows(const CUDA_MEMCPY3D &copy, bool down, const Places &places) {
  const Residence::Rows *rows = places.residence.rowsAt(down ? copy.srcDevice : copy.dstDevice);
  const PinnedPools &pools = places.residence.pool();
  const char *host = static_cast<const char *>(down ? copy.dstHost : copy.srcHost);
  if (!rows || rows->pages.size() != copy.Height || !pools.contains(host) ||
      (down ? copy.srcPitch : copy.dstPitch) != rows->pagesPerRow * pageBytes)
    return {};
  const std::uint64_t distance = down ? copy.dstPitch : copy.srcPitch;
  std::vector<Node> nodes;
  for (const auto &[block, page] : rows->pages) {
    const auto buffer = std::find(places.blocks.begin(), places.blocks.end(), block);
    if (buffer == places.blocks.end())
      return {};
    Node &node = nodes.emplace_back(copyNode(places, down, static_cast<BufferIndex>(buffer - places.blocks.begin()),
                                             {page * pageBytes, copy.WidthInBytes}));
    node.hostOffset = pools.offsetOf(host) + (nodes.size() - 1) * distance;
    node.joined = nodes.size() > 1;
  }
  return nodes;
}

/// The copies that a memcpy node is, if one side is some of the buffers, and the other the pinned pool, or the same
/// page where it is hosted; else none.
std::vector<Node> recogniseCopies(const LiftedNode &lifted, const Places &places) {
  if (!lifted.copy || lifted.copy->Depth > 1)
    return {};
  const CUDA_MEMCPY3D &copy = *lifted.copy;
  const bool down = copy.dstMemoryType == CU_MEMORYTYPE_HOST && copy.srcMemoryType == CU_MEMORYTYPE_DEVICE;
  const bool up = copy.srcMemoryType == CU_MEMORYTYPE_HOST && copy.dstMemoryType == CU_MEMORYTYPE_DEVICE;
  if (down == up)
    return {};
  if (copy.Height > 1)
    return recogniseRows(copy, down, places);
  const CUdeviceptr device = down ? copy.srcDevice : copy.dstDevice;
  const void *host = down ? copy.dstHost : copy.srcHost;
  const std::optional<BufferIndex> index = bufferAt(places.buffers, device);
  if (!index)
    return {};
  const PinnedPools &pools = places.residence.pool();
  Node node = copyNode(places, down, *index, {device - places.buffers[*index].address, copy.WidthInBytes});
  const BufferIndex there = places.hosted.at(*index, node.range.offset);
  if (there == noBuffer ? !pools.contains(host)
                        : reinterpret_cast<std::uintptr_t>(host) != places.buffers[there].address + node.range.offset)
    return {};
  node.hostOffset = there == noBuffer ? pools.offsetOf(host) : 0;
  return {std::move(node)};
}

/// Nodes of one lane follow one another; between lanes there are relays.
enum class Lane { Captured, Up, Down };

Lane laneOf(const Node &node) {
  if (!isCopy(node.kind))
    return Lane::Captured;
  return movesUp(node.kind) ? Lane::Up : Lane::Down;
}

/// Makes the edges of the graph those of `lowered`. `handles`: its nodes, in the same order.
Status connect(GraphEditor &editor, const Description &lowered, const std::vector<CUgraphNode> &handles,
               const LiftedGraph &captured) {
  std::map<std::pair<CUgraphNode, CUgraphNode>, const LiftedEdge *> leftOut;
  for (const LiftedEdge &edge : captured.edges)
    leftOut.emplace(std::pair{captured.nodes[edge.from].handle, captured.nodes[edge.to].handle}, &edge);
  std::vector<Edge> crossing;
  for (const Edge &edge : lowered.edges) {
    const CUgraphNode from = handles[edge.from], to = handles[edge.to];
    const Node &first = lowered.nodes[edge.from], &second = lowered.nodes[edge.to];
    if (from == to) // rows of one copy
      continue;
    if (laneOf(first) != laneOf(second)) {
      crossing.push_back(edge);
      continue;
    }
    const auto known = leftOut.find({from, to});
    if (known == leftOut.end()) {
      PUMPGRAPH_TRY_WHILE(editor.addEdge(from, to), "\"{}\" -> \"{}\"", first.name, second.name);
      continue;
    }
    if (edge.kind == EdgeKind::Full && known->second->kind == EdgeKind::Programmatic)
      PUMPGRAPH_TRY_WHILE(editor.demote(from, to, known->second->data), "\"{}\" -> \"{}\"", first.name, second.name);
    leftOut.erase(known);
  }
  for (const auto &[nodes, edge] : leftOut)
    PUMPGRAPH_TRY(editor.removeEdge(nodes.first, nodes.second, edge->data));

  std::vector<CUgraphNode> relays(handles.size(), nullptr);
  for (const Edge &edge : crossing) {
    CUgraphNode &relay = relays[edge.from];
    const std::string &name = lowered.nodes[edge.from].name;
    if (!relay) {
      const Expected<CUgraphNode> added = editor.addEmpty();
      if (!added)
        return inContext(added.error(), fmt::format("after \"{}\"", name));
      relay = *added;
      PUMPGRAPH_TRY_WHILE(editor.addEdge(handles[edge.from], relay), "\"{}\" -> its relay", name);
    }
    PUMPGRAPH_TRY_WHILE(editor.addEdge(relay, handles[edge.to]), "\"{}\" -> \"{}\"", name, lowered.nodes[edge.to].name);
  }
  return {};
}

} // namespace

Expected<Repetitions> lowerGraph(GraphEditor &editor, const Description &lowered, const CapturedStep &step,
                                 const LiftedGraph &captured, const std::vector<BlockId> &blocks,
                                 const Residence &residence) {
  std::vector<CUgraphNode> handles;
  Repetitions repetitions;
  const HostedChains hosted(lowered.buffers);
  const JoinedCopies joined(lowered);
  std::vector<const CopyRows *> rowsOf(lowered.nodes.size(), nullptr);
  for (const CopyRows &rows : joined.all())
    for (const NodeIndex row : rows)
      rowsOf[row] = &rows;
  for (NodeIndex index = 0; index < lowered.nodes.size(); ++index) {
    const Node &node = lowered.nodes[index];
    if (node.kind == NodeKind::Rematerialize) {
      const Expected<CUgraphNode> added = addRepetition(editor, node, lowered.buffers, step, captured);
      if (!added)
        return inContext(added.error(), fmt::format("running node {} \"{}\" again", node.repeats, node.name));
      repetitions.emplace(*added, index);
      handles.push_back(*added);
      continue;
    }
    if (node.captured != notCaptured) {
      const auto position = static_cast<std::size_t>(node.captured);
      handles.push_back(step.nodes[position]);
      PUMPGRAPH_TRY(checkAsides(node, step));
      const Expected<std::optional<KernelLaunch>> launch = launchOf(node, lowered.buffers, step, captured);
      if (!launch)
        return tl::unexpected<Error>(launch.error());
      if (*launch)
        PUMPGRAPH_TRY(editor.changeParameters(handles.back(), captured.nodes[position].launches.front(), **launch));
      continue;
    }
    if (!isCopy(node.kind))
      return fail(PUMPGRAPH_INTERNAL, "the lowered step has a node \"{}\" that is neither captured nor a copy",
                  node.name);
    const CopyRows *rows = rowsOf[index];
    if (rows && rows->front() != index) {
      handles.push_back(handles[rows->front()]);
      continue;
    }
    const Expected<CUgraphNode> added = rows ? addRows(editor, *rows, joined, lowered, blocks, residence)
                                             : addCopy(editor, node, lowered, residence.pool(), hosted);
    if (!added)
      return inContext(added.error(), fmt::format("node \"{}\"", node.name));
    handles.push_back(*added);
  }

  PUMPGRAPH_TRY(connect(editor, lowered, handles, captured));
  return repetitions;
}

Description withAnnotations(const Description &captured, const Description &lowered) {
  Description annotated = captured;
  for (const Node &node : lowered.nodes) {
    if (node.captured == notCaptured)
      continue;
    std::vector<Access> &accesses = annotated.nodes[static_cast<std::size_t>(node.captured)].accesses;
    accesses = node.accesses;
    for (Access &access : accesses)
      access.buffer = capturedBuffer(lowered.buffers, access.buffer);
  }
  return annotated;
}

Expected<RewrittenStep> describeRewritten(const Driver &driver, const LiftedGraph &lifted, const LiftedGraph &captured,
                                          const CapturedStep &step, const Description &lowered,
                                          const Repetitions &repetitions, const std::vector<BlockId> &blocks,
                                          const Residence &residence) {
  RewrittenStep rewritten;
  Description &description = rewritten.description;
  description.name = lowered.name;
  description.stage = lowered.stage;
  description.pageBytes = lowered.pageBytes;
  description.budgetBytes = lowered.budgetBytes;
  description.hostBytes = lowered.hostBytes;
  description.buffers = lowered.buffers;
  for (BufferIndex index = 0; index < description.buffers.size(); ++index)
    description.buffers[index].frames = residence.framesOf(blocks[index]);
  for (BufferIndex index = 0; index < step.description.buffers.size(); ++index)
    description.buffers[index].address = step.description.buffers[index].address;

  std::vector<const Node *> planned(step.nodes.size(), nullptr); ///< by captured position
  for (const Node &node : lowered.nodes)
    if (node.captured != notCaptured)
      planned[static_cast<std::size_t>(node.captured)] = &node;
  std::unordered_map<CUgraphNode, std::size_t> position;
  for (std::size_t i = 0; i < step.nodes.size(); ++i)
    position.emplace(step.nodes[i], i);
  const Places places{description.buffers, blocks, residence, HostedChains(description.buffers)};
  constexpr NodeIndex relay = UINT32_MAX;
  std::vector<NodeIndex> indexOf, lastOf; // of a copy the first and the last row
  for (const LiftedNode &node : lifted.nodes) {
    const auto found = position.find(node.handle);
    if (found == position.end() && node.kind == NodeKind::Empty) {
      indexOf.push_back(relay);
      lastOf.push_back(relay);
      continue;
    }
    indexOf.push_back(static_cast<NodeIndex>(rewritten.nodes.size()));
    lastOf.push_back(indexOf.back());
    rewritten.nodes.push_back(node.handle);
    if (const auto repeated = repetitions.find(node.handle); repeated != repetitions.end()) {
      Expected<Node> described =
          describeRepetition(driver, node, lowered.nodes[repeated->second], captured, step, description.buffers);
      if (!described)
        return tl::unexpected<Error>(described.error());
      description.nodes.push_back(std::move(*described));
      continue;
    }
    if (found == position.end()) {
      std::vector<Node> copies = recogniseCopies(node, places);
      if (copies.empty())
        return fail(PUMPGRAPH_INTERNAL, "the rewritten graph has a node \"{}\" that nobody captured or added",
                    node.name);
      lastOf.back() += static_cast<NodeIndex>(copies.size() - 1);
      rewritten.nodes.resize(lastOf.back() + 1, node.handle);
      for (NodeIndex row = indexOf.back(); row < lastOf.back(); ++row)
        description.edges.push_back({row, row + 1, EdgeKind::Full});
      description.nodes.insert(description.nodes.end(), std::make_move_iterator(copies.begin()),
                               std::make_move_iterator(copies.end()));
      continue;
    }
    const LiftedNode &before = captured.nodes[found->second];
    Node &described = description.nodes.emplace_back(step.description.nodes[found->second]);
    std::optional<KernelLaunch> changed;
    if (const Node *as = planned[found->second]) {
      Expected<std::optional<KernelLaunch>> launch = launchOf(*as, description.buffers, step, captured);
      if (!launch)
        return tl::unexpected<Error>(launch.error());
      changed = std::move(*launch);
      described.accesses = as->accesses;
    }
    if (!hasParameters(node, before, changed))
      return fail(PUMPGRAPH_INTERNAL, "node {} \"{}\" has other parameters after the rewrite than {}", found->second,
                  before.name, changed ? "planned" : "before");
  }
  std::vector<std::vector<NodeIndex>> relayed(lifted.nodes.size()); ///< by position of a relay: the nodes before it
  for (const LiftedEdge &edge : lifted.edges)
    if (indexOf[edge.to] == relay) {
      if (indexOf[edge.from] == relay || edge.kind != EdgeKind::Full)
        return fail(PUMPGRAPH_INTERNAL, "the rewritten graph has a relay that does not follow one node's completion");
      relayed[edge.to].push_back(lastOf[edge.from]);
    }
  for (const LiftedEdge &edge : lifted.edges) {
    if (indexOf[edge.to] == relay)
      continue;
    if (indexOf[edge.from] != relay) {
      description.edges.push_back({lastOf[edge.from], indexOf[edge.to], edge.kind});
      continue;
    }
    for (const NodeIndex before : relayed[edge.from])
      description.edges.push_back({before, indexOf[edge.to], edge.kind});
  }
  return rewritten;
}

} // namespace pumpgraph::runtime
