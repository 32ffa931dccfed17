#include "plan/h2o_key_values.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "plan/plan_values.h"

namespace varve {
namespace {

using Json = JsonValue;

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
  return H2oKeyError(spec.key,
                     fmt::format("value {} is not {}", QuoteForMessage(value.dump()), expected));
}

}  // namespace

std::string H2oKeyLabel(std::string_view key) {
  return fmt::format("key {}", QuoteForMessage(key));
}

Status H2oKeyError(std::string_view key, std::string_view reason) {
  return InvalidArgument(fmt::format("plan: {}: {}", H2oKeyLabel(key), reason));
}

bool H2oFlag(const Json& object, const char* key) {
  const Json* found = object.find(key);
  return found != nullptr && found->get<bool>();
}

Status CheckH2oKeys(const Json& object) {
  for (const Json::Member& member : object.items()) {
    const std::string& key = member.key;
    if (!IsH2oKey(key)) continue;
    const auto* spec = std::find_if(std::begin(kKeys), std::end(kKeys),
                                    [&](const KeySpec& known) { return known.key == key; });
    if (spec == std::end(kKeys)) return H2oKeyError(key, "unknown key of the H2O system");
    VARVE_RETURN_IF_ERROR(CheckType(*spec, member.value));
  }
  return Status();
}

void AddIfSaid(const Json& object, const char* key, std::string_view clause,
               std::vector<KeyClause>* clauses) {
  const Json* found = object.find(key);
  if (found == nullptr) return;
  clauses->push_back({FindClause(clause),
                      found->is_string() ? found->get<std::string>() : found->dump(),
                      H2oKeyLabel(key)});
}

}  // namespace varve
