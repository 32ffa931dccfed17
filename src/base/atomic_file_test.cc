#include "base/atomic_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "tests/gguf_testing.h"

namespace varve {
namespace atomic_file_test {

namespace fs = std::filesystem;

Status Write(const std::string& path, std::string_view text, FileOps* ops = SystemFileOps()) {
  return WriteFile(path, std::as_bytes(std::span(text)), ops);
}

std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(WriteFile, ReplacesWhatWasThere) {
  const TempFolder folder;
  const std::string path = folder.File("a");
  ASSERT_TRUE(Write(path, "first").ok());
  ASSERT_TRUE(Write(path, std::string(200000, 'x')).ok());
  EXPECT_EQ(ContentOf(path), std::string(200000, 'x'));
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path).parent_path()), {}), 1);
}

TEST(WriteFile, ALinkStaysOneAndItsTargetIsReplaced) {
  const TempFolder folder;
  ASSERT_TRUE(Write(folder.File("target"), "old").ok());
  fs::create_symlink(folder.File("target"), folder.File("link"));
  ASSERT_TRUE(Write(folder.File("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(folder.File("link")));
  EXPECT_EQ(ContentOf(folder.File("target")), "new");
}

TEST(WriteFile, DevicesAreWrittenWhereTheyStand) {
  EXPECT_TRUE(Write("/dev/null", "text").ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  const Status full = Write("/dev/full", "text");
  EXPECT_EQ(full.code(), StatusCode::kIoError);
  EXPECT_EQ(full.message(), "/dev/full: cannot be written: No space left on device");
}

TEST(WriteFile, SaysWhyNot) {
  const TempFolder folder;
  EXPECT_EQ(Write(folder.File("no/such"), "x").message(),
            folder.File("no/such") + ": cannot be created: No such file or directory");
  fs::create_directory(folder.File("folder"));
  EXPECT_EQ(Write(folder.File("folder"), "x").message(),
            folder.File("folder") + ": cannot be opened: Is a directory");
}

class FullDisk final : public FileOps {
 public:
  ssize_t Write(int, const std::byte*, size_t) override {
    errno = ENOSPC;
    return -1;
  }
};

TEST(WriteFile, AFullDiskLeavesTheOldFileAndNothingElse) {
  const TempFolder folder;
  const std::string path = folder.File("a");
  ASSERT_TRUE(Write(path, "old").ok());
  FullDisk disk;
  EXPECT_EQ(Write(path, "new", &disk).message(),
            path + ": cannot be written: No space left on device");
  EXPECT_EQ(ContentOf(path), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path).parent_path()), {}), 1);
}

// No descriptor for a folder, as where the process has no more or may not read it.
class NoFolder final : public FileOps {
 public:
  int OpenDirectory(const std::string&) override {
    errno = EMFILE;
    return -1;
  }
};

TEST(WriteFile, AFolderThatCannotBeOpenedLeavesTheOldFileAndNothingElse) {
  const TempFolder folder;
  const std::string path = folder.File("a");
  ASSERT_TRUE(Write(path, "old").ok());
  NoFolder ops;
  EXPECT_EQ(Write(path, "new", &ops).message(),
            path + ": its directory cannot be opened: Too many open files");
  EXPECT_EQ(ContentOf(path), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path).parent_path()), {}), 1);
}

// Somebody else has a file of every name that is tried.
class TakenNames final : public FileOps {
 public:
  int Create(const std::string& path) override {
    std::ofstream(path) << "theirs";
    taken = path;
    return FileOps::Create(path);
  }
  std::string taken;
};

TEST(WriteFile, RemovesNoFileThatItHasNotMade) {
  const TempFolder folder;
  TakenNames ops;
  EXPECT_EQ(Write(folder.File("a"), "new", &ops).message(),
            folder.File("a") + ": cannot be created: File exists");
  EXPECT_EQ(ContentOf(ops.taken), "theirs");
}

// Counts what is open.
class CountingOps final : public FileOps {
 public:
  int Create(const std::string& path) override { return Opened(FileOps::Create(path)); }
  int OpenDirectory(const std::string& path) override {
    return Opened(FileOps::OpenDirectory(path));
  }
  int Close(int file) override {
    --open;
    return FileOps::Close(file);
  }
  int open = 0;

 private:
  int Opened(int file) {
    if (file >= 0) ++open;
    return file;
  }
};

TEST(WriteFile, ClosesWhatItHasOpened) {
  const TempFolder folder;
  CountingOps ops;
  EXPECT_TRUE(Write(folder.File("a"), "text", &ops).ok());
  EXPECT_EQ(ops.open, 0);
  // A file that is given up.
  { EXPECT_TRUE(AtomicFile::Create(folder.File("a"), &ops).ok()); }
  EXPECT_EQ(ops.open, 0);
  EXPECT_EQ(ContentOf(folder.File("a")), "text");
}

}  // namespace atomic_file_test
}  // namespace varve
