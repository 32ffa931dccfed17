// Tiers as one, what they have learned about their times, and fetching ahead.

#include "serve/tiers/page_tiers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/timer.h"
#include "serve/tiers/fetch_estimate.h"
#include "serve/tiers/page_fetcher.h"
#include "serve/tiers/page_record.h"
#include "serve/tiers/page_tier_testing.h"
#include "serve/tiers/write_queue.h"
#include "tests/gguf_testing.h"

namespace varve::serve {
namespace page_tiers_test {

// Pages in memory, behind a wait.
class SlowTier final : public PageTier {
 public:
  const char* name() const override { return "slow"; }
  void Put(const PageKey& key, PageImage image, double) override { pages[key] = std::move(image); }
  std::vector<PageImage> Get(std::span<const PageKey> keys, TierClock::time_point end) override {
    ++gets;
    deadline = end;
    std::this_thread::sleep_for(wait);
    std::vector<PageImage> images;
    for (const PageKey& key : keys) images.push_back(pages.contains(key) ? pages[key] : nullptr);
    return images;
  }
  std::vector<bool> Contains(std::span<const PageKey> keys, TierClock::time_point) override {
    return std::vector<bool>(keys.size());
  }
  bool IsQueued(const PageKey&) const override { return false; }
  double ExpectedSeconds(size_t num_pages) const override {
    return expected * static_cast<double>(num_pages);
  }
  bool Flush(TierClock::time_point) override { return true; }
  TierStats Stats() const override { return {}; }

  std::map<PageKey, PageImage> pages;
  std::chrono::milliseconds wait{0};
  double expected = 0;
  // By any thread.
  std::atomic<int> gets = 0;
  std::atomic<TierClock::time_point> deadline;
};

struct TwoTiers {
  TwoTiers() {
    auto first = std::make_unique<SlowTier>();
    auto second = std::make_unique<SlowTier>();
    near = first.get();
    far = second.get();
    std::vector<std::unique_ptr<PageTier>> list;
    list.push_back(std::move(first));
    list.push_back(std::move(second));
    tiers = std::make_unique<PageTiers>(std::move(list));
    for (uint64_t page = 0; page < 10; ++page) chain.push_back(KeyOf(page));
  }
  void Put(SlowTier* tier, uint64_t page) { tier->Put(KeyOf(page), ImageOf(page, 100), 1); }

  SlowTier* near;
  SlowTier* far;
  std::unique_ptr<PageTiers> tiers;
  std::vector<PageKey> chain;
};

TEST(PageTiers, JoinWhatTheyHaveIntoOneChain) {
  TwoTiers two;
  for (const uint64_t page : {0u, 1u, 4u, 7u}) two.Put(two.near, page);
  for (const uint64_t page : {2u, 3u, 5u, 8u}) two.Put(two.far, page);
  const std::vector<PageImage> images = two.tiers->Fetch(two.chain, {1, 5, 0});
  ASSERT_EQ(images.size(), 6u);
  for (uint64_t page = 0; page < 6; ++page) EXPECT_EQ(*images[page], *ImageOf(page, 100));
  // What was far is near now.
  EXPECT_EQ(two.near->pages.size(), 8u);
  EXPECT_EQ(two.far->pages.size(), 4u);
  EXPECT_EQ(two.tiers->Fetch(std::span(two.chain).first(6), {1, 5, 0}).size(), 6u);
  EXPECT_EQ(two.far->gets, 1);
}

TEST(PageTiers, AskOnlyWhereThatIsFasterThanComputing) {
  TwoTiers two;
  for (uint64_t page = 0; page < 10; ++page) two.Put(two.far, page);
  two.far->expected = 0.2;
  EXPECT_TRUE(two.tiers->Fetch(two.chain, {0.1, 5, 0}).empty());
  EXPECT_EQ(two.far->gets, 0);
  EXPECT_EQ(two.tiers->pages_skipped(), 10u);
  EXPECT_EQ(two.tiers->Fetch(two.chain, {0.3, 5, 0}).size(), 10u);
  // Nor longer than a request may wait at all.
  EXPECT_TRUE(two.tiers->Fetch(two.chain, {0.3, 1, 0}).size() <= 10);
}

TEST(PageTiers, WaitNoLongerThanComputingTakes) {
  TwoTiers two;
  const TierClock::time_point before = TierClock::now();
  two.tiers->Fetch(two.chain, {0.05, 5, 0});
  EXPECT_GE(two.far->deadline.load(), before + std::chrono::milliseconds(500));
  EXPECT_LE(two.far->deadline.load(), TierClock::now() + std::chrono::milliseconds(500));
  two.tiers->Fetch(two.chain, {10, 2, 0});
  EXPECT_LE(two.far->deadline.load(), TierClock::now() + std::chrono::seconds(2));
}

TEST(PageTiers, AreOpenedAsTheSettingsSay) {
  const TempFolder folder;
  TierSettings settings;
  EXPECT_TRUE((*OpenTiers(settings))->empty());
  settings.disk_folder = folder.File("pages");
  settings.disk_bytes = 1 << 20;
  EXPECT_EQ((*OpenTiers(settings))->tiers().size(), 1u);
  settings.redis_url = "redis://127.0.0.1:1";
  if (HasRedis()) {
    EXPECT_EQ((*OpenTiers(settings))->tiers().size(), 2u);
    settings.redis_url = "http://nonsense";
    EXPECT_EQ(OpenTiers(settings).status().code(), StatusCode::kInvalidArgument);
  } else {
    EXPECT_EQ(OpenTiers(settings).status().code(), StatusCode::kUnimplemented);
  }
}

TEST(PageFetcher, FetchesWhileOthersGoOn) {
  TwoTiers two;
  for (uint64_t page = 0; page < 10; ++page) two.Put(two.near, page);
  two.near->wait = std::chrono::milliseconds(50);
  std::atomic<int> done = 0;
  PageFetcher fetcher(two.tiers.get(), [&done] { ++done; });
  const Timer timer;
  const auto fetch = fetcher.Start(two.chain, {1, 5, 0});
  EXPECT_LT(timer.seconds(), 0.04);
  while (!fetch->IsDone()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(fetch->Take().size(), 10u);
  EXPECT_TRUE(fetch->Take().empty());
  const auto first = fetcher.Start(two.chain, {1, 5, 0});
  fetcher.Start(two.chain, {1, 5, 0});
  const auto cancelled = fetcher.Start(two.chain, {1, 5, 0});
  cancelled->Cancel();
  while (done < 4) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(cancelled->Take().empty());
  EXPECT_EQ(first->Take().size(), 10u);
}

TEST(FetchEstimate, TellsTheTimeOfAFetchFromThatOfAPage) {
  FetchEstimate estimate;
  const TierClock::time_point now = TierClock::now();
  EXPECT_EQ(estimate.Seconds(10, now), 0);
  for (int i = 0; i < 40; ++i) {
    const size_t pages = 1 + static_cast<size_t>(i * 7 % 20);
    estimate.Observe(pages, 0.1 + 0.01 * static_cast<double>(pages), now);
  }
  EXPECT_NEAR(estimate.Seconds(1, now), 0.11, 0.01);
  EXPECT_NEAR(estimate.Seconds(100, now), 1.1, 0.1);
  // Fades, so that it is tried again.
  EXPECT_NEAR(estimate.Seconds(1, now + FetchEstimate::kHalfLife), 0.055, 0.006);
  // Learns anew within some ten fetches.
  for (int i = 0; i < 30; ++i) estimate.Observe(5, 1, now);
  EXPECT_NEAR(estimate.Seconds(5, now), 1, 0.1);
}

TEST(WriteQueue, HoldsItsBytesAndFindsWhatWaits) {
  WriteQueue queue(1000);
  EXPECT_EQ(queue.Push({KeyOf(1), ImageOf(1, 600), 1}), WriteQueue::Pushed::kQueued);
  EXPECT_EQ(queue.Push({KeyOf(1), ImageOf(1, 600), 1}), WriteQueue::Pushed::kKnown);
  EXPECT_EQ(queue.Push({KeyOf(2), ImageOf(2, 401), 1}), WriteQueue::Pushed::kFull);
  EXPECT_EQ(queue.Push({KeyOf(2), ImageOf(2, 400), 1}), WriteQueue::Pushed::kQueued);
  EXPECT_EQ(queue.bytes(), 1000u);
  const std::vector<PageItem> items = queue.Pop(1, 100);
  ASSERT_EQ(items.size(), 1u);
  EXPECT_NE(queue.Find(KeyOf(1)), nullptr);
  EXPECT_FALSE(queue.WaitUntilEmpty(After(0.01)));
  queue.Done(items);
  EXPECT_EQ(queue.Find(KeyOf(1)), nullptr);
  EXPECT_EQ(queue.bytes(), 400u);
  queue.Done(queue.Pop(8, 10'000));
  EXPECT_TRUE(queue.WaitUntilEmpty(After(1)));
  queue.Stop();
  EXPECT_TRUE(queue.Pop(1, 1).empty());
  EXPECT_EQ(queue.Push({KeyOf(3), ImageOf(3, 1), 1}), WriteQueue::Pushed::kFull);
}

TEST(PageRecord, ChecksEveryBit) {
  const PageImage image = ImageOf(3, 300);
  const RecordHeader header = MakeRecordHeader(KeyOf(3), *image, 2.5);
  const RecordHeaderBytes bytes = WriteRecordHeader(header);
  const RecordHeader read = *ReadRecordHeader(bytes);
  EXPECT_EQ(read.key, KeyOf(3));
  EXPECT_EQ(read.value, 2.5);
  EXPECT_TRUE(CheckRecordImage(read, KeyOf(3), *image).ok());
  EXPECT_EQ(CheckRecordImage(read, KeyOf(4), *image).code(), StatusCode::kDataLoss);
  EXPECT_FALSE(CheckRecordImage(read, KeyOf(3), std::span(*image).first(299)).ok());
  for (size_t bit = 0; bit < 8 * kRecordHeaderBytes; ++bit) {
    RecordHeaderBytes changed = bytes;
    changed[bit / 8] ^= std::byte{static_cast<unsigned char>(1 << (bit % 8))};
    EXPECT_EQ(ReadRecordHeader(changed).status().code(), StatusCode::kDataLoss) << bit;
  }
  for (size_t at = 0; at < image->size(); ++at) {
    std::vector<std::byte> changed = *image;
    changed[at] ^= std::byte{32};
    EXPECT_FALSE(CheckRecordImage(read, KeyOf(3), changed).ok()) << at;
  }
}

}  // namespace page_tiers_test
}  // namespace varve::serve
