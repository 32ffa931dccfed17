#include "cache/layer_plan.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "cache/plan_rule.h"
#include "cache/plan_values.h"

namespace varve {
namespace {

constexpr std::string_view kDefaultRung = "f16";

// One part's way down: the rung from an age on, ascending, the first from age 0.
struct LadderStep {
  const Rung* rung;
  int64_t from_age;
};
using Ladder = std::vector<LadderStep>;

struct PartOfRule {
  const std::optional<std::string>& fixed;
  int dim;
  std::string_view name;
};

// `clause` as the plan spells it, for messages.
Result<const Rung*> RungFor(std::string_view rung_name, const PartOfRule& part,
                            const std::string& clause, const LayerRule& rule) {
  const Rung* rung = FindRung(rung_name);
  if (rung == nullptr) {
    return Internal(fmt::format("plan: clause \"{}\": rung {} is missing", clause, rung_name));
  }
  const Status fits = rung->CheckDim(part.dim);
  if (fits.ok()) return rung;
  return Status(fits.code(), fmt::format("plan: layers {}, clause \"{}\": {}: {}", LayersText(rule),
                                         clause, part.name, fits.message()));
}

Result<Ladder> LadderOf(const LayerRule& rule, const PartOfRule& part) {
  Ladder ladder;
  const auto add = [&](std::string_view name, int64_t from, const std::string& clause) -> Status {
    Result<const Rung*> rung = RungFor(name, part, clause, rule);
    if (!rung.ok()) return rung.status();
    ladder.push_back({*rung, from});
    return Status();
  };
  if (part.fixed) {
    VARVE_RETURN_IF_ERROR(add(*part.fixed, 0, fmt::format("{}={}", part.name, *part.fixed)));
    return ladder;
  }
  if (rule.age.empty()) {
    VARVE_RETURN_IF_ERROR(add(kDefaultRung, 0, std::string(kDefaultRung)));
    return ladder;
  }
  int64_t from_age = 0;
  for (const AgeStep& step : rule.age) {
    VARVE_RETURN_IF_ERROR(add(step.rung, from_age, "age=" + AgeText(rule.age)));
    from_age = step.until_tokens;
  }
  return ladder;
}

const Rung* RungAt(const Ladder& ladder, int64_t age) {
  const Rung* rung = ladder.front().rung;
  for (const LadderStep& step : ladder) {
    if (step.from_age <= age) rung = step.rung;
  }
  return rung;
}

// Both ladders in one: a stage at every age from `open_tokens` on where either part changes.
std::vector<LayerPlan::Stage> MergeLadders(const Ladder& keys, const Ladder& values,
                                           int64_t open_tokens) {
  std::vector<int64_t> ages = {open_tokens};
  for (const Ladder* ladder : {&keys, &values}) {
    for (const LadderStep& step : *ladder) {
      if (step.from_age > open_tokens) ages.push_back(step.from_age);
    }
  }
  std::sort(ages.begin(), ages.end());
  std::vector<LayerPlan::Stage> stages;
  for (int64_t age : ages) {
    const LayerPlan::Stage stage{RungAt(keys, age), RungAt(values, age), age};
    const bool is_news = stages.empty() || stages.back().k != stage.k || stages.back().v != stage.v;
    if (is_news) stages.push_back(stage);
  }
  return stages;
}

// Clauses that are fine alone and make no sense together.
Status CheckCombination(const LayerRule& rule) {
  if (rule.sink_tokens && !rule.window_tokens && !rule.evict) {
    return InvalidArgument(fmt::format(
        "plan: layers {}, clause \"sink={}\": nothing is dropped without window= or evict=",
        LayersText(rule), *rule.sink_tokens));
  }
  if (rule.window_tokens && rule.open_tokens.value_or(0) > *rule.window_tokens) {
    return InvalidArgument(fmt::format("plan: layers {}, clause \"open={}\": {} > window {}",
                                       LayersText(rule), *rule.open_tokens, *rule.open_tokens,
                                       *rule.window_tokens));
  }
  return Status();
}

Result<LayerPlan> ResolveRule(const LayerRule& rule, const CacheShape& shape) {
  VARVE_RETURN_IF_ERROR(CheckCombination(rule));
  const std::string open_name = rule.open_rung.value_or(std::string(kDefaultRung));
  const std::string open_clause = "open_rung=" + open_name;
  const PartOfRule key_part{rule.k, shape.key_dim, "k"};
  const PartOfRule value_part{rule.v, shape.value_dim, "v"};
  Result<const Rung*> open_rung = RungFor(open_name, key_part, open_clause, rule);
  if (open_rung.ok()) open_rung = RungFor(open_name, value_part, open_clause, rule);
  if (!open_rung.ok()) return open_rung.status();
  Result<Ladder> keys = LadderOf(rule, key_part);
  if (!keys.ok()) return keys.status();
  Result<Ladder> values = LadderOf(rule, value_part);
  if (!values.ok()) return values.status();

  LayerPlan layer;
  layer.open_rung = *open_rung;
  layer.stages = MergeLadders(*keys, *values, rule.open_tokens.value_or(0));
  layer.window_tokens = rule.window_tokens.value_or(0);
  layer.sink_tokens = rule.sink_tokens.value_or(0);
  return layer;
}

Status CheckShape(const Plan& plan, const CacheShape& shape) {
  if (shape.num_layers < 1 || shape.num_layers > kMaxPlanLayers) {
    return InvalidArgument(fmt::format("shape: num_layers {} is not within 1 and {}",
                                       shape.num_layers, kMaxPlanLayers));
  }
  for (const LayerRule& rule : plan.rules) {
    const int highest = std::max(rule.first_layer, rule.last_layer);
    if (highest >= shape.num_layers) {
      return InvalidArgument(fmt::format("plan: layers {}: layer {} > {}, the model's last",
                                         LayersText(rule), highest, shape.num_layers - 1));
    }
    if (rule.page_tokens && shape.page_tokens != 0 && *rule.page_tokens != shape.page_tokens) {
      return InvalidArgument(fmt::format(
          "plan: layers {}, clause \"page={}\": differs from page_tokens {} of the shape",
          LayersText(rule), *rule.page_tokens, shape.page_tokens));
    }
  }
  return Status();
}

}  // namespace

const LayerPlan::Stage* LayerPlan::StageAt(int64_t age) const {
  const Stage* found = nullptr;
  for (const Stage& stage : stages) {
    if (stage.from_age <= age) found = &stage;
  }
  return found;
}

Result<std::vector<LayerPlan>> ResolvePlan(const Plan& plan, const CacheShape& shape) {
  Result<Plan> valid = NormalizePlan(plan);
  if (!valid.ok()) return valid.status();
  VARVE_RETURN_IF_ERROR(CheckSupported(*valid));
  VARVE_RETURN_IF_ERROR(CheckShape(*valid, shape));

  Result<LayerPlan> uncovered = ResolveRule(LayerRule(), shape);
  if (!uncovered.ok()) return uncovered.status();
  std::vector<LayerPlan> layers(static_cast<size_t>(shape.num_layers), *uncovered);
  for (const LayerRule& rule : valid->rules) {
    Result<LayerPlan> layer = ResolveRule(rule, shape);
    if (!layer.ok()) return layer.status();
    const int last = rule.last_layer == -1 ? shape.num_layers - 1 : rule.last_layer;
    for (int i = rule.first_layer; i <= last; ++i) layers[static_cast<size_t>(i)] = *layer;
  }
  return layers;
}

}  // namespace varve
