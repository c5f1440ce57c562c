// SPDX-License-Identifier: Apache-2.0
// Values brought to their addresses between replays, of plans that are drawn: what is read is what was written last,
// whatever shares frames with whatever, and afterwards every value is where a replay expects it.
#include "runtime/lower/Residence.h"
#include "test/unit/runtime/MemoryTest.h"

#include <random>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

constexpr std::uint64_t planFrames = 8;
constexpr BufferIndex exclusive = 0, present = 1, scratch = 2, buffers = 8;

/// A plan in force whose buffers share frames as `random` has it, and every page's value, by its first word.
class Drawn : public MemoryTest {
public:
  explicit Drawn(std::uint32_t seed) : random_(seed) {
    openMemory(3 * planFrames);
    stream_ = fake_.createStream();
    draw();
    residence_ = std::make_unique<Residence>(
        MemoryTools{driver_, *addresses_, *frames_, *host_, *mapper_, *heap_, stream_, departures_}, lowered_, blocks_);
    EXPECT_TRUE(residence_->pin());
    for (BufferIndex buffer = 0; buffer < buffers; ++buffer)
      write(buffer);
    EXPECT_TRUE(residence_->install());
  }
  ~Drawn() override {
    residence_->abandon();
    EXPECT_TRUE(driver_.streamDestroy(stream_));
  }
  void TestBody() override {}

  std::uint32_t below(std::uint32_t limit) { return random_() % limit; }

  /// Some buffers, brought at the same time.
  void bring() {
    std::vector<BufferIndex> chosen;
    std::vector<BlockId> blocks;
    for (BufferIndex buffer = 0; buffer < buffers; ++buffer)
      if (below(4) == 0) {
        chosen.push_back(buffer);
        blocks.push_back(blocks_[buffer]);
      }
    const Use use = below(2) == 0 ? Use::Read : Use::Write;
    const std::uint64_t before = departures_;
    const Status done = residence_->bring(blocks, use);
    ASSERT_TRUE(done) << done.error().message;
    if (departures_ != before)
      brought_.clear();
    for (const BufferIndex buffer : chosen)
      brought_[buffer] = brought_[buffer] || use == Use::Write;
    look();
    for (const auto &[buffer, mayWrite] : brought_)
      if (mayWrite && below(2) == 0)
        write(buffer);
  }

  void pin() {
    const BufferIndex buffer = below(buffers);
    const std::uint64_t before = departures_;
    ASSERT_TRUE(residence_->lend(blocks_[buffer]));
    if (departures_ != before)
      brought_.clear();
    pinned_.insert(buffer);
    expectAtAddress(buffer);
    write(buffer);
  }
  void unpin() {
    if (pinned_.empty())
      return;
    const BufferIndex buffer = *pinned_.begin();
    pinned_.erase(pinned_.begin());
    ASSERT_TRUE(residence_->giveBack(blocks_[buffer]));
    if (pinned_.empty())
      expectSettled();
  }

  void settle() {
    while (!pinned_.empty())
      unpin();
    ASSERT_TRUE(residence_->settle());
    expectSettled();
  }

  /// All that has to be at its address is there.
  void look() {
    for (const auto &[buffer, mayWrite] : brought_)
      expectAtAddress(buffer);
    for (const BufferIndex buffer : pinned_)
      expectAtAddress(buffer);
    for (const BufferIndex buffer : {exclusive, present})
      expectAtAddress(buffer);
  }

  void takeBack() {
    settle();
    ASSERT_TRUE(residence_->remove(Keep::EveryBlock));
    for (BufferIndex buffer = 0; buffer < buffers; ++buffer)
      expectAtAddress(buffer);
  }

private:
  void draw() {
    lowered_.stage = Stage::LoweredVirtual;
    std::set<std::int32_t> holding; // a value at the boundary
    std::set<std::int32_t> exclusives;
    for (BufferIndex index = 0; index < buffers; ++index) {
      const std::uint64_t pages = 1 + below(3);
      pointers_.push_back(reinterpret_cast<void *>(*heap_->allocate(pages * pageBytes, stream_, "buffer")));
      Buffer &buffer = lowered_.buffers.emplace_back();
      buffer.name = fmt::format("buffer {}", index);
      buffer.address = reinterpret_cast<std::uintptr_t>(pointers_[index]);
      buffer.size = pages * pageBytes;
      buffer.isPrivate = index != exclusive;
      buffer.isPresent = index == present;
      buffer.liveIn = buffer.liveOut = index != scratch;
      blocks_.push_back(heap_->find(buffer.address)->block);
      values_.emplace_back(pages, 0);
      for (std::uint64_t page = 0; page < pages; ++page) {
        const Range range{page * pageBytes, pageBytes};
        const bool stays = index == exclusive || index == present;
        if (!stays && index != scratch && below(6) == 0) {
          buffer.frames.push_back(noFrame);
          buffer.hosted.push_back(range);
          continue;
        }
        std::int32_t frame = noFrame;
        do
          frame = static_cast<std::int32_t>(below(planFrames));
        while (exclusives.contains(frame) || (stays && holding.contains(frame)));
        if (index == exclusive)
          exclusives.insert(frame);
        const bool isResident = stays || (index != scratch && !holding.contains(frame) && below(3) != 0);
        buffer.frames.push_back(!isResident && below(8) == 0 ? noFrame : frame);
        if (!isResident)
          continue;
        holding.insert(frame);
        if (index != exclusive)
          buffer.resident.push_back(range);
        if (!stays && below(2) == 0)
          buffer.mirrored.push_back(range);
      }
    }
  }

  std::uint64_t &word(BufferIndex buffer, std::uint64_t page) {
    return *reinterpret_cast<std::uint64_t *>(static_cast<char *>(pointers_[buffer]) + page * pageBytes);
  }
  void write(BufferIndex buffer) {
    for (std::uint64_t page = 0; page < values_[buffer].size(); ++page)
      word(buffer, page) = values_[buffer][page] = ++written_;
  }
  /// A buffer without a value at the boundary holds anything.
  void expectAtAddress(BufferIndex buffer) {
    for (std::uint64_t page = 0; buffer != scratch && page < values_[buffer].size(); ++page)
      ASSERT_EQ(word(buffer, page), values_[buffer][page]) << "page " << page << " of buffer " << buffer;
  }
  void expectSettled() {
    brought_.clear();
    for (BufferIndex buffer = 0; buffer < buffers; ++buffer) {
      std::vector<char> bytes(values_[buffer].size() * pageBytes);
      ASSERT_TRUE(residence_->readValue(blocks_[buffer], bytes.data()));
      ASSERT_EQ(residence_->firstStale(blocks_[buffer], bytes.data()), std::nullopt);
      for (std::uint64_t page = 0; buffer != scratch && page < values_[buffer].size(); ++page)
        ASSERT_EQ(*reinterpret_cast<std::uint64_t *>(bytes.data() + page * pageBytes), values_[buffer][page])
            << "page " << page << " of buffer " << buffer;
    }
    ASSERT_EQ(fake_.hostBackings(), hostedRuns());
  }
  std::uint64_t hostedRuns() const {
    std::uint64_t runs = 0;
    for (const Buffer &buffer : lowered_.buffers)
      runs += buffer.hosted.size();
    return runs;
  }

  std::mt19937 random_;
  CUstream stream_ = nullptr;
  std::uint64_t departures_ = 0;
  Description lowered_;
  std::vector<void *> pointers_;
  std::vector<BlockId> blocks_;
  std::vector<std::vector<std::uint64_t>> values_;
  std::map<BufferIndex, bool> brought_; ///< and whether to be written
  std::multiset<BufferIndex> pinned_;
  std::uint64_t written_ = 0;
  std::unique_ptr<Residence> residence_;
};

TEST(Loans, AreTrueInDrawnPlans) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Drawn drawn(seed);
    for (int turn = 0; turn < 40 && !::testing::Test::HasFatalFailure(); ++turn)
      switch (drawn.below(8)) {
      case 0:
        drawn.settle();
        break;
      case 1:
        drawn.pin();
        break;
      case 2:
        drawn.unpin();
        break;
      default:
        drawn.bring();
      }
    drawn.takeBack();
    if (::testing::Test::HasFailure())
      return;
  }
}

} // namespace
