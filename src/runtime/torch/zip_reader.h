// ZipReader: the entries of a zip in memory, as PyTorch writes them: stored, not compressed.
//
// The central directory decides; what a local header says must agree with it. Entries that are
// compressed or encrypted, that overlap one another, the directory or the end of the bytes, or that
// have a name twice are refused, the zip as a whole where the directory tells. Nothing is copied:
// the bytes must outlive the reader and what it gives. Immutable; any number of threads may read.

#ifndef VARVE_RUNTIME_TORCH_ZIP_READER_H_
#define VARVE_RUNTIME_TORCH_ZIP_READER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "varve/status.h"

namespace varve {

struct ZipEntry {
  std::string_view name;
  uint64_t header_at = 0;  // the local header
  uint64_t bytes = 0;
  uint32_t crc = 0;  // CRC-32 of the content
};

class ZipReader {
 public:
  // `name` is for messages. kInvalidArgument if it is no zip, kUnimplemented for what is not read
  // (compression, encryption, several disks), kDataLoss if it is damaged.
  static Result<ZipReader> Open(std::span<const std::byte> bytes, const std::string& name);

  const std::vector<ZipEntry>& entries() const { return entries_; }  // by name
  // Or null.
  const ZipEntry* Find(std::string_view name) const;
  // The content of an entry of this zip, its CRC-32 checked.
  Result<std::span<const std::byte>> Read(const ZipEntry& entry) const;

 private:
  ZipReader(std::span<const std::byte> bytes, std::string name)
      : bytes_(bytes), name_(std::move(name)) {}

  struct Directory {
    uint64_t entries = 0, bytes = 0, at = 0;
  };
  Result<Directory> FindDirectory() const;
  Status ReadZip64(uint64_t end_at, Directory& directory) const;
  Status ReadDirectory(const Directory& directory);
  Status CheckOverlap(uint64_t directory_at) const;
  Result<std::span<const std::byte>> Locate(const ZipEntry& entry) const;
  Status Bad(const std::string& message) const;

  std::span<const std::byte> bytes_;
  std::string name_;
  std::vector<ZipEntry> entries_;
};

// CRC-32 as zip has it.
uint32_t ZipCrc(std::span<const std::byte> bytes);

}  // namespace varve

#endif  // VARVE_RUNTIME_TORCH_ZIP_READER_H_
