#include "plan/plan_lossless_keys.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/align.h"
#include "plan/h2o_key_values.h"
#include "plan/plan_values.h"

namespace varve {
namespace {

using Json = JsonValue;

// "raw,delta_seq" or ["raw", "delta_seq"] as "raw/delta_seq".
void AddPredictors(const Json& object, const char* key, std::string_view clause,
                   std::vector<KeyClause>* clauses) {
  const Json* found = object.find(key);
  if (found == nullptr) return;
  std::string text;
  if (found->is_string()) {
    text = found->get<std::string>();
    std::erase(text, ' ');
    std::replace(text.begin(), text.end(), ',', '/');
  } else {
    for (const Json& name : *found) text += (text.empty() ? "" : "/") + name.get<std::string>();
  }
  clauses->push_back({FindClause(clause), text, H2oKeyLabel(key)});
}

// The key's value, or the system's default, where that is not ours.
void AddOrDefault(const Json& object, const char* key, int64_t default_value,
                  std::string_view clause, std::vector<KeyClause>* clauses) {
  const Json* found = object.find(key);
  clauses->push_back({FindClause(clause),
                      found == nullptr ? fmt::format("{}", default_value) : found->dump(),
                      H2oKeyLabel(key)});
}

constexpr int64_t kMaxBlocks = 65536;

// Its decode cache counts blocks of a layer, ours pages.
Status AddDecodeCache(const Json& object, std::vector<KeyClause>* clauses) {
  const char* key = "kv_lossless_decode_cache_blocks";
  const int64_t page = object.value("kv_h2o_block_tokens", int64_t{64});
  const int64_t block = object.value("kv_lossless_block_tokens", int64_t{128});
  const int64_t blocks = object.value(key, int64_t{64});
  if (page < 1 || block < 1 || blocks < 0 || blocks > kMaxBlocks) {
    return H2oKeyError(key, fmt::format("value {} is not within 0 and {}", blocks, kMaxBlocks));
  }
  const int64_t pages = blocks * CeilDiv(std::min(block, kMaxBlocks), page);
  clauses->push_back({FindClause("layer_cache"),
                      fmt::format("{}", std::min<int64_t>(pages, 1 << 20)), H2oKeyLabel(key)});
  return Status();
}

void AddHot(const Json& object, std::vector<KeyClause>* clauses) {
  const char* sink = "kv_lossless_hot_sink_tokens";
  const char* recent = "kv_lossless_hot_recent_tokens";
  if (!object.contains(sink) && !object.contains(recent)) return;
  const auto number = [&](const char* key, const char* default_value) {
    const Json* found = object.find(key);
    return found != nullptr ? found->dump() : std::string(default_value);
  };
  clauses->push_back({FindClause("hot"), number(sink, "16") + "/" + number(recent, "256"),
                      H2oKeyLabel(object.contains(sink) ? sink : recent)});
}

}  // namespace

Result<std::vector<KeyClause>> PackClauses(const Json& object, PackScope scope) {
  std::vector<KeyClause> clauses;
  const std::string mode = object.value("kv_lossless_runtime_mode", "probe");
  clauses.push_back({FindClause("pack"), mode, H2oKeyLabel("kv_lossless_runtime_mode")});
  AddHot(object, &clauses);
  AddIfSaid(object, "kv_lossless_store_bootstrap_tokens", "bootstrap", &clauses);
  AddIfSaid(object, "kv_lossless_store_grouped_step_tokens", "step", &clauses);
  clauses.push_back({FindClause("pack_codec"), "gear", H2oKeyLabel("kv_lossless_codec")});
  AddPredictors(object, "kv_lossless_predictors_k", "predictors_k", &clauses);
  AddPredictors(object, "kv_lossless_predictors_v", "predictors_v", &clauses);
  AddOrDefault(object, "kv_lossless_block_tokens", 128, "pack_block", &clauses);
  const char* strict = "kv_lossless_strict_roundtrip_check";
  clauses.push_back(
      {FindClause("strict"), H2oFlag(object, strict) ? "1" : "0", H2oKeyLabel(strict)});
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

}  // namespace varve
