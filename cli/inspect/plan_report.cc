#include "cli/inspect/plan_report.h"

#include <cmath>
#include <cstdio>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/model_argument.h"
#include "cli/plan_use.h"
#include "cli/report/output.h"
#include "fold/fold_pieces.h"
#include "pages/page_pool.h"
#include "plan/layer_plan.h"
#include "runtime/model_cache.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxContext = 100'000'000;

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

// Every state that a page of this layer can be in, without counts: filling, open if there is such
// an age, the stages, dropped if there is a window.
std::vector<StageCost> StatesOf(const LayerPlan& layer) {
  std::vector<StageCost> states;
  const std::string open(layer.open_rung->name());
  const auto add = [&](std::string_view state, std::string age, std::string_view k,
                       std::string_view v) {
    StageCost cost;
    cost.state = state;
    cost.age = std::move(age);
    cost.k = k;
    cost.v = v;
    states.push_back(std::move(cost));
  };
  add("filling", "", open, open);
  const int64_t first_age = layer.stages.front().from_age;
  if (first_age > 0) add("open", AgeRange(0, first_age), open, open);
  // Rungs that evict=demote may use do not depend on age, and come last.
  const auto by_age = [&](size_t i) {
    return i < layer.stages.size() && layer.stages[i].from_age < LayerPlan::kNeverByAge;
  };
  for (size_t i = 0; by_age(i); ++i) {
    const LayerPlan::Stage& stage = layer.stages[i];
    const int64_t until = by_age(i + 1) ? layer.stages[i + 1].from_age : -1;
    add("sealed", AgeRange(stage.from_age, until), stage.k->name(), stage.v->name());
  }
  if (layer.window_tokens > 0) add("dropped", AgeRange(layer.window_tokens, -1), "", "");
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
void ForEachPage(const LayerPlan& layer, const CacheShape& shape, int64_t num_tokens,
                 const Visit& visit) {
  FoldSizes sizes{.factor = 1};
  if (layer.fold && layer.fold->compressor != nullptr) {
    const Compressor& compressor = *layer.fold->compressor;
    sizes = {compressor.factor, compressor.min_groups, layer.fold->image_tokens,
             compressor.has_image, num_tokens - layer.stages.front().from_age};
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

// Puts each page of a sequence of num_tokens into its state.
Result<std::vector<StageCost>> CostOfLayer(const LayerPlan& layer, const CacheShape& shape,
                                           int64_t num_tokens) {
  std::vector<StageCost> states = StatesOf(layer);
  const size_t first_stage = layer.stages.front().from_age > 0 ? 2 : 1;
  ForEachPage(layer, shape, num_tokens, [&](const PageTokens& page) {
    const int64_t age = num_tokens - page.end;
    const LayerPlan::Stage* stage = layer.StageAt(age);
    StageCost* state = &states[1];
    if (stage != nullptr) {
      state = &states[first_stage + static_cast<size_t>(stage - layer.stages.data())];
    }
    const bool is_dropped = layer.window_tokens > 0 && age >= layer.window_tokens;
    if (is_dropped && page.begin >= layer.sink_tokens) state = &states.back();
    if (page.filling) state = &states[0];
    ++state->pages;
    state->tokens += page.end - page.begin;
  });
  for (StageCost& state : states) {
    if (state.k.empty()) continue;
    VARVE_ASSIGN_OR_RETURN(uint64_t payload, PagePayload(state.k, state.v, shape));
    state.layer_bytes = SlotBytes(payload) * static_cast<uint64_t>(state.pages);
    state.layer_payload = payload * static_cast<uint64_t>(state.pages);
  }
  return states;
}

// Bytes that the policy of a range aims at, 0 before its trigger.
uint64_t PolicyBytes(const LayerPlan& layer, uint64_t f16_bytes, int64_t num_tokens) {
  if (!layer.retention || num_tokens < layer.retention->trigger_tokens) return 0;
  if (layer.retention->budget_bytes > 0) return layer.retention->budget_bytes;
  return static_cast<uint64_t>(static_cast<double>(f16_bytes) / layer.retention->ratio);
}

std::string LayerSpanText(const RangeCost& range) {
  if (range.first_layer == range.last_layer) return fmt::format("{}", range.first_layer);
  return fmt::format("{}-{}", range.first_layer, range.last_layer);
}

uint64_t LayersOf(const RangeCost& range) {
  return static_cast<uint64_t>(range.last_layer) - range.first_layer + 1;
}

std::string PerToken(uint64_t bytes, int64_t tokens) {
  if (tokens == 0) return "-";
  return fmt::format("{:.1f}", static_cast<double>(bytes) / static_cast<double>(tokens));
}

double Ratio(const PlanCost& cost) {
  return cost.bytes == 0 ? 1.0
                         : static_cast<double>(cost.bytes_f16) / static_cast<double>(cost.bytes);
}

// A cache of the plan, to ask what it uses beside its pages. It spills nowhere.
Result<PlanUse> TryPlan(const Plan& plan, const CacheShape& shape, CacheOptions options) {
  options.plan = plan;
  for (LayerRule& rule : options.plan.rules) {
    rule.spill.reset();
    rule.spill_mib.reset();
    rule.keep_mib.reset();
  }
  options.num_threads = 1;
  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<Cache> cache, Cache::Create(shape, std::move(options)));
  return MakePlanUse(plan, shape, UseOf(cache->Report()));
}

void PrintReport(const PlanReportOptions& options, const Plan& plan, const PlanCost& cost,
                 const PlanUse& use) {
  const std::string text = PrintPlan(plan);
  fmt::print("plan   {}\n", text.empty() ? "(nothing said: f16)" : text);
  fmt::print("model  {} layers, {} query heads on {} KV heads, dim {}\n", options.layers,
             options.heads, options.kv_heads, options.dim);
  fmt::print("at     {} tokens, {} to a page; age = tokens after the page's end\n\n", options.ctx,
             cost.page_tokens);

  // The payload has a column where pages do not fill their slots.
  std::vector<std::string> headers = {"layers", "state",   "age",          "K",     "V",
                                      ">pages", ">tokens", ">bytes/token", ">bytes"};
  if (cost.payload != cost.bytes) headers.push_back(">payload");
  TextTable table(std::move(headers));
  for (const RangeCost& range : cost.ranges) {
    std::string layers = LayerSpanText(range);
    for (const StageCost& stage : range.stages) {
      const uint64_t bytes = stage.layer_bytes * LayersOf(range);
      const bool is_gone = stage.k.empty();
      table.AddRow({std::exchange(layers, ""), stage.state, stage.age, is_gone ? "-" : stage.k,
                    is_gone ? "-" : stage.v, fmt::format("{}", stage.pages),
                    fmt::format("{}", stage.tokens), PerToken(bytes, stage.tokens),
                    HumanBytes(static_cast<double>(bytes)),
                    HumanBytes(static_cast<double>(stage.layer_payload * LayersOf(range)))});
    }
  }
  table.AddRow({"all", "", "", "", "", "", fmt::format("{}", options.ctx),
                PerToken(cost.bytes, options.ctx), HumanBytes(static_cast<double>(cost.bytes)),
                HumanBytes(static_cast<double>(cost.payload))});
  table.AddRow({"f16", "", "", "", "", "", fmt::format("{}", options.ctx),
                PerToken(cost.bytes_f16, options.ctx),
                HumanBytes(static_cast<double>(cost.bytes_f16)),
                HumanBytes(static_cast<double>(cost.bytes_f16))});
  table.Print(stdout);
  fmt::print("\n{} bytes held, {:.2f} times smaller than f16 ({} bytes)\n", cost.bytes, Ratio(cost),
             cost.bytes_f16);
  if (cost.payload != cost.bytes) {
    fmt::print("{} bytes of them are payload: a page takes a multiple of {} bytes\n", cost.payload,
               kSlotGranule);
  }
  if (use.constant_bytes() > 0) {
    fmt::print("{} {} bytes, once for the model: with it {:.2f} times smaller\n",
               use.compressor_bytes == 0 ? "codebook"
               : use.codebook_bytes == 0 ? "compressor"
                                         : "codebook and compressor",
               use.constant_bytes(), AllInRatio(cost, use.constant_bytes()));
  }
  if (use.compressor_bytes > 0)
    fmt::print("fold: counted as if all {} tokens were the prompt\n", options.ctx);
  for (const FallbackUse& fallback : use.fallbacks)
    fmt::print("fallback: {}\n", FallbackText(fallback));
  for (const RangeCost& range : cost.ranges) {
    if (range.policy_bytes == 0) continue;
    fmt::print(
        "layers {}: evict= then brings this down to {} {}, as far as sink and recent allow\n",
        LayerSpanText(range), HumanBytes(static_cast<double>(range.policy_bytes)),
        range.has_budget ? "for the whole cache" : "in these layers");
  }
}

Json ReportJson(const PlanReportOptions& options, const Plan& plan, const PlanCost& cost,
                const PlanUse& use) {
  Json ranges = Json::array();
  for (const RangeCost& range : cost.ranges) {
    Json stages = Json::array();
    for (const StageCost& stage : range.stages) {
      stages.push_back({{"state", stage.state},
                        {"age", stage.age},
                        {"k", stage.k},
                        {"v", stage.v},
                        {"pages", stage.pages},
                        {"tokens", stage.tokens},
                        {"bytes", stage.layer_bytes * LayersOf(range)},
                        {"bytes_payload", stage.layer_payload * LayersOf(range)}});
    }
    ranges.push_back({{"layers", LayerSpanText(range)},
                      {"bytes", range.bytes},
                      {"bytes_payload", range.payload},
                      {"policy_bytes", range.policy_bytes},
                      {"stages", std::move(stages)}});
  }
  const double ctx = static_cast<double>(std::max<int64_t>(1, options.ctx));
  Json rows = Json::array({{{"plan", options.plan},
                            {"canonical", PrintPlan(plan)},
                            {"ctx", options.ctx},
                            {"page_tokens", cost.page_tokens},
                            {"bytes", cost.bytes},
                            {"bytes_payload", cost.payload},
                            {"bytes_per_token", static_cast<double>(cost.bytes) / ctx},
                            {"bytes_f16", cost.bytes_f16},
                            {"ratio", Ratio(cost)},
                            {"ranges", std::move(ranges)}}});
  AddPlanUseKeys(use, &rows[0]);
  rows[0]["ratio_all_in"] = AllInRatio(cost, use.constant_bytes());
  return rows;
}

}  // namespace

Result<PlanCost> CostOfPlan(const Plan& plan, const CacheShape& shape, int64_t num_tokens,
                            PlanCompressors* compressors) {
  VARVE_ASSIGN_OR_RETURN(std::vector<LayerPlan> layers,
                         ResolvePlan(plan, shape, nullptr, compressors));
  CacheShape paged = shape;
  if (paged.page_tokens == 0) paged.page_tokens = plan.PageTokens();

  PlanCost cost;
  cost.page_tokens = paged.page_tokens;
  for (int first = 0; first < shape.num_layers;) {
    const LayerPlan& layer = layers[static_cast<size_t>(first)];
    int end = first + 1;
    while (end < shape.num_layers && layers[static_cast<size_t>(end)] == layer) ++end;
    Result<std::vector<StageCost>> stages = CostOfLayer(layer, paged, num_tokens);
    if (!stages.ok()) return stages.status();
    RangeCost range;
    range.first_layer = first;
    range.last_layer = end - 1;
    range.stages = std::move(*stages);
    const uint64_t f16_layer = static_cast<uint64_t>(num_tokens) *
                               static_cast<uint64_t>(shape.num_kv_heads) *
                               static_cast<uint64_t>(shape.key_dim + shape.value_dim) * 2;
    range.policy_bytes = PolicyBytes(layer, f16_layer * LayersOf(range), num_tokens);
    range.has_budget = layer.retention && layer.retention->budget_bytes > 0;
    for (const StageCost& stage : range.stages) {
      range.bytes += stage.layer_bytes * LayersOf(range);
      range.payload += stage.layer_payload * LayersOf(range);
    }
    cost.bytes += range.bytes;
    cost.payload += range.payload;
    cost.ranges.push_back(std::move(range));
    first = end;
  }
  cost.bytes_f16 = static_cast<uint64_t>(num_tokens) * static_cast<uint64_t>(shape.num_layers) *
                   static_cast<uint64_t>(shape.num_kv_heads) *
                   static_cast<uint64_t>(shape.key_dim + shape.value_dim) * 2;
  return cost;
}

void AddPlanReportOptions(CLI::App* command, PlanReportOptions* options) {
  command->add_option("PLAN", options->plan, "a plan, or @file.json")->required();
  CLI::Option* model =
      command->add_option("-m,--model", options->model, "GGUF file whose shape and codebook count")
          ->type_name("FILE")
          ->check(CLI::ExistingFile);
  CLI::Option* embedded =
      command->add_flag("--embedded-model", options->embedded_model, "those of the embedded model")
          ->excludes(model);
  CLI::Option* layers = command->add_option("--layers", options->layers, "layers of the model")
                            ->check(CLI::Range(1, 1024))
                            ->capture_default_str();
  CLI::Option* heads = command->add_option("--heads", options->heads, "query heads")
                           ->check(CLI::Range(1, 65536))
                           ->capture_default_str();
  CLI::Option* kv_heads = command->add_option("--kv-heads", options->kv_heads, "KV heads")
                              ->check(CLI::Range(1, 1024))
                              ->capture_default_str();
  CLI::Option* dim = command->add_option("--dim", options->dim, "head_dim of K and V")
                         ->check(CLI::Range(16, 512))
                         ->capture_default_str();
  for (CLI::Option* shape : {layers, heads, kv_heads, dim}) shape->excludes(model, embedded);
  command->add_option("--ctx", options->ctx, "tokens in the sequence")
      ->check(CLI::Range(int64_t{0}, kMaxContext))
      ->capture_default_str();
  command->add_option("--json", options->json,
                      "write JSON to FILE (- is stdout, without the table)");
}

int ReportPlan(const PlanReportOptions& asked) {
  PlanReportOptions options = asked;
  Result<Plan> plan = ReadPlanArgument(options.plan);
  if (!plan.ok()) return ReportError(plan.status());
  if (options.heads % options.kv_heads != 0) {
    return ReportError(InvalidArgument(fmt::format("--heads {} is not a multiple of --kv-heads {}",
                                                   options.heads, options.kv_heads)));
  }
  CacheShape shape;
  shape.num_layers = options.layers;
  shape.num_kv_heads = options.kv_heads;
  shape.group_size = options.heads / options.kv_heads;
  shape.key_dim = options.dim;
  shape.value_dim = options.dim;
  CacheOptions cache_options;
  if (options.embedded_model || !options.model.empty()) {
    Result<LoadedModel> model = LoadModel(options.model);
    if (!model.ok()) return ReportError(model.status());
    shape = model->model->cache_shape();
    cache_options = CacheOptionsFor(*model->model);
    options.layers = shape.num_layers;
    options.kv_heads = shape.num_kv_heads;
    options.heads = shape.num_kv_heads * shape.group_size;
    options.dim = shape.key_dim;
  }
  PlanCompressors compressors(cache_options.compressor, shape);
  Result<PlanCost> cost = CostOfPlan(*plan, shape, options.ctx, &compressors);
  if (!cost.ok()) {
    if (options.json != "-") fmt::print("plan   {}\n", PrintPlan(*plan));
    std::fflush(stdout);
    return ReportError(cost.status());
  }
  Result<PlanUse> use = TryPlan(*plan, shape, std::move(cache_options));
  if (!use.ok()) return ReportError(use.status());
  if (options.json != "-") PrintReport(options, *plan, *cost, *use);
  if (!options.json.empty()) {
    const Status written = WriteJson(options.json, "plan", ReportJson(options, *plan, *cost, *use));
    if (!written.ok()) return ReportError(written);
  }
  return kExitDone;
}

}  // namespace varve::cli
