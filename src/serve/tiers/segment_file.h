// SegmentFile: one file of a disk tier: 8 bytes that say so, then page records one behind the other
// (docs/format/page-record.md). Records are only ever appended; the file goes as a whole.
//
// A process that dies while it writes leaves a part of a record at the end. Open finds the records
// by their headers and cuts off what is not a whole one. Images are checked when they are read.
//
// One thread appends; any number may read at once, also while the file is removed.

#ifndef VARVE_SERVE_TIERS_SEGMENT_FILE_H_
#define VARVE_SERVE_TIERS_SEGMENT_FILE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "serve/tiers/page_record.h"
#include "varve/status.h"

namespace varve::serve {

inline constexpr size_t kSegmentHeadBytes = 8;

class SegmentFile {
 public:
  // A new one. Messages name the path. `ops` is not owned.
  static Result<std::shared_ptr<SegmentFile>> Create(const std::string& path, FileOps* ops);

  struct Found {
    RecordHeader header;
    uint64_t offset = 0;  // of the record
  };
  struct Opened {
    std::shared_ptr<SegmentFile> file;
    std::vector<Found> records;
    uint64_t bytes_cut = 0;
  };
  // One that is there. It takes no more records.
  static Result<Opened> Open(const std::string& path, FileOps* ops);

  ~SegmentFile();
  SegmentFile(const SegmentFile&) = delete;
  SegmentFile& operator=(const SegmentFile&) = delete;

  // The record's offset. On failure the file is as long as before, or takes no more records.
  Result<uint64_t> Append(const RecordHeader& header, std::span<const std::byte> image);
  // The image of a record, checked.
  Result<std::vector<std::byte>> Read(uint64_t offset, const PageKey& key) const;
  // Removes the file. Who has it open can still read it.
  void Remove();

  uint64_t size() const { return size_; }
  bool can_append() const { return write_file_ >= 0; }

 private:
  SegmentFile(std::string path, FileOps* ops) : path_(std::move(path)), ops_(ops) {}
  Status Error(const char* what) const;
  Status WriteAll(std::span<const std::byte> bytes);
  Status ReadAll(uint64_t offset, std::span<std::byte> to) const;
  void CloseForWriting();

  const std::string path_;
  FileOps* const ops_;
  int write_file_ = -1;
  int read_file_ = -1;
  std::atomic<uint64_t> size_ = 0;  // others ask while one appends
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_TIERS_SEGMENT_FILE_H_
