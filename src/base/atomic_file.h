// AtomicFile: a file that appears whole or not at all.
//
// Bytes go into a temporary file beside the target. Commit makes them durable (fsync), gives the
// file its name (rename) and makes that durable too (fsync of the directory, which was opened
// before anything was written). A process that dies on the way leaves the old file as it was, and
// perhaps the temporary one. An error removes the temporary one. All system calls go through
// FileOps, so that tests can make each of them fail or die there.
//
// Not thread-safe; different files are independent.

#ifndef VARVE_BASE_ATOMIC_FILE_H_
#define VARVE_BASE_ATOMIC_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "varve/status.h"

namespace varve {

// The system calls that AtomicFile needs. Each returns what the system returns: a negative number
// on failure, with the reason in errno.
class FileOps {
 public:
  virtual ~FileOps() = default;
  virtual int Create(const std::string& path);         // must not exist
  virtual int OpenDirectory(const std::string& path);  // for Sync and Close
  virtual ssize_t Write(int file, const std::byte* data, size_t bytes);
  virtual int Sync(int file);
  virtual int Close(int file);
  virtual int Rename(const std::string& from, const std::string& to);
  virtual int Remove(const std::string& path);
};

// FileOps as it is. One for all.
FileOps* SystemFileOps();

class AtomicFile {
 public:
  // Creates the temporary file and opens its directory. Messages name `path` and the system's
  // reason. `ops` is not owned.
  static Result<std::unique_ptr<AtomicFile>> Create(const std::string& path, FileOps* ops);
  // Removes the temporary file unless Commit has succeeded.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  Status Append(std::span<const std::byte> bytes);
  // Writes zeros up to a multiple of `alignment`.
  Status Pad(uint64_t alignment);
  uint64_t size() const { return size_; }
  // If only the last step fails (fsync of the directory), the new file is in place and whole. Any
  // other error leaves the old one.
  Status Commit();

 private:
  AtomicFile(std::string path, std::string temporary, FileOps* ops);
  Status Flush();
  Status Error(const char* what) const;

  std::string path_;
  std::string temporary_;  // empty where there is none, or once it has its name
  int file_ = -1;
  int directory_ = -1;
  FileOps* ops_;
  std::vector<std::byte> buffer_;
  uint64_t size_ = 0;
};

// Writes a whole file: an AtomicFile, or straight into what is no regular file (a pipe,
// /dev/stdout), which a rename would replace. Messages name `path` and the system's reason.
Status WriteFile(const std::string& path, std::span<const std::byte> bytes,
                 FileOps* ops = SystemFileOps());

}  // namespace varve

#endif  // VARVE_BASE_ATOMIC_FILE_H_
