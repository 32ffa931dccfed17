#include "cli/eval/eval_policies.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/align.h"
#include "cli/eval/eval_recall.h"
#include "cli/eval/eval_windows.h"
#include "cli/interrupt.h"
#include "cli/report/output.h"
#include "cli/report/retention_report.h"
#include "runtime/eval/text_windows.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kPoliciesCtx = 4096;

// One row of the table: the same plan in both evaluations.
struct PolicyRow {
  std::string policy;  // empty: f16, or a plan of --kv
  double ratio = 0;    // that was asked for; 0 likewise
  size_t index = 0;    // in the results
};

struct PolicyResults {
  std::vector<PolicyRow> rows;  // f16 first
  WindowEvalResult windows;
  RecallResult recall;  // without plans if nothing was asked
};

// The policies at all ratios, then the plans of --kv.
Result<std::vector<PolicyRow>> AddPolicies(const EvalPoliciesOptions& options,
                                           std::vector<EvalPlan>* plans) {
  std::vector<PolicyRow> rows = {{"", 0, 0}};
  std::vector<EvalPlan> all;
  for (const double ratio : options.ratios) {
    for (const std::string& policy : options.policies) {
      const std::string text = PolicyPlanText(options, policy, fmt::format("{}", ratio));
      Result<Plan> plan = ParsePlan(text);
      if (!plan.ok()) {
        return Status(plan.status().code(), fmt::format("policy \"{}\", ratio {:.3g}: {}", policy,
                                                        ratio, plan.status().message()));
      }
      all.push_back({text, std::move(*plan)});
      rows.push_back({policy, ratio, all.size()});
    }
  }
  for (EvalPlan& plan : *plans) {
    all.push_back(std::move(plan));
    rows.push_back({"", 0, all.size()});
  }
  *plans = std::move(all);
  return rows;
}

// By ratio, then by KL; f16 and the plans of --kv come first.
void SortRows(PolicyResults& results) {
  std::stable_sort(
      results.rows.begin() + 1, results.rows.end(), [&](const PolicyRow& a, const PolicyRow& b) {
        if (a.ratio != b.ratio) return a.ratio < b.ratio;
        return results.windows.plans[a.index].kl_mean < results.windows.plans[b.index].kl_mean;
      });
}

void PrintTable(const PolicyResults& results, std::FILE* out) {
  TextTable table({">asked", "policy", ">KL mean", ">±", ">top-1 %", ">ppl", ">% to f16", ">found",
                   ">kept %", ">ratio", ">whole cache"});
  for (const PolicyRow& row : results.rows) {
    const PlanQuality& quality = results.windows.plans[row.index];
    const bool is_f16 = row.index == 0;
    const bool has_policy = quality.metrics.retention.layers > 0;
    std::string found = "-";
    if (row.index < results.recall.plans.size()) {
      const PlanRecall& recall = results.recall.plans[row.index];
      found = fmt::format("{} of {}", recall.hits, recall.answers.size());
    }
    table.AddRow({row.ratio > 0 ? fmt::format("{:.3g}x", row.ratio) : "",
                  row.policy.empty() ? quality.plan : row.policy,
                  is_f16 ? "-" : fmt::format("{:.3g}", quality.kl_mean),
                  is_f16 ? "" : fmt::format("{:.2g}", quality.kl_sem),
                  Number(100 * quality.top1, 1), Number(quality.perplexity, 3),
                  is_f16 ? "" : fmt::format("{:+.2f}", 100 * std::expm1(quality.dlnppl)), found,
                  has_policy ? Number(100 * quality.metrics.retention.keep_ratio, 1) : "",
                  has_policy ? Number(quality.metrics.retention.lossy_ratio, 2) : "",
                  Number(quality.metrics.total_ratio, 2)});
  }
  table.Print(out);
  fmt::print(
      out,
      "\"asked\" is ratio= of the plan: f16 bytes of all tokens seen over bytes held; "
      "\"ratio\" is what was reached in\nthe policy's layers at the end of a window, pages as "
      "held and the plan itself, \"whole cache\" that of all layers with\ntables and the "
      "pool's reserve. KL(f16 || plan) in nats per token, ± one standard error. Facts are "
      "asked for after the\nprompt has ended: no policy sees the question before it "
      "decides.\n");
}

Json Rows(const PolicyResults& results, const EvalInputs& inputs, const RecallOptions& recall) {
  const CacheShape shape = inputs.model.model->cache_shape();
  const Json windows = WindowRows(results.windows, inputs.plans, shape);
  const Json recalls = RecallRows(results.recall, recall, inputs.plans, shape);
  Json rows = Json::array();
  for (const PolicyRow& row : results.rows) {
    Json json = windows[row.index];
    json["policy"] = row.policy.empty() ? Json(nullptr) : Json(row.policy);
    json["target_ratio"] = row.ratio > 0 ? Json(row.ratio) : Json(nullptr);
    if (row.index < recalls.size()) {
      const Json& found = recalls[row.index];
      for (const char* key : {"hits", "asked", "facts", "prompts", "by_depth", "misses"}) {
        json[key] = found[key];
      }
      json["recall_ctx"] = found["ctx"];
      json["recall_bytes_per_token"] = found["bytes_per_token"];
      json["recall_lossy_ratio"] = found["lossy_ratio"];
    }
    rows.push_back(std::move(json));
  }
  return rows;
}

Status CheckOptions(const EvalPoliciesOptions& options) {
  if (options.policies.empty()) return InvalidArgument("--policies: none is named");
  if (options.ratios.empty()) return InvalidArgument("--ratios: none is named");
  if (options.page < 1) return InvalidArgument(fmt::format("--page {} < 1", options.page));
  return Status();
}

// What the plans read.
struct PolicyTexts {
  int64_t ctx = 0;
  std::vector<std::vector<int32_t>> windows;
  RecallOptions recall;
  std::vector<RecallPrompt> prompts;  // none if nothing is asked
};

Result<PolicyTexts> CutTexts(const EvalPoliciesOptions& options, const EvalInputs& inputs) {
  const Tokenizer& tokenizer = *inputs.model.tokenizer;
  const int64_t context = inputs.model.model->context();
  const auto in_text = [&](const Status& status) {
    return Status(status.code(), fmt::format("{}: {}", inputs.text_name, status.message()));
  };
  PolicyTexts texts;
  texts.ctx = options.ctx > 0 ? options.ctx : std::min(kPoliciesCtx, context);
  WarnBeyondContext(inputs, texts.ctx);
  EncodeOptions encode;
  encode.add_special = false;
  auto windows = CutWindows(tokenizer.Encode(inputs.text, encode), texts.ctx,
                            tokenizer.adds_bos() ? tokenizer.bos() : -1, options.windows);
  if (!windows.ok()) return in_text(windows.status());
  texts.windows = std::move(*windows);
  texts.recall = options.recall;
  texts.recall.ctx = std::min(texts.ctx, context - kAnswerRoom);
  if (texts.recall.asked > 0) {
    auto prompts = MakeRecallPrompts(tokenizer, inputs.text, texts.recall);
    if (!prompts.ok()) return in_text(prompts.status());
    texts.prompts = std::move(*prompts);
  }
  return texts;
}

void PrintReport(const EvalPoliciesOptions& options, const EvalInputs& inputs,
                 const PolicyTexts& texts, const PolicyResults& results) {
  fmt::print(inputs.out, "{}, {}: {} of {} tokens, the second half scored ({} tokens)",
             inputs.model.name, inputs.text_name, Count(results.windows.windows, "window"),
             texts.ctx, results.windows.tokens);
  if (results.recall.prompts > 0) {
    fmt::print(inputs.out, "; recall from {} of up to {} tokens",
               Count(results.recall.prompts, "prompt"), texts.recall.ctx);
  }
  fmt::print(inputs.out, "\nplans: {}\n", PolicyPlanText(options, "POLICY", "R"));
  PrintTable(results, inputs.out);
  for (const PolicyRow& row : results.rows) {
    if (row.index == 0) continue;
    const PlanQuality& plan = results.windows.plans[row.index];
    const std::string note = FloorNote(plan.metrics.retention, texts.ctx);
    if (!note.empty()) fmt::print(inputs.out, "{} {:.3g}x: {}\n", row.policy, row.ratio, note);
  }
  if (results.windows.stopped || results.recall.stopped) {
    fmt::print(inputs.out, "interrupted: the figures are of what all plans had read by then\n");
  }
}

}  // namespace

int64_t PolicyTrigger(const EvalPoliciesOptions& options) {
  if (options.trigger > 0) return options.trigger;
  // Whole pages: of sink; of recent, which begins anywhere in one; one that is begun meanwhile; and
  // one that the policy may choose.
  const auto pages = [&](int64_t tokens) { return CeilDiv<int64_t>(tokens, options.page); };
  const int64_t floor = (pages(options.sink) + pages(options.recent) + 3) * options.page;
  const double most = *std::max_element(options.ratios.begin(), options.ratios.end());
  return static_cast<int64_t>(std::ceil(most * static_cast<double>(floor)));
}

std::string PolicyPlanText(const EvalPoliciesOptions& options, const std::string& policy,
                           const std::string& ratio) {
  std::string text = options.layers == "0-" ? "" : options.layers + ": ";
  if (!options.rung.empty()) text += options.rung + ",";
  return text + fmt::format("evict={},ratio={},page={},sink={},recent={},trigger={}", policy, ratio,
                            options.page, options.sink, options.recent, PolicyTrigger(options));
}

Status EvalPolicies(const EvalPoliciesOptions& options) {
  VARVE_RETURN_IF_ERROR(CheckOptions(options));
  // Policies are read before the model is.
  std::vector<EvalPlan> trial;
  VARVE_RETURN_IF_ERROR(AddPolicies(options, &trial).status());
  VARVE_ASSIGN_OR_RETURN(EvalInputs inputs, PrepareEval(options));
  PolicyResults results;
  VARVE_ASSIGN_OR_RETURN(results.rows, AddPolicies(options, &inputs.plans));
  VARVE_ASSIGN_OR_RETURN(const PolicyTexts texts, CutTexts(options, inputs));

  const InterruptScope scope;
  const Tokenizer& tokenizer = *inputs.model.tokenizer;
  VARVE_ASSIGN_OR_RETURN(results.windows,
                         EvaluateWindows(inputs.model.model, tokenizer, texts.windows, inputs.plans,
                                         {inputs.precision, true}, *inputs.executor,
                                         ShowEvalProgress("policies, KL", "window")));
  if (!texts.prompts.empty() && !InterruptScope::interrupted()) {
    VARVE_ASSIGN_OR_RETURN(
        results.recall,
        EvaluateRecall(inputs.model.model, tokenizer, texts.prompts, inputs.plans, inputs.precision,
                       *inputs.executor, ShowEvalProgress("policies, recall", "prompt")));
  }
  SortRows(results);
  PrintReport(options, inputs, texts, results);
  if (options.json.empty()) return Status();
  return WriteJson(options.json, "eval policies", Rows(results, inputs, texts.recall));
}

}  // namespace varve::cli
