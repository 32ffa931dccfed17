#include "pages/spill_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/align.h"
#include "pages/page_pool.h"

namespace varve {
namespace {

class SystemDisk final : public DiskSpace {
 public:
  int Allocate(int file, uint64_t offset, uint64_t bytes) override {
    return posix_fallocate(file, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  }
};

}  // namespace

DiskSpace* SystemDiskSpace() {
  static SystemDisk disk;
  return &disk;
}

Result<std::unique_ptr<SpillFile>> SpillFile::Create(const std::string& path, uint64_t max_bytes,
                                                     DiskSpace* disk) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) {
    const int error = errno;
    const std::string message = "spill file " + path + ": " + std::strerror(error);
    return error == EEXIST ? InvalidArgument(message) : FailedPrecondition(message);
  }
  unlink(path.c_str());
  return std::unique_ptr<SpillFile>(new SpillFile(file, max_bytes, disk));
}

SpillFile::SpillFile(int file, uint64_t max_bytes, DiskSpace* disk)
    : file_(file), max_bytes_(max_bytes), disk_(disk) {}

SpillFile::~SpillFile() { close(file_); }

std::byte* SpillFile::Map(size_t bytes) {
  if (bytes > max_bytes_ - mapped_bytes_) return nullptr;
  auto hole = free_.begin();
  while (hole != free_.end() && hole->second < bytes) ++hole;
  const bool at_end = hole == free_.end();
  const uint64_t offset = at_end ? end_ : hole->first;
  if (at_end) {
    end_ += bytes;
  } else {
    const uint64_t left = hole->second - bytes;
    free_.erase(hole);
    if (left > 0) free_.emplace(offset + bytes, left);
  }
  void* address = MAP_FAILED;
  if (disk_->Allocate(file_, offset, bytes) == 0) {
    address =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, static_cast<off_t>(offset));
  }
  if (address == MAP_FAILED) {
    GiveDiskBack(offset, bytes);
    return nullptr;
  }
  auto* region = static_cast<std::byte*>(address);
  offsets_.emplace(region, offset);
  mapped_bytes_ += bytes;
  return region;
}

void SpillFile::Unmap(std::byte* address, size_t bytes) {
  const auto found = offsets_.find(address);
  const uint64_t offset = found->second;
  offsets_.erase(found);
  munmap(address, bytes);
  mapped_bytes_ -= bytes;
  GiveDiskBack(offset, bytes);
}

void SpillFile::GiveDiskBack(uint64_t offset, uint64_t bytes) {
  // What cannot be given back is allocated again without need of room: no error matters here.
  (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(bytes));
  const auto next = free_.find(offset + bytes);
  if (next != free_.end()) {
    bytes += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(offset);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      free_.erase(before);
    }
  }
  if (offset + bytes < end_) {
    free_.emplace(offset, bytes);
    return;
  }
  end_ = offset;
  if (ftruncate(file_, static_cast<off_t>(end_)) != 0) return;  // the hole stays, empty
}

void SpillFile::Forget(const std::byte* data, size_t bytes) const {
  // Whole pages, outward: in a shared mapping nothing is lost with them.
  const auto first = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = AlignDown(first, kSystemPageBytes);
  const uintptr_t end = AlignUp(first + bytes, kSystemPageBytes);
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace varve
