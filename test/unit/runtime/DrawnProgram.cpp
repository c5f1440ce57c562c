// SPDX-License-Identifier: Apache-2.0
#include "test/unit/runtime/DrawnProgram.h"

#include "test/unit/runtime/Program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>

namespace pumpgraph::runtime::test {
namespace {

using Word = std::uint64_t;

/// Buffers are words, so far apart that a page has several and a kernel is quick.
constexpr std::uint64_t stride = 64 << 10;

std::uint64_t wordsIn(std::uint64_t bytes) {
  return std::max<std::uint64_t>(bytes / stride, 1);
}

// ---- what kernels do, on anything with words
// -------------------------------------------------------------------------

enum class Kind : std::uint8_t {
  Mix,    ///< out = 3 a + b + constant, all of it
  Update, ///< out = 5 out + a + constant
  Sum,    ///< out[0] += the sum of a
  Count,  ///< out[0] += 1
  Put,    ///< out[b[0]] = 7 a[0] + b[0]: a row of a cache, at a position
  Copy,   ///< out = a, as a copy node
  Fill    ///< out = constant in every byte, as a memset node
};

/// Operands by number in the step: below `firstTemporary` the program's buffers, from there its own.
struct Operation {
  Kind kind = Kind::Mix;
  int out = 0, a = 0, b = 0;
  Word constant = 0;
};

constexpr int firstTemporary = 1000;

/// A position beyond the last row: what the device would assert.
int rowsBeyond = 0;

template <typename At> void run(const Operation &operation, At &&out, Word outs, At &&a, Word as, At &&b, Word bs) {
  switch (operation.kind) {
  case Kind::Mix:
    for (Word i = 0; i < outs; ++i)
      out(i) = 3 * a(i % as) + b(i % bs) + operation.constant;
    return;
  case Kind::Update:
    for (Word i = 0; i < outs; ++i)
      out(i) = 5 * out(i) + a(i % as) + operation.constant;
    return;
  case Kind::Sum:
    for (Word i = 0; i < as; ++i)
      out(0) += a(i);
    return;
  case Kind::Count:
    ++out(0);
    return;
  case Kind::Put:
    if (b(0) < outs)
      out(b(0)) = 7 * a(0) + b(0);
    else
      ++rowsBeyond;
    return;
  case Kind::Copy:
    for (Word i = 0; i < outs; ++i)
      out(i) = a(i);
    return;
  case Kind::Fill:
    for (Word i = 0; i < outs; ++i)
      out(i) = operation.constant * 0x0101010101010101ULL;
    return;
  }
}

struct Words {
  char *base;
  Word &operator()(Word index) const { return *reinterpret_cast<Word *>(base + index * stride); }
};

FakeKernel &kernelOf(Kind kind) {
  static const std::array<const char *, 5> names = {"mix", "update", "sum", "count", "put"};
  static std::array<std::unique_ptr<FakeKernel>, 5> kernels;
  std::unique_ptr<FakeKernel> &kernel = kernels[static_cast<std::size_t>(kind)];
  if (!kernel)
    kernel = std::make_unique<FakeKernel>(FakeKernel{
        names[static_cast<std::size_t>(kind)],
        {8, 8, 8, 8, 8, 8, 8},
        [kind](const FakeKernel::Arguments &arguments) {
          const auto words = [&](std::size_t at) { return Words{argument<char *>(arguments, at)}; };
          const auto count = [&](std::size_t at) { return argument<Word>(arguments, at); };
          run<Words>({.kind = kind, .constant = count(6)}, words(0), count(1), words(2), count(3), words(4), count(5));
        },
        0});
  return *kernel;
}

// ---- programs
// --------------------------------------------------------------------------------------------------------

enum class Place : std::uint8_t { Private, Present, Exclusive };

/// A buffer of the program: where it is for the session, and its value in the plain run.
struct Buffer {
  std::string name;
  std::uint64_t bytes = 0;
  Place place = Place::Exclusive;
  char *address = nullptr;
  std::vector<Word> value;
};

struct Temporary {
  std::uint64_t bytes = 0;
  std::optional<std::size_t> freedAfter; ///< the operation; nothing: it is a result, and stays
};

struct DrawnStep {
  std::vector<Operation> operations;
  std::vector<Temporary> temporaries;
  bool isChain = true; ///< one node behind the other, as on a stream; else as the operands ask for
  Step *step = nullptr;
  std::map<int, std::size_t> results; ///< temporary -> the program's buffer
};

/// Digits of a seed's own: the standard library's distributions differ from one to the other.
class Dice {
public:
  explicit Dice(std::uint32_t seed) : engine_(seed) {}
  /// From 0 to `below`, without it.
  std::uint32_t operator()(std::uint32_t below) { return static_cast<std::uint32_t>(engine_() % below); }
  std::size_t index(std::size_t below) { return (*this)(static_cast<std::uint32_t>(below)); }
  bool oneIn(std::uint32_t count) { return (*this)(count) == 0; }

private:
  std::mt19937 engine_;
};

class DrawnProgram {
public:
  DrawnProgram(std::uint32_t seed, const DrawOptions &options, const char *compilerLibrary)
      : seed_(seed), options_(options), compilerLibrary_(compilerLibrary), dice_(seed),
        fake_({.copyMilliseconds = dice_(4) * 0.1, .seed = seed + 1}) {}

  Outcome run();

private:
  using Values = std::vector<std::vector<Word>>;

  // Drawing.
  void drawBuffers();
  DrawnStep drawStep();
  int drawOperand(const std::vector<int> &live, bool large);
  std::uint64_t bytesOf(const DrawnStep &step, int operand) const;

  // The session.
  bool open();
  bool capture(DrawnStep &step);
  CUgraph record(DrawnStep &step);
  std::vector<char *> recordNodes(const DrawnStep &step, CUgraph graph);
  void *allocate(std::uint64_t bytes, const std::string &name);

  // What a caller does. Each returns false where the program can go on no more.
  bool act();
  bool replay();
  bool access(bool writes);
  bool takeBack();
  bool runEagerly();
  bool allocateOutside();
  bool failToAllocate();
  bool runPlainGraph();
  bool captureAgain();
  bool destroy();
  bool askForReplays();
  bool tellSomething();
  void injectFailure();
  bool valuesAreGone() const;

  // The plain run.
  void runPlainly(DrawnStep &step);

  /// Compares buffers with their values in the plain run, as far as they can be read.
  void compare(const std::string &when, bool all);
  /// Nothing: equal. `unreadable`: an error kept it from being read.
  std::optional<std::string> difference(const Buffer &buffer, bool &unreadable);
  Values values() const;
  void setValues(const Values &values);

  /// Notes an error; it has to say something.
  template <typename Result> bool succeeded(const Result &result, const std::string &what) {
    if (result)
      return true;
    const std::string message = messageOf(result);
    outcome_.refusals.push_back(what + ": " + message);
    if (message.size() < 12)
      wrong("an error that says nothing: \"" + message + "\"");
    return false;
  }
  bool mayFail() const { return hasFailed_ || failing_; }
  void wrong(const std::string &what) {
    if (outcome_.wrong.empty())
      outcome_.wrong = what;
  }
  void note(const std::string &what) { outcome_.trace.push_back(what); }

  std::uint32_t seed_;
  DrawOptions options_;
  const char *compilerLibrary_;
  Dice dice_;
  FakeDriver fake_;
  std::unique_ptr<Session> session_;
  std::vector<Buffer> buffers_;
  std::size_t counter_ = 0, cache_ = 0; ///< of buffers_; a cache has as many rows as there are replays
  std::vector<std::unique_ptr<DrawnStep>> steps_;
  std::vector<std::pair<char *, std::uint64_t>> outside_; ///< allocations of nobody's step, and their words' value
  CUgraphExec plainGraph_ = nullptr;
  char *plainTarget_ = nullptr;
  Word plainValue_ = 0;
  std::optional<std::string> failing_; ///< the driver function that is to fail
  bool hasFailed_ = false;             ///< a driver call has, at any time
  bool observes_ = false;              ///< will, once
  Outcome outcome_;
};

constexpr int actions = 26;

// ---- drawing
// ---------------------------------------------------------------------------------------------------------

void DrawnProgram::drawBuffers() {
  const auto add = [&](std::string name, std::uint64_t bytes, Place place) {
    Buffer &buffer = buffers_.emplace_back();
    buffer.name = std::move(name);
    buffer.bytes = bytes;
    buffer.place = place;
    for (Word i = 0; i < wordsIn(bytes); ++i)
      buffer.value.push_back(buffers_.size() * 1000 + i);
  };
  const std::size_t large = 3 + dice_.index(4);
  for (std::size_t i = 0; i < large; ++i)
    add(fmt::format("weight{}", i), (1 + dice_(2)) * pageBytes, dice_.oneIn(5) ? Place::Exclusive : Place::Private);
  add("input", (1 + dice_(2)) * pageBytes, dice_.oneIn(2) ? Place::Present : Place::Exclusive);
  add("result", sizeof(Word), Place::Exclusive);
  counter_ = buffers_.size();
  add("counter", sizeof(Word), dice_.oneIn(3) ? Place::Private : Place::Exclusive);
  buffers_.back().value = {0};
  cache_ = buffers_.size();
  add("cache", (8 + dice_(16)) * stride, dice_.oneIn(3) ? Place::Exclusive : Place::Private);
}

std::uint64_t DrawnProgram::bytesOf(const DrawnStep &step, int operand) const {
  return operand >= firstTemporary ? step.temporaries[static_cast<std::size_t>(operand - firstTemporary)].bytes
                                   : buffers_[static_cast<std::size_t>(operand)].bytes;
}

/// One of the live temporaries, rather, or of the program's buffers.
int DrawnProgram::drawOperand(const std::vector<int> &live, bool large) {
  if (!live.empty() && !dice_.oneIn(3))
    return live[dice_.index(live.size())];
  const std::size_t count = large ? counter_ - 1 : cache_ + 1; // weights and input come first
  return static_cast<int>(dice_.index(count));
}

DrawnStep DrawnProgram::drawStep() {
  DrawnStep step;
  step.isChain = !dice_.oneIn(4);
  const bool counts = dice_.oneIn(2), puts = counts && dice_.oneIn(2);
  std::vector<int> live;
  const auto add = [&](const Operation &operation) { step.operations.push_back(operation); };
  const auto newTemporary = [&](std::uint64_t bytes) {
    step.temporaries.push_back({bytes, std::nullopt});
    live.push_back(firstTemporary + static_cast<int>(step.temporaries.size()) - 1);
    return live.back();
  };
  const std::size_t length = 6 + dice_.index(12);
  for (std::size_t i = 0; i < length; ++i) {
    const Word constant = dice_(100);
    const int a = drawOperand(live, false), b = drawOperand(live, false);
    switch (dice_(10)) {
    case 0:
    case 1:
    case 2:
    case 3:
      add({Kind::Mix, newTemporary((1 + dice_(3)) * pageBytes), a, b, constant});
      break;
    case 4:
    case 5:
    case 6: {
      const int target = drawOperand(live, true);
      add({Kind::Update, target, a == target ? static_cast<int>(counter_) : a, b, constant});
      break;
    }
    case 7:
      if (a != static_cast<int>(counter_) - 1)
        add({Kind::Sum, static_cast<int>(counter_) - 1, a, b, 0});
      break;
    case 8: {
      const int source = drawOperand(live, true);
      add({Kind::Copy, newTemporary(bytesOf(step, source)), source, source, 0});
      break;
    }
    default:
      add({Kind::Fill, newTemporary(pageBytes), 0, 0, 1 + dice_(200)});
    }
    // As on a stream, where memory goes from one to the next.
    if (step.isChain && live.size() > 1 && dice_.oneIn(2)) {
      const std::size_t at = dice_.index(live.size());
      step.temporaries[static_cast<std::size_t>(live[at] - firstTemporary)].freedAfter = step.operations.size() - 1;
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  if (puts)
    add({Kind::Put, static_cast<int>(cache_), drawOperand(live, true), static_cast<int>(counter_), 0});
  if (counts)
    add({Kind::Count, static_cast<int>(counter_), 0, 0, 0});
  // A result is filled first: validation compares all of its bytes, and kernels write few.
  std::vector<int> filled;
  for (const Operation &operation : step.operations)
    if (operation.kind == Kind::Fill && std::find(live.begin(), live.end(), operation.out) != live.end())
      filled.push_back(operation.out);
  const int result = filled.empty() ? 0 : filled[0];
  for (const int temporary : live)
    if (temporary != result)
      step.temporaries[static_cast<std::size_t>(temporary - firstTemporary)].freedAfter = step.operations.size() - 1;
  return step;
}

// ---- the plain run
// ---------------------------------------------------------------------------------------------------

void DrawnProgram::runPlainly(DrawnStep &step) {
  std::vector<std::vector<Word>> temporaries;
  for (const Temporary &temporary : step.temporaries)
    temporaries.emplace_back(wordsIn(temporary.bytes));
  const auto valueOf = [&](int operand) -> std::vector<Word> & {
    return operand >= firstTemporary ? temporaries[static_cast<std::size_t>(operand - firstTemporary)]
                                     : buffers_[static_cast<std::size_t>(operand)].value;
  };
  for (const Operation &operation : step.operations) {
    std::vector<Word> &out = valueOf(operation.out), &a = valueOf(operation.a), &b = valueOf(operation.b);
    const auto at = [](std::vector<Word> &words) {
      return std::function<Word &(Word)>([&words](Word index) -> Word & { return words[index]; });
    };
    test::run<std::function<Word &(Word)>>(operation, at(out), out.size(), at(a), a.size(), at(b), b.size());
  }
  for (const auto &[temporary, buffer] : step.results)
    buffers_[buffer].value = temporaries[static_cast<std::size_t>(temporary)];
}

// ---- the session
// -----------------------------------------------------------------------------------------------------

void *DrawnProgram::allocate(std::uint64_t bytes, const std::string &name) {
  const Expected<void *> pointer = session_->allocate(bytes, nullptr, name);
  return succeeded(pointer, "allocating " + name) ? *pointer : nullptr;
}

bool DrawnProgram::open() {
  std::uint64_t pages = 0, stay = 0;
  for (const Buffer &buffer : buffers_) {
    pages += (buffer.bytes + pageBytes - 1) / pageBytes;
    stay += buffer.place == Place::Private ? 0 : (buffer.bytes + pageBytes - 1) / pageBytes;
  }
  std::uint64_t temporaries = 0;
  for (const std::unique_ptr<DrawnStep> &step : steps_) {
    std::uint64_t own = 0;
    for (const Temporary &temporary : step->temporaries)
      own += temporary.bytes / pageBytes;
    temporaries = std::max(temporaries, own);
  }
  const std::uint64_t budget = stay + 2 + (pages - stay + temporaries) * (15 + dice_(50)) / 100;
  note(fmt::format("a budget of {} pages for {} + {}", budget, pages, temporaries));
  Expected<std::unique_ptr<Session>> made = openSession(fake_, budget, compilerLibrary_);
  if (!succeeded(made, "opening a session"))
    return false;
  session_ = std::move(*made);
  for (Buffer &buffer : buffers_) {
    buffer.address = static_cast<char *>(allocate(buffer.bytes, buffer.name));
    if (!buffer.address)
      return false;
    for (Word i = 0; i < buffer.value.size(); ++i)
      Words{buffer.address}(i) = buffer.value[i];
    if (buffer.place == Place::Private && !succeeded(session_->declarePrivate(buffer.address), "declaring"))
      return false;
    if (buffer.place == Place::Present && !succeeded(session_->declarePresent(buffer.address), "declaring"))
      return false;
  }
  return true;
}

/// Adds the nodes to a graph and gives the temporaries' addresses.
std::vector<char *> DrawnProgram::recordNodes(const DrawnStep &step, CUgraph graph) {
  std::vector<char *> temporaries(step.temporaries.size());
  std::map<int, CUgraphNode> lastWriter;
  std::map<int, std::vector<CUgraphNode>> readers;
  CUgraphNode last = nullptr;
  const auto allocateOnce = [&](int operand) {
    if (operand < firstTemporary)
      return buffers_[static_cast<std::size_t>(operand)].address;
    char *&address = temporaries[static_cast<std::size_t>(operand - firstTemporary)];
    if (!address)
      address = static_cast<char *>(allocate(bytesOf(step, operand), fmt::format("temporary{}", operand)));
    return address;
  };
  for (std::size_t index = 0; index < step.operations.size(); ++index) {
    const Operation &operation = step.operations[index];
    char *out = allocateOnce(operation.out), *a = allocateOnce(operation.a), *b = allocateOnce(operation.b);
    if (!out || !a || !b)
      return {};
    std::set<CUgraphNode> after;
    if (step.isChain) {
      if (last)
        after.insert(last);
    } else {
      for (const int operand : {operation.out, operation.a, operation.b})
        if (lastWriter.contains(operand))
          after.insert(lastWriter[operand]);
      after.insert(readers[operation.out].begin(), readers[operation.out].end());
    }
    CUgraphNode node = nullptr;
    if (operation.kind == Kind::Copy)
      node = fake_.addCopy(graph, {}, out, a, bytesOf(step, operation.out));
    else if (operation.kind == Kind::Fill)
      node =
          fake_.addFill(graph, {}, out, static_cast<unsigned char>(operation.constant), bytesOf(step, operation.out));
    else
      node = fake_.addKernel(graph, {}, kernelOf(operation.kind),
                             {test::bytesOf(out), test::bytesOf(wordsIn(bytesOf(step, operation.out))),
                              test::bytesOf(a), test::bytesOf(wordsIn(bytesOf(step, operation.a))), test::bytesOf(b),
                              test::bytesOf(wordsIn(bytesOf(step, operation.b))), test::bytesOf(operation.constant)});
    for (CUgraphNode before : after)
      if (!succeeded(fake_.table()->graphAddDependencies(graph, &before, &node, nullptr, 1), "adding an edge"))
        return {};
    last = node;
    lastWriter[operation.out] = node;
    readers[operation.out].clear();
    for (const int operand : {operation.a, operation.b})
      readers[operand].push_back(node);
    for (std::size_t i = 0; i < step.temporaries.size(); ++i)
      if (step.temporaries[i].freedAfter == index && temporaries[i])
        succeeded(session_->free(temporaries[i], nullptr), "freeing a temporary");
  }
  return temporaries;
}

bool DrawnProgram::capture(DrawnStep &step) {
  if (!succeeded(session_->captureBegin(), "beginning a capture"))
    return false;
  CUgraph graph = fake_.createGraph();
  const std::vector<char *> temporaries = recordNodes(step, graph);
  if (!succeeded(session_->captureEnd(), "ending a capture") || temporaries.empty() != step.temporaries.empty())
    return false;
  AdoptOptions options;
  options.name = fmt::format("step{}", steps_.size());
  options.keepFirstPlan = !dice_.oneIn(3) || !options_.ownReplays;
  options.leaveAsCaptured = dice_.oneIn(12);
  options.calibrate = dice_.oneIn(8);
  options.boundary = static_cast<BoundaryChoice>(dice_(3));
  options.ownsGraph = true;
  const Expected<Step *> adopted = session_->adopt(graph, options);
  if (!succeeded(adopted, "adopting a step")) {
    for (std::size_t i = 0; i < temporaries.size(); ++i)
      if (!step.temporaries[i].freedAfter && temporaries[i])
        succeeded(session_->free(temporaries[i], nullptr), "freeing the result of a step that was refused");
    return false;
  }
  step.step = *adopted;
  for (std::size_t i = 0; i < temporaries.size(); ++i)
    if (!step.temporaries[i].freedAfter && temporaries[i]) {
      Buffer &result = buffers_.emplace_back();
      result.name = options.name + "'s result";
      result.bytes = step.temporaries[i].bytes;
      result.address = temporaries[i];
      step.results[static_cast<int>(i)] = buffers_.size() - 1;
    }
  return true;
}

// ---- what can be compared
// --------------------------------------------------------------------------------------------

DrawnProgram::Values DrawnProgram::values() const {
  Values values;
  for (const Buffer &buffer : buffers_)
    values.push_back(buffer.value);
  return values;
}

void DrawnProgram::setValues(const Values &values) {
  for (std::size_t i = 0; i < values.size(); ++i)
    buffers_[i].value = values[i];
}

std::optional<std::string> DrawnProgram::difference(const Buffer &buffer, bool &unreadable) {
  if (buffer.value.empty())
    return std::nullopt; // a result that no replay has made yet
  // After a failure a mapping says of any buffer whether its value is lost.
  const bool mapsIt = buffer.place == Place::Private || hasFailed_;
  if (mapsIt && !succeeded(session_->map(buffer.address), "mapping " + buffer.name)) {
    unreadable = true;
    return std::nullopt;
  }
  std::optional<std::string> found;
  if (!fake_.isMapped(buffer.address)) {
    unreadable = true;
    if (!mayFail())
      found = fmt::format("{} has no memory", buffer.name);
  } else {
    for (Word i = 0; i < buffer.value.size() && !found; ++i)
      if (const Word value = Words{buffer.address}(i); value != buffer.value[i])
        found = fmt::format("{}[{}] is {} instead of {}", buffer.name, i, value, buffer.value[i]);
  }
  if (mapsIt && !succeeded(session_->unmap(buffer.address), "unmapping " + buffer.name) && !mayFail())
    found = "what was mapped cannot be unmapped";
  return found;
}

void DrawnProgram::compare(const std::string &when, bool all) {
  for (const Buffer &buffer : buffers_) {
    bool unreadable = false;
    if (all || buffer.place != Place::Private)
      if (const std::optional<std::string> found = difference(buffer, unreadable))
        wrong(fmt::format("{}: {}", when, *found));
  }
  for (const auto &[address, words] : outside_)
    for (Word i = 0; i < words >> 32; ++i)
      if (fake_.isMapped(address) && Words{address}(i) != (words & 0xffffffff))
        wrong(fmt::format("{}: memory of no step has changed", when));
  if (plainTarget_ && fake_.isMapped(plainTarget_) && *reinterpret_cast<Word *>(plainTarget_) != plainValue_)
    wrong(fmt::format("{}: memory of a plain graph has changed", when));
  if (rowsBeyond != 0)
    wrong(fmt::format("{}: {} runs of a step wrote beyond the last row of the cache", when, rowsBeyond));
}

// ---- what a caller does
// ----------------------------------------------------------------------------------------------

bool DrawnProgram::replay() {
  if (steps_.empty())
    return false;
  const std::size_t index = dice_.index(steps_.size());
  DrawnStep &step = *steps_[index];
  note(fmt::format("replay step {}", index));
  if (buffers_[counter_].value[0] + 1 >= buffers_[cache_].value.size())
    return false; // the cache is full
  const Values before = values();
  runPlainly(step);
  if (succeeded(step.step->replay(nullptr), "replaying")) {
    ++outcome_.replays;
    outcome_.moved += step.step->movesAnything() ? 1 : 0;
    return true;
  }
  // It may have run all the same: then all is as after a replay.
  const Values after = values();
  setValues(before);
  bool unreadable = false, isAfter = false;
  for (const Buffer &buffer : buffers_)
    if (difference(buffer, unreadable))
      isAfter = true;
  if (isAfter)
    setValues(after);
  return true;
}

bool DrawnProgram::access(bool writes) {
  Buffer &buffer = buffers_[dice_.index(buffers_.size())];
  if (buffer.value.empty() || &buffer == &buffers_[counter_])
    return true;
  note((writes ? "write " : "read ") + buffer.name);
  bool unreadable = false;
  if (const std::optional<std::string> found = difference(buffer, unreadable))
    wrong("reading: " + *found);
  if (!writes || unreadable)
    return true;
  const bool isPrivate = buffer.place == Place::Private;
  if (isPrivate && !succeeded(session_->map(buffer.address), "mapping " + buffer.name))
    return true;
  const std::size_t at = dice_.index(buffer.value.size());
  buffer.value[at] = Words{buffer.address}(at) = dice_(1000000);
  return !isPrivate || succeeded(session_->unmap(buffer.address), "unmapping " + buffer.name);
}

bool DrawnProgram::takeBack() {
  note("take the plan back");
  if (!succeeded(session_->takeBack(), "taking the plan back"))
    return true;
  for (const Buffer &buffer : buffers_)
    for (Word i = 0; i < buffer.value.size(); ++i)
      if (fake_.isMapped(buffer.address) ? Words{buffer.address}(i) != buffer.value[i] : !mayFail()) {
        wrong(fmt::format("after taking the plan back: {}[{}]", buffer.name, i));
        return true;
      }
  return true;
}

/// Operators of which none is captured: their operands are paged.
bool DrawnProgram::runEagerly() {
  note("run operators eagerly");
  if (!succeeded(session_->takeBack(), "taking the plan back") || mayFail())
    return true;
  session_->beginPaging(nullptr);
  std::vector<std::pair<char *, std::uint64_t>> results; // and their words
  for (std::size_t operators = 4 + dice_.index(8); operators > 0; --operators) {
    Buffer &operand = buffers_[dice_.index(counter_)];
    const std::uint64_t bytes = (1 + dice_(3)) * pageBytes;
    std::vector<void *> operands{operand.address};
    if (!results.empty())
      operands.push_back(results[dice_.index(results.size())].first);
    succeeded(session_->pageIn(operands), "paging operands in");
    char *result = static_cast<char *>(allocate(bytes, "result of an operator"));
    if (!result)
      break;
    for (Word i = 0; i < wordsIn(bytes); ++i)
      Words{result}(i) = operand.value[i % operand.value.size()];
    results.emplace_back(result, wordsIn(bytes));
    operand.value[0] = Words{operand.address}(0) = dice_(1000000);
    if (results.size() > 1 && dice_.oneIn(3)) {
      succeeded(session_->free(results[0].first, nullptr), "freeing");
      results.erase(results.begin());
    }
    for (const Buffer &buffer : buffers_)
      for (Word i = 0; i < buffer.value.size(); ++i)
        if (Words{buffer.address}(i) != buffer.value[i])
          wrong(fmt::format("beside eager operators: {}[{}]", buffer.name, i));
  }
  outcome_.pagedBytes += session_->endPaging();
  for (const auto &[result, words] : results)
    succeeded(session_->free(result, nullptr), "freeing");
  return true;
}

bool DrawnProgram::allocateOutside() {
  if (outside_.size() > 2) {
    note("free what no step uses");
    const std::size_t at = dice_.index(outside_.size());
    succeeded(session_->free(outside_[at].first, nullptr), "freeing");
    outside_.erase(outside_.begin() + static_cast<std::ptrdiff_t>(at));
    return true;
  }
  const std::uint64_t bytes = dice_.oneIn(3) ? 4096 : (1 + dice_(3)) * pageBytes;
  note(fmt::format("allocate {} bytes", bytes));
  char *address = static_cast<char *>(allocate(bytes, "outside"));
  if (!address)
    return true;
  const Word value = dice_(1000);
  for (Word i = 0; i < wordsIn(bytes); ++i)
    Words{address}(i) = value;
  outside_.emplace_back(address, wordsIn(bytes) << 32 | value);
  return true;
}

bool DrawnProgram::failToAllocate() {
  note("allocate a pebibyte");
  if (session_->allocate(std::uint64_t{1} << 50, nullptr, "huge"))
    wrong("a pebibyte was allocated");
  return true;
}

bool DrawnProgram::runPlainGraph() {
  const Driver &driver = *fake_.table();
  if (!plainGraph_) {
    note("a graph of the program's own");
    plainTarget_ = static_cast<char *>(allocate(pageBytes, "of a plain graph"));
    if (!plainTarget_)
      return true;
    *reinterpret_cast<Word *>(plainTarget_) = plainValue_ = 0;
    CUgraph graph = fake_.createGraph();
    const Word one = 1, none = 0;
    fake_.addKernel(graph, {}, kernelOf(Kind::Count),
                    {test::bytesOf(plainTarget_), test::bytesOf(one), test::bytesOf(plainTarget_), test::bytesOf(one),
                     test::bytesOf(plainTarget_), test::bytesOf(one), test::bytesOf(none)});
    const Status made = driver.graphInstantiate(&plainGraph_, graph, 0);
    fake_.destroyGraph(graph);
    if (!succeeded(made, "instantiating a graph of the program's own")) {
      plainGraph_ = nullptr;
      return true;
    }
  }
  note("replay the graph of the program's own");
  if (fake_.isMapped(plainTarget_) && succeeded(driver.graphLaunch(plainGraph_, nullptr), "launching it"))
    ++plainValue_;
  return true;
}

bool DrawnProgram::captureAgain() {
  if (steps_.size() > 3)
    return true;
  note("capture another step");
  auto step = std::make_unique<DrawnStep>(drawStep());
  if (capture(*step))
    steps_.push_back(std::move(step));
  return true;
}

bool DrawnProgram::destroy() {
  if (steps_.size() < 2)
    return true;
  const std::size_t at = dice_.index(steps_.size());
  note(fmt::format("destroy step {}", at));
  session_->destroy(steps_[at]->step);
  steps_.erase(steps_.begin() + static_cast<std::ptrdiff_t>(at));
  return true;
}

bool DrawnProgram::askForReplays() {
  if (!options_.ownReplays)
    return true;
  Step &step = *steps_[dice_.index(steps_.size())]->step;
  switch (dice_(4)) {
  case 0: {
    note("plan again");
    succeeded(step.replan(), "planning again");
    return true;
  }
  case 1: {
    note("validate");
    const Expected<Validation> validation = step.validate();
    if (succeeded(validation, "validating") && validation->differentBuffers != 0)
      wrong("validation: " + validation->firstDifference);
    if (!validation && validation.error().status == PUMPGRAPH_MISMATCH)
      wrong("validation: " + validation.error().message);
    return true;
  }
  case 2:
    note("measure");
    succeeded(step.measure(2), "measuring");
    return true;
  default:
    if (!observes_) // which takes as long as many replays
      return true;
    note("observe");
    observes_ = false;
    succeeded(step.observe(), "observing");
    return true;
  }
}

bool DrawnProgram::tellSomething() {
  note("report, save, statistics");
  Step &step = *steps_[dice_.index(steps_.size())]->step;
  if (step.report().empty())
    wrong("an empty report");
  succeeded(step.save(::testing::TempDir() + "/drawn-program.mlir"), "saving");
  const MemoryStatistics statistics = session_->statistics();
  if (statistics.deviceBytes > statistics.budgetBytes + pageBytes) // one frame stands in during captures
    wrong(fmt::format("{} bytes on the device, with a budget of {}", statistics.deviceBytes, statistics.budgetBytes));
  return true;
}

void DrawnProgram::injectFailure() {
  static const std::array<const char *, 12> symbols = {
      "cuMemCreate",       "cuMemMap",          "cuMemUnmap",        "cuMemSetAccess",
      "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuMemcpyDtoDAsync", "cuStreamSynchronize",
      "cuCtxSynchronize",  "cuGraphLaunch",     "cuEventRecord",     "cuGraphInstantiateWithFlags"};
  failing_ = symbols[dice_.index(symbols.size())];
  const int nth = 1 + static_cast<int>(dice_(12));
  note(fmt::format("call {} of {} is to fail", nth, *failing_));
  fake_.failCall(*failing_, nth, CUDA_ERROR_UNKNOWN);
}

/// Whether a call has said that it could not put back what it changed.
bool DrawnProgram::valuesAreGone() const {
  return std::any_of(outcome_.refusals.begin(), outcome_.refusals.end(), [](const std::string &text) {
    return text.find("restoring the values") != std::string::npos ||
           text.find("restoring the state") != std::string::npos;
  });
}

bool DrawnProgram::act() {
  if (options_.failures && dice_.oneIn(6))
    injectFailure();
  const std::uint32_t action = dice_(options_.ownReplays ? 18 : 15);
  bool goesOn = true;
  if (action < 7)
    goesOn = replay();
  else if (action < 9)
    goesOn = access(action == 7);
  else if (action == 9)
    goesOn = dice_.oneIn(2) ? runEagerly() : takeBack();
  else if (action == 10)
    goesOn = allocateOutside();
  else if (action == 11)
    goesOn = dice_.oneIn(2) ? failToAllocate() : succeeded(session_->emptyCache(), "emptying the cache") || true;
  else if (action == 12)
    goesOn = runPlainGraph();
  else if (action == 13)
    goesOn = dice_.oneIn(2) ? captureAgain() : destroy();
  else if (action == 14)
    goesOn = tellSomething();
  else
    goesOn = askForReplays();
  if (failing_) {
    hasFailed_ = fake_.stopFailing(*failing_) || hasFailed_;
    failing_.reset();
  }
  return goesOn;
}

Outcome DrawnProgram::run() {
  rowsBeyond = 0;
  observes_ = dice_.oneIn(6);
  for (int kind = 0; kind <= static_cast<int>(Kind::Put); ++kind) // so that plans made again are others
    kernelOf(static_cast<Kind>(kind)).milliseconds = dice_(4) * 0.2;
  drawBuffers();
  const std::size_t count = 1 + dice_.index(3);
  for (std::size_t i = 0; i < count; ++i)
    steps_.push_back(std::make_unique<DrawnStep>(drawStep()));
  if (open()) {
    std::vector<std::unique_ptr<DrawnStep>> drawn = std::move(steps_);
    steps_.clear();
    for (std::unique_ptr<DrawnStep> &step : drawn)
      if (capture(*step))
        steps_.push_back(std::move(step));
    compare("after the captures", true);
    for (int i = 0; i < actions && !steps_.empty() && outcome_.wrong.empty(); ++i) {
      const bool goesOn = act();
      if (valuesAreGone())
        break;
      compare(fmt::format("after \"{}\" (action {})", outcome_.trace.back(), i), dice_.oneIn(2));
      if (!goesOn)
        break;
    }
    if (outcome_.wrong.empty() && !valuesAreGone())
      compare("at the end", true);
  }
  if (plainGraph_)
    fake_.table()->graphExecDestroy.raw(plainGraph_);
  session_.reset();
  return std::move(outcome_);
}

} // namespace

Outcome runDrawnProgram(std::uint32_t seed, const DrawOptions &options, const char *compilerLibrary) {
  return DrawnProgram(seed, options, compilerLibrary).run();
}

} // namespace pumpgraph::runtime::test
