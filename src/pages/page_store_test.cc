#include "pages/page_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "pages/page_testing.h"
#include "tests/cache_file_testing.h"
#include "tests/cache_testing.h"
#include "tests/gguf_testing.h"

namespace varve {
namespace page_store_test {

// Payloads by index; byte i of page n is n + i. Page kDamaged fails its check, page kTooLarge finds
// no memory to be read with.
class FakeSource final : public PageSource {
 public:
  static constexpr uint64_t kDamaged = 7;
  static constexpr uint64_t kTooLarge = 8;
  Status Read(uint64_t index, const Page& page, std::byte* to) const override {
    if (index == kDamaged) return DataLoss("page 7 is damaged");
    if (index == kTooLarge) throw std::bad_alloc();
    for (size_t i = 0; i < page.bytes; ++i) to[i] = static_cast<std::byte>(index + i);
    return Status();
  }
  Status ReadPacked(uint64_t index, const Page&, PackedStrips* to) const override {
    to->bytes.assign(100, static_cast<std::byte>(index));
    to->ends = {25, 50, 75, 100};
    return Status();
  }
};

PackedStrips StripsOf(size_t bytes, std::byte value) {
  const auto quarter = static_cast<uint32_t>(bytes / 4);
  return {std::vector<std::byte>(bytes, value),
          {quarter, 2 * quarter, 3 * quarter, static_cast<uint32_t>(bytes)},
          nullptr};
}

class PageStoreTest : public testing::Test {
 protected:
  PageRef MakeIn(PageStore& store, PageState life = PageState::kSealed) {
    Result<PageRef> page = store.Make(0, 0, life, f16_, f16_);
    EXPECT_OK(page.status());
    if (page.ok()) std::memset((*page)->raw(), 0x3C, (*page)->bytes);
    return page.ok() ? *page : PageRef();
  }
  PageRef Make(PageState life = PageState::kSealed) { return MakeIn(store_, life); }
  static std::string RungsText(const PageStore& store) {
    CacheReport report;
    store.AddTo(&report);
    std::string text;
    for (const RungBytes& rung : report.rungs) {
      text += rung.rung + ":" + std::to_string(static_cast<int>(rung.state)) + " " +
              std::to_string(rung.pages) + " " + std::to_string(rung.bytes) + "; ";
    }
    return text;
  }
  static CacheReport ReportOf(const PageStore& store) {
    CacheReport report;
    store.AddTo(&report);
    return report;
  }

  const Rung& f16_ = TestRung("f16");
  const Rung& q8_ = TestRung("q8_0");
  std::unique_ptr<Executor> executor_ = MakeThreadPool(2);
  CountingMemory memory_;
  PageStore store_{SmallPageShape(), PoolShare(&memory_, 0)};
};

TEST_F(PageStoreTest, AccountsFollowEveryChangeOfAPage) {
  // f16: 2 heads * (K + V) * 16 rows * 64 bytes; q8_0: 34 bytes for 32 values.
  PageRef open = Make(PageState::kFilling);
  EXPECT_EQ(RungsText(store_), "f16:0 1 4096; ");
  store_.SetLife(open.get(), PageState::kFull);
  EXPECT_EQ(RungsText(store_), "f16:1 1 4096; ");
  PageRef mixed = *store_.Make(0, 16, PageState::kSealed, f16_, q8_);
  EXPECT_EQ(RungsText(store_), "f16:1 1 4096; f16/q8_0:2 1 3136; ");
  ASSERT_OK(store_.Pack(mixed.get(), StripsOf(1000, std::byte{1})));
  EXPECT_EQ(RungsText(store_), "f16:1 1 4096; f16/q8_0:3 1 1000; ");
  EXPECT_EQ(ReportOf(store_).bytes_used, 5096u);
  mixed = PageRef();
  open = PageRef();
  EXPECT_EQ(RungsText(store_), "");
  EXPECT_EQ(ReportOf(store_).bytes_used, 0u);
  EXPECT_EQ(ReportOf(store_).pages, 0u);
}

TEST_F(PageStoreTest, APageLivesAsLongAsSomeReference) {
  PageRef first = Make();
  PageRef second = first;
  first = PageRef();
  EXPECT_EQ(ReportOf(store_).pages, 1u);
  EXPECT_EQ(second->raw()[100], std::byte{0x3C});
  second = PageRef();
  EXPECT_EQ(ReportOf(store_).pages, 0u);
}

TEST_F(PageStoreTest, AnUnreadPageTakesMemoryWhenItIsReadAndNotBefore) {
  const auto source = std::make_shared<FakeSource>();
  const PageRef raw = store_.MakeUnread(0, 0, PageState::kSealed, f16_, f16_, {source, 3, 0});
  const PageRef packed = store_.MakeUnread(0, 16, PageState::kSealed, f16_, f16_, {source, 5, 100});
  EXPECT_EQ(memory_.maps, 0);
  EXPECT_EQ(store_.num_unread(), 2u);
  EXPECT_EQ(ReportOf(store_).bytes_unread, 4096u + 100u);
  EXPECT_EQ(packed->state(), PageState::kPacked);
  // One that is named twice is read once.
  Page* const pages[] = {raw.get(), packed.get(), raw.get()};
  ASSERT_OK(store_.Read(pages, executor_.get()));
  EXPECT_EQ(store_.num_unread(), 0u);
  EXPECT_EQ(raw->raw()[10], std::byte{13});
  ASSERT_NE(packed->packed(), nullptr);
  EXPECT_EQ(packed->packed()->packed->Strip(2).size(), 25u);
  EXPECT_EQ(packed->packed()->packed->data[99], std::byte{5});
  EXPECT_EQ(RungsText(store_), "f16:2 1 4096; f16:3 1 100; ");
}

TEST_F(PageStoreTest, APageThatFailsItsCheckStaysUnreadAndKeepsNoMemory) {
  const auto source = std::make_shared<FakeSource>();
  const PageRef good = store_.MakeUnread(0, 0, PageState::kSealed, f16_, f16_, {source, 1, 0});
  const PageRef bad =
      store_.MakeUnread(0, 16, PageState::kSealed, f16_, f16_, {source, FakeSource::kDamaged, 0});
  Page* const pages[] = {bad.get(), good.get()};
  EXPECT_EQ(store_.Read(pages, executor_.get()).ToString(),
            DataLoss("page 7 is damaged").ToString());
  EXPECT_NE(bad->unread(), nullptr);
  EXPECT_TRUE(good->HasRaw());
  EXPECT_EQ(store_.num_unread(), 1u);
  EXPECT_EQ(ReportOf(store_).bytes_used, 4096u);
}

TEST_F(PageStoreTest, AReadThatThrowsKeepsNoMemory) {
  const auto source = std::make_shared<FakeSource>();
  memory_.throws = true;
  // Of a pool that others may share it counts used slots alone: warm ones do not hide a lost one.
  PageStore store(SmallPageShape(), PoolShare(std::make_shared<PagePool>(&memory_, 0)));
  const auto unread = [&](const Rung& rung, uint64_t index, uint64_t packed_bytes) {
    return store.MakeUnread(0, 0, PageState::kSealed, rung, rung, {source, index, packed_bytes});
  };
  const PageRef f16 = unread(f16_, 1, 0);
  const PageRef q8 = unread(q8_, 2, 0);
  const PageRef packed = unread(f16_, 3, 100);
  const PageRef large = unread(f16_, FakeSource::kTooLarge, 0);
  const auto read = [&](std::vector<Page*> pages, int maps) {
    memory_.maps_left = maps;
    EXPECT_THROW((void)store.Read(pages, executor_.get()).ok(), std::bad_alloc);
  };
  // A slab of the second size; bytes of a page; the arena, where no page has been read in before.
  read({f16.get(), q8.get()}, 1);
  EXPECT_EQ(store.bytes_held(), 0u);
  read({f16.get(), large.get(), q8.get()}, 2);
  EXPECT_EQ(store.bytes_held(), 0u);
  read({packed.get(), f16.get(), q8.get()}, 0);
  EXPECT_EQ(store.bytes_held(), 0u);
  EXPECT_EQ(store.num_unread(), 4u);
  memory_.maps_left = -1;
  ASSERT_OK(store.Read(std::vector<Page*>{f16.get(), packed.get(), q8.get()}, executor_.get()));
  EXPECT_EQ(f16->raw()[10], std::byte{11});
  EXPECT_EQ(store.num_unread(), 1u);
}

TEST_F(PageStoreTest, APackedPageTakesItsPackedBytesAndCanComeBack) {
  const PageRef page = Make();
  page->pack_tried = true;
  ASSERT_OK(store_.Pack(page.get(), StripsOf(800, std::byte{9})));
  EXPECT_FALSE(page->HasRaw());
  EXPECT_EQ(page->HeldBytes(), 800u);
  EXPECT_EQ(store_.raw_bytes(), 0u);
  const PageSlot slot = *store_.TakeRaw(*page);
  std::memset(slot.data, 0x11, page->bytes);
  store_.SetRaw(page.get(), slot);
  EXPECT_EQ(store_.restored().count(page.get()), 1u);
  EXPECT_EQ(store_.raw_bytes(), SlotBytes(page->bytes));
  EXPECT_EQ(page->HeldBytes(), 800u);  // what is restored belongs to the decode cache
  store_.Unpack(page.get());
  EXPECT_EQ(page->state(), PageState::kSealed);
  EXPECT_FALSE(page->pack_tried);
  EXPECT_EQ(page->raw()[5], std::byte{0x11});
  EXPECT_EQ(store_.raw_bytes(), 0u);
  EXPECT_TRUE(store_.restored().empty());
  EXPECT_EQ(RungsText(store_), "f16:2 1 4096; ");
}

TEST_F(PageStoreTest, PackingSavesWhatThePagesWouldTakeLessWhatTheArenaHolds) {
  EXPECT_EQ(store_.BytesSaved(), 0u);
  std::vector<PageRef> pages;
  for (int i = 0; i < 4; ++i) {
    pages.push_back(Make());
    ASSERT_OK(store_.Pack(pages.back().get(), StripsOf(1000, std::byte{1})));
  }
  // 4000 bytes lie in one system page of the arena.
  EXPECT_EQ(store_.BytesSaved(), 4 * SlotBytes(4096) - 4096);
  pages.clear();
  EXPECT_EQ(store_.BytesSaved(), 0u);
}

TEST_F(PageStoreTest, WithoutMemoryForItAPageIsNotPacked) {
  const PageRef page = Make();
  memory_.maps_left = 0;
  EXPECT_EQ(store_.Pack(page.get(), StripsOf(800, std::byte{9})).code(), StatusCode::kOutOfMemory);
  EXPECT_EQ(page->state(), PageState::kSealed);
  EXPECT_EQ(page->raw()[100], std::byte{0x3C});
  EXPECT_EQ(RungsText(store_), "f16:2 1 4096; ");
}

TEST_F(PageStoreTest, RestoredPagesMakeRoomForNewOnes) {
  // Room for a slot, a page of the arena and nothing else.
  PageStore store(SmallPageShape(), PoolShare(&memory_, 2 * 4096));
  PageRef packed = MakeIn(store);
  ASSERT_OK(store.Pack(packed.get(), StripsOf(400, std::byte{2})));
  store.SetRaw(packed.get(), *store.TakeRaw(*packed));
  EXPECT_EQ(store.TakeRaw(*packed).status().code(), StatusCode::kOutOfMemory);
  const PageRef fresh = MakeIn(store);
  ASSERT_TRUE(fresh);
  EXPECT_FALSE(packed->HasRaw());
  EXPECT_EQ(store.raw_bytes(), 0u);
}

class LimitedDisk final : public DiskSpace {
 public:
  int Allocate(int file, uint64_t offset, uint64_t bytes) override {
    return full ? ENOSPC : SystemDiskSpace()->Allocate(file, offset, bytes);
  }
  bool full = false;
};

TEST_F(PageStoreTest, SpillsWhatWasPackedFirstAndGivesTheDiskBack) {
  const TempFolder folder;
  LimitedDisk disk;
  Result<std::unique_ptr<SpillFile>> file =
      SpillFile::Create(folder.File("spill"), uint64_t{64} << 20, &disk);
  ASSERT_OK(file.status());
  const SpillFile& spill = **file;
  store_.SetSpill(std::move(*file));
  std::vector<PageRef> pages;
  for (int i = 0; i < 3; ++i) {
    pages.push_back(Make());
    ASSERT_OK(store_.Pack(pages.back().get(), StripsOf(1000, static_cast<std::byte>(i + 1))));
  }
  disk.full = true;
  store_.SpillDown(1500);
  EXPECT_EQ(ReportOf(store_).lossless.spill_refused, 1u);
  EXPECT_EQ(ReportOf(store_).lossless.pages_spilled, 0u);
  disk.full = false;
  store_.SpillDown(1500);
  EXPECT_EQ(ReportOf(store_).lossless.pages_spilled, 2u);
  EXPECT_EQ(ReportOf(store_).lossless.bytes_spilled, 2000u);
  EXPECT_TRUE(pages[0]->packed()->packed->spilled);
  EXPECT_TRUE(pages[1]->packed()->packed->spilled);
  EXPECT_FALSE(pages[2]->packed()->packed->spilled);
  // What memory forgets is read again from the file.
  store_.ForgetSpilled(*pages[1]);
  EXPECT_EQ(pages[1]->packed()->packed->data[999], std::byte{2});
  EXPECT_GT(spill.bytes_mapped(), 0u);
  pages.clear();
  EXPECT_EQ(spill.bytes_mapped(), 0u);
  EXPECT_EQ(ReportOf(store_).lossless.bytes_spilled, 0u);
}

TEST_F(PageStoreTest, WhoeverDiesFirstClearsTheLinkBetweenForms) {
  PageRef from = Make();
  PageRef to = Make();
  PageStore::SetSuccessor(from.get(), to.get());
  EXPECT_EQ(from->successor, to.get());
  to = PageRef();
  EXPECT_EQ(from->successor, nullptr);
  to = Make();
  PageStore::SetSuccessor(from.get(), to.get());
  from = PageRef();
  EXPECT_EQ(to->predecessor, nullptr);
}

TEST_F(PageStoreTest, ACopyHasTheRowsAndIsCounted) {
  const PageRef from = Make();
  from->rows = 11;
  from->raw()[77] = std::byte{0x42};
  const PageRef to = Make(PageState::kFilling);
  ASSERT_TRUE(store_.CopyContent(*from, to.get()).ok());
  EXPECT_EQ(to->rows, 11);
  EXPECT_EQ(to->raw()[77], std::byte{0x42});
  EXPECT_EQ(ReportOf(store_).bytes_copied, 4096u);
}

}  // namespace page_store_test
}  // namespace varve
