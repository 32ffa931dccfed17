// Packing, the reading side: the decode cache, prefetching, and pages that become raw again.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>

#include "cache/packing.h"
#include "pages/strip_reader.h"

namespace varve {
namespace {

// Part of the decode cache that prefetching may use.
constexpr int kStreamedPart = 4;

}  // namespace

uint64_t Packing::DecodeCacheBytes(const Page& page) const {
  return static_cast<uint64_t>(settings_.decode_cache_pages) * SlotBytes(page.bytes);
}

bool Packing::MakeRoom(const Page& page) {
  const uint64_t most = DecodeCacheBytes(page);
  const uint64_t bytes = SlotBytes(page.bytes);
  while (store_->raw_bytes() + bytes > most) {
    Page* oldest = nullptr;
    for (Page* candidate : store_->restored()) {
      if (candidate->last_read + 2 > step_) continue;
      if (oldest == nullptr || candidate->last_read < oldest->last_read) oldest = candidate;
    }
    if (oldest == nullptr) return false;
    store_->DropRaw(oldest);
  }
  return true;
}

Status Packing::Prepare(int layer, std::span<const Sequence* const> sequences) {
  if (!active()) return Status();
  Install();
  std::vector<Page*> missing;
  spilled_read_.clear();
  for (const Sequence* sequence : sequences) {
    for (const TableEntry& entry : sequence->layers[static_cast<size_t>(layer)].entries) {
      Page* page = entry.page;
      if (page->packed && page->packed->spilled) spilled_read_.push_back(page);
      if (!page->packed || (page->last_read == step_ && !page->HasRaw())) continue;
      ++(page->HasRaw() ? stats_.decode_cache_hits : stats_.decode_cache_misses);
      page->last_read = step_;
      if (!page->HasRaw()) missing.push_back(page);
    }
  }
  std::vector<std::pair<Page*, PageSlot>> restoring;
  for (Page* page : missing) {
    if (!MakeRoom(*page)) break;
    Result<PageSlot> slot = store_->TakeRaw(*page);
    if (!slot.ok()) break;  // unpacked strip by strip, then
    restoring.emplace_back(page, *slot);
  }
  std::mutex mutex;
  Status status;
  std::atomic<double> us{0};
  executor_->ParallelFor(restoring.size(), [&](size_t i, int) {
    const auto begin = std::chrono::steady_clock::now();
    Status restored = RestorePage(shape_, *restoring[i].first, *restoring[i].first->packed,
                                  restoring[i].second.data);
    us +=
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    if (restored.ok()) return;
    const std::lock_guard lock(mutex);
    if (status.ok()) status = std::move(restored);
  });
  stats_.decompress_us += us;
  for (auto& [page, slot] : restoring) {
    if (!status.ok()) {
      store_->GiveRaw(*page, slot);
      continue;
    }
    store_->SetRaw(page, slot);
    ++stats_.pages_restored;
    stats_.decompressed_bytes += page->bytes;
  }
  if (!status.ok()) {
    ++stats_.restore_failures;
    return status;
  }
  if (settings_.prefetch) Prefetch(layer, sequences);
  return Status();
}

void Packing::Prefetch(int layer, std::span<const Sequence* const> sequences) {
  if (workers_ == nullptr) return;
  // What has not been begun comes too late now.
  for (auto& job : workers_->CancelWaiting(PackJob::Kind::kRestore)) GiveUp(*job);
  int next = layer + 1;
  while (next < shape_.num_layers && !plans_[static_cast<size_t>(next)].pack) ++next;
  if (next >= shape_.num_layers) return;
  auto job = std::make_unique<PackJob>();
  job->kind = PackJob::Kind::kRestore;
  job->layer = next;
  const int most = settings_.decode_cache_pages / kStreamedPart;
  for (const Sequence* sequence : sequences) {
    for (const TableEntry& entry : sequence->layers[static_cast<size_t>(next)].entries) {
      Page* page = entry.page;
      if (!page->packed || page->HasRaw() || static_cast<int>(job->pages.size()) >= most) continue;
      if (std::find(job->pages.begin(), job->pages.end(), page) != job->pages.end()) continue;
      if (store_->raw_bytes() + SlotBytes(page->bytes) >
          DecodeCacheBytes(*page) + DecodeCacheBytes(*page) / kStreamedPart) {
        break;
      }
      Result<PageSlot> slot = store_->TakeRaw(*page);
      if (!slot.ok()) break;
      store_->AddRef(page);
      job->pages.push_back(page);
      job->packed_from.push_back(page->packed);
      job->slots.push_back(*slot);
    }
  }
  if (job->pages.empty()) return;
  if (!workers_->Push(job)) GiveUp(*job);
}

void Packing::InstallRestored(PackJob& job) {
  if (!job.status.ok()) {
    ++stats_.restore_failures;
    GiveUp(job);
    return;
  }
  for (size_t i = 0; i < job.pages.size(); ++i) {
    Page* page = job.pages[i];
    if (!page->packed || page->HasRaw() || page->refs == 1) {
      store_->GiveRaw(*page, job.slots[i]);
      store_->Release(page);
      continue;
    }
    store_->SetRaw(page, job.slots[i]);
    ++stats_.pages_restored;
    ++stats_.pages_prefetched;
    streamed_.push_back(page);  // with the job's reference
  }
  job.pages.clear();
}

void Packing::Finish(int layer) {
  for (const Page* page : spilled_read_) store_->ForgetSpilled(*page);
  spilled_read_.clear();
  std::erase_if(streamed_, [&](Page* page) {
    if (page->layer != layer) return false;
    store_->DropRaw(page);
    store_->Release(page);
    return true;
  });
}

Status Packing::UnpackForGood(Page* page) {
  if (!page->packed) return Status();
  if (!page->HasRaw()) {
    VARVE_ASSIGN_OR_RETURN(PageSlot slot, store_->TakeRaw(*page));
    const Status status = RestorePage(shape_, *page, *page->packed, slot.data);
    if (!status.ok()) {
      ++stats_.restore_failures;
      store_->GiveRaw(*page, slot);
      return status;
    }
    store_->SetRaw(page, slot);
  }
  store_->Unpack(page);
  return Status();
}

}  // namespace varve
