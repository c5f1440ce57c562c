// SPDX-License-Identifier: Apache-2.0
// Operands brought to the device before operators that together need more than the budget. Whatever moves, every value
// is at its address.
#include "runtime/memory/Paging.h"
#include "test/unit/runtime/MemoryTest.h"

#include <algorithm>
#include <random>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

constexpr std::uint64_t budgetFrames = 8;

class Paged : public MemoryTest {
public:
  explicit Paged(std::uint64_t frames = budgetFrames) {
    openMemory(frames);
    stream_ = fake_.createStream();
    paging_ = std::make_unique<Paging>(driver_, *frames_, *host_, *heap_);
    paging_->begin(stream_, {});
  }
  ~Paged() override {
    paging_.reset();
    EXPECT_TRUE(driver_.streamDestroy(stream_));
  }
  void TestBody() override {}

  /// As a session does it.
  Expected<CUdeviceptr> tryAllocate(std::uint64_t bytes) {
    heap_->makeRoomBy(&paging_->maker());
    const Expected<CUdeviceptr> address = heap_->allocate(bytes, stream_, "buffer");
    heap_->makeRoomBy(nullptr);
    if (address)
      paging_->allocated(heap_->find(*address)->block);
    return address;
  }
  CUdeviceptr allocate(std::uint64_t bytes) {
    const Expected<CUdeviceptr> address = tryAllocate(bytes);
    EXPECT_TRUE(address) << (address ? "" : address.error().message);
    write(*address, bytes);
    return *address;
  }
  void free(CUdeviceptr address) {
    ASSERT_TRUE(heap_->free(address, stream_));
    values_.erase(address);
  }
  Status use(const std::vector<CUdeviceptr> &addresses) {
    std::vector<BlockId> blocks;
    for (const CUdeviceptr address : addresses)
      blocks.push_back(blockOf(address).id);
    return paging_->use(blocks);
  }

  const Block &blockOf(CUdeviceptr address) const { return heap_->block(heap_->find(address)->block); }
  bool isOnDevice(CUdeviceptr address) const { return fake_.isOnDevice(reinterpret_cast<void *>(address)); }
  void write(CUdeviceptr address, std::uint64_t bytes) {
    values_[address].assign(pagesFor(bytes), 0);
    rewrite(address);
  }
  void rewrite(CUdeviceptr address) {
    for (std::uint64_t page = 0; page < values_[address].size(); ++page)
      word(address, page) = values_[address][page] = ++written_;
  }
  void look() const {
    lookAtValues();
    ASSERT_LE(frames_->created(), frames_->budgetFrames());
    ASSERT_EQ(fake_.deviceFrames(), frames_->created());
  }
  void lookAtValues() const {
    for (const auto &[address, pages] : values_)
      for (std::uint64_t page = 0; page < pages.size(); ++page)
        ASSERT_EQ(word(address, page), pages[page]) << "page " << page << " of block " << blockOf(address).id;
  }
  void expectSettled() const {
    for (const BlockId id : heap_->blocks())
      EXPECT_NE(heap_->block(id).backing, Backing::Piece) << id;
    std::uint64_t hosted = 0;
    for (const BlockId id : heap_->blocks())
      hosted += heap_->block(id).backing == Backing::Host ? 1 : 0;
    EXPECT_EQ(fake_.hostBackings(), hosted);
  }

  using MemoryTest::fake_, MemoryTest::frames_, MemoryTest::heap_, MemoryTest::host_, MemoryTest::driver_;
  CUstream stream_ = nullptr;
  std::unique_ptr<Paging> paging_;
  std::map<CUdeviceptr, std::vector<std::uint64_t>> values_; ///< by page

private:
  static std::uint64_t &word(CUdeviceptr address, std::uint64_t page) {
    return *reinterpret_cast<std::uint64_t *>(address + page * pageBytes);
  }
  std::uint64_t written_ = 0;
};

// What is allocated has device memory, and what was used least recently makes room for it.
TEST(Paging, GivesWhatIsAllocatedDeviceMemory) {
  Paged test;
  std::vector<CUdeviceptr> made;
  for (int i = 0; i < 8; ++i) {
    made.push_back(test.allocate(2 * pageBytes));
    EXPECT_TRUE(test.isOnDevice(made.back())) << i;
  }
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(test.isOnDevice(made[i]), i >= 4) << i;
  EXPECT_EQ(test.paging_->movedBytes(), 4 * 2 * pageBytes);
  test.look();
}

// Operands come to the device; those of the operator itself do not leave for each other.
TEST(Paging, BringsOperandsToTheDevice) {
  Paged test;
  const CUdeviceptr first = test.allocate(3 * pageBytes), second = test.allocate(3 * pageBytes),
                    third = test.allocate(3 * pageBytes), fourth = test.allocate(4 * pageBytes);
  ASSERT_TRUE(test.use({first, fourth}));
  EXPECT_TRUE(test.isOnDevice(first) && test.isOnDevice(fourth));
  ASSERT_TRUE(test.use({second, first}));
  EXPECT_TRUE(test.isOnDevice(first) && test.isOnDevice(second));
  ASSERT_TRUE(test.use({third, first, second})); // no room for all three
  EXPECT_EQ(test.isOnDevice(first) + test.isOnDevice(second) + test.isOnDevice(third), 2);
  test.look();
}

// What a library allocates once and works in goes last: no operator names it.
TEST(Paging, KeepsWhatNobodyWasSeenToUse) {
  Paged test;
  const CUdeviceptr workspace = test.allocate(2 * pageBytes);
  for (int i = 0; i < 6; ++i)
    ASSERT_TRUE(test.use({test.allocate(2 * pageBytes)}));
  EXPECT_TRUE(test.isOnDevice(workspace));
  ASSERT_TRUE(test.use({}));
  for (int i = 0; i < 3; ++i)
    test.allocate(2 * pageBytes);
  EXPECT_TRUE(test.isOnDevice(workspace));
  test.allocate(2 * pageBytes);
  EXPECT_FALSE(test.isOnDevice(workspace));
  test.look();
}

// Memory of a size that was there before costs no call of the driver that creates memory.
TEST(Paging, UsesMemoryAgain) {
  Paged test(4);
  const CUdeviceptr a = test.allocate(2 * pageBytes), b = test.allocate(2 * pageBytes),
                    c = test.allocate(2 * pageBytes);
  for (const CUdeviceptr operand : {a, b, c, a})
    ASSERT_TRUE(test.use({operand}));
  const std::uint64_t created = test.fake_.callsOf("cuMemCreate");
  for (const CUdeviceptr operand : {b, c, a, b, c})
    ASSERT_TRUE(test.use({operand}));
  EXPECT_EQ(test.fake_.callsOf("cuMemCreate"), created);
  test.look();
}

// What the program's own graphs and steps left as captured have is where it was when they were captured.
TEST(Paging, LeavesFixedBlocksAlone) {
  Paged test(4);
  const CUdeviceptr fixed = test.allocate(3 * pageBytes);
  test.paging_->begin(test.stream_, {test.blockOf(fixed).id});
  const CUdeviceptr other = test.allocate(3 * pageBytes);
  EXPECT_TRUE(test.isOnDevice(fixed));
  EXPECT_FALSE(test.isOnDevice(other));
  ASSERT_TRUE(test.use({other}));
  EXPECT_FALSE(test.isOnDevice(other));
  test.look();
}

// Without it an allocation beyond the budget is in host memory, as ever.
TEST(Paging, IsOverAtTheEnd) {
  Paged test(4);
  const CUdeviceptr first = test.allocate(3 * pageBytes);
  test.paging_->end();
  EXPECT_FALSE(test.paging_->isOf(test.stream_));
  const Expected<CUdeviceptr> second = test.heap_->allocate(3 * pageBytes, test.stream_, "");
  ASSERT_TRUE(second);
  EXPECT_TRUE(test.isOnDevice(first) && !test.isOnDevice(*second));
}

// A piece gives way to frames, and what is in host memory comes back as far as there are some, the last used first.
TEST(Paging, EndsWithFrames) {
  Paged test;
  std::vector<CUdeviceptr> made;
  for (int i = 0; i < 5; ++i)
    made.push_back(test.allocate(2 * pageBytes));
  test.free(made[3]);
  ASSERT_TRUE(test.paging_->settle());
  test.expectSettled();
  for (const int i : {0, 1, 2, 4})
    EXPECT_TRUE(test.isOnDevice(made[i])) << i;
  test.look();
}

// Where host memory runs out too, an allocation fails as ever, and nothing has changed.
TEST(Paging, KeepsToTheHostLimit) {
  Paged test(4);
  std::vector<CUdeviceptr> made;
  Expected<CUdeviceptr> next = 0;
  while ((next = test.tryAllocate(4 * pageBytes))) {
    made.push_back(*next);
    test.write(*next, 4 * pageBytes);
  }
  EXPECT_EQ(next.error().status, PUMPGRAPH_OUT_OF_HOST_MEMORY);
  EXPECT_GE(made.size(), 16u); // 64 pages of the host
  test.look();
  for (const CUdeviceptr operand : made)
    ASSERT_TRUE(test.use({operand}));
  test.look();
}

TEST(Paging, IsTrueInDrawnPrograms) {
  for (std::uint32_t seed = 1; seed <= 15; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t limit) { return static_cast<std::uint32_t>(random() % limit); };
    Paged test(4 + below(8));
    for (int turn = 0; turn < 120 && !::testing::Test::HasFatalFailure(); ++turn) {
      std::vector<CUdeviceptr> known;
      for (const auto &[address, pages] : test.values_)
        known.push_back(address);
      const auto any = [&] { return known[below(static_cast<std::uint32_t>(known.size()))]; };
      const std::uint32_t what = below(10);
      if (known.empty() || (what < 3 && known.size() < 12))
        test.allocate(below(3) == 0 ? 4096 : (1 + below(4)) * pageBytes - below(1000));
      else if (what < 5)
        test.free(any());
      else if (what == 5)
        test.rewrite(any()); // unseen
      else if (what == 6 && below(4) == 0) {
        ASSERT_TRUE(test.paging_->settle());
        test.expectSettled();
        test.paging_->begin(test.stream_, {});
      } else {
        std::vector<CUdeviceptr> operands(1 + below(3));
        std::generate(operands.begin(), operands.end(), any);
        ASSERT_TRUE(test.use(operands));
        test.rewrite(operands[0]);
      }
      test.look();
    }
    ASSERT_TRUE(test.paging_->settle());
    test.expectSettled();
    test.look();
    if (::testing::Test::HasFailure())
      return;
  }
}

// Where a call of the driver fails, values are where they were, and the next attempt succeeds.
TEST(FailingPaging, LeavesValuesAtTheirAddresses) {
  int failed = 0;
  for (const char *call :
       {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemcpyDtoDAsync", "cuCtxSynchronize"})
    for (int nth = 1; nth <= 6; ++nth) {
      SCOPED_TRACE(fmt::format("{} {}", call, nth));
      Paged test(4);
      const CUdeviceptr first = test.allocate(2 * pageBytes), second = test.allocate(2 * pageBytes),
                        third = test.allocate(2 * pageBytes);
      test.fake_.failCall(call, nth, CUDA_ERROR_UNKNOWN);
      const Status used = test.use({first});
      const Expected<CUdeviceptr> fourth = test.tryAllocate(pageBytes + 1);
      const Status settled = test.paging_->settle();
      test.fake_.stopFailing(call);
      failed += used && fourth && settled ? 0 : 1;
      const bool isUnmapped = std::string_view(call) != "cuMemUnmap"; // else the driver keeps it
      const auto look = [&] { isUnmapped ? test.look() : test.lookAtValues(); };
      look();
      ASSERT_TRUE(test.paging_->settle());
      look();
      test.paging_->begin(test.stream_, {});
      for (const CUdeviceptr operand : {second, third, first})
        ASSERT_TRUE(test.use({operand}));
      look();
    }
  EXPECT_GT(failed, 20);
}

} // namespace
