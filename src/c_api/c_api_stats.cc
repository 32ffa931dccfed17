// The C ABI: statistics.

#include <cstddef>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "c_api/c_api_handle.h"
#include "varve/plan.h"

namespace varve {
namespace {

// One line per number of the statistics, for the struct and for JSON. They come from the cache's
// statistics or, where `packing` is set, from those of packing.
struct StatsField {
  const char* name;
  uint64_t varve_stats::*to;
  uint64_t CacheStats::*from = nullptr;
  uint64_t LosslessStats::*packing = nullptr;
  uint64_t FoldStats::*folding = nullptr;

  uint64_t Of(const CacheStats& stats) const {
    if (from != nullptr) return stats.*from;
    return packing != nullptr ? stats.lossless.*packing : stats.fold.*folding;
  }
};

constexpr StatsField kStatsFields[] = {
    {"bytes_used", &varve_stats::bytes_used, &CacheStats::bytes_used},
    {"bytes_held", &varve_stats::bytes_held, &CacheStats::bytes_held},
    {"bytes_tables", &varve_stats::bytes_tables, &CacheStats::bytes_tables},
    {"bytes_scratch", &varve_stats::bytes_scratch, &CacheStats::bytes_scratch},
    {"bytes_f16", &varve_stats::bytes_f16, &CacheStats::bytes_f16},
    {"bytes_copied", &varve_stats::bytes_copied, &CacheStats::bytes_copied},
    {"pages", &varve_stats::pages, &CacheStats::pages},
    {"sequences", &varve_stats::sequences, &CacheStats::sequences},
    {"pages_sealed", &varve_stats::pages_sealed, &CacheStats::pages_sealed},
    {"pages_demoted", &varve_stats::pages_demoted, &CacheStats::pages_demoted},
    {"pages_adopted", &varve_stats::pages_adopted, &CacheStats::pages_adopted},
    {"pages_dropped", &varve_stats::pages_dropped, &CacheStats::pages_dropped},
    {"nonfinite_values", &varve_stats::nonfinite_values, &CacheStats::nonfinite_values},
    {"bytes_f16_seen", &varve_stats::bytes_f16_seen, &CacheStats::bytes_f16_seen},
    {"pages_unread", &varve_stats::pages_unread, &CacheStats::pages_unread},
    {"bytes_unread", &varve_stats::bytes_unread, &CacheStats::bytes_unread},
    {"bytes_codebooks", &varve_stats::bytes_codebooks, &CacheStats::bytes_codebooks},
    {"packed_pages", &varve_stats::packed_pages, nullptr, &LosslessStats::pages_now},
    {"packed_raw_bytes", &varve_stats::packed_raw_bytes, nullptr, &LosslessStats::raw_bytes_now},
    {"packed_bytes", &varve_stats::packed_bytes, nullptr, &LosslessStats::packed_bytes_now},
    {"dictionary_bytes", &varve_stats::dictionary_bytes, nullptr, &LosslessStats::dictionary_bytes},
    {"decode_cache_bytes", &varve_stats::decode_cache_bytes, nullptr,
     &LosslessStats::decode_cache_bytes},
    {"pages_spilled", &varve_stats::pages_spilled, nullptr, &LosslessStats::pages_spilled},
    {"bytes_spilled", &varve_stats::bytes_spilled, nullptr, &LosslessStats::bytes_spilled},
    {"packing_fallbacks", &varve_stats::packing_fallbacks, nullptr, &LosslessStats::fallbacks},
    {"restore_failures", &varve_stats::restore_failures, nullptr, &LosslessStats::restore_failures},
    {"bytes_compressors", &varve_stats::bytes_compressors, &CacheStats::bytes_compressors},
    {"fold_prompts", &varve_stats::fold_prompts, nullptr, nullptr, &FoldStats::prompts},
    {"fold_tokens", &varve_stats::fold_tokens, nullptr, nullptr, &FoldStats::tokens},
    {"fold_rows", &varve_stats::fold_rows, nullptr, nullptr, &FoldStats::rows},
};

// Of the first version of the struct.
constexpr size_t kSmallestStats = offsetof(varve_stats, bytes_f16_seen);

const char* StateName(PageState state) {
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

std::string StatsJson(const Cache& cache) {
  const CacheStats stats = cache.Stats();
  nlohmann::ordered_json json;
  json["plan"] = PrintPlan(cache.plan());
  for (const StatsField& field : kStatsFields) json[field.name] = field.Of(stats);
  json["rungs"] = nlohmann::ordered_json::array();
  for (const RungBytes& rung : stats.rungs) {
    json["rungs"].push_back({{"rung", rung.rung},
                             {"state", StateName(rung.state)},
                             {"pages", rung.pages},
                             {"bytes", rung.bytes}});
  }
  json["fallbacks"] = nlohmann::ordered_json::array();
  for (const FallbackUse& use : stats.fallbacks) {
    json["fallbacks"].push_back({{"first_layer", use.first_layer},
                                 {"last_layer", use.last_layer},
                                 {"part", use.part == Part::kKey ? "k" : "v"},
                                 {"asked", use.asked},
                                 {"used", use.used},
                                 {"reason", use.reason}});
  }
  return json.dump();
}

}  // namespace
}  // namespace varve

using varve::Cache;
using varve::Status;
using varve::WithCache;

varve_status varve_get_stats(const varve_cache* cache, varve_stats* stats) {
  constexpr const char* kCall = "varve_get_stats";
  return WithCache(cache, kCall, {{"stats", stats}}, [&](const Cache& from) -> Status {
    VARVE_RETURN_IF_ERROR(
        varve::CheckStructSize(kCall, "stats", stats->struct_size, varve::kSmallestStats));
    const varve::CacheStats known = from.Stats();
    varve_stats filled = {};
    for (const varve::StatsField& field : varve::kStatsFields) {
      filled.*field.to = field.Of(known);
    }
    varve::WriteStruct(filled, stats);
    return Status();
  });
}

varve_status varve_stats_json(const varve_cache* cache, char** json) {
  return WithCache(cache, "varve_stats_json", {{"json", json}}, [&](const Cache& from) {
    return varve::StoreText(varve::StatsJson(from), json);
  });
}

varve_status varve_wait_for_packing(varve_cache* cache) {
  return WithCache(cache, "varve_wait_for_packing", {}, [](Cache& of) {
    of.WaitForPacking();
    return Status();
  });
}
