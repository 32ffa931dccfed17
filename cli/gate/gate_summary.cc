#include "cli/gate/gate_summary.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "cli/bench/bench_report.h"
#include "cli/gate/gate_case_json.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

Json PromptsJson(const std::vector<GatePrompt>& prompts) {
  Json rows = Json::array();
  for (const GatePrompt& prompt : prompts) {
    rows.push_back({{"name", prompt.name},
                    {"bucket", prompt.bucket},
                    {"tokens", prompt.prompt_tokens()},
                    {"end_tokens", prompt.end_tokens()},
                    {"turns", prompt.turns.size()},
                    {"bytes", prompt.bytes},
                    {"hash", fmt::format("{:016x}", prompt.hash)},
                    {"source", prompt.source}});
  }
  return rows;
}

// The figure of a case's quality, or null.
Json QualityFigure(const CaseFigures& figures, const char* name) {
  if (!figures.quality) return Json();
  const auto at = figures.quality->find(name);
  return at == figures.quality->end() ? Json() : Json(at->second);
}

// Bytes are those of the longest prompt, as the caches held them there.
Json FrontierJson(const RunOutcome& run) {
  Json rows = Json::array();
  for (const CaseOutcome& outcome : run.cases) {
    const PromptFigures* prompt = LongestPrompt(outcome.figures);
    if (prompt == nullptr || !outcome.figures.quality) continue;
    const auto tokens = static_cast<double>(prompt->end_tokens);
    if (rows.empty()) {
      rows.push_back({{"case", kBaselineName},
                      {"plan", "f16"},
                      {"bytes_per_token", prompt->figures.at("baseline_bytes") / tokens},
                      {"ratio", 1.0},
                      {"kl_mean", 0.0},
                      {"kl_sem", 0.0},
                      {"top1", 1.0},
                      {"recall_hits", QualityFigure(outcome.figures, "recall_f16_hits")},
                      {"recall_asked", QualityFigure(outcome.figures, "recall_asked")}});
    }
    rows.push_back({{"case", outcome.gate_case.name},
                    {"plan", outcome.gate_case.plan_text},
                    {"bytes_per_token", prompt->figures.at("cache_bytes") / tokens},
                    {"ratio", prompt->figures.at("cache_ratio")}});
    for (const char* name : {"kl_mean", "kl_sem", "top1", "recall_hits", "recall_asked"}) {
      rows.back()[name] = QualityFigure(outcome.figures, name);
    }
  }
  return rows;
}

Json GateSpeedRow(const std::string& name, const std::string& plan, const std::string& bucket,
                  int64_t depth, double tokens_per_s, double ratio, double noise) {
  return {{"case", name},
          {"plan", plan},
          {"bucket", bucket},
          {"depth", depth},
          {"tokens_per_s", tokens_per_s},
          {"speed_ratio", ratio},
          {"noise", noise}};
}

Json SpeedJson(const RunOutcome& run) {
  std::map<std::pair<int64_t, std::string>, std::vector<double>> baseline;  // us, by depth, bucket
  Json cases = Json::array();
  for (const CaseOutcome& outcome : run.cases) {
    for (const std::string& bucket : BucketsOf(outcome.figures)) {
      const std::optional<SpeedFigures> speed = SpeedOf(outcome.figures, bucket);
      if (!speed) continue;
      const auto prompt =
          std::ranges::find(outcome.figures.prompts, bucket, &PromptFigures::bucket);
      cases.push_back(GateSpeedRow(outcome.gate_case.name, outcome.gate_case.plan_text, bucket,
                                   prompt->prompt_tokens, speed->tokens_per_s, speed->ratio,
                                   speed->noise));
      for (const SpeedBlock& block : BlocksOf(outcome.figures, bucket)) {
        std::vector<double>& us = baseline[{prompt->prompt_tokens, bucket}];
        us.push_back(block.baseline_us);
        us.push_back(block.again_us);
      }
    }
  }
  Json rows = Json::array();
  for (const auto& [at, us] : baseline) {
    const double tokens_per_s = 1e6 * kGateBlockTokens / Median(us);
    rows.push_back(GateSpeedRow(kBaselineName, "f16", at.second, at.first, tokens_per_s, 1, 0));
  }
  for (Json& row : cases) rows.push_back(std::move(row));
  return rows;
}

Json SpreadJson(const std::vector<RunOutcome>& runs) {
  std::map<std::tuple<size_t, std::string, std::string>, std::vector<double>> values;
  for (const RunOutcome& run : runs) {
    for (size_t i = 0; i < run.cases.size(); ++i) {
      const CaseFigures& figures = run.cases[i].figures;
      for (const std::string& bucket : BucketsOf(figures)) {
        if (const auto speed = SpeedOf(figures, bucket)) {
          values[{i, bucket, "speed_ratio"}].push_back(speed->ratio);
        }
        for (const char* name : {"cache_ratio", "lossy_ratio", "lossless_front_ratio"}) {
          const Json mean = MeanFigure(figures, bucket, name);
          if (mean.is_number()) values[{i, bucket, name}].push_back(mean.get<double>());
        }
      }
    }
  }
  Json rows = Json::array();
  if (runs.size() < 2) return rows;
  for (const auto& [key, list] : values) {
    const auto [low, high] = std::ranges::minmax(list);
    rows.push_back({{"case", runs[0].cases[std::get<0>(key)].gate_case.name},
                    {"bucket", std::get<1>(key)},
                    {"figure", std::get<2>(key)},
                    {"runs", list.size()},
                    {"min", low},
                    {"median", Median(list)},
                    {"max", high}});
  }
  return rows;
}

Json RunsJson(const std::vector<RunOutcome>& runs) {
  Json rows = Json::array();
  for (const RunOutcome& run : runs) {
    Json failed = Json::array();
    for (const CaseOutcome& outcome : run.cases) {
      if (outcome.verdict.status != GateStatus::kFailed) continue;
      failed.push_back(fmt::format("{}: {}", outcome.gate_case.name, outcome.verdict.reason));
    }
    rows.push_back({{"run", rows.size() + 1},
                    {"overall_pass", run.passed()},
                    {"seconds", run.seconds},
                    {"failed", failed}});
  }
  return rows;
}

}  // namespace

bool RunOutcome::failed() const {
  return std::ranges::any_of(
      cases, [](const CaseOutcome& c) { return c.verdict.status == GateStatus::kFailed; });
}

bool RunOutcome::passed() const {
  const bool any = std::ranges::any_of(cases, [](const CaseOutcome& c) {
    return c.verdict.status == GateStatus::kPassed || c.verdict.status == GateStatus::kUndecided;
  });
  const bool left = std::ranges::any_of(
      cases, [](const CaseOutcome& c) { return c.verdict.status == GateStatus::kNotRun; });
  return any && !left && !failed() && !interrupted;
}

Json MakeGateSummary(const GateReport& report) {
  const RunOutcome& last = report.runs.back();
  Json summary = {{"kind", "gate"}, {"schema", 1}};
  summary["overall_pass"] = std::ranges::all_of(report.runs, &RunOutcome::passed);
  summary["interrupted"] = last.interrupted;
  summary.update(report.head);
  summary["prompts"] = PromptsJson(report.prompts);
  summary["counts"] = {
      {"passed", 0}, {"failed", 0}, {"undecided", 0}, {"skipped", 0}, {"not_run", 0}};
  summary["cases"] = Json::array();
  for (const CaseOutcome& outcome : last.cases) {
    Json& count = summary["counts"][GateStatusName(outcome.verdict.status)];
    count = count.get<int>() + 1;
    summary["cases"].push_back(CaseJson(outcome));
  }
  summary["frontier"] = FrontierJson(last);
  summary["speed"] = SpeedJson(last);
  summary["runs"] = RunsJson(report.runs);
  summary["spread"] = SpreadJson(report.runs);
  return summary;
}

}  // namespace varve::cli
