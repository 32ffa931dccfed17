#include "cli/gate/gate_case_json.h"

#include <algorithm>

#include "cli/lossless/lossless_report.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

const char* UnitOf(const std::string& figure) {
  if (figure.starts_with("kl_")) return "nats";
  if (figure.ends_with("_us")) return "us";
  if (figure.ends_with("_bytes")) return "bytes";
  if (figure == "decode_drop_ratio" || figure == "async_wait_headroom_ratio") return "part";
  if (figure == "recall" || figure == "recall_loss" || figure == "keep_ratio") return "part";
  return figure.find("ratio") != std::string::npos ? "x" : "";
}

Json GatesJson(const CaseVerdict& verdict) {
  Json gates = Json::array();
  for (const GateResult& gate : verdict.gates) {
    gates.push_back({{"gate", gate.gate},
                     {"bucket", gate.bucket},
                     {"value", gate.value ? Json(*gate.value) : Json()},
                     {"op", gate.op},
                     {"limit", gate.limit},
                     {"unit", UnitOf(gate.gate)},
                     {"noise", gate.noise ? Json(*gate.noise) : Json()},
                     {"status", GateStatusName(gate.status)},
                     {"reason", gate.reason}});
  }
  return gates;
}

// Empty, or why a policy or packing had nothing to do.
std::string IdleText(const PromptFigures& prompt) {
  if (!prompt.policy_idle.empty()) return prompt.policy_idle;
  return prompt.front_idle;
}

Json BucketJson(const CaseFigures& figures, const std::string& bucket, int rounds) {
  Json row = {{"bucket", bucket}, {"prompts", 0}};
  int prompts = 0;
  Json consistency;
  for (const PromptFigures& prompt : figures.prompts) {
    if (prompt.bucket != bucket) continue;
    row["prompts"] = ++prompts;
    row["depth"] = prompt.prompt_tokens;
    row["end_tokens"] = prompt.end_tokens;
    row["idle"] = IdleText(prompt);
    const bool is_same = prompt.status.ok();
    consistency = consistency.is_null() ? is_same : consistency.get<bool>() && is_same;
  }
  const std::optional<SpeedFigures> speed = SpeedOf(figures, bucket);
  row["tokens_per_s"] = speed ? Json(speed->tokens_per_s) : Json();
  row["baseline_tokens_per_s"] = speed ? Json(speed->baseline_tokens_per_s) : Json();
  row["speed_ratio"] = speed ? Json(speed->ratio) : Json();
  row["drop"] = speed ? Json(speed->drop) : Json();
  row["noise"] = speed ? Json(speed->noise) : Json();
  row["rounds"] = rounds;
  for (const char* name :
       {"cache_bytes", "baseline_bytes", "cache_ratio", "total_ratio_avg", "lossy_ratio",
        "keep_ratio", "lossless_ratio", "lossless_front_ratio", "lossless_rest_ratio"}) {
    row[name] = MeanFigure(figures, bucket, name);
  }
  row["consistency"] = consistency;
  return row;
}

Json QualityJson(const CaseFigures& figures) {
  if (!figures.quality) return Json();
  Json quality;
  for (const char* name : {"ctx", "windows", "tokens", "kl_mean", "kl_sem", "kl_p99", "top1", "ppl",
                           "ppl_f16", "dlnppl", "bytes_per_token", "recall", "recall_loss",
                           "recall_hits", "recall_asked", "recall_f16_hits"}) {
    const auto at = figures.quality->find(name);
    quality[name] = at == figures.quality->end() ? Json() : Json(at->second);
  }
  return quality;
}

void AddPictures(const PromptFigures& prompt, Json* row) {
  for (const auto& [name, value] : prompt.figures) (*row)["metrics"][name] = value;
  const Json place = {{"bucket", prompt.bucket}, {"prompt_tokens", prompt.prompt_tokens}};
  (*row)["memory"] = prompt.memory;
  (*row)["memory"].update(place);
  (*row)["spans"] = prompt.spans;
  (*row)["spans"].update(place);
  (*row)["lossless"] = LosslessRows(prompt.layers);
}

}  // namespace

const PromptFigures* LongestPrompt(const CaseFigures& figures) {
  const PromptFigures* longest = nullptr;
  for (const PromptFigures& prompt : figures.prompts) {
    if (prompt.figures.empty() || prompt.spans.is_null()) continue;
    if (longest == nullptr || prompt.end_tokens > longest->end_tokens) longest = &prompt;
  }
  return longest;
}

Json MeanFigure(const CaseFigures& figures, const std::string& bucket, const std::string& name) {
  double sum = 0;
  int count = 0;
  for (const PromptFigures& prompt : figures.prompts) {
    const auto at = prompt.figures.find(name);
    if (prompt.bucket != bucket || at == prompt.figures.end()) continue;
    sum += at->second;
    ++count;
  }
  return count == 0 ? Json() : Json(sum / count);
}

Json CaseJson(const CaseOutcome& outcome) {
  Json row = {{"name", outcome.gate_case.name},
              {"purpose", outcome.gate_case.purpose},
              {"plan", outcome.gate_case.plan_text},
              {"plan_canonical", PrintPlan(outcome.gate_case.plan)},
              {"status", GateStatusName(outcome.verdict.status)},
              {"reason", outcome.verdict.reason},
              {"gates", GatesJson(outcome.verdict)},
              {"buckets", Json::array()},
              {"quality", QualityJson(outcome.figures)},
              {"metrics", Json::object()},
              {"memory", nullptr},
              {"spans", nullptr},
              {"lossless", Json::array()}};
  for (const std::string& bucket : BucketsOf(outcome.figures)) {
    row["buckets"].push_back(BucketJson(outcome.figures, bucket, outcome.rounds));
  }
  if (const PromptFigures* prompt = LongestPrompt(outcome.figures)) AddPictures(*prompt, &row);
  return row;
}

}  // namespace varve::cli
