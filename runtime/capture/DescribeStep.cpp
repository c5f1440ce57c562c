// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/DescribeStep.h"

#include "runtime/capture/Arithmetic.h"
#include "runtime/capture/Extents.h"
#include "runtime/capture/NarrowAccess.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>

namespace pumpgraph::runtime {
namespace {

/// The guaranteed alignment: vectorised kernels may touch that far past the size asked for.
constexpr std::uint64_t alignment = 512;

/// The bytes of its block that belong to an allocation.
Range rangeOf(const Block &block, const Allocation &member) {
  return {member.offset, block.shared ? member.room : contentBytes(block)};
}

/// The launch that a word is a parameter of.
const KernelLaunch &launchOf(const LiftedNode &node, const PointerWord &word) {
  return *std::lower_bound(node.launches.begin(), node.launches.end(), word.inner,
                           [](const KernelLaunch &launch, std::uint32_t inner) { return launch.inner < inner; });
}

/// Whether a kernel has the parameters that its table speaks of. Another kernel of the same name may not.
bool fits(const KernelAccesses &accesses, const KernelLaunch &launch) {
  return std::all_of(accesses.slots.begin(), accesses.slots.end(), [&](const Slot &slot) {
    return std::uint64_t{slot.offset} + sizeof(std::uint64_t) <= launch.parameter(slot.parameter).size();
  });
}

/// A slot is overwritten without being read first only where no other parameter of the node leads to the same bytes.
void dropOverwritesOfWhatIsRead(std::vector<AccessFinder::Touch> &touches) {
  for (AccessFinder::Touch &touch : touches) {
    const auto reads = [&](const AccessFinder::Touch &other) {
      return other.block == touch.block && other.access.range.overlaps(touch.access.range) &&
             (other.access.may & modeRead) != 0 && other.access.must != modeWrite;
    };
    if (touch.access.must == modeWrite && std::any_of(touches.begin(), touches.end(), reads))
      touch.access.must = modeNone;
  }
}

/// What a buffer's facts are drawn from: its members that a graph of this capture may use.
struct Facts {
  bool isPrivate = true;
  bool liveIn = false;
  bool liveOut = false;
  bool isPresent = false;
};

/// Allocated and freed during the capture: nobody else can have it. Everything else is its caller's, who may give it to
/// us by declaring it private; then its value outlives the step. What a graph of the program's own works in is not the
/// caller's to give.
Facts factsOf(const Allocation &member, CaptureNumber capture, Backing backing) {
  if (member.graph != 0 || member.kept)
    return {false, true, true, false};
  if (member.bornIn == capture && !member.live)
    return {true, false, false, false};
  // Managed memory has no frames to be in: what others touch between replays stays there by being exclusive.
  const bool isPrivate = member.declaredPrivate && !(member.declaredPresent && backing == Backing::Managed);
  return {isPrivate, true, true, isPrivate && member.declaredPresent};
}

Facts factsOf(const Block &block, CaptureNumber capture) {
  Facts facts;
  for (const Allocation &member : block.members) {
    if (!member.live && !member.kept && member.diedIn != capture)
      continue;
    const Facts one = factsOf(member, capture, block.backing);
    facts.isPrivate = facts.isPrivate && one.isPrivate;
    facts.liveIn = facts.liveIn || one.liveIn;
    facts.liveOut = facts.liveOut || one.liveOut;
    facts.isPresent = facts.isPresent || one.isPresent;
  }
  if (!facts.isPrivate)
    facts = {false, true, true, false};
  return facts;
}

std::string nameOf(const Block &block) {
  std::string name = nameOf(block.members.front());
  if (block.members.size() == 1)
    return name;
  if (!block.shared)
    return fmt::format("{} and {} after it", name, block.members.size() - 1);
  return fmt::format("{}+{} small", name, block.members.size() - 1);
}

bool wasBornIn(const Block &block, CaptureNumber capture) {
  return std::any_of(block.members.begin(), block.members.end(),
                     [&](const Allocation &member) { return member.bornIn == capture; });
}

/// Whether the first node that touches `buffer` overwrites all of it, so that no earlier value is ever read.
bool isOverwrittenFirst(const Description &step, BufferIndex buffer) {
  for (const Node &node : step.nodes)
    for (const Access &access : node.accesses)
      if (access.buffer == buffer)
        return (access.must & modeWrite) != 0 && access.range.offset == 0 &&
               access.range.size >= step.buffers[buffer].size;
  return false;
}

} // namespace

std::uint64_t contentBytes(const Block &block) {
  if (block.shared)
    return block.usedBytes;
  std::uint64_t most = 0;
  for (const Allocation &member : block.members)
    most = std::max(most, member.size);
  return roundUp(most, alignment);
}

AccessFinder::AccessFinder(const Heap &heap, const Rehearsal *rehearsal, const LiftedGraph &captured,
                           const NodeDeclarations &declarations, const AccessTables *tables, const KernelReads *kernels)
    : heap_(heap), rehearsal_(rehearsal && rehearsal->matches(captured) ? rehearsal : nullptr), kernels_(kernels),
      allocations_(heap) {
  if (rehearsal_)
    reached_ = rehearsal_->reaches(captured, heap);
  reached_.resize(captured.nodes.size());
  for (std::size_t position = 0; position < captured.nodes.size(); ++position) {
    const LiftedNode &node = captured.nodes[position];
    declared_.emplace_back(heap, declarations, node.handle);
    addReach(declarations, node.handle, reached_[position]);
    if (node.launches.empty()) // of copies and fills all is known, and events touch nothing
      reached_[position] = {};
    for (const KernelLaunch &launch : node.launches) {
      ++launches_;
      if (!tables)
        continue;
      if (!tabled_.contains(launch.kernel))
        if (std::optional<KernelAccesses> accesses = tables->find(launch.kernel))
          tabled_.emplace(launch.kernel, std::move(*accesses));
      const auto found = tabled_.find(launch.kernel);
      tabledLaunches_ += found != tabled_.end() && fits(found->second, launch);
    }
  }
}

void AccessFinder::addReach(const NodeDeclarations &declarations, CUgraphNode node, ReachedMembers &reached) const {
  const auto reach = declarations.reaches().find(node);
  if (reach == declarations.reaches().end())
    return;
  for (const auto &[pointers, isWritten] : {std::pair(&reach->second.read, false), {&reach->second.written, true}})
    for (const CUdeviceptr pointer : *pointers)
      if (const std::optional<Hit> hit = heap_.find(pointer))
        reached.members.push_back({{hit->block, hit->member}, isWritten});
}

std::optional<Hit> AccessFinder::operandOf(std::size_t position, const PointerWord &word) const {
  const std::optional<Hit> hit = heap_.find(word.value);
  return hit && rehearsal_ && rehearsal_->refutes(position, word, *hit, allocations_) ? std::nullopt : hit;
}

const Slot *AccessFinder::slotOf(const LiftedNode &node, const PointerWord &word) const {
  const KernelLaunch &launch = launchOf(node, word);
  const auto known = tabled_.find(launch.kernel);
  return known != tabled_.end() && fits(known->second, launch) ? known->second.find(word.parameter, word.offset)
                                                               : nullptr;
}

bool AccessFinder::isPure(std::size_t position, const LiftedNode &node) const {
  if (node.kind != NodeKind::Kernel || node.launches.size() != 1)
    return false;
  const KernelLaunch &launch = node.launches.front();
  const auto known = tabled_.find(launch.kernel);
  if (known == tabled_.end() || !fits(known->second, launch))
    return false;
  const TabledPurity purity = known->second.purity;
  return purity == TabledPurity::Always ||
         (purity == TabledPurity::Apart && areSlotsApart(position, node, known->second));
}

bool AccessFinder::areSlotsApart(std::size_t position, const LiftedNode &node, const KernelAccesses &kernel) const {
  const KernelLaunch &launch = node.launches.front();
  std::vector<std::vector<Touch>> touches; // by slot
  for (const Slot &slot : kernel.slots) {
    if (slot.may == modeNone)
      continue;
    if ((slot.may & modeWrite) != 0 && (!evaluate(slot.begin, launch) || !evaluate(slot.end, launch)))
      return false;
    std::uint64_t value = 0;
    std::memcpy(&value, launch.parameter(slot.parameter).data() + slot.offset, sizeof value);
    if (value == 0)
      continue; // an operand that this launch has not
    const std::optional<Hit> hit = operandOf(position, {0, slot.parameter, slot.offset, false, value});
    if (!hit) // memory of others: nobody sees where it ends
      return false;
    const Block &block = heap_.block(hit->block);
    Access whole;
    whole.range = rangeOf(block, block.members[hit->member]);
    const Narrowed narrowed = narrow(whole, static_cast<std::int64_t>(value - block.address), slot, launch, false);
    if (!narrowed.doubt.empty())
      return false;
    std::vector<Touch> &own = touches.emplace_back();
    for (const Access &access : narrowed.accesses)
      own.push_back({hit->block, access});
  }
  const auto meet = [](const Touch &a, const Touch &b) {
    return a.block == b.block && ((a.access.may | b.access.may) & modeWrite) != 0 &&
           a.access.range.overlaps(b.access.range);
  };
  for (std::size_t i = 0; i < touches.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      for (const Touch &a : touches[i])
        if (std::any_of(touches[j].begin(), touches[j].end(), [&](const Touch &b) { return meet(a, b); }))
          return false;
  return true;
}

bool AccessFinder::hasMoved(std::size_t position, const PointerWord &word) const {
  const std::optional<Hit> hit = operandOf(position, word);
  return hit && rehearsal_ && rehearsal_->hasMoved(position, word, *hit);
}

bool AccessFinder::isReplaceable(std::size_t position, const LiftedNode &node, const PointerWord &word) const {
  if (!hasMoved(position, word))
    return false;
  const Slot *slot = slotOf(node, word);
  return !slot || (slot->isUnderstood() && (slot->flags & PUMPGRAPH_SLOT_HOLDS_POINTERS) == 0);
}

bool AccessFinder::knowsAddressesByWordsAlone(std::size_t position, const LiftedNode &node) const {
  if (!rehearsal_)
    return false;
  std::vector<PointerWord> moved;
  std::copy_if(node.words.begin(), node.words.end(), std::back_inserter(moved),
               [&](const PointerWord &word) { return hasMoved(position, word); });
  return !rehearsal_->hasMovedInAnotherForm(position, node, moved);
}

bool AccessFinder::isDeclaredRead(std::size_t position, const LiftedNode &node, const PointerWord &word,
                                  const Hit &hit) const {
  if (kernels_ && kernels_->contains(launchOf(node, word).kernel, word.parameter))
    return true;
  const DeclaredAccesses &declared = declared_[position];
  if (declared.isRead(hit) || (rehearsal_ && rehearsal_->isDeclaredRead(position, word)))
    return true;
  return isOfTheProgram(heap_.block(hit.block).members[hit.member]) && !allocations_.contains(hit) &&
         (declared.isNotWritten(hit, allocations_) || (rehearsal_ && rehearsal_->isNotWritten(position, word)));
}

void AccessFinder::addTouches(std::size_t position, const LiftedNode &node, const PointerWord &word,
                              std::vector<Touch> &touches) const {
  const std::optional<Hit> hit = operandOf(position, word);
  if (!hit) {
    refutedWords_ += heap_.find(word.value) ? 1 : 0;
    return;
  }
  const Block &block = heap_.block(hit->block);
  Touch touch{hit->block, {}};
  touch.access.range = rangeOf(block, block.members[hit->member]);
  if (word.plain && word.inner == 0)
    touch.access.parameter = static_cast<std::int32_t>(word.parameter);
  touch.access.isAside =
      touch.access.parameter != unknownParameter &&
      (declared_[position].isAside(*hit) || (rehearsal_ && rehearsal_->isDeclaredAside(position, word)));
  if (isDeclaredRead(position, node, word, *hit)) {
    touch.access.may = modeRead;
    touch.access.evidence = Evidence::Declared;
  }

  // Without a table that knows more.
  const auto addWhole = [&] {
    const std::vector<Range> extents = declared_[position].extentsOf(*hit);
    for (const Range &range : extents) {
      Touch &part = touches.emplace_back(touch);
      part.access.range = range;
      part.access.evidence = Evidence::Declared;
    }
    if (extents.empty())
      touches.push_back(touch);
  };
  const KernelLaunch &launch = launchOf(node, word);
  const auto known = tabled_.find(launch.kernel);
  if (known == tabled_.end()) {
    addWhole();
    return;
  }
  const KernelAccesses &kernel = known->second;
  if (!fits(kernel, launch)) {
    noteOnTable(launch, word, "is of another kernel: this one has no such parameters", position);
    addWhole();
    return;
  }
  const Slot *slot = kernel.find(word.parameter, word.offset);
  if (!slot) { // the table says nothing of it
    addWhole();
    return;
  }
  if ((slot->flags & PUMPGRAPH_SLOT_ESCAPES) != 0)
    noteOnTable(launch, word, "says that the address goes where it cannot be followed", position);
  const auto base = static_cast<std::int64_t>(word.value - block.address);
  const bool overwriting = word.inner == 0 && kernel.isClosed(); // in a child graph another node may be first
  const Narrowed narrowed = narrow(touch.access, base, *slot, launch, overwriting);
  if (!narrowed.doubt.empty())
    noteOnTable(launch, word, fmt::format("is not believed: a launch {}", narrowed.doubt), position);
  for (const Access &access : narrowed.accesses) {
    if (touch.access.evidence == Evidence::Declared && (access.may & modeWrite) != 0)
      noteOnTable(launch, word, "says that memory may be written which was declared only to be read", position);
    touches.push_back({touch.block, access});
  }
}

void AccessFinder::noteOnTable(const KernelLaunch &launch, const PointerWord &word, std::string_view text,
                               std::size_t position) const {
  notesOnTables_[fmt::format("the access table of \"{}\", parameter {}, {}", launch.kernel, word.parameter, text)]
      .insert(position);
}

std::vector<std::string> AccessFinder::notesOnTables() const {
  std::vector<std::string> notes;
  if (tabledLaunches_ != 0)
    notes.push_back(fmt::format("access tables know {} of {} kernel launches", tabledLaunches_, launches_));
  for (const auto &[text, nodes] : notesOnTables_)
    notes.push_back(nodes.size() == 1
                        ? fmt::format("{} (node {})", text, *nodes.begin())
                        : fmt::format("{} ({} nodes, the first is {})", text, nodes.size(), *nodes.begin()));
  return notes;
}

AccessFinder::Touch AccessFinder::touchOf(const ReachedMember &reached) const {
  const Block &block = heap_.block(reached.member.first);
  Touch touch{block.id, {}};
  touch.access.range = rangeOf(block, block.members[reached.member.second]);
  touch.access.may = reached.isWritten ? modeRead | modeWrite : modeRead;
  touch.access.evidence = Evidence::Declared;
  return touch;
}

std::optional<AccessFinder::Touch> AccessFinder::touchOf(const TouchedSpan &span) const {
  const std::optional<Hit> hit = heap_.find(span.address);
  if (!hit)
    return std::nullopt;
  const Block &block = heap_.block(hit->block);
  const std::uint64_t offset = span.address > block.address ? span.address - block.address : 0;
  const std::uint64_t limit = contentBytes(block);
  if (offset >= limit || span.bytes == 0)
    return std::nullopt;
  Touch touch{hit->block, {}};
  touch.access.range = {offset, std::min(span.bytes, limit - offset)};
  touch.access.may = span.may;
  touch.access.must = span.must;
  touch.access.evidence = Evidence::Proved;
  return touch;
}

std::vector<AccessFinder::Touch> AccessFinder::touches(std::size_t position, const LiftedNode &node) const {
  std::vector<Touch> all;
  for (const PointerWord &word : node.words)
    addTouches(position, node, word, all);
  for (const ReachedMember &reached : reached_[position].members)
    all.push_back(touchOf(reached));
  dropOverwritesOfWhatIsRead(all);
  for (const TouchedSpan &span : node.spans)
    if (const std::optional<Touch> touch = touchOf(span))
      all.push_back(*touch);
  std::vector<Touch> touches;
  for (const Touch &touch : all)
    if (std::find(touches.begin(), touches.end(), touch) == touches.end())
      touches.push_back(touch);
  return touches;
}

std::vector<AsideWord> asideWords(const Description &captured, std::size_t position) {
  std::map<std::int32_t, AsideWord> words;
  for (const Access &access : captured.nodes[position].accesses) {
    if (!access.isAside)
      continue;
    const std::uint64_t address = captured.buffers[access.buffer].address + access.range.offset;
    AsideWord &word =
        words.try_emplace(access.parameter, static_cast<std::uint32_t>(access.parameter), address, access.range.size)
            .first->second;
    const std::uint64_t end = std::max(word.address + word.bytes, address + access.range.size);
    word.address = std::min(word.address, address);
    word.bytes = end - word.address;
  }
  std::vector<AsideWord> list;
  for (const auto &[parameter, word] : words)
    list.push_back(word);
  return list;
}

namespace {

/// Builds one CapturedStep, part by part.
class StepDescriber {
public:
  StepDescriber(const LiftedGraph &graph, const Heap &heap, const AccessFinder &finder,
                const std::set<BlockId> &staying, const std::set<BlockId> &pointingAtSelf)
      : graph_(graph), heap_(heap), finder_(finder), staying_(staying), pointingAtSelf_(pointingAtSelf) {}

  CapturedStep run() {
    step_.description.pageBytes = pageBytes;
    findTouches();
    describeBuffers();
    describeNodes();
    describeArithmetic(graph_, step_.description);
    describeWords();
    beginTenancies();
    beginScratch();
    dropValuesNobodyReads();
    findRenamable();
    findBesides();
    if (finder_.refutedWords() != 0)
      step_.notes.push_back(
          fmt::format("{} words that looked like addresses did not move with their buffer between the "
                      "two captures and are taken for numbers",
                      finder_.refutedWords()));
    const std::vector<std::string> notes = finder_.notesOnTables();
    step_.notes.insert(step_.notes.end(), notes.begin(), notes.end());
    return std::move(step_);
  }

private:
  void findTouches() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      touches_.push_back(finder_.touches(i, graph_.nodes[i]));
      for (const AccessFinder::Touch &touch : touches_.back())
        bufferOf_.emplace(touch.block, 0);
    }
  }

  /// In the order of their creation, so that the same program gives the same description.
  void describeBuffers() {
    for (auto &[id, buffer] : bufferOf_) {
      const Block &block = heap_.block(id);
      const Facts facts = factsOf(block, heap_.capture());
      buffer = static_cast<BufferIndex>(step_.blocks.size());
      step_.blocks.push_back(id);
      Buffer &described = step_.description.buffers.emplace_back();
      described.name = nameOf(block);
      described.address = block.address;
      described.size = contentBytes(block);
      described.isPrivate = facts.isPrivate && !staying_.contains(id);
      described.isPresent = facts.isPresent && described.isPrivate;
      described.liveIn = facts.liveIn || !described.isPrivate;
      described.liveOut = facts.liveOut || !described.isPrivate;
      if (!block.hasMemory() && !wasBornIn(block, heap_.capture()))
        step_.notes.push_back(fmt::format(
            "\"{}\" was allocated in a rehearsal, where nothing runs: it has no value yet", described.name));
    }
  }

  void describeNodes() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const LiftedNode &lifted = graph_.nodes[i];
      step_.nodes.push_back(lifted.handle);
      Node &node = step_.description.nodes.emplace_back();
      node.kind = lifted.kind;
      node.captured = static_cast<std::int32_t>(i);
      node.name = lifted.name;
      node.label = lifted.label;
      node.isPure = (lifted.operation.isPure || finder_.isPure(i, lifted)) && isRepeatable(node.kind) &&
                    lifted.refusal.empty() && lifted.hostSources.empty() && lifted.outside.empty();
      if (node.kind == NodeKind::Opaque)
        node.reason = lifted.refusal;
      for (const AccessFinder::Touch &touch : touches_[i]) {
        node.accesses.push_back(touch.access);
        node.accesses.back().buffer = bufferOf_.at(touch.block);
      }
      keepAsides(node);
      std::set<Member> &reached = step_.reached.emplace_back();
      for (const ReachedMember &one : finder_.reached(i).members)
        reached.insert(one.member);
      if (const std::string refusal = lifted.refusal.empty() ? hiddenOperandsOf(i) : lifted.refusal; !refusal.empty())
        step_.refusals.push_back(fmt::format("node {} \"{}\": {}", i, lifted.name, refusal));
    }
    for (const LiftedEdge &edge : graph_.edges)
      step_.description.edges.push_back({edge.from, edge.to, edge.kind});
  }

  /// Why nobody knows the operands of a node that finds them by addresses in memory; empty: they are known.
  std::string hiddenOperandsOf(std::size_t node) const {
    const auto launches = [&](std::string_view name) {
      const std::vector<KernelLaunch> &all = graph_.nodes[node].launches;
      return std::any_of(all.begin(), all.end(),
                         [&](const KernelLaunch &launch) { return launch.kernel.find(name) != std::string::npos; });
    };
    if (launches("ncclSym"))
      return "other ranks access its operands at any time, for they are registered with NCCL";
    if (!launches("ncclDevKernel") && !launches("ncclKernel"))
      return {};
    const ReachedMembers &reach = finder_.reached(node);
    return reach.members.empty()
               ? "NCCL may keep the addresses of its operands in memory, and nobody has declared these "
                 "operands (pumpgraph_declare_reach())"
           : !reach.isWhole ? "an operand that was declared in the rehearsal is not found in the capture"
                            : "";
  }

  /// Of a kernel that may run again, what all accesses of the same bytes have aside, and all through the same
  /// parameter.
  static void keepAsides(Node &node) {
    const auto isOtherwise = [&](const Access &access) {
      return std::any_of(node.accesses.begin(), node.accesses.end(), [&](const Access &other) {
        return !other.isAside && (other.parameter == access.parameter ||
                                  (other.buffer == access.buffer && other.range.overlaps(access.range)));
      });
    };
    for (bool changes = true; changes;) {
      changes = false;
      for (Access &access : node.accesses)
        if (access.isAside && (!node.isPure || node.kind != NodeKind::Kernel || isOtherwise(access))) {
          access.isAside = false;
          changes = true;
        }
    }
  }

  void describeWords() {
    step_.words.resize(graph_.nodes.size());
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i)
      for (const PointerWord &word : graph_.nodes[i].words) {
        const std::optional<Hit> hit = finder_.operandOf(i, word);
        const auto buffer = hit ? bufferOf_.find(hit->block) : bufferOf_.end();
        if (buffer == bufferOf_.end() || graph_.nodes[i].kind != NodeKind::Kernel)
          continue;
        const Block &block = heap_.block(hit->block);
        const Allocation &member = block.members[hit->member];
        const auto offset = static_cast<std::int64_t>(member.offset) + hit->offset;
        step_.words[i].push_back({buffer->second,
                                  {member.offset, block.shared ? member.size : contentBytes(block)},
                                  static_cast<std::uint64_t>(std::max<std::int64_t>(offset, 0)),
                                  word.parameter,
                                  word.offset});
      }
  }

  void beginTenancies() {
    const Tenancies tenancies(graph_, heap_);
    std::map<BlockId, std::vector<NodeIndex>> uses;
    for (NodeIndex i = 0; i < touches_.size(); ++i)
      for (const AccessFinder::Touch &touch : touches_[i])
        if (std::vector<NodeIndex> &nodes = uses[touch.block]; nodes.empty() || nodes.back() != i)
          nodes.push_back(i);
    for (const auto &[block, nodes] : uses) {
      const Tenancies::Findings findings = tenancies.findingsOf(block, nodes);
      for (const NodeIndex first : findings.firsts)
        overwrite(step_.description.nodes[first], bufferOf_.at(block));
      if (step_.conflict.empty())
        step_.conflict = findings.conflict;
    }
  }

  /// What one operation leaves in scratch memory, the next one does not find.
  void beginScratch() {
    for (BufferIndex buffer = 0; buffer < step_.blocks.size(); ++buffer) {
      const std::vector<Allocation> &members = heap_.block(step_.blocks[buffer]).members;
      if (!step_.description.buffers[buffer].isPrivate ||
          !std::all_of(members.begin(), members.end(), [](const Allocation &member) { return member.isScratch; }))
        continue;
      std::set<std::uint32_t> begun;
      for (NodeIndex node = 0; node < step_.description.nodes.size(); ++node) {
        const std::vector<Access> &accesses = step_.description.nodes[node].accesses;
        if (std::none_of(accesses.begin(), accesses.end(),
                         [&](const Access &access) { return access.buffer == buffer; }))
          continue;
        const std::uint32_t operation = graph_.nodes[node].operation.number;
        if (operation != 0 && begun.insert(operation).second)
          overwrite(step_.description.nodes[node], buffer);
      }
    }
  }

  void overwrite(Node &node, BufferIndex buffer) const {
    Access whole{buffer, {0, step_.description.buffers[buffer].size}, modeWrite, modeWrite, Evidence::Allocated};
    for (const Access &access : node.accesses)
      whole.may |= access.buffer == buffer ? access.may : std::uint8_t{modeNone};
    std::erase_if(node.accesses, [&](const Access &access) { return access.buffer == buffer; });
    node.accesses.push_back(whole);
  }

  /// A result is not what the next replay starts from, if the step sets all of it before it looks.
  void dropValuesNobodyReads() {
    for (BufferIndex buffer = 0; buffer < step_.blocks.size(); ++buffer) {
      Buffer &described = step_.description.buffers[buffer];
      if (described.isPrivate && wasBornIn(heap_.block(step_.blocks[buffer]), heap_.capture()) &&
          isOverwrittenFirst(step_.description, buffer))
        described.liveIn = false;
    }
  }

  /// A temporary can go on at another address if that could stand in every node that has this one. Only words of
  /// kernels of the graph itself are ever replaced.
  void findRenamable() {
    std::set<BlockId> fixed = pointingAtSelf_;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const LiftedNode &node = graph_.nodes[i];
      for (const TouchedSpan &span : node.spans)
        if (const std::optional<Hit> hit = heap_.find(span.address))
          fixed.insert(hit->block);
      for (const ReachedMember &reached : finder_.reached(i).members)
        fixed.insert(reached.member.first);
      const bool isKnown = node.kind == NodeKind::Kernel && finder_.knowsAddressesByWordsAlone(i, node);
      for (const PointerWord &word : node.words)
        if (const std::optional<Hit> hit = finder_.operandOf(i, word);
            hit && (!isKnown || !finder_.isReplaceable(i, node, word) || overlapsOther(i, word)))
          fixed.insert(hit->block);
    }
    for (BufferIndex buffer = 0; buffer < step_.blocks.size(); ++buffer) {
      Buffer &described = step_.description.buffers[buffer];
      const BlockId block = step_.blocks[buffer];
      described.isRenamable = described.isPrivate && !described.liveIn && !described.liveOut &&
                              heap_.block(block).backing != Backing::Managed && !fixed.contains(block);
    }
  }

  /// Whether four bytes of the word are those of another address.
  bool overlapsOther(std::size_t position, const PointerWord &word) const {
    return std::any_of(
        graph_.nodes[position].words.begin(), graph_.nodes[position].words.end(), [&](const PointerWord &other) {
          const std::uint32_t distance = std::max(word.offset, other.offset) - std::min(word.offset, other.offset);
          return other.inner == word.inner && other.parameter == word.parameter && distance != 0 &&
                 distance < sizeof word.value && finder_.operandOf(position, other);
        });
  }

  void findBesides() {
    for (const BlockId id : heap_.blocks()) {
      const Block &block = heap_.block(id);
      const bool isResult = wasBornIn(block, heap_.capture()) && block.hasLiveMember();
      if (!bufferOf_.contains(id) && (staying_.contains(id) || (isResult && !block.hasMemory())))
        step_.besides.push_back(id);
    }
  }

  const LiftedGraph &graph_;
  const Heap &heap_;
  const AccessFinder &finder_;
  const std::set<BlockId> &staying_, &pointingAtSelf_;
  CapturedStep step_;
  std::vector<std::vector<AccessFinder::Touch>> touches_; ///< by node
  std::map<BlockId, BufferIndex> bufferOf_;
};

} // namespace

CapturedStep describeStep(const LiftedGraph &graph, const Heap &heap, const AccessFinder &finder,
                          const std::set<BlockId> &staying, const std::set<BlockId> &pointingAtSelf) {
  return StepDescriber(graph, heap, finder, staying, pointingAtSelf).run();
}

bool isFollowed(const CapturedStep &step, const Heap &heap, std::uint64_t at, const Hit &target) {
  const std::optional<Hit> holder = heap.find(at);
  if (!holder)
    return false;
  const Block &block = heap.block(holder->block);
  const Allocation &member = block.members[holder->member];
  if (member.bornIn != heap.capture() || member.live || member.kept || member.graph != 0)
    return false;
  const Range word{at - block.address, sizeof(std::uint64_t)};
  const auto reads = [&](const Node &node) {
    return std::any_of(node.accesses.begin(), node.accesses.end(), [&](const Access &access) {
      return (access.may & modeRead) != 0 && step.blocks[access.buffer] == holder->block && access.range.overlaps(word);
    });
  };
  for (std::size_t node = 0; node < step.description.nodes.size(); ++node)
    if (!step.reached[node].contains({target.block, target.member}) && reads(step.description.nodes[node]))
      return false;
  return true;
}

} // namespace pumpgraph::runtime
