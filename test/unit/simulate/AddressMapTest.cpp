// SPDX-License-Identifier: Apache-2.0
#include "passes/simulate/AddressMap.h"

#include "test/unit/simulate/PagedStep.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

using test::PagedStep;

/// a -> b -> c, each dead after its reader.
struct Chain {
  PagedStep paged;
  BufferIndex a = paged.local("a", 2), b = paged.local("b", 3), c = paged.local("c", 2);

  Chain() {
    paged.kernel(1, {paged.write(a)});
    paged.kernel(1, {paged.read(a), paged.write(b)});
    paged.kernel(1, {paged.read(b), paged.write(c)});
    paged.kernel(1, {paged.read(c)});
  }
};

TEST(AddressMap, OwnAddressesAddUp) {
  const Chain chain;
  const AddressMap map = mapAddresses(chain.paged.step, Addresses::Own);
  EXPECT_EQ(map.footprintBytes, 7 * blockBytes);
  EXPECT_EQ(map.offsets[chain.c], 5 * blockBytes);
}

// "c" is born when "a" is dead, and as large.
TEST(AddressMap, AnAddressIsHandedOn) {
  const Chain chain;
  const AddressMap map = mapAddresses(chain.paged.step, Addresses::Reused);
  EXPECT_EQ(map.footprintBytes, 5 * blockBytes);
  EXPECT_EQ(map.offsets[chain.c], map.offsets[chain.a]);
}

// "a" is read once more after "b" is born.
TEST(AddressMap, AnAddressIsKeptUpToTheLastTouch) {
  PagedStep paged;
  const BufferIndex a = paged.local("a", 2), b = paged.local("b", 2);
  paged.kernel(1, {paged.write(a)});
  paged.kernel(1, {paged.write(b)});
  paged.kernel(1, {paged.read(a)});
  const AddressMap map = mapAddresses(paged.step, Addresses::Reused);
  EXPECT_NE(map.offsets[a], map.offsets[b]);
  EXPECT_EQ(map.footprintBytes, 4 * blockBytes);
}

TEST(AddressMap, ALiveBufferKeepsItsAddress) {
  Chain chain;
  chain.paged.step.buffers[chain.a].liveIn = true;
  const AddressMap map = mapAddresses(chain.paged.step, Addresses::Reused);
  EXPECT_NE(map.offsets[chain.c], map.offsets[chain.a]);
}

// Neighbouring holes become one.
TEST(AddressMap, HolesJoin) {
  PagedStep paged;
  const BufferIndex a = paged.local("a", 1), b = paged.local("b", 1), c = paged.local("c", 1), d = paged.local("d", 3);
  paged.kernel(1, {paged.write(a), paged.write(b), paged.write(c)});
  paged.kernel(1, {paged.read(b)});
  paged.kernel(1, {paged.read(a)});
  paged.kernel(1, {paged.read(c)});
  paged.kernel(1, {paged.write(d)});
  EXPECT_EQ(mapAddresses(paged.step, Addresses::Reused).footprintBytes, 3 * blockBytes);
}

TEST(AddressMap, WhatNothingTouchesHasNoAddress) {
  PagedStep paged;
  const BufferIndex unused = paged.live("unused", 4), pinned = paged.exclusive("pinned", 4);
  paged.kernel(1, {paged.read(pinned)});
  const AddressMap map = mapAddresses(paged.step, Addresses::Own);
  EXPECT_EQ(map.offsets[unused], noAddress);
  EXPECT_EQ(map.offsets[pinned], noAddress);
  EXPECT_EQ(map.footprintBytes, 0U);
}

} // namespace
} // namespace pumpgraph
