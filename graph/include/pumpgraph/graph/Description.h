// SPDX-License-Identifier: Apache-2.0
/// \file
/// The flat description of a step: buffers, nodes and edges, in every stage from captured to re-lifted.
#pragma once

#include "pumpgraph/description_c.h"

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

namespace pumpgraph {

using BufferIndex = std::uint32_t;
using NodeIndex = std::uint32_t;

inline constexpr std::int32_t noFrame = -1;
inline constexpr BufferIndex noBuffer = UINT32_MAX;
inline constexpr std::int32_t notCaptured = -1;
inline constexpr std::int32_t unknownParameter = -1;
/// Of one buffer: 128 TiB in pages of 2 MiB. A damaged size must not become a huge table of pages.
inline constexpr std::uint64_t mostPages = std::uint64_t{1} << 26;

/// The kind of a node. The values are part of the C ABI: append only.
enum class NodeKind : std::uint8_t {
  // Captured kinds.
  Kernel = 0,
  Memcpy = 1,
  Memset = 2,
  Host = 3,
  Empty = 4,
  ChildGraph = 5, ///< Its accesses are the union of its inner nodes'.
  EventRecord = 6,
  EventWait = 7,
  SemaphoreSignal = 8,
  SemaphoreWait = 9,
  MemAlloc = 10,
  MemFree = 11,
  BatchMemOp = 12,
  Conditional = 13,
  Opaque = 14, ///< Anything PumpGraph cannot see into; `reason` says why.
  // Kinds that a plan adds.
  Evict = 32,    ///< device -> host; afterwards the host copy is the value
  Prefetch = 33, ///< host -> device; afterwards the device copy is the value
  Discard = 34,  ///< the contents are dead or clean: the frames may be given away without a copy
  Advise = 35,
  Rematerialize = 36, ///< runs a captured node again: its results are then as that node left them
  // Kinds that lower-virtual makes of evict and prefetch: copies between a buffer's address and the pinned pool.
  CopyToHost = 48,
  CopyToDevice = 49,
};

/// The stage of a step. A function that works on some stages refuses the others, where the same nodes have another
/// meaning. The values are part of the C ABI: append only.
enum class Stage : std::uint8_t {
  Captured = 0,       ///< the program's nodes; no page has a frame
  Planned = 1,        ///< evicts, prefetches and discards; pages have frames
  LoweredVirtual = 2, ///< copies between a buffer's address and the pinned pool; pages have frames
  LoweredManaged = 3, ///< operations of an agent on managed memory, and advice; frames are the plan's
};

enum class EdgeKind : std::uint8_t {
  Full = 0,         ///< `to` starts after `from` has completed and its writes are visible
  Programmatic = 1, ///< dependent launch: `to` may start before `from` has completed
};

/// The source of knowledge about an access. `Allocated`: the access is the first one to memory that has just been
/// allocated, whose other bytes nothing may read. It therefore counts as an overwrite, regardless of the node's real
/// accesses.
enum class Evidence : std::uint8_t { Proved = 0, Declared = 1, Observed = 2, Assumed = 3, Allocated = 4 };

enum class Advice : std::uint8_t { None = 0, ReadMostly = 1, PreferHost = 2, PreferDevice = 3, AccessedBy = 4 };

/// Bits for the reads and writes that an access may do, or must do.
enum Mode : std::uint8_t { modeNone = 0, modeRead = 1, modeWrite = 2, modeReadWrite = 3 };

struct Range {
  std::uint64_t offset = 0; ///< bytes
  std::uint64_t size = 0;   ///< bytes

  std::uint64_t end() const { return offset + size; }
  bool overlaps(const Range &other) const { return offset < other.end() && other.offset < end(); }
  friend bool operator==(const Range &, const Range &) = default;
};

/// One node's use of one byte range of one buffer.
struct Access {
  BufferIndex buffer = 0;
  Range range;
  std::uint8_t may = modeReadWrite; ///< superset of the real accesses
  std::uint8_t must = modeNone;     ///< read: every byte is read; write: every byte is overwritten, none read before
  Evidence evidence = Evidence::Assumed;
  /// Position of the kernel parameter that is this pointer; unknown if several are, or if the pointer sits inside a
  /// struct or in device memory.
  std::int32_t parameter = unknownParameter;
  /// How many times as long the node takes over hosted pages of the range as predictions say of
  /// their bytes (docs/design/cost-model.md): a kernel may read a byte twice, write less than a sector at a time, or
  /// reach only a part of the range. Measured where pages were hosted; else 1.
  float slowdown = 1;
  /// Of a pure node, through a known parameter: the contents here reach nothing that the node writes elsewhere. A
  /// repetition leaves the access out and has other memory there.
  bool isAside = false;

  friend bool operator==(const Access &, const Access &) = default;
};

/// One allocation with its own virtual address (or one page of small allocations that live and move together).
struct Buffer {
  std::string name;
  std::uint64_t address = 0; ///< device address; 0 if unknown (imported traces, tests)
  std::uint64_t size = 0;    ///< bytes, > 0
  bool isPrivate = false;    ///< may leave the device during the step; otherwise its frames are its own at all times
  bool liveIn = false;       ///< the value at the start of the step may be read by it
  bool liveOut = false;      ///< the value at the end of the step may be read later (by the next replay, by the user)
  /// Present: on the device at its address whenever no step runs, where anyone may access it. Private live-out buffers
  /// only: no copy in host memory outlives the boundary, since it may be stale then.
  bool isPresent = false;
  bool isRenamable = false; ///< another address could stand wherever nodes have this one
  /// Planned steps only. The buffer, before this one and of the same size, whose value goes on here, at another address
  /// (docs/design/plan-correctness.md). A page with the same frame in both is one page; others begin here once no node
  /// uses them there any more. It takes over its places in host memory too.
  BufferIndex continues = noBuffer;
  /// One frame per page of `pageBytes`, `noFrame` for a page that is never on the device. Empty before planning.
  /// A page keeps its frame for the whole step; pages of private buffers may share a frame at different times.
  std::vector<std::int32_t> frames;
  /// Page-aligned ranges, ascending and disjoint, that are on the device at the step boundary (before the first and
  /// after the last node). The rest of a live-in or live-out buffer is in host memory then. Exclusive buffers are
  /// always wholly resident and need not say so.
  std::vector<Range> resident;
  /// Page-aligned ranges inside `resident`, ascending and disjoint, that are in host memory as well at the step
  /// boundary: the next replay may give their frames away without a copy. Private live-out buffers only.
  std::vector<Range> mirrored;
  /// Page-aligned ranges, ascending and disjoint, that are in host memory at all times, where nodes read and write them
  /// over the link. Their pages have `noFrame` and no transfer, and are not resident. Private buffers only. A page that
  /// is hosted in one of several buffers which continue each other is the place of the others' in host memory.
  std::vector<Range> hosted;
};

/// Where a chain of buffers that continue each other begins: in the captured step.
BufferIndex capturedBuffer(const std::vector<Buffer> &buffers, BufferIndex buffer);

/// Whether an access can have this slowdown.
inline bool isSlowdown(float slowdown) {
  return slowdown > 0 && slowdown < std::numeric_limits<float>::infinity();
}

/// Whether `ranges`, ascending and disjoint, hold every byte of `range`.
bool covers(const std::vector<Range> &ranges, const Range &range);

/// Whether any of `ranges` holds a byte of `range`.
bool overlaps(const std::vector<Range> &ranges, const Range &range);

/// The first access that is not aside and touches bytes which one aside does; their number if there is none.
std::size_t accessBesideOneAside(const std::vector<Access> &accesses);

struct Node {
  NodeKind kind = NodeKind::Kernel;
  std::int32_t captured = notCaptured; ///< position among the captured graph's nodes
  /// Rematerialize only: the position of the captured node that is run again, which comes before this one. Name, label
  /// and accesses are that node's, but for those aside.
  std::int32_t repeats = notCaptured;
  std::string name;   ///< as captured: a kernel's symbol
  std::string label;  ///< the program's own, for reports alone: "layer3.conv2 backward (mm)"
  std::string reason; ///< Opaque only
  std::vector<Access> accesses;
  /// Of a kernel, copy or fill, proved or declared: its writes are a function of its reads and its parameters, and its
  /// only effect. It can therefore run again.
  bool isPure = false;
  double costUs = std::numeric_limits<double>::quiet_NaN(); ///< time with all operands on the device, microseconds
  /// Captured nodes: the time of its arithmetic, microseconds, by declared operations and the device's speed. Nodes of
  /// unknown cost are estimated to take no less (EstimateCosts.h). 0: nothing is declared.
  double arithmeticUs = 0;
  // Residency nodes and lowered copies only: a page-aligned byte range of one buffer.
  BufferIndex buffer = 0;
  Range range;
  Advice advice = Advice::None;
  /// Lowered copies only: byte position in the session's pinned pool. 0, and no position, where the pages are hosted in
  /// another buffer of the chain of those that continue each other: there the copy has its other end (HostedChains.h).
  std::uint64_t hostOffset = 0;
  /// Transfers and lowered copies only: one more row of the copy that the one before it in its direction is or belongs
  /// to (CopyRows.h). Of transfers it is a wish: lowering sees whether places in host memory allow it.
  bool joined = false;
};

struct Edge {
  NodeIndex from = 0;
  NodeIndex to = 0;
  EdgeKind kind = EdgeKind::Full;

  friend bool operator==(const Edge &, const Edge &) = default;
};

/// A step. Nodes are in a topological order: edges go from a smaller to a larger index. No two edges join the same
/// pair of nodes.
struct Description {
  std::string name = "step";
  Stage stage = Stage::Captured;
  std::uint64_t pageBytes = std::uint64_t{2} << 20;
  std::uint64_t budgetBytes = 0; ///< device memory all frames together may take; 0 before planning
  std::uint64_t hostBytes = 0;   ///< pinned pool the lowered copies use; 0 before lowering
  std::vector<Buffer> buffers;
  std::vector<Node> nodes;
  std::vector<Edge> edges;

  std::uint64_t pageCount(BufferIndex buffer) const {
    const std::uint64_t size = buffers[buffer].size; // near 2^64 in a damaged file
    return size / pageBytes + (size % pageBytes != 0 ? 1 : 0);
  }
};

inline bool isResidency(NodeKind kind) {
  return kind >= NodeKind::Evict && kind <= NodeKind::Advise;
}
/// The nodes that an agent carries out on managed memory, in every replay. Advice is given once, ahead of the first
/// replay.
inline bool isOperation(NodeKind kind) {
  return isResidency(kind) && kind != NodeKind::Advise;
}
inline bool isCopy(NodeKind kind) {
  return kind == NodeKind::CopyToHost || kind == NodeKind::CopyToDevice;
}
/// Whether a plan or its lowering added the node to move, drop or advise: everything else computes.
inline bool isAdded(NodeKind kind) {
  return isResidency(kind) || isCopy(kind);
}
/// Whether a node of the kind can be run again.
inline bool isRepeatable(NodeKind kind) {
  return kind == NodeKind::Kernel || kind == NodeKind::Memcpy || kind == NodeKind::Memset;
}
/// The position of the captured node that runs there, for the first time or once more; else notCaptured.
inline std::int32_t computedNode(const Node &node) {
  return node.kind == NodeKind::Rematerialize ? node.repeats : node.captured;
}
/// Moves data from the device to the host, planned or lowered.
inline bool movesDown(NodeKind kind) {
  return kind == NodeKind::Evict || kind == NodeKind::CopyToHost;
}
/// Moves data from the host to the device, planned or lowered.
inline bool movesUp(NodeKind kind) {
  return kind == NodeKind::Prefetch || kind == NodeKind::CopyToDevice;
}

/// "captured", "planned", "lowered for virtual memory", "lowered for managed memory".
const char *stageName(Stage stage);

/// Why a node of this kind cannot be in a step of that stage: "is a lowered copy, but the step is planned". Empty if it
/// can.
std::string stageFault(NodeKind kind, Stage stage);

/// Why a buffer with frames, or one that continues another one, cannot be in a step of that stage. Empty if it can.
std::string stageFault(bool hasFrames, bool continues, Stage stage);

/// Why a function that works on `stages` refuses the step: "the step is planned; it has to be captured". Empty if it
/// does not.
std::string wrongStage(const Description &step, std::initializer_list<Stage> stages);

/// The step with several nodes, one after the other, in the place of each node that `cut` makes several of; of others
/// it returns the node alone. All that waits for the node waits for the last one, and the first one waits in its place.
Description withNodesCut(const Description &step, const std::function<std::vector<Node>(const Node &)> &cut);

/// A C view of a description; it borrows the description's memory and must not outlive it or see it change.
class DescriptionView {
public:
  explicit DescriptionView(const Description &description);
  DescriptionView(DescriptionView &&) = default;
  DescriptionView &operator=(DescriptionView &&) = default;
  const pumpgraph_description *get() const { return &root_; }

private:
  pumpgraph_description root_{};
  std::vector<pumpgraph_buffer> buffers_;
  std::vector<std::vector<pumpgraph_range>> resident_;
  std::vector<std::vector<pumpgraph_range>> mirrored_;
  std::vector<std::vector<pumpgraph_range>> hosted_;
  std::vector<pumpgraph_node> nodes_;
  std::vector<std::vector<pumpgraph_access>> accesses_;
  std::vector<pumpgraph_edge> edges_;
};

/// What is wrong with the shape of a description: an index, an enum value, a range outside its buffer, the order of the
/// edges. Empty: nothing. It says nothing about whether a plan is correct; that is checkResidency().
std::string validate(const Description &description);

/// Copies a C description. Returns false, with a message in `error`, when the version is wrong, an array is missing, or
/// validate() finds something. Fields that a node's kind has no use for are not copied.
bool fromC(const pumpgraph_description &view, Description &out, std::string &error);

} // namespace pumpgraph
