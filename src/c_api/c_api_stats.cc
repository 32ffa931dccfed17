// The C ABI: statistics and properties.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/json_value.h"
#include "c_api/c_api_handle.h"
#include "varve/plan.h"
#include "varve/properties.h"

namespace varve {
namespace {

// One line per number of the statistics, for the struct and for JSON. They come from the cache's
// statistics or, where `packing` is set, from those of packing.
struct StatsField {
  const char* name;
  uint64_t varve_stats::*to;
  uint64_t CacheReport::*from = nullptr;
  uint64_t LosslessStats::*packing = nullptr;
  uint64_t FoldStats::*folding = nullptr;

  uint64_t Of(const CacheReport& stats) const {
    if (from != nullptr) return stats.*from;
    return packing != nullptr ? stats.lossless.*packing : stats.fold.*folding;
  }
};

constexpr StatsField kStatsFields[] = {
    {"bytes_used", &varve_stats::bytes_used, &CacheReport::bytes_used},
    {"bytes_held", &varve_stats::bytes_held, &CacheReport::bytes_held},
    {"bytes_tables", &varve_stats::bytes_tables, &CacheReport::bytes_tables},
    {"bytes_scratch", &varve_stats::bytes_scratch, &CacheReport::bytes_scratch},
    {"bytes_f16", &varve_stats::bytes_f16, &CacheReport::bytes_f16},
    {"bytes_copied", &varve_stats::bytes_copied, &CacheReport::bytes_copied},
    {"pages", &varve_stats::pages, &CacheReport::pages},
    {"sequences", &varve_stats::sequences, &CacheReport::sequences},
    {"pages_sealed", &varve_stats::pages_sealed, &CacheReport::pages_sealed},
    {"pages_demoted", &varve_stats::pages_demoted, &CacheReport::pages_demoted},
    {"pages_adopted", &varve_stats::pages_adopted, &CacheReport::pages_adopted},
    {"pages_dropped", &varve_stats::pages_dropped, &CacheReport::pages_dropped},
    {"nonfinite_values", &varve_stats::nonfinite_values, &CacheReport::nonfinite_values},
    {"bytes_f16_seen", &varve_stats::bytes_f16_seen, &CacheReport::bytes_f16_seen},
    {"pages_unread", &varve_stats::pages_unread, &CacheReport::pages_unread},
    {"bytes_unread", &varve_stats::bytes_unread, &CacheReport::bytes_unread},
    {"bytes_codebooks", &varve_stats::bytes_codebooks, &CacheReport::bytes_codebooks},
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
    {"bytes_compressors", &varve_stats::bytes_compressors, &CacheReport::bytes_compressors},
    {"fold_prompts", &varve_stats::fold_prompts, nullptr, nullptr, &FoldStats::prompts},
    {"fold_tokens", &varve_stats::fold_tokens, nullptr, nullptr, &FoldStats::tokens},
    {"fold_rows", &varve_stats::fold_rows, nullptr, nullptr, &FoldStats::rows},
};

std::string StatsJson(const Cache& cache) {
  const CacheReport stats = cache.Report();
  JsonWriter writer;
  writer.Open('{').Key("plan").Text(PrintPlan(cache.plan()));
  for (const StatsField& field : kStatsFields) writer.Key(field.name).Integer(field.Of(stats));
  writer.Key("rungs").Open('[');
  for (const RungBytes& rung : stats.rungs) {
    writer.Open('{').Key("rung").Text(rung.rung).Key("state").Text(PageStateName(rung.state));
    writer.Key("pages").Integer(rung.pages).Key("bytes").Integer(rung.bytes).Close('}');
  }
  writer.Close(']').Key("fallbacks").Open('[');
  for (const FallbackUse& use : stats.fallbacks) {
    writer.Open('{').Key("first_layer").Integer(use.first_layer);
    writer.Key("last_layer").Integer(use.last_layer);
    writer.Key("part").Text(use.part == Part::kKey ? "k" : "v");
    writer.Key("asked").Text(use.asked).Key("used").Text(use.used);
    writer.Key("reason").Text(use.reason).Close('}');
  }
  return writer.Close(']').Close('}').Take();
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
        varve::CheckStructSize(kCall, "stats", stats->struct_size, varve::kFirstSize<varve_stats>));
    const varve::CacheReport known = from.Report();
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

varve_status varve_property_number(const varve_cache* cache, const char* name, double* number) {
  return WithCache(cache, "varve_property_number", {{"name", name}, {"number", number}},
                   [&](const Cache& from) -> Status {
                     VARVE_ASSIGN_OR_RETURN(const varve::Property found,
                                            varve::FindProperty(from, name));
                     if (found.is_text()) {
                       return varve::InvalidArgument("varve_property_number: \"" + found.name +
                                                     "\" is text; use varve_property_text");
                     }
                     *number = found.number();
                     return Status();
                   });
}

varve_status varve_property_text(const varve_cache* cache, const char* name, char** text) {
  return WithCache(cache, "varve_property_text", {{"name", name}, {"text", text}},
                   [&](const Cache& from) -> Status {
                     VARVE_ASSIGN_OR_RETURN(const varve::Property found,
                                            varve::FindProperty(from, name));
                     return varve::StoreText(found.text(), text);
                   });
}

varve_status varve_properties_json(const varve_cache* cache, char** json) {
  return WithCache(cache, "varve_properties_json", {{"json", json}}, [&](const Cache& from) {
    return varve::StoreText(varve::PropertiesJson(from), json);
  });
}

varve_status varve_wait_for_packing(varve_cache* cache) {
  return WithCache(cache, "varve_wait_for_packing", {}, [](Cache& of) {
    of.WaitForPacking();
    return Status();
  });
}
