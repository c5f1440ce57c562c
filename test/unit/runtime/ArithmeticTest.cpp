// SPDX-License-Identifier: Apache-2.0
// Declared arithmetic: the time that it takes on a device, the node that gets it, and the estimate of the step.
#include "runtime/capture/Arithmetic.h"
#include "test/unit/runtime/Program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

constexpr double gigaOperations = 1e9;

double microseconds(const FakeDriver::Options &device, double operations, ArithmeticKind kind) {
  const FakeDriver fake(device);
  return ArithmeticSpeed::of(*fake.table(), 0).microseconds(operations, kind);
}

// 2048 x 2048 x 2048 on an H200: 61.8 Tflops of fp32 at its boost clock, 989 of half, of which kernels reach 50 and 70
// %.
TEST(ArithmeticSpeed, isAShareOfThePeak) {
  const FakeDriver::Options h200{.computeCapability = {9, 0}, .multiprocessors = 132, .clockMegahertz = 1830};
  constexpr double product = 2.0 * 2048 * 2048 * 2048;
  EXPECT_NEAR(microseconds(h200, product, ArithmeticKind::Fp32), product / (0.5 * 61.8e6), 1);
  EXPECT_NEAR(microseconds(h200, product, ArithmeticKind::Tf32), product / (0.7 * 494.7e6), 0.1);
  EXPECT_NEAR(microseconds(h200, product, ArithmeticKind::Half), product / (0.7 * 989.4e6), 0.1);
  EXPECT_NEAR(microseconds(h200, product, ArithmeticKind::Fp8), product / (0.7 * 1978.9e6), 0.1);
  EXPECT_EQ(microseconds(h200, product, ArithmeticKind::Unknown), 0);
  EXPECT_EQ(microseconds(h200, 0, ArithmeticKind::Half), 0);
}

TEST(ArithmeticSpeed, isThatOfTheArchitecture) {
  const auto half = [](int major, int minor) {
    return microseconds({.computeCapability = {major, minor}}, gigaOperations, ArithmeticKind::Half);
  };
  EXPECT_GT(half(8, 6), half(8, 0));
  EXPECT_EQ(half(8, 7), half(8, 6));
  EXPECT_EQ(half(10, 3), half(10, 0));
  for (const int older : {6, 11, 13})
    EXPECT_EQ(half(older, 0), 0) << older;
}

// What a device has no instructions for is not computed there in that format.
TEST(ArithmeticSpeed, isUnknownWithoutInstructions) {
  const FakeDriver::Options volta{.computeCapability = {7, 0}};
  EXPECT_EQ(microseconds(volta, gigaOperations, ArithmeticKind::Fp8), 0);
  EXPECT_GT(microseconds(volta, gigaOperations, ArithmeticKind::Tf32), 0);
}

FakeKernel &kernel(const char *name) {
  static std::map<std::string, FakeKernel> kernels;
  return kernels.try_emplace(name, FakeKernel{name, {8}, [](const FakeKernel::Arguments &) {}}).first->second;
}

class ArithmeticTest : public ::testing::Test {
protected:
  void open(const FakeDriver::Options &device) {
    fake_ = std::make_unique<FakeDriver>(device);
    Expected<std::unique_ptr<Session>> made = openSession(*fake_, 64, PUMPGRAPH_COMPILER_LIBRARY);
    ASSERT_TRUE(made) << messageOf(made);
    session_ = std::move(*made);
    stream_ = fake_->createStream();
    small_ = allocate(pageBytes);
    large_ = allocate(8 * pageBytes);
  }

  void *allocate(std::uint64_t bytes) {
    const Expected<void *> made = session_->allocate(bytes, nullptr, "");
    EXPECT_TRUE(made) << messageOf(made);
    return made ? *made : nullptr;
  }

  void declare(double operations, ArithmeticKind kind) {
    const Status said = session_->declareArithmetic(stream_, operations, kind);
    EXPECT_TRUE(said) << messageOf(said);
  }

  /// A helper, a product and another helper; then a sum, of which nothing is declared.
  CUgraph capture(double operations, ArithmeticKind kind) {
    EXPECT_TRUE(session_->captureBegin());
    EXPECT_TRUE(fake_->table()->streamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    fake_->launch(stream_, kernel("pad"), {bytesOf(small_)});
    fake_->launch(stream_, kernel("product"), {bytesOf(large_)});
    fake_->launch(stream_, kernel("unpad"), {bytesOf(small_)});
    declare(operations, kind);
    fake_->launch(stream_, kernel("sum"), {bytesOf(large_)});
    declare(0, ArithmeticKind::Unknown);
    CUgraph graph = nullptr;
    EXPECT_TRUE(fake_->table()->streamEndCapture(stream_, &graph));
    EXPECT_TRUE(session_->captureEnd());
    return graph;
  }

  Step *adopt(CUgraph graph) {
    const Expected<Step *> step = session_->adopt(graph, {.keepFirstPlan = true, .ownsGraph = true});
    EXPECT_TRUE(step) << messageOf(step);
    return step ? *step : nullptr;
  }

  static double estimatedUs(Step *step) {
    return nlohmann::json::parse(step->report()).at("in_memory_s").get<double>() * 1e6;
  }

  static std::vector<double> arithmeticOf(Step *step) {
    std::vector<double> us;
    for (const Node &node : step->captured().nodes)
      us.push_back(node.arithmeticUs);
    return us;
  }

  std::unique_ptr<FakeDriver> fake_;
  std::unique_ptr<Session> session_;
  CUstream stream_ = nullptr;
  void *small_ = nullptr, *large_ = nullptr;
};

/// 100 multiprocessors at 1 GHz with 256 operations of fp32 in a clock.
constexpr double fp32PerUs = 0.5 * 100 * 256 * 1e3;
constexpr double productUs = 5000;

TEST_F(ArithmeticTest, theLargestKernelOfAGroupGetsIt) {
  open({});
  Step *plain = adopt(capture(0, ArithmeticKind::Unknown));
  const double bytesUs = estimatedUs(plain);
  EXPECT_EQ(arithmeticOf(plain), std::vector<double>(4, 0));
  session_->destroy(plain);

  Step *step = adopt(capture(productUs * fp32PerUs, ArithmeticKind::Fp32));
  const std::vector<double> found = arithmeticOf(step);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_NEAR(found[1], productUs, 1e-6);
  EXPECT_EQ(found[0] + found[2] + found[3], 0);
  EXPECT_GT(estimatedUs(step), productUs);
  EXPECT_LT(estimatedUs(step), productUs + bytesUs);

  // The file has it, and no node time: nothing was measured.
  const std::string path = ::testing::TempDir() + "/arithmetic-test.mlir";
  ASSERT_TRUE(step->save(path));
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(text.find("arithmetic(5000.0"), std::string::npos) << text;
  EXPECT_EQ(text.find("cost("), std::string::npos) << text;
}

// A caller that watches the rehearsal alone declares nothing in the capture that counts.
TEST_F(ArithmeticTest, carriesOverFromTheRehearsal) {
  open({});
  const CUgraph first = capture(productUs * fp32PerUs, ArithmeticKind::Fp32);
  ASSERT_TRUE(session_->rehearse(first));
  Step *step = adopt(capture(0, ArithmeticKind::Unknown));
  EXPECT_NEAR(arithmeticOf(step).at(1), productUs, 1e-6);
  EXPECT_GT(estimatedUs(step), productUs);
  session_->destroy(step);
  fake_->destroyGraph(first);
}

TEST_F(ArithmeticTest, measuredTimesReplaceIt) {
  kernel("product").milliseconds = 2;
  open({});
  Step *step = adopt(capture(productUs * fp32PerUs, ArithmeticKind::Fp32));
  ASSERT_TRUE(step->measure(3));
  const Node &product = step->captured().nodes[1];
  EXPECT_LT(product.costUs, productUs / 2);
  EXPECT_NEAR(product.arithmeticUs, productUs, 1e-6);
  kernel("product").milliseconds = 0;
}

TEST_F(ArithmeticTest, unknownDevicesCountBytesAlone) {
  open({.computeCapability = {6, 1}});
  Step *step = adopt(capture(productUs * fp32PerUs, ArithmeticKind::Fp32));
  EXPECT_EQ(arithmeticOf(step), std::vector<double>(4, 0));
}

} // namespace
