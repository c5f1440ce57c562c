// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/TorchHistory.h"

#include <nlohmann/json.hpp>

#include <chrono>
#include <map>
#include <new>
#include <utility>

namespace pumpgraph::runtime {

/// From which `stacks` of pumpgraph_torch_recording on there are some.
static constexpr std::int32_t liveStacks = 1, allocationStacks = 2, allStacks = 3;

/// The lock of Python's interpreter, held, and functions that need it.
class TorchHistory::Interpreter {
public:
  explicit Interpreter(const pumpgraph_torch_recording &functions)
      : functions_(functions), state_(call<int>(functions.gil_state_ensure)) {}
  ~Interpreter() { call<void>(functions_.gil_state_release, state_); }
  Interpreter(const Interpreter &) = delete;
  Interpreter &operator=(const Interpreter &) = delete;

  /// With a reference to each code object.
  Frames frames() const {
    Frames frames;
    void *frame = call<void *>(functions_.eval_get_frame); // borrowed; the others are not
    for (bool isBorrowed = true; frame; isBorrowed = false) {
      frames.push_back({call<void *>(functions_.frame_get_code, frame), call<int>(functions_.frame_get_line, frame)});
      void *back = call<void *>(functions_.frame_get_back, frame);
      if (!isBorrowed)
        drop(frame);
      frame = back;
    }
    return frames;
  }
  void drop(void *object) const { call<void>(functions_.dec_ref, object); }

private:
  template <typename Result, typename... Arguments> static Result call(const void *function, Arguments... arguments) {
    return reinterpret_cast<Result (*)(Arguments...)>(const_cast<void *>(function))(arguments...);
  }

  const pumpgraph_torch_recording functions_;
  const int state_;
};

void TorchHistory::record(const pumpgraph_torch_recording &how) {
  if (how.keep_events == 0)
    stop();
  const std::lock_guard lock(mutex_);
  how_ = how;
  while (events_.size() > how_.most_events)
    events_.pop_front();
  isOn_.store(true, std::memory_order_release);
}

void TorchHistory::stop() {
  std::set<void *> codes;
  pumpgraph_torch_recording functions{};
  {
    const std::lock_guard lock(mutex_);
    isOn_.store(false, std::memory_order_release);
    ++recording_;
    events_.clear();
    live_.clear();
    codes = std::exchange(codes_, {});
    functions = how_;
  }
  if (codes.empty())
    return;
  const Interpreter interpreter(functions);
  for (void *code : codes)
    interpreter.drop(code);
}

TorchHistory::Stack TorchHistory::stackHere(std::int32_t leastStacks) {
  pumpgraph_torch_recording functions{};
  {
    const std::lock_guard lock(mutex_);
    functions = how_;
  }
  if (functions.stacks < leastStacks)
    return {};
  const Interpreter interpreter(functions);
  Frames frames = interpreter.frames();
  std::vector<void *> known; // and kept already
  Stack stack;
  {
    const std::lock_guard lock(mutex_);
    for (const Frame &frame : frames)
      if (!codes_.insert(frame.code).second)
        known.push_back(frame.code);
    stack.recording = recording_;
  }
  for (void *code : known)
    interpreter.drop(code);
  stack.frames = std::make_shared<const Frames>(std::move(frames));
  return stack;
}

void TorchHistory::add(Event event, const Stack &stack) {
  using namespace std::chrono;
  event.timeUs = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
  const std::lock_guard lock(mutex_);
  if (!isOn() || (stack.frames && stack.recording != recording_))
    return;
  if (event.action == Action::Allocated)
    live_[event.address] = {event.bytes, stack.frames};
  if (event.action == Action::Freed)
    if (const auto freed = live_.find(event.address); freed != live_.end()) {
      event.bytes = freed->second.bytes;
      live_.erase(freed);
    }
  if (how_.most_events == 0)
    return;
  if (event.action != Action::Allocated || how_.stacks >= allocationStacks)
    event.frames = stack.frames;
  if (events_.size() >= how_.most_events)
    events_.pop_front();
  events_.push_back(std::move(event));
}

void TorchHistory::allocated(const void *pointer, std::uint64_t bytes, pumpgraph_stream stream) noexcept {
  record({Action::Allocated, reinterpret_cast<std::uint64_t>(pointer), bytes, 0, stream, 0, nullptr}, liveStacks);
}

void TorchHistory::freed(const void *pointer, std::uint64_t bytes, pumpgraph_stream stream) noexcept {
  record({Action::Freed, reinterpret_cast<std::uint64_t>(pointer), bytes, 0, stream, 0, nullptr}, allStacks);
}

void TorchHistory::ranOut(std::uint64_t bytes, pumpgraph_stream stream, std::uint64_t leftBytes) noexcept {
  record({Action::RanOut, 0, bytes, leftBytes, stream, 0, nullptr}, allocationStacks);
}

void TorchHistory::record(Event event, std::int32_t leastStacks) noexcept {
  try {
    add(std::move(event), stackHere(leastStacks));
  } catch (const std::bad_alloc &) { // NOLINT(bugprone-empty-catch): then the history lacks this
  }
}

nlohmann::ordered_json TorchHistory::snapshot(const std::function<void(nlohmann::ordered_json &)> &addBlocks) {
  using Json = nlohmann::ordered_json;
  static constexpr const char *actions[] = {"alloc", "free", "oom"};
  const std::lock_guard lock(mutex_);
  std::map<Frames, std::size_t> numbers;
  Json stacks = Json::array();
  const auto numberOf = [&](const std::shared_ptr<const Frames> &frames) -> Json {
    if (!frames)
      return nullptr;
    const auto [known, isNew] = numbers.try_emplace(*frames, numbers.size());
    if (isNew) {
      Json stack = Json::array();
      for (const Frame &frame : *frames)
        stack.push_back({reinterpret_cast<std::uint64_t>(frame.code), frame.line});
      stacks.push_back(std::move(stack));
    }
    return known->second;
  };
  Json events = Json::array(), live = Json::array();
  for (const Event &event : events_) {
    Json json{{"action", actions[static_cast<std::size_t>(event.action)]},
              {"address", event.address},
              {"bytes", event.bytes},
              {"stream", reinterpret_cast<std::uint64_t>(event.stream)},
              {"time_us", event.timeUs},
              {"stack", numberOf(event.frames)}};
    if (event.action == Action::RanOut)
      json["left_bytes"] = event.leftBytes;
    events.push_back(std::move(json));
  }
  for (const auto &[address, allocation] : live_)
    live.push_back({address, numberOf(allocation.frames)});
  Json json{{"recording", isOn()}, {"events", std::move(events)}, {"live", std::move(live)}};
  json["stacks"] = std::move(stacks);
  addBlocks(json);
  return json;
}

} // namespace pumpgraph::runtime
