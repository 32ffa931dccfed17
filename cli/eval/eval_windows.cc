#include "cli/eval/eval_windows.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "cli/interrupt.h"
#include "cli/lossless/lossless_report.h"
#include "cli/plan_use.h"
#include "cli/report/cache_metrics.h"
#include "cli/report/output.h"
#include "cli/report/retention_report.h"
#include "runtime/eval/text_windows.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kWindowsCtx = 2048;

std::string Short(double value) {
  return std::isfinite(value) ? fmt::format("{:.3g}", value) : "-";
}

// Perplexity against f16's in per cent; both figures are small, so exp(x) - 1 is the difference
// and its error alike.
std::string Difference(const PlanQuality& plan) {
  if (!std::isfinite(plan.dlnppl)) return "-";
  return fmt::format("{:+.3f} ±{}", 100 * std::expm1(plan.dlnppl),
                     Number(100 * plan.dlnppl_sem, 3));
}

void PrintHeader(const EvalInputs& inputs, const WindowEvalResult& result) {
  fmt::print(inputs.out, "{}, {}: {} of {} tokens, {} tokens scored, {} products\n",
             inputs.model.name, inputs.text_name, Count(result.windows, "window"), result.ctx,
             result.tokens, inputs.products);
  if (result.prompt_half) {
    fmt::print(inputs.out,
               "the first half of each window is the prompt; the second half is scored, for all "
               "plans\n");
  }
}

void PrintTable(const WindowEvalResult& result, const std::vector<PlanUse>& uses, bool kl_first,
                std::FILE* out) {
  std::vector<std::string> ppl = {">ppl", ">% to f16", ">bits/byte"};
  std::vector<std::string> kl = {">KL mean", ">±", ">KL p99", ">top-1 %"};
  const auto join = [kl_first](const std::string& first, const std::vector<std::string>& ppl_cells,
                               const std::vector<std::string>& kl_cells,
                               const std::vector<std::string>& last) {
    std::vector<std::string> cells = {first};
    const auto& left = kl_first ? kl_cells : ppl_cells;
    const auto& right = kl_first ? ppl_cells : kl_cells;
    cells.insert(cells.end(), left.begin(), left.end());
    cells.insert(cells.end(), right.begin(), right.end());
    cells.insert(cells.end(), last.begin(), last.end());
    return cells;
  };
  std::vector<std::string> memory = {">bytes/token", ">ratio"};
  const bool has_constants = AnyConstants(uses);
  if (has_constants) Extend(memory, PlanUseHeaders());
  TextTable table(join("plan", ppl, kl, memory));
  for (size_t i = 0; i < result.plans.size(); ++i) {
    const PlanQuality& plan = result.plans[i];
    const bool reference = i == 0;
    ppl = {Number(plan.perplexity, 4), reference ? "" : Difference(plan),
           Number(plan.bits_per_byte, 4)};
    kl = {Short(plan.kl_mean), reference ? "" : Short(plan.kl_sem), Short(plan.kl_p99),
          Number(100 * plan.top1, 2)};
    memory = {Number(plan.bytes_per_token, 0), Number(plan.ratio, 2)};
    if (has_constants) Extend(memory, PlanUseCells(uses[i]));
    table.AddRow(join(plan.plan, ppl, kl, memory));
  }
  table.Print(out);
  fmt::print(out,
             "KL(f16 || plan) in nats per token; ± is one standard error, from blocks of up to 64 "
             "tokens: what lies\nwithin two of them is noise. Bytes are all-in (pages as held, "
             "tables) at the end of a window, ratio is f16's over\nthe plan's.\n");
  if (has_constants) PrintAllInNote(out);
}

void PrintByPosition(const WindowEvalResult& result, std::FILE* out) {
  std::vector<std::string> headers = {"KL mean at positions"};
  for (const PositionLoss& part : result.plans[0].kl_by_position)
    headers.push_back(fmt::format(">{}-{}", part.begin, part.end - 1));
  TextTable table(headers);
  for (const PlanQuality& plan : std::span(result.plans).subspan(1)) {
    std::vector<std::string> cells = {plan.plan};
    for (const PositionLoss& part : plan.kl_by_position) cells.push_back(Short(part.kl_mean));
    table.AddRow(cells);
  }
  table.Print(out);
}

}  // namespace

Json WindowRows(const WindowEvalResult& result, std::span<const EvalPlan> plans,
                const CacheShape& shape) {
  Json rows = Json::array();
  const std::vector<PlanUse> uses = UsesOf(result.plans, plans, shape);
  for (size_t i = 0; i < result.plans.size(); ++i) {
    const PlanQuality& plan = result.plans[i];
    rows.push_back({{"plan", plan.plan},
                    {"role", i == 0 ? "reference" : "candidate"},
                    {"ctx", result.ctx},
                    {"windows", result.windows},
                    {"tokens", result.tokens},
                    {"prompt_half", result.prompt_half},
                    {"ppl", plan.perplexity},
                    {"bits_per_byte", plan.bits_per_byte},
                    {"kl_mean", plan.kl_mean},
                    {"kl_sem", plan.kl_sem},
                    {"kl_p99", plan.kl_p99},
                    {"top1", plan.top1},
                    {"dlnppl", plan.dlnppl},
                    {"dlnppl_sem", plan.dlnppl_sem},
                    {"bytes_per_token", plan.bytes_per_token},
                    {"scratch_bytes", plan.scratch_bytes},
                    {"ratio", plan.ratio},
                    {"interrupted", result.stopped}});
    AddPlanUseKeys(uses[i], &rows.back());
    AddCacheMetrics(plan.metrics, &rows.back());
    if (i == 0) continue;
    for (const PositionLoss& part : plan.kl_by_position) {
      rows.back()["kl_by_position"].push_back({{"begin", part.begin},
                                               {"end", part.end},
                                               {"kl_mean", part.kl_mean},
                                               {"kl_sem", part.kl_sem}});
    }
  }
  return rows;
}

Status EvalWindows(const EvalWindowsOptions& options) {
  VARVE_ASSIGN_OR_RETURN(EvalInputs prepared, PrepareEval(options));
  EvalInputs& inputs = prepared;
  const Tokenizer& tokenizer = *inputs.model.tokenizer;
  const int64_t ctx =
      options.ctx > 0 ? options.ctx : std::min(kWindowsCtx, inputs.model.model->context());
  WarnBeyondContext(inputs, ctx);
  EncodeOptions encode;
  encode.add_special = false;
  auto windows = CutWindows(tokenizer.Encode(inputs.text, encode), ctx,
                            tokenizer.adds_bos() ? tokenizer.bos() : -1, options.windows);
  if (!windows.ok()) {
    return Status(windows.status().code(),
                  fmt::format("{}: {}; --ctx sets the length of a window", inputs.text_name,
                              windows.status().message()));
  }

  const std::string command = options.kl_first ? "eval kl" : "eval ppl";
  const InterruptScope scope;
  VARVE_ASSIGN_OR_RETURN(WindowEvalResult result,
                         EvaluateWindows(inputs.model.model, tokenizer, *windows, inputs.plans,
                                         {inputs.precision, options.prompt_half, options.rest},
                                         *inputs.executor, ShowEvalProgress(command, "window")));
  PrintHeader(inputs, result);
  if (options.rest) {
    fmt::print(inputs.out, "between the halves, plans with idle= put the first one to rest\n");
  }
  const CacheShape shape = inputs.model.model->cache_shape();
  PrintTable(result, UsesOf(result.plans, inputs.plans, shape), options.kl_first, inputs.out);
  if (options.by_position) PrintByPosition(result, inputs.out);
  for (size_t i = 1; i < result.plans.size(); ++i) {
    const PlanQuality& plan = result.plans[i];
    PrintRetention(plan.plan, plan.metrics, result.ctx, inputs.out);
    PrintLossless(plan.plan, plan.metrics.lossless, inputs.out);
    PrintFallbacks(plan.plan, plan.use.fallbacks, inputs.out);
  }
  if (result.stopped) {
    fmt::print(inputs.out, "interrupted: the figures are of what all plans had read by then\n");
  }
  if (options.json.empty()) return Status();
  return WriteJson(options.json, command, WindowRows(result, inputs.plans, shape));
}

}  // namespace varve::cli
