#include "serve/prefix/prefix_tiers.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

namespace varve::serve {
namespace {

constexpr std::chrono::seconds kFlushTime{5};
constexpr std::chrono::seconds kContainsTime{1};
// Before the first prompt has been read nobody knows what a page costs.
constexpr double kFirstSecondsPerPage = 0.1;

double ValueOf(double us_per_page, size_t image_bytes) {
  return us_per_page / static_cast<double>(std::max<size_t>(image_bytes, 1));
}

}  // namespace

PrefixTiers::PrefixTiers(Cache& cache, std::unique_ptr<PageTiers> tiers, uint64_t queue_bytes)
    : cache_(cache),
      page_tokens_(cache.shape().page_tokens),
      tiers_(std::move(tiers)),
      queue_bytes_(queue_bytes),
      fetcher_(tiers_.get(), nullptr) {}

PrefixTiers::~PrefixTiers() { tiers_->Flush(TierClock::now() + kFlushTime); }

PrefixFetch PrefixTiers::Fetch(std::span<const PageKey> keys, size_t first_page,
                               double us_per_page) {
  if (first_page >= keys.size()) return {};
  FetchOptions options;
  options.compute_seconds_per_page = us_per_page > 0 ? us_per_page / 1e6 : kFirstSecondsPerPage;
  options.page_cost = options.compute_seconds_per_page * 1e6;
  const auto wanted = keys.subspan(first_page);
  return {fetcher_.Start({wanted.begin(), wanted.end()}, options), first_page};
}

size_t PrefixTiers::Import(const PrefixFetch& fetch, SequenceId sequence, size_t num_pages,
                           const std::function<bool()>& make_room) {
  // Pages before the first that was asked for may have gone since then.
  if (fetch.pages == nullptr || num_pages < fetch.first_page) return num_pages;
  const std::vector<PageImage> images = fetch.pages->Take();
  for (size_t i = num_pages - fetch.first_page; i < images.size() && make_room(); ++i) {
    const Status status = cache_.ImportPages(sequence, *images[i]);
    if (!status.ok()) {
      ++stats_.pages_refused;
      break;
    }
    ++stats_.pages_imported;
    ++num_pages;
  }
  return num_pages;
}

size_t PrefixTiers::Keep(SequenceId sequence, std::span<const PageKey> keys, size_t first_page,
                         double us_per_page) {
  for (size_t i = first_page; i < keys.size(); ++i) {
    if (!KeepPage(sequence, i, keys[i], us_per_page)) return i;
  }
  return std::max(first_page, keys.size());
}

PageImage PrefixTiers::Export(SequenceId sequence, size_t page) {
  const int64_t begin = static_cast<int64_t>(page) * page_tokens_;
  Result<std::vector<std::byte>> image =
      cache_.ExportPages(sequence, begin, begin + page_tokens_, {.resting = true});
  if (!image.ok()) return nullptr;
  ++stats_.pages_exported;
  return std::make_shared<const std::vector<std::byte>>(std::move(*image));
}

bool PrefixTiers::KeepPage(SequenceId sequence, size_t page, const PageKey& key,
                           double us_per_page) {
  const PageImage image = Export(sequence, page);
  if (image == nullptr) return false;
  tiers_->Put(key, image, ValueOf(us_per_page, image->size()));
  return true;
}

bool PrefixTiers::KeepPath(SequenceId sequence, std::span<const PageKey> keys, double us_per_page,
                           TierClock::time_point deadline) {
  const std::vector<bool> there = Ask(keys);
  uint64_t waiting_bytes = queue_bytes_;  // nobody knows
  for (size_t i = 0; i < keys.size(); ++i) {
    if (there[i] || IsQueued(keys[i])) continue;
    if (TierClock::now() >= deadline) return false;
    const PageImage image = Export(sequence, i);
    // Those behind it would be of no use.
    if (image == nullptr) return true;
    // A queue that is full would drop it.
    if (waiting_bytes + image->size() > queue_bytes_ / 2) {
      tiers_->FlushAny(deadline);
      waiting_bytes = 0;
    }
    tiers_->Put(keys[i], image, ValueOf(us_per_page, image->size()));
    waiting_bytes += image->size();
  }
  return true;
}

std::vector<bool> PrefixTiers::Ask(std::span<const PageKey> keys) const {
  std::vector<bool> found(keys.size());
  for (const std::unique_ptr<PageTier>& tier : tiers_->tiers()) {
    const std::vector<bool> there = tier->Contains(keys, TierClock::now() + kContainsTime);
    for (size_t i = 0; i < keys.size(); ++i) found[i] = found[i] || there[i];
  }
  return found;
}

std::optional<std::vector<bool>> PrefixTiers::Contains(std::span<const PageKey> keys) {
  if (answer_.valid()) {
    if (answer_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return std::nullopt;
    std::vector<bool> found = answer_.get();
    if (std::equal(keys.begin(), keys.end(), asked_.begin(), asked_.end())) return found;
  }
  asked_.assign(keys.begin(), keys.end());
  try {
    answer_ = std::async(std::launch::async, [this, asked = asked_] { return Ask(asked); });
  } catch (const std::system_error&) {
    answer_ = {};  // no thread to be had now
  }
  return std::nullopt;
}

bool PrefixTiers::IsQueued(const PageKey& key) const {
  return std::any_of(tiers_->tiers().begin(), tiers_->tiers().end(),
                     [&key](const auto& tier) { return tier->IsQueued(key); });
}

PrefixTierStats PrefixTiers::stats() const {
  PrefixTierStats stats = stats_;
  stats.pages_skipped = tiers_->pages_skipped();
  for (const std::unique_ptr<PageTier>& tier : tiers_->tiers())
    stats.tiers.push_back({tier->name(), tier->Stats()});
  return stats;
}

}  // namespace varve::serve
