// Files that are shortened while they are mapped.

#include "base/mapping_guard.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "base/mapped_file.h"

namespace varve {
namespace mapping_guard_test {

constexpr size_t kPage = 4096;

std::unique_ptr<const MappedFile> OpenFile(const std::string& path) {
  Result<std::unique_ptr<const MappedFile>> file = MappedFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? std::move(*file) : nullptr;
}

class MappedFileThatShrinks : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "varve_mapping_guard_test.bin";
    std::ofstream(path_, std::ios::binary) << std::string(4 * kPage, 'x');
  }
  void TearDown() override { std::remove(path_.c_str()); }
  std::string path_;
};

TEST_F(MappedFileThatShrinks, ReadsAsZerosAndSaysSo) {
  const auto file = OpenFile(path_);
  const auto other = OpenFile(path_);
  EXPECT_EQ(file->bytes()[3 * kPage], std::byte{'x'});
  std::filesystem::resize_file(path_, kPage);
  EXPECT_EQ(file->bytes()[0], std::byte{'x'});
  EXPECT_FALSE(file->damaged());
  EXPECT_EQ(file->bytes()[2 * kPage + 5], std::byte{0});
  EXPECT_EQ(file->bytes()[4 * kPage - 1], std::byte{0});
  EXPECT_TRUE(file->damaged());
  EXPECT_FALSE(other->damaged());  // nobody has read there
}

TEST_F(MappedFileThatShrinks, PlacesAreUsedAgain) {
  for (size_t i = 0; i < 2 * MappingGuard::kMaxGuards; ++i)
    ASSERT_TRUE(MappedFile::Open(path_).ok());
  const auto file = OpenFile(path_);
  std::filesystem::resize_file(path_, 1);
  EXPECT_EQ(file->bytes()[kPage], std::byte{0});
  EXPECT_TRUE(file->damaged());
}

TEST(MappingGuardDeathTest, OtherFaultsAreNotOurs) {
  EXPECT_DEATH(
      {
        const std::string path = testing::TempDir() + "varve_mapping_guard_other.bin";
        std::ofstream(path, std::ios::binary) << std::string(kPage, 'x');
        const auto file = OpenFile(path);
        std::remove(path.c_str());
        raise(SIGBUS);
      },
      "");
}

}  // namespace mapping_guard_test
}  // namespace varve
