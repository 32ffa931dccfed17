#include "pages/spill_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cache_file_testing.h"
#include "tests/cache_testing.h"
#include "tests/gguf_testing.h"

namespace varve {
namespace spill_file_test {

constexpr size_t kRegion = size_t{2} << 20;

std::unique_ptr<SpillFile> Create(const std::string& path, uint64_t max_bytes,
                                  DiskSpace* disk = SystemDiskSpace()) {
  Result<std::unique_ptr<SpillFile>> file = SpillFile::Create(path, max_bytes, disk);
  EXPECT_OK(file.status());
  return std::move(*file);
}

TEST(SpillFile, KeepsWhatMemoryForgets) {
  const TempFolder folder;
  const std::string path = folder.File("spill");
  const std::unique_ptr<SpillFile> file = Create(path, 16 * kRegion);
  EXPECT_FALSE(std::filesystem::exists(path));  // vanishes with the process, however it ends
  std::byte* region = file->Map(kRegion);
  ASSERT_NE(region, nullptr);
  std::memset(region, 0x5A, kRegion);
  file->Forget(region + 100, kRegion - 200);
  for (size_t at = 0; at < kRegion; at += 1021) ASSERT_EQ(region[at], std::byte{0x5A}) << at;
  file->Unmap(region, kRegion);
  EXPECT_EQ(file->bytes_mapped(), 0u);
}

TEST(SpillFile, KeepsToItsCapAndUsesRoomAgain) {
  const TempFolder folder;
  const std::unique_ptr<SpillFile> file = Create(folder.File("spill"), 4 * kRegion);
  std::byte* regions[4];
  for (std::byte*& region : regions) {
    region = file->Map(kRegion);
    ASSERT_NE(region, nullptr);
    region[17] = std::byte{1};
  }
  EXPECT_EQ(file->Map(kRegion), nullptr);
  file->Unmap(regions[1], kRegion);
  file->Unmap(regions[2], kRegion);
  EXPECT_EQ(file->Map(3 * kRegion), nullptr);
  std::byte* joined = file->Map(2 * kRegion);
  ASSERT_NE(joined, nullptr);
  EXPECT_EQ(joined[17], std::byte{0});  // the disk had it back
  joined[2 * kRegion - 1] = std::byte{2};
  EXPECT_EQ(regions[0][17], std::byte{1});
  EXPECT_EQ(regions[3][17], std::byte{1});
  file->Unmap(joined, 2 * kRegion);
  file->Unmap(regions[3], kRegion);
  file->Unmap(regions[0], kRegion);
}

class FullDisk final : public DiskSpace {
 public:
  int Allocate(int, uint64_t, uint64_t) override { return ENOSPC; }
};

TEST(SpillFile, AFullDiskIsARefusal) {
  const TempFolder folder;
  FullDisk disk;
  const std::unique_ptr<SpillFile> file = Create(folder.File("spill"), 4 * kRegion, &disk);
  EXPECT_EQ(file->Map(kRegion), nullptr);
  EXPECT_EQ(file->bytes_mapped(), 0u);
}

TEST(SpillFile, TakesNoFileThatIsThere) {
  const TempFolder folder;
  const std::string path = folder.File("precious");
  WriteFileBytes(path, std::vector<std::byte>(10));
  const Status status = SpillFile::Create(path, kRegion).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(path), std::string::npos);
  EXPECT_EQ(ReadFileBytes(path).size(), 10u);
  EXPECT_EQ(SpillFile::Create(folder.File("no/such/folder"), kRegion).status().code(),
            StatusCode::kFailedPrecondition);
}

}  // namespace spill_file_test
}  // namespace varve
