#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "base/align.h"

namespace varve {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int number) : number_(number) {}
  ~FileDescriptor() {
    if (number_ >= 0) close(number_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

Status SystemError(const std::string& path, const char* what, int error) {
  const std::string reason = std::generic_category().message(error);
  if (error == ENOENT || error == ENOTDIR) return NotFound(fmt::format("{}: no such file", path));
  return IoError(fmt::format("{}: {}: {}", path, what, reason));
}

}  // namespace

Result<std::unique_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  // Without O_NONBLOCK, opening a FIFO waits for somebody to write into it.
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) return SystemError(path, "cannot be opened", errno);
  struct stat info = {};
  if (fstat(file.number(), &info) != 0) return SystemError(path, "cannot be examined", errno);
  if (S_ISDIR(info.st_mode)) return InvalidArgument(fmt::format("{}: is a directory", path));
  if (!S_ISREG(info.st_mode)) return InvalidArgument(fmt::format("{}: is not a file", path));
  if (info.st_size == 0) return InvalidArgument(fmt::format("{}: is empty", path));

  // No advice to the kernel. Its default reads ahead, which suits layers that lie one after the
  // other; MADV_SEQUENTIAL would drop pages soon after use, and every token uses them again;
  // MADV_WILLNEED would read all of a file of which perhaps only the header is wanted.
  const auto size = static_cast<size_t>(info.st_size);
  void* address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (address == MAP_FAILED) return SystemError(path, "cannot be mapped", errno);
  return std::unique_ptr<const MappedFile>(
      new MappedFile({static_cast<const std::byte*>(address), size}));
}

void MappedFile::Forget(size_t offset, size_t bytes) const {
  // Only whole pages that lie inside.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = AlignUp(offset, page);
  const size_t end = (offset + bytes) / page * page;
  if (begin >= end || end > bytes_.size()) return;
  madvise(const_cast<std::byte*>(bytes_.data()) + begin, end - begin, MADV_DONTNEED);
}

MappedFile::~MappedFile() { munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }

}  // namespace varve
