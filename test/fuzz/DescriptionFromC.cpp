// SPDX-License-Identifier: Apache-2.0
// A C description is refused with a message, or survives conversion to C and to IR text.
#include "test/fuzz/IrText.h"

#include "pumpgraph/description_c.h"

#include <deque>

using namespace pumpgraph;
using pumpgraph::fuzz::Bytes;

namespace {

constexpr std::uint64_t page = std::uint64_t{2} << 20;

/// A C description with arrays as long as it says, and anything in them.
class Given {
public:
  explicit Given(Bytes &bytes) : bytes_(bytes) {
    root.version = bytes_.upTo(7) == 0 ? bytes_.take<std::uint32_t>() : PUMPGRAPH_DESCRIPTION_VERSION;
    root.name = text();
    root.page_bytes = bytes_.upTo(7) == 0 ? bytes_.number() : page;
    root.budget_bytes = bytes_.number(page);
    root.host_bytes = bytes_.number(page);
    buffers_.resize(bytes_.upTo(4));
    for (pumpgraph_buffer &buffer : buffers_)
      buffer = makeBuffer();
    nodes_.resize(bytes_.upTo(8));
    for (pumpgraph_node &node : nodes_)
      node = makeNode();
    edges_.resize(bytes_.upTo(8));
    for (pumpgraph_edge &edge : edges_)
      edge = {index(), index(), static_cast<std::uint32_t>(bytes_.upTo(3))};
    for (std::size_t i = 0; i < nodes_.size(); ++i) { // last, so that what seeds have before stays what it is
      nodes_[i].pure = static_cast<std::uint8_t>(bytes_.upTo(2));
      for (pumpgraph_access &access : accesses_[i])
        access.aside = static_cast<std::uint8_t>(bytes_.upTo(2));
    }
    for (pumpgraph_node &node : nodes_)
      node.arithmetic_us = bytes_.upTo(3) == 1 ? bytes_.take<double>() : static_cast<double>(bytes_.upTo(100));
    set(root.buffers, root.buffer_count, buffers_);
    set(root.nodes, root.node_count, nodes_);
    set(root.edges, root.edge_count, edges_);
  }

  pumpgraph_description root{};

private:
  /// An empty array, now and then one that is missing though it should have elements.
  template <typename Item> void set(const Item *&array, std::uint64_t &count, const std::vector<Item> &items) {
    array = items.empty() ? nullptr : items.data();
    count = items.empty() && bytes_.upTo(31) == 1 ? bytes_.number() : items.size();
  }

  const char *text() { return bytes_.upTo(15) == 1 ? nullptr : texts_.emplace_back(bytes_.text()).c_str(); }
  std::uint32_t index() {
    return bytes_.upTo(15) == 1 ? bytes_.take<std::uint32_t>() : static_cast<std::uint32_t>(bytes_.upTo(8));
  }

  const pumpgraph_range *ranges(std::uint64_t &count) {
    std::vector<pumpgraph_range> &ranges = ranges_.emplace_back(bytes_.upTo(2));
    for (pumpgraph_range &range : ranges)
      range = {bytes_.number(page), bytes_.number(page)};
    const pumpgraph_range *array = nullptr;
    set(array, count, ranges);
    return array;
  }

  pumpgraph_buffer makeBuffer() {
    pumpgraph_buffer buffer{};
    buffer.name = text();
    buffer.address = bytes_.number(page);
    buffer.size = bytes_.number(page);
    const auto flags = bytes_.take<std::uint8_t>();
    buffer.is_private = flags & 1;
    buffer.live_in = flags >> 1 & 1;
    buffer.live_out = flags >> 2 & 1;
    buffer.renamable = flags >> 3 & 1;
    buffer.present = flags >> 4 & 3;
    buffer.continues = bytes_.upTo(3) == 1 ? index() : UINT32_MAX;
    std::vector<std::int32_t> &frames = frames_.emplace_back(bytes_.upTo(4));
    for (std::int32_t &frame : frames)
      frame = static_cast<std::int32_t>(index() - 1); // also -1: none
    set(buffer.frames, buffer.frame_count, frames);
    buffer.resident = ranges(buffer.resident_count);
    buffer.mirrored = ranges(buffer.mirrored_count);
    buffer.hosted = ranges(buffer.hosted_count);
    return buffer;
  }

  pumpgraph_node makeNode() {
    pumpgraph_node node{};
    node.kind = static_cast<std::uint8_t>(bytes_.upTo(15));
    node.joined = static_cast<std::uint8_t>(bytes_.upTo(7) == 1 ? bytes_.upTo(2) : 0);
    node.captured = bytes_.upTo(3) == 1 ? bytes_.take<std::int32_t>() : static_cast<std::int32_t>(bytes_.upTo(9)) - 1;
    node.name = text();
    node.label = text();
    node.reason = text();
    std::vector<pumpgraph_access> &accesses = accesses_.emplace_back(bytes_.upTo(3));
    for (pumpgraph_access &access : accesses) {
      access.buffer = index();
      access.may = static_cast<std::uint8_t>(bytes_.upTo(4));
      access.must = static_cast<std::uint8_t>(bytes_.upTo(4));
      access.evidence = static_cast<std::uint8_t>(bytes_.upTo(7));
      access.offset = bytes_.number(page);
      access.size = bytes_.number(page);
      access.parameter = static_cast<std::int32_t>(index() - 1);
      access.slowdown = bytes_.upTo(3) == 1 ? bytes_.take<float>() : 1;
    }
    set(node.accesses, node.access_count, accesses);
    node.cost_us = bytes_.upTo(3) == 1 ? bytes_.take<double>() : static_cast<double>(bytes_.upTo(100));
    node.buffer = index();
    node.advice = static_cast<std::uint32_t>(bytes_.upTo(5));
    node.offset = bytes_.number(page);
    node.size = bytes_.number(page);
    node.host_offset = bytes_.number(page);
    return node;
  }

  Bytes &bytes_;
  // Which do not move when more come.
  std::deque<std::string> texts_;
  std::deque<std::vector<pumpgraph_range>> ranges_;
  std::deque<std::vector<std::int32_t>> frames_;
  std::deque<std::vector<pumpgraph_access>> accesses_;
  std::vector<pumpgraph_buffer> buffers_;
  std::vector<pumpgraph_node> nodes_;
  std::vector<pumpgraph_edge> edges_;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  Bytes bytes(data, size);
  const Given given(bytes);
  Description description;
  std::string error;
  if (!fromC(given.root, description, error)) {
    PUMPGRAPH_FUZZ_CHECK(!error.empty(), "refused without a message");
    return 0;
  }
  Description again;
  const bool isRead = fromC(*DescriptionView(description).get(), again, error);
  PUMPGRAPH_FUZZ_CHECK(isRead, "not read again: " + error);
  PUMPGRAPH_FUZZ_CHECK(fuzz::print(again) == fuzz::print(description), "C changes the step");
  fuzz::checkRoundTrip(description);
  return 0;
}
