#include "cli/bench/decode_report.h"

#include <fmt/format.h>

#include "cli/bench/bench_report.h"
#include "cli/bench/stage_report.h"
#include "cli/fold/fold_report.h"
#include "cli/lossless/lossless_report.h"
#include "cli/plan_use.h"
#include "cli/report/output.h"
#include "cli/report/retention_report.h"

namespace varve::cli {
namespace {

RetentionReport ReportOf(const DecodeLane& lane, int64_t tokens) {
  const CacheStats& stats = lane.stats_behind_steps();
  return MakeRetentionReport(lane.plan(), lane.cache().shape(), stats.retention, WholeRatio(stats),
                             tokens);
}

// A step attends to the depth and, on average, to half of the steps of its repetition.
StageRow StagesOf(const DecodeCase& at, const DecodeRow& row) {
  const CacheShape& shape = row.lane->cache().shape();
  StageRow stages;
  stages.plan = row.lane->name();
  stages.times = row.stages;
  stages.calls = static_cast<double>(at.steps) * static_cast<double>(row.us.size());
  stages.wall_us = Median(row.us);
  stages.threads = at.threads;
  stages.token_heads = (static_cast<double>(at.depth) + (at.steps + 1) / 2.0) * shape.num_layers *
                       shape.num_kv_heads;
  stages.filling = row.lane->fill_stages();
  return stages;
}

}  // namespace

void ReportDecode(const DecodeCase& at, const std::vector<DecodeRow>& rows, std::FILE* out,
                  nlohmann::ordered_json& json) {
  fmt::print(out, "\ndepth {}, {} steps x {} repetitions; read bandwidth {:.1f} GB/s in this run\n",
             at.depth, at.steps, rows[0].us.size(), at.read_bandwidth / 1e9);
  TextTable table({"plan", ">tokens/s", ">x f16", ">cache", ">resident", ">weights", ">attention",
                   ">cache work", ">other", ">of read", ">logit error"});
  std::vector<RetentionReport> reports;
  for (const DecodeRow& row : rows) {
    std::vector<double> ratios;
    for (size_t i = 0; i < row.us.size(); ++i) ratios.push_back(rows[0].us[i] / row.us[i]);
    const double speed = 1e6 / Median(row.us);
    const CacheStats stats = row.lane->cache().Stats();
    const uint64_t cache_bytes = stats.bytes_held + stats.bytes_tables;
    const uint64_t resident = at.resident_before + row.lane->resident_growth();
    const uint64_t read_bytes = at.weight_bytes_per_token + stats.bytes_used;
    const double fraction = static_cast<double>(read_bytes) * speed / at.read_bandwidth;
    const ForwardTimes& times = row.times;
    const double all = times.total_us();
    const auto share = [&](double us) { return all > 0 ? us / all : 0.0; };
    const auto percent = [](double part) { return fmt::format("{:.1f} %", 100 * part); };
    table.AddRow({row.noise ? "f16 again (noise)" : row.lane->name(), fmt::format("{:.2f}", speed),
                  fmt::format("{:.2f}", Median(ratios)),
                  HumanBytes(static_cast<double>(cache_bytes)),
                  HumanBytes(static_cast<double>(resident)), percent(share(times.linear_us)),
                  percent(share(times.attention_us)), percent(share(times.cache_us)),
                  percent(share(times.other_us)), fmt::format("{:.0f} %", 100 * fraction),
                  fmt::format("{:.1e}", row.logit_error)});
    json.push_back({{"plan", row.lane->name()},
                    {"role", row.noise             ? "noise"
                             : &row == rows.data() ? "baseline"
                                                   : "candidate"},
                    {"model", at.model},
                    {"depth", at.depth},
                    {"threads", at.threads},
                    {"steps", at.steps},
                    {"reps", row.us.size()},
                    {"tokens_per_s", speed},
                    {"ratio_to_f16", Median(ratios)},
                    {"cache_bytes", cache_bytes},
                    {"resident_bytes", resident},
                    {"weight_bytes_per_token", at.weight_bytes_per_token},
                    {"cache_bytes_read", stats.bytes_used},
                    {"share_weights", share(times.linear_us)},
                    {"share_attention", share(times.attention_us)},
                    {"share_cache", share(times.cache_us)},
                    {"share_other", share(times.other_us)},
                    {"read_bandwidth_gbps", at.read_bandwidth / 1e9},
                    {"bandwidth_fraction", fraction},
                    {"logit_error", row.logit_error}});
    AddRetentionKeys(reports.emplace_back(ReportOf(*row.lane, at.depth + at.steps)), &json.back());
    AddLosslessKeys(row.lane->stats_behind_steps().lossless, &json.back());
    json.back()["fold"] = FoldJson(row.lane->stats_behind_steps().fold);
    AddPlanUseKeys(MakePlanUse(row.lane->plan(), row.lane->cache().shape(), UseOf(stats)),
                   &json.back());
    if (at.breakdown) AddStageKeys(StagesOf(at, row), &json.back());
  }
  table.Print(out);
  if (at.breakdown) {
    std::vector<StageRow> stages;
    for (const DecodeRow& row : rows) {
      if (!row.noise) stages.push_back(StagesOf(at, row));
    }
    PrintStages("step", stages, out);
  }
  for (size_t i = 0; i < rows.size(); ++i) PrintRetention(rows[i].lane->name(), reports[i], out);
  for (const DecodeRow& row : rows)
    PrintLossless(row.lane->name(), row.lane->stats_behind_steps().lossless, out);
  for (const DecodeRow& row : rows)
    PrintFold(row.lane->name(), row.lane->stats_behind_steps().fold, out);
  for (const DecodeRow& row : rows) {
    if (!row.noise) PrintFallbacks(row.lane->name(), row.lane->stats_behind_steps().fallbacks, out);
  }
  std::fflush(out);
}

}  // namespace varve::cli
