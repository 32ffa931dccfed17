// A save that fails or dies, at every call of the system, leaves the old file or the new one.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "cache/cache_services.h"
#include "tests/cache/retention_testing.h"
#include "tests/cache_file_testing.h"
#include "tests/cache_testing.h"
#include "tests/gguf_testing.h"

namespace varve {
namespace cache_file_fault_test {

CacheShape SmallShape() { return ShapeOf({.layers = 2, .kv_heads = 2, .key_dim = 64}); }

const RetentionWork& Work() {
  static const RetentionWork work(SmallShape(), 400);
  return work;
}

// One thread: a child after fork() has no other.
RetentionRun MakeRun(int64_t tokens, const CacheServices& services = {}) {
  CacheOptions options;
  options.num_threads = 1;
  RetentionRun run(SmallShape(), "f16", Work(), options, services);
  run.records = false;
  run.Feed(*run.cache->CreateSequence(), tokens);
  return run;
}

// Passes every call on, to the system or to what stands in for it now.
class SwitchedOps final : public FileOps {
 public:
  int Create(const std::string& path) override { return to->Create(path); }
  int OpenDirectory(const std::string& path) override { return to->OpenDirectory(path); }
  ssize_t Write(int file, const std::byte* data, size_t bytes) override {
    return to->Write(file, data, bytes);
  }
  int Sync(int file) override { return to->Sync(file); }
  int Close(int file) override { return to->Close(file); }
  int Rename(const std::string& from, const std::string& into) override {
    return to->Rename(from, into);
  }
  int Remove(const std::string& path) override { return to->Remove(path); }

  FileOps* to = SystemFileOps();
};

CacheServices WithFiles(FileOps* ops) {
  CacheServices services;
  services.files = ops;
  return services;
}

// A cache whose saves may go through other calls of the system.
struct SavingRun {
  explicit SavingRun(int64_t tokens) : run(MakeRun(tokens, WithFiles(&ops))) {}
  Status SaveThrough(const std::string& path, FileOps* other) {
    ops.to = other;
    Status status = run.cache->Save(path, {});
    ops.to = SystemFileOps();
    return status;
  }

  SwitchedOps ops;
  RetentionRun run;
};

// Fails at the k-th call, after doing half of it if it is a write; all before are real.
class FailingOps : public FileOps {
 public:
  FailingOps(int fail_at, int error) : fail_at_(fail_at), error_(error) {}
  int Create(const std::string& path) override {
    return Fails("create") ? -1 : FileOps::Create(path);
  }
  int OpenDirectory(const std::string& path) override {
    return Fails("open directory") ? -1 : FileOps::OpenDirectory(path);
  }
  ssize_t Write(int file, const std::byte* data, size_t bytes) override {
    if (!Fails("write")) return FileOps::Write(file, data, bytes);
    // The disk takes a part, and then has no more.
    if (bytes > 1 && !half_written_) {
      half_written_ = true;
      fail_at_ = calls_ + 1;
      return FileOps::Write(file, data, bytes / 2);
    }
    return -1;
  }
  int Sync(int file) override { return Fails("sync") ? -1 : FileOps::Sync(file); }
  int Close(int file) override {
    const bool fails = Fails("close");
    const int closed = FileOps::Close(file);
    if (fails) errno = error_;
    return fails ? -1 : closed;
  }
  int Rename(const std::string& from, const std::string& to) override {
    if (Fails("rename")) return -1;
    renamed_ = true;
    return FileOps::Rename(from, to);
  }
  int Remove(const std::string& path) override { return FileOps::Remove(path); }

  const std::vector<std::string>& log() const { return log_; }
  bool failed() const { return failed_; }
  const std::string& failed_call() const { return failed_call_; }
  bool renamed() const { return renamed_; }

 protected:
  virtual bool Fails(const char* call) {
    log_.emplace_back(call);
    if (++calls_ != fail_at_) return false;
    failed_ = true;
    failed_call_ = call;
    errno = error_;
    return true;
  }
  int calls_ = 0;
  int fail_at_;

 private:
  int error_;
  bool failed_ = false;
  std::string failed_call_;
  bool renamed_ = false;
  bool half_written_ = false;
  std::vector<std::string> log_;
};

size_t FilesIn(const TempFolder& folder) {
  const std::filesystem::directory_iterator files(folder.path());
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

TEST(CacheFileFault, EveryCallIsMadeInTheOrderThatMakesItDurable) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  SavingRun saving(200);
  FailingOps ops(0, 0);
  ASSERT_OK(saving.SaveThrough(path, &ops));
  std::vector<std::string> log = ops.log();
  ASSERT_GT(std::count(log.begin(), log.end(), "write"), 3);
  log.erase(std::unique(log.begin(), log.end()), log.end());
  EXPECT_EQ(log, (std::vector<std::string>{"create", "open directory", "write", "sync", "close",
                                           "rename", "sync", "close"}));
}

TEST(CacheFileFault, AnErrorAtAnyCallLeavesTheOldFileAndTheCache) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  RetentionRun old = MakeRun(100);
  SavingRun saving(200);
  for (const int error : {ENOSPC, EIO, EDQUOT}) {
    for (int k = 1;; ++k) {
      ASSERT_OK(old.cache->Save(path, {}));
      const std::vector<std::byte> before = ReadFileBytes(path);
      FailingOps ops(k, error);
      const Status status = saving.SaveThrough(path, &ops);
      if (!ops.failed()) {
        ASSERT_OK(status);
        ASSERT_GT(k, 8);
        break;
      }
      EXPECT_EQ(FilesIn(folder), 1u) << "call " << k;
      // Once it is renamed, the new file is there, whole; once it is durable, that is said.
      EXPECT_EQ(ReadFileBytes(path) != before, ops.renamed()) << "call " << k;
      if (ops.renamed() && ops.failed_call() == "close") {
        EXPECT_OK(status);
      } else {
        EXPECT_EQ(status.code(), StatusCode::kIoError);
        EXPECT_TRUE(status.message().starts_with(path + ": ")) << status.message();
        EXPECT_TRUE(status.message().ends_with(std::string(": ") + strerror(error)))
            << status.message();
      }
      RetentionRun loaded = MakeRun(0);
      ASSERT_OK(loaded.cache->Load(path, {}).status());
    }
  }
  saving.run.Feed(SequenceId{1}, 210);  // goes on
  ASSERT_OK(saving.run.cache->Save(path, {}));
}

class ShortOps : public FileOps {
 public:
  ssize_t Write(int file, const std::byte* data, size_t bytes) override {
    if (++calls_ % 3 == 0) {
      errno = EINTR;
      return -1;
    }
    return FileOps::Write(file, data, std::min<size_t>(bytes, 1 + 777 * (calls_ % 5)));
  }

 private:
  size_t calls_ = 0;
};

TEST(CacheFileFault, ShortAndInterruptedWritesAreContinued) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  const std::string plain = folder.File("plain.varve");
  SavingRun saving(100);
  ShortOps ops;
  ASSERT_OK(saving.SaveThrough(path, &ops));
  ASSERT_OK(saving.run.cache->Save(plain, {}));
  EXPECT_EQ(ReadFileBytes(path), ReadFileBytes(plain));
}

// Kills its process at the k-th call, half of a write done.
class DyingOps final : public FailingOps {
 public:
  explicit DyingOps(int die_at) : FailingOps(0, 0), die_at_(die_at) {}
  ssize_t Write(int file, const std::byte* data, size_t bytes) override {
    if (calls_ + 1 == die_at_) SystemFileOps()->Write(file, data, bytes / 2);
    return FailingOps::Write(file, data, bytes);
  }

 protected:
  bool Fails(const char*) override {
    if (++calls_ == die_at_) raise(SIGKILL);
    return false;
  }

 private:
  int die_at_;
};

TEST(CacheFileFault, AProcessThatDiesAtAnyCallLeavesOneOfTheFiles) {
  const TempFolder folder;
  const std::string path = folder.File("cache.varve");
  const std::string fresh = folder.File("fresh.varve");
  const RetentionRun old = MakeRun(100);
  SavingRun saving(200);
  ASSERT_OK(old.cache->Save(path, {}));
  ASSERT_OK(saving.run.cache->Save(fresh, {}));
  const std::vector<std::byte> before = ReadFileBytes(path);
  const std::vector<std::byte> after = ReadFileBytes(fresh);
  bool is_new = false;
  for (int k = 1;; ++k) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      DyingOps ops(k);
      _exit(saving.SaveThrough(path, &ops).ok() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const std::vector<std::byte> found = ReadFileBytes(path);
    EXPECT_TRUE(found == before || found == after) << "call " << k;
    EXPECT_FALSE(is_new && found == before);  // never back
    is_new = found == after;
    RetentionRun loaded = MakeRun(0);
    ASSERT_OK(loaded.cache->Load(path, {}).status());
    // What a dead process left behind is in nobody's way.
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      if (entry.path().string().starts_with(path + ".tmp-")) std::filesystem::remove(entry.path());
    }
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      EXPECT_TRUE(is_new);
      ASSERT_GT(k, 8);
      break;
    }
  }
}

}  // namespace cache_file_fault_test
}  // namespace varve
