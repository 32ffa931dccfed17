#include "plan/layer_plan.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/slot_bytes.h"
#include "plan/plan_rule.h"
#include "plan/plan_values.h"

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
  Part part;
  int dim;
  std::string_view name;
  PlanRungs* rungs;  // may be null
};

// The open window where a rule says nothing: codes are for tokens that have settled.
constexpr int64_t kPqOpenTokens = 128;

// `clause` as the plan spells it, for messages.
Result<const Rung*> RungFor(std::string_view rung_name, const PartOfRule& part,
                            const std::string& clause, const LayerRule& rule) {
  const auto find = [&]() -> Result<const Rung*> {
    if (part.rungs != nullptr) return part.rungs->Get(std::string(rung_name), part.part, rule);
    const Rung* rung = FindRung(rung_name, part.dim);
    if (rung == nullptr) return Internal(fmt::format("rung {} is missing", rung_name));
    VARVE_RETURN_IF_ERROR(rung->CheckDim(part.dim));
    return rung;
  };
  Result<const Rung*> rung = find();
  if (rung.ok()) return rung;
  return Status(rung.status().code(),
                fmt::format("plan: layers {}, clause \"{}\": {}: {}", LayersText(rule), clause,
                            part.name, rung.status().message()));
}

Result<Ladder> LadderOf(const LayerRule& rule, const PartOfRule& part) {
  Ladder ladder;
  const auto add = [&](std::string_view name, int64_t from, const std::string& clause) -> Status {
    VARVE_ASSIGN_OR_RETURN(auto rung, RungFor(name, part, clause, rule));
    ladder.push_back({rung, from});
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
  const std::pair<bool, const char*> of_policies[] = {
      {rule.ratio.has_value(), "ratio"},          {rule.budget_bytes.has_value(), "budget"},
      {rule.recent_tokens.has_value(), "recent"}, {rule.trigger_tokens.has_value(), "trigger"},
      {rule.every_tokens.has_value(), "every"},   {rule.ema.has_value(), "ema"},
  };
  for (const auto& [said, clause] : of_policies) {
    if (!said || rule.evict) continue;
    return InvalidArgument(fmt::format(
        "plan: layers {}, clause \"{}\": means nothing without evict=", LayersText(rule), clause));
  }
  if (rule.sink_tokens && !rule.window_tokens && !rule.evict) {
    return InvalidArgument(fmt::format(
        "plan: layers {}, clause \"sink={}\": nothing is dropped without window= or evict=",
        LayersText(rule), *rule.sink_tokens));
  }
  const std::pair<bool, const char*> of_packing[] = {
      {rule.hot_sink_tokens.has_value(), "hot"},
      {rule.bootstrap_tokens.has_value(), "bootstrap"},
      {rule.step_tokens.has_value(), "step"},
      {rule.pack_threads.has_value(), "pack_threads"},
      {rule.pack_queue.has_value(), "pack_queue"},
      {rule.decode_cache_pages.has_value(), "decode_cache"},
      {rule.prefetch.has_value(), "prefetch"},
      {rule.spill.has_value(), "spill"},
      {rule.spill_mib.has_value(), "spill_mib"},
      {rule.keep_mib.has_value(), "keep_mib"},
  };
  for (const auto& [said, clause] : of_packing) {
    if (!said || rule.pack) continue;
    return InvalidArgument(fmt::format(
        "plan: layers {}, clause \"{}\": means nothing without pack=", LayersText(rule), clause));
  }
  if (rule.spill && rule.pack != "store") {
    return InvalidArgument(
        fmt::format("plan: layers {}, clause \"spill\": needs pack=store, not pack={}",
                    LayersText(rule), *rule.pack));
  }
  const std::pair<bool, const char*> of_spilling[] = {{rule.spill_mib.has_value(), "spill_mib"},
                                                      {rule.keep_mib.has_value(), "keep_mib"}};
  for (const auto& [said, clause] : of_spilling) {
    if (!said || rule.spill) continue;
    return InvalidArgument(fmt::format(
        "plan: layers {}, clause \"{}\": means nothing without spill=", LayersText(rule), clause));
  }
  const std::pair<bool, const char*> of_folding[] = {
      {rule.image_tokens.has_value(), "image"},
      {rule.fold_positions.has_value(), "fold_positions"},
      {rule.fold_order.has_value(), "fold_order"},
  };
  for (const auto& [said, clause] : of_folding) {
    if (!said || rule.fold) continue;
    return InvalidArgument(fmt::format(
        "plan: layers {}, clause \"{}\": means nothing without fold=", LayersText(rule), clause));
  }
  if (rule.window_tokens && rule.open_tokens.value_or(0) > *rule.window_tokens) {
    return InvalidArgument(fmt::format("plan: layers {}, clause \"open={}\": {} > window {}",
                                       LayersText(rule), *rule.open_tokens, *rule.open_tokens,
                                       *rule.window_tokens));
  }
  return Status();
}

// The expected squared error of a row relative to its energy. A block of 32 Gaussian values has its
// largest at about 2.1 standard deviations; codes of b bits cut twice that into 2^b steps, whose
// rounding error is uniform. Half a bit per value is the scale.
double DistortionOf(double bits_per_value) {
  if (bits_per_value >= 16) return 0;
  const double step = 2.1 / std::exp2(bits_per_value - 1.5);
  return step * step / 12;
}

uint64_t HeldBytes(const LayerPlan::Stage& stage, const CacheShape& shape, int page_tokens) {
  const StripShape key{0, 0, shape.key_dim, page_tokens};
  const StripShape value{0, 0, shape.value_dim, page_tokens};
  const size_t bytes = stage.k->StripBytes(key) + stage.v->StripBytes(value);
  return SlotBytes(bytes * static_cast<size_t>(shape.num_kv_heads));
}

RetentionLevel LevelOf(const LayerPlan::Stage& stage, const CacheShape& shape, int page_tokens) {
  const double rows = page_tokens;
  const StripShape key{0, 0, shape.key_dim, page_tokens};
  const StripShape value{0, 0, shape.value_dim, page_tokens};
  const double key_bits =
      8.0 * static_cast<double>(stage.k->StripBytes(key)) / rows / shape.key_dim;
  const double value_bits =
      8.0 * static_cast<double>(stage.v->StripBytes(value)) / rows / shape.value_dim;
  return {HeldBytes(stage, shape, page_tokens),
          (DistortionOf(key_bits) + DistortionOf(value_bits)) / 2};
}

// What evict=demote sinks pages to, below what the plan seals them in: 8 bits, 4 bits, nothing.
constexpr std::string_view kDemotions[] = {"q8_0r", "q4_0r"};

Status AddDemotions(const LayerRule& rule, const CacheShape& shape, int page_tokens,
                    LayerPlan* layer) {
  layer->first_demotion = static_cast<int>(layer->stages.size());
  std::vector<RetentionLevel>& levels = layer->retention->levels;
  levels.push_back(LevelOf(layer->stages.back(), shape, page_tokens));
  for (std::string_view name : kDemotions) {
    VARVE_ASSIGN_OR_RETURN(auto k, RungFor(name, {rule.k, Part::kKey, shape.key_dim, "k", nullptr},
                                           "evict=demote", rule));
    VARVE_ASSIGN_OR_RETURN(
        auto v,
        RungFor(name, {rule.v, Part::kValue, shape.value_dim, "v", nullptr}, "evict=demote", rule));
    const LayerPlan::Stage stage{k, v, LayerPlan::kNeverByAge};
    const RetentionLevel level = LevelOf(stage, shape, page_tokens);
    if (level.bytes >= levels.back().bytes || level.distortion <= levels.back().distortion)
      continue;
    layer->stages.push_back(stage);
    levels.push_back(level);
  }
  return Status();
}

// budget= must at least hold what may never be dropped, in every layer that shares it.
Status CheckBudget(const LayerRule& rule, const CacheShape& shape, int page_tokens,
                   const LayerPlan& layer) {
  if (layer.retention->budget_bytes == 0) return Status();
  const int last = rule.last_layer == -1 ? shape.num_layers - 1 : rule.last_layer;
  const auto pages = [&](int64_t tokens) { return (tokens + page_tokens - 1) / page_tokens; };
  const int64_t floor_pages =
      pages(layer.retention->sink_tokens) + pages(layer.retention->recent_tokens);
  const uint64_t floor = HeldBytes(layer.stages.front(), shape, page_tokens) *
                         static_cast<uint64_t>(floor_pages) *
                         static_cast<uint64_t>(last - rule.first_layer + 1);
  if (layer.retention->budget_bytes >= floor) return Status();
  return InvalidArgument(fmt::format(
      "plan: layers {}, clause \"budget={}\": sink {} and recent {} tokens alone take {} bytes",
      LayersText(rule), layer.retention->budget_bytes, layer.retention->sink_tokens,
      layer.retention->recent_tokens, floor));
}

Status AddRetention(const LayerRule& rule, const CacheShape& shape, LayerPlan* layer) {
  Result<RetentionPolicy> policy = ParseRetentionPolicy(*rule.evict);
  if (!policy.ok()) return policy.status();
  const RetentionRule defaults;
  layer->retention = RetentionRule{
      .policy = *policy,
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
  if (*policy == RetentionPolicy::kDemote) {
    VARVE_RETURN_IF_ERROR(AddDemotions(rule, shape, page_tokens, layer));
  }
  return CheckBudget(rule, shape, page_tokens, *layer);
}

bool IsPq(const Rung& rung) { return rung.key_space() == KeySpace::kCodebook; }

// Prepared queries of different codebooks are not shared; a layer has room for a few.
Status CheckCodebooks(const LayerRule& rule, const LayerPlan& layer) {
  bool any = false;
  for (const bool key : {true, false}) {
    std::vector<const Rung*> rungs;
    for (const LayerPlan::Stage& stage : layer.stages) {
      const Rung* rung = key ? stage.k : stage.v;
      if (IsPq(*rung) && std::find(rungs.begin(), rungs.end(), rung) == rungs.end())
        rungs.push_back(rung);
    }
    any = any || !rungs.empty();
    if (rungs.size() > kMaxCodebookSpaces) {
      return InvalidArgument(fmt::format("plan: layers {}: {} different pq rungs for {} > {}",
                                         LayersText(rule), rungs.size(), key ? "K" : "V",
                                         kMaxCodebookSpaces));
    }
  }
  if (any || !rule.codebook) return Status();
  return InvalidArgument(fmt::format(
      "plan: layers {}, clause \"codebook\": means nothing without a pq rung", LayersText(rule)));
}

Status AddFold(const LayerRule& rule, PlanCompressors* compressors, LayerPlan* layer) {
  layer->fold = FoldRule{nullptr, rule.image_tokens.value_or(0), rule.fold_positions == "restart"};
  if (compressors == nullptr) return Status();
  Result<const Compressor*> compressor = compressors->Get(rule);
  if (!compressor.ok()) {
    return Status(compressor.status().code(),
                  fmt::format("plan: layers {}, clause \"fold={}\": {}", LayersText(rule),
                              *rule.fold, compressor.status().message()));
  }
  layer->fold->compressor = *compressor;
  return Status();
}

// Positions are the sequence's: either all layers restart them, in the same way, or none.
Status CheckRestart(const std::vector<LayerPlan>& layers) {
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const auto restarts = [](const LayerPlan& plan) {
      return plan.fold && plan.fold->restart_positions;
    };
    if (restarts(layers[layer]) == restarts(layers[0]) &&
        (!restarts(layers[0]) || layers[layer].fold == layers[0].fold)) {
      continue;
    }
    return InvalidArgument(fmt::format(
        "plan: clause \"fold_positions=restart\": layer {} is not folded as layer 0 is; "
        "positions can restart only if all layers fold alike",
        layer));
  }
  return Status();
}

Result<LayerPlan> ResolveRule(const LayerRule& rule, const CacheShape& shape, PlanRungs* rungs,
                              PlanCompressors* compressors) {
  VARVE_RETURN_IF_ERROR(CheckCombination(rule));
  const std::string open_name = rule.open_rung.value_or(std::string(kDefaultRung));
  const std::string open_clause = "open_rung=" + open_name;
  const PartOfRule key_part{rule.k, Part::kKey, shape.key_dim, "k", rungs};
  const PartOfRule value_part{rule.v, Part::kValue, shape.value_dim, "v", rungs};
  Result<const Rung*> open_rung = RungFor(open_name, key_part, open_clause, rule);
  if (open_rung.ok()) open_rung = RungFor(open_name, value_part, open_clause, rule);
  if (!open_rung.ok()) return open_rung.status();
  VARVE_ASSIGN_OR_RETURN(Ladder keys, LadderOf(rule, key_part));
  VARVE_ASSIGN_OR_RETURN(Ladder values, LadderOf(rule, value_part));

  LayerPlan layer;
  layer.open_rung = *open_rung;
  const bool codes_first = IsPq(*keys.front().rung) || IsPq(*values.front().rung);
  // Half of a short window: else its pages would go before they are coded.
  const int64_t open_tokens =
      codes_first ? std::min(kPqOpenTokens, rule.window_tokens.value_or(2 * kPqOpenTokens) / 2) : 0;
  layer.stages = MergeLadders(keys, values, rule.open_tokens.value_or(open_tokens));
  VARVE_RETURN_IF_ERROR(CheckCodebooks(rule, layer));
  layer.window_tokens = rule.window_tokens.value_or(0);
  layer.sink_tokens = rule.sink_tokens.value_or(0);
  if (rule.evict) VARVE_RETURN_IF_ERROR(AddRetention(rule, shape, &layer));
  if (rule.fold) VARVE_RETURN_IF_ERROR(AddFold(rule, compressors, &layer));
  if (rule.pack) {
    const PackRule defaults;
    layer.pack = PackRule{
        .mode = *rule.pack == "store"  ? PackRule::Mode::kStore
                : *rule.pack == "full" ? PackRule::Mode::kFull
                                       : PackRule::Mode::kProbe,
        .hot_sink_tokens = rule.hot_sink_tokens.value_or(defaults.hot_sink_tokens),
        .hot_recent_tokens = rule.hot_recent_tokens.value_or(defaults.hot_recent_tokens),
        .bootstrap_tokens = rule.bootstrap_tokens.value_or(defaults.bootstrap_tokens),
        .step_tokens = rule.step_tokens.value_or(defaults.step_tokens),
    };
  }
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

bool LayerPlan::GivesSameValues(const LayerPlan& other) const {
  const auto same_stage = [](const Stage& a, const Stage& b) {
    return a.k->name() == b.k->name() && a.v->name() == b.v->name() && a.from_age == b.from_age;
  };
  return open_rung == other.open_rung &&
         std::equal(stages.begin(), stages.end(), other.stages.begin(), other.stages.end(),
                    same_stage) &&
         window_tokens == other.window_tokens && sink_tokens == other.sink_tokens &&
         retention == other.retention && first_demotion == other.first_demotion &&
         fold.has_value() == other.fold.has_value() &&
         (!fold || (fold->image_tokens == other.fold->image_tokens &&
                    fold->restart_positions == other.fold->restart_positions));
}

const LayerPlan::Stage* LayerPlan::StageAt(int64_t age) const {
  const Stage* found = nullptr;
  for (const Stage& stage : stages) {
    if (stage.from_age <= age) found = &stage;
  }
  return found;
}

PackSettings ResolvePackSettings(const Plan& plan) {
  PackSettings settings;
  const auto largest = [&plan](std::optional<int64_t> LayerRule::*member, int fallback) {
    std::optional<int64_t> found;
    for (const LayerRule& rule : plan.rules) {
      if (rule.*member) found = std::max(found.value_or(0), *(rule.*member));
    }
    return static_cast<int>(std::min<int64_t>(found.value_or(fallback), 1 << 30));
  };
  settings.threads = largest(&LayerRule::pack_threads, settings.threads);
  settings.max_queue = largest(&LayerRule::pack_queue, settings.max_queue);
  settings.decode_cache_pages =
      largest(&LayerRule::decode_cache_pages, settings.decode_cache_pages);
  settings.prefetch = largest(&LayerRule::prefetch, 1) != 0;
  for (const LayerRule& rule : plan.rules) {
    if (rule.spill) settings.spill_file = *rule.spill;
  }
  settings.spill_bytes = static_cast<uint64_t>(largest(&LayerRule::spill_mib, 1024)) << 20;
  settings.keep_bytes = static_cast<uint64_t>(largest(&LayerRule::keep_mib, 0)) << 20;
  return settings;
}

Result<std::vector<LayerPlan>> ResolvePlan(const Plan& plan, const CacheShape& asked,
                                           PlanRungs* rungs, PlanCompressors* compressors) {
  VARVE_ASSIGN_OR_RETURN(Plan valid, NormalizePlan(plan));
  VARVE_RETURN_IF_ERROR(CheckSupported(valid));
  VARVE_RETURN_IF_ERROR(CheckShape(valid, asked));
  CacheShape shape = asked;
  if (shape.page_tokens == 0) shape.page_tokens = valid.PageTokens();

  const LayerRule* spilling = nullptr;
  for (const LayerRule& rule : valid.rules) {
    if (!rule.spill) continue;
    if (spilling != nullptr && *spilling->spill != *rule.spill) {
      return InvalidArgument(fmt::format(
          "plan: layers {}, clause \"spill\": another file than layers {} have; a cache has one",
          LayersText(rule), LayersText(*spilling)));
    }
    spilling = &rule;
  }

  VARVE_ASSIGN_OR_RETURN(LayerPlan uncovered, ResolveRule(LayerRule(), shape, rungs, compressors));
  std::vector<LayerPlan> layers(static_cast<size_t>(shape.num_layers), uncovered);
  for (const LayerRule& rule : valid.rules) {
    VARVE_ASSIGN_OR_RETURN(LayerPlan layer, ResolveRule(rule, shape, rungs, compressors));
    const int last = rule.last_layer == -1 ? shape.num_layers - 1 : rule.last_layer;
    for (int i = rule.first_layer; i <= last; ++i) layers[static_cast<size_t>(i)] = layer;
  }
  VARVE_RETURN_IF_ERROR(CheckRestart(layers));
  return layers;
}

}  // namespace varve
