// Packing, the reading side: the decode cache, prefetching, and pages that become raw again.

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/run_parallel.h"
#include "base/stopwatch.h"
#include "cache/packing.h"
#include "pages/strip_reader.h"

namespace varve {
namespace {

// Part of the decode cache that prefetching may use.
constexpr int kStreamedPart = 4;

}  // namespace

// Slots for raw strips, until their pages have them. What no page has got goes back, also where
// something throws.
class Packing::RawSlots {
 public:
  RawSlots(PageStore* store, size_t most) : store_(store) { taken_.reserve(most); }
  ~RawSlots() {
    for (size_t i = num_set_; i < taken_.size(); ++i)
      store_->GiveRaw(*taken_[i].first, taken_[i].second);
  }
  RawSlots(const RawSlots&) = delete;
  RawSlots& operator=(const RawSlots&) = delete;

  // At most `most` times.
  Status Take(Page* page) {
    VARVE_ASSIGN_OR_RETURN(const PageSlot slot, store_->TakeRaw(*page));
    taken_.emplace_back(page, slot);
    return Status();
  }
  size_t size() const { return taken_.size(); }
  const Page& page(size_t index) const { return *taken_[index].first; }
  std::byte* data(size_t index) const { return taken_[index].second.data; }
  // The next page gets what has been written for it, and is returned.
  Page* SetNext() {
    const auto& [page, slot] = taken_[num_set_++];
    store_->SetRaw(page, slot);  // gives the slot back itself if it throws
    return page;
  }

 private:
  PageStore* store_;
  std::vector<std::pair<Page*, PageSlot>> taken_;
  size_t num_set_ = 0;
};

uint64_t Packing::BytesSaved() const {
  const uint64_t saved = store_->BytesSaved();
  return saved > dictionary_bytes_ ? saved - dictionary_bytes_ : 0;
}

uint64_t Packing::DecodeCacheBytes(const Page& page) const {
  const uint64_t wanted = static_cast<uint64_t>(decode_cache_pages_) * SlotBytes(page.bytes);
  return std::min(wanted, BytesSaved());
}

void Packing::ShrinkDecodeCache() {
  while (!store_->restored().empty() && store_->raw_bytes() > BytesSaved())
    store_->DropRaw(*store_->restored().begin());
}

bool Packing::HasRoom(const Page& page) const {
  if (store_->raw_bytes() + SlotBytes(page.bytes) > DecodeCacheBytes(page)) return false;
  std::vector<int> restored(plans_.size());
  for (const Page* other : store_->restored()) ++restored[static_cast<size_t>(other->layer)];
  int shared = 0;
  for (size_t layer = 0; layer < plans_.size(); ++layer) {
    const int own = plans_[layer].pack ? plans_[layer].pack->layer_cache_pages : 0;
    if (static_cast<int>(layer) == page.layer && restored[layer] < own) return true;
    shared += std::max(0, restored[layer] - own);
  }
  return shared < settings_.decode_cache_pages;
}

bool Packing::MakeRoom(const Page& page) {
  while (!HasRoom(page)) {
    Page* oldest = nullptr;
    for (Page* candidate : store_->restored()) {
      const uint64_t last_read = candidate->packed()->last_read;
      if (last_read + 2 > step_) continue;
      if (oldest == nullptr || last_read < oldest->packed()->last_read) oldest = candidate;
    }
    if (oldest == nullptr) return false;
    store_->DropRaw(oldest);
  }
  return true;
}

Status Packing::Prepare(int layer, std::span<const Sequence* const> sequences) {
  if (!active()) return Status();
  const Stopwatch watch(&step_wait_us_);
  Install();
  std::vector<Page*> missing;
  spilled_read_.clear();
  for (const Sequence* sequence : sequences) {
    for (const TableEntry& entry : sequence->layers[static_cast<size_t>(layer)].entries()) {
      Page* page = entry.page.get();
      PackedBytes* packed = page->packed();
      if (packed != nullptr && packed->packed->spilled) spilled_read_.push_back(page);
      if (packed == nullptr || (packed->last_read == step_ && !page->HasRaw())) continue;
      ++(page->HasRaw() ? stats_.decode_cache_hits : stats_.decode_cache_misses);
      packed->last_read = step_;
      if (!page->HasRaw()) missing.push_back(page);
    }
  }
  RawSlots restoring(store_, missing.size());
  for (Page* page : missing) {
    // Without room: unpacked strip by strip, then.
    if (!MakeRoom(*page) || !restoring.Take(page).ok()) break;
  }
  VARVE_RETURN_IF_ERROR(Restore(&restoring));
  if (settings_.prefetch) Prefetch(layer, sequences);
  return Status();
}

Status Packing::Restore(RawSlots* restoring) {
  std::mutex mutex;
  Status status;
  std::atomic<double> us{0};
  RunParallel(*executor_, restoring->size(), [&](size_t i, int) {
    const Timer timer;
    const Page& page = restoring->page(i);
    Status restored = RestorePage(shape_, page, *page.packed()->packed, restoring->data(i));
    us += timer.us();
    if (restored.ok()) return;
    const std::lock_guard lock(mutex);
    if (status.ok()) status = std::move(restored);
  });
  stats_.decompress_us += us;
  if (!status.ok()) {
    ++stats_.restore_failures;
    return status;
  }
  for (size_t i = 0; i < restoring->size(); ++i) {
    stats_.decompressed_bytes += restoring->SetNext()->bytes;
    ++stats_.pages_restored;
  }
  return Status();
}

void Packing::Prefetch(int layer, std::span<const Sequence* const> sequences) {
  if (workers_ == nullptr) return;
  // What has not been begun comes too late now.
  for (auto& job : workers_->CancelWaiting(PackJob::Kind::kRestore)) GiveUp(*job);
  int next = layer + 1;
  while (next < shape_.num_layers && !plans_[static_cast<size_t>(next)].pack) ++next;
  if (next >= shape_.num_layers) return;
  std::unique_ptr<PackJob> job;
  // Reading ahead that finds no memory is left out.
  try {
    job = std::make_unique<PackJob>();
    job->kind = PackJob::Kind::kRestore;
    job->layer = next;
    FillRestore(sequences, *job);
    if (job->pages.empty() || workers_->Push(job)) return;
  } catch (const std::bad_alloc&) {
  }
  if (job) GiveUp(*job);
}

void Packing::FillRestore(std::span<const Sequence* const> sequences, PackJob& job) {
  const int most = settings_.decode_cache_pages / kStreamedPart;
  for (const Sequence* sequence : sequences) {
    for (const TableEntry& entry : sequence->layers[static_cast<size_t>(job.layer)].entries()) {
      const PageRef& page = entry.page;
      if (page->packed() == nullptr || page->HasRaw() || static_cast<int>(job.pages.size()) >= most)
        continue;
      if (std::find(job.pages.begin(), job.pages.end(), page) != job.pages.end()) continue;
      const uint64_t wanted = store_->raw_bytes() + SlotBytes(page->bytes);
      const uint64_t bytes = DecodeCacheBytes(*page);
      if (wanted > std::min(bytes + bytes / kStreamedPart, BytesSaved())) break;
      job.pages.reserve(job.pages.size() + 1);
      job.packed_from.reserve(job.packed_from.size() + 1);
      job.slots.reserve(job.slots.size() + 1);
      Result<PageSlot> slot = store_->TakeRaw(*page);
      if (!slot.ok()) break;
      job.pages.push_back(page);
      job.packed_from.push_back(page->packed()->packed);
      job.slots.push_back(*slot);
    }
  }
}

void Packing::InstallRestored(PackJob& job) {
  if (!job.status.ok()) {
    ++stats_.restore_failures;
    GiveUp(job);
    return;
  }
  streamed_.reserve(streamed_.size() + job.pages.size());
  while (!job.pages.empty()) {
    const PageRef page = std::move(job.pages.back());
    const PageSlot slot = job.slots.back();
    job.pages.pop_back();
    job.slots.pop_back();
    if (page->packed() == nullptr || page->HasRaw() || page->refs == 1) {
      store_->GiveRaw(*page, slot);
      continue;
    }
    store_->SetRaw(page.get(), slot);
    ++stats_.pages_restored;
    ++stats_.pages_prefetched;
    streamed_.push_back(page);
  }
}

void Packing::Finish(int layer, const Status& read) {
  const Stopwatch watch(&step_wait_us_);
  if (read.code() == StatusCode::kDataLoss) ++stats_.restore_failures;
  for (const Page* page : spilled_read_) store_->ForgetSpilled(*page);
  spilled_read_.clear();
  std::erase_if(streamed_, [&](const PageRef& page) {
    if (page->layer != layer) return false;
    store_->DropRaw(page.get());
    return true;
  });
}

Status Packing::UnpackForGood(Page* page) {
  if (page->packed() == nullptr) return Status();
  const Stopwatch watch(&step_wait_us_);
  if (!page->HasRaw()) {
    RawSlots slot(store_, 1);
    VARVE_RETURN_IF_ERROR(slot.Take(page));
    Status status = RestorePage(shape_, *page, *page->packed()->packed, slot.data(0));
    if (!status.ok()) {
      ++stats_.restore_failures;
      return status;
    }
    slot.SetNext();
  }
  store_->Unpack(page);
  return Status();
}

}  // namespace varve
