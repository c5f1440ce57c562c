// SPDX-License-Identifier: Apache-2.0
// The C API's own duties: arguments, structs of other sizes, handles, the allocator shim, the doctor.
#include "pumpgraph/pumpgraph.h"
#include "runtime/api/Handles.h"
#include "runtime/link/Link.h"
#include "test/unit/runtime/FakeDriver.h"
#include "test/unit/runtime/StackProbe.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

class ApiTest : public ::testing::Test {
protected:
  void SetUp() override {
    options_.struct_size = sizeof options_;
    options_.budget_bytes = 16 * pageBytes;
    options_.compiler_library = PUMPGRAPH_COMPILER_LIBRARY;
    Expected<std::unique_ptr<pumpgraph_session>> made = makeSession(options_, fake_.table());
    ASSERT_TRUE(made) << made.error().message;
    session_ = made->release();
  }
  void TearDown() override { pumpgraph_session_destroy(session_); }

  /// `refused`: what is said of planning it again.
  std::string reportOfAStep(pumpgraph_session *session, const char *name = nullptr,
                            pumpgraph_error *refused = nullptr) {
    pumpgraph_adopt_options options{};
    options.struct_size = sizeof options;
    options.leave_as_captured = 1;
    options.name = name;
    const CUgraph graph = fake_.createGraph();
    pumpgraph_step *step = nullptr;
    char *text = nullptr;
    EXPECT_EQ(pumpgraph_capture_begin(session, nullptr), PUMPGRAPH_OK);
    EXPECT_EQ(pumpgraph_capture_end(session, nullptr), PUMPGRAPH_OK);
    EXPECT_EQ(pumpgraph_adopt(session, graph, &options, &step, nullptr), PUMPGRAPH_OK);
    EXPECT_EQ(pumpgraph_report(step, &text, nullptr), PUMPGRAPH_OK);
    const std::string report = text ? text : "";
    pumpgraph_string_free(text);
    pumpgraph_replanning replanning{};
    replanning.struct_size = sizeof replanning;
    EXPECT_NE(pumpgraph_replan(step, &replanning, refused), PUMPGRAPH_OK) << "it is left as captured";
    pumpgraph_step_destroy(step);
    fake_.destroyGraph(graph);
    return report;
  }

  FakeDriver fake_;
  pumpgraph_session_options options_{};
  pumpgraph_session *session_ = nullptr;
};

TEST_F(ApiTest, refusesOperationsThatThereAreNot) {
  pumpgraph_error error{};
  for (const int32_t kind : {-1, 3})
    EXPECT_EQ(pumpgraph_declare_operation(session_, nullptr, kind, &error), PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "3 is no kind of operation");
  EXPECT_EQ(pumpgraph_declare_operation(session_, nullptr, PUMPGRAPH_OPERATION_PURE, &error), // nothing is captured
            PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_EQ(pumpgraph_free_scratch(session_, 1, &error), PUMPGRAPH_OK);
  EXPECT_EQ(pumpgraph_free_scratch(nullptr, 1, &error), PUMPGRAPH_INVALID_ARGUMENT);
}

TEST_F(ApiTest, refusesArithmeticThatThereIsNot) {
  pumpgraph_error error{};
  for (const int32_t kind : {-1, 7})
    EXPECT_EQ(pumpgraph_declare_arithmetic(session_, nullptr, 1, kind, &error), PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "7 is no kind of arithmetic");
  for (const double operations : {std::numeric_limits<double>::quiet_NaN(), HUGE_VAL, -1.0})
    EXPECT_EQ(pumpgraph_declare_arithmetic(session_, nullptr, operations, PUMPGRAPH_ARITHMETIC_FP32, &error),
              PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "arithmetic of -1 operations; a finite number of them, or 0");
  EXPECT_EQ(
      pumpgraph_declare_arithmetic(session_, nullptr, 1, PUMPGRAPH_ARITHMETIC_FP32, &error), // nothing is captured
      PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_EQ(pumpgraph_declare_arithmetic(nullptr, nullptr, 1, PUMPGRAPH_ARITHMETIC_FP32, &error),
            PUMPGRAPH_INVALID_ARGUMENT);
}

TEST_F(ApiTest, pagesOperandsOfEagerOperators) {
  pumpgraph_error error{};
  EXPECT_EQ(pumpgraph_begin_paging(nullptr, nullptr, nullptr, &error), PUMPGRAPH_INVALID_ARGUMENT);
  int32_t begun = 0;
  ASSERT_EQ(pumpgraph_begin_paging(session_, nullptr, &begun, &error), PUMPGRAPH_OK);
  EXPECT_EQ(begun, 1);
  void *buffers[3] = {};
  for (void *&buffer : buffers)
    ASSERT_EQ(pumpgraph_allocate(session_, 8 * pageBytes, nullptr, nullptr, &buffer, &error), PUMPGRAPH_OK);
  EXPECT_FALSE(fake_.isOnDevice(buffers[0]));
  void *operands[] = {buffers[0], this}; // one is not the session's
  EXPECT_EQ(pumpgraph_page_in(session_, nullptr, 1, &error), PUMPGRAPH_INVALID_ARGUMENT);
  ASSERT_EQ(pumpgraph_page_in(session_, operands, 2, &error), PUMPGRAPH_OK);
  EXPECT_TRUE(fake_.isOnDevice(buffers[0]));
  EXPECT_FALSE(fake_.isOnDevice(buffers[1]));
  uint64_t moved = 0;
  ASSERT_EQ(pumpgraph_end_paging(session_, &moved, &error), PUMPGRAPH_OK);
  EXPECT_EQ(moved, 3 * 8 * pageBytes);
  ASSERT_EQ(pumpgraph_page_in(session_, buffers, 3, &error), PUMPGRAPH_OK); // moves nothing any more
  EXPECT_FALSE(fake_.isOnDevice(buffers[1]));
  ASSERT_EQ(pumpgraph_free(session_, buffers[0], nullptr, &error), PUMPGRAPH_OK);
  ASSERT_EQ(pumpgraph_empty_cache(session_, &error), PUMPGRAPH_OK);
  EXPECT_TRUE(fake_.isOnDevice(buffers[1]) && fake_.isOnDevice(buffers[2]));
  EXPECT_EQ(fake_.hostBackings(), 0u);
  EXPECT_EQ(pumpgraph_end_paging(session_, nullptr, &error), PUMPGRAPH_OK);
}

// A search for a batch size empties the cache after memory ran out, while the failed attempt's tensors are still there.
TEST_F(ApiTest, emptiesTheCacheWhereAllMemoryIsTaken) {
  pumpgraph_session_destroy(session_);
  options_.host_limit_bytes = 24 * pageBytes; // eight of them are the session's own
  session_ = makeSession(options_, fake_.table())->release();
  pumpgraph_error error{};
  ASSERT_EQ(pumpgraph_begin_paging(session_, nullptr, nullptr, &error), PUMPGRAPH_OK);
  std::vector<void *> buffers;
  pumpgraph_status status = PUMPGRAPH_OK;
  for (void *buffer = nullptr; status == PUMPGRAPH_OK && buffers.size() < 10000;) {
    status = pumpgraph_allocate(session_, 8 * pageBytes, nullptr, nullptr, &buffer, &error);
    if (status == PUMPGRAPH_OK)
      buffers.push_back(buffer);
  }
  ASSERT_EQ(status, PUMPGRAPH_OUT_OF_HOST_MEMORY) << error.message;
  ASSERT_EQ(pumpgraph_end_paging(session_, nullptr, &error), PUMPGRAPH_OK);
  EXPECT_EQ(pumpgraph_empty_cache(session_, &error), PUMPGRAPH_OK) << error.message;
  for (void *buffer : buffers)
    ASSERT_EQ(pumpgraph_free(session_, buffer, nullptr, &error), PUMPGRAPH_OK) << error.message;
  EXPECT_EQ(pumpgraph_empty_cache(session_, &error), PUMPGRAPH_OK) << error.message;
  EXPECT_EQ(fake_.hostBackings(), 0u);
}

#ifndef PUMPGRAPH_SANITIZED // sanitized stack frames have red zones, which are never cleared
// What a launch has left on the stack is not there for the next one, whichever of these calls comes between.
TEST_F(ApiTest, clearsTheStackBetweenLaunchesOfACapture) {
  void *pointer = nullptr;
  const std::vector<std::pair<const char *, std::function<void()>>> calls = {
      {"allocate", [&] { pumpgraph_allocate(session_, 4096, nullptr, nullptr, &pointer, nullptr); }},
      {"free", [&] { pumpgraph_free(session_, pointer, nullptr, nullptr); }},
      {"declare reads", [&] { pumpgraph_declare_reads(session_, nullptr, nullptr, 0, nullptr); }},
      {"declare aside", [&] { pumpgraph_declare_aside(session_, nullptr, nullptr, 0, nullptr); }},
      {"declare extents", [&] { pumpgraph_declare_extents(session_, nullptr, nullptr, 0, nullptr); }},
      {"name nodes", [&] { pumpgraph_name_nodes(session_, nullptr, "conv", nullptr); }},
      {"declare arithmetic",
       [&] { pumpgraph_declare_arithmetic(session_, nullptr, 1, PUMPGRAPH_ARITHMETIC_FP32, nullptr); }},
      {"declare operation",
       [&] { pumpgraph_declare_operation(session_, nullptr, PUMPGRAPH_OPERATION_PURE, nullptr); }}};
  for (const bool isCapturing : {true, false}) {
    if (isCapturing) {
      ASSERT_EQ(pumpgraph_capture_begin(session_, nullptr), PUMPGRAPH_OK);
    }
    for (const auto &[name, call] : calls) {
      leaveWords();
      call();
      EXPECT_EQ(countWordsLeft() == 0, isCapturing) << name;
    }
    if (isCapturing) {
      ASSERT_EQ(pumpgraph_capture_end(session_, nullptr), PUMPGRAPH_OK);
    }
  }
}
#endif

// NULL where something is needed is the caller's fault, not a crash.
TEST_F(ApiTest, refusesNull) {
  pumpgraph_error error{};
  EXPECT_EQ(pumpgraph_session_create(nullptr, &session_, &error), PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "options is NULL");
  EXPECT_EQ(pumpgraph_allocate(session_, 1, nullptr, nullptr, nullptr, &error), PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_EQ(pumpgraph_allocate(nullptr, 1, nullptr, nullptr, nullptr, nullptr), PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_EQ(pumpgraph_adopt(session_, nullptr, nullptr, nullptr, &error), PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_EQ(pumpgraph_replay(nullptr, nullptr, &error), PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_EQ(pumpgraph_put_in_force(nullptr, &error), PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_EQ(pumpgraph_prepare_replay(nullptr, nullptr, nullptr, 0, &error), PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_EQ(pumpgraph_take_back(nullptr, &error), PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_EQ(pumpgraph_bring(session_, nullptr, 1, PUMPGRAPH_USE_READ, &error), PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_EQ(pumpgraph_bring(session_, nullptr, 0, 3, &error), PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_EQ(pumpgraph_departures(session_, nullptr, &error), PUMPGRAPH_INVALID_ARGUMENT);
  pumpgraph_replanning replanning{};
  EXPECT_EQ(pumpgraph_replan(nullptr, &replanning, &error), PUMPGRAPH_INVALID_ARGUMENT);
  pumpgraph_step_destroy(nullptr);
  pumpgraph_session_destroy(nullptr);
}

TEST_F(ApiTest, refusesAnUnknownBoundary) {
  const CUgraph graph = fake_.createGraph();
  pumpgraph_adopt_options options{};
  options.struct_size = sizeof options;
  options.boundary = 3;
  pumpgraph_step *step = nullptr;
  pumpgraph_error error{};
  EXPECT_EQ(pumpgraph_adopt(session_, graph, &options, &step, &error), PUMPGRAPH_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "options->boundary is 3");
  fake_.destroyGraph(graph);
}

// A caller compiled against a shorter struct gets what it knows, and nothing is written past it.
TEST_F(ApiTest, refusesAnUnknownBackend) {
  options_.backend = PUMPGRAPH_BACKEND_AUTOMATIC + 1;
  const Expected<std::unique_ptr<pumpgraph_session>> made = makeSession(options_, fake_.table());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message, "options->backend is 3");
}

TEST_F(ApiTest, refusesAnUnknownChoiceOfRematerialization) {
  options_.rematerialize = PUMPGRAPH_REMATERIALIZE_NEVER + 1;
  const Expected<std::unique_ptr<pumpgraph_session>> made = makeSession(options_, fake_.table());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message, "options->rematerialize is 2");
  options_.rematerialize = PUMPGRAPH_REMATERIALIZE_NEVER;
  EXPECT_TRUE(makeSession(options_, fake_.table()));
}

TEST_F(ApiTest, refusesAnUnknownPlaceOfPlanning) {
  options_.planning = PUMPGRAPH_PLANNING_IN_REPLAY + 1;
  const Expected<std::unique_ptr<pumpgraph_session>> made = makeSession(options_, fake_.table());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message, "options->planning is 2");
}

// A caller of an older version has a shorter struct, and virtual memory.
TEST_F(ApiTest, isOnVirtualMemoryUnlessAskedOtherwise) {
  EXPECT_EQ(fake_.managedBytes(), 0U);
  pumpgraph_session_destroy(session_);
  options_.backend = PUMPGRAPH_BACKEND_MANAGED;
  options_.managed_bytes = options_.managed_limit_bytes = 32 * pageBytes;
  session_ = makeSession(options_, fake_.table())->release();
  EXPECT_EQ(fake_.managedBytes(), 32 * pageBytes);
}

// Oversubscription is allowed by name alone.
TEST_F(ApiTest, oversubscribesOnlyByName) {
  options_.backend = PUMPGRAPH_BACKEND_MANAGED;
  options_.managed_bytes = options_.managed_limit_bytes = FakeDriver::Options{}.deviceBytes + pageBytes;
  EXPECT_FALSE(makeSession(options_, fake_.table()));
  options_.allow_oversubscription = 1;
  EXPECT_TRUE(makeSession(options_, fake_.table()));
}

// Names come from programs: a terminal that is shown a report or an error obeys none.
TEST_F(ApiTest, printsNoNameThatATerminalObeys) {
  const std::string hostile = "\x1b[31m\nNO: \xe2\x80\xae\x9b";
  pumpgraph_error refused{};
  const std::string report = reportOfAStep(session_, hostile.c_str(), &refused);
  EXPECT_NE(report.find("\\\\x1b[31m\\\\x0aNO: \\\\u202e\\\\x9b"), std::string::npos) << report;
  EXPECT_EQ(report.find('\x1b'), std::string::npos);
  EXPECT_NE(std::string(refused.message).find("\\x1b[31m\\x0aNO: \\u202e\\x9b"), std::string::npos) << refused.message;
  EXPECT_EQ(std::string(refused.message).find('\n'), std::string::npos);
}

// An error that is too long for its field ends between two characters.
TEST_F(ApiTest, cutsMessagesBetweenCharacters) {
  std::string name;
  for (int i = 0; i < 1000; ++i)
    name += "\xe6\xbc\xa2";
  for (const char *first : {"", "a", "ab"}) {
    pumpgraph_error refused{};
    reportOfAStep(session_, (first + name).c_str(), &refused);
    const std::string message = refused.message;
    EXPECT_GE(message.size(), sizeof refused.message - 3);
    EXPECT_TRUE(message.ends_with("\xe6\xbc\xa2")) << first;
  }
}

TEST_F(ApiTest, writesNoMoreThanTheCallersStruct) {
  pumpgraph_memory_stats stats{};
  stats.struct_size = offsetof(pumpgraph_memory_stats, device_peak_bytes);
  stats.device_peak_bytes = 1234;
  ASSERT_EQ(pumpgraph_memory_statistics(session_, &stats, nullptr), PUMPGRAPH_OK);
  EXPECT_EQ(stats.budget_bytes, 16 * pageBytes);
  EXPECT_EQ(stats.device_peak_bytes, 1234u);
  stats.struct_size = 0;
  EXPECT_EQ(pumpgraph_memory_statistics(session_, &stats, nullptr), PUMPGRAPH_INVALID_ARGUMENT);
}

// PyTorch's interface: one attached session, zero bytes are no allocation.
TEST_F(ApiTest, servesPyTorch) {
  EXPECT_THROW(pumpgraph_torch_malloc(100, 0, nullptr), std::runtime_error);
  ASSERT_EQ(pumpgraph_torch_attach(session_, nullptr), PUMPGRAPH_OK);
  EXPECT_EQ(pumpgraph_torch_malloc(0, 0, nullptr), nullptr);
  void *pointer = pumpgraph_torch_malloc(100, 0, nullptr);
  ASSERT_NE(pointer, nullptr);
  pumpgraph_memory_stats stats{};
  stats.struct_size = sizeof stats;
  ASSERT_EQ(pumpgraph_memory_statistics(session_, &stats, nullptr), PUMPGRAPH_OK);
  EXPECT_EQ(stats.live_bytes, 100u);
  int elsewhere = 0; // such as DLPack's
  for (void *used : {pointer, static_cast<void *>(&elsewhere), static_cast<void *>(nullptr)})
    pumpgraph_torch_record_stream(used, nullptr);
  EXPECT_EQ(pumpgraph_record_stream(session_, &elsewhere, nullptr, nullptr), PUMPGRAPH_INVALID_ARGUMENT);
  pumpgraph_torch_free(pointer, 100, 0, nullptr);
  ASSERT_EQ(pumpgraph_memory_statistics(session_, &stats, nullptr), PUMPGRAPH_OK);
  EXPECT_EQ(stats.live_allocations, 0u);
}

// With the interpreter's functions, here of one whose only frame has a code object of its own in line 7. What is off
// records nothing; what was there before has no frames.
TEST_F(ApiTest, recordsWhatPyTorchAllocates) {
  static int locks = 0, code = 0;
  pumpgraph_torch_recording recording{};
  recording.struct_size = sizeof recording;
  recording.most_events = 3;
  recording.stacks = 3;
  const auto pointer = [](auto *function) { return reinterpret_cast<const void *>(function); };
  recording.gil_state_ensure = pointer(+[] { return ++locks; });
  recording.gil_state_release = pointer(+[](int) { --locks; });
  recording.eval_get_frame = pointer(+[]() -> void * { return &locks; });
  recording.frame_get_back = pointer(+[](void *) -> void * { return nullptr; });
  recording.frame_get_code = pointer(+[](void *) -> void * { return &code; });
  recording.frame_get_line = pointer(+[](void *) { return 7; });
  EXPECT_EQ(pumpgraph_torch_record(session_, &recording, nullptr), PUMPGRAPH_INVALID_ARGUMENT);
  recording.dec_ref = pointer(+[](void *) {});
  ASSERT_EQ(pumpgraph_torch_attach(session_, nullptr), PUMPGRAPH_OK);
  const auto snapshot = [&] {
    char *json = nullptr;
    EXPECT_EQ(pumpgraph_torch_snapshot(session_, &json, nullptr), PUMPGRAPH_OK);
    const nlohmann::json parsed = nlohmann::json::parse(json);
    pumpgraph_string_free(json);
    return parsed;
  };

  void *older = pumpgraph_torch_malloc(100, 0, nullptr);
  ASSERT_EQ(pumpgraph_torch_record(session_, &recording, nullptr), PUMPGRAPH_OK);
  void *wide = pumpgraph_torch_malloc(3 * pageBytes - 8, 0, nullptr);
  void *freed = pumpgraph_torch_malloc(200, 0, nullptr);
  pumpgraph_torch_free(freed, 200, 0, nullptr);
  EXPECT_THROW(pumpgraph_torch_malloc(std::size_t{1} << 50, 0, nullptr), std::runtime_error);
  EXPECT_EQ(locks, 0);
  const nlohmann::json recorded = snapshot();
  const nlohmann::json &events = recorded.at("events");
  ASSERT_EQ(events.size(), 3U); // the last ones
  EXPECT_EQ(events[0].at("action"), "alloc");
  EXPECT_EQ(events[0].at("address"), reinterpret_cast<std::uint64_t>(freed));
  EXPECT_EQ(events[1].at("action"), "free");
  EXPECT_EQ(events[1].at("bytes"), 200);
  EXPECT_EQ(events[2].at("action"), "oom");
  EXPECT_GT(events[2].at("left_bytes"), 0);
  EXPECT_EQ(recorded.at("stacks"), nlohmann::json({{{reinterpret_cast<std::uint64_t>(&code), 7}}}));
  EXPECT_EQ(recorded.at("live"), nlohmann::json({{reinterpret_cast<std::uint64_t>(wide), 0}}));
  std::set<std::uint64_t> alive;
  for (const nlohmann::json &block : recorded.at("blocks"))
    for (const nlohmann::json &allocation : block.at("allocations")) {
      alive.insert(allocation.at("address").get<std::uint64_t>());
      EXPECT_LE(block.at("address"), allocation.at("address"));
      EXPECT_LE(allocation.at("address").get<std::uint64_t>() + allocation.at("bytes").get<std::uint64_t>(),
                block.at("address").get<std::uint64_t>() + block.at("bytes").get<std::uint64_t>());
    }
  EXPECT_EQ(alive, (std::set{reinterpret_cast<std::uint64_t>(older), reinterpret_cast<std::uint64_t>(wide)}));

  ASSERT_EQ(pumpgraph_torch_record(session_, nullptr, nullptr), PUMPGRAPH_OK);
  pumpgraph_torch_free(wide, 3 * pageBytes - 8, 0, nullptr);
  EXPECT_EQ(snapshot().at("events").size(), 0U);
  EXPECT_FALSE(snapshot().at("recording"));
  pumpgraph_torch_free(older, 100, 0, nullptr);
}

// Memory changes from one owner to the next: no free is heard of, and no allocation.
TEST_F(ApiTest, keepsAnAddressForPyTorch) {
  ASSERT_EQ(pumpgraph_torch_attach(session_, nullptr), PUMPGRAPH_OK);
  void *pointer = pumpgraph_torch_malloc(100, 0, nullptr);
  pumpgraph_torch_keep(pointer);
  void *other = pumpgraph_torch_malloc(100, 0, nullptr);
  EXPECT_NE(other, pointer);
  pumpgraph_torch_free(pointer, 100, 0, nullptr);
  EXPECT_EQ(pumpgraph_torch_malloc(100, 0, nullptr), pointer);
  pumpgraph_torch_keep(nullptr);
  pumpgraph_memory_stats stats{};
  stats.struct_size = sizeof stats;
  ASSERT_EQ(pumpgraph_memory_statistics(session_, &stats, nullptr), PUMPGRAPH_OK);
  EXPECT_EQ(stats.live_allocations, 2u);
  pumpgraph_torch_free(pointer, 100, 0, nullptr);
  pumpgraph_torch_free(other, 100, 0, nullptr);
  ASSERT_EQ(pumpgraph_memory_statistics(session_, &stats, nullptr), PUMPGRAPH_OK);
  EXPECT_EQ(stats.live_allocations, 0u);
}

// What nobody takes is free after all.
TEST_F(ApiTest, keepsNothingThatNobodyTakes) {
  ASSERT_EQ(pumpgraph_torch_attach(session_, nullptr), PUMPGRAPH_OK);
  void *pointer = pumpgraph_torch_malloc(100, 0, nullptr);
  pumpgraph_torch_keep(pointer);
  pumpgraph_torch_free(pointer, 100, 0, nullptr);
  pumpgraph_torch_keep(nullptr);
  pumpgraph_memory_stats stats{};
  stats.struct_size = sizeof stats;
  ASSERT_EQ(pumpgraph_memory_statistics(session_, &stats, nullptr), PUMPGRAPH_OK);
  EXPECT_EQ(stats.live_allocations, 0u);
  void *kept = pumpgraph_torch_malloc(100, 0, nullptr);
  pumpgraph_torch_keep(kept);
  pumpgraph_torch_keep(nullptr);
  pumpgraph_torch_free(kept, 100, 0, nullptr);
  ASSERT_EQ(pumpgraph_memory_statistics(session_, &stats, nullptr), PUMPGRAPH_OK);
  EXPECT_EQ(stats.live_allocations, 0u);
}

// A session that ends is detached, so that late frees of a dying interpreter do no harm.
TEST_F(ApiTest, detachesASessionThatEnds) {
  ASSERT_EQ(pumpgraph_torch_attach(session_, nullptr), PUMPGRAPH_OK);
  void *pointer = pumpgraph_torch_malloc(100, 0, nullptr);
  pumpgraph_session_destroy(session_);
  session_ = nullptr;
  pumpgraph_torch_free(pointer, 100, 0, nullptr);
  pumpgraph_torch_empty_cache();
  EXPECT_THROW(pumpgraph_torch_malloc(100, 0, nullptr), std::runtime_error);
}

/// What PyTorch is told; empty: it got memory, which is free again.
std::string torchErrorFor(std::size_t bytes) {
  try {
    pumpgraph_torch_free(pumpgraph_torch_malloc(bytes, 0, nullptr), bytes, 0, nullptr);
    return "";
  } catch (const std::runtime_error &error) {
    return error.what();
  }
}

// PyTorch does not look at what it gets: where there is no memory it has to be thrown at. The text is what searches for
// a batch size look for, and what a person needs. The session goes on.
TEST_F(ApiTest, throwsWhereThereIsNoMemoryForPyTorch) {
  pumpgraph_session_destroy(session_);
  options_.host_limit_bytes = 24 * pageBytes; // eight of them are the session's own
  session_ = makeSession(options_, fake_.table())->release();
  ASSERT_EQ(pumpgraph_torch_attach(session_, nullptr), PUMPGRAPH_OK);
  void *held = pumpgraph_torch_malloc(15 * pageBytes, 0, nullptr);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const std::string message = torchErrorFor(17 * pageBytes);
    EXPECT_EQ(message.rfind("CUDA out of memory. Tried to allocate 34.0 MiB beside 30.0 MiB in use. ", 0), 0u)
        << message;
    for (const char *part : {"(a budget of 32.0 MiB)", "16.0 MiB of host memory (limit 48.0 MiB)", "2.0 MiB missing"})
      EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_EQ(std::uncaught_exceptions(), 0);
    EXPECT_EQ(torchErrorFor(16 * pageBytes), "");
    EXPECT_EQ(torchErrorFor(pageBytes), "");
  }
  pumpgraph_torch_free(held, 15 * pageBytes, 0, nullptr);
  pumpgraph_memory_stats stats{};
  stats.struct_size = sizeof stats;
  ASSERT_EQ(pumpgraph_memory_statistics(session_, &stats, nullptr), PUMPGRAPH_OK);
  EXPECT_EQ(stats.live_allocations, 0u);
}

// A capture that runs out of memory can be ended, and another one follows.
TEST_F(ApiTest, goesOnAfterACaptureRanOutOfMemory) {
  ASSERT_EQ(pumpgraph_torch_attach(session_, nullptr), PUMPGRAPH_OK);
  for (int attempt = 0; attempt < 2; ++attempt) {
    ASSERT_EQ(pumpgraph_capture_begin(session_, nullptr), PUMPGRAPH_OK);
    EXPECT_EQ(torchErrorFor(pageBytes), "");
    EXPECT_EQ(torchErrorFor(std::size_t{1} << 50).rfind("CUDA out of memory.", 0), 0u);
    ASSERT_EQ(pumpgraph_capture_end(session_, nullptr), PUMPGRAPH_OK);
    EXPECT_EQ(torchErrorFor(pageBytes), "");
  }
  reportOfAStep(session_);
}

// Another failure is no lack of memory, whoever asks, and neither is a lost device.
TEST_F(ApiTest, namesOtherFailuresToPyTorch) {
  ASSERT_EQ(pumpgraph_torch_attach(session_, nullptr), PUMPGRAPH_OK);
  fake_.failCall("cuMemMap", 1, CUDA_ERROR_UNKNOWN);
  const std::string message = torchErrorFor(pageBytes);
  EXPECT_EQ(message.find("out of memory"), std::string::npos) << message;
  EXPECT_NE(message.find("cuMemMap"), std::string::npos) << message;
  EXPECT_EQ(torchErrorFor(pageBytes), "");

  fake_.failCall("cuCtxSynchronize", 1, CUDA_ERROR_UNKNOWN);
  EXPECT_THROW(pumpgraph_torch_empty_cache(), std::runtime_error);
  EXPECT_EQ(std::uncaught_exceptions(), 0);
  pumpgraph_torch_empty_cache();

  fake_.failCall("cuMemMap", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
  for (int i = 0; i < 2; ++i)
    EXPECT_NE(torchErrorFor(pageBytes).find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos);
}

// What PyTorch catches by its class is of that class: torch.cuda.OutOfMemoryError in Python.
TEST_F(ApiTest, throwsPyTorchsOwnOutOfMemory) {
  ASSERT_EQ(pumpgraph_torch_attach(session_, nullptr), PUMPGRAPH_OK);
  void *torch = dlopen(PUMPGRAPH_FAKE_TORCH, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(torch, nullptr) << dlerror();
  using Allocate = void *(*)(std::size_t, int, pumpgraph_stream);
  const auto caught = reinterpret_cast<const char *(*)(Allocate, std::size_t)>(dlsym(torch, "caught"));
  const auto alive = reinterpret_cast<int (*)()>(dlsym(torch, "alive"));
  EXPECT_STREQ(caught(pumpgraph_torch_malloc, pageBytes), "nothing");
  const std::string message = caught(pumpgraph_torch_malloc, std::size_t{1} << 50);
  EXPECT_EQ(message.rfind("OutOfMemoryError: CUDA out of memory. Tried", 0), 0u) << message;
  EXPECT_EQ(alive(), 0);
  fake_.failCall("cuMemMap", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(std::string(caught(pumpgraph_torch_malloc, pageBytes)).rfind("runtime_error: PyTorch asked", 0), 0u);
  dlclose(torch);
}

// The library that is shipped has a C++ library of its own inside, and throws with that of the process all the same.
TEST(TorchErrorsTest, areCaughtOutsideOfTheLibrary) {
  void *library = dlopen(PUMPGRAPH_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto allocate = reinterpret_cast<decltype(&pumpgraph_torch_malloc)>(dlsym(library, "pumpgraph_torch_malloc"));
  ASSERT_NE(allocate, nullptr);
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::exception_ptr kept; // as autograd's threads hand one on
    try {
      allocate(100, 0, nullptr);
    } catch (const std::exception &) {
      kept = std::current_exception();
    }
    ASSERT_TRUE(kept);
    EXPECT_EQ(std::uncaught_exceptions(), 0);
    try {
      std::rethrow_exception(std::exchange(kept, nullptr));
    } catch (const std::runtime_error &error) {
      EXPECT_STREQ(error.what(), "PyTorch asked PumpGraph for 100 bytes: no session is attached");
    }
    EXPECT_EQ(std::uncaught_exceptions(), 0);
  }
}

// What the machine lacks is said before anything else goes wrong.
TEST_F(ApiTest, saysWhatTheMachineLacks) {
  TearDown();
  session_ = nullptr;
  options_.budget_bytes = 100;
  Expected<std::unique_ptr<pumpgraph_session>> made = makeSession(options_, fake_.table());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().status, PUMPGRAPH_INVALID_ARGUMENT);
  options_.budget_bytes = 2 * FakeDriver::Options{}.deviceBytes;
  made = makeSession(options_, fake_.table());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message, "a budget of 2.00 GiB; device 0 has 1.00 GiB");
  options_.budget_bytes = FakeDriver::Options{}.deviceBytes;
  EXPECT_TRUE(makeSession(options_, fake_.table()));
  options_.budget_bytes = pageBytes;
  options_.device = 3;
  made = makeSession(options_, fake_.table());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message, "device 3 of 1");
  fake_.setDevices(0);
  made = makeSession(options_, fake_.table());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().status, PUMPGRAPH_NO_DRIVER);
}

// The measured link is kept, and after some sessions read instead of measured. Until then the fastest figures count: a
// slow one is replaced, a fast one stays.
TEST_F(ApiTest, keepsTheLinkSpeed) {
  const std::filesystem::path folder = ::testing::TempDir() + "/pumpgraph-link-cache";
  std::filesystem::remove_all(folder);
  const std::string path = folder.string();
  options_.cache_directory = path.c_str();
  options_.budget_bytes = 2 * pageBytes; // so copies are small
  const auto copiesOfASession = [&] {
    const std::uint64_t before = fake_.callsOf("cuMemcpyHtoDAsync");
    pumpgraph_session_destroy(makeSession(options_, fake_.table())->release());
    return fake_.callsOf("cuMemcpyHtoDAsync") - before;
  };
  EXPECT_GT(copiesOfASession(), 0U);
  ASSERT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  const std::filesystem::path file = std::filesystem::directory_iterator(folder)->path();
  std::optional<KeptLink> kept = loadLink(file);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->measurements, 1);
  kept->speed.up = 1;      // as nothing copies
  kept->speed.both = 1e18; // as nothing copies either
  storeLink(file, *kept);
  for (int session = 1; session < wantedMeasurements; ++session)
    EXPECT_GT(copiesOfASession(), 0U) << session;
  EXPECT_EQ(copiesOfASession(), 0U);
  kept = loadLink(file);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->measurements, wantedMeasurements);
  EXPECT_GT(kept->speed.up, 1);
  EXPECT_EQ(kept->speed.both, 1e18);
}

// The fastest figure would be the one from before other processes began.
TEST_F(ApiTest, countsOnWhatOtherProcessesLeaveOfTheLink) {
  const auto speeds = [&] {
    const nlohmann::json link = nlohmann::json::parse(reportOfAStep(session_)).at("runtime").at("link");
    std::array<double, 3> values{};
    std::ranges::transform(std::array{"up_bytes_per_second", "down_bytes_per_second", "both_bytes_per_second"},
                           values.begin(), [&](const char *key) { return link.at(key).get<double>(); });
    return values;
  };
  const std::array<double, 3> alone = speeds();
  fake_.leaveOfLink(0.25);
  EXPECT_EQ(speeds(), alone);
  ASSERT_EQ(pumpgraph_measure_link(session_, 0.01, nullptr), PUMPGRAPH_OK);
  const std::array<double, 3> beside = speeds();
  for (std::size_t way = 0; way < beside.size(); ++way)
    EXPECT_NEAR(beside[way] / alone[way], 0.25, 0.05) << way;
}

TEST_F(ApiTest, measuresTheLinkInFreeMemoryAlone) {
  pumpgraph_error error{};
  for (const double seconds : {0.0, -1.0, 61.0, std::nan("")})
    EXPECT_EQ(pumpgraph_measure_link(session_, seconds, &error), PUMPGRAPH_INVALID_ARGUMENT) << seconds;
  ASSERT_EQ(pumpgraph_capture_begin(session_, nullptr), PUMPGRAPH_OK);
  EXPECT_EQ(pumpgraph_measure_link(session_, 0.01, &error), PUMPGRAPH_INVALID_ARGUMENT);
  ASSERT_EQ(pumpgraph_capture_end(session_, nullptr), PUMPGRAPH_OK);
  void *all = nullptr;
  ASSERT_EQ(pumpgraph_allocate(session_, 16 * pageBytes, nullptr, "all", &all, nullptr), PUMPGRAPH_OK);
  static_cast<char *>(all)[5] = 7;
  EXPECT_EQ(pumpgraph_measure_link(session_, 0.01, &error), PUMPGRAPH_OUT_OF_DEVICE_MEMORY) << error.message;
  EXPECT_EQ(static_cast<char *>(all)[5], 7);
  ASSERT_EQ(pumpgraph_free(session_, all, nullptr, nullptr), PUMPGRAPH_OK); // and is kept for the next allocation
  EXPECT_EQ(pumpgraph_measure_link(session_, 0.01, &error), PUMPGRAPH_OK) << error.message;
}

// A file that came from another machine, or a GPU that went to one.
TEST_F(ApiTest, measuresTheLinkAnewOnAnotherMachine) {
  const std::filesystem::path folder = ::testing::TempDir() + "/pumpgraph-foreign-link";
  std::filesystem::remove_all(folder);
  const std::string path = folder.string();
  options_.cache_directory = path.c_str();
  options_.budget_bytes = 2 * pageBytes; // so copies are small
  pumpgraph_session_destroy(makeSession(options_, fake_.table())->release());
  const std::filesystem::path file = std::filesystem::directory_iterator(folder)->path();
  std::ofstream(file) << R"({"machine": "an abacus", "up_bytes_per_second": 7e9, "down_bytes_per_second": 7e9,
                             "both_bytes_per_second": 7e9})";
  const std::uint64_t copies = fake_.callsOf("cuMemcpyHtoDAsync");
  Expected<std::unique_ptr<pumpgraph_session>> made = makeSession(options_, fake_.table());
  ASSERT_TRUE(made);
  EXPECT_GT(fake_.callsOf("cuMemcpyHtoDAsync"), copies);
  pumpgraph_session *session = made->release();
  EXPECT_NE(reportOfAStep(session).find("are of another machine (an abacus)"), std::string::npos);
  pumpgraph_session_destroy(session);

  // The file is this machine's now.
  session = makeSession(options_, fake_.table())->release();
  EXPECT_EQ(reportOfAStep(session).find("another machine"), std::string::npos);
  EXPECT_NE(reportOfAStep(session).find("\"backend_why\": \"virtual memory, as asked for\""), std::string::npos);
  pumpgraph_session_destroy(session);
}

TEST(DoctorTest, worksWithoutADriver) {
  char *text = pumpgraph_doctor();
  ASSERT_NE(text, nullptr);
  EXPECT_NE(std::string(text).find("host memory"), std::string::npos);
  pumpgraph_string_free(text);
}

} // namespace
