#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace varve {
namespace {

// Large enough that system calls cost little compared with copying.
constexpr size_t kBufferBytes = size_t{64} << 10;

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string TemporaryName(const std::string& path) {
  static std::atomic<uint64_t> count{0};
  return fmt::format("{}.tmp-{}-{}", path, getpid(), count.fetch_add(1));
}

// Something that is there and no regular file.
bool IsSpecial(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
}

// Into a pipe or a device, which has no other name to be given.
Status WriteThrough(const std::string& path, std::span<const std::byte> bytes) {
  const auto failed = [&path](const char* what) {
    return IoError(fmt::format("{}: {}: {}", path, what, std::generic_category().message(errno)));
  };
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return failed("cannot be opened");
  while (!bytes.empty()) {
    const ssize_t wrote = write(file, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      Status status = failed("cannot be written");
      close(file);
      return status;
    }
    bytes = bytes.subspan(static_cast<size_t>(wrote));
  }
  return close(file) == 0 ? Status() : failed("cannot be closed");
}

}  // namespace

int FileOps::Create(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}
int FileOps::OpenDirectory(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}
ssize_t FileOps::Write(int file, const std::byte* data, size_t bytes) {
  return write(file, data, bytes);
}
int FileOps::Sync(int file) { return fsync(file); }
int FileOps::Close(int file) { return close(file); }
int FileOps::Rename(const std::string& from, const std::string& to) {
  return std::rename(from.c_str(), to.c_str());
}
int FileOps::Remove(const std::string& path) { return unlink(path.c_str()); }

FileOps* SystemFileOps() {
  static FileOps ops;
  return &ops;
}

AtomicFile::AtomicFile(std::string path, std::string temporary, FileOps* ops)
    : path_(std::move(path)), temporary_(std::move(temporary)), ops_(ops) {
  buffer_.reserve(kBufferBytes);
}

Result<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path, FileOps* ops) {
  if (path.empty()) return InvalidArgument("path: empty");
  if (IsSpecial(path)) {
    // A rename would replace a device or a pipe by a file.
    return InvalidArgument(fmt::format("{}: is not a file", path));
  }
  // A link stays one: the file that it leads to is replaced.
  std::error_code no_link;
  const std::filesystem::path target = std::filesystem::read_symlink(path, no_link).empty()
                                           ? std::filesystem::path(path)
                                           : std::filesystem::weakly_canonical(path, no_link);
  if (target != path && !no_link) return Create(target.string(), ops);
  // The object comes first: an allocation that failed behind the file would leave it there.
  std::unique_ptr<AtomicFile> made(new AtomicFile(path, TemporaryName(path), ops));
  made->file_ = ops->Create(made->temporary_);
  if (made->file_ < 0) {
    made->temporary_.clear();  // what has that name is not ours
    return made->Error("cannot be created");
  }
  const std::string directory = DirectoryOf(path);
  made->directory_ = ops->OpenDirectory(directory);
  if (made->directory_ < 0) return made->Error("its directory cannot be opened");
  return made;
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) ops_->Close(file_);
  if (directory_ >= 0) ops_->Close(directory_);
  if (!temporary_.empty()) ops_->Remove(temporary_);
}

Status AtomicFile::Error(const char* what) const {
  return IoError(fmt::format("{}: {}: {}", path_, what, std::generic_category().message(errno)));
}

Status AtomicFile::Flush() {
  size_t done = 0;
  while (done < buffer_.size()) {
    const ssize_t wrote = ops_->Write(file_, buffer_.data() + done, buffer_.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    // A write that takes nothing and reports no error would make this loop run forever.
    if (wrote == 0) errno = EIO;
    if (wrote <= 0) return Error("cannot be written");
    done += static_cast<size_t>(wrote);
  }
  buffer_.clear();
  return Status();
}

Status AtomicFile::Append(std::span<const std::byte> bytes) {
  size_ += bytes.size();
  while (!bytes.empty()) {
    const size_t count = std::min(bytes.size(), kBufferBytes - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(count));
    bytes = bytes.subspan(count);
    if (buffer_.size() == kBufferBytes) VARVE_RETURN_IF_ERROR(Flush());
  }
  return Status();
}

Status AtomicFile::Pad(uint64_t alignment) {
  const std::vector<std::byte> zeros((alignment - size_ % alignment) % alignment);
  return Append(zeros);
}

Status AtomicFile::Commit() {
  VARVE_RETURN_IF_ERROR(Flush());
  if (ops_->Sync(file_) != 0) return Error("cannot be made durable");
  const int closed = ops_->Close(std::exchange(file_, -1));
  if (closed != 0) return Error("cannot be closed");
  if (ops_->Rename(temporary_, path_) != 0) return Error("cannot be renamed into place");
  temporary_.clear();
  if (ops_->Sync(directory_) != 0) return Error("its directory cannot be synced");
  return Status();
}

Status WriteFile(const std::string& path, std::span<const std::byte> bytes, FileOps* ops) {
  if (IsSpecial(path)) return WriteThrough(path, bytes);
  VARVE_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path, ops));
  VARVE_RETURN_IF_ERROR(file->Append(bytes));
  return file->Commit();
}

}  // namespace varve
