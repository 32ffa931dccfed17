#include "cli/gate/gate_quality.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/eval/eval_inputs.h"
#include "cli/gate/gate_measure.h"
#include "runtime/eval/recall_evaluator.h"
#include "runtime/eval/text_windows.h"
#include "runtime/eval/window_evaluator.h"

namespace varve::cli {
namespace {

// The plans that are evaluated, and which of them each plan is; 0 is f16 itself.
struct DistinctPlans {
  std::vector<EvalPlan> plans;
  std::vector<size_t> row_of;  // [plans given]
};

DistinctPlans FindDistinct(const std::vector<Plan>& plans) {
  DistinctPlans distinct;
  std::map<std::string, size_t> rows = {{PrintPlan(Plan()), 0}, {"f16", 0}};
  for (const Plan& plan : plans) {
    Plan plain = WithoutPacking(plan);
    const std::string name = PrintPlan(plain);
    const auto [at, is_new] = rows.try_emplace(name, distinct.plans.size() + 1);
    if (is_new) distinct.plans.push_back({name, std::move(plain)});
    distinct.row_of.push_back(at->second);
  }
  return distinct;
}

void PutFinite(GateQuality* figures, const char* name, double value) {
  if (std::isfinite(value)) (*figures)[name] = value;
}

GateQuality WindowFigures(const WindowEvalResult& result, size_t row) {
  const PlanQuality& plan = result.plans[row];
  GateQuality figures;
  PutFinite(&figures, "kl_mean", row == 0 ? 0 : plan.kl_mean);
  PutFinite(&figures, "kl_sem", row == 0 ? 0 : plan.kl_sem);
  PutFinite(&figures, "kl_p99", row == 0 ? 0 : plan.kl_p99);
  PutFinite(&figures, "top1", row == 0 ? 1 : plan.top1);
  PutFinite(&figures, "ppl", plan.perplexity);
  PutFinite(&figures, "ppl_f16", result.plans[0].perplexity);
  PutFinite(&figures, "dlnppl", row == 0 ? 0 : plan.dlnppl);
  PutFinite(&figures, "bytes_per_token", plan.bytes_per_token);
  figures["ctx"] = static_cast<double>(result.ctx);
  figures["windows"] = static_cast<double>(result.windows);
  figures["tokens"] = static_cast<double>(result.tokens);
  return figures;
}

void AddRecallFigures(const RecallResult& result, size_t row, GateQuality* figures) {
  const auto hits = static_cast<double>(result.plans[row].hits);
  const auto f16_hits = static_cast<double>(result.plans[0].hits);
  const auto asked = static_cast<double>(result.plans[row].answers.size());
  if (asked == 0) return;
  (*figures)["recall_hits"] = hits;
  (*figures)["recall_asked"] = asked;
  (*figures)["recall_f16_hits"] = f16_hits;
  (*figures)["recall"] = hits / asked;
  (*figures)["recall_loss"] = (f16_hits - hits) / asked;
}

std::function<bool(const EvalProgress&)> PartOf(
    const std::function<bool(double, std::string_view)>& progress, double begin, double end,
    std::string_view note) {
  return [=](const EvalProgress& at) {
    return progress(begin + (end - begin) * static_cast<double>(at.done_tokens) /
                                static_cast<double>(std::max<int64_t>(1, at.total_tokens)),
                    note);
  };
}

}  // namespace

Result<std::vector<GateQuality>> MeasureQuality(
    const LoadedModel& model, std::string_view text, const std::vector<Plan>& plans,
    const GateQualityOptions& options, Executor& executor,
    const std::function<bool(double, std::string_view)>& progress) {
  const Tokenizer& tokenizer = *model.tokenizer;
  const DistinctPlans distinct = FindDistinct(plans);
  const int64_t ctx = std::min(options.ctx, model.model->context());
  EncodeOptions encode;
  encode.add_special = false;
  VARVE_ASSIGN_OR_RETURN(const auto windows,
                         CutWindows(tokenizer.Encode(text, encode), ctx,
                                    tokenizer.adds_bos() ? tokenizer.bos() : -1, options.windows));
  VARVE_ASSIGN_OR_RETURN(const WindowEvalResult kl,
                         EvaluateWindows(model.model, tokenizer, windows, distinct.plans,
                                         {ProductPrecision::kF32, /*prompt_half=*/true}, executor,
                                         PartOf(progress, 0, 0.5, "KL divergence")));
  std::vector<GateQuality> quality;
  for (const size_t row : distinct.row_of) quality.push_back(WindowFigures(kl, row));
  RecallOptions recall_options;
  recall_options.ctx = ctx - kAnswerRoom;
  recall_options.asked = options.asked;
  recall_options.facts = std::min(options.facts, options.asked);
  if (kl.stopped || recall_options.ctx <= 0 || options.asked == 0) return quality;
  VARVE_ASSIGN_OR_RETURN(const auto prompts, MakeRecallPrompts(tokenizer, text, recall_options));
  VARVE_ASSIGN_OR_RETURN(
      const RecallResult recall,
      EvaluateRecall(model.model, tokenizer, prompts, distinct.plans, ProductPrecision::kF32,
                     executor, PartOf(progress, 0.5, 1, "recall")));
  for (size_t i = 0; i < quality.size(); ++i) {
    AddRecallFigures(recall, distinct.row_of[i], &quality[i]);
  }
  return quality;
}

}  // namespace varve::cli
