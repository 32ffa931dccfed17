#include "plan/plan_h2o_keys.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "plan/h2o_key_values.h"
#include "plan/plan_lossless_keys.h"
#include "plan/plan_values.h"

namespace varve {
namespace {

using Json = JsonValue;

constexpr std::string_view kScopes[] = {"front_n", "h2o_kept", "front_n_and_h2o_kept"};

Result<int> LayerOf(const Json& object, const char* key, int default_value, int min, int max) {
  const Json* found = object.find(key);
  if (found == nullptr) return default_value;
  Result<int64_t> layer = ParseCount("value", found->dump(), min, max);
  if (!layer.ok()) return H2oKeyError(key, layer.status().message());
  return static_cast<int>(*layer);
}

// The one target that the mode selects. It is always said: the system's default of 3.0 differs
// from the default of ratio=.
Status AddRatio(const Json& object, std::vector<KeyClause>* clauses) {
  const std::string mode = object.value("kv_h2o_target_mode", "adaptive");
  if (mode == "adaptive") {
    const char* key = "kv_h2o_target_lossy_ratio";
    clauses->push_back(
        {FindClause("ratio"), fmt::format("{}", object.value(key, 3.0)), H2oKeyLabel(key)});
    return Status();
  }
  if (mode != "static") {
    return H2oKeyError("kv_h2o_target_mode", fmt::format("unknown mode {}; known: adaptive static",
                                                         QuoteForMessage(mode)));
  }
  const char* key = "kv_h2o_target_keep_ratio";
  const double keep = object.value(key, 0.5);
  if (!(keep > 0 && keep < 1)) {
    return H2oKeyError(key, fmt::format("value {} must be > 0 and < 1", keep));
  }
  clauses->push_back({FindClause("ratio"), fmt::format("{}", 1 / keep), H2oKeyLabel(key)});
  return Status();
}

Result<std::vector<KeyClause>> EvictClauses(const Json& object) {
  std::vector<KeyClause> clauses;
  clauses.push_back({FindClause("evict"), "h2o", H2oKeyLabel("kv_h2o_enable")});
  VARVE_RETURN_IF_ERROR(AddRatio(object, &clauses));
  AddIfSaid(object, "kv_h2o_block_tokens", "page", &clauses);
  AddIfSaid(object, "kv_h2o_sink_tokens", "sink", &clauses);
  AddIfSaid(object, "kv_h2o_recent_tokens", "recent", &clauses);
  AddIfSaid(object, "kv_h2o_ema_alpha", "ema", &clauses);
  AddIfSaid(object, "kv_h2o_update_interval", "every", &clauses);
  AddIfSaid(object, "kv_h2o_trigger_min_tokens", "trigger", &clauses);
  return clauses;
}

// Either key asks for lines of the layers that it is about; the lines tell both.
void AddLogStats(const Json& object, bool evicts, bool is_packed, std::vector<KeyClause>* clauses) {
  const char* evict = "kv_h2o_log_stats";
  const char* pack = "kv_lossless_log_stats";
  const bool asked = (evicts && H2oFlag(object, evict)) || (is_packed && H2oFlag(object, pack));
  if (!asked) return;
  clauses->push_back({FindClause("log_stats"), "1", H2oKeyLabel(evicts ? evict : pack)});
}

// 1 front layers, 2 layers with eviction, 3 both.
Result<int> ScopeOf(const Json& object) {
  const char* key = "kv_lossless_scope";
  const Json* found = object.find(key);
  if (found == nullptr) return 1;
  if (found->is_number()) {
    Result<int64_t> scope = ParseCount("value", found->dump(), 1, 3);
    if (!scope.ok()) return H2oKeyError(key, scope.status().message());
    return static_cast<int>(*scope);
  }
  const auto name = found->get<std::string>();
  const auto* scope = std::find(std::begin(kScopes), std::end(kScopes), name);
  if (scope == std::end(kScopes)) {
    return H2oKeyError(key, fmt::format("unknown scope {}; known: {}", QuoteForMessage(name),
                                        fmt::join(kScopes, " ")));
  }
  return static_cast<int>(scope - std::begin(kScopes)) + 1;
}

struct LayerSpan {
  int begin = 0;
  int end = 0;  // exclusive
  bool Contains(int layer) const { return layer >= begin && layer < end; }
};
constexpr int kNoEnd = std::numeric_limits<int>::max();

Result<LayerSpan> EvictLayers(const Json& object) {
  if (!H2oFlag(object, "kv_h2o_enable")) return LayerSpan{};
  VARVE_ASSIGN_OR_RETURN(int start,
                         LayerOf(object, "kv_h2o_layer_start", 2, 0, kMaxPlanLayers - 1));
  VARVE_ASSIGN_OR_RETURN(int end, LayerOf(object, "kv_h2o_layer_end", -1, -1, kMaxPlanLayers - 1));
  if (end != -1 && end < start) {
    return H2oKeyError("kv_h2o_layer_end",
                       fmt::format("value {} < kv_h2o_layer_start {}", end, start));
  }
  return LayerSpan{start, end == -1 ? kNoEnd : end + 1};
}

}  // namespace

bool IsH2oKey(std::string_view key) {
  return key.starts_with("kv_h2o_") || key.starts_with("kv_lossless_");
}

Result<std::vector<KeySegment>> SegmentsFromH2oKeys(const Json& object) {
  VARVE_RETURN_IF_ERROR(CheckH2oKeys(object));
  VARVE_ASSIGN_OR_RETURN(LayerSpan evict_layers, EvictLayers(object));
  VARVE_ASSIGN_OR_RETURN(int scope, ScopeOf(object));
  VARVE_ASSIGN_OR_RETURN(int front, LayerOf(object, "kv_lossless_front_n", 2, 0, kMaxPlanLayers));
  VARVE_ASSIGN_OR_RETURN(std::vector<KeyClause> evict, EvictClauses(object));

  const std::string codec = object.value("kv_lossless_codec", "none");
  if (codec != "none" && codec != "gear_delta") {
    return H2oKeyError("kv_lossless_codec", fmt::format("unknown codec {}; known: none gear_delta",
                                                        QuoteForMessage(codec)));
  }
  const bool packs = H2oFlag(object, "kv_lossless_enable") &&
                     H2oFlag(object, "kv_lossless_runtime_enable") && codec != "none";
  const bool packs_kept = packs && (scope & 2) != 0;
  const LayerSpan front_layers{0, packs && (scope & 1) != 0 ? front : 0};
  if (packs_kept && !H2oFlag(object, "kv_h2o_enable")) {
    return H2oKeyError("kv_lossless_scope", "h2o_kept needs kv_h2o_enable");
  }

  VARVE_ASSIGN_OR_RETURN(const std::vector<KeyClause> front_clauses,
                         PackClauses(object, PackScope::kFront));
  VARVE_ASSIGN_OR_RETURN(const std::vector<KeyClause> kept_clauses,
                         PackClauses(object, PackScope::kKept));
  std::set<int> cuts = {0, evict_layers.begin, evict_layers.end, front_layers.end};
  cuts.erase(cuts.lower_bound(kMaxPlanLayers), cuts.end());  // no layer starts there
  std::vector<KeySegment> segments;
  for (auto cut = cuts.begin(); cut != cuts.end(); ++cut) {
    KeySegment segment;
    segment.first_layer = *cut;
    segment.last_layer = std::next(cut) == cuts.end() ? -1 : *std::next(cut) - 1;
    const bool evicts = evict_layers.Contains(*cut);
    const bool in_front = front_layers.Contains(*cut);
    const bool is_packed = in_front || (packs_kept && evicts);
    if (evicts) segment.clauses = evict;
    if (is_packed) {
      const std::vector<KeyClause>& clauses = in_front ? front_clauses : kept_clauses;
      segment.clauses.insert(segment.clauses.end(), clauses.begin(), clauses.end());
    }
    AddLogStats(object, evicts, is_packed, &segment.clauses);
    segments.push_back(std::move(segment));
  }
  return segments;
}

}  // namespace varve
