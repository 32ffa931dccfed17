// The C ABI: statistics.

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "cache/c_api_handle.h"
#include "varve/plan.h"

namespace varve {
namespace {

// One line per number of the statistics, for the struct and for JSON.
struct StatsField {
  const char* name;
  uint64_t CacheStats::*from;
  uint64_t varve_stats::*to;
};

constexpr StatsField kStatsFields[] = {
    {"bytes_used", &CacheStats::bytes_used, &varve_stats::bytes_used},
    {"bytes_held", &CacheStats::bytes_held, &varve_stats::bytes_held},
    {"bytes_tables", &CacheStats::bytes_tables, &varve_stats::bytes_tables},
    {"bytes_scratch", &CacheStats::bytes_scratch, &varve_stats::bytes_scratch},
    {"bytes_f16", &CacheStats::bytes_f16, &varve_stats::bytes_f16},
    {"bytes_copied", &CacheStats::bytes_copied, &varve_stats::bytes_copied},
    {"pages", &CacheStats::pages, &varve_stats::pages},
    {"sequences", &CacheStats::sequences, &varve_stats::sequences},
    {"pages_sealed", &CacheStats::pages_sealed, &varve_stats::pages_sealed},
    {"pages_demoted", &CacheStats::pages_demoted, &varve_stats::pages_demoted},
    {"pages_adopted", &CacheStats::pages_adopted, &varve_stats::pages_adopted},
    {"pages_dropped", &CacheStats::pages_dropped, &varve_stats::pages_dropped},
    {"nonfinite_values", &CacheStats::nonfinite_values, &varve_stats::nonfinite_values},
};

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
  for (const StatsField& field : kStatsFields) json[field.name] = stats.*field.from;
  json["rungs"] = nlohmann::ordered_json::array();
  for (const RungBytes& rung : stats.rungs) {
    json["rungs"].push_back({{"rung", rung.rung},
                             {"state", StateName(rung.state)},
                             {"pages", rung.pages},
                             {"bytes", rung.bytes}});
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
        varve::CheckStructSize(kCall, "stats", stats->struct_size, sizeof(varve_stats)));
    const varve::CacheStats known = from.Stats();
    varve_stats filled = {};
    for (const varve::StatsField& field : varve::kStatsFields) {
      filled.*field.to = known.*field.from;
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
