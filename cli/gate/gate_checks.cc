// Of gate_measure.h: what is compared and explained, apart from what is timed.

#include <algorithm>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "cli/gate/gate_measure.h"

namespace varve::cli {
namespace {

// The rule that holds for a layer; null: none does, so it is f16.
const LayerRule* RuleOfLayer(const Plan& plan, int layer) {
  for (const LayerRule& rule : plan.rules) {
    if (layer >= rule.first_layer && (rule.last_layer < 0 || layer <= rule.last_layer)) {
      return &rule;
    }
  }
  return nullptr;
}

constexpr int64_t kDefaultTrigger = 512;
constexpr int64_t kDefaultHotSink = 16;
constexpr int64_t kDefaultHotRecent = 256;
constexpr int64_t kDefaultStep = 256;

// Tokens of the layer that lie on whole pages outside the hot zones.
int64_t ColdTokens(const SequenceInfo& info, const LayerRule& rule) {
  const int64_t sink = rule.hot_sink_tokens.value_or(kDefaultHotSink);
  const int64_t recent = rule.hot_recent_tokens.value_or(kDefaultHotRecent);
  int64_t begin = 0;
  int64_t cold = 0;
  for (const PageSpan& page : info.pages) {
    const int64_t end = begin + page.num_live_rows;
    if (end > info.live_rows - recent) break;
    if (begin >= sink) cold += page.num_live_rows;
    begin = end;
  }
  return cold;
}

// Reads one part of one layer and head of both caches; the first row that differs is named.
Status CompareStrips(const GateLane& lane, const GateLane& twin, int layer, int head, Part part,
                     std::vector<float>* rows, std::vector<float>* expected) {
  VARVE_ASSIGN_OR_RETURN(const int64_t end, lane.cache().NextPosition(lane.sequence()));
  VARVE_ASSIGN_OR_RETURN(const int64_t count, lane.cache().ReadRows(lane.sequence(), layer, head,
                                                                    part, 0, end, rows->data()));
  VARVE_ASSIGN_OR_RETURN(
      const int64_t twin_count,
      twin.cache().ReadRows(twin.sequence(), layer, head, part, 0, end, expected->data()));
  const char* name = part == Part::kKey ? "k" : "v";
  if (count != twin_count) {
    return Status(StatusCode::kDataLoss,
                  fmt::format("layer {}, head {}, {}: {} rows, without packing {}", layer, head,
                              name, count, twin_count));
  }
  const CacheShape& shape = lane.cache().shape();
  const auto dim = static_cast<size_t>(part == Part::kKey ? shape.key_dim : shape.value_dim);
  for (int64_t row = 0; row < count; ++row) {
    const size_t at = static_cast<size_t>(row) * dim;
    if (std::memcmp(rows->data() + at, expected->data() + at, dim * sizeof(float)) == 0) continue;
    return Status(StatusCode::kDataLoss,
                  fmt::format("layer {}, head {}, {}: row {} differs from the one without packing",
                              layer, head, name, row));
  }
  return Status();
}

}  // namespace

Plan WithoutPacking(const Plan& plan) {
  Plan plain = plan;
  for (LayerRule& rule : plain.rules) {
    rule.pack.reset();
    rule.hot_sink_tokens.reset();
    rule.hot_recent_tokens.reset();
    rule.bootstrap_tokens.reset();
    rule.step_tokens.reset();
    rule.pack_codec.reset();
    rule.predictors_k.reset();
    rule.predictors_v.reset();
    rule.pack_zstd.reset();
    rule.pack_block_tokens.reset();
    rule.strict.reset();
    rule.layer_cache_pages.reset();
    rule.sample_layers.reset();
    rule.sample_tokens.reset();
  }
  std::erase_if(plain.rules, [](const LayerRule& rule) {
    LayerRule empty;
    empty.first_layer = rule.first_layer;
    empty.last_layer = rule.last_layer;
    return rule == empty;
  });
  const auto page_tokens = plan.settings.page_tokens;
  const auto fold_positions = plan.settings.fold_positions;
  plain.settings = {};
  plain.settings.page_tokens = page_tokens;
  plain.settings.fold_positions = fold_positions;
  return plain;
}

Status CompareLanes(const GateLane& lane, const GateLane& twin) {
  const CacheShape& shape = lane.cache().shape();
  VARVE_ASSIGN_OR_RETURN(const int64_t end, lane.cache().NextPosition(lane.sequence()));
  const auto dim = static_cast<size_t>(std::max(shape.key_dim, shape.value_dim));
  std::vector<float> rows(static_cast<size_t>(end) * dim);
  std::vector<float> expected(rows.size());
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    for (int head = 0; head < shape.num_kv_heads; ++head) {
      for (const Part part : {Part::kKey, Part::kValue}) {
        VARVE_RETURN_IF_ERROR(CompareStrips(lane, twin, layer, head, part, &rows, &expected));
      }
    }
  }
  if (std::memcmp(lane.logits().data(), twin.logits().data(),
                  lane.logits().size() * sizeof(float)) != 0) {
    return Status(StatusCode::kDataLoss,
                  "the last prediction differs from the one without packing");
  }
  return Status();
}

std::string PolicyIdleReason(const Plan& plan, int64_t tokens) {
  int64_t trigger = std::numeric_limits<int64_t>::max();
  for (const LayerRule& rule : plan.rules) {
    if (rule.evict) trigger = std::min(trigger, rule.trigger_tokens.value_or(kDefaultTrigger));
  }
  if (trigger == std::numeric_limits<int64_t>::max() || tokens > trigger) return "";
  return fmt::format("the policy acts from {} tokens on, this ends at {}: ratio 1 is expected",
                     trigger, tokens);
}

std::string PackingIdleReason(const GateLane& lane, int first, int end) {
  int64_t cold = 0;
  int64_t step = 0;
  for (int layer = first; layer < std::min(end, lane.cache().shape().num_layers); ++layer) {
    const LayerRule* rule = RuleOfLayer(lane.cache().plan(), layer);
    const Result<SequenceInfo> info = lane.cache().Describe(lane.sequence(), layer);
    if (rule == nullptr || !rule->pack || !info.ok()) continue;
    step = std::max(step, rule->step_tokens.value_or(kDefaultStep));
    cold = std::max(cold, ColdTokens(*info, *rule));
  }
  // A first, smaller group (bootstrap=) may have been packed and dropped by the policy since.
  if (step == 0 || cold >= step) return "";
  return fmt::format("{} kept tokens are cold, groups have {} (hot=, step=): ratio 1 is expected",
                     cold, step);
}

}  // namespace varve::cli
