// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver/KernelQueues.h"

#include <cstdlib>
#include <gtest/gtest.h>

namespace pumpgraph::runtime {
namespace {

class KernelQueuesTest : public ::testing::Test {
protected:
  void SetUp() override { unsetenv(KernelQueues::variable); }
  void TearDown() override { unsetenv(KernelQueues::variable); }

  static void give(const char *text) { setenv(KernelQueues::variable, text, 1); }
  static const char *told() { return std::getenv(KernelQueues::variable); }
};

TEST_F(KernelQueuesTest, whoIsFirstGetsFew) {
  EXPECT_TRUE(settleKernelQueues(QueueWish::Few, false).areFew());
  EXPECT_STREQ(told(), "2");
  // The next session finds the driver initialised, and what it was told.
  EXPECT_TRUE(settleKernelQueues(QueueWish::Few, true).areFew());
}

TEST_F(KernelQueuesTest, whatNobodyWishesForIsLeftAlone) {
  EXPECT_EQ(settleKernelQueues(QueueWish::Any, false).count, KernelQueues::byDefault);
  EXPECT_EQ(told(), nullptr);
}

TEST_F(KernelQueuesTest, anInitialisedDriverIsToldNothing) {
  EXPECT_EQ(settleKernelQueues(QueueWish::Few, true).count, KernelQueues::byDefault);
  EXPECT_EQ(told(), nullptr);
}

TEST_F(KernelQueuesTest, whatTheProgramSaysStands) {
  give("16");
  EXPECT_EQ(settleKernelQueues(QueueWish::Few, false).count, 16);
  EXPECT_STREQ(told(), "16");
  give("1");
  EXPECT_EQ(settleKernelQueues(QueueWish::Any, false).count, 1);
}

TEST_F(KernelQueuesTest, whatIsNoNumberSaysNothing) {
  for (const char *text : {"", "many", "2x", "0", "-1"}) {
    give(text);
    EXPECT_EQ(settleKernelQueues(QueueWish::Few, false).count, KernelQueues::byDefault) << text;
  }
}

} // namespace
} // namespace pumpgraph::runtime
