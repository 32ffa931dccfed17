#include "cli/eval/eval_recall.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/interrupt.h"
#include "cli/lossless/lossless_report.h"
#include "cli/plan_use.h"
#include "cli/report/cache_metrics.h"
#include "cli/report/output.h"
#include "cli/report/retention_report.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kRecallCtx = 3500;

struct DepthCount {
  int64_t hits = 0;
  int64_t asked = 0;
};

std::vector<DepthCount> CountByDepth(const PlanRecall& plan, size_t num_depths) {
  std::vector<DepthCount> counts(num_depths);
  for (const RecallAnswer& answer : plan.answers) {
    counts[answer.depth_index].asked += 1;
    counts[answer.depth_index].hits += answer.hit ? 1 : 0;
  }
  return counts;
}

void PrintTable(const RecallResult& result, const std::vector<PlanUse>& uses,
                const RecallOptions& options, std::FILE* out) {
  std::vector<std::string> headers = {"plan", ">found"};
  for (const double depth : options.depths) headers.push_back(fmt::format(">at {:.3g}", depth));
  headers.insert(headers.end(), {">bytes/token", ">ratio"});
  const bool has_constants = AnyConstants(uses);
  if (has_constants) Extend(headers, PlanUseHeaders());
  TextTable table(headers);
  for (size_t i = 0; i < result.plans.size(); ++i) {
    const PlanRecall& plan = result.plans[i];
    std::vector<std::string> cells = {plan.plan,
                                      fmt::format("{} of {}", plan.hits, plan.answers.size())};
    for (const DepthCount& count : CountByDepth(plan, options.depths.size())) {
      cells.push_back(fmt::format("{}/{}", count.hits, count.asked));
    }
    cells.push_back(
        std::isfinite(plan.bytes_per_token) ? fmt::format("{:.0f}", plan.bytes_per_token) : "-");
    cells.push_back(std::isfinite(plan.ratio) ? fmt::format("{:.2f}", plan.ratio) : "-");
    if (has_constants) Extend(cells, PlanUseCells(uses[i]));
    table.AddRow(std::move(cells));
  }
  table.Print(out);
  fmt::print(out,
             "\"at\": place of the fact in the text, 0 its beginning. Bytes are all-in (pages as "
             "held, tables) when the\ntext has been read (with a policy: and the last question), "
             "ratio is f16's over the "
             "plan's.\n");
  if (has_constants) PrintAllInNote(out);
}

}  // namespace

Json RecallRows(const RecallResult& result, const RecallOptions& options,
                std::span<const EvalPlan> plans, const CacheShape& shape) {
  Json rows = Json::array();
  const std::vector<PlanUse> uses = UsesOf(result.plans, plans, shape);
  for (size_t i = 0; i < result.plans.size(); ++i) {
    const PlanRecall& plan = result.plans[i];
    Json by_depth = Json::array();
    const std::vector<DepthCount> counts = CountByDepth(plan, options.depths.size());
    for (size_t d = 0; d < counts.size(); ++d) {
      by_depth.push_back(
          {{"depth", options.depths[d]}, {"hits", counts[d].hits}, {"asked", counts[d].asked}});
    }
    Json misses = Json::array();
    for (const RecallAnswer& answer : plan.answers) {
      if (answer.hit) continue;
      misses.push_back({{"prompt", answer.prompt},
                        {"depth", options.depths[answer.depth_index]},
                        {"thing", answer.thing},
                        {"number", answer.number},
                        {"generated", answer.generated}});
    }
    rows.push_back({{"plan", plan.plan},
                    {"role", i == 0 ? "reference" : "candidate"},
                    {"ctx", options.ctx},
                    {"hits", plan.hits},
                    {"asked", plan.answers.size()},
                    {"facts", options.facts},
                    {"prompts", result.prompts},
                    {"by_depth", by_depth},
                    {"bytes_per_token", plan.bytes_per_token},
                    {"scratch_bytes", plan.scratch_bytes},
                    {"ratio", plan.ratio},
                    {"misses", misses},
                    {"interrupted", result.stopped}});
    AddPlanUseKeys(uses[i], &rows.back());
    AddCacheMetrics(plan.metrics, &rows.back());
  }
  return rows;
}

Status EvalRecall(const EvalRecallOptions& options) {
  VARVE_ASSIGN_OR_RETURN(EvalInputs prepared, PrepareEval(options));
  EvalInputs& inputs = prepared;
  const int64_t context = inputs.model.model->context();
  RecallOptions recall = options.recall;
  recall.ctx = options.ctx > 0 ? options.ctx : std::min(kRecallCtx, context - kAnswerRoom);
  if (recall.ctx <= 0) {
    return InvalidArgument(
        fmt::format("{}: its context of {} tokens is too short: {} are for question and answer",
                    inputs.model.name, context, kAnswerRoom));
  }
  recall.facts = std::min(recall.facts, recall.asked);  // what a prompt holds
  WarnBeyondContext(inputs, recall.ctx);
  Result<std::vector<RecallPrompt>> prompts =
      MakeRecallPrompts(*inputs.model.tokenizer, inputs.text, recall);
  if (!prompts.ok()) {
    return Status(prompts.status().code(),
                  fmt::format("{}: {}", inputs.text_name, prompts.status().message()));
  }

  const InterruptScope scope;
  VARVE_ASSIGN_OR_RETURN(RecallResult result,
                         EvaluateRecall(inputs.model.model, *inputs.model.tokenizer, *prompts,
                                        inputs.plans, inputs.precision, *inputs.executor,
                                        ShowEvalProgress("eval recall", "prompt")));
  fmt::print(inputs.out, "{}, {}: {} of up to {} tokens, {} each, {} products\n", inputs.model.name,
             inputs.text_name, Count(result.prompts, "prompt"), recall.ctx,
             Count(recall.facts, "fact"), inputs.products);
  const CacheShape shape = inputs.model.model->cache_shape();
  PrintTable(result, UsesOf(result.plans, inputs.plans, shape), recall, inputs.out);
  for (size_t i = 1; i < result.plans.size(); ++i) {
    const PlanRecall& plan = result.plans[i];
    PrintRetention(plan.plan, plan.metrics, recall.ctx, inputs.out);
    PrintLossless(plan.plan, plan.metrics.lossless, inputs.out);
    PrintFallbacks(plan.plan, plan.use.fallbacks, inputs.out);
  }
  if (result.stopped) {
    fmt::print(inputs.out, "interrupted: the figures are of the prompts that all plans finished\n");
  }
  if (options.json.empty()) return Status();
  return WriteJson(options.json, "eval recall", RecallRows(result, recall, inputs.plans, shape));
}

}  // namespace varve::cli
