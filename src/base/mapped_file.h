// MappedFile: a regular file, mapped read-only and privately. Bytes come into memory when they are
// read and can leave it again: the page cache holds them, not the process.
//
// The size is the file's size when it is opened. If somebody shortens the file afterwards, the
// pages that are gone read as zeros and damaged() says so (mapping_guard.h). Replace such files by
// renaming, not by writing into them.
//
// Immutable; any number of threads may read bytes().

#ifndef VARVE_BASE_MAPPED_FILE_H_
#define VARVE_BASE_MAPPED_FILE_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/mapping_guard.h"
#include "varve/status.h"

namespace varve {

class MappedFile {
 public:
  // kNotFound if there is no such file; kInvalidArgument if it is empty or not a regular file
  // (a FIFO is not waited for); kIoError if the system refuses. Messages begin with the path.
  static Result<std::unique_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  // Whether some were missing when they were read.
  bool damaged() const { return guard_.damaged(); }

  // Says that some bytes will not be read again soon. They leave the process, not the page cache.
  void Forget(size_t offset, size_t bytes) const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes), guard_(bytes) {}

  std::span<const std::byte> bytes_;
  MappingGuard guard_;
};

}  // namespace varve

#endif  // VARVE_BASE_MAPPED_FILE_H_
