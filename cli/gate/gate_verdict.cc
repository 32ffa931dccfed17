#include "cli/gate/gate_verdict.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include <fmt/format.h>

namespace varve::cli {
namespace {

constexpr std::string_view kSpeedFigure = "decode_drop_ratio";
constexpr double kEqualWithin = 1e-9;

bool IsQualityFigure(const std::string& figure) {
  static const std::set<std::string> kNames = {"kl_mean", "kl_sem", "kl_p99", "top1",
                                               "ppl",     "dlnppl", "recall", "recall_loss"};
  return kNames.contains(figure);
}

bool LimitHolds(GateOp op, double value, double limit) {
  switch (op) {
    case GateOp::kMin:
      return value >= limit;
    case GateOp::kMax:
      return value <= limit;
    case GateOp::kAbove:
      return value > limit;
    case GateOp::kEqual:
      return std::abs(value - limit) <= kEqualWithin;
  }
  return false;
}

// The worse of two values for a gate of this kind.
double WorseValue(const GateLimit& gate, double limit, double a, double b) {
  if (gate.op == GateOp::kMax) return std::max(a, b);
  if (gate.op == GateOp::kEqual) return std::abs(a - limit) > std::abs(b - limit) ? a : b;
  return std::min(a, b);
}

// Why the figure is 1, or nothing, on this prompt by rights; empty if it must hold.
std::string IdleReason(const std::string& figure, const PromptFigures& prompt) {
  static const std::set<std::string> kPolicy = {"lossy_ratio", "lossy_ratio_run", "lossy_best",
                                                "cache_ratio", "total_ratio_avg"};
  static const std::set<std::string> kFront = {"lossless_front_ratio", "lossless_selected_value",
                                               "lossless_ratio", "lossless_decompress_us"};
  if (kPolicy.contains(figure)) return prompt.policy_idle;
  if (figure == "lossless_rest_ratio") return prompt.rest_idle;
  return kFront.contains(figure) ? prompt.front_idle : "";
}

// A policy without anything to do must have done nothing.
bool IsReallyIdle(const std::string& figure, const PromptFigures& prompt) {
  const auto value = [&](const char* name, double otherwise) {
    const auto at = prompt.figures.find(name);
    return at == prompt.figures.end() ? otherwise : at->second;
  };
  if (figure == "lossless_rest_ratio") return value("lossless_rest_ratio", 0) == 1;
  if (figure.starts_with("lossless_")) return value("lossless_front_ratio", 0) == 1;
  return value("keep_ratio", 0) == 1 && value("total_evict_tokens", 1) == 0 &&
         value("demoted_pages", 1) == 0;
}

GateResult NewResult(const GateLimit& gate, const std::string& bucket, double limit) {
  GateResult result;
  result.gate = gate.figure;
  result.bucket = bucket;
  result.op = GateOpText(gate.op);
  result.limit = limit;
  return result;
}

void Decide(const GateLimit& gate, GateResult* result, const std::string& where) {
  if (LimitHolds(gate.op, *result->value, result->limit)) return;
  result->status = GateStatus::kFailed;
  result->reason = fmt::format("{} {:.4g} is not {} {:g}{}", gate.figure, *result->value,
                               result->op, result->limit, where);
}

void MarkMissing(GateResult* result) {
  result->status = GateStatus::kFailed;
  result->reason = fmt::format("metric {} is missing", result->gate);
}

GateResult JudgeSpeedGate(const GateLimit& gate, const CaseFigures& figures,
                          const std::string& bucket, double limit) {
  GateResult result = NewResult(gate, bucket, limit);
  const std::optional<SpeedFigures> speed = SpeedOf(figures, bucket);
  if (!speed) {
    MarkMissing(&result);
    return result;
  }
  result.value = speed->drop;
  result.noise = speed->noise;
  switch (JudgeSpeed(*speed, limit)) {
    case SpeedVerdict::kPassed:
      break;
    case SpeedVerdict::kFailed:
      result.status = GateStatus::kFailed;
      result.reason = fmt::format(
          "{:.1f} tokens/s, the baseline {:.1f}: {:.1f} % slower, {:g} % are allowed, noise {:.1f} "
          "%",
          speed->tokens_per_s, speed->baseline_tokens_per_s, 100 * speed->drop, 100 * limit,
          100 * speed->noise);
      break;
    case SpeedVerdict::kUndecided:
      result.status = GateStatus::kUndecided;
      result.reason =
          fmt::format("the drop of {:.1f} % lies within the noise of {:.1f} % around {:g} %",
                      100 * speed->drop, 100 * speed->noise, 100 * limit);
      break;
  }
  return result;
}

GateResult JudgeQualityGate(const GateLimit& gate, const CaseFigures& figures, double limit) {
  GateResult result = NewResult(gate, kAllBuckets, limit);
  if (!figures.quality) {
    result.status = GateStatus::kSkipped;
    result.reason = "quality was not measured";
    return result;
  }
  const auto at = figures.quality->find(gate.figure);
  if (at == figures.quality->end()) {
    MarkMissing(&result);
    return result;
  }
  result.value = at->second;
  Decide(gate, &result, "");
  return result;
}

GateResult JudgeBucketGate(const GateLimit& gate, const CaseFigures& figures,
                           const std::string& bucket, double limit) {
  GateResult result = NewResult(gate, bucket, limit);
  std::string where;
  std::string idle;
  for (const PromptFigures& prompt : figures.prompts) {
    if (prompt.bucket != bucket) continue;
    const auto at = prompt.figures.find(gate.figure);
    if (at == prompt.figures.end()) {
      if (prompt.status.ok()) MarkMissing(&result);
      continue;
    }
    const std::string reason = IdleReason(gate.figure, prompt);
    if (!reason.empty() && IsReallyIdle(gate.figure, prompt)) {
      idle = reason;
      continue;
    }
    const double worse =
        result.value ? WorseValue(gate, limit, *result.value, at->second) : at->second;
    if (!result.value || worse != *result.value) where = fmt::format(" (prompt {})", prompt.prompt);
    result.value = worse;
  }
  if (result.status == GateStatus::kFailed) return result;
  if (result.value) {
    Decide(gate, &result, where);
  } else if (!idle.empty()) {
    result.value = 1;
    result.reason = idle;
  } else {
    result.status = GateStatus::kNotRun;
    result.reason = "not measured";
  }
  return result;
}

void JudgeLimit(const GateLimit& gate, const CaseFigures& figures, const std::string& model,
                std::vector<GateResult>* results) {
  const std::optional<double> limit = gate.For(model);
  const std::vector<std::string> buckets = BucketsOf(figures);
  const bool has_bucket = gate.bucket.empty() || gate.bucket == kAllBuckets ||
                          std::ranges::find(buckets, gate.bucket) != buckets.end();
  if (!limit || !has_bucket) {
    GateResult result = NewResult(gate, gate.bucket.empty() ? kAllBuckets : gate.bucket, 0);
    result.status = GateStatus::kSkipped;
    result.reason = limit ? "no prompt of this bucket" : "the case has no limit for this model";
    results->push_back(result);
    return;
  }
  if (IsQualityFigure(gate.figure)) {
    results->push_back(JudgeQualityGate(gate, figures, *limit));
    return;
  }
  const bool is_speed = gate.figure == kSpeedFigure;
  for (const std::string& bucket : buckets) {
    const bool wanted =
        gate.bucket.empty() || gate.bucket == bucket || (gate.bucket == kAllBuckets && !is_speed);
    if (!wanted) continue;
    results->push_back(is_speed ? JudgeSpeedGate(gate, figures, bucket, *limit)
                                : JudgeBucketGate(gate, figures, bucket, *limit));
  }
  if (is_speed && buckets.size() > 1 && (gate.bucket.empty() || gate.bucket == kAllBuckets)) {
    results->push_back(JudgeSpeedGate(gate, figures, kAllBuckets, *limit));
  }
}

// What must hold whatever a case says: it ran, every metric is there, restored pages are what they
// were.
void JudgePrompt(const GateCase& gate_case, const PromptFigures& prompt,
                 std::vector<GateResult>* results) {
  GateLimit same;
  same.figure = "kv_content_consistency_pass";
  same.op = GateOp::kEqual;
  GateResult result = NewResult(same, prompt.bucket, 1);
  result.value = prompt.status.ok() ? 1 : 0;
  if (!prompt.status.ok()) {
    result.status = GateStatus::kFailed;
    result.reason = fmt::format("prompt {}: {}", prompt.prompt, prompt.status.message());
  }
  results->push_back(result);
  if (prompt.figures.empty()) return;  // it did not end
  std::vector<std::string> names = RequiredMetrics();
  names.insert(names.end(), gate_case.metrics.begin(), gate_case.metrics.end());
  std::erase_if(names, [&](const std::string& name) { return prompt.figures.contains(name); });
  GateLimit present;
  present.figure = "metrics_missing";
  present.op = GateOp::kEqual;
  GateResult missing = NewResult(present, prompt.bucket, 0);
  missing.value = static_cast<double>(names.size());
  if (!names.empty()) {
    missing.status = GateStatus::kFailed;
    missing.reason = fmt::format("missing: {}", fmt::join(names, ", "));
  }
  results->push_back(missing);
}

}  // namespace

const char* GateStatusName(GateStatus status) {
  switch (status) {
    case GateStatus::kPassed:
      return "passed";
    case GateStatus::kFailed:
      return "failed";
    case GateStatus::kUndecided:
      return "undecided";
    case GateStatus::kSkipped:
      return "skipped";
    case GateStatus::kNotRun:
      return "not_run";
  }
  return "unknown";
}

CaseVerdict JudgeCase(const GateCase& gate_case, const CaseFigures& figures,
                      const std::string& model) {
  CaseVerdict verdict;
  for (const PromptFigures& prompt : figures.prompts) {
    JudgePrompt(gate_case, prompt, &verdict.gates);
  }
  for (const GateLimit& gate : gate_case.gates) {
    JudgeLimit(gate, figures, model, &verdict.gates);
  }
  for (const GateStatus worst :
       {GateStatus::kFailed, GateStatus::kNotRun, GateStatus::kUndecided}) {
    for (const GateResult& gate : verdict.gates) {
      if (gate.status != worst) continue;
      verdict.status = worst;
      verdict.reason = gate.bucket == kAllBuckets
                           ? gate.reason
                           : fmt::format("{} tokens: {}", gate.bucket, gate.reason);
      return verdict;
    }
  }
  return verdict;
}

}  // namespace varve::cli
