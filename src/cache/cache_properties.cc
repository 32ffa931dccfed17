// What a cache knows about itself: the typed report, and the same by name. The names of policies
// and packing are those that `--json` has.

#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/cache_impl.h"
#include "varve/properties.h"

namespace varve {

CacheStats CacheImpl::Stats() const { return Report(); }

CacheReport CacheImpl::Report() const {
  CacheReport report;
  RetentionTotals totals;
  store_.AddTo(&report);
  const uint64_t row_bytes =
      2 * static_cast<uint64_t>(shape_.num_kv_heads) * (shape_.key_dim + shape_.value_dim);
  for (const auto& [id, sequence] : sequences_) {
    report.bytes_tables += sizeof(Sequence) + sequence->layers.capacity() * sizeof(LayerTable);
    for (const LayerTable& table : sequence->layers) {
      report.bytes_tables += table.entries().capacity() * sizeof(TableEntry);
      report.bytes_f16 += static_cast<uint64_t>(table.live_rows()) * row_bytes;
      report.bytes_f16_seen += static_cast<uint64_t>(sequence->tokens_seen()) * row_bytes;
      report.bytes_tables += table.plan_bytes;
    }
    retention_.AddTo(*sequence, &totals);
  }
  report.retention = retention_.Stats(totals);
  report.sequences = sequences_.size();
  report.bytes_scratch = backend_->scratch_bytes() + tensors_.bytes();
  const Ageing::Counters& counters = ageing_.counters();
  report.pages_sealed = counters.sealed;
  report.pages_demoted = counters.demoted;
  report.pages_adopted = counters.adopted;
  report.pages_dropped = counters.dropped;
  report.nonfinite_values = counters.nonfinite_values;
  packing_.AddTo(&report.lossless);
  report.lossless.restore_failures += counters.not_restored;
  report.lossless.decompress_us += backend_->unpacked().us;
  report.lossless.decompressed_bytes += backend_->unpacked().bytes;
  report.lossless.strips_unpacked = backend_->unpacked().strips;
  report.bytes_held += report.lossless.dictionary_bytes;
  report.stages = stages_.Sum();
  report.bytes_codebooks = rungs_->codebook_bytes();
  report.bytes_compressors = compressors_->bytes();
  report.fold = folding_.stats();
  report.fallbacks = rungs_->fallbacks();
  return report;
}

double LosslessStats::ratio() const {
  const uint64_t raw = pages_now > 0 ? raw_bytes_now : raw_bytes;
  const uint64_t packed = pages_now > 0 ? packed_bytes_now + dictionary_bytes : compressed_bytes;
  return packed == 0 ? 1 : static_cast<double>(raw) / static_cast<double>(packed);
}

namespace {

class PropertyList {
 public:
  void Count(std::string name, uint64_t value) { list_.push_back({std::move(name), value}); }
  void Number(std::string name, double value) { list_.push_back({std::move(name), value}); }
  void Text(std::string name, std::string value) {
    list_.push_back({std::move(name), std::move(value)});
  }
  std::vector<Property> Take() && { return std::move(list_); }

 private:
  std::vector<Property> list_;
};

void AddCore(const CacheReport& report, PropertyList* to) {
  to->Count("bytes_used", report.bytes_used);
  to->Count("bytes_held", report.bytes_held);
  to->Count("bytes_tables", report.bytes_tables);
  to->Count("bytes_scratch", report.bytes_scratch);
  // What the process keeps in memory for this cache.
  to->Count("resident_bytes", report.bytes_held + report.bytes_tables + report.bytes_scratch);
  to->Count("bytes_f16", report.bytes_f16);
  to->Count("bytes_f16_seen", report.bytes_f16_seen);
  to->Count("bytes_codebooks", report.bytes_codebooks);
  to->Count("bytes_compressors", report.bytes_compressors);
  to->Count("bytes_copied", report.bytes_copied);
  to->Count("pages", report.pages);
  to->Count("sequences", report.sequences);
  to->Count("pages_sealed", report.pages_sealed);
  to->Count("pages_demoted", report.pages_demoted);
  to->Count("pages_adopted", report.pages_adopted);
  to->Count("pages_dropped", report.pages_dropped);
  to->Count("pages_unread", report.pages_unread);
  to->Count("bytes_unread", report.bytes_unread);
  to->Count("nonfinite_values", report.nonfinite_values);
}

void AddRetention(const RetentionStats& stats, PropertyList* to) {
  to->Count("policy_layers", static_cast<uint64_t>(stats.layers));
  to->Number("keep_ratio", stats.keep_ratio);
  to->Number("lossy_ratio", stats.lossy_ratio);
  to->Number("lossy_ratio_run", stats.lossy_ratio_run);
  to->Number("target_keep", stats.target_keep);
  to->Number("target_keep_effective", stats.effective_keep);
  to->Number("floor_keep_by_recent_sink", stats.floor_keep);
  to->Number("block_quantized_keep", stats.kept_part);
  to->Number("evict_us", stats.plan_us);
  to->Count("last_evict_tokens", stats.tokens_evicted_last);
  to->Count("total_evict_tokens", stats.tokens_evicted);
  to->Count("evicted_pages", stats.pages_evicted);
  to->Count("demoted_pages", stats.pages_demoted);
  to->Count("plans", stats.plans);
  to->Count("plans_stale", stats.plans_stale);
  to->Count("plan_bytes", stats.plan_bytes);
  to->Count("floors_bound", stats.plans_bound);
}

void AddLossless(const LosslessStats& stats, PropertyList* to) {
  to->Count("lossless_layers", static_cast<uint64_t>(stats.layers));
  to->Number("lossless_ratio", stats.ratio());
  to->Count("lossless_raw_bytes", stats.raw_bytes);
  to->Count("lossless_compressed_bytes", stats.compressed_bytes);
  to->Count("lossless_decompressed_bytes", stats.decompressed_bytes);
  to->Number("lossless_compress_us", stats.compress_us);
  to->Number("lossless_decompress_us", stats.decompress_us);
  to->Number("codec_us", stats.compress_us + stats.decompress_us);
  to->Count("lossless_queue_depth_peak", stats.queue_peak);
  to->Count("lossless_async_queue_peak", stats.queue_peak);
  to->Number("lossless_async_wait_us", stats.wait_us);
  to->Count("lossless_fallback_count", stats.fallbacks);
  to->Count("lossless_backpressure_skip_count", stats.backpressure_skips);
  to->Count("lossless_restore_failures", stats.restore_failures);
  to->Count("lossless_decode_cache_hit", stats.decode_cache_hits);
  to->Count("lossless_decode_cache_miss", stats.decode_cache_misses);
  to->Count("lossless_decode_cache_bytes", stats.decode_cache_bytes);
  to->Count("lossless_dictionary_bytes", stats.dictionary_bytes);
  to->Count("lossless_pages_packed", stats.pages_packed);
  to->Count("lossless_pages_without_gain", stats.pages_without_gain);
  to->Count("lossless_pages_now", stats.pages_now);
  to->Count("lossless_packed_bytes_now", stats.packed_bytes_now);
  to->Count("lossless_raw_bytes_now", stats.raw_bytes_now);
  to->Count("pages_spilled", stats.pages_spilled);
  to->Count("bytes_spilled", stats.bytes_spilled);
  to->Count("spill_refused", stats.spill_refused);
  to->Count("strips_unpacked", stats.strips_unpacked);
  to->Count("restored_pages", stats.pages_restored);
  to->Count("prefetched_pages", stats.pages_prefetched);
}

void AddFold(const FoldStats& stats, PropertyList* to) {
  to->Count("fold_layers", static_cast<uint64_t>(stats.layers));
  to->Count("fold_prompts", stats.prompts);
  to->Count("fold_prompts_skipped", stats.prompts_skipped);
  to->Count("fold_tokens", stats.tokens);
  to->Count("fold_rows", stats.rows);
  to->Count("fold_rows_raw", stats.rows_raw);
  to->Count("fold_bytes_before", stats.bytes_before);
  to->Count("fold_bytes_after", stats.bytes_after);
  to->Number("fold_us", stats.fold_us);
}

void AddStages(const StageTimes& stages, PropertyList* to) {
  to->Number("stage_prepare_us", stages.prepare_us);
  to->Number("stage_scores_us", stages.scores_us);
  to->Number("stage_softmax_us", stages.softmax_us);
  to->Number("stage_values_us", stages.values_us);
  to->Number("stage_merge_us", stages.merge_us);
  to->Number("stage_encode_us", stages.encode_us);
  to->Number("stage_append_us", stages.append_us);
  to->Count("stage_attend_passes", stages.attend_passes);
  to->Count("stage_rows_encoded", stages.rows_encoded);
  to->Count("stage_rows_appended", stages.rows_appended);
}

}  // namespace

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

double Property::number() const {
  if (const auto* count = std::get_if<uint64_t>(&value)) return static_cast<double>(*count);
  const auto* number = std::get_if<double>(&value);
  return number != nullptr ? *number : 0;
}

std::string Property::text() const {
  return std::visit([](const auto& held) { return fmt::format("{}", held); }, value);
}

std::vector<Property> Properties(const Cache& cache) {
  const CacheReport report = cache.Report();
  PropertyList list;
  list.Text("plan", PrintPlan(cache.plan()));
  AddCore(report, &list);
  AddRetention(report.retention, &list);
  AddLossless(report.lossless, &list);
  AddFold(report.fold, &list);
  AddStages(report.stages, &list);
  for (const RungBytes& rung : report.rungs) {
    const std::string name = fmt::format("rung.{}.{}", rung.rung, PageStateName(rung.state));
    list.Count(name + ".pages", rung.pages);
    list.Count(name + ".bytes", rung.bytes);
  }
  for (size_t i = 0; i < report.fallbacks.size(); ++i) {
    const FallbackUse& use = report.fallbacks[i];
    list.Text(fmt::format("fallback.{}", i),
              fmt::format("layers {}-{} {}: {} in place of {}: {}", use.first_layer, use.last_layer,
                          use.part == Part::kKey ? "k" : "v", use.used, use.asked, use.reason));
  }
  return std::move(list).Take();
}

Result<Property> FindProperty(const Cache& cache, std::string_view name) {
  for (Property& property : Properties(cache)) {
    if (property.name == name) return std::move(property);
  }
  return NotFound(fmt::format("property \"{}\" is not known; varve::Properties lists all", name));
}

std::string PropertiesJson(const Cache& cache) {
  nlohmann::ordered_json json;
  for (const Property& property : Properties(cache)) {
    std::visit([&](const auto& value) { json[property.name] = value; }, property.value);
  }
  return json.dump();
}

}  // namespace varve
