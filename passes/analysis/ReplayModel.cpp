// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/ReplayModel.h"

#include "passes/analysis/LinkFlows.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <utility>

namespace pumpgraph {

TaskGraph::TaskGraph(std::size_t taskCount, std::span<const Dependency> dependencies)
    : begin_(taskCount + 1, 0), successors_(dependencies.size()), inDegrees_(taskCount, 0) {
  for (const Dependency &dependency : dependencies) {
    ++begin_[dependency.before + 1];
    ++inDegrees_[dependency.after];
  }
  for (std::size_t t = 0; t < taskCount; ++t)
    begin_[t + 1] += begin_[t];
  std::vector<std::uint32_t> next(begin_.begin(), begin_.end() - 1);
  for (const Dependency &dependency : dependencies)
    successors_[next[dependency.before]++] = dependency.after;
}

namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// One copy at a time. It may have to wait for kernels first; then takes its overhead, in which it needs no bandwidth,
/// then moves its bytes.
class Copier {
public:
  bool isIdle() const { return phase_ == Phase::Idle; }
  bool isMoving() const { return phase_ == Phase::Moving; }
  std::uint32_t task() const { return task_; }

  /// `waits`: once for a kernel with hosted operands, and its overhead passes no slower beside others.
  void start(std::uint32_t task, double overheadUs, std::uint64_t bytes, bool waits) {
    task_ = task;
    phase_ = Phase::Overhead;
    waits_ = waits;
    hasWaited_ = false;
    left_ = overheadUs;
    bytes_ = static_cast<double>(bytes);
  }
  /// Kernels with hosted operands run, the last of which has this place in the order of starts.
  void waitFor(std::size_t kernel) {
    if (phase_ != Phase::Overhead || !waits_ || hasWaited_)
      return;
    phase_ = Phase::Waiting;
    hasWaited_ = true;
    kernel_ = kernel;
  }
  /// All of them with a place before this one have ended.
  void goOnBefore(std::size_t kernel) {
    if (phase_ == Phase::Waiting && kernel_ < kernel)
      phase_ = Phase::Overhead;
  }
  /// Time until the overhead is over, of which so much passes in a microsecond, or the last byte has moved; at a rate
  /// of 0 it only waits, unless it has moved already.
  double untilChangeUs(double bytesPerUs, double pace) const {
    switch (phase_) {
    case Phase::Idle:
    case Phase::Waiting:
      return never;
    case Phase::Overhead:
      return left_ / (waits_ ? 1 : pace);
    case Phase::Moving:
      return left_ > 0 ? left_ / bytesPerUs : 0;
    }
    return never;
  }
  void advance(double us, double bytesPerUs, double pace) {
    if (phase_ != Phase::Waiting)
      left_ = std::max(0.0, left_ - us * (isMoving() ? bytesPerUs : waits_ ? 1 : pace));
  }
  /// Enters the next phase. Returns true when the copy has ended.
  bool change() {
    if (phase_ == Phase::Overhead) {
      phase_ = Phase::Moving;
      left_ = bytes_;
      return false;
    }
    phase_ = Phase::Idle;
    return true;
  }

private:
  enum class Phase { Idle, Waiting, Overhead, Moving };
  Phase phase_ = Phase::Idle;
  std::uint32_t task_ = 0;
  bool waits_ = false, hasWaited_ = false;
  std::size_t kernel_ = 0; ///< that it waits for, and for those before
  double left_ = 0;        ///< microseconds of overhead, or bytes
  double bytes_ = 0;
};

/// One direction of the link: the copies that run side by side.
class Direction {
public:
  explicit Direction(std::size_t atOnce) : copiers_(atOnce), untilUs_(atOnce, never) {}

  bool isIdle() const {
    return std::all_of(copiers_.begin(), copiers_.end(), [](const Copier &copier) { return copier.isIdle(); });
  }
  std::size_t movingCount() const {
    return static_cast<std::size_t>(
        std::count_if(copiers_.begin(), copiers_.end(), [](const Copier &copier) { return copier.isMoving(); }));
  }
  Copier *idle() {
    const auto found =
        std::find_if(copiers_.begin(), copiers_.end(), [](const Copier &copier) { return copier.isIdle(); });
    return found == copiers_.end() ? nullptr : &*found;
  }

  /// Until one of them changes its phase; `bytesPerUs` and the `pace` of its overhead of each.
  double untilChangeUs(double bytesPerUs, double pace) {
    double least = never;
    for (std::size_t i = 0; i < copiers_.size(); ++i)
      least = std::min(least, untilUs_[i] = copiers_[i].untilChangeUs(bytesPerUs, pace));
    return least;
  }
  void advance(double us, double bytesPerUs, double pace) {
    for (Copier &copier : copiers_)
      copier.advance(us, bytesPerUs, pace);
  }
  void waitFor(std::size_t kernel) {
    for (Copier &copier : copiers_)
      copier.waitFor(kernel);
  }
  void goOnBefore(std::size_t kernel) {
    for (Copier &copier : copiers_)
      copier.goOnBefore(kernel);
  }
  /// Those that were to change within the time change. `end`: is called with each task that has ended.
  template <typename End> void changeAfter(double us, const End &end) {
    for (std::size_t i = 0; i < copiers_.size(); ++i)
      if (untilUs_[i] <= us && copiers_[i].change())
        end(copiers_[i].task());
  }

private:
  std::vector<Copier> copiers_;
  std::vector<double> untilUs_; ///< by copier
};

/// A lane whose transfers run in the order of their indices.
class InOrderQueue {
public:
  void add(std::uint32_t task) { ///< ascending, before the replay
    tasks_.push_back(task);
    isReady_.resize(task + 1, false);
  }
  void makeReady(std::uint32_t task) { isReady_[task] = true; }
  std::optional<std::uint32_t> take() {
    if (next_ == tasks_.size() || !isReady_[tasks_[next_]])
      return std::nullopt;
    return tasks_[next_++];
  }

private:
  std::vector<std::uint32_t> tasks_;
  std::size_t next_ = 0;
  std::vector<bool> isReady_; ///< by task
};

/// A lane that takes the most urgent of what is ready.
class UrgencyQueue {
public:
  explicit UrgencyQueue(std::span<const std::uint32_t> urgency) : urgency_(urgency) {}
  void add(std::uint32_t) {}
  void makeReady(std::uint32_t task) { ready_.push({urgency_[task], task}); }
  std::optional<std::uint32_t> take() {
    if (ready_.empty())
      return std::nullopt;
    const std::uint32_t task = ready_.top().second;
    ready_.pop();
    return task;
  }

private:
  using Entry = std::pair<std::uint32_t, std::uint32_t>; // urgency, task
  std::span<const std::uint32_t> urgency_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready_;
};

/// The event loop.
template <typename Queue> class Player {
public:
  Player(std::span<const Task> tasks, const TaskGraph &graph, const Machine &machine, const Queue &queue,
         std::uint32_t orderedCount)
      : tasks_(tasks), machine_(machine), graph_(graph), waiting_(graph.inDegrees()), queues_{queue, queue},
        orderedCount_(orderedCount), held_(orderedCount, false),
        directions_{Direction(1), Direction(machine.downAtOnce)} {
    times_.startUs.assign(tasks.size(), 0);
    times_.endUs.assign(tasks.size(), 0);
    times_.startOrder.reserve(tasks.size());
  }

  ReplayTimes play() {
    for (std::uint32_t t = 0; t < tasks_.size(); ++t) {
      if (tasks_[t].lane != Lane::None)
        queueOf(t).add(t);
      if (waiting_[t] == 0)
        ready_.push_back(t);
    }
    startWhatCan();
    while (!running_.empty() || !delayed_.empty() || !flows_.empty() || !directions_[up].isIdle() ||
           !directions_[down].isIdle())
      step();
    assert(times_.startOrder.size() == tasks_.size() && "dependencies and lane orders form a cycle");
    times_.totalUs = nowUs_;
    return std::move(times_);
  }

private:
  static constexpr std::size_t up = 0, down = 1;
  using Timed = std::pair<double, std::uint32_t>; // when, task
  using ByTime = std::priority_queue<Timed, std::vector<Timed>, std::greater<>>;

  Queue &queueOf(std::uint32_t task) { return queues_[tasks_[task].lane == Lane::Up ? up : down]; }

  /// Bytes a microsecond for each of so many that move up, and of so many that move down, if they have this share of
  /// the link: both directions slow down alike when it cannot carry their sum, to `ofBoth`.
  LinkFlows::Rates ratesOf(std::size_t upCount, std::size_t downCount, double shareOfLink, double ofBoth) const {
    const double upRate = machine_.upBytesPerSecond / 1e6, downRate = machine_.downBytesPerSecond / 1e6;
    const double share = upCount > 0 && downCount > 0 ? ofBoth : 1.0;
    return {upRate * share * shareOfLink / static_cast<double>(std::max<std::size_t>(1, upCount)),
            downRate * share * shareOfLink / static_cast<double>(std::max<std::size_t>(1, downCount))};
  }

  /// Goes on to the next moment at which something ends.
  void step() {
    // While kernels move hosted operands, little is left to copies, in either direction.
    const LinkFlows::Rates ofKernels =
        ratesOf(flows_.count(up), flows_.count(down), machine_.hostedShare, hostedShareOfBoth(machine_));
    const LinkFlows::Rates ofCopies = ratesOf(directions_[up].movingCount(), directions_[down].movingCount(),
                                              flows_.empty() ? 1 : machine_.besideHostedShare, shareOfBoth(machine_));
    const double pace = flows_.empty() ? 1 : machine_.besideHostedPace;
    const double upUs = directions_[up].untilChangeUs(ofCopies[up], pace),
                 downUs = directions_[down].untilChangeUs(ofCopies[down], pace);
    const double timedAtUs =
        std::min(running_.empty() ? never : running_.top().first, delayed_.empty() ? never : delayed_.top().first);
    const double timedUs = std::max(0.0, timedAtUs - nowUs_);
    const double us = std::min({upUs, downUs, timedUs, flows_.untilChangeUs(ofKernels)});
    nowUs_ = timedUs <= us ? std::max(nowUs_, timedAtUs) : nowUs_ + us;
    const auto ends = [&](std::uint32_t task) { end(task); };
    for (const std::size_t lane : {up, down})
      directions_[lane].advance(us, ofCopies[lane], pace);
    flows_.advance(us, ofKernels, ends);
    for (const std::size_t lane : {up, down})
      directions_[lane].changeAfter(us, ends);
    while (!running_.empty() && running_.top().first <= nowUs_) {
      const std::uint32_t task = running_.top().second;
      running_.pop();
      endCost(task);
    }
    while (!delayed_.empty() && delayed_.top().first <= nowUs_) {
      ready_.push_back(delayed_.top().second);
      delayed_.pop();
    }
    startWhatCan();
  }

  void end(std::uint32_t task) {
    times_.endUs[task] = nowUs_;
    if (!tasks_[task].hosted.empty())
      std::erase_if(withHosted_, [&](const auto &running) { return running.second == task; });
    for (std::uint32_t next : graph_.successors(task))
      if (--waiting_[next] == 0) {
        if (tasks_[next].delayUs > 0 && tasks_[task].lane == Lane::None)
          delayed_.push({nowUs_ + tasks_[next].delayUs, next});
        else
          ready_.push_back(next);
      }
  }

  /// Starts everything that became ready; what takes no time ends at once and may make more ready.
  void startWhatCan() {
    while (!ready_.empty()) {
      const std::uint32_t task = ready_.back();
      ready_.pop_back();
      if (tasks_[task].lane != Lane::None) {
        queueOf(task).makeReady(task);
        continue;
      }
      if (task >= orderedCount_) {
        run(task);
        continue;
      }
      held_[task] = true;
      while (nextOrdered_ < orderedCount_ && held_[nextOrdered_])
        run(nextOrdered_++);
    }
    for (const std::size_t lane : {up, down})
      while (Copier *copier = directions_[lane].idle()) {
        const std::optional<std::uint32_t> task = queues_[lane].take();
        if (!task)
          break;
        begin(*task);
        copier->start(*task, tasks_[*task].overheadUs, tasks_[*task].bytes, tasks_[*task].waitsForHosted);
      }
    for (Direction &direction : directions_) {
      direction.goOnBefore(withHosted_.empty() ? times_.startOrder.size() : withHosted_.front().first);
      if (!withHosted_.empty())
        direction.waitFor(withHosted_.back().first);
    }
  }

  void begin(std::uint32_t task) {
    times_.startUs[task] = nowUs_;
    times_.startOrder.push_back(task);
  }

  void run(std::uint32_t task) {
    if (!tasks_[task].hosted.empty())
      withHosted_.emplace_back(times_.startOrder.size(), task);
    begin(task);
    if (tasks_[task].costUs > 0)
      running_.push({nowUs_ + tasks_[task].costUs, task});
    else
      endCost(task);
  }

  void endCost(std::uint32_t task) {
    if (!tasks_[task].hosted.empty())
      flows_.start(task, tasks_[task].hosted);
    else
      end(task);
  }

  std::span<const Task> tasks_;
  const Machine &machine_;
  const TaskGraph &graph_;
  std::vector<std::uint32_t> waiting_; ///< by task: dependencies that have not ended
  Queue queues_[2];
  std::uint32_t orderedCount_;
  std::vector<bool> held_; ///< of the ordered tasks: dependencies have ended
  std::uint32_t nextOrdered_ = 0;
  std::vector<std::uint32_t> ready_;
  ByTime running_; ///< by their end
  ByTime delayed_; ///< by when they are ready
  Direction directions_[2];
  LinkFlows flows_;
  std::vector<std::pair<std::size_t, std::uint32_t>> withHosted_; ///< that run: place in the order of starts, task
  double nowUs_ = 0;
  ReplayTimes times_;
};

} // namespace

ReplayTimes replayInOrder(std::span<const Task> tasks, const TaskGraph &graph, const Machine &machine) {
  return Player(tasks, graph, machine, InOrderQueue(), 0).play();
}

ReplayTimes replayAsReady(std::span<const Task> tasks, const TaskGraph &graph, const Machine &machine) {
  std::vector<std::uint32_t> position(tasks.size());
  std::iota(position.begin(), position.end(), 0U);
  return replayByUrgency(tasks, graph, machine, position, 0);
}

ReplayTimes replayByUrgency(std::span<const Task> tasks, const TaskGraph &graph, const Machine &machine,
                            std::span<const std::uint32_t> urgency, std::uint32_t orderedCount) {
  return Player(tasks, graph, machine, UrgencyQueue(urgency), orderedCount).play();
}

} // namespace pumpgraph
