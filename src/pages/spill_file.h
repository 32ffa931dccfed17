// SpillFile: page memory that is a file, for packed pages that memory has no room for.
//
// Regions are allocated on the disk before they are mapped: a full disk, or the cap, is a refusal
// of Map, never a fault at a later write. For the same reason Discard gives only the memory back;
// the disk gets its room back when a whole region goes. Mappings are shared: what the process has
// forgotten is read again from the file. A disk that cannot be read ends the process (SIGBUS), as
// with any mapped file.
//
// The file must not exist before. Its name is removed at once, so that it vanishes with the object,
// however the process ends, and several caches may name the same.
//
// Not thread-safe; reading the mappings is.

#ifndef VARVE_PAGES_SPILL_FILE_H_
#define VARVE_PAGES_SPILL_FILE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "varve/cache.h"
#include "varve/status.h"

namespace varve {

// Who gives a file its room on a disk.
class DiskSpace {
 public:
  virtual ~DiskSpace() = default;
  // Room for [offset, offset + bytes) of an open file; 0 or an error number, as of errno.
  virtual int Allocate(int file, uint64_t offset, uint64_t bytes) = 0;
};

// posix_fallocate. One for all.
DiskSpace* SystemDiskSpace();

class SpillFile final : public PageMemory {
 public:
  // max_bytes caps the regions together. `disk` outlives the file.
  static Result<std::unique_ptr<SpillFile>> Create(const std::string& path, uint64_t max_bytes,
                                                   DiskSpace* disk = SystemDiskSpace());
  ~SpillFile() override;
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  std::byte* Map(size_t bytes) override;
  void Discard(std::byte* address, size_t bytes) override { Forget(address, bytes); }
  void Unmap(std::byte* address, size_t bytes) override;
  // The bytes need not stay in memory; they are kept in the file.
  void Forget(const std::byte* data, size_t bytes) const;

  uint64_t bytes_mapped() const { return mapped_bytes_; }

 private:
  SpillFile(int file, uint64_t max_bytes, DiskSpace* disk);
  void GiveDiskBack(uint64_t offset, uint64_t bytes);

  int file_;
  uint64_t max_bytes_;
  DiskSpace* disk_;
  std::map<const std::byte*, uint64_t> offsets_;  // of regions
  std::map<uint64_t, uint64_t> free_;             // offset, bytes; no two touch
  uint64_t end_ = 0;                              // of the file
  uint64_t mapped_bytes_ = 0;
};

}  // namespace varve

#endif  // VARVE_PAGES_SPILL_FILE_H_
