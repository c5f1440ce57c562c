// SPDX-License-Identifier: Apache-2.0
#include "runtime/lower/PoisonHandOvers.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

namespace pumpgraph::runtime {
namespace {

constexpr unsigned char poison = 0xFF; // a NaN in every floating-point format

struct Page {
  BufferIndex buffer = 0;
  std::uint64_t page = 0;
  friend bool operator==(const Page &, const Page &) = default;
};

/// One frame as the step goes on. The description was checked: tenures follow one another in every order.
struct Frame {
  std::optional<Page> tenant;    ///< of a captured buffer: what stays in its frame at another address is the same page
  std::vector<NodeIndex> events; ///< of the tenant, since it moved in
  CUgraphNode fill = nullptr;    ///< put in front of this tenure
};

class Poisoner {
public:
  Poisoner(GraphEditor &editor, const Description &step, const std::vector<CUgraphNode> &nodes)
      : editor_(editor), step_(step), nodes_(nodes) {}

  Expected<std::uint64_t> run() {
    settleResidents();
    for (NodeIndex node = 0; node < step_.nodes.size(); ++node)
      for (const Page &page : pagesOf(node))
        PUMPGRAPH_TRY(visit(node, page));
    return fills_;
  }

private:
  void settleResidents() {
    for (BufferIndex buffer = 0; buffer < step_.buffers.size(); ++buffer)
      for (const Range &range : step_.buffers[buffer].resident)
        for (std::uint64_t page = range.offset / step_.pageBytes; page * step_.pageBytes < range.end(); ++page)
          frames_[step_.buffers[buffer].frames[page]].tenant = Page{buffer, page};
  }

  /// The pages of private buffers that a node has events on, each once. Hosted ones have no frame to hand over.
  std::vector<Page> pagesOf(NodeIndex index) const {
    const Node &node = step_.nodes[index];
    std::vector<Page> pages;
    const auto add = [&](BufferIndex buffer, const Range &range) {
      if (!step_.buffers[buffer].isPrivate)
        return;
      for (std::uint64_t page = range.offset / step_.pageBytes; page * step_.pageBytes < range.end(); ++page)
        if (step_.buffers[buffer].frames[page] != noFrame &&
            std::find(pages.begin(), pages.end(), Page{buffer, page}) == pages.end())
          pages.push_back({buffer, page});
    };
    if (isCopy(node.kind)) {
      add(node.buffer, node.range);
      return pages;
    }
    for (const Access &access : node.accesses)
      add(access.buffer, access.range);
    return pages;
  }

  Status visit(NodeIndex node, const Page &page) {
    const Buffer &buffer = step_.buffers[page.buffer];
    Frame &frame = frames_[buffer.frames[page.page]];
    const Page tenant{capturedBuffer(step_.buffers, page.buffer), page.page};
    if (frame.tenant == tenant) {
      frame.events.push_back(node);
      return frame.fill ? addEdge(frame.fill, node) : Status{};
    }
    const std::vector<NodeIndex> before = std::exchange(frame.events, {node});
    frame.tenant = tenant;
    frame.fill = nullptr;
    if (step_.nodes[node].kind == NodeKind::CopyToDevice)
      return {};
    const std::uint64_t offset = page.page * step_.pageBytes;
    const Expected<CUgraphNode> fill =
        editor_.addFill(buffer.address + offset, std::min(step_.pageBytes, buffer.size - offset), poison);
    if (!fill)
      return tl::unexpected<Error>(fill.error());
    frame.fill = *fill;
    ++fills_;
    for (const NodeIndex event : before)
      if (nodes_[event])
        PUMPGRAPH_TRY(editor_.addEdge(nodes_[event], frame.fill));
    return addEdge(frame.fill, node);
  }

  Status addEdge(CUgraphNode fill, NodeIndex to) { return nodes_[to] ? editor_.addEdge(fill, nodes_[to]) : Status{}; }

  GraphEditor &editor_;
  const Description &step_;
  const std::vector<CUgraphNode> &nodes_;
  std::unordered_map<std::int32_t, Frame> frames_;
  std::uint64_t fills_ = 0;
};

} // namespace

Expected<std::uint64_t> poisonHandOvers(GraphEditor &editor, const Description &rewritten,
                                        const std::vector<CUgraphNode> &nodes) {
  return Poisoner(editor, rewritten, nodes).run();
}

} // namespace pumpgraph::runtime
