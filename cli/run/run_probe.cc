#include "cli/run/run_probe.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cli/report/output.h"
#include "runtime/embedded_model.h"
#include "runtime/eval/text_windows.h"
#include "runtime/eval/window_evaluator.h"
#include "runtime/solve/plan_probe.h"

namespace varve::cli {
namespace {

constexpr int64_t kProbeTokens = 384;
constexpr int64_t kProbeTail = 64;

// Measured on every model that we have: docs/results/quality.md.
constexpr std::string_view kSafeRungs[] = {"f32", "f16", "bf16", "q8_0", "q8_0r", "t4"};
// What to use instead, the smallest first.
constexpr const char* kBetterPlans[] = {"balanced", "q8_0"};

bool IsSafe(const std::string& rung) {
  return std::find(std::begin(kSafeRungs), std::end(kSafeRungs), rung) != std::end(kSafeRungs);
}

Result<std::vector<int32_t>> ProbeWindow(const RunSetup& setup) {
  const Tokenizer& tokenizer = *setup.model.tokenizer;
  EncodeOptions encode;
  encode.add_special = false;
  const std::string_view text = EmbeddedEvalText().substr(0, kProbeTokens * 16);
  VARVE_ASSIGN_OR_RETURN(auto windows, CutWindows(tokenizer.Encode(text, encode), kProbeTokens,
                                                  tokenizer.adds_bos() ? tokenizer.bos() : -1, 1));
  return std::move(windows[0]);
}

// Probes plans of one model; the text is read once, and only if a plan is not remembered.
class ModelProbe {
 public:
  ModelProbe(const RunSetup& setup, const ProbeMemory& memory) : setup_(setup), memory_(memory) {}

  Result<double> Loss(const Plan& plan) {
    const uint64_t fingerprint = setup_.model.model->fingerprint();
    if (const std::optional<double> known = memory_.Find(fingerprint, plan)) return *known;
    if (probe_ == nullptr) {
      VARVE_ASSIGN_OR_RETURN(std::vector<int32_t> window, ProbeWindow(setup_));
      VARVE_ASSIGN_OR_RETURN(probe_,
                             PlanProbe::Make(setup_.model.model, {std::move(window)}, kProbeTail,
                                             ProductPrecision::kF32, *setup_.executor));
      VARVE_RETURN_IF_ERROR(probe_->ReadNextWindow());
    }
    VARVE_ASSIGN_OR_RETURN(double loss, probe_->Loss(plan));
    memory_.Remember(fingerprint, plan, loss);
    return loss;
  }

 private:
  const RunSetup& setup_;
  const ProbeMemory& memory_;
  std::unique_ptr<PlanProbe> probe_;
};

}  // namespace

bool NeedsProbe(const Plan& plan) {
  if (NeedsPromptEnd(plan)) return false;
  return std::any_of(plan.rules.begin(), plan.rules.end(), [](const LayerRule& rule) {
    const bool ages = std::any_of(rule.age.begin(), rule.age.end(),
                                  [](const AgeStep& step) { return !IsSafe(step.rung); });
    return ages || (rule.k && !IsSafe(*rule.k)) || (rule.v && !IsSafe(*rule.v));
  });
}

Result<std::string> ProbeWarning(const RunSetup& setup, const std::string& name, const Plan& plan,
                                 const ProbeMemory& memory, double max_kl) {
  if (setup.model.model->context() < kProbeTokens) return std::string();
  ModelProbe probe(setup, memory);
  VARVE_ASSIGN_OR_RETURN(double loss, probe.Loss(plan));
  if (loss <= max_kl) return std::string();
  std::string better = "--kv f16 loses nothing";
  for (const char* text : kBetterPlans) {
    VARVE_ASSIGN_OR_RETURN(Plan other, ParsePlan(text));
    if (other == plan) continue;
    VARVE_ASSIGN_OR_RETURN(double other_loss, probe.Loss(other));
    if (other_loss > max_kl) continue;
    better = fmt::format("--kv {} loses {:.2g}", text, other_loss);
    break;
  }
  return fmt::format(
      "varve: warning: {} loses much on this model: KL {:.2g} nats per token in a short probe, and "
      "from {:g} on\ntext is visibly worse. {}; `varve solve` finds the plan for a size; "
      "--no-probe leaves this out.\n",
      name, loss, max_kl, better);
}

void WarnOfLoss(const RunOptions& options, const RunSetup& setup) {
  if (!options.probe || !NeedsProbe(setup.plans[0])) return;
  const Result<std::string> warning =
      ProbeWarning(setup, options.plans[0], setup.plans[0], ProbeMemory(ProbeMemory::UserPath()));
  WriteNote(warning.ok()
                ? *warning
                : fmt::format("varve: no probe of the plan: {}\n", warning.status().message()));
}

}  // namespace varve::cli
