#include "plan/resolve_retention.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/align.h"
#include "base/slot_bytes.h"
#include "plan/plan_values.h"
#include "retention/policy_table.h"

namespace varve {
namespace {

uint64_t HeldBytes(const LayerForm::Stage& stage, const CacheShape& shape, int page_tokens) {
  const StripShape key{0, 0, shape.key_dim, page_tokens};
  const StripShape value{0, 0, shape.value_dim, page_tokens};
  const size_t bytes = stage.k->StripBytes(key) + stage.v->StripBytes(value);
  return SlotBytes(bytes * static_cast<size_t>(shape.num_kv_heads));
}

RetentionLevel LevelOf(const LayerForm::Stage& stage, const CacheShape& shape, int page_tokens) {
  const StripShape key{0, 0, shape.key_dim, page_tokens};
  const StripShape value{0, 0, shape.value_dim, page_tokens};
  return {HeldBytes(stage, shape, page_tokens),
          (stage.k->ExpectedError(key) + stage.v->ExpectedError(value)) / 2};
}

// What evict=demote lowers pages to, below what the plan seals them in: 8 bits, 4 bits, nothing.
constexpr std::string_view kDemotions[] = {"q8_0r", "q4_0r"};

Status AddDemotions(const LayerRule& rule, const CacheShape& shape, int page_tokens,
                    LayerForm* layer) {
  layer->first_demotion = static_cast<int>(layer->stages.size());
  std::vector<RetentionLevel>& levels = layer->retention->levels;
  levels.push_back(LevelOf(layer->stages.back(), shape, page_tokens));
  for (std::string_view name : kDemotions) {
    const RungDescriptor* rung = FindRung(name);
    for (const auto& [part, dim] : {std::pair{"k", shape.key_dim}, {"v", shape.value_dim}}) {
      const Status status = rung->CheckDim(dim);
      if (status.ok()) continue;
      return Status(status.code(), fmt::format("plan: layers {}, clause \"evict=demote\": {}: {}",
                                               LayersText(rule), part, status.message()));
    }
    const LayerForm::Stage stage{rung, rung, LayerForm::kNeverByAge};
    const RetentionLevel level = LevelOf(stage, shape, page_tokens);
    if (level.bytes >= levels.back().bytes || level.distortion <= levels.back().distortion)
      continue;
    layer->stages.push_back(stage);
    levels.push_back(level);
  }
  return Status();
}

}  // namespace

Status AddRetention(const LayerRule& rule, const CacheShape& shape, LayerForm* layer) {
  const RetentionPolicy* policy = FindPolicy(*rule.evict);
  if (policy == nullptr) return Internal(fmt::format("policy {} is missing", *rule.evict));
  const RetentionRule defaults;
  layer->retention = RetentionRule{
      .policy = policy,
      .ratio = rule.ratio.value_or(defaults.ratio),
      .budget_bytes = rule.budget_bytes.value_or(0),
      .sink_tokens = rule.sink_tokens.value_or(defaults.sink_tokens),
      .recent_tokens = rule.recent_tokens.value_or(defaults.recent_tokens),
      .trigger_tokens = rule.trigger_tokens.value_or(defaults.trigger_tokens),
      .every_tokens = rule.every_tokens.value_or(defaults.every_tokens),
      .ema = rule.ema.value_or(defaults.ema),
      .levels = {},
  };
  const int page_tokens = shape.page_tokens;
  layer->first_demotion = static_cast<int>(layer->stages.size());
  if (policy->uses_levels) {
    VARVE_RETURN_IF_ERROR(AddDemotions(rule, shape, page_tokens, layer));
  }
  return Status();
}

Status CheckBudget(const LayerRule& rule, const CacheShape& shape, const LayerForm& layer) {
  const RetentionRule& retention = *layer.retention;
  if (retention.budget_bytes == 0) return Status();
  const auto pages = [&](int64_t tokens) {
    return static_cast<uint64_t>(CeilDiv(tokens, shape.page_tokens));
  };
  const LayerForm::Stage open{layer.open_rung, layer.open_rung, 0};
  const uint64_t exact_pages = pages(std::min(retention.sink_tokens, layer.exact_tokens));
  const uint64_t other_pages =
      pages(retention.sink_tokens) - exact_pages + pages(retention.recent_tokens);
  const uint64_t layer_floor =
      HeldBytes(open, shape, shape.page_tokens) * exact_pages +
      HeldBytes(layer.stages.front(), shape, shape.page_tokens) * other_pages;
  const int last = rule.last_layer == -1 ? shape.num_layers - 1 : rule.last_layer;
  const uint64_t floor = layer_floor * static_cast<uint64_t>(last - rule.first_layer + 1);
  if (retention.budget_bytes >= floor) return Status();
  return InvalidArgument(fmt::format(
      "plan: layers {}, clause \"budget={}\": sink {} and recent {} tokens alone take {} bytes",
      LayersText(rule), retention.budget_bytes, retention.sink_tokens, retention.recent_tokens,
      floor));
}

}  // namespace varve
