#include "cli/inspect/plan_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/inspect/read_time.h"
#include "cli/model_argument.h"
#include "cli/plan_use.h"
#include "cli/report/output.h"
#include "pages/page_pool.h"
#include "runtime/model_cache.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxContext = 100'000'000;

std::string LayerSpanText(const RangeCost& range) {
  if (range.first_layer == range.last_layer) return fmt::format("{}", range.first_layer);
  return fmt::format("{}-{}", range.first_layer, range.last_layer);
}

std::string PerToken(uint64_t bytes, int64_t tokens) {
  if (tokens == 0) return "-";
  return fmt::format("{:.1f}", static_cast<double>(bytes) / static_cast<double>(tokens));
}

double Ratio(const PlanCost& cost) {
  return cost.bytes == 0 ? 1.0
                         : static_cast<double>(cost.bytes_f16) / static_cast<double>(cost.bytes);
}

// What is left once policies have brought their layers down.
uint64_t BytesAfterEviction(const PlanCost& cost) {
  uint64_t bytes = 0;
  for (const RangeCost& range : cost.ranges) {
    if (range.has_budget && range.policy_bytes != 0)
      return std::min(range.policy_bytes, cost.bytes);
    bytes += range.policy_bytes != 0 ? std::min(range.policy_bytes, range.bytes) : range.bytes;
  }
  return bytes;
}

// What the estimate says the plan takes beside its pages. Without fold=, also at other lengths.
Result<PlanUse> UseOfPlan(const Plan& plan, const CacheShape& shape, const PlanResources& resources,
                          const PlanCost& cost) {
  PlanUse use;
  use.codebook_bytes = cost.codebook_bytes;
  use.compressor_bytes = cost.compressor_bytes;
  use.fallbacks = cost.fallbacks;
  if (use.compressor_bytes > 0) return use;
  VARVE_ASSIGN_OR_RETURN(PlanCost short_cost, EstimatePlan(plan, shape, resources, 4096));
  VARVE_ASSIGN_OR_RETURN(PlanCost long_cost, EstimatePlan(plan, shape, resources, 32768));
  use.all_in_4k = AllInRatio(short_cost, use.constant_bytes());
  use.all_in_32k = AllInRatio(long_cost, use.constant_bytes());
  return use;
}

// In brackets: pages that the rows before have counted, once they are at rest.
void AddIdleRows(const PlanCost& cost, TextTable* table) {
  for (const RangeCost& range : cost.ranges) {
    if (!range.idle) continue;
    const StageCost& idle = *range.idle;
    const uint64_t bytes = idle.layer_bytes * range.num_layers();
    table->AddRow(
        {LayerSpanText(range), "(idle)", "", idle.k, idle.v, fmt::format("({})", idle.pages),
         fmt::format("({})", idle.tokens), fmt::format("({})", PerToken(bytes, idle.tokens)),
         fmt::format("({})", HumanBytes(static_cast<double>(bytes))),
         fmt::format("({})",
                     HumanBytes(static_cast<double>(idle.layer_payload * range.num_layers())))});
  }
}

// What pages of every age hold, a row each.
void PrintStages(const PlanReportOptions& options, const PlanCost& cost) {
  // The payload has a column where pages do not fill their slots.
  std::vector<std::string> headers = {"layers", "state",   "age",          "K",     "V",
                                      ">pages", ">tokens", ">bytes/token", ">bytes"};
  if (cost.payload != cost.bytes) headers.emplace_back(">payload");
  TextTable table(std::move(headers));
  for (const RangeCost& range : cost.ranges) {
    std::string layers = LayerSpanText(range);
    for (const StageCost& stage : range.stages) {
      const uint64_t bytes = stage.layer_bytes * range.num_layers();
      const bool is_gone = stage.k.empty();
      table.AddRow({std::exchange(layers, ""), stage.state, stage.age, is_gone ? "-" : stage.k,
                    is_gone ? "-" : stage.v, fmt::format("{}", stage.pages),
                    fmt::format("{}", stage.tokens), PerToken(bytes, stage.tokens),
                    HumanBytes(static_cast<double>(bytes)),
                    HumanBytes(static_cast<double>(stage.layer_payload * range.num_layers()))});
    }
  }
  AddIdleRows(cost, &table);
  const auto add_total = [&](const char* name, uint64_t bytes, uint64_t payload) {
    table.AddRow({name, "", "", "", "", "", fmt::format("{}", options.ctx),
                  PerToken(bytes, options.ctx), HumanBytes(static_cast<double>(bytes)),
                  HumanBytes(static_cast<double>(payload))});
  };
  add_total("all", cost.bytes, cost.payload);
  add_total("f16", cost.bytes_f16, cost.bytes_f16);
  table.Print(stdout);
}

void PrintTotals(const PlanCost& cost, const PlanUse& use) {
  const auto ratio = [&cost](uint64_t bytes) {
    return static_cast<double>(cost.bytes_f16) / static_cast<double>(bytes);
  };
  const uint64_t kept = BytesAfterEviction(cost);
  if (kept < cost.bytes) {
    fmt::print("\n{} bytes after evict=, {:.2f} times smaller than f16 ({} bytes); {} without it\n",
               kept, ratio(kept), cost.bytes_f16, cost.bytes);
  } else {
    fmt::print("\n{} bytes held, {:.2f} times smaller than f16 ({} bytes)\n", cost.bytes,
               Ratio(cost), cost.bytes_f16);
  }
  if (cost.idle_bytes < cost.bytes) {
    fmt::print("{} bytes held at rest (idle=), {:.2f} times smaller than f16\n", cost.idle_bytes,
               ratio(cost.idle_bytes));
  }
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
}

void PrintReport(const PlanReportOptions& options, const Plan& plan, const PlanCost& cost,
                 const PlanUse& use) {
  const std::string text = PrintPlan(plan);
  fmt::print("plan   {}\n", text.empty() ? "(nothing said: f16)" : text);
  fmt::print("model  {} layers, {} query heads on {} KV heads, dim {}\n", options.layers,
             options.heads, options.kv_heads, options.dim);
  fmt::print("at     {} tokens, {} to a page; age = tokens after the page's end\n\n", options.ctx,
             cost.page_tokens);
  PrintStages(options, cost);
  PrintTotals(cost, use);
  if (use.compressor_bytes > 0)
    fmt::print("fold: counted as if all {} tokens were the prompt\n", options.ctx);
  for (const FallbackUse& fallback : use.fallbacks)
    fmt::print("fallback: {}\n", FallbackText(fallback));
  for (const std::string& note : cost.notes) fmt::print("note: {}\n", note);
  for (const RangeCost& range : cost.ranges) {
    if (range.policy_bytes == 0) continue;
    fmt::print(
        "layers {}: evict= then brings this down to {} {}, as far as what must stay allows\n",
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
                        {"bytes", stage.layer_bytes * range.num_layers()},
                        {"bytes_payload", stage.layer_payload * range.num_layers()}});
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
                            {"bytes_idle", cost.idle_bytes},
                            {"ranges", std::move(ranges)}}});
  AddPlanUseKeys(use, &rows[0]);
  rows[0]["ratio_all_in"] = AllInRatio(cost, use.constant_bytes());
  return rows;
}

std::string DeviceNames() {
  std::string names;
  for (const ReadDevice& device : NamedDevices()) {
    names += (names.empty() ? "" : " ") + device.name;
  }
  return names;
}

}  // namespace

void AddPlanReportOptions(CLI::App* command, PlanReportOptions* options) {
  command->add_option("PLAN", options->plan, "a plan, or @file.json")->required();
  CLI::Option* model =
      AddModelOption(*command, options->model)
          ->description(
              "GGUF file or name (`varve models`) whose shape, weights and codebook count");
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
  options->devices = {std::string(kThisDevice)};
  command
      ->add_option("--device", options->devices,
                   "devices whose time of reading a token's bytes is told: \"here\" is measured; " +
                       DeviceNames() + "; or all")
      ->capture_default_str()
      ->delimiter(',')
      ->allow_extra_args(false);  // the plan may follow
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
  PlanResources resources;
  uint64_t weight_bytes = 0;  // read per token; 0: no model was named
  if (options.embedded_model || !options.model.empty()) {
    Result<LoadedModel> model = LoadModel(options.model);
    if (!model.ok()) return ReportError(model.status());
    shape = model->model->cache_shape();
    weight_bytes = model->model->weight_bytes_per_token();
    const CacheOptions cache_options = CacheOptionsFor(*model->model);
    resources = {cache_options.codebook, cache_options.compressor, cache_options.model_fingerprint};
    options.layers = shape.num_layers;
    options.kv_heads = shape.num_kv_heads;
    options.heads = shape.num_kv_heads * shape.group_size;
    options.dim = shape.key_dim;
  }
  Result<PlanCost> cost = EstimatePlan(*plan, shape, resources, options.ctx);
  if (!cost.ok()) {
    if (options.json != "-") fmt::print("plan   {}\n", PrintPlan(*plan));
    std::fflush(stdout);
    return ReportError(cost.status());
  }
  Result<PlanUse> use = UseOfPlan(*plan, shape, resources, *cost);
  if (!use.ok()) return ReportError(use.status());
  const Result<std::vector<ReadDevice>> devices = ResolveDevices(options.devices);
  if (!devices.ok()) return ReportError(devices.status());
  const ReadBytes read = {cost->payload, cost->bytes_f16, weight_bytes};
  if (options.json != "-") {
    PrintReport(options, *plan, *cost, *use);
    PrintReadTimes(read, *devices, stdout);
  }
  if (!options.json.empty()) {
    Json rows = ReportJson(options, *plan, *cost, *use);
    rows[0]["read_times"] = ReadTimesJson(read, *devices);
    const Status written = WriteJson(options.json, "plan", rows);
    if (!written.ok()) return ReportError(written);
  }
  return kExitDone;
}

}  // namespace varve::cli
