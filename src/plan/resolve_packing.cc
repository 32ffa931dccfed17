#include "plan/resolve_packing.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/align.h"
#include "plan/plan_grammar.h"
#include "plan/plan_values.h"

namespace varve {
namespace {

// Places of the words "raw/xor_seq" in the clause's list: the ids.
std::vector<int> IdsOf(std::string_view clause, const std::string& said) {
  const std::vector<std::string_view> words = SplitWords(FindClause(clause)->words);
  std::vector<int> ids;
  for (size_t begin = 0; begin <= said.size();) {
    const size_t end = std::min(said.find('/', begin), said.size());
    const std::string_view word = std::string_view(said).substr(begin, end - begin);
    ids.push_back(static_cast<int>(std::find(words.begin(), words.end(), word) - words.begin()));
    begin = end + 1;
  }
  return ids;
}

}  // namespace

std::optional<PackRule> PackRuleOf(const LayerRule& rule, int page_tokens) {
  if (!rule.pack) return std::nullopt;
  PackRule pack;
  const auto take = [](const std::optional<int64_t>& said, int64_t* into) {
    if (said) *into = *said;
  };
  pack.mode = *rule.pack;
  take(rule.hot_sink_tokens, &pack.hot_sink_tokens);
  take(rule.hot_recent_tokens, &pack.hot_recent_tokens);
  take(rule.bootstrap_tokens, &pack.bootstrap_tokens);
  take(rule.step_tokens, &pack.step_tokens);
  take(rule.sample_tokens, &pack.sample_tokens);
  pack.block_tokens =
      CeilDiv<int64_t>(rule.pack_block_tokens.value_or(page_tokens), page_tokens) * page_tokens;
  pack.codec = rule.pack_codec.value_or(pack.codec);
  if (rule.predictors_k) pack.predictors_k = IdsOf("predictors_k", *rule.predictors_k);
  if (rule.predictors_v) pack.predictors_v = IdsOf("predictors_v", *rule.predictors_v);
  pack.zstd = rule.pack_zstd.value_or(1) != 0;
  pack.strict = rule.strict.value_or(1) != 0;
  pack.layer_cache_pages = static_cast<int>(rule.layer_cache_pages.value_or(0));
  return pack;
}

void SampleLayers(const LayerRule& rule, int last, std::vector<LayerForm>* layers) {
  if (!rule.pack || !rule.sample_layers) return;
  const int64_t count = last - rule.first_layer + 1;
  const int64_t wanted = std::min(*rule.sample_layers, count);
  // Sample i stands in the middle of the i-th of `wanted` equal parts.
  int64_t taken = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (taken < wanted && i == (2 * taken + 1) * count / (2 * wanted)) {
      ++taken;
    } else {
      (*layers)[static_cast<size_t>(rule.first_layer + i)].pack.reset();
    }
  }
}

void AddPackNotes(const LayerRule& rule, const LayerForm& layer, int page_tokens,
                  std::vector<std::string>* notes) {
  if (!rule.pack_block_tokens || *rule.pack_block_tokens == layer.pack->block_tokens) return;
  notes->push_back(fmt::format("layers {}: pack_block={} runs as {}: whole pages of {}",
                               LayersText(rule), *rule.pack_block_tokens, layer.pack->block_tokens,
                               page_tokens));
}

PackSettings PackSettingsOf(const PlanSettings& said) {
  PackSettings settings;
  const auto take = [](const std::optional<int64_t>& value, int* into) {
    if (value) *into = static_cast<int>(*value);
  };
  take(said.pack_threads, &settings.threads);
  take(said.pack_queue, &settings.max_queue);
  take(said.decode_cache_pages, &settings.decode_cache_pages);
  settings.prefetch = said.prefetch.value_or(1) != 0;
  settings.spill_file = said.spill.value_or("");
  if (said.spill_mib) settings.spill_bytes = static_cast<uint64_t>(*said.spill_mib) << 20;
  if (said.keep_mib) settings.keep_bytes = static_cast<uint64_t>(*said.keep_mib) << 20;
  return settings;
}

}  // namespace varve
