// SPDX-License-Identifier: Apache-2.0
/// \file
/// The runtime's memory on the fake driver, for tests of its parts below sessions.
#pragma once

#include "runtime/memory/Heap.h"
#include "test/unit/runtime/FakeDriver.h"

#include <gtest/gtest.h>

#include <memory>

namespace pumpgraph::runtime::test {

class MemoryTest : public ::testing::Test {
protected:
  void openMemory(std::uint64_t frames) {
    Expected<std::unique_ptr<AddressSpace>> addresses = AddressSpace::reserve(driver_);
    ASSERT_TRUE(addresses);
    addresses_ = std::move(*addresses);
    frames_ = std::make_unique<FramePool>(driver_, 0, frames);
    host_ = std::make_unique<HostMemory>(driver_, 0, 64 * pageBytes);
    mapper_ = std::make_unique<PageMapper>(driver_, 0, *frames_);
    heap_ = std::make_unique<Heap>(driver_, *addresses_, *frames_, *host_, *mapper_);
  }

  FakeDriver fake_;
  const Driver &driver_ = *fake_.table();
  std::unique_ptr<AddressSpace> addresses_;
  std::unique_ptr<FramePool> frames_;
  std::unique_ptr<HostMemory> host_;
  std::unique_ptr<PageMapper> mapper_;
  std::unique_ptr<Heap> heap_;
};

} // namespace pumpgraph::runtime::test
