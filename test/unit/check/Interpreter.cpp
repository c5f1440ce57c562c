// SPDX-License-Identifier: Apache-2.0
#include "test/unit/check/Interpreter.h"

#include "test/unit/check/Random.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace pumpgraph::test {

namespace {

constexpr NodeIndex noNode = UINT32_MAX;
constexpr PlaceId noPlace = UINT32_MAX;

/// What a node adds to its fold for a byte that it reads. Sums do not depend on the order of the reads.
std::uint64_t contribution(std::size_t byte, std::uint64_t value) {
  return mix(mix(byte), value);
}

std::uint64_t written(std::int32_t node, std::uint32_t replay, std::uint64_t folded, std::size_t byte) {
  const std::uint64_t identity = mix(static_cast<std::uint64_t>(node), replay);
  return mix(mix(identity, folded), byte) >> 1; // garbage has the highest bit set
}

/// A write that is not certain leaves one byte in three as it was.
bool writesByte(const Access &access, std::int32_t node, std::size_t byte) {
  return (access.must & modeWrite) != 0 || mix(static_cast<std::uint64_t>(node) + 7, byte) % 3 != 0;
}

bool reads(const Access &access) {
  return (access.may & modeRead) != 0 && access.must != modeWrite; // overwrites: reads nothing from before
}

/// Whether somebody else writes the byte of a present buffer before this replay: about half of them.
bool isWrittenBetween(const Buffer &buffer, std::size_t byte, std::uint32_t replay) {
  return buffer.isPresent && mix(byte, replay) % 2 == 0;
}

} // namespace

Reference::Reference(const Description &captured) : captured_(captured) {
  listPages();
  const std::size_t bytes = pages_.empty() ? 0 : pages_.back().firstByte + pages_.back().bytes;
  defined_.resize(bytes);
  for (std::size_t byte = 0; const Page &page : pages_)
    for (std::uint32_t i = 0; i < page.bytes; ++i)
      defined_[byte++] = captured_.buffers[page.buffer].liveIn;
  behaviours_.resize(captured_.nodes.size());
  for (NodeIndex node = 0; node < captured_.nodes.size(); ++node)
    listTouches(node);
  listWaits();
  for (std::uint32_t replay = 0; replay < replayCount; ++replay)
    run(replay);
}

void Reference::listPages() {
  std::size_t byte = 0;
  for (BufferIndex buffer = 0; buffer < captured_.buffers.size(); ++buffer) {
    firstPage_.push_back(static_cast<PageId>(pages_.size()));
    const std::uint64_t size = captured_.buffers[buffer].size;
    for (std::uint64_t page = 0; page < captured_.pageCount(buffer); ++page) {
      const auto bytes = static_cast<std::uint32_t>(std::min(captured_.pageBytes, size - page * captured_.pageBytes));
      pages_.push_back({buffer, page, byte, bytes});
      byte += bytes;
    }
  }
}

void Reference::listTouches(NodeIndex index) {
  const Node &node = captured_.nodes[index];
  using PageAndAside = std::pair<PageId, bool>;
  std::map<PageAndAside, std::vector<std::uint32_t>> readBytes;
  std::map<PageAndAside, std::vector<std::uint32_t>> writtenBytes;
  for (const Access &access : node.accesses)
    for (std::uint64_t offset = access.range.offset; offset < access.range.end(); ++offset) {
      const PageId page = firstPage_[access.buffer] + static_cast<PageId>(offset / captured_.pageBytes);
      const auto inPage = static_cast<std::uint32_t>(offset % captured_.pageBytes);
      const std::size_t byte = pages_[page].firstByte + inPage;
      // A page is touched even where nothing comes of it: no value to read, a byte that happens not to be written.
      if ((access.may & modeRead) != 0) {
        std::vector<std::uint32_t> &bytes = readBytes[{page, access.isAside}];
        if (reads(access) && defined_[byte])
          bytes.push_back(inPage);
      }
      if ((access.may & modeWrite) != 0) {
        std::vector<std::uint32_t> &bytes = writtenBytes[{page, access.isAside}];
        if (writesByte(access, node.captured, byte))
          bytes.push_back(inPage);
      }
    }
  const auto take = [](auto &from, std::vector<PageTouch> &to) {
    for (auto &[where, bytes] : from) {
      std::sort(bytes.begin(), bytes.end());
      bytes.erase(std::unique(bytes.begin(), bytes.end()), bytes.end());
      to.push_back({where.first, std::move(bytes), {}, where.second});
    }
  };
  Behaviour &behaviour = behaviours_[static_cast<std::size_t>(node.captured)];
  take(readBytes, behaviour.reads);
  take(writtenBytes, behaviour.writes);
  for (const PageTouch &touch : behaviour.writes)
    for (const std::uint32_t inPage : touch.bytes)
      defined_[pages_[touch.page].firstByte + inPage] = true;
}

/// Finds the conflicts that the captured step orders, but not by full edges alone.
void Reference::listWaits() {
  const std::size_t count = captured_.nodes.size();
  std::vector<std::vector<bool>> completed(count, std::vector<bool>(count));
  std::vector<std::vector<bool>> ordered = completed;
  std::vector<Edge> edges = captured_.edges;
  std::sort(edges.begin(), edges.end(), [](const Edge &left, const Edge &right) { return left.to < right.to; });
  const auto join = [&](auto &before, const Edge &edge) {
    before[edge.to][edge.from] = true;
    for (std::size_t i = 0; i < count; ++i)
      if (before[edge.from][i])
        before[edge.to][i] = true;
  };
  for (const Edge &edge : edges) {
    join(ordered, edge);
    if (edge.kind == EdgeKind::Full)
      join(completed, edge);
  }

  const auto touches = [](const std::vector<PageTouch> &touched, PageId page) {
    return std::any_of(touched.begin(), touched.end(), [&](const PageTouch &touch) { return touch.page == page; });
  };
  for (NodeIndex later = 0; later < count; ++later)
    for (NodeIndex earlier = 0; earlier < later; ++earlier) {
      if (!ordered[later][earlier] || completed[later][earlier])
        continue;
      const Behaviour &first = behaviour(captured_.nodes[earlier].captured);
      Behaviour &second = behaviours_[static_cast<std::size_t>(captured_.nodes[later].captured)];
      for (PageTouch &touch : second.reads)
        if (touches(first.writes, touch.page))
          touch.waitsFor.push_back(earlier);
      for (PageTouch &touch : second.writes)
        if (touches(first.writes, touch.page) || touches(first.reads, touch.page))
          touch.waitsFor.push_back(earlier);
    }
}

void Reference::run(std::uint32_t replay) {
  Replay now;
  now.before.resize(defined_.size());
  for (const Page &page : pages_) {
    const Buffer &buffer = captured_.buffers[page.buffer];
    if (!buffer.liveIn)
      continue;
    for (std::size_t byte = page.firstByte; byte < page.firstByte + page.bytes; ++byte)
      // What is not live-out comes from outside before each replay.
      now.before[byte] = replay > 0 && buffer.liveOut && !isWrittenBetween(buffer, byte, replay)
                             ? replays_[replay - 1].after[byte]
                             : mix(byte, replay) >> 1;
  }
  now.after = now.before;
  for (const Node &node : captured_.nodes) {
    Behaviour &behaviour = behaviours_[static_cast<std::size_t>(node.captured)];
    Fold folded;
    for (const PageTouch &touch : behaviour.reads)
      for (const std::uint32_t inPage : touch.bytes) {
        const std::size_t byte = pages_[touch.page].firstByte + inPage;
        folded.in(touch) += contribution(byte, now.after[byte]);
      }
    for (const PageTouch &touch : behaviour.writes)
      for (const std::uint32_t inPage : touch.bytes) {
        const std::size_t byte = pages_[touch.page].firstByte + inPage;
        now.after[byte] = written(node.captured, replay, folded.of(touch), byte);
      }
    behaviour.folded.push_back(folded);
  }
  replays_.push_back(std::move(now));
}

Interpreter::Interpreter(const Reference &reference, const Description &description)
    : reference_(reference), description_(description) {
  placePages();
  findPagesThatStay();
  buildPrograms();
}

void Interpreter::listPlaces() {
  for (BufferIndex buffer = 0; buffer < description_.buffers.size(); ++buffer) {
    firstPlace_.push_back(static_cast<PlaceId>(places_.size()));
    const BufferIndex original = capturedBuffer(description_.buffers, buffer);
    for (std::uint64_t page = 0; page < description_.pageCount(buffer); ++page)
      places_.emplace_back().page = reference_.page(original, page);
  }
}

void Interpreter::placePages() {
  listPlaces();
  std::map<std::int32_t, std::uint32_t> dense;
  BufferIndex named = 0;
  for (PlaceId index = 0; index < places_.size(); ++index) {
    while (named + 1 < firstPlace_.size() && index >= firstPlace_[named + 1])
      ++named;
    PageState &place = places_[index];
    const Reference::Page &origin = reference_.page(place.page);
    const Buffer &buffer = description_.buffers[named];
    if (!buffer.frames.empty() && buffer.frames[origin.page] != noFrame)
      place.frame =
          dense.try_emplace(buffer.frames[origin.page], static_cast<std::uint32_t>(dense.size())).first->second;
    const std::uint64_t offset = origin.page * description_.pageBytes;
    place.resident = !buffer.isPrivate || covers(buffer.resident, {offset, origin.bytes});
    place.mirrored = covers(buffer.mirrored, {offset, origin.bytes});
    if (place.resident && place.frame == UINT32_MAX)
      malformed_ = "a resident page has no frame";
  }
  auto frameCount = static_cast<std::uint32_t>(dense.size());
  std::vector<bool> isInChain(description_.buffers.size(), false);
  for (BufferIndex buffer = 0; buffer < description_.buffers.size(); ++buffer)
    if (const BufferIndex before = description_.buffers[buffer].continues; before != noBuffer)
      isInChain[before] = isInChain[buffer] = true;
  for (BufferIndex buffer = 0; buffer < description_.buffers.size(); ++buffer)
    for (std::uint64_t page = 0; page < description_.pageCount(buffer); ++page) {
      PageState &place = places_[firstPlace_[buffer] + page];
      const Reference::Page &origin = reference_.page(place.page);
      if (!covers(description_.buffers[buffer].hosted, {origin.page * description_.pageBytes, origin.bytes}))
        continue;
      place.hosted = true;
      if (place.frame != UINT32_MAX)
        malformed_ = "a hosted page has a frame";
      if (isInChain[buffer]) { // its host copy, which copies of the others move, is where nodes reach it
        places_[place.page].isHostedInChain = true;
        continue;
      }
      place.frame = frameCount++;
      place.resident = true;
    }
  frames_.resize(frameCount * description_.pageBytes);
  owner_.resize(frameCount);

  // Lowered copies say where in the pool they keep a page. Every other page has a place of its own behind the pool.
  hostSize_ = description_.hostBytes;
  for (PageId page = 0; page < reference_.pageCount(); ++page, hostSize_ += description_.pageBytes)
    places_[page].hostPlace = hostSize_;
}

/// Those of a buffer that have the frame that they had where it comes from.
void Interpreter::findPagesThatStay() {
  for (PlaceId place = 0; place < places_.size(); ++place)
    places_[place].first = place;
  bool someStay = false;
  for (BufferIndex buffer = 0; buffer < description_.buffers.size(); ++buffer) {
    const BufferIndex before = description_.buffers[buffer].continues;
    for (std::uint64_t page = 0; before != noBuffer && page < description_.pageCount(buffer); ++page) {
      PageState &here = places_[firstPlace_[buffer] + page];
      const PageState &there = places_[firstPlace_[before] + page];
      if (here.frame == UINT32_MAX || here.frame != there.frame)
        continue;
      here.first = there.first;
      someStay = true;
    }
  }
  if (someStay)
    listCompleted();
}

void Interpreter::listCompleted() {
  const std::size_t count = description_.nodes.size();
  completed_.assign(count, std::vector<bool>(count));
  std::vector<Edge> edges = description_.edges;
  std::sort(edges.begin(), edges.end(), [](const Edge &left, const Edge &right) { return left.to < right.to; });
  for (const Edge &edge : edges) {
    if (edge.kind != EdgeKind::Full)
      continue;
    completed_[edge.to][edge.from] = true;
    for (std::size_t node = 0; node < count; ++node)
      if (completed_[edge.from][node])
        completed_[edge.to][node] = true;
  }
}

void Interpreter::buildPrograms() {
  nodeOf_.assign(reference_.captured().nodes.size(), noNode);
  programs_.resize(description_.nodes.size());
  for (NodeIndex index = 0; index < description_.nodes.size(); ++index) {
    const Node &node = description_.nodes[index];
    programs_[index].captured = node.captured;
    if (node.captured >= 0) {
      nodeOf_[static_cast<std::size_t>(node.captured)] = index;
      addCaptured(node, programs_[index]);
      continue;
    }
    if (node.kind == NodeKind::Rematerialize) {
      programs_[index].captured = node.repeats;
      programs_[index].isRepetition = true;
      addCaptured(node, programs_[index]);
      continue;
    }
    if (movesDown(node.kind) || movesUp(node.kind) || node.kind == NodeKind::Discard)
      addTransfer(index, programs_[index]);
  }
  for (NodeIndex index = 0; index < programs_.size(); ++index)
    for (const Operation &operation : programs_[index].operations)
      if (places_[operation.place].frame == UINT32_MAX && !isReachedInHost(operation.place))
        malformed_ = fmt::format("node {} touches a page that has no frame", index);
  for (const Edge &edge : description_.edges) {
    Program &from = programs_[edge.from];
    (edge.kind == EdgeKind::Full ? from.startedByEnd : from.startedByStart).push_back(edge.to);
    ++programs_[edge.to].inEdges;
  }
}

void Interpreter::addCaptured(const Node &node, Program &program) {
  const Reference::Behaviour &behaviour = reference_.behaviour(program.captured);
  const auto placeOf = [&](PageId page) {
    const Reference::Page &origin = reference_.page(page);
    BufferIndex named = origin.buffer;
    for (const Access &access : node.accesses)
      if (capturedBuffer(description_.buffers, access.buffer) == origin.buffer)
        named = access.buffer;
    return firstPlace_[named] + static_cast<PlaceId>(origin.page);
  };
  const auto isLeftOut = [&](const PageTouch &touch) { return program.isRepetition && touch.isAside; };
  for (const PageTouch &touch : behaviour.reads)
    if (!isLeftOut(touch))
      program.operations.push_back({Action::Read, &touch, touch.page, placeOf(touch.page)});
  // What need not wait for anybody comes first, so that as much as possible overlaps.
  std::stable_partition(program.operations.begin(), program.operations.end(),
                        [](const Operation &operation) { return operation.touch->waitsFor.empty(); });
  for (const PageTouch &touch : behaviour.writes)
    if (!isLeftOut(touch))
      program.operations.push_back({Action::Write, &touch, touch.page, placeOf(touch.page)});
}

void Interpreter::addTransfer(NodeIndex index, Program &program) {
  const Node &node = description_.nodes[index];
  const Action action = movesDown(node.kind) ? Action::Down : movesUp(node.kind) ? Action::Up : Action::Discard;
  for (std::uint64_t offset = node.range.offset; offset < node.range.end(); offset += description_.pageBytes) {
    const PlaceId moved = firstPlace_[node.buffer] + static_cast<PlaceId>(offset / description_.pageBytes);
    const PageId page = places_[moved].page;
    const std::uint32_t bytes = reference_.page(page).bytes;
    if (places_[moved].hosted)
      malformed_ = fmt::format("node {} moves a hosted page", index);
    if (isCopy(node.kind) && places_[page].isHostedInChain) {
      if (node.hostOffset != 0)
        malformed_ = fmt::format("node {} names a place of a page that is hosted at another address", index);
    } else if (isCopy(node.kind)) {
      const std::uint64_t place = node.hostOffset + (offset - node.range.offset);
      const bool hasOther = places_[page].hostPlace < description_.hostBytes && places_[page].hostPlace != place;
      if (hasOther || place + bytes > description_.hostBytes)
        malformed_ = fmt::format("node {} keeps a page at a place that it cannot have", index);
      else
        places_[page].hostPlace = place;
    }
    const std::uint32_t half = (bytes + 1) / 2;
    program.operations.push_back({action, nullptr, page, moved, 0, half});
    if (half < bytes)
      program.operations.push_back({action, nullptr, page, moved, half, bytes});
  }
}

/// Everything but what the last replay was to leave behind is garbage.
void Interpreter::startReplay(std::uint32_t replay) {
  replay_ = replay;
  frames_.swap(framesBefore_);
  host_.swap(hostBefore_);
  frames_.resize(framesBefore_.size());
  host_.resize(hostSize_);
  spoil(frames_);
  spoil(host_);
  std::fill(owner_.begin(), owner_.end(), noPlace);
  uses_.clear();

  for (PageId page = 0; page < reference_.pageCount(); ++page) {
    const PageState &place = places_[page];
    const Reference::Page &origin = reference_.page(page);
    const Buffer &buffer = description_.buffers[origin.buffer];
    if (place.resident)
      owner_[place.frame] = page;
    if (!buffer.liveIn)
      continue;
    const bool fromOutside = replay == 0 || !buffer.liveOut;
    const auto keep = [&](std::vector<std::uint64_t> &to, const std::vector<std::uint64_t> &from, std::size_t at,
                          bool isAtAddress) {
      for (std::uint32_t i = 0; i < origin.bytes; ++i) {
        const std::size_t byte = origin.firstByte + i;
        const bool isNew = fromOutside || (isAtAddress && isWrittenBetween(buffer, byte, replay));
        to[at + i] = isNew ? reference_.replay(replay).before[byte] : from[at + i];
      }
    };
    if (place.resident)
      keep(frames_, framesBefore_, place.frame * description_.pageBytes, true);
    if (place.isInHost())
      keep(host_, hostBefore_, place.hostPlace, false);
  }
  steps_.assign(programs_.size(), 0);
  folded_.assign(programs_.size(), Fold());
  blocked_.resize(programs_.size());
  running_.clear();
  for (NodeIndex node = 0; node < programs_.size(); ++node) {
    blocked_[node] = programs_[node].inEdges;
    if (blocked_[node] == 0)
      running_.push_back(node);
  }
}

bool Interpreter::canContinue(NodeIndex node) const {
  const std::vector<Operation> &operations = programs_[node].operations;
  const std::uint32_t steps = steps_[node];
  if (steps == 0 || steps > operations.size() || operations[steps - 1].touch == nullptr || programs_[node].isRepetition)
    return true;
  const std::vector<NodeIndex> &waitsFor = operations[steps - 1].touch->waitsFor;
  return std::all_of(waitsFor.begin(), waitsFor.end(), [&](NodeIndex captured) {
    const NodeIndex other = nodeOf_[captured];
    return other == noNode || steps_[other] == programs_[other].operations.size() + 2;
  });
}

/// Overwrites all with garbage.
void Interpreter::spoil(std::span<std::uint64_t> bytes) {
  std::uint64_t last = garbage_; // of which the compiler knows that it is not among the bytes
  for (std::uint64_t &byte : bytes)
    byte = garbageAfter(last++);
  garbage_ = last;
}

/// A new tenant finds garbage, and leaves the old one with nothing.
std::uint64_t *Interpreter::deviceBytes(PlaceId place) {
  const std::uint32_t frame = places_[place].frame;
  const PlaceId first = places_[place].first;
  std::uint64_t *bytes = frames_.data() + frame * description_.pageBytes;
  if (owner_[frame] != first) {
    owner_[frame] = first;
    spoil({bytes, description_.pageBytes});
  }
  return bytes;
}

/// Whether some other access of the page, at another of its addresses, is not ordered against this one as it must be:
/// what is written at one address is seen at a later one when the writer has completed.
bool Interpreter::isUnseenElsewhere(const Operation &operation, NodeIndex node) {
  if (completed_.empty() || places_[operation.place].hosted)
    return false;
  std::vector<Use> &uses = uses_[places_[operation.place].first];
  const bool writes = operation.action == Action::Write;
  const bool isUnseen = std::any_of(uses.begin(), uses.end(), [&](const Use &use) {
    return use.place != operation.place && (writes || use.writes) &&
           (use.place > operation.place || !completed_[node][use.node]);
  });
  uses.push_back({node, operation.place, writes});
  return isUnseen;
}

void Interpreter::perform(const Operation &operation, NodeIndex node) {
  std::uint64_t *host = hostBytes(operation.page);
  const bool isInHost = isReachedInHost(operation.place);
  std::uint64_t *device = isInHost ? host : deviceBytes(operation.place);
  const Reference::Page &page = reference_.page(operation.page);
  switch (operation.action) {
  case Action::Read: {
    const bool isUnseen = isUnseenElsewhere(operation, node);
    for (const std::uint32_t inPage : operation.touch->bytes)
      folded_[node].in(*operation.touch) +=
          contribution(page.firstByte + inPage, isUnseen ? garbage() : device[inPage]);
    return;
  }
  case Action::Write: {
    const bool isUnseen = isUnseenElsewhere(operation, node);
    for (const std::uint32_t inPage : operation.touch->bytes)
      device[inPage] = isUnseen ? garbage()
                                : written(programs_[node].captured, replay_, folded_[node].of(*operation.touch),
                                          page.firstByte + inPage);
    if (!isInHost)
      spoil({host, page.bytes}); // the host copy is stale
    return;
  }
  case Action::Down:
    std::copy(device + operation.begin, device + operation.end, host + operation.begin);
    return;
  case Action::Up:
    std::copy(host + operation.begin, host + operation.end, device + operation.begin);
    return;
  case Action::Discard:
    spoil({device + operation.begin, device + operation.end});
    return;
  }
}

/// The next step of a node: its start, an operation, its end.
void Interpreter::perform(NodeIndex node) {
  const Program &program = programs_[node];
  const std::uint32_t step = steps_[node]++;
  if (step == 0)
    return release(program.startedByStart);
  if (step <= program.operations.size())
    return perform(program.operations[step - 1], node);
  release(program.startedByEnd);
  std::erase(running_, node);
  if (program.captured < 0)
    return;
  const Fold &folded = reference_.behaviour(program.captured).folded[replay_];
  if (folded_[node].apart != folded.apart || (!program.isRepetition && folded_[node].aside != folded.aside))
    wrong_ = fmt::format("replay {}: node {} (captured {}) reads other values than it should", replay_, node,
                         program.captured);
}

void Interpreter::release(const std::vector<NodeIndex> &targets) {
  for (const NodeIndex target : targets)
    if (--blocked_[target] == 0)
      running_.push_back(target);
}

NodeIndex Interpreter::choose(const Schedule &schedule) {
  if (schedule.kind == Schedule::Kind::InOrder)
    return *std::min_element(ready_.begin(), ready_.end());
  if (schedule.kind == Schedule::Kind::Priorities) {
    if (random_.chance(5))
      for (std::uint64_t &priority : priorities_)
        priority = random_.next();
    return *std::max_element(ready_.begin(), ready_.end(),
                             [&](NodeIndex left, NodeIndex right) { return priorities_[left] < priorities_[right]; });
  }
  if (schedule.kind == Schedule::Kind::Delay)
    if (const auto found = std::find(ready_.begin(), ready_.end(), schedule.node); found != ready_.end()) {
      if (steps_[schedule.node] < schedule.steps)
        return schedule.node;
      if (ready_.size() > 1)
        ready_.erase(found);
    }
  return ready_[random_.below(ready_.size())];
}

std::optional<std::string> Interpreter::runStep(const Schedule &schedule, std::uint32_t replay) {
  random_ = Random(mix(schedule.seed, replay));
  priorities_.resize(programs_.size());
  for (std::uint64_t &priority : priorities_)
    priority = random_.next();
  wrong_.reset();
  while (!running_.empty()) {
    ready_.clear();
    std::copy_if(running_.begin(), running_.end(), std::back_inserter(ready_),
                 [&](NodeIndex node) { return canContinue(node); });
    if (ready_.empty())
      return "nothing can go on";
    perform(choose(schedule));
    if (wrong_)
      return wrong_;
  }
  return compareEnd(replay);
}

std::optional<std::string> Interpreter::compareEnd(std::uint32_t replay) {
  for (PageId page = 0; page < reference_.pageCount(); ++page) {
    const PageState &place = places_[page];
    const Reference::Page &origin = reference_.page(page);
    if (!description_.buffers[origin.buffer].liveOut)
      continue;
    const auto compare = [&](const std::uint64_t *bytes, const char *where) -> std::optional<std::string> {
      for (std::uint32_t i = 0; i < origin.bytes; ++i)
        if (reference_.isDefinedAtEnd(origin.firstByte + i) &&
            bytes[i] != reference_.replay(replay).after[origin.firstByte + i])
          return fmt::format("replay {}: at the end byte {} of page {} of \"{}\" has another value than it should {}",
                             replay, i, origin.page, description_.buffers[origin.buffer].name, where);
      return std::nullopt;
    };
    std::optional<std::string> wrong;
    if (place.resident)
      wrong = compare(deviceBytes(page), "on the device");
    if (!wrong && place.isInHost())
      wrong = compare(hostBytes(page), "in host memory");
    if (wrong)
      return wrong;
  }
  return std::nullopt;
}

std::optional<std::string> Interpreter::run(const Schedule &schedule) {
  if (malformed_)
    return malformed_;
  for (std::uint32_t replay = 0; replay < replayCount; ++replay) {
    startReplay(replay);
    if (std::optional<std::string> wrong = runStep(schedule, replay))
      return wrong;
  }
  return std::nullopt;
}

std::optional<std::string> Interpreter::runRandom(std::uint64_t seed, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    const Schedule::Kind kind = i % 2 == 0 ? Schedule::Kind::Priorities : Schedule::Kind::Uniform;
    if (std::optional<std::string> wrong = run({kind, mix(seed, i)}))
      return wrong;
  }
  return std::nullopt;
}

std::optional<std::string> Interpreter::runAllDelays(std::uint64_t seed) {
  Random random(seed);
  for (NodeIndex node = 0; node < programs_.size(); ++node) {
    const auto operations = static_cast<std::uint32_t>(programs_[node].operations.size());
    std::vector<std::uint32_t> stops{0};
    if (!programs_[node].startedByStart.empty())
      stops.push_back(1);
    if (operations > 1)
      stops.push_back(static_cast<std::uint32_t>(random.between(2, operations)));
    for (const std::uint32_t steps : stops)
      if (std::optional<std::string> wrong = run({Schedule::Kind::Delay, mix(seed, node), node, steps}))
        return wrong;
  }
  return std::nullopt;
}

} // namespace pumpgraph::test
