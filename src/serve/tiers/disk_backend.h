// DiskBackend: page images in a folder, in append-only segments (segment_file.h), within a budget
// of bytes that the sizes of the files never pass.
//
// Room is made a segment at a time: of the pages in the order of their values as many are given up
// as make a third of some segment dead, but only those in that segment. What lives there moves to
// the newest segment, and the file goes. (A lower share means more copying, a higher one fewer
// pages: at a third a byte is written three times at most.) One segment's worth of the budget is
// kept free for that. A page that is worth less than those that would go for it is not taken.
//
// The index is in memory and comes from the records when the folder is opened: a process that dies
// at any moment loses what it had not written, and a page that was forgotten may be there again,
// which does no harm. Nothing is forced to the medium: after a loss of power a checksum tells what
// is whole. One process may have a folder open.

#ifndef VARVE_SERVE_TIERS_DISK_BACKEND_H_
#define VARVE_SERVE_TIERS_DISK_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "serve/tiers/disk_index.h"
#include "serve/tiers/page_backend.h"
#include "varve/status.h"

namespace varve::serve {

struct DiskOptions {
  std::string folder;                // made if it is not there
  uint64_t max_bytes = 0;            // at least kMinDiskBytes
  uint64_t segment_bytes = 0;        // 0: a 16th of the budget, at most 64 MiB
  FileOps* files = SystemFileOps();  // not owned
};

inline constexpr uint64_t kMinDiskBytes = uint64_t{64} << 10;

class DiskBackend final : public PageBackend {
 public:
  // kIoError if the folder cannot be used, kFailedPrecondition if another process has it.
  static Result<std::unique_ptr<DiskBackend>> Open(DiskOptions options);
  ~DiskBackend() override;

  const char* name() const override { return "disk"; }
  void Write(std::span<const PageItem> items) override;
  size_t max_batch() const override { return 4; }
  void Read(std::span<const PageKey> keys, TierClock::time_point deadline,
            const Give& give) override;
  std::vector<bool> Contains(std::span<const PageKey> keys,
                             TierClock::time_point deadline) override;
  bool IsAvailable() const override { return true; }
  void Interrupt() override {}
  void AddTo(TierStats* stats) const override;

 private:
  explicit DiskBackend(DiskOptions options) : options_(std::move(options)) {}
  Status Lock();
  Status Scan();
  std::string PathOf(uint64_t segment) const;
  // What follows is called by the writer alone, and not with the mutex held: it waits for the disk.
  void WriteOne(const PageItem& item);
  bool MakeRoom(uint64_t bytes, double value);
  // Copies what lives in a segment to the newest one, if there is room, and removes it.
  void Clean(uint64_t segment);
  // A segment with room for a record of so many bytes.
  Result<uint64_t> Active(uint64_t bytes);
  Status Store(const PageKey& key, std::span<const std::byte> image, double value);
  void CountError(const Status& status);

  const DiskOptions options_;
  int lock_file_ = -1;
  uint64_t next_segment_ = 1;
  uint64_t active_ = 0;       // 0: none
  mutable std::mutex mutex_;  // of what follows
  DiskIndex index_;
  TierStats stats_;
};

}  // namespace varve::serve

#endif  // VARVE_SERVE_TIERS_DISK_BACKEND_H_
