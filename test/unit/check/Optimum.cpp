// SPDX-License-Identifier: Apache-2.0
#include "test/unit/check/Optimum.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <queue>
#include <unordered_map>
#include <utility>

namespace pumpgraph::test {

namespace {

using PageSet = std::uint32_t;
using NodeSet = std::uint32_t;
using AtomSet = std::uint32_t; ///< of runs of bytes that each access covers or misses
constexpr std::size_t mostAtoms = 32;

/// Who wrote an atom last: no node, nobody since the boundary, or a node.
using Version = std::uint8_t;
constexpr Version none = 0;
constexpr Version boundary = 1;
constexpr Version versionOf(std::size_t node) {
  return static_cast<Version>(node + 2);
}

/// Where a page's value is, and whether the page takes up device memory.
enum class Place : std::uint8_t {
  NoneOff, ///< no value yet, not on the device
  NoneOn,
  Device,
  Both,
  Host,
  Lost, ///< the value has been given up
};

bool takesFrame(Place place) {
  return place == Place::NoneOn || place == Place::Device || place == Place::Both;
}

constexpr double never = 1e18;
constexpr double tolerance = 1e-7;
constexpr std::uint8_t noPage = 255;

/// A moment at which something may be started.
struct State {
  NodeSet started = 0;
  NodeSet done = 0;
  NodeSet again = 0;                                  ///< that are done and run once more
  std::uint8_t residents = 0;                         ///< boundary residents, among the live-in pages
  std::uint8_t mirrored = 0;                          ///< of those, the ones in host memory too
  std::array<Place, 8> places{};                      ///< by page
  std::array<double, 6> remainingUs{};                ///< by node, of those that run
  std::array<std::uint8_t, 2> moving{noPage, noPage}; ///< up, down
  std::array<double, 2> remainingBytes{};
  std::array<Version, mostAtoms> versions{}; ///< by atom, where some node can run again

  NodeSet running() const { return (started & ~done) | again; }
};

/// Equal for states from which the same can happen: what is where, and a hash of how long what runs still takes.
struct Key {
  std::uint64_t what = 0;
  std::uint64_t howLong = 0;
  bool operator==(const Key &) const = default;
};

struct KeyHash {
  std::size_t operator()(const Key &key) const { return mix(key.what, key.howLong); }
};

Key keyOf(const State &state) {
  Key key;
  const auto put = [&](std::uint64_t value, unsigned bits) { key.what = key.what << bits | value; };
  put(state.started, 6);
  put(state.done, 6);
  put(state.residents, 8);
  put(state.mirrored, 8);
  for (const Place place : state.places)
    put(static_cast<std::uint64_t>(place), 3);
  for (const std::uint8_t page : state.moving)
    put(page & 15U, 4);
  for (const double remaining : state.remainingUs)
    key.howLong = mix(key.howLong, static_cast<std::uint64_t>(std::llround(remaining * 65536)));
  for (const double remaining : state.remainingBytes)
    key.howLong = mix(key.howLong, static_cast<std::uint64_t>(std::llround(remaining * 65536)));
  std::uint64_t packed = 64 | state.again; // the highest bit says how many have been packed
  for (const Version version : state.versions) {
    if (packed >> 60 != 0)
      key.howLong = mix(key.howLong, std::exchange(packed, 1));
    packed = packed << 3 | version;
  }
  key.howLong = mix(key.howLong, packed);
  return key;
}

class Search {
public:
  Search(const Description &captured, std::uint64_t budgetBytes, const Machine &machine, BoundKind kind,
         bool repeatsInLine)
      : captured_(captured), machine_(machine), repeatsAlone_(repeatsInLine) {
    listPages(budgetBytes);
    if (isPossible_)
      listNodes(kind);
    for (std::size_t node = 1; node < steps_.size(); ++node)
      repeatsAlone_ = repeatsAlone_ && (steps_[node].after >> (node - 1) & 1) != 0;
    if (isPossible_ && repeatable_ != 0)
      listAtoms(kind);
  }

  std::optional<double> run(std::size_t stateLimit);

private:
  struct Page {
    double bytes = 0;
    bool liveIn = false;
    bool liveOut = false;
  };
  struct Step {
    PageSet touched = 0;
    PageSet needed = 0; ///< their values are read
    PageSet written = 0;
    PageSet overwritten = 0; ///< wholly, and not read by this node
    NodeSet after = 0;
    AtomSet touchedAtoms = 0;
    AtomSet writtenAtoms = 0;
    std::vector<std::pair<std::size_t, Version>> operands; ///< by atom, as they are in the captured step
    double costUs = 0;
    double tailUs = 0; ///< longest path from the start of the node to the end
  };

  void listPages(std::uint64_t budgetBytes);
  void listNodes(BoundKind kind);
  bool canRepeat(const Node &node) const;
  void listAtoms(BoundKind kind);
  std::vector<State> starts() const;
  bool isGoal(const State &state) const;
  void push(State state, double us);
  double leastRestUs(const State &state) const;
  std::pair<double, double> bytesToMove(const State &state) const;
  std::uint64_t framesTaken(const State &state) const;
  PageSet running(const State &state, PageSet Step::*which) const;
  PageSet locked(const State &state) const;
  PageSet wanted(const State &state, bool needed) const;
  void tryNodes(const State &state, double us);
  void tryMoves(const State &state, double us);
  void tryDrops(const State &state, double us);
  void advance(State state, double us);
  void complete(State &state, std::size_t node) const;
  bool mayRepeat(const State &state, std::size_t node) const;
  bool findsOperands(const State &state, std::size_t node) const;
  bool racesWithRepetition(const State &state, std::size_t node) const;

  const Description &captured_;
  Machine machine_;
  bool repeatsAlone_; ///< beside repetitions runs nothing
  bool isPossible_ = true;
  std::uint64_t frames_ = 0; ///< for private pages
  std::vector<Page> pages_;
  std::map<std::pair<BufferIndex, std::uint64_t>, std::uint8_t> pageNumbers_;
  std::vector<Step> steps_;
  NodeSet repeatable_ = 0;
  PageSet remade_ = 0;                      ///< by nodes that can run again, wholly
  PageSet inputs_ = 0;                      ///< of nodes that can run again
  std::array<Version, mostAtoms> before_{}; ///< by atom

  struct Entry {
    double lowestUs = 0; ///< of all completions
    double us = 0;
    State state;
    bool operator<(const Entry &other) const { return lowestUs > other.lowestUs; }
  };
  std::priority_queue<Entry> queue_;
  std::unordered_map<Key, double, KeyHash> best_;
};

void Search::listPages(std::uint64_t budgetBytes) {
  const std::uint64_t all = budgetBytes / captured_.pageBytes;
  std::uint64_t exclusive = 0;
  for (BufferIndex index = 0; index < captured_.buffers.size(); ++index) {
    const Buffer &buffer = captured_.buffers[index];
    for (std::uint64_t page = 0; page < captured_.pageCount(index); ++page) {
      if (!buffer.isPrivate) {
        ++exclusive;
        continue;
      }
      const std::uint64_t bytes = std::min(captured_.pageBytes, buffer.size - page * captured_.pageBytes);
      pageNumbers_[{index, page}] = static_cast<std::uint8_t>(pages_.size());
      pages_.push_back({static_cast<double>(bytes), buffer.liveIn, buffer.liveOut});
    }
  }
  isPossible_ = exclusive <= all && pages_.size() <= State{}.places.size() &&
                captured_.nodes.size() <= State{}.remainingUs.size();
  frames_ = isPossible_ ? all - exclusive : 0;
}

void Search::listNodes(BoundKind kind) {
  for (const Node &node : captured_.nodes) {
    Step step;
    step.costUs = std::isnan(node.costUs) ? 0 : node.costUs;
    for (const Access &access : node.accesses) {
      const std::uint8_t mode = kind == BoundKind::Must ? access.must : access.may;
      if (!captured_.buffers[access.buffer].isPrivate || mode == modeNone)
        continue;
      for (std::uint64_t page = access.range.offset / captured_.pageBytes;
           page * captured_.pageBytes < access.range.end(); ++page) {
        const std::uint64_t begin = page * captured_.pageBytes;
        const std::uint64_t end = std::min(begin + captured_.pageBytes, captured_.buffers[access.buffer].size);
        const PageSet bit = PageSet{1} << pageNumbers_.at({access.buffer, page});
        const bool covers = access.range.offset <= begin && end <= access.range.end();
        const bool overwrites = covers && access.must == modeWrite;
        step.touched |= bit;
        step.written |= (mode & modeWrite) != 0 ? bit : 0;
        step.needed |= overwrites ? 0 : bit;
      }
    }
    step.overwritten = step.written & ~step.needed;
    if (canRepeat(node)) {
      repeatable_ |= NodeSet{1} << steps_.size();
      remade_ |= step.overwritten;
      inputs_ |= step.needed;
    }
    steps_.push_back(step);
  }
  for (const Edge &edge : captured_.edges)
    steps_[edge.to].after |= NodeSet{1} << edge.from;
  for (std::size_t node = steps_.size(); node-- > 0;) {
    steps_[node].tailUs += steps_[node].costUs;
    for (std::size_t from = 0; from < node; ++from)
      if ((steps_[node].after >> from & 1) != 0)
        steps_[from].tailUs = std::max(steps_[from].tailUs, steps_[node].tailUs);
  }
}

/// Rule 11 of docs/design/plan-correctness.md.
bool Search::canRepeat(const Node &node) const {
  return node.isPure && isRepeatable(node.kind) &&
         std::none_of(node.accesses.begin(), node.accesses.end(), [&](const Access &access) {
           const Buffer &buffer = captured_.buffers[access.buffer];
           return (access.may & modeWrite) != 0 && (!buffer.isPrivate || buffer.liveIn || buffer.liveOut);
         });
}

void Search::listAtoms(BoundKind kind) {
  std::map<std::pair<BufferIndex, std::uint64_t>, std::size_t> numbers; // by where they begin; the ends of buffers too
  for (const Node &node : captured_.nodes)
    for (const Access &access : node.accesses)
      for (const std::uint64_t place : {access.range.offset, access.range.end()})
        numbers[{access.buffer, place}] = 0;
  std::size_t count = 0;
  isPossible_ = numbers.size() <= mostAtoms;
  if (!isPossible_)
    return;
  for (auto &[place, number] : numbers) {
    before_[count] = captured_.buffers[place.first].liveIn ? boundary : none;
    number = count++;
  }
  std::array<Version, mostAtoms> versions = before_;
  for (std::size_t node = 0; node < steps_.size(); ++node) {
    Step &step = steps_[node];
    for (const Access &access : captured_.nodes[node].accesses) {
      const std::uint8_t mode = kind == BoundKind::Must ? access.must : access.may;
      const std::size_t end = numbers.at({access.buffer, access.range.end()});
      for (std::size_t atom = numbers.at({access.buffer, access.range.offset}); mode != modeNone && atom < end;
           ++atom) {
        step.touchedAtoms |= AtomSet{1} << atom;
        step.writtenAtoms |= (mode & modeWrite) != 0 ? AtomSet{1} << atom : 0;
        if (access.must != modeWrite && versions[atom] != none)
          step.operands.emplace_back(atom, versions[atom]);
      }
    }
    for (std::size_t atom = 0; atom < count; ++atom)
      if ((step.writtenAtoms >> atom & 1) != 0)
        versions[atom] = versionOf(node);
  }
}

std::vector<State> Search::starts() const {
  PageSet written = 0;
  for (const Step &step : steps_)
    written |= step.written;
  std::vector<State> states{State()};
  states[0].versions = before_;
  for (std::size_t page = 0; page < pages_.size(); ++page) {
    if (!pages_[page].liveIn)
      continue;
    const auto bit = static_cast<std::uint8_t>(1U << page);
    std::vector<State> longer;
    for (State state : states) {
      state.places[page] = Place::Host;
      longer.push_back(state);
      state.residents |= bit;
      state.places[page] = Place::Device;
      if ((written & bit) != 0) // what nobody writes is never worse off in both
        longer.push_back(state);
      state.mirrored |= bit;
      state.places[page] = Place::Both;
      longer.push_back(state);
    }
    states = std::move(longer);
  }
  std::erase_if(states, [&](const State &state) { return framesTaken(state) > frames_; });
  return states;
}

std::uint64_t Search::framesTaken(const State &state) const {
  std::uint64_t taken = 0;
  for (std::size_t page = 0; page < pages_.size(); ++page)
    taken += takesFrame(state.places[page]) || state.moving[0] == page;
  return taken;
}

bool Search::isGoal(const State &state) const {
  if (state.done + 1 != NodeSet{1} << steps_.size() || state.again != 0 || state.moving[0] != noPage ||
      state.moving[1] != noPage)
    return false;
  for (std::size_t page = 0; page < pages_.size(); ++page) {
    if (!pages_[page].liveOut)
      continue;
    const Place place = state.places[page];
    if (place == Place::Lost)
      return false;
    if (!pages_[page].liveIn) // resident or not, as it suits
      continue;
    const bool resident = (state.residents >> page & 1) != 0;
    const bool mirrored = (state.mirrored >> page & 1) != 0;
    if (place != Place::Both && (mirrored || place != (resident ? Place::Device : Place::Host)))
      return false;
  }
  return true;
}

/// Of the nodes that run.
PageSet Search::running(const State &state, PageSet Step::*which) const {
  PageSet pages = 0;
  for (std::size_t node = 0; node < steps_.size(); ++node)
    if ((state.running() >> node & 1) != 0)
      pages |= steps_[node].*which;
  return pages;
}

/// Pages in use by a running node or a transfer.
PageSet Search::locked(const State &state) const {
  PageSet pages = running(state, &Step::touched);
  for (const std::uint8_t page : state.moving)
    if (page != noPage)
      pages |= PageSet{1} << page;
  return pages;
}

/// Pages that nodes yet to start need, or overwrite.
PageSet Search::wanted(const State &state, bool needed) const {
  PageSet pages = 0;
  for (std::size_t node = 0; node < steps_.size(); ++node)
    if ((state.started >> node & 1) == 0)
      pages |= needed ? steps_[node].needed : steps_[node].overwritten;
  return pages;
}

double Search::leastRestUs(const State &state) const {
  double rest = 0;
  for (std::size_t node = 0; node < steps_.size(); ++node) {
    if ((state.again >> node & 1) != 0)
      rest = std::max(rest, state.remainingUs[node]);
    if ((state.done >> node & 1) != 0)
      continue;
    const bool isRunning = (state.started >> node & 1) != 0;
    const double elapsed = isRunning ? steps_[node].costUs - state.remainingUs[node] : 0;
    rest = std::max(rest, steps_[node].tailUs - elapsed);
  }
  const auto [up, down] = bytesToMove(state);
  rest = std::max(rest, up / (machine_.upBytesPerSecond * 1e-6));
  return std::max(rest, down / (machine_.downBytesPerSecond * 1e-6));
}

/// What has to move before the end, whatever is done from here on.
std::pair<double, double> Search::bytesToMove(const State &state) const {
  const PageSet needed = wanted(state, true);
  PageSet rewritten = remade_;
  for (std::size_t node = 0; node < steps_.size(); ++node)
    if ((state.done >> node & 1) == 0)
      rewritten |= steps_[node].written;
  double up = state.remainingBytes[0];
  double down = state.remainingBytes[1];
  for (std::size_t page = 0; page < pages_.size(); ++page) {
    if ((rewritten >> page & 1) != 0 || state.moving[0] == page || state.moving[1] == page)
      continue;
    const bool resident = (state.residents >> page & 1) != 0;
    const bool mirrored = (state.mirrored >> page & 1) != 0;
    const bool isLive = pages_[page].liveIn && pages_[page].liveOut;
    if (state.places[page] == Place::Host && ((needed >> page & 1) != 0 || (isLive && resident)))
      up += pages_[page].bytes;
    if (state.places[page] == Place::Device && isLive && (!resident || mirrored))
      down += pages_[page].bytes;
  }
  return {up, down};
}

void Search::push(State state, double us) {
  const auto [known, isNew] = best_.try_emplace(keyOf(state), us);
  if (!isNew && known->second <= us + tolerance)
    return;
  known->second = us;
  queue_.push({us + leastRestUs(state), us, state});
}

/// Whether it would change anything.
bool Search::mayRepeat(const State &state, std::size_t node) const {
  if (((repeatable_ & state.done & ~state.again) >> node & 1) == 0)
    return false;
  for (std::size_t page = 0; page < pages_.size(); ++page)
    if ((steps_[node].written >> page & 1) != 0 && state.places[page] != Place::Device &&
        state.places[page] != Place::Both)
      return true;
  for (std::size_t atom = 0; atom < mostAtoms; ++atom)
    if ((steps_[node].writtenAtoms >> atom & 1) != 0 && state.versions[atom] != versionOf(node))
      return true;
  return false;
}

bool Search::findsOperands(const State &state, std::size_t node) const {
  const auto &operands = steps_[node].operands;
  return std::all_of(operands.begin(), operands.end(),
                     [&](const auto &operand) { return state.versions[operand.first] == operand.second; });
}

/// What a repetition conflicts with does not run beside it.
bool Search::racesWithRepetition(const State &state, std::size_t node) const {
  const bool isAgain = (state.started >> node & 1) != 0;
  if (repeatsAlone_ && (isAgain ? state.running() : state.again) != 0)
    return true;
  const Step &step = steps_[node];
  for (std::size_t other = 0; other < steps_.size(); ++other)
    if ((state.running() >> other & 1) != 0 && (isAgain || (state.again >> other & 1) != 0) &&
        ((step.writtenAtoms & steps_[other].touchedAtoms) | (step.touchedAtoms & steps_[other].writtenAtoms)) != 0)
      return true;
  return false;
}

void Search::tryNodes(const State &state, double us) {
  // Two nodes may use a page at once, and a node may read what a copy down reads; no other transfer has company.
  const auto bitOf = [](std::uint8_t page) { return page == noPage ? 0 : PageSet{1} << page; };
  const PageSet arriving = bitOf(state.moving[0]), leaving = bitOf(state.moving[1]);
  for (std::size_t node = 0; node < steps_.size(); ++node) {
    const Step &step = steps_[node];
    const bool isAgain = (state.started >> node & 1) != 0;
    if ((isAgain && !mayRepeat(state, node)) || (step.after & ~state.done) != 0 || (step.touched & arriving) != 0 ||
        (step.written & leaving) != 0 || !findsOperands(state, node) || racesWithRepetition(state, node))
      continue;
    State next = state;
    bool hasValues = true;
    for (std::size_t page = 0; page < pages_.size(); ++page) {
      if ((step.touched >> page & 1) == 0)
        continue;
      Place &place = next.places[page];
      if ((step.needed >> page & 1) != 0 && (place == Place::Host || place == Place::Lost))
        hasValues = false;
      // What is overwritten needs a frame only; its old value is of no use to anybody.
      if (!takesFrame(place))
        place = place == Place::NoneOff ? Place::NoneOn : Place::Device;
    }
    if (!hasValues || framesTaken(next) > frames_)
      continue;
    (isAgain ? next.again : next.started) |= NodeSet{1} << node;
    next.remainingUs[node] = step.costUs;
    if (step.costUs <= tolerance)
      complete(next, node);
    push(next, us);
  }
}

void Search::complete(State &state, std::size_t node) const {
  state.done |= NodeSet{1} << node;
  state.again &= ~(NodeSet{1} << node);
  state.remainingUs[node] = 0;
  for (std::size_t page = 0; page < pages_.size(); ++page)
    if ((steps_[node].written >> page & 1) != 0)
      state.places[page] = Place::Device;
  for (std::size_t atom = 0; atom < mostAtoms; ++atom)
    if ((steps_[node].writtenAtoms >> atom & 1) != 0)
      state.versions[atom] = versionOf(node);
}

void Search::tryMoves(const State &state, double us) {
  const PageSet busy = locked(state), changing = running(state, &Step::written);
  const PageSet needed = wanted(state, true);
  // NOLINTNEXTLINE(bugprone-too-small-loop-variable): State has a place for each
  for (std::uint8_t page = 0; page < pages_.size(); ++page) {
    const bool isOfUse = ((needed | inputs_) >> page & 1) != 0 || pages_[page].liveOut;
    const bool isIdle = (busy >> page & 1) == 0;
    State next = state;
    if (state.places[page] == Place::Host && state.moving[0] == noPage && isOfUse && isIdle &&
        framesTaken(state) < frames_) {
      next.moving[0] = page;
      next.remainingBytes[0] = pages_[page].bytes;
      push(next, us);
    }
    if (state.places[page] == Place::Device && state.moving[1] == noPage && isOfUse && (changing >> page & 1) == 0) {
      next.moving[1] = page;
      next.remainingBytes[1] = pages_[page].bytes;
      push(next, us);
    }
  }
}

void Search::tryDrops(const State &state, double us) {
  const PageSet busy = locked(state);
  const PageSet needed = wanted(state, true);
  const PageSet overwritten = wanted(state, false);
  for (std::size_t page = 0; page < pages_.size(); ++page) {
    if ((busy >> page & 1) != 0 || !takesFrame(state.places[page]))
      continue;
    const bool valueMatters = (needed >> page & 1) != 0 || pages_[page].liveOut;
    if (state.places[page] == Place::Device && valueMatters && ((overwritten | remade_) >> page & 1) == 0)
      continue; // would be lost for good
    State next = state;
    Place &place = next.places[page];
    place = place == Place::NoneOn ? Place::NoneOff : place == Place::Both ? Place::Host : Place::Lost;
    push(next, us);
  }
}

/// To the next end of a node or a transfer.
void Search::advance(State state, double us) {
  std::array<double, 2> rates{machine_.upBytesPerSecond * 1e-6, machine_.downBytesPerSecond * 1e-6};
  if (state.moving[0] != noPage && state.moving[1] != noPage) {
    const double share = std::min(1.0, machine_.bothBytesPerSecond * 1e-6 / (rates[0] + rates[1]));
    for (double &rate : rates)
      rate *= share;
  }
  double step = never;
  for (std::size_t node = 0; node < steps_.size(); ++node)
    if (state.running() >> node & 1)
      step = std::min(step, state.remainingUs[node]);
  for (std::size_t lane = 0; lane < 2; ++lane)
    if (state.moving[lane] != noPage)
      step = std::min(step, state.remainingBytes[lane] / rates[lane]);
  if (step == never)
    return;

  for (std::size_t node = 0; node < steps_.size(); ++node)
    if (state.running() >> node & 1) {
      state.remainingUs[node] -= step;
      if (state.remainingUs[node] <= tolerance)
        complete(state, node);
    }
  for (std::size_t lane = 0; lane < 2; ++lane) {
    if (state.moving[lane] == noPage)
      continue;
    state.remainingBytes[lane] -= step * rates[lane];
    if (state.remainingBytes[lane] > tolerance)
      continue;
    state.places[state.moving[lane]] = Place::Both;
    state.moving[lane] = noPage;
    state.remainingBytes[lane] = 0;
  }
  push(state, us + step);
}

std::optional<double> Search::run(std::size_t stateLimit) {
  if (!isPossible_)
    return std::nullopt;
  for (const State &state : starts())
    push(state, 0);
  while (!queue_.empty() && best_.size() <= stateLimit) {
    const Entry entry = queue_.top();
    queue_.pop();
    if (best_.at(keyOf(entry.state)) < entry.us - tolerance)
      continue; // reached earlier meanwhile
    if (isGoal(entry.state))
      return entry.us;
    tryNodes(entry.state, entry.us);
    tryMoves(entry.state, entry.us);
    tryDrops(entry.state, entry.us);
    advance(entry.state, entry.us);
  }
  return std::nullopt;
}

} // namespace

Machine slowMachine(Random &random) {
  Machine machine;
  machine.upBytesPerSecond = 4.0 / static_cast<double>(random.between(2, 8)) * 1e6;
  machine.downBytesPerSecond =
      random.chance(50) ? machine.upBytesPerSecond : 4.0 / static_cast<double>(random.between(2, 8)) * 1e6;
  const double sum = machine.upBytesPerSecond + machine.downBytesPerSecond;
  const double fastest = std::max(machine.upBytesPerSecond, machine.downBytesPerSecond);
  machine.bothBytesPerSecond = random.chance(50) ? sum : fastest + (sum - fastest) * 0.5;
  machine.copyOverheadUs = 0;
  return machine;
}

std::optional<double> optimumUs(const Description &captured, std::uint64_t budgetBytes, const Machine &machine,
                                BoundKind kind, bool repeatsInLine, std::size_t stateLimit) {
  return Search(captured, budgetBytes, machine, kind, repeatsInLine).run(stateLimit);
}

} // namespace pumpgraph::test
