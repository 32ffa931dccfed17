#include "cli/bench/bench_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/bench/stage_report.h"
#include "cli/report/output.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

// The numbers of one row, derived from the times and bytes of a candidate.
struct Figures {
  double median_us = 0;
  double min_us = 0;
  double ratio = 0;           // median of the repetitions' own ratios to the baseline
  double bits_per_value = 0;  // all-in
  double gbps = 0;            // payload read
  double fraction = 0;        // of the read bandwidth
};

Figures FiguresOf(const BenchCase& bench, const Candidate& candidate, const Candidate& baseline) {
  std::vector<double> ratios;
  for (size_t i = 0; i < candidate.us.size(); ++i) {
    ratios.push_back(baseline.us[i] / candidate.us[i]);
  }
  const double values = 2.0 * static_cast<double>(bench.shape.ctx) * bench.batch *
                        bench.shape.kv_heads * bench.shape.dim;
  Figures figures;
  figures.median_us = Median(candidate.us);
  figures.min_us = *std::min_element(candidate.us.begin(), candidate.us.end());
  figures.ratio = Median(ratios);
  figures.bits_per_value = 8 * static_cast<double>(candidate.filled->layer_held) / values;
  figures.gbps = static_cast<double>(candidate.filled->layer_bytes) / figures.median_us / 1e3;
  figures.fraction = figures.gbps * 1e9 / bench.bandwidth;
  return figures;
}

StageRow StagesOf(const BenchCase& bench, const Candidate& candidate) {
  return {candidate.plan,
          candidate.stages,
          candidate.calls,
          Median(candidate.us),
          bench.threads,
          static_cast<double>(bench.shape.ctx) * bench.batch * bench.shape.kv_heads,
          candidate.filled->filling};
}

Json CandidateJson(const BenchCase& bench, const Candidate& candidate, const Figures& figures,
                   const char* role) {
  return {{"plan", candidate.plan},
          {"ctx", bench.shape.ctx},
          {"threads", bench.threads},
          {"batch", bench.batch},
          {"median_us", figures.median_us},
          {"min_us", figures.min_us},
          {"ratio_to_f16", figures.ratio},
          {"bytes", candidate.filled->layer_bytes},
          {"bytes_held", candidate.filled->layer_held},
          {"bits_per_value", figures.bits_per_value},
          {"gbps", figures.gbps},
          {"bandwidth_fraction", figures.fraction},
          {"read_bandwidth_gbps", bench.bandwidth / 1e9},
          {"layers", candidate.filled->layers},
          {"working_set_reached", candidate.reaches_working_set},
          {"max_error", candidate.error.max},
          {"rms_error", candidate.error.rms},
          {"kernel_error", candidate.kernel_error.max},
          {"kernel_rms_error", candidate.kernel_error.rms},
          {"role", role}};
}

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 != 0 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

void ReportCase(const BenchCase& bench, const std::vector<Candidate>& candidates, std::FILE* out,
                Json& rows) {
  fmt::print(out, "\ncontext {} x batch {}, {} thread{}; read bandwidth {:.1f} GB/s in this run\n",
             bench.shape.ctx, bench.batch, bench.threads, bench.threads == 1 ? "" : "s",
             bench.bandwidth / 1e9);
  TextTable table({"plan", ">us median", ">us min", ">x f16", ">MiB/layer", ">bits/value", ">GB/s",
                   ">of read", ">max error", ">rms error", ">kernel rms"});
  for (const Candidate& candidate : candidates) {
    const Figures figures = FiguresOf(bench, candidate, candidates[0]);
    const double held = static_cast<double>(candidate.filled->layer_held);
    const char* role = candidate.noise                ? "noise"
                       : &candidate == &candidates[0] ? "baseline"
                                                      : "candidate";
    table.AddRow(
        {candidate.noise ? "f16 again (noise)" : candidate.plan,
         fmt::format("{:.1f}", figures.median_us), fmt::format("{:.1f}", figures.min_us),
         fmt::format("{:.2f}", figures.ratio), fmt::format("{:.2f}", held / (1 << 20)),
         fmt::format("{:.3f}", figures.bits_per_value), fmt::format("{:.1f}", figures.gbps),
         fmt::format("{:.0f} %", 100 * figures.fraction),
         fmt::format("{:.1e}", candidate.error.max), fmt::format("{:.1e}", candidate.error.rms),
         fmt::format("{:.1e}", candidate.kernel_error.rms)});
    rows.push_back(CandidateJson(bench, candidate, figures, role));
    if (bench.breakdown) AddStageKeys(StagesOf(bench, candidate), &rows.back());
  }
  table.Print(out);
  if (bench.breakdown) {
    std::vector<StageRow> stages;
    for (const Candidate& candidate : candidates) {
      if (!candidate.noise) stages.push_back(StagesOf(bench, candidate));
    }
    PrintStages("layer", stages, out);
  }
  for (const Candidate& candidate : candidates) {
    if (candidate.reaches_working_set || candidate.noise) continue;
    const FilledCache& filled = *candidate.filled;
    fmt::print(
        out, "note: {}: the working set is not reached: {} layers, the most of a cache, hold {}\n",
        candidate.plan, filled.layers,
        HumanBytes(static_cast<double>(filled.layer_bytes) * filled.layers));
  }
  std::fflush(out);
}

void ReportSteps(const BenchCase& bench, const std::vector<PlanSteps>& plans, int steps,
                 std::FILE* out, Json& rows) {
  fmt::print(out,
             "\nwhole decode steps from context {}, {} thread{}: what appending and sealing cost\n",
             bench.shape.ctx, bench.threads, bench.threads == 1 ? "" : "s");
  TextTable table({"plan", ">layers", ">us step median", ">us p99", ">us max", ">p99 / median",
                   ">append + seal"});
  for (const auto& [plan, cost] : plans) {
    table.AddRow({plan, fmt::format("{}", cost.layers), fmt::format("{:.0f}", cost.median_us),
                  fmt::format("{:.0f}", cost.p99_us), fmt::format("{:.0f}", cost.max_us),
                  fmt::format("{:.2f}", cost.p99_us / cost.median_us),
                  fmt::format("{:.2f} %", 100 * cost.append_share)});
    rows.push_back({{"plan", plan},
                    {"role", "steps"},
                    {"ctx", bench.shape.ctx},
                    {"threads", bench.threads},
                    {"steps", steps},
                    {"layers", cost.layers},
                    {"step_median_us", cost.median_us},
                    {"step_p99_us", cost.p99_us},
                    {"step_max_us", cost.max_us},
                    {"append_share", cost.append_share}});
  }
  table.Print(out);
  std::fflush(out);
}

}  // namespace varve::cli
