#include "plan/plan_h2o_keys.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/align.h"
#include "plan/plan_values.h"

namespace varve {
namespace {

using Json = nlohmann::json;

enum class KeyType {
  kBool,
  kInteger,
  kNumber,
  kString,
  kScope,       // a name, or 1, 2, 3
  kPredictors,  // "raw,delta_seq", or a list of names
};

struct KeySpec {
  std::string_view key;
  KeyType type;
};

constexpr KeySpec kKeys[] = {
    {"kv_h2o_enable", KeyType::kBool},
    {"kv_h2o_layer_start", KeyType::kInteger},
    {"kv_h2o_layer_end", KeyType::kInteger},
    {"kv_h2o_block_tokens", KeyType::kInteger},
    {"kv_h2o_sink_tokens", KeyType::kInteger},
    {"kv_h2o_recent_tokens", KeyType::kInteger},
    {"kv_h2o_target_mode", KeyType::kString},
    {"kv_h2o_target_keep_ratio", KeyType::kNumber},
    {"kv_h2o_target_lossy_ratio", KeyType::kNumber},
    {"kv_h2o_ema_alpha", KeyType::kNumber},
    {"kv_h2o_update_interval", KeyType::kInteger},
    {"kv_h2o_trigger_min_tokens", KeyType::kInteger},
    {"kv_h2o_log_stats", KeyType::kBool},
    {"kv_lossless_enable", KeyType::kBool},
    {"kv_lossless_scope", KeyType::kScope},
    {"kv_lossless_front_n", KeyType::kInteger},
    {"kv_lossless_runtime_enable", KeyType::kBool},
    {"kv_lossless_runtime_mode", KeyType::kString},
    {"kv_lossless_hot_sink_tokens", KeyType::kInteger},
    {"kv_lossless_hot_recent_tokens", KeyType::kInteger},
    {"kv_lossless_store_bootstrap_tokens", KeyType::kInteger},
    {"kv_lossless_store_grouped_step_tokens", KeyType::kInteger},
    {"kv_lossless_codec", KeyType::kString},
    {"kv_lossless_block_tokens", KeyType::kInteger},
    {"kv_lossless_predictors_k", KeyType::kPredictors},
    {"kv_lossless_predictors_v", KeyType::kPredictors},
    {"kv_lossless_async_threads", KeyType::kInteger},
    {"kv_lossless_max_queue", KeyType::kInteger},
    {"kv_lossless_decode_cache_blocks", KeyType::kInteger},
    {"kv_lossless_strict_roundtrip_check", KeyType::kBool},
    {"kv_lossless_log_stats", KeyType::kBool},
    {"kv_lossless_kept_sample_layers", KeyType::kInteger},
    {"kv_lossless_kept_sample_token_interval", KeyType::kInteger},
    {"kv_lossless_front_sample_token_interval", KeyType::kInteger},
};

constexpr std::string_view kScopes[] = {"front_n", "h2o_kept", "front_n_and_h2o_kept"};

std::string Label(std::string_view key) { return fmt::format("key {}", QuoteForMessage(key)); }

Status KeyError(std::string_view key, std::string_view reason) {
  return InvalidArgument(fmt::format("plan: {}: {}", Label(key), reason));
}

Status CheckType(const KeySpec& spec, const Json& value) {
  bool is_right = false;
  std::string_view expected;
  switch (spec.type) {
    case KeyType::kBool:
      is_right = value.is_boolean();
      expected = "true or false";
      break;
    case KeyType::kInteger:
      is_right = value.is_number_integer();
      expected = "an integer";
      break;
    case KeyType::kNumber:
      is_right = value.is_number();
      expected = "a number";
      break;
    case KeyType::kString:
      is_right = value.is_string();
      expected = "a string";
      break;
    case KeyType::kScope:
      is_right = value.is_string() || value.is_number_integer();
      expected = "the name of a scope, or 1, 2, 3";
      break;
    case KeyType::kPredictors:
      is_right = value.is_string() ||
                 (value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& name) {
                    return name.is_string();
                  }));
      expected = "names with commas, or a list of names";
      break;
  }
  if (is_right) return Status();
  return KeyError(spec.key,
                  fmt::format("value {} is not {}", QuoteForMessage(value.dump()), expected));
}

Status CheckKeys(const Json& object) {
  for (const auto& item : object.items()) {
    const std::string& key = item.key();
    if (!IsH2oKey(key)) continue;
    const auto* spec = std::find_if(std::begin(kKeys), std::end(kKeys),
                                    [&](const KeySpec& known) { return known.key == key; });
    if (spec == std::end(kKeys)) return KeyError(key, "unknown key of the H2O system");
    VARVE_RETURN_IF_ERROR(CheckType(*spec, item.value()));
  }
  return Status();
}

bool BoolOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->get<bool>();
}

Result<int> LayerOf(const Json& object, const char* key, int default_value, int min, int max) {
  const auto found = object.find(key);
  if (found == object.end()) return default_value;
  Result<int64_t> layer = ParseCount("value", found->dump(), min, max);
  if (!layer.ok()) return KeyError(key, layer.status().message());
  return static_cast<int>(*layer);
}

// Adds clause=value if the object has the key; JSON's spelling of a number is the clause's.
void AddIfSaid(const Json& object, const char* key, std::string_view clause,
               std::vector<KeyClause>* clauses) {
  const auto found = object.find(key);
  if (found == object.end()) return;
  clauses->push_back({FindClause(clause),
                      found->is_string() ? found->get<std::string>() : found->dump(), Label(key)});
}

// The one target that the mode selects. It is always said: the system's default of 3.0 differs
// from the default of ratio=.
Status AddRatio(const Json& object, std::vector<KeyClause>* clauses) {
  const std::string mode = object.value("kv_h2o_target_mode", "adaptive");
  if (mode == "adaptive") {
    const char* key = "kv_h2o_target_lossy_ratio";
    clauses->push_back(
        {FindClause("ratio"), fmt::format("{}", object.value(key, 3.0)), Label(key)});
    return Status();
  }
  if (mode != "static") {
    return KeyError("kv_h2o_target_mode",
                    fmt::format("unknown mode {}; known: adaptive static", QuoteForMessage(mode)));
  }
  const char* key = "kv_h2o_target_keep_ratio";
  const double keep = object.value(key, 0.5);
  if (!(keep > 0 && keep < 1)) {
    return KeyError(key, fmt::format("value {} must be > 0 and < 1", keep));
  }
  clauses->push_back({FindClause("ratio"), fmt::format("{}", 1 / keep), Label(key)});
  return Status();
}

Result<std::vector<KeyClause>> EvictClauses(const Json& object) {
  std::vector<KeyClause> clauses;
  clauses.push_back({FindClause("evict"), "h2o", Label("kv_h2o_enable")});
  VARVE_RETURN_IF_ERROR(AddRatio(object, &clauses));
  AddIfSaid(object, "kv_h2o_block_tokens", "page", &clauses);
  AddIfSaid(object, "kv_h2o_sink_tokens", "sink", &clauses);
  AddIfSaid(object, "kv_h2o_recent_tokens", "recent", &clauses);
  AddIfSaid(object, "kv_h2o_ema_alpha", "ema", &clauses);
  AddIfSaid(object, "kv_h2o_update_interval", "every", &clauses);
  AddIfSaid(object, "kv_h2o_trigger_min_tokens", "trigger", &clauses);
  return clauses;
}

// Where a segment is packed: in the front layers, in those with eviction, or as both.
enum class PackScope { kFront, kKept };

// "raw,delta_seq" or ["raw", "delta_seq"] as "raw/delta_seq".
void AddPredictors(const Json& object, const char* key, std::string_view clause,
                   std::vector<KeyClause>* clauses) {
  const auto found = object.find(key);
  if (found == object.end()) return;
  std::string text;
  if (found->is_string()) {
    text = found->get<std::string>();
    std::erase(text, ' ');
    std::replace(text.begin(), text.end(), ',', '/');
  } else {
    text = fmt::format("{}", fmt::join(found->get<std::vector<std::string>>(), "/"));
  }
  clauses->push_back({FindClause(clause), text, Label(key)});
}

// The key's value, or the system's default, where that is not ours.
void AddOrDefault(const Json& object, const char* key, int64_t default_value,
                  std::string_view clause, std::vector<KeyClause>* clauses) {
  const auto found = object.find(key);
  clauses->push_back({FindClause(clause),
                      found == object.end() ? fmt::format("{}", default_value) : found->dump(),
                      Label(key)});
}

constexpr int64_t kMaxBlocks = 65536;

// Its decode cache counts blocks of a layer, ours pages.
Status AddDecodeCache(const Json& object, std::vector<KeyClause>* clauses) {
  const char* key = "kv_lossless_decode_cache_blocks";
  const int64_t page = object.value("kv_h2o_block_tokens", int64_t{64});
  const int64_t block = object.value("kv_lossless_block_tokens", int64_t{128});
  const int64_t blocks = object.value(key, int64_t{64});
  if (page < 1 || block < 1 || blocks < 0 || blocks > kMaxBlocks) {
    return KeyError(key, fmt::format("value {} is not within 0 and {}", blocks, kMaxBlocks));
  }
  const int64_t pages = blocks * CeilDiv(std::min(block, kMaxBlocks), page);
  clauses->push_back({FindClause("layer_cache"),
                      fmt::format("{}", std::min<int64_t>(pages, 1 << 20)), Label(key)});
  return Status();
}

void AddHot(const Json& object, std::vector<KeyClause>* clauses) {
  const char* sink = "kv_lossless_hot_sink_tokens";
  const char* recent = "kv_lossless_hot_recent_tokens";
  if (!object.contains(sink) && !object.contains(recent)) return;
  const auto number = [&](const char* key, const char* default_value) {
    return object.contains(key) ? object.at(key).dump() : std::string(default_value);
  };
  clauses->push_back({FindClause("hot"), number(sink, "16") + "/" + number(recent, "256"),
                      Label(object.contains(sink) ? sink : recent)});
}

Result<std::vector<KeyClause>> PackClauses(const Json& object, PackScope scope) {
  std::vector<KeyClause> clauses;
  const std::string mode = object.value("kv_lossless_runtime_mode", "probe");
  clauses.push_back({FindClause("pack"), mode, Label("kv_lossless_runtime_mode")});
  AddHot(object, &clauses);
  AddIfSaid(object, "kv_lossless_store_bootstrap_tokens", "bootstrap", &clauses);
  AddIfSaid(object, "kv_lossless_store_grouped_step_tokens", "step", &clauses);
  clauses.push_back({FindClause("pack_codec"), "gear", Label("kv_lossless_codec")});
  AddPredictors(object, "kv_lossless_predictors_k", "predictors_k", &clauses);
  AddPredictors(object, "kv_lossless_predictors_v", "predictors_v", &clauses);
  AddOrDefault(object, "kv_lossless_block_tokens", 128, "pack_block", &clauses);
  const char* strict = "kv_lossless_strict_roundtrip_check";
  clauses.push_back({FindClause("strict"), BoolOf(object, strict) ? "1" : "0", Label(strict)});
  AddIfSaid(object, "kv_lossless_async_threads", "pack_threads", &clauses);
  AddIfSaid(object, "kv_lossless_max_queue", "pack_queue", &clauses);
  if (mode == "store") VARVE_RETURN_IF_ERROR(AddDecodeCache(object, &clauses));
  if (mode == "probe" && scope == PackScope::kKept) {
    AddOrDefault(object, "kv_lossless_kept_sample_layers", 1, "sample_layers", &clauses);
    AddIfSaid(object, "kv_lossless_kept_sample_token_interval", "sample_every", &clauses);
  } else if (mode == "probe") {
    AddIfSaid(object, "kv_lossless_front_sample_token_interval", "sample_every", &clauses);
  }
  return clauses;
}

// Either key asks for lines of the layers that it is about; the lines tell both.
void AddLogStats(const Json& object, bool evicts, bool is_packed, std::vector<KeyClause>* clauses) {
  const char* evict = "kv_h2o_log_stats";
  const char* pack = "kv_lossless_log_stats";
  const bool asked = (evicts && BoolOf(object, evict)) || (is_packed && BoolOf(object, pack));
  if (!asked) return;
  clauses->push_back({FindClause("log_stats"), "1", Label(evicts ? evict : pack)});
}

// 1 front layers, 2 layers with eviction, 3 both.
Result<int> ScopeOf(const Json& object) {
  const char* key = "kv_lossless_scope";
  const auto found = object.find(key);
  if (found == object.end()) return 1;
  if (found->is_number()) {
    Result<int64_t> scope = ParseCount("value", found->dump(), 1, 3);
    if (!scope.ok()) return KeyError(key, scope.status().message());
    return static_cast<int>(*scope);
  }
  const auto name = found->get<std::string>();
  const auto* scope = std::find(std::begin(kScopes), std::end(kScopes), name);
  if (scope == std::end(kScopes)) {
    return KeyError(key, fmt::format("unknown scope {}; known: {}", QuoteForMessage(name),
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
  if (!BoolOf(object, "kv_h2o_enable")) return LayerSpan{};
  VARVE_ASSIGN_OR_RETURN(int start,
                         LayerOf(object, "kv_h2o_layer_start", 2, 0, kMaxPlanLayers - 1));
  VARVE_ASSIGN_OR_RETURN(int end, LayerOf(object, "kv_h2o_layer_end", -1, -1, kMaxPlanLayers - 1));
  if (end != -1 && end < start) {
    return KeyError("kv_h2o_layer_end",
                    fmt::format("value {} < kv_h2o_layer_start {}", end, start));
  }
  return LayerSpan{start, end == -1 ? kNoEnd : end + 1};
}

}  // namespace

bool IsH2oKey(std::string_view key) {
  return key.starts_with("kv_h2o_") || key.starts_with("kv_lossless_");
}

Result<std::vector<KeySegment>> SegmentsFromH2oKeys(const Json& object) {
  VARVE_RETURN_IF_ERROR(CheckKeys(object));
  VARVE_ASSIGN_OR_RETURN(LayerSpan evict_layers, EvictLayers(object));
  VARVE_ASSIGN_OR_RETURN(int scope, ScopeOf(object));
  VARVE_ASSIGN_OR_RETURN(int front, LayerOf(object, "kv_lossless_front_n", 2, 0, kMaxPlanLayers));
  VARVE_ASSIGN_OR_RETURN(std::vector<KeyClause> evict, EvictClauses(object));

  const std::string codec = object.value("kv_lossless_codec", "none");
  if (codec != "none" && codec != "gear_delta") {
    return KeyError("kv_lossless_codec", fmt::format("unknown codec {}; known: none gear_delta",
                                                     QuoteForMessage(codec)));
  }
  const bool packs = BoolOf(object, "kv_lossless_enable") &&
                     BoolOf(object, "kv_lossless_runtime_enable") && codec != "none";
  const bool packs_kept = packs && (scope & 2) != 0;
  const LayerSpan front_layers{0, packs && (scope & 1) != 0 ? front : 0};
  if (packs_kept && !BoolOf(object, "kv_h2o_enable")) {
    return KeyError("kv_lossless_scope", "h2o_kept needs kv_h2o_enable");
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
