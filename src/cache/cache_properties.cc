// What a cache knows about itself, by name. docs/metrics.md has the definitions.

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/json_value.h"
#include "varve/properties.h"

namespace varve {

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
      {"target_ratio", stats.target_ratio},
      {"ratio_bound", stats.ratio_bound},
  };
}

std::vector<Property> LosslessProperties(const LosslessStats& stats) {
  return {
      {"lossless_layers", static_cast<uint64_t>(stats.layers)},
      {"lossless_ratio", stats.ratio()},
      {"lossless_raw_bytes", stats.raw_bytes},
      {"lossless_compressed_bytes", stats.compressed_bytes},
      {"lossless_decompressed_bytes", stats.decompressed_bytes},
      {"lossless_compress_us", stats.compress_us},
      {"lossless_decompress_us", stats.decompress_us},
      {"codec_us", stats.compress_us + stats.decompress_us},
      {"lossless_queue_depth_peak", stats.queue_depth_peak},
      {"lossless_async_queue_peak", stats.queue_peak},
      {"lossless_async_wait_us", stats.wait_us},
      {"lossless_async_wait_steps", stats.wait_steps},
      {"lossless_async_wait_mean_us", stats.wait_mean_us()},
      {"lossless_async_wait_max_us", stats.wait_max_us},
      {"lossless_async_wait_last_us", stats.wait_last_us},
      {"lossless_async_wait_headroom_us", stats.wait_headroom_us()},
      {"lossless_async_wait_headroom_ratio", stats.wait_headroom_us() / kAsyncWaitBudgetUs},
      {"lossless_drain_us", stats.drain_us},
      {"kv_content_consistency_pass", static_cast<uint64_t>(stats.consistent() ? 1 : 0)},
      {"lossless_fallback_count", stats.fallbacks},
      {"lossless_mismatch_count", stats.mismatches},
      {"lossless_backpressure_skip_count", stats.backpressure_skips},
      {"lossless_restore_failures", stats.restore_failures},
      {"lossless_decode_cache_hit", stats.decode_cache_hits},
      {"lossless_decode_cache_miss", stats.decode_cache_misses},
      {"lossless_decode_cache_bytes", stats.decode_cache_bytes},
      {"lossless_dictionary_bytes", stats.dictionary_bytes},
      {"lossless_pages_packed", stats.pages_packed},
      {"lossless_pages_compared", stats.pages_compared},
      {"lossless_pages_without_gain", stats.pages_without_gain},
      {"lossless_block_tokens", stats.block_tokens},
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

void AddLayerProperties(const std::vector<LayerReport>& layers, std::vector<Property>* list) {
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerReport& layer = layers[i];
    const std::pair<const char*, uint64_t> values[] = {
        {"tokens_live", layer.tokens_live},
        {"bytes_f16_seen", layer.bytes_f16_seen},
        {"bytes_held", layer.bytes_held},
        {"lossless_raw_bytes_k", layer.lossless_raw_bytes[0]},
        {"lossless_packed_bytes_k", layer.lossless_packed_bytes[0]},
        {"lossless_raw_bytes_v", layer.lossless_raw_bytes[1]},
        {"lossless_packed_bytes_v", layer.lossless_packed_bytes[1]},
    };
    for (const auto& [name, value] : values)
      list->push_back({fmt::format("layer.{}.{}", i, name), value});
  }
}

}  // namespace

double Property::number() const {
  if (const auto* count = std::get_if<uint64_t>(&value)) return static_cast<double>(*count);
  const auto* number = std::get_if<double>(&value);
  return number != nullptr ? *number : 0;
}

std::string Property::text() const {
  return std::visit([](const auto& held) { return fmt::format("{}", held); }, value);
}

std::vector<Property> Properties(const CacheMetrics& metrics) {
  std::vector<Property> list = {{"total_ratio", metrics.total_ratio},
                                {"total_ratio_avg", metrics.total_ratio_avg}};
  for (const std::vector<Property>& group :
       {RetentionProperties(metrics.retention), LosslessProperties(metrics.lossless)})
    list.insert(list.end(), group.begin(), group.end());
  return list;
}

std::vector<Property> Properties(const Cache& cache) {
  const CacheReport report = cache.Report();
  std::vector<Property> list = {{"plan", PrintPlan(cache.plan())}};
  for (const std::vector<Property>& group :
       {CoreProperties(report), Properties(static_cast<const CacheMetrics&>(report)),
        FoldProperties(report.fold), StageProperties(report.stages)}) {
    list.insert(list.end(), group.begin(), group.end());
  }
  for (const RungBytes& rung : report.rungs) {
    const std::string name = fmt::format("rung.{}.{}", rung.rung, PageStateName(rung.state));
    list.push_back({name + ".pages", rung.pages});
    list.push_back({name + ".bytes", rung.bytes});
  }
  AddLayerProperties(report.by_layer, &list);
  for (size_t i = 0; i < report.plan_notes.size(); ++i)
    list.push_back({fmt::format("plan_note.{}", i), report.plan_notes[i]});
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
  JsonWriter writer;
  writer.Open('{');
  for (const Property& property : Properties(cache)) {
    writer.Key(property.name);
    if (property.is_text()) {
      writer.Text(property.text());
    } else if (const auto* count = std::get_if<uint64_t>(&property.value)) {
      writer.Integer(*count);
    } else {
      writer.Real(property.number());
    }
  }
  return writer.Close('}').Take();
}

}  // namespace varve
