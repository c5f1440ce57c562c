// SPDX-License-Identifier: Apache-2.0
/// \file
/// Runs steps on numbers, to see whether a plan changes what any node reads or what is left at the end.
///
/// Every byte holds a 64-bit number. A captured node folds the numbers it may read into one (with its own identity and
/// the number of the replay) and writes numbers made from that: into every byte it must write, and into some of the
/// bytes that it only may write, always the same ones. The reference has unlimited memory; the plan has frames and host
/// memory, and garbage overwrites everything that the contract (docs/design/plan-correctness.md) calls not current.
/// Between replays some bytes of present buffers are written, at their addresses.
/// What is written through accesses that are not aside does not depend on what is read through those that are.
/// So is what two nodes read and write of a page at two of its addresses in an order that the contract does not
/// promise.
///
/// Nodes are not atomic. A node is a sequence of small operations: one read of each page it reads, then one write of
/// each page it writes; a transfer copies each page in two halves. The operations of nodes that no full path orders are
/// interleaved. A node behind a programmatic edge may start as soon as the other has started; only its accesses that
/// conflict with an earlier node's, wherever the captured step orders the two by programmatic edges alone, wait for
/// that node's end, as the program's own synchronisation inside the kernel would make them.
#pragma once

#include "pumpgraph/graph/Description.h"
#include "test/unit/check/Random.h"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace pumpgraph::test {

inline constexpr std::uint32_t replayCount = 3;

using PageId = std::uint32_t;  ///< over all buffers of the captured step
using PlaceId = std::uint32_t; ///< the same of the plan: what continues a buffer has places of its own

/// A page that a node touches, and which of its bytes it reads or writes (positions in the page).
struct PageTouch {
  PageId page = 0;
  std::vector<std::uint32_t> bytes;
  std::vector<NodeIndex> waitsFor; ///< captured nodes whose end the program itself waits for before this
  bool isAside = false;
};

/// What a node read: through accesses that are not aside, and through those that are.
struct Fold {
  std::uint64_t apart = 0; ///< from what is aside
  std::uint64_t aside = 0;

  /// What a write is made from.
  std::uint64_t of(const PageTouch &touch) const { return touch.isAside ? mix(apart, aside) : apart; }
  std::uint64_t &in(const PageTouch &touch) { return touch.isAside ? aside : apart; }
};

/// What a captured step does with unlimited memory, computed once.
class Reference {
public:
  explicit Reference(const Description &captured);

  struct Behaviour {
    std::vector<PageTouch> reads; ///< only bytes that hold a value then; pages without any are listed too
    std::vector<PageTouch> writes;
    std::vector<Fold> folded; ///< what it read, by replay
  };
  struct Replay {
    std::vector<std::uint64_t> before; ///< by byte of all buffers: at the start of the step
    std::vector<std::uint64_t> after;
  };

  const Description &captured() const { return captured_; }
  const Behaviour &behaviour(std::int32_t captured) const { return behaviours_[static_cast<std::size_t>(captured)]; }
  const Replay &replay(std::uint32_t index) const { return replays_[index]; }
  PageId page(BufferIndex buffer, std::uint64_t page) const { return firstPage_[buffer] + static_cast<PageId>(page); }
  std::size_t pageCount() const { return pages_.size(); }
  /// Whether the byte holds a value at the end.
  bool isDefinedAtEnd(std::size_t byte) const { return defined_[byte]; }

  struct Page {
    BufferIndex buffer = 0;
    std::uint64_t page = 0;
    std::size_t firstByte = 0; ///< over all buffers
    std::uint32_t bytes = 0;
  };
  const Page &page(PageId page) const { return pages_[page]; }

private:
  void listPages();
  void listTouches(NodeIndex node);
  void listWaits();
  void run(std::uint32_t replay);

  Description captured_;
  std::vector<PageId> firstPage_;
  std::vector<Page> pages_;
  std::vector<Behaviour> behaviours_; ///< by captured position
  std::vector<Replay> replays_;
  std::vector<bool> defined_;
};

/// A choice among the legal orders of execution.
struct Schedule {
  enum class Kind {
    InOrder,    ///< one node after the other, by index
    Uniform,    ///< any operation that may come next, all equally likely
    Priorities, ///< the operation of the node that a random list prefers; the list changes now and then
    Delay,      ///< `node` takes `steps` steps as soon as it can, further ones only when nothing else can go on
  };
  Kind kind = Kind::Uniform;
  std::uint64_t seed = 0;
  NodeIndex node = 0;
  std::uint32_t steps = 0; ///< its start is one, each operation is one
};

/// A planned or lowered step, made ready to run.
class Interpreter {
public:
  /// Both must outlive the interpreter. `description` must be well formed, but may be wrong in every other way.
  Interpreter(const Reference &reference, const Description &description);

  /// Runs `replayCount` replays in a row. Nothing: every read and every live-out value is as in the reference. Else:
  /// what differs first.
  std::optional<std::string> run(const Schedule &schedule);

  /// `count` random schedules.
  std::optional<std::string> runRandom(std::uint64_t seed, unsigned count);

  /// Every node held back from its start, and from its middle: for any two nodes that are not ordered there is a run in
  /// which the one is done before the other starts, and one in which it is done before the other ends.
  std::optional<std::string> runAllDelays(std::uint64_t seed);

  NodeIndex nodeCount() const { return static_cast<NodeIndex>(programs_.size()); }

private:
  enum class Action : std::uint8_t { Read, Write, Down, Up, Discard };
  struct Operation {
    Action action = Action::Read;
    const PageTouch *touch = nullptr; ///< reads and writes
    PageId page = 0;
    PlaceId place = 0;
    std::uint32_t begin = 0; ///< transfers: first byte of the page moved
    std::uint32_t end = 0;
  };
  struct Program {
    std::vector<Operation> operations;
    std::vector<NodeIndex> startedByEnd;   ///< targets of full edges
    std::vector<NodeIndex> startedByStart; ///< targets of programmatic edges
    std::uint32_t inEdges = 0;
    std::int32_t captured = notCaptured; ///< whose work it does
    bool isRepetition = false;           ///< of the work of another node
  };
  struct PageState {
    PageId page = 0;
    std::uint32_t frame = UINT32_MAX; ///< dense; UINT32_MAX: none
    PlaceId first = 0;                ///< where the page was before it stayed in its frame; itself, for most
    std::size_t hostPlace = 0;        ///< in host_; of captured buffers, that others share
    bool resident = false;
    bool mirrored = false;        ///< in host memory as well
    bool hosted = false;          ///< its frame is memory of its own, where it always is; in a chain its host copy
    bool isHostedInChain = false; ///< of captured buffers: at some address
    bool isInHost() const { return !resident || mirrored; }
  };

  void listPlaces();
  void placePages();
  void findPagesThatStay();
  void buildPrograms();
  void listCompleted();
  void addCaptured(const Node &node, Program &program);
  void addTransfer(NodeIndex index, Program &program);
  void startReplay(std::uint32_t replay);
  std::optional<std::string> runStep(const Schedule &schedule, std::uint32_t replay);
  bool canContinue(NodeIndex node) const;
  NodeIndex choose(const Schedule &schedule);
  void perform(NodeIndex node);
  void release(const std::vector<NodeIndex> &targets);
  void perform(const Operation &operation, NodeIndex node);
  std::uint64_t *deviceBytes(PlaceId place);
  bool isUnseenElsewhere(const Operation &operation, NodeIndex node);
  bool isReachedInHost(PlaceId place) const { return places_[place].hosted && !places_[place].resident; }
  std::uint64_t *hostBytes(PageId page) { return host_.data() + places_[page].hostPlace; }
  static std::uint64_t garbageAfter(std::uint64_t last) { return (last + 1) | std::uint64_t{1} << 63; }
  std::uint64_t garbage() { return garbageAfter(garbage_++); }
  void spoil(std::span<std::uint64_t> bytes);
  std::optional<std::string> compareEnd(std::uint32_t replay);

  const Reference &reference_;
  const Description &description_;
  std::optional<std::string> malformed_; ///< a place outside the pool, a page without a frame, a hosted one that moves
  std::vector<PlaceId> firstPlace_;      ///< by buffer of the plan; of captured ones it is the first page
  std::vector<PageState> places_;        ///< by place
  std::vector<Program> programs_;        ///< by node
  std::vector<NodeIndex> nodeOf_;        ///< by captured position
  std::vector<std::uint64_t> frames_;
  std::vector<PlaceId> owner_; ///< by frame: who touched it last, at its first address
  /// By node, the nodes that complete before it; empty where no page stays.
  std::vector<std::vector<bool>> completed_;
  std::vector<std::uint64_t> host_;
  std::vector<std::uint64_t> framesBefore_, hostBefore_; ///< as the last replay left them
  std::size_t hostSize_ = 0;
  std::uint64_t garbage_ = 0;
  // One replay.
  std::uint32_t replay_ = 0;
  std::vector<std::uint32_t> steps_;   ///< by node: its start, its operations, its end
  std::vector<std::uint32_t> blocked_; ///< by node: in-edges that still hold it back
  std::vector<NodeIndex> running_;     ///< may start or has started, and has not ended
  std::vector<NodeIndex> ready_;       ///< of those, the ones that can go on
  std::vector<std::uint64_t> priorities_;
  Random random_{0};
  std::vector<Fold> folded_; ///< by node: what it has read
  struct Use {
    NodeIndex node = 0;
    PlaceId place = 0;
    bool writes = false;
  };
  std::map<PlaceId, std::vector<Use>> uses_; ///< by nodes, of pages that stay, by first address
  std::optional<std::string> wrong_;
};

} // namespace pumpgraph::test
