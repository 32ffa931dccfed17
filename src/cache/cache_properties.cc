// What a cache knows about itself: the typed report, and the same by name. The names of policies
// and packing are those that `--json` has.

#include <cmath>
#include <string>
#include <utility>
#include <vector>

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
      report.bytes_tables += table.decision_bytes;
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

std::vector<Property> CoreProperties(const CacheReport& report) {
  return {
      {"bytes_used", report.bytes_used},
      {"bytes_held", report.bytes_held},
      {"bytes_tables", report.bytes_tables},
      {"bytes_scratch", report.bytes_scratch},
      // What the process keeps in memory for this cache.
      {"resident_bytes", report.bytes_held + report.bytes_tables + report.bytes_scratch},
      {"bytes_f16", report.bytes_f16},
      {"bytes_f16_seen", report.bytes_f16_seen},
      {"bytes_codebooks", report.bytes_codebooks},
      {"bytes_compressors", report.bytes_compressors},
      {"bytes_copied", report.bytes_copied},
      {"pages", report.pages},
      {"sequences", report.sequences},
      {"pages_sealed", report.pages_sealed},
      {"pages_demoted", report.pages_demoted},
      {"pages_adopted", report.pages_adopted},
      {"pages_dropped", report.pages_dropped},
      {"pages_unread", report.pages_unread},
      {"bytes_unread", report.bytes_unread},
      {"nonfinite_values", report.nonfinite_values},
  };
}

std::vector<Property> RetentionProperties(const RetentionStats& stats) {
  return {
      {"policy_layers", static_cast<uint64_t>(stats.layers)},
      {"keep_ratio", stats.keep_ratio},
      {"lossy_ratio", stats.lossy_ratio},
      {"lossy_ratio_run", stats.lossy_ratio_run},
      {"target_keep", stats.target_keep},
      {"target_keep_effective", stats.effective_keep},
      {"floor_keep_by_recent_sink", stats.floor_keep},
      {"block_quantized_keep", stats.kept_part},
      {"evict_us", stats.plan_us},
      {"last_evict_tokens", stats.tokens_evicted_last},
      {"total_evict_tokens", stats.tokens_evicted},
      {"evicted_pages", stats.pages_evicted},
      {"demoted_pages", stats.pages_demoted},
      {"plans", stats.plans},
      {"plans_stale", stats.plans_stale},
      {"plan_bytes", stats.plan_bytes},
      {"floors_bound", stats.plans_bound},
  };
}

std::vector<Property> FoldProperties(const FoldStats& stats) {
  return {
      {"fold_layers", static_cast<uint64_t>(stats.layers)},
      {"fold_prompts", stats.prompts},
      {"fold_prompts_skipped", stats.prompts_skipped},
      {"fold_tokens", stats.tokens},
      {"fold_rows", stats.rows},
      {"fold_rows_raw", stats.rows_raw},
      {"fold_bytes_before", stats.bytes_before},
      {"fold_bytes_after", stats.bytes_after},
      {"fold_us", stats.fold_us},
  };
}

std::vector<Property> StageProperties(const StageTimes& stages) {
  return {
      {"stage_prepare_us", stages.prepare_us},     {"stage_scores_us", stages.scores_us},
      {"stage_softmax_us", stages.softmax_us},     {"stage_values_us", stages.values_us},
      {"stage_merge_us", stages.merge_us},         {"stage_encode_us", stages.encode_us},
      {"stage_append_us", stages.append_us},       {"stage_attend_passes", stages.attend_passes},
      {"stage_rows_encoded", stages.rows_encoded}, {"stage_rows_appended", stages.rows_appended},
  };
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

std::vector<Property> Properties(const LosslessStats& stats) {
  return {
      {"lossless_layers", static_cast<uint64_t>(stats.layers)},
      {"lossless_ratio", stats.ratio()},
      {"lossless_raw_bytes", stats.raw_bytes},
      {"lossless_compressed_bytes", stats.compressed_bytes},
      {"lossless_decompressed_bytes", stats.decompressed_bytes},
      {"lossless_compress_us", stats.compress_us},
      {"lossless_decompress_us", stats.decompress_us},
      {"codec_us", stats.compress_us + stats.decompress_us},
      {"lossless_queue_depth_peak", stats.queue_peak},
      {"lossless_async_queue_peak", stats.queue_peak},
      {"lossless_async_wait_us", stats.wait_us},
      {"lossless_fallback_count", stats.fallbacks},
      {"lossless_backpressure_skip_count", stats.backpressure_skips},
      {"lossless_restore_failures", stats.restore_failures},
      {"lossless_decode_cache_hit", stats.decode_cache_hits},
      {"lossless_decode_cache_miss", stats.decode_cache_misses},
      {"lossless_decode_cache_bytes", stats.decode_cache_bytes},
      {"lossless_dictionary_bytes", stats.dictionary_bytes},
      {"lossless_pages_packed", stats.pages_packed},
      {"lossless_pages_without_gain", stats.pages_without_gain},
      {"lossless_pages_now", stats.pages_now},
      {"lossless_packed_bytes_now", stats.packed_bytes_now},
      {"lossless_raw_bytes_now", stats.raw_bytes_now},
      {"pages_spilled", stats.pages_spilled},
      {"bytes_spilled", stats.bytes_spilled},
      {"spill_refused", stats.spill_refused},
      {"strips_unpacked", stats.strips_unpacked},
      {"restored_pages", stats.pages_restored},
      {"prefetched_pages", stats.pages_prefetched},
  };
}

std::vector<Property> Properties(const Cache& cache) {
  const CacheReport report = cache.Report();
  std::vector<Property> list = {{"plan", PrintPlan(cache.plan())}};
  for (const std::vector<Property>& group :
       {CoreProperties(report), RetentionProperties(report.retention), Properties(report.lossless),
        FoldProperties(report.fold), StageProperties(report.stages)}) {
    list.insert(list.end(), group.begin(), group.end());
  }
  for (const RungBytes& rung : report.rungs) {
    const std::string name = fmt::format("rung.{}.{}", rung.rung, PageStateName(rung.state));
    list.push_back({name + ".pages", rung.pages});
    list.push_back({name + ".bytes", rung.bytes});
  }
  for (size_t i = 0; i < report.fallbacks.size(); ++i) {
    const FallbackUse& use = report.fallbacks[i];
    list.push_back(
        {fmt::format("fallback.{}", i),
         fmt::format("layers {}-{} {}: {} in place of {}: {}", use.first_layer, use.last_layer,
                     use.part == Part::kKey ? "k" : "v", use.used, use.asked, use.reason)});
  }
  return list;
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
