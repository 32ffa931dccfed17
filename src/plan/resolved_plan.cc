#include "plan/resolved_plan.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "plan/plan_rule.h"
#include "plan/plan_values.h"
#include "plan/resolve_packing.h"
#include "plan/resolve_retention.h"

namespace varve {
namespace {

constexpr std::string_view kDefaultRung = "f16";

// One part's way down: the rung from an age on, ascending, the first from age 0.
struct LadderStep {
  const RungDescriptor* rung;
  int64_t from_age;
};
using Ladder = std::vector<LadderStep>;

struct PartOfRule {
  const std::optional<std::string>& fixed;
  int dim;
  std::string_view name;
};

// `clause` as the plan spells it, for messages.
Result<const RungDescriptor*> RungFor(std::string_view rung_name, const PartOfRule& part,
                                      const std::string& clause, const LayerRule& rule) {
  const RungDescriptor* rung = FindRung(rung_name, part.dim);
  if (rung == nullptr) return Internal(fmt::format("rung {} is missing", rung_name));
  const Status status = rung->CheckDim(part.dim);
  if (status.ok()) return rung;
  return Status(status.code(), fmt::format("plan: layers {}, clause \"{}\": {}: {}",
                                           LayersText(rule), clause, part.name, status.message()));
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

const RungDescriptor* RungAt(const Ladder& ladder, int64_t age) {
  const RungDescriptor* rung = ladder.front().rung;
  for (const LadderStep& step : ladder) {
    if (step.from_age <= age) rung = step.rung;
  }
  return rung;
}

// Both ladders in one: a stage at every age from `open_tokens` on where either part changes.
std::vector<LayerForm::Stage> MergeLadders(const Ladder& keys, const Ladder& values,
                                           int64_t open_tokens) {
  std::vector<int64_t> ages = {open_tokens};
  for (const Ladder* ladder : {&keys, &values}) {
    for (const LadderStep& step : *ladder) {
      if (step.from_age > open_tokens) ages.push_back(step.from_age);
    }
  }
  std::sort(ages.begin(), ages.end());
  std::vector<LayerForm::Stage> stages;
  for (int64_t age : ages) {
    const LayerForm::Stage stage{RungAt(keys, age), RungAt(values, age), age};
    const bool is_news = stages.empty() || stages.back().k != stage.k || stages.back().v != stage.v;
    if (is_news) stages.push_back(stage);
  }
  return stages;
}

// The rung of one part at rest; the part's last one where the rule does not say it.
Result<const RungDescriptor*> RestRung(const LayerRule& rule, const PartOfRule& part,
                                       const RungDescriptor* last, Part which, int page_tokens) {
  if (!part.fixed) return last;
  const std::string clause = rule.idle_k == rule.idle_v
                                 ? fmt::format("idle={}", *part.fixed)
                                 : fmt::format("idle_{}={}", part.name, *part.fixed);
  VARVE_ASSIGN_OR_RETURN(const RungDescriptor* rung, RungFor(*part.fixed, part, clause, rule));
  const StripShape shape{0, 0, part.dim, page_tokens};
  const double bits = rung->BitsPerValue(which, shape);
  const double last_bits = last->BitsPerValue(which, shape);
  if (rung == last || bits < last_bits) return rung;
  return InvalidArgument(fmt::format(
      "plan: layers {}, clause \"{}\": {} takes {:.3g} bits a value, {} of sealed {} takes {:.3g}; "
      "name a lower rung",
      LayersText(rule), clause, rung->name, bits, last->name, part.name, last_bits));
}

// idle=: one stage more, behind all that ages bring.
Status AddRestStage(const LayerRule& rule, const CacheShape& shape, LayerForm* layer) {
  if (!rule.idle_k && !rule.idle_v) return Status();
  const LayerForm::Stage last = layer->stages.back();
  LayerForm::Stage rest{nullptr, nullptr, LayerForm::kNeverByAge};
  VARVE_ASSIGN_OR_RETURN(rest.k, RestRung(rule, {rule.idle_k, shape.key_dim, "k"}, last.k,
                                          Part::kKey, shape.page_tokens));
  VARVE_ASSIGN_OR_RETURN(rest.v, RestRung(rule, {rule.idle_v, shape.value_dim, "v"}, last.v,
                                          Part::kValue, shape.page_tokens));
  if (rest.k == last.k && rest.v == last.v) {
    return InvalidArgument(
        fmt::format("plan: layers {}: idle= is {} and {}, as sealed pages are; name a lower rung, "
                    "or leave it out",
                    LayersText(rule), rest.k->name, rest.v->name));
  }
  layer->rest_stage = static_cast<int>(layer->stages.size());
  layer->stages.push_back(rest);
  return Status();
}

// Queries and sums in spaces of their own are not shared; a layer has room for a few.
Status CheckOwnSpaces(const LayerRule& rule, const LayerForm& layer) {
  for (const bool key : {true, false}) {
    std::vector<const RungDescriptor*> rungs;
    for (const LayerForm::Stage& stage : layer.stages) {
      const RungDescriptor* rung = key ? stage.k : stage.v;
      if (rung->has_own_spaces && std::find(rungs.begin(), rungs.end(), rung) == rungs.end())
        rungs.push_back(rung);
    }
    if (rungs.size() > kMaxOwnSpaces) {
      return InvalidArgument(fmt::format(
          "plan: layers {}: {} has {} different rungs like {}; a layer holds {}", LayersText(rule),
          key ? "K" : "V", rungs.size(), rungs.front()->name, kMaxOwnSpaces));
    }
  }
  return Status();
}

// The codebook of the rule's rungs, if one needs it.
Status AddCodebook(const LayerRule& rule, PlanRungs* rungs, LayerForm* layer) {
  const bool needed =
      std::any_of(layer->stages.begin(), layer->stages.end(), [](const LayerForm::Stage& stage) {
        return stage.k->needs_codebook() || stage.v->needs_codebook();
      });
  if (!needed && rule.codebook) {
    return InvalidArgument(
        fmt::format("plan: layers {}, clause \"codebook\": codebook= requires a pq rung in k=, v=, "
                    "age= or idle=",
                    LayersText(rule)));
  }
  if (!needed || rungs == nullptr) return Status();
  VARVE_ASSIGN_OR_RETURN(layer->codebook, rungs->CodebookOf(rule));
  return Status();
}

Status AddFold(const LayerRule& rule, const PlanSettings& settings, PlanCompressors* compressors,
               LayerForm* layer) {
  layer->fold = FoldRule{nullptr, rule.image_tokens.value_or(0),
                         settings.fold_positions == FoldPositions::kRestart};
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
Status CheckRestart(const std::vector<LayerForm>& layers) {
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const auto restarts = [](const LayerForm& plan) {
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

// Tokens that stay open: what the rule says, else what its first rungs like. Half of a short
// window at most: else its pages would go before they are coded.
int64_t OpenTokens(const LayerRule& rule, const Ladder& keys, const Ladder& values) {
  if (rule.open_tokens) return *rule.open_tokens;
  const int64_t liked = std::max(keys.front().rung->open_tokens, values.front().rung->open_tokens);
  return rule.window_tokens ? std::min(liked, *rule.window_tokens / 2) : liked;
}

// What exact= is where a rule does not say it: enough for the outliers of the first tokens, which
// ruin rungs of few bits.
constexpr int64_t kDefaultExactTokens = 64;
constexpr double kFewBits = 8;  // less than this

int64_t ExactTokens(const LayerRule& rule, const LayerForm& layer, const CacheShape& shape) {
  if (rule.exact_tokens) return *rule.exact_tokens;
  const bool has_few_bits =
      std::any_of(layer.stages.begin(), layer.stages.end(), [&](const LayerForm::Stage& stage) {
        return stage.k->BitsPerValue(Part::kKey, {0, 0, shape.key_dim, shape.page_tokens}) <
                   kFewBits ||
               stage.v->BitsPerValue(Part::kValue, {0, 0, shape.value_dim, shape.page_tokens}) <
                   kFewBits;
      });
  return has_few_bits ? kDefaultExactTokens : 0;
}

Result<LayerForm> ResolveRule(const LayerRule& rule, const PlanSettings& settings,
                              const CacheShape& shape, const PlanSources& sources) {
  if (rule.window_tokens && rule.open_tokens.value_or(0) > *rule.window_tokens) {
    return InvalidArgument(fmt::format("plan: layers {}, clause \"open={}\": {} > window {}",
                                       LayersText(rule), *rule.open_tokens, *rule.open_tokens,
                                       *rule.window_tokens));
  }
  const std::string open_name = rule.open_rung.value_or(std::string(kDefaultRung));
  const std::string open_clause = "open_rung=" + open_name;
  const PartOfRule key_part{rule.k, shape.key_dim, "k"};
  const PartOfRule value_part{rule.v, shape.value_dim, "v"};
  LayerForm layer;
  VARVE_ASSIGN_OR_RETURN(layer.open_rung, RungFor(open_name, key_part, open_clause, rule));
  VARVE_ASSIGN_OR_RETURN(layer.open_rung, RungFor(open_name, value_part, open_clause, rule));
  VARVE_ASSIGN_OR_RETURN(Ladder keys, LadderOf(rule, key_part));
  VARVE_ASSIGN_OR_RETURN(Ladder values, LadderOf(rule, value_part));
  layer.stages = MergeLadders(keys, values, OpenTokens(rule, keys, values));
  VARVE_RETURN_IF_ERROR(AddRestStage(rule, shape, &layer));
  VARVE_RETURN_IF_ERROR(CheckOwnSpaces(rule, layer));
  VARVE_RETURN_IF_ERROR(AddCodebook(rule, sources.rungs, &layer));
  layer.window_tokens = rule.window_tokens.value_or(0);
  layer.sink_tokens = rule.sink_tokens.value_or(0);
  if (rule.evict) VARVE_RETURN_IF_ERROR(AddRetention(rule, shape, &layer));
  layer.exact_tokens = ExactTokens(rule, layer, shape);
  if (rule.evict) VARVE_RETURN_IF_ERROR(CheckBudget(rule, shape, layer));
  if (rule.fold) VARVE_RETURN_IF_ERROR(AddFold(rule, settings, sources.compressors, &layer));
  layer.pack = PackRuleOf(rule, shape.page_tokens);
  return layer;
}

Status CheckFitsShape(const Plan& plan, const CacheShape& shape) {
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
  }
  const std::optional<int> page_tokens = plan.settings.page_tokens;
  if (page_tokens && shape.page_tokens != 0 && *page_tokens != shape.page_tokens) {
    return InvalidArgument(
        fmt::format("plan: layers {}, clause \"page={}\": differs from page_tokens {} of the shape",
                    LayersText(SplitPlan(plan).front()), *page_tokens, shape.page_tokens));
  }
  return Status();
}

}  // namespace

Result<ResolvedPlan> ResolvePlan(const Plan& plan, const CacheShape& shape,
                                 const PlanSources& sources) {
  ResolvedPlan resolved;
  VARVE_ASSIGN_OR_RETURN(resolved.plan, NormalizePlan(plan));
  VARVE_RETURN_IF_ERROR(CheckSupported(resolved.plan));
  if (sources.rungs != nullptr) {
    VARVE_ASSIGN_OR_RETURN(resolved.plan, sources.rungs->Settle(resolved.plan));
    resolved.fallbacks = sources.rungs->fallbacks();
  }
  VARVE_RETURN_IF_ERROR(CheckFitsShape(resolved.plan, shape));
  VARVE_RETURN_IF_ERROR(CheckRequirements(resolved.plan));
  resolved.shape = shape;
  if (shape.page_tokens == 0) resolved.shape.page_tokens = resolved.plan.PageTokens();
  resolved.packing = PackSettingsOf(resolved.plan.settings);

  VARVE_ASSIGN_OR_RETURN(LayerForm uncovered,
                         ResolveRule(LayerRule(), {}, resolved.shape, sources));
  resolved.layers.assign(static_cast<size_t>(shape.num_layers), uncovered);
  for (const LayerRule& rule : resolved.plan.rules) {
    VARVE_ASSIGN_OR_RETURN(LayerForm layer,
                           ResolveRule(rule, resolved.plan.settings, resolved.shape, sources));
    const int last = rule.last_layer == -1 ? shape.num_layers - 1 : rule.last_layer;
    for (int i = rule.first_layer; i <= last; ++i) resolved.layers[static_cast<size_t>(i)] = layer;
    SampleLayers(rule, last, &resolved.layers);
    AddPackNotes(rule, layer, resolved.shape.page_tokens, &resolved.notes);
  }
  VARVE_RETURN_IF_ERROR(CheckRestart(resolved.layers));
  return resolved;
}

}  // namespace varve
