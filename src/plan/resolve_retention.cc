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
  const size_t bytes =
      stage.k->StripBytes(Part::kKey, key) + stage.v->StripBytes(Part::kValue, value);
  return SlotBytes(bytes * static_cast<size_t>(shape.num_kv_heads));
}

RetentionLevel LevelOf(const LayerForm::Stage& stage, const CacheShape& shape, int page_tokens) {
  const StripShape key{0, 0, shape.key_dim, page_tokens};
  const StripShape value{0, 0, shape.value_dim, page_tokens};
  return {HeldBytes(stage, shape, page_tokens),
          (stage.k->ExpectedError(key) + stage.v->ExpectedError(value)) / 2};
}

// What evict=demote lowers pages to, below what the plan seals them in. Keys need more bits than
// values, so they keep more.
struct RungNames {
  std::string_view k;
  std::string_view v;
};
constexpr RungNames kDemotions[] = {{"q8_0", "q8_0"}, {"t4", "t4"}, {"t4", "t3"},
                                    {"t3", "t3"},     {"t3", "t2"}, {"t2", "t2"}};
// Below this a level loses nothing that matters.
constexpr double kFaithful = 1e-3;

struct DemotionLevel {
  LayerForm::Stage stage;
  RetentionLevel level;
};

// The rungs below the plan's own that the shape can have, each smaller than the one before it.
Result<std::vector<DemotionLevel>> DemotionsOf(const LayerRule& rule, const CacheShape& shape,
                                               const RetentionLevel& sealed) {
  std::vector<DemotionLevel> found;
  Status refused;
  for (const RungNames& names : kDemotions) {
    const LayerForm::Stage stage{FindRung(names.k), FindRung(names.v), LayerForm::kNeverByAge};
    Status status = stage.k->CheckDim(shape.key_dim);
    std::string_view part = "k";
    if (status.ok()) {
      status = stage.v->CheckDim(shape.value_dim);
      part = "v";
    }
    if (!status.ok()) {
      refused =
          Status(status.code(), fmt::format("plan: layers {}, clause \"evict=demote\": {}: {}",
                                            LayersText(rule), part, status.message()));
      continue;
    }
    const RetentionLevel level = LevelOf(stage, shape, shape.page_tokens);
    const RetentionLevel& above = found.empty() ? sealed : found.back().level;
    if (level.bytes < above.bytes && level.distortion > above.distortion)
      found.push_back({stage, level});
  }
  if (found.empty() && !refused.ok()) return refused;
  return found;
}

// With ratio= pages are never lower than the first level that meets it in every page: so a page
// that was demoted when the sequence was short is not too low when it is long. On the way there
// only levels count that lose nothing: what is encoded twice has the errors of both.
Status AddDemotions(const LayerRule& rule, const CacheShape& shape, LayerForm* layer) {
  RetentionRule& retention = *layer->retention;
  const RetentionLevel sealed = LevelOf(layer->stages.back(), shape, shape.page_tokens);
  VARVE_ASSIGN_OR_RETURN(std::vector<DemotionLevel> below, DemotionsOf(rule, shape, sealed));
  const double page_f16 = 2.0 * shape.page_tokens * shape.num_kv_heads *
                          static_cast<double>(shape.key_dim + shape.value_dim);
  const auto meets = [&](const RetentionLevel& level) {
    return retention.budget_bytes == 0 &&
           static_cast<double>(level.bytes) * retention.ratio <= page_f16;
  };
  if (meets(sealed)) below.clear();
  const auto lowest = std::find_if(below.begin(), below.end(), [&](const DemotionLevel& demotion) {
    return meets(demotion.level);
  });
  retention.may_drop = !meets(sealed) && lowest == below.end();
  if (lowest != below.end()) {
    below.erase(lowest + 1, below.end());
    const DemotionLevel last = below.back();
    std::erase_if(below, [&](const DemotionLevel& demotion) {
      return demotion.level.distortion > kFaithful && !(demotion.stage == last.stage);
    });
  }
  retention.levels = {sealed};
  for (const DemotionLevel& demotion : below) {
    layer->stages.push_back(demotion.stage);
    retention.levels.push_back(demotion.level);
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
  layer->first_demotion = static_cast<int>(layer->stages.size());
  if (policy->uses_levels) {
    VARVE_RETURN_IF_ERROR(AddDemotions(rule, shape, layer));
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
  const uint64_t page_bytes = retention.policy->uses_levels
                                  ? retention.levels.back().bytes
                                  : HeldBytes(layer.stages.front(), shape, shape.page_tokens);
  const uint64_t layer_floor =
      HeldBytes(open, shape, shape.page_tokens) * exact_pages + page_bytes * other_pages;
  const int last = rule.last_layer == -1 ? shape.num_layers - 1 : rule.last_layer;
  const uint64_t floor = layer_floor * static_cast<uint64_t>(last - rule.first_layer + 1);
  if (retention.budget_bytes >= floor) return Status();
  return InvalidArgument(fmt::format(
      "plan: layers {}, clause \"budget={}\": sink {} and recent {} tokens alone take {} bytes",
      LayersText(rule), retention.budget_bytes, retention.sink_tokens, retention.recent_tokens,
      floor));
}

}  // namespace varve
