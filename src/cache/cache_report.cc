// What a cache knows about itself, typed.

#include <utility>

#include <fmt/format.h>

#include "cache/cache_impl.h"

namespace varve {

const char* PageStateName(PageState state) {
  switch (state) {
    case PageState::kFilling:
      return "filling";
    case PageState::kFull:
      return "full";
    case PageState::kSealed:
      return "sealed";
    case PageState::kPacked:
      return "packed";
  }
  return "unknown";
}

double LosslessStats::ratio() const {
  const uint64_t raw = pages_now > 0 ? raw_bytes_now : raw_bytes;
  const uint64_t packed = (pages_now > 0 ? packed_bytes_now : compressed_bytes) + dictionary_bytes;
  return raw == 0 || packed == 0 ? 1 : static_cast<double>(raw) / static_cast<double>(packed);
}

double LosslessStats::wait_mean_us() const {
  return wait_steps == 0 ? 0 : wait_us / static_cast<double>(wait_steps);
}

double LosslessStats::wait_headroom_us() const { return kAsyncWaitBudgetUs - wait_max_us; }

namespace {

std::string StatsLine(const CacheReport& report) {
  const RetentionStats& kept = report.retention;
  const LosslessStats& packed = report.lossless;
  return fmt::format(
      "stats: total_ratio={:.3f} keep_ratio={:.3f} lossy_ratio={:.3f} last_evict_tokens={} "
      "total_evict_tokens={} evict_us={:.0f} lossless_ratio={:.3f} lossless_pages_packed={} "
      "lossless_async_wait_last_us={:.0f} lossless_async_queue_peak={} lossless_fallback_count={} "
      "kv_content_consistency_pass={}",
      report.total_ratio, kept.keep_ratio, kept.lossy_ratio, kept.tokens_evicted_last,
      kept.tokens_evicted, kept.plan_us, packed.ratio(), packed.pages_packed, packed.wait_last_us,
      packed.queue_peak, packed.fallbacks, packed.consistent() ? 1 : 0);
}

}  // namespace

uint64_t CacheImpl::TableBytes() const {
  uint64_t bytes = store_.num_pages() * sizeof(Page);
  for (const auto& [id, sequence] : sequences_) {
    bytes += sizeof(Sequence) + sequence->layers.capacity() * sizeof(LayerTable);
    for (const LayerTable& table : sequence->layers)
      bytes += table.entries().capacity() * sizeof(TableEntry) + table.decision_bytes;
  }
  return bytes;
}

CacheImpl::Footprint CacheImpl::FootprintNow() const {
  uint64_t tokens = 0;
  for (const auto& [id, sequence] : sequences_)
    tokens += static_cast<uint64_t>(sequence->tokens_seen());
  const uint64_t f16_bytes = tokens * static_cast<uint64_t>(shape_.num_layers) * RowBytes();
  const uint64_t held_bytes = store_.bytes_held() + packing_.dictionary_bytes() + TableBytes();
  return {static_cast<double>(f16_bytes), static_cast<double>(held_bytes)};
}

CacheStats CacheImpl::Stats() const { return Report(); }

void CacheImpl::LogStep() {
  if (options_.log == nullptr || settled_plan_.settings.log_stats.value_or(0) == 0) return;
  const uint64_t done = retention_.pages_changed() + packing_.pages_packed();
  if (std::exchange(logged_, done) == done) return;
  options_.log->OnLine(StatsLine(Report()));
}

void CacheImpl::AddTables(CacheReport* report) const {
  RetentionTotals totals;
  report->by_layer.resize(static_cast<size_t>(shape_.num_layers));
  for (const auto& [id, sequence] : sequences_) {
    const uint64_t seen_bytes = static_cast<uint64_t>(sequence->tokens_seen()) * RowBytes();
    for (size_t i = 0; i < sequence->layers.size(); ++i) {
      const LayerTable& table = sequence->layers[i];
      LayerReport& layer = report->by_layer[i];
      report->bytes_f16 += static_cast<uint64_t>(table.live_rows()) * RowBytes();
      layer.bytes_f16_seen += seen_bytes;
      for (const TableEntry& entry : table.entries()) {
        layer.tokens_live += static_cast<uint64_t>(entry.live_tokens());
        layer.bytes_held += entry.page->HeldBytes();
      }
    }
    report->bytes_f16_seen += seen_bytes * static_cast<uint64_t>(shape_.num_layers);
    retention_.AddTo(*sequence, &totals);
  }
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    const auto index = static_cast<size_t>(layer);
    std::vector<const LayerTable*> tables;
    for (const auto& [id, sequence] : sequences_) tables.push_back(&sequence->layers[index]);
    packing_.AddTo(layer, tables, &report->by_layer[index]);
  }
  report->bytes_tables = TableBytes();
  report->retention = retention_.Stats(totals);
}

CacheReport CacheImpl::Report() const {
  CacheReport report;
  store_.AddTo(&report);
  AddTables(&report);
  report.sequences = sequences_.size();
  report.bytes_scratch = backend_->scratch_bytes() + tensors_.bytes();
  const Ageing::Counters& counters = ageing_.counters();
  report.pages_sealed = counters.sealed;
  report.pages_demoted = counters.demoted;
  report.pages_adopted = counters.adopted;
  report.pages_dropped = counters.dropped;
  report.nonfinite_values = backend_->replaced() + folding_.nonfinite_values();
  packing_.AddTo(&report.lossless);
  report.lossless.restore_failures += counters.not_restored;
  report.lossless.decompress_us += backend_->unpacked().us;
  report.lossless.decompressed_bytes += backend_->unpacked().bytes;
  report.lossless.strips_unpacked = backend_->unpacked().strips;
  report.bytes_held += report.lossless.dictionary_bytes;
  const uint64_t held = report.bytes_held + report.bytes_tables;
  if (report.bytes_f16_seen > 0 && held > 0)
    report.total_ratio = static_cast<double>(report.bytes_f16_seen) / static_cast<double>(held);
  report.total_ratio_avg = run_footprint_.ratio();
  report.stages = stages_.Sum();
  report.bytes_codebooks = rungs_->codebook_bytes();
  report.bytes_compressors = compressors_->bytes();
  report.fold = folding_.stats();
  report.fallbacks = rungs_->fallbacks();
  report.plan_notes = plan_notes_;
  return report;
}

}  // namespace varve
