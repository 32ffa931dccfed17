#include "varve/plan_estimate.h"

#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/slot_bytes.h"
#include "fold/fold_pieces.h"
#include "plan/resolved_plan.h"

namespace varve {
namespace {

// Payload of one page of one layer.
Result<uint64_t> PagePayload(std::string_view k, std::string_view v, const CacheShape& shape) {
  VARVE_ASSIGN_OR_RETURN(
      double key, RungBytesPerRow(std::string(k), Part::kKey, shape.key_dim, shape.page_tokens));
  VARVE_ASSIGN_OR_RETURN(double value, RungBytesPerRow(std::string(v), Part::kValue,
                                                       shape.value_dim, shape.page_tokens));
  const double bytes = (key + value) * shape.page_tokens * shape.num_kv_heads;
  return static_cast<uint64_t>(std::llround(bytes));
}

std::string AgeRange(int64_t from, int64_t until) {
  return until < 0 ? fmt::format("{}-", from) : fmt::format("{}-{}", from, until - 1);
}

// Every state that a page of a layer can be in, without counts, and where each is in the list; an
// index means nothing where the layer has no such state.
struct LayerStates {
  std::vector<StageCost> list;
  size_t exact = 0;
  size_t open = 0;
  size_t first_stage = 0;
  size_t dropped = 0;
};

LayerStates StatesOf(const LayerForm& layer) {
  LayerStates states;
  const std::string open(layer.open_rung->name);
  const auto add = [&](std::string_view state, std::string age, std::string_view k,
                       std::string_view v) {
    StageCost cost;
    cost.state = state;
    cost.age = std::move(age);
    cost.k = k;
    cost.v = v;
    states.list.push_back(std::move(cost));
    return states.list.size() - 1;
  };
  add("filling", "", open, open);
  if (layer.exact_tokens > 0) states.exact = add("exact", "", open, open);
  const int64_t first_age = layer.stages.front().from_age;
  if (first_age > 0) states.open = add("open", AgeRange(0, first_age), open, open);
  // Rungs that evict=demote may use do not depend on age, and come last.
  const auto by_age = [&](size_t i) {
    return i < layer.stages.size() && layer.stages[i].from_age < LayerForm::kNeverByAge;
  };
  states.first_stage = states.list.size();
  for (size_t i = 0; by_age(i); ++i) {
    const LayerForm::Stage& stage = layer.stages[i];
    const int64_t until = by_age(i + 1) ? layer.stages[i + 1].from_age : -1;
    add("sealed", AgeRange(stage.from_age, until), stage.k->name, stage.v->name);
  }
  if (layer.window_tokens > 0)
    states.dropped = add("dropped", AgeRange(layer.window_tokens, -1), "", "");
  return states;
}

// A page of a sequence: the tokens [begin, end), in fewer rows where they are folded.
struct PageTokens {
  int64_t begin = 0;
  int64_t end = 0;
  bool filling = false;
};

// Visits the pages of a sequence of num_tokens; with fold=, of a prompt of that many when it has
// ended.
template <typename Visit>
void ForEachPage(const LayerForm& layer, const CacheShape& shape, int64_t num_tokens,
                 const Visit& visit) {
  FoldSizes sizes{.factor = 1};
  if (layer.fold && layer.fold->compressor != nullptr) {
    const Compressor& compressor = *layer.fold->compressor;
    sizes = {.factor = compressor.factor,
             .min_groups = compressor.min_groups,
             .image_tokens = layer.fold->image_tokens,
             .has_image = compressor.has_image,
             .fold_end = num_tokens - layer.stages.front().from_age};
  }
  const PositionRun run{0, num_tokens};
  for (const FoldPiece& piece : CutForFold({&run, 1}, sizes)) {
    for (int64_t row = 0; row < piece.num_rows; row += shape.page_tokens) {
      const int64_t rows = std::min<int64_t>(piece.num_rows - row, shape.page_tokens);
      const int64_t begin = piece.first_position + row * piece.tokens_per_row;
      const int64_t end = begin + rows * piece.tokens_per_row;
      const bool filling =
          end == num_tokens && rows < shape.page_tokens && piece.tokens_per_row == 1;
      visit(PageTokens{begin, end, filling});
    }
  }
}

// The state of a page of a sequence of num_tokens, as an index into the list.
size_t StateOf(const LayerForm& layer, const LayerStates& states, const PageTokens& page,
               int64_t num_tokens) {
  const int64_t age = num_tokens - page.end;
  if (page.filling) return 0;
  if (layer.window_tokens > 0 && age >= layer.window_tokens && page.begin >= layer.sink_tokens)
    return states.dropped;
  if (page.begin < layer.exact_tokens) return states.exact;
  const LayerForm::Stage* stage = layer.StageAt(age);
  if (stage == nullptr) return states.open;
  return states.first_stage + static_cast<size_t>(stage - layer.stages.data());
}

// Counts each page of a sequence of num_tokens in its state.
Result<std::vector<StageCost>> CostOfLayer(const LayerForm& layer, const CacheShape& shape,
                                           int64_t num_tokens) {
  LayerStates states = StatesOf(layer);
  ForEachPage(layer, shape, num_tokens, [&](const PageTokens& page) {
    StageCost& state = states.list[StateOf(layer, states, page, num_tokens)];
    ++state.pages;
    state.tokens += page.end - page.begin;
  });
  for (StageCost& state : states.list) {
    if (state.k.empty()) continue;
    VARVE_ASSIGN_OR_RETURN(uint64_t payload, PagePayload(state.k, state.v, shape));
    state.layer_bytes = SlotBytes(payload) * static_cast<uint64_t>(state.pages);
    state.layer_payload = payload * static_cast<uint64_t>(state.pages);
  }
  return std::move(states.list);
}

// idle=: what becomes of open and sealed pages.
Result<std::optional<StageCost>> CostAtRest(const LayerForm& layer, const CacheShape& shape,
                                            const std::vector<StageCost>& states) {
  if (layer.rest_stage < 0) return std::optional<StageCost>();
  const LayerForm::Stage& stage = layer.stages[static_cast<size_t>(layer.rest_stage)];
  StageCost idle;
  idle.state = "idle";
  idle.k = stage.k->name;
  idle.v = stage.v->name;
  for (const StageCost& state : states) {
    if (state.state != "open" && state.state != "sealed") continue;
    idle.pages += state.pages;
    idle.tokens += state.tokens;
  }
  VARVE_ASSIGN_OR_RETURN(uint64_t payload, PagePayload(idle.k, idle.v, shape));
  idle.layer_bytes = SlotBytes(payload) * static_cast<uint64_t>(idle.pages);
  idle.layer_payload = payload * static_cast<uint64_t>(idle.pages);
  return std::optional(std::move(idle));
}

// Bytes that the policy of a range aims at, 0 before its trigger.
uint64_t PolicyBytes(const LayerForm& layer, uint64_t f16_bytes, int64_t num_tokens) {
  if (!layer.retention || num_tokens < layer.retention->trigger_tokens) return 0;
  if (layer.retention->budget_bytes > 0) return layer.retention->budget_bytes;
  return static_cast<uint64_t>(static_cast<double>(f16_bytes) / layer.retention->ratio);
}

// Without codebooks: fallback= where a rung cannot store rows of the shape's dimensions.
Plan SettledByDim(const Plan& plan, const CacheShape& shape, std::vector<FallbackUse>* fallbacks) {
  Plan settled = plan;
  for (LayerRule& rule : settled.rules) {
    if (!rule.fallback) continue;
    const int last = rule.last_layer == -1 ? shape.num_layers - 1 : rule.last_layer;
    const auto settle = [&](std::string* name, bool keys, bool values) {
      Status status;
      for (const Part part : {Part::kKey, Part::kValue}) {
        if (!(part == Part::kKey ? keys : values) || !status.ok()) continue;
        const int dim = part == Part::kKey ? shape.key_dim : shape.value_dim;
        const RungDescriptor* rung = FindRung(*name, dim);
        if (rung != nullptr) status = rung->CheckDim(dim);
      }
      if (status.ok()) return;
      for (const Part part : {Part::kKey, Part::kValue}) {
        if (!(part == Part::kKey ? keys : values)) continue;
        fallbacks->push_back(
            {rule.first_layer, last, part, *name, *rule.fallback, status.message()});
      }
      *name = *rule.fallback;
    };
    if (rule.k) settle(&*rule.k, true, false);
    if (rule.v) settle(&*rule.v, false, true);
    for (AgeStep& step : rule.age) settle(&step.rung, !rule.k, !rule.v);
    if (rule.idle_k) settle(&*rule.idle_k, true, false);
    if (rule.idle_v) settle(&*rule.idle_v, false, true);
  }
  return settled;
}

}  // namespace

Result<PlanCost> EstimatePlan(const Plan& plan, const CacheShape& shape,
                              const PlanResources& resources, int64_t num_tokens) {
  PlanRungs rungs(resources.codebook, resources.model_fingerprint, shape);
  PlanCompressors compressors(resources.compressor, shape);
  PlanCost cost;
  Plan wanted = plan;
  if (resources.assumed) wanted = SettledByDim(plan, shape, &cost.fallbacks);
  const PlanSources sources = resources.assumed ? PlanSources{} : PlanSources{&rungs, &compressors};
  VARVE_ASSIGN_OR_RETURN(ResolvedPlan resolved, ResolvePlan(wanted, shape, sources));
  if (!resources.assumed) {
    cost.fallbacks = resolved.fallbacks;
    rungs.Bind(resolved.layers);  // codebook_bytes() are those of bound rungs
    cost.codebook_bytes = rungs.codebook_bytes();
    cost.compressor_bytes = compressors.bytes();
  }
  cost.notes = resolved.notes;
  const std::vector<LayerForm>& layers = resolved.layers;
  const CacheShape& paged = resolved.shape;

  cost.page_tokens = paged.page_tokens;
  for (int first = 0; first < shape.num_layers;) {
    const LayerForm& layer = layers[static_cast<size_t>(first)];
    int end = first + 1;
    while (end < shape.num_layers && layers[static_cast<size_t>(end)] == layer) ++end;
    Result<std::vector<StageCost>> stages = CostOfLayer(layer, paged, num_tokens);
    if (!stages.ok()) return stages.status();
    RangeCost range;
    range.first_layer = first;
    range.last_layer = end - 1;
    range.stages = std::move(*stages);
    VARVE_ASSIGN_OR_RETURN(range.idle, CostAtRest(layer, paged, range.stages));
    const uint64_t f16_layer = static_cast<uint64_t>(num_tokens) *
                               static_cast<uint64_t>(shape.num_kv_heads) *
                               static_cast<uint64_t>(shape.key_dim + shape.value_dim) * 2;
    range.policy_bytes = PolicyBytes(layer, f16_layer * range.num_layers(), num_tokens);
    range.has_budget = layer.retention && layer.retention->budget_bytes > 0;
    for (const StageCost& stage : range.stages) {
      range.bytes += stage.layer_bytes * range.num_layers();
      range.payload += stage.layer_payload * range.num_layers();
      const bool rests = range.idle && (stage.state == "open" || stage.state == "sealed");
      if (!rests) range.idle_bytes += stage.layer_bytes * range.num_layers();
    }
    if (range.idle) range.idle_bytes += range.idle->layer_bytes * range.num_layers();
    cost.bytes += range.bytes;
    cost.idle_bytes += range.idle_bytes;
    cost.payload += range.payload;
    cost.ranges.push_back(std::move(range));
    first = end;
  }
  cost.bytes_f16 = static_cast<uint64_t>(num_tokens) * static_cast<uint64_t>(shape.num_layers) *
                   static_cast<uint64_t>(shape.num_kv_heads) *
                   static_cast<uint64_t>(shape.key_dim + shape.value_dim) * 2;
  return cost;
}

}  // namespace varve
