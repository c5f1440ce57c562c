// SPDX-License-Identifier: Apache-2.0
/// \file
/// Streams of the fake driver whose work runs later than it is asked for, in any order that streams and events allow.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

namespace pumpgraph::runtime::test {

/// Work waits until somebody waits for it, or until chance has it run. A program, or a plan, that needs more order than
/// it asks for gets other values sooner or later. Thread-safe; work runs on the thread that waits.
class FakeStreams {
public:
  /// `mostWaiting`: pieces of work on a stream beyond which a call for more, or for a record, waits for room; 0: none.
  explicit FakeStreams(std::uint32_t seed, std::size_t mostWaiting = 0) : mostWaiting_(mostWaiting), random_(seed) {}

  void create(CUstream stream, bool isBlocking);
  void destroy(CUstream stream);
  bool isBlocking(CUstream stream);
  /// `mayRun`: empty, or whether work that waits for the program may go on.
  void enqueue(CUstream stream, std::function<void()> work, std::function<bool()> mayRun = {});
  void record(CUevent event, CUstream stream);
  void wait(CUstream stream, CUevent event);
  void destroy(CUevent event);
  void finishAll();
  void finish(CUstream stream);
  void finish(CUevent event);
  bool isDone(CUevent event);

private:
  struct Work;
  using Front = std::vector<std::shared_ptr<Work>>;
  struct Work {
    CUstream stream;
    std::function<void()> run;
    std::function<bool()> mayRun;
    Front after;
    bool isDone = false;
  };
  struct Stream {
    bool isBlocking = true;
    Front front;
  };
  CUstream keyOf(CUstream stream) const;
  Front frontOf(CUstream stream);
  template <typename IsOver> void finishUntil(IsOver isOver);
  void waitForRoom(CUstream stream);
  /// False if all work waits for the program.
  bool runOne();
  static bool isDone(const Front &front);

  std::size_t mostWaiting_;
  std::recursive_mutex mutex_;
  std::mt19937 random_;
  std::map<CUstream, Stream> streams_;
  std::map<CUevent, Front> events_;
  std::vector<std::shared_ptr<Work>> waiting_;
};

} // namespace pumpgraph::runtime::test
