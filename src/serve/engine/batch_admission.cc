// BatchEngine: who gets a slot, and room for pages.

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "serve/engine/batch_engine.h"

namespace varve::serve {
namespace {

// A turn that finds its conversation reads no more than this: what was said since, and the page
// that was not full.
constexpr size_t kFewPages = 2;
// Without use for so long, pages may make room for others.
constexpr double kInUseSeconds = 60;
constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

uint64_t BatchEngine::BytesHeld() const { return PagePoolBytesHeld(*pool_); }

bool BatchEngine::MakeRoom(uint64_t bytes) {
  const uint64_t budget = options_.cache_bytes;
  while (BytesHeld() + bytes > budget) {
    if (prefixes_ == nullptr) return false;
    const Result<bool> evicted = prefixes_->EvictOne(Now());
    const bool has_evicted = evicted.ok() && *evicted;
    if (!has_evicted && !(ends_ && ends_->DropOldest())) return false;
    if (ends_) ends_->DropEvicted();
  }
  return true;
}

uint64_t BatchEngine::GrowthOfRunning() {
  uint64_t bytes = 0;
  for (const auto& running : running_) {
    const uint64_t most = estimate_.Bytes(running->limit());
    bytes += most - std::min(most, estimate_.Bytes(running->fed));
  }
  return bytes;
}

uint64_t BatchEngine::OwnBytesOfRunning() {
  uint64_t bytes = 0;
  for (const auto& running : running_) {
    const uint64_t now = estimate_.Bytes(running->fed);
    bytes += now - std::min(now, estimate_.Bytes(running->cached_tokens));
  }
  return bytes;
}

// True while a running request reads pages of this one's prompt that nobody has yet.
bool BatchEngine::AwaitsSharedPages(const QueuedRequest& queued) const {
  if (prefixes_ == nullptr || !queued.request.reuse_prefix) return false;
  const size_t there = prefixes_->Find(queued.keys);
  for (const auto& running : running_) {
    if (!running->is_reading() || !running->request().reuse_prefix) continue;
    const std::vector<PageKey>& theirs = running->queued().keys;
    const auto differ =
        std::mismatch(queued.keys.begin(), queued.keys.end(), theirs.begin(), theirs.end());
    if (static_cast<size_t>(differ.first - queued.keys.begin()) > there) return true;
  }
  return false;
}

size_t BatchEngine::PagesThere(const QueuedRequest& queued) const {
  return prefixes_ != nullptr && queued.request.reuse_prefix ? prefixes_->Find(queued.keys) : 0;
}

size_t BatchEngine::PagesToRead(const QueuedRequest& queued) const {
  const size_t fetched = queued.fetch.pages != nullptr ? queued.fetch.pages->num_pages() : 0;
  const size_t there = PagesThere(queued) + fetched;
  return queued.keys.size() - std::min(queued.keys.size(), there);
}

uint64_t BatchEngine::GrowthOf(const QueuedRequest& queued) {
  const auto prompt = static_cast<int64_t>(queued.request.prompt.size());
  const int64_t room = context_ - prompt;
  const int64_t wanted = queued.request.max_tokens;
  const uint64_t most = estimate_.Bytes(prompt + (wanted < 0 ? room : std::min(room, wanted)));
  const auto there = static_cast<int64_t>(PagesThere(queued));
  const uint64_t shared = estimate_.Bytes(there * cache_->shape().page_tokens);
  return most - std::min(most, shared);
}

bool BatchEngine::IsCrowded(const QueuedRequest& queued) {
  if (prefixes_ == nullptr) return false;
  if (PagesToRead(queued) <= kFewPages) return false;
  const uint64_t wanted = BytesHeld() + GrowthOfRunning() + GrowthOf(queued);
  if (wanted <= options_.cache_bytes) return false;
  const uint64_t pages = (wanted - options_.cache_bytes) / estimate_.settled_page_bytes() + 1;
  return prefixes_->NumUnusedSince(Now() - kInUseSeconds, pages) < pages;
}

bool BatchEngine::CanMakeRoom(uint64_t bytes) const {
  const uint64_t wanted = BytesHeld() + bytes;
  if (wanted <= options_.cache_bytes) return true;
  if (prefixes_ == nullptr) return false;
  const uint64_t pages = (wanted - options_.cache_bytes) / estimate_.page_bytes();
  const size_t others = ends_ ? ends_->size() : 0;
  return prefixes_->NumUnusedSince(kNever, pages) + others >= pages;
}

bool BatchEngine::CanAdmit(const QueuedRequest& queued) {
  const uint64_t growth = GrowthOfRunning() + GrowthOf(queued);
  // What no eviction can give must not cost the prefix cache its pages.
  if (growth + OwnBytesOfRunning() > options_.cache_bytes) return false;
  const bool reuses = prefixes_ != nullptr && queued.request.reuse_prefix;
  PrefixNode* pin = reuses ? prefixes_->Pin(queued.keys) : nullptr;
  // Nor may what some eviction could give, but not enough of it; whoever is alone tries.
  const bool fits = (running_.empty() || CanMakeRoom(growth)) && MakeRoom(growth);
  if (pin != nullptr) prefixes_->Unpin(pin);
  return fits;
}

int BatchEngine::FreeSlot(int fixed_slot) const {
  std::vector<bool> taken(static_cast<size_t>(options_.num_slots));
  for (const auto& running : running_) taken[static_cast<size_t>(running->slot())] = true;
  if (fixed_slot >= 0) {
    const int slot = fixed_slot % options_.num_slots;
    return taken[static_cast<size_t>(slot)] ? -1 : slot;
  }
  const auto free = std::find(taken.begin(), taken.end(), false);
  return free == taken.end() ? -1 : static_cast<int>(free - taken.begin());
}

Status BatchEngine::FindSequence(RunningRequest& running) {
  std::optional<PrefixCache::Hit> hit;
  if (prefixes_ != nullptr && running.request().reuse_prefix) {
    VARVE_ASSIGN_OR_RETURN(hit, prefixes_->Take(running.queued().keys, Now()));
  }
  if (hit) {
    running.sequence = hit->sequence;
    running.pin = hit->pin;
    running.fed = static_cast<int64_t>(hit->num_pages) * cache_->shape().page_tokens;
    running.cached_tokens = running.fed;
  } else {
    VARVE_ASSIGN_OR_RETURN(running.sequence, cache_->CreateSequence());
  }
  if (TakeEnd(running)) return cache_->BeginPrompt(running.sequence);
  if (tiers_ != nullptr) ImportPages(running);
  return cache_->BeginPrompt(running.sequence);
}

bool BatchEngine::TakeEnd(RunningRequest& running) {
  if (!ends_ || !running.request().reuse_prefix) return false;
  const std::span<const int32_t> prompt(running.request().prompt);
  // The last token is always computed: its logits are wanted.
  const std::optional<ConversationEnds::Hit> end =
      ends_->Take(prompt.first(prompt.size() - 1), running.request().tenant, running.fed + 1);
  if (!end) return false;
  static_cast<void>(cache_->Free(running.sequence));
  running.sequence = end->sequence;
  running.fed = end->num_tokens;
  running.cached_tokens = running.fed;
  // Who computed them has handed them over.
  running.pages_in_tiers = static_cast<size_t>(running.fed / cache_->shape().page_tokens);
  return true;
}

void BatchEngine::FetchPages(QueuedRequest& queued) {
  if (tiers_ == nullptr || !queued.request.reuse_prefix) return;
  queued.fetch = tiers_->Fetch(queued.keys, prefixes_->Find(queued.keys), UsPerPage());
}

void BatchEngine::ImportPages(RunningRequest& running) {
  const int64_t page_tokens = cache_->shape().page_tokens;
  const auto in_memory = static_cast<size_t>(running.fed / page_tokens);
  const size_t num_pages = tiers_->Import(running.queued().fetch, running.sequence, in_memory,
                                          [this] { return MakeRoom(estimate_.page_bytes()); });
  running.pages_in_tiers = num_pages;
  if (num_pages == in_memory) return;
  running.fed = static_cast<int64_t>(num_pages) * page_tokens;
  running.cached_tokens = running.fed;
  KeepPages(running, running.fed);
}

void BatchEngine::Begin(QueuedRequest queued) {
  const int slot = FreeSlot(queued.request.fixed_slot);
  running_.push_back(
      std::make_unique<RunningRequest>(std::move(queued), slot, tokenizer_, context_));
  const Status begun = FindSequence(*running_.back());
  if (!begun.ok()) running_.back()->End(FinishReason::kError, begun);
}

std::optional<size_t> BatchEngine::NextToAdmit() {
  std::vector<WaitingRequest> waiting;
  for (const QueuedRequest& queued : waiting_) {
    const auto of_tenant = std::count_if(running_.begin(), running_.end(), [&](const auto& other) {
      return other->request().tenant == queued.request.tenant;
    });
    const bool ready = FreeSlot(queued.request.fixed_slot) >= 0 && !queued.fetch.IsUnderWay() &&
                       !AwaitsSharedPages(queued);
    waiting.push_back({queued.arrival, static_cast<int>(of_tenant), ready});
  }
  const std::optional<size_t> first = NextWaiting(waiting);
  if (crowded_.MayBegin(Now())) return first;
  std::optional<size_t> next = first;
  while (next && IsCrowded(waiting_[*next])) {
    waiting[*next].ready = false;
    next = NextWaiting(waiting);
  }
  // With nobody to be kept waiting, nobody waits.
  return next || !running_.empty() ? next : first;
}

void BatchEngine::RefuseTooLong(const QueuedRequest& queued) {
  const auto tokens = static_cast<int64_t>(queued.request.prompt.size()) +
                      std::max<int64_t>(queued.request.max_tokens, 0);
  EndWaiting(queued, FinishReason::kError,
             InvalidArgument(fmt::format(
                 "cache: {} tokens of prompt and answer take {} bytes, the limit is {}; ask for "
                 "fewer max_tokens",
                 tokens, estimate_.Bytes(tokens), options_.cache_bytes)));
}

void BatchEngine::Admit() {
  while (running_.size() < static_cast<size_t>(options_.num_slots) && !waiting_.empty()) {
    const std::optional<size_t> next = NextToAdmit();
    if (!next) return;
    QueuedRequest& chosen = waiting_[*next];
    chosen.is_crowded = chosen.is_crowded || IsCrowded(chosen);
    const bool fits = CanAdmit(chosen);
    // Whoever does not fit waits until others end; alone it never will.
    if (!fits && !running_.empty()) return;
    QueuedRequest queued = std::move(chosen);
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(*next));
    if (!fits) {
      RefuseTooLong(queued);
      continue;
    }
    if (queued.is_crowded) crowded_.Begin();
    Begin(std::move(queued));
  }
}

}  // namespace varve::serve
