#include "serve/tiers/disk_backend.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace varve::serve {
namespace {

constexpr uint64_t kMaxSegmentBytes = uint64_t{64} << 20;
constexpr uint64_t kSegmentsOfBudget = 16;
// A segment is cleaned once one byte in so many is dead.
constexpr uint64_t kDeadShare = 3;
constexpr const char* kPrefix = "segment-";

// The number in a segment's name; 0 if it is none.
uint64_t SegmentNumber(const std::string& name) {
  const std::string_view prefix = kPrefix;
  uint64_t number = 0;
  if (!name.starts_with(prefix)) return 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, number);
  return error == std::errc() && stop == end ? number : 0;
}

std::string Reason(int error) { return std::generic_category().message(error); }

}  // namespace

Result<std::unique_ptr<DiskBackend>> DiskBackend::Open(DiskOptions options) {
  if (options.max_bytes < kMinDiskBytes) {
    return InvalidArgument(
        fmt::format("disk cache: max_bytes {} < {}", options.max_bytes, kMinDiskBytes));
  }
  const uint64_t share = options.max_bytes / kSegmentsOfBudget;
  if (options.segment_bytes == 0) options.segment_bytes = std::min(share, kMaxSegmentBytes);
  options.segment_bytes = std::min(options.segment_bytes, share);
  std::error_code error;
  std::filesystem::create_directories(options.folder, error);
  if (error) return IoError(fmt::format("{}: {}", options.folder, error.message()));
  std::unique_ptr<DiskBackend> backend(new DiskBackend(std::move(options)));
  VARVE_RETURN_IF_ERROR(backend->Lock());
  VARVE_RETURN_IF_ERROR(backend->Scan());
  backend->MakeRoom(0, std::numeric_limits<double>::infinity());
  return backend;
}

DiskBackend::~DiskBackend() {
  if (lock_file_ >= 0) close(lock_file_);
}

Status DiskBackend::Lock() {
  const std::string path = options_.folder + "/lock";
  lock_file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_file_ < 0) return IoError(fmt::format("{}: {}", path, Reason(errno)));
  if (flock(lock_file_, LOCK_EX | LOCK_NB) == 0) return Status();
  return FailedPrecondition(
      fmt::format("{}: another process uses this disk cache", options_.folder));
}

std::string DiskBackend::PathOf(uint64_t segment) const {
  return fmt::format("{}/{}{:08}", options_.folder, kPrefix, segment);
}

Status DiskBackend::Scan() {
  std::vector<uint64_t> numbers;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder, error)) {
    const uint64_t number = SegmentNumber(entry.path().filename().string());
    if (number != 0 && PathOf(number) == entry.path().string()) numbers.push_back(number);
  }
  if (error) return IoError(fmt::format("{}: {}", options_.folder, error.message()));
  std::sort(numbers.begin(), numbers.end());
  for (const uint64_t number : numbers) {
    next_segment_ = number + 1;
    Result<SegmentFile::Opened> opened = SegmentFile::Open(PathOf(number), options_.files);
    if (!opened.ok()) {
      CountError(opened.status());
      options_.files->Remove(PathOf(number));
      continue;
    }
    if (opened->records.empty()) {
      opened->file->Remove();
      continue;
    }
    index_.AddSegment(number, opened->file);
    // Of a page that was being moved there are two, both whole.
    for (const SegmentFile::Found& found : opened->records) {
      index_.Add(found.header.key, number, found.offset, found.header.RecordBytes(),
                 found.header.value);
    }
  }
  return Status();
}

// --- writing ---

void DiskBackend::Write(std::span<const PageItem> items) {
  for (const PageItem& item : items) WriteOne(item);
}

void DiskBackend::WriteOne(const PageItem& item) {
  {
    const std::lock_guard lock(mutex_);
    if (index_.Find(item.key) != nullptr) {
      index_.SetValue(item.key, item.value);
      ++stats_.known;
      return;
    }
  }
  const uint64_t bytes = kRecordHeaderBytes + item.image->size();
  if (!MakeRoom(bytes + kSegmentHeadBytes, item.value)) {
    const std::lock_guard lock(mutex_);
    ++stats_.dropped_room;
    return;
  }
  const Status status = Store(item.key, *item.image, item.value);
  const std::lock_guard lock(mutex_);
  if (status.ok()) {
    ++stats_.stored;
    stats_.bytes_written += bytes;
    return;
  }
  const bool full = status.code() == StatusCode::kOutOfMemory;
  ++(full ? stats_.dropped_room : stats_.dropped_error);
}

Status DiskBackend::Store(const PageKey& key, std::span<const std::byte> image, double value) {
  const RecordHeader header = MakeRecordHeader(key, image, value);
  Status status;
  const Result<uint64_t> active = Active(header.RecordBytes());
  if (active.ok()) {
    std::shared_ptr<SegmentFile> file;
    {
      const std::lock_guard lock(mutex_);
      file = index_.segments().at(*active).file;
    }
    const Result<uint64_t> offset = file->Append(header, image);
    if (offset.ok()) {
      const std::lock_guard lock(mutex_);
      index_.Add(key, *active, *offset, header.RecordBytes(), value);
      return status;
    }
    if (!file->can_append()) active_ = 0;
    status = offset.status();
  } else {
    status = active.status();
  }
  CountError(status);
  return status;
}

Result<uint64_t> DiskBackend::Active(uint64_t bytes) {
  if (active_ != 0) {
    const std::lock_guard lock(mutex_);
    const SegmentFile& file = *index_.segments().at(active_).file;
    if (file.size() + bytes <= options_.segment_bytes) return active_;
  }
  active_ = 0;
  const uint64_t number = next_segment_++;
  VARVE_ASSIGN_OR_RETURN(std::shared_ptr<SegmentFile> file,
                         SegmentFile::Create(PathOf(number), options_.files));
  const std::lock_guard lock(mutex_);
  index_.AddSegment(number, std::move(file));
  active_ = number;
  return number;
}

bool DiskBackend::MakeRoom(uint64_t bytes, double value) {
  if (bytes + kSegmentHeadBytes > options_.segment_bytes) return false;
  const uint64_t limit = options_.max_bytes - options_.segment_bytes;
  while (true) {
    std::optional<DiskIndex::Victim> victim;
    {
      const std::lock_guard lock(mutex_);
      if (index_.FileBytes() + bytes <= limit) return true;
      victim = index_.FindVictim(kDeadShare, value);
      if (!victim) return false;
      for (const PageKey& key : victim->pages) index_.Remove(key);
      stats_.evicted += victim->pages.size();
    }
    Clean(victim->segment);
  }
}

void DiskBackend::Clean(uint64_t segment) {
  if (segment == active_) active_ = 0;
  std::shared_ptr<SegmentFile> file;
  std::vector<std::pair<PageKey, IndexedPage>> live;
  bool has_room = false;
  {
    const std::lock_guard lock(mutex_);
    const IndexedSegment& from = index_.segments().at(segment);
    file = from.file;
    for (const auto& [offset, key] : from.live) live.emplace_back(key, *index_.Find(key));
    // Two heads: what lives may fill up one segment and begin another.
    has_room = index_.FileBytes() + from.live_bytes + 2 * kSegmentHeadBytes <= options_.max_bytes;
  }
  for (const auto& [key, page] : live) {
    if (!has_room) break;
    const Result<std::vector<std::byte>> image = file->Read(page.offset, key);
    // What cannot be moved goes with the file.
    if (image.ok()) has_room = Store(key, *image, page.value).ok();
  }
  {
    const std::lock_guard lock(mutex_);
    stats_.evicted += index_.segments().at(segment).live.size();
    index_.RemoveSegment(segment);
  }
  file->Remove();
}

// --- reading ---

void DiskBackend::Read(std::span<const PageKey> keys, TierClock::time_point deadline,
                       const Give& give) {
  for (size_t i = 0; i < keys.size() && TierClock::now() < deadline; ++i) {
    std::shared_ptr<SegmentFile> file;
    uint64_t offset = 0;
    {
      const std::lock_guard lock(mutex_);
      const IndexedPage* page = index_.Find(keys[i]);
      if (page == nullptr) continue;
      file = index_.segments().at(page->segment).file;
      offset = page->offset;
    }
    Result<std::vector<std::byte>> image = file->Read(offset, keys[i]);
    if (image.ok()) {
      give(i, std::make_shared<const std::vector<std::byte>>(std::move(*image)));
      continue;
    }
    CountError(image.status());
    const std::lock_guard lock(mutex_);
    ++stats_.damaged;
    // It may have moved meanwhile, and be whole there.
    const IndexedPage* page = index_.Find(keys[i]);
    if (page != nullptr && page->offset == offset) index_.Remove(keys[i]);
  }
}

std::vector<bool> DiskBackend::Contains(std::span<const PageKey> keys, TierClock::time_point) {
  std::vector<bool> found;
  const std::lock_guard lock(mutex_);
  for (const PageKey& key : keys) found.push_back(index_.Find(key) != nullptr);
  return found;
}

void DiskBackend::CountError(const Status& status) {
  const std::lock_guard lock(mutex_);
  ++stats_.errors;
  stats_.last_error = status.message();
}

void DiskBackend::AddTo(TierStats* stats) const {
  const std::lock_guard lock(mutex_);
  stats->AddCounts(stats_);
  stats->pages = index_.num_pages();
  stats->bytes_held = index_.FileBytes();
}

}  // namespace varve::serve
