#include "cache/packing.h"

#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <unordered_set>
#include <utility>

#include "base/stopwatch.h"

namespace varve {
namespace {

// Cold pages are looked for when a step crosses a multiple of this.
constexpr int64_t kCheckTokens = 16;
// Tokens that dictionaries are made from, at least; and from when on they are good enough where
// rows do not repeat.
constexpr int64_t kLearnTokens = 128;
constexpr int64_t kEnoughTokens = 1024;
// The heap is trimmed at the end of a step once so much has been freed.
constexpr size_t kTrimBytes = size_t{1} << 20;

// A page that age will demote further would be packed in vain.
bool IsSettled(const LayerPlan& plan, const TableEntry& entry) {
  const auto last = std::find_if(plan.stages.rbegin(), plan.stages.rend(), [](const auto& stage) {
    return stage.from_age < LayerPlan::kNeverByAge;
  });
  return entry.stage >= static_cast<int>(plan.stages.rend() - last) - 1;
}

// Of a sample, one page in so many tokens: the one that the next multiple falls into.
bool IsSampled(const PackRule& rule, const TableEntry& entry) {
  const int64_t first = entry.page->first_position;
  return (first + rule.sample_tokens - 1) / rule.sample_tokens * rule.sample_tokens <
         entry.EndPosition();
}

std::vector<store::GearPredictorSet> GearSetsOf(const PackRule& rule) {
  std::vector<store::GearPredictorSet> sets;
  if (rule.codec != PackCodec::kGear) return sets;
  for (const std::vector<int>* ids : {&rule.predictors_k, &rule.predictors_v}) {
    store::GearPredictorSet& set = sets.emplace_back();
    for (const int id : *ids) set.predictors.push_back(static_cast<store::GearPredictor>(id));
    set.zstd = rule.zstd;
  }
  return sets;
}

// Strips lie K, V, K, V, ….
void AddStrips(const Page& page, std::span<const uint32_t> ends, LayerReport* report) {
  uint64_t packed[2] = {0, 0};
  for (size_t strip = 0; strip < ends.size(); ++strip)
    packed[strip % 2] += ends[strip] - (strip == 0 ? 0 : ends[strip - 1]);
  for (const Part part : kParts) {
    const size_t i = part == Part::kKey ? 0 : 1;
    report->lossless_raw_bytes[i] += page.part(part).strip_bytes * (ends.size() / 2);
    report->lossless_packed_bytes[i] += packed[i];
  }
}

}  // namespace

Packing::Packing(const CacheShape& shape, const std::vector<LayerPlan>& plans,
                 const PackSettings& settings, PageStore* store, Executor* executor, PackWork* work)
    : shape_(shape),
      plans_(plans),
      settings_(settings),
      store_(store),
      executor_(executor),
      work_(work),
      tried_(plans.size()),
      decode_cache_pages_(settings.decode_cache_pages) {
  for (const LayerPlan& plan : plans) {
    if (!plan.pack) continue;
    ++stats_.layers;
    decode_cache_pages_ += plan.pack->layer_cache_pages;
    stats_.block_tokens =
        std::max(stats_.block_tokens, static_cast<uint64_t>(plan.pack->block_tokens));
  }
}

Packing::~Packing() {
  if (workers_ == nullptr) return;
  for (auto& job : workers_->CancelWaiting(PackJob::Kind::kPack)) GiveUp(*job);
  for (auto& job : workers_->CancelWaiting(PackJob::Kind::kRestore)) GiveUp(*job);
  workers_->WaitUntilIdle();
  for (auto& job : workers_->Collect()) GiveUp(*job);
}

PackWorkers& Packing::workers() {
  if (workers_ == nullptr) {
    workers_ = std::make_unique<PackWorkers>(shape_, settings_.threads,
                                             static_cast<size_t>(settings_.max_queue), work_);
  }
  return *workers_;
}

void Packing::GiveUp(PackJob& job) {
  for (size_t i = 0; i < job.slots.size(); ++i) store_->GiveRaw(*job.pages[i], job.slots[i]);
  job.slots.clear();
  job.pages.clear();
}

// --- packing ---

void Packing::Advance(const Sequence& sequence, int tokens) {
  if (!active()) return;
  const Stopwatch watch(&step_wait_us_);
  Install();
  const int64_t before = sequence.next_position - tokens;
  if (before / kCheckTokens == sequence.next_position / kCheckTokens) return;
  HandOutAll(sequence);
}

void Packing::AdvanceAtRest(const Sequence& sequence) {
  Install();
  HandOutAll(sequence);
  TrimHeap();
}

void Packing::HandOutAll(const Sequence& sequence) {
  store_->SpillDown(settings_.keep_bytes);
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    if (plans_[static_cast<size_t>(layer)].pack)
      HandOut(layer, sequence.layers[static_cast<size_t>(layer)]);
  }
}

// Dictionaries are made anew from all that is cold once there is twice as much of it; where rows
// repeat, once there is half as much more, for good. What is packed is packed again, so that old
// dictionaries go.
bool Packing::ShouldLearn(const Family& family, int64_t cold_tokens) const {
  if (family.dictionaries == nullptr) return cold_tokens >= kLearnTokens;
  if (family.dictionaries->has_rows()) return 2 * cold_tokens >= 3 * family.learned_tokens;
  return family.learned_tokens < kEnoughTokens && cold_tokens >= 2 * family.learned_tokens;
}

void Packing::HandOut(int layer, const LayerTable& table) {
  const LayerPlan& plan = plans_[static_cast<size_t>(layer)];
  std::map<Kind, ColdPages> families;
  int64_t begin = 0;
  for (const TableEntry& entry : table.entries()) {
    const int64_t end = begin + entry.live.Count();
    if (end > table.live_rows() - plan.pack->hot_recent_tokens) break;
    const bool is_cold = begin >= plan.pack->hot_sink_tokens;
    begin = end;
    if (!is_cold) continue;
    const PageRef& page = entry.page;
    const bool is_fresh = page->state() == PageState::kSealed && page->HasRaw() &&
                          !page->pack_tried && IsSettled(plan, entry) &&
                          IsSampled(*plan.pack, entry);
    if (!is_fresh && page->packed() == nullptr) continue;
    ColdPages& cold = families[KindOf(*page)];
    cold.all.push_back(page);
    cold.all_tokens += page->rows;
    if (!is_fresh) continue;
    cold.fresh.push_back(page);
    cold.fresh_tokens += page->rows;
  }
  for (auto& [kind, cold] : families) {
    cold.KeepWholeBlocks(std::max<int64_t>(1, plan.pack->block_tokens / shape_.page_tokens));
    if (!cold.fresh.empty()) HandOutFamily(*plan.pack, families_[kind], cold);
  }
}

void Packing::ColdPages::KeepWholeBlocks(int64_t block_pages) {
  const size_t left_over = fresh.size() % static_cast<size_t>(block_pages);
  for (size_t i = 0; i < left_over; ++i) {
    fresh_tokens -= fresh.back()->rows;
    all_tokens -= fresh.back()->rows;
    std::erase(all, fresh.back());
    fresh.pop_back();
  }
}

void Packing::HandOutFamily(const PackRule& rule, Family& family, const ColdPages& cold) {
  if (family.learning) return;
  if (cold.fresh_tokens < (family.begun ? rule.step_tokens : rule.bootstrap_tokens)) return;
  auto job = std::make_unique<PackJob>();
  job->layer = cold.fresh.front()->layer;
  job->keep_restored = rule.mode == PackingMode::kFull;
  job->compare = rule.strict || job->keep_restored;
  job->gear = GearSetsOf(rule);
  job->dictionaries = family.dictionaries;
  job->learn = job->gear.empty() && ShouldLearn(family, cold.all_tokens);
  job->learn_all = family.dictionaries == nullptr || family.learned_tokens < kEnoughTokens;
  job->pages = job->learn ? cold.all : cold.fresh;
  const bool learns = job->learn;
  for (const PageRef& page : job->pages) {
    const PackedBytes* packed = page->packed();
    job->packed_from.push_back(packed != nullptr ? packed->packed : nullptr);
  }
  if (!workers().Push(job)) {
    ++stats_.backpressure_skips;
    return;
  }
  for (const PageRef& page : cold.fresh) page->pack_tried = true;
  family.begun = true;
  family.learning = learns;
  if (learns) family.learned_tokens = cold.all_tokens;
}

void Packing::Install() {
  if (workers_ == nullptr) return;
  for (std::unique_ptr<PackJob>& job : workers_->Collect()) {
    stats_.compress_us += job->pack_us;
    stats_.decompress_us += job->unpack_us;
    stats_.decompressed_bytes += job->unpacked_bytes;
    // A job that cannot be installed for want of memory changes nothing.
    try {
      job->kind == PackJob::Kind::kRestore ? InstallRestored(*job) : InstallPacked(*job);
    } catch (const std::bad_alloc&) {
      ++stats_.fallbacks;
      GiveUp(*job);
    }
  }
}

void Packing::InstallPacked(PackJob& job) {
  Family& state = families_[KindOf(*job.pages.front())];
  if (job.learn) {
    state.learning = false;
    if (job.status.ok()) {
      state.dictionaries = job.dictionaries;
      all_dictionaries_.insert(all_dictionaries_.end(), state.dictionaries->of_strip.begin(),
                               state.dictionaries->of_strip.end());
      dictionary_bytes_ = DictionaryBytes();
    }
  }
  const auto layer = static_cast<size_t>(job.layer);
  const PackingMode mode = plans_[layer].pack->mode;
  for (size_t i = 0; i < job.pages.size(); ++i) {
    Page* page = job.pages[i].get();
    const bool failed = !job.status.ok() || i >= job.packed.size() || !job.packed[i].status.ok();
    if (job.packed_from[i] != nullptr) {
      // Packed before, now with other dictionaries; unless it has changed meanwhile. Without memory
      // for it the old form stays.
      if (!failed && page->refs > 1 && page->packed() != nullptr &&
          page->packed()->packed == job.packed_from[i])
        (void)store_->Pack(page, job.packed[i].strips).ok();
    } else if (failed) {
      ++stats_.fallbacks;
      if (i < job.packed.size() && job.packed[i].status.code() == StatusCode::kDataLoss)
        ++stats_.mismatches;
    } else if (page->refs > 1) {
      const PackJob::Packed& packed = job.packed[i];
      const size_t bytes = packed.strips.bytes.size();
      ++stats_.pages_packed;
      stats_.pages_compared += job.compare ? 1 : 0;
      stats_.raw_bytes += page->bytes;
      stats_.compressed_bytes += std::min(bytes, page->bytes);
      if (mode != PackingMode::kStore) AddStrips(*page, packed.strips.ends, &tried_[layer]);
      if (bytes >= page->bytes) {
        ++stats_.pages_without_gain;
      } else if (mode == PackingMode::kStore) {
        if (!store_->Pack(page, packed.strips).ok()) ++stats_.fallbacks;
      }
      // What came out again is what was there: it has been compared.
      if (mode == PackingMode::kFull) std::memcpy(page->raw(), packed.restored.data(), page->bytes);
    }
  }
  job.pages.clear();
  for (const PackJob::Packed& packed : job.packed) heap_bytes_ += packed.strips.bytes.capacity();
  job.packed.clear();
  // What packing saves is saved at once: raw slots of packed pages do not stay warm.
  if (mode == PackingMode::kStore) store_->pool().DropWarm();
}

void Packing::EndStep() {
  ++step_;
  {
    const Stopwatch watch(&step_wait_us_);
    ReleaseStreamed();
    ShrinkDecodeCache();
    TrimHeap();
  }
  ++stats_.wait_steps;
  stats_.wait_us += step_wait_us_;
  stats_.wait_max_us = std::max(stats_.wait_max_us, step_wait_us_);
  stats_.wait_last_us = std::exchange(step_wait_us_, 0);
}

// The heap of a worker keeps what its jobs have freed: megabytes that nobody counts.
void Packing::TrimHeap() {
  if (heap_bytes_ < kTrimBytes) return;
  heap_bytes_ = 0;
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void Packing::ReleaseStreamed() {
  for (const PageRef& page : streamed_) store_->DropRaw(page.get());
  streamed_.clear();
}

void Packing::Collect() {
  Install();
  ReleaseStreamed();
}

void Packing::MakeRoomForStep() {
  const Stopwatch watch(&step_wait_us_);
  Collect();
  store_->DropAllRaw();
}

void Packing::Wait() {
  if (workers_ == nullptr) return;
  const Stopwatch watch(&stats_.drain_us);
  workers_->WaitUntilIdle();
  Install();
  store_->SpillDown(settings_.keep_bytes);
}

// --- statistics ---

uint64_t Packing::DictionaryBytes() const {
  // Generations of a layer share what is good enough.
  std::unordered_set<const store::Dictionary*> counted;
  uint64_t bytes = 0;
  for (const auto& weak : all_dictionaries_) {
    const auto dictionary = weak.lock();
    if (dictionary && counted.insert(dictionary.get()).second) bytes += dictionary->bytes();
  }
  return bytes;
}

void Packing::AddTo(LosslessStats* stats) const {
  const uint64_t decode_cache_bytes = stats->decode_cache_bytes;
  const LosslessStats now = *stats;
  *stats = stats_;
  stats->pages_spilled = now.pages_spilled;
  stats->bytes_spilled = now.bytes_spilled;
  stats->spill_refused = now.spill_refused;
  stats->decode_cache_bytes = decode_cache_bytes;
  stats->pages_now = now.pages_now;
  stats->raw_bytes_now = now.raw_bytes_now;
  stats->packed_bytes_now = now.packed_bytes_now;
  stats->dictionary_bytes = DictionaryBytes();
  if (workers_ == nullptr) return;
  stats->queue_peak = workers_->queue_peak();
  stats->queue_depth_peak = workers_->depth_peak();
}

void Packing::AddTo(int layer, std::span<const LayerTable* const> tables,
                    LayerReport* report) const {
  if (!plans_[static_cast<size_t>(layer)].pack) return;
  const LayerReport& tried = tried_[static_cast<size_t>(layer)];
  for (size_t part = 0; part < 2; ++part) {
    report->lossless_raw_bytes[part] += tried.lossless_raw_bytes[part];
    report->lossless_packed_bytes[part] += tried.lossless_packed_bytes[part];
  }
  // Generations of dictionaries share what is good enough.
  std::unordered_set<const store::Dictionary*> counted;
  const auto add = [&](const PackDictionaries* dictionaries) {
    if (dictionaries == nullptr) return;
    for (size_t strip = 0; strip < dictionaries->of_strip.size(); ++strip) {
      const store::Dictionary* dictionary = dictionaries->Of(strip);
      if (dictionary != nullptr && counted.insert(dictionary).second)
        report->lossless_packed_bytes[strip % 2] += dictionary->bytes();
    }
  };
  for (const LayerTable* table : tables) {
    for (const TableEntry& entry : table->entries()) {
      const PackedBytes* packed = entry.page->packed();
      if (packed == nullptr) continue;
      AddStrips(*entry.page, packed->packed->ends, report);
      add(packed->packed->dictionaries.get());
    }
  }
  for (const auto& [kind, family] : families_) {
    if (std::get<0>(kind) == layer) add(family.dictionaries.get());
  }
}

}  // namespace varve
