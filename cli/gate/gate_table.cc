#include "cli/gate/gate_table.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/gate/gate_case_json.h"
#include "cli/report/output.h"

namespace varve::cli {
namespace {

// Words say it, too: not everybody sees the colour.
struct StatusLook {
  const char* word;
  const char* style;
};
StatusLook LookOf(GateStatus status) {
  switch (status) {
    case GateStatus::kPassed:
      return {"passed", "32"};
    case GateStatus::kFailed:
      return {"FAILED", "1;31"};
    case GateStatus::kUndecided:
      return {"undecided", "33"};
    case GateStatus::kSkipped:
      return {"skipped", "2"};
    case GateStatus::kNotRun:
      return {"not run", "2"};
  }
  return {"", ""};
}

std::string FigureCell(const nlohmann::ordered_json& value, const char* format) {
  return value.is_number() ? fmt::format(fmt::runtime(format), value.get<double>()) : "";
}

std::string QualityCell(const CaseFigures& figures, const char* name, const char* format) {
  if (!figures.quality) return "";
  const auto at = figures.quality->find(name);
  return at == figures.quality->end() ? "" : fmt::format(fmt::runtime(format), at->second);
}

// "+3.1 ±0.8": per cent of the baseline's speed.
std::string SpeedCell(const CaseFigures& figures, const std::string& bucket) {
  const std::optional<SpeedFigures> speed = SpeedOf(figures, bucket);
  if (!speed) return "";
  return fmt::format("{:+.1f} ±{:.1f}", -100 * speed->drop, 100 * speed->noise);
}

std::vector<std::string> AllBucketsOf(const RunOutcome& run) {
  std::vector<std::string> buckets;
  for (const CaseOutcome& outcome : run.cases) {
    for (const std::string& bucket : BucketsOf(outcome.figures)) {
      if (std::ranges::find(buckets, bucket) == buckets.end()) buckets.push_back(bucket);
    }
  }
  return buckets;
}

}  // namespace

void PrintGateTable(const RunOutcome& run, std::FILE* out) {
  const std::vector<std::string> buckets = AllBucketsOf(run);
  std::vector<std::string> headers = {"case",   "verdict",       ">ratio",
                                      ">lossy", ">lossless 0-1", ">lossless 2-"};
  for (const std::string& bucket : buckets) headers.push_back(fmt::format(">speed % {}", bucket));
  headers.insert(headers.end(), {">KL", ">recall"});
  TextTable table(headers);
  for (const CaseOutcome& outcome : run.cases) {
    const CaseFigures& figures = outcome.figures;
    const PromptFigures* prompt = LongestPrompt(figures);
    const std::string longest = prompt == nullptr ? "" : prompt->bucket;
    const StatusLook look = LookOf(outcome.verdict.status);
    std::vector<std::string> cells = {outcome.gate_case.name, look.word};
    for (const char* name :
         {"cache_ratio", "lossy_ratio", "lossless_front_ratio", "lossless_rest_ratio"}) {
      cells.push_back(FigureCell(MeanFigure(figures, longest, name), "{:.2f}"));
    }
    for (const std::string& bucket : buckets) cells.push_back(SpeedCell(figures, bucket));
    cells.push_back(QualityCell(figures, "kl_mean", "{:.2g}"));
    cells.push_back(QualityCell(figures, "recall", "{:.2f}"));
    table.AddRow(std::move(cells), look.style);
  }
  table.Print(out);
  fmt::print(
      out,
      "ratio: bytes of f16 over those of the plan, whole cache, longest prompt; lossy: layers "
      "with a policy;\nlossless: layers 0-1 and the rest; speed: decode against f16 in turn, ± "
      "noise, by tokens of the prompt.\n");
}

void PrintGateReasons(const RunOutcome& run, std::FILE* out) {
  const bool colour = UseColour(out);
  for (const CaseOutcome& outcome : run.cases) {
    const bool is_listed = outcome.verdict.status == GateStatus::kSkipped;
    if (is_listed) {
      fmt::print(out, "skipped {}: {}\n", outcome.gate_case.name, outcome.verdict.reason);
    }
    for (const GateResult& gate : outcome.verdict.gates) {
      if (gate.status != GateStatus::kFailed && gate.status != GateStatus::kUndecided) continue;
      const StatusLook look = LookOf(gate.status);
      fmt::print(out, "{}{}{} {}, {}: {}\n", colour ? fmt::format("\x1b[{}m", look.style) : "",
                 look.word, colour ? "\x1b[0m" : "", outcome.gate_case.name,
                 gate.bucket == kAllBuckets ? "over all" : gate.bucket + " tokens", gate.reason);
    }
  }
}

}  // namespace varve::cli
