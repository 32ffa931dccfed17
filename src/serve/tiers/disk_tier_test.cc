// The disk tier: what goes in comes out, the budget holds to the byte, the least valuable page goes
// first, and whatever happens to the files costs pages, never right ones.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "serve/tiers/disk_backend.h"
#include "serve/tiers/page_tier_testing.h"
#include "serve/tiers/threaded_tier.h"
#include "tests/gguf_testing.h"

namespace varve::serve {
namespace disk_tier_test {

uint64_t FolderBytes(const std::string& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) bytes += entry.file_size();
  return bytes;
}

std::vector<std::string> Segments(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename() != "lock") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::unique_ptr<DiskBackend> OpenDisk(const std::string& folder, uint64_t max_bytes,
                                      FileOps* files = SystemFileOps()) {
  Result<std::unique_ptr<DiskBackend>> disk = DiskBackend::Open({folder, max_bytes, 0, files});
  EXPECT_EQ(disk.status().ToString(), "ok");
  return std::move(*disk);
}

void WriteOne(DiskBackend& disk, uint64_t page, size_t bytes, double value) {
  const PageItem item = {KeyOf(page), ImageOf(page, bytes), value};
  disk.Write({&item, 1});
}

PageImage ReadOne(DiskBackend& disk, uint64_t page) {
  const PageKey key = KeyOf(page);
  PageImage image;
  disk.Read({&key, 1}, Soon(), [&](size_t, PageImage got) { image = std::move(got); });
  return image;
}

bool Has(DiskBackend& disk, uint64_t page) {
  const PageKey key = KeyOf(page);
  return disk.Contains({&key, 1}, Soon())[0];
}

TierStats StatsOf(const DiskBackend& disk) {
  TierStats stats;
  disk.AddTo(&stats);
  return stats;
}

TEST(DiskTier, GivesBackWhatItWasGiven) {
  const TempFolder folder;
  const auto disk = OpenDisk(folder.File("pages"), 1 << 20);
  for (uint64_t page = 0; page < 20; ++page) WriteOne(*disk, page, 1000 * page, 1);
  for (uint64_t page = 0; page < 20; ++page) {
    ASSERT_NE(ReadOne(*disk, page), nullptr);
    EXPECT_EQ(*ReadOne(*disk, page), *ImageOf(page, 1000 * page));
  }
  EXPECT_EQ(ReadOne(*disk, 20), nullptr);
  EXPECT_EQ(StatsOf(*disk).pages, 20u);
}

TEST(DiskTier, KnowsItsPagesAfterARestart) {
  const TempFolder folder;
  for (uint64_t round = 0; round < 4; ++round) {
    const auto disk = OpenDisk(folder.File("pages"), 4 << 20);
    EXPECT_EQ(StatsOf(*disk).pages, round * 10);
    for (uint64_t page = 0; page < 10; ++page) WriteOne(*disk, round * 10 + page, 3000, 1);
    for (uint64_t page = 0; page < round * 10 + 10; ++page)
      ASSERT_EQ(*ReadOne(*disk, page), *ImageOf(page, 3000));
  }
}

TEST(DiskTier, KeepsItsBudgetToTheByte) {
  for (const uint64_t budget : {kMinDiskBytes, uint64_t{200'003}, uint64_t{1} << 20}) {
    const TempFolder folder;
    const auto disk = OpenDisk(folder.File("pages"), budget);
    uint64_t most = 0;
    for (uint64_t page = 0; page < 600; ++page) {
      const size_t bytes = 100 + page * 7919 % (budget / 24);
      WriteOne(*disk, page, bytes, static_cast<double>(page * 31 % 17));
      most = std::max(most, FolderBytes(folder.File("pages")));
      ASSERT_LE(most, budget);
      ASSERT_EQ(StatsOf(*disk).bytes_held, FolderBytes(folder.File("pages")));
    }
    EXPECT_GT(most, budget * 3 / 4);
    EXPECT_GT(StatsOf(*disk).evicted, 50u);
    EXPECT_GT(StatsOf(*disk).pages, 5u);
  }
}

TEST(DiskTier, ForgetsTheLeastValuableFirst) {
  const TempFolder folder;
  const auto disk = OpenDisk(folder.File("pages"), 1 << 20);
  for (uint64_t page = 0; page < 2000; ++page)
    WriteOne(*disk, page, 4000, static_cast<double>(page * 7919 % 2000));
  const uint64_t kept = StatsOf(*disk).pages;
  ASSERT_GT(kept, 120u);
  // The most valuable pages are all there. Where cleaning has just made room, any page is taken.
  uint64_t cheap = 0;
  for (uint64_t page = 0; page < 2000; ++page) {
    const uint64_t rank = 1999 - page * 7919 % 2000;
    if (rank < kept * 3 / 4) {
      EXPECT_TRUE(Has(*disk, page)) << rank;
    }
    if (rank > kept * 2 && Has(*disk, page)) ++cheap;
  }
  EXPECT_LT(cheap, kept / 8);
  EXPECT_GT(kept, 200u);
  // Worth less than all that is there: not taken.
  const uint64_t dropped = StatsOf(*disk).dropped_room;
  WriteOne(*disk, 5000, 4000, -1);
  EXPECT_EQ(StatsOf(*disk).dropped_room, dropped + 1);
  EXPECT_FALSE(Has(*disk, 5000));
}

TEST(DiskTier, GivesAPageThatIsPutAgainItsNewValue) {
  const TempFolder folder;
  const auto disk = OpenDisk(folder.File("pages"), 256 << 10);
  WriteOne(*disk, 0, 4000, 0);
  WriteOne(*disk, 0, 4000, 100);
  EXPECT_EQ(StatsOf(*disk).known, 1u);
  for (uint64_t page = 1; page < 300; ++page) WriteOne(*disk, page, 4000, 1);
  EXPECT_TRUE(Has(*disk, 0));
  EXPECT_EQ(*ReadOne(*disk, 0), *ImageOf(0, 4000));
}

TEST(DiskTier, CutsOffATornTail) {
  const TempFolder folder;
  const std::string path = folder.File("pages");
  {
    const auto disk = OpenDisk(path, 1 << 20);
    for (uint64_t page = 0; page < 5; ++page) WriteOne(*disk, page, 1000, 1);
  }
  const std::string segment = Segments(path).front();
  const uint64_t whole = std::filesystem::file_size(segment);
  for (uint64_t cut = 1; cut < 1056; cut += 50) {
    std::filesystem::resize_file(segment, whole - cut);
    const auto disk = OpenDisk(path, 1 << 20);
    EXPECT_EQ(StatsOf(*disk).pages, 4u);
    EXPECT_EQ(std::filesystem::file_size(segment), whole - 1056);
    EXPECT_FALSE(Has(*disk, 4));
    WriteOne(*disk, 4, 1000, 1);
    EXPECT_EQ(*ReadOne(*disk, 4), *ImageOf(4, 1000));
    for (const std::string& other : Segments(path)) {
      if (other != segment) std::filesystem::remove(other);
    }
    std::filesystem::resize_file(segment, whole);  // a hole: no header there
  }
}

TEST(DiskTier, NeverGivesBytesThatWereChanged) {
  const TempFolder folder;
  const std::string path = folder.File("pages");
  {
    const auto disk = OpenDisk(path, 1 << 20);
    for (uint64_t page = 0; page < 3; ++page) WriteOne(*disk, page, 500, 1);
  }
  const std::string segment = Segments(path).front();
  const uint64_t size = std::filesystem::file_size(segment);
  for (uint64_t at = 0; at < size; at += 11) {
    const std::string copy = folder.File("copy" + std::to_string(at));
    std::filesystem::create_directories(copy);
    const std::string changed = copy + "/segment-00000001";
    std::filesystem::copy_file(segment, changed);
    std::fstream file(changed, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get() ^ 4;
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte));
    file.close();
    const auto disk = OpenDisk(copy, 1 << 20);
    int right = 0;
    for (uint64_t page = 0; page < 3; ++page) {
      const PageImage image = ReadOne(*disk, page);
      if (image == nullptr) continue;
      ASSERT_EQ(*image, *ImageOf(page, 500));
      ++right;
    }
    EXPECT_LT(right, 3) << at;
    EXPECT_GT(StatsOf(*disk).damaged + StatsOf(*disk).errors + static_cast<uint64_t>(3 - right),
              0u);
    std::filesystem::remove_all(copy);
  }
}

// Writes fail, whole or in the middle, once so many bytes have been written.
class FullDisk final : public FileOps {
 public:
  ssize_t Write(int file, const std::byte* data, size_t bytes) override {
    const auto room = static_cast<size_t>(std::max<int64_t>(0, left));
    if (room == 0) {
      errno = reason;
      return -1;
    }
    const ssize_t written = FileOps::Write(file, data, std::min(bytes, room));
    left -= written;
    return written;
  }
  std::atomic<int64_t> left = 50'000;
  int reason = ENOSPC;
};

TEST(DiskTier, DropsPagesWhenTheDiskIsFullAndGoesOn) {
  for (const int reason : {ENOSPC, EIO}) {
    const TempFolder folder;
    FullDisk full;
    full.reason = reason;
    {
      const auto disk = OpenDisk(folder.File("pages"), 1 << 20, &full);
      for (uint64_t page = 0; page < 40; ++page) WriteOne(*disk, page, 3000, 1);
      const TierStats stats = StatsOf(*disk);
      EXPECT_EQ(stats.stored, 16u);
      EXPECT_EQ(reason == ENOSPC ? stats.dropped_room : stats.dropped_error, 24u);
      EXPECT_FALSE(stats.last_error.empty());
      for (uint64_t page = 0; page < 16; ++page)
        ASSERT_EQ(*ReadOne(*disk, page), *ImageOf(page, 3000));
      full.left = 1 << 20;
      WriteOne(*disk, 50, 3000, 1);
      EXPECT_EQ(*ReadOne(*disk, 50), *ImageOf(50, 3000));
    }
    EXPECT_EQ(StatsOf(*OpenDisk(folder.File("pages"), 1 << 20)).pages, 17u);
  }
}

TEST(DiskTier, ShrinksToASmallerBudget) {
  const TempFolder folder;
  const std::string path = folder.File("pages");
  {
    const auto disk = OpenDisk(path, 4 << 20);
    for (uint64_t page = 0; page < 500; ++page)
      WriteOne(*disk, page, 6000, static_cast<double>(page));
  }
  const auto disk = OpenDisk(path, 512 << 10);
  EXPECT_LE(FolderBytes(path), uint64_t{512} << 10);
  EXPECT_GT(StatsOf(*disk).pages, 30u);
  EXPECT_TRUE(Has(*disk, 499));
}

TEST(DiskTier, BelongsToOneProcess) {
  const TempFolder folder;
  const auto disk = OpenDisk(folder.File("pages"), 1 << 20);
  const auto second = DiskBackend::Open({folder.File("pages"), 1 << 20, 0, SystemFileOps()});
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(DiskBackend::Open({"/proc/none/x", 1 << 20, 0, SystemFileOps()}).status().code(),
            StatusCode::kIoError);
  EXPECT_EQ(DiskBackend::Open({folder.File("small"), 1000, 0, SystemFileOps()}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(DiskTier, AnswersManyThreadsWhileItWritesBehind) {
  const TempFolder folder;
  ThreadedTier tier(OpenDisk(folder.File("pages"), 2 << 20), 1 << 20);
  std::vector<std::thread> threads;
  std::atomic<uint64_t> hits = 0;
  for (uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&tier, &hits, thread] {
      for (uint64_t i = 0; i < 300; ++i) {
        const uint64_t page = thread * 1000 + i;
        tier.Put(KeyOf(page), ImageOf(page, 2000), 1);
        const uint64_t other = (thread + 1) % 4 * 1000 + i * 7 % 300;
        const std::vector<PageKey> keys = {KeyOf(page), KeyOf(other)};
        const std::vector<PageImage> images = tier.Get(keys, Soon());
        if (images[0]) {
          EXPECT_EQ(*images[0], *ImageOf(page, 2000));
        }
        if (images[1]) {
          EXPECT_EQ(*images[1], *ImageOf(other, 2000));
        }
        hits += (images[0] != nullptr) + (images[1] != nullptr);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(tier.Flush(Soon()));
  const TierStats stats = tier.Stats();
  EXPECT_EQ(stats.hits, hits);
  EXPECT_EQ(stats.hits + stats.misses, 2400u);
  EXPECT_GT(stats.hits, 1200u);
  EXPECT_EQ(stats.bytes_queued, 0u);
}

}  // namespace disk_tier_test
}  // namespace varve::serve
