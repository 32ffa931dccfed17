#include "cli/bench/decode_report.h"

#include <fmt/format.h>

#include "cli/bench/bench_report.h"
#include "cli/bench/stage_report.h"
#include "cli/fold/fold_report.h"
#include "cli/lossless/lossless_report.h"
#include "cli/plan_use.h"
#include "cli/report/cache_metrics.h"
#include "cli/report/output.h"
#include "cli/report/retention_report.h"
#include "runtime/eval/score_summary.h"

namespace varve::cli {
namespace {

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
                       shape.num_kv_heads * at.batch;
  stages.filling = row.lane->fill_stages();
  return stages;
}

// What the table and the JSON of a row both show.
struct DecodeFigures {
  double tokens_per_s = 0;  // of all sequences together
  double ratio_to_f16 = 0;
  double p50_us = 0;  // of single steps
  double p99_us = 0;
  uint64_t cache_bytes = 0;
  uint64_t cache_bytes_read = 0;
  uint64_t resident_bytes = 0;
  double bandwidth_fraction = 0;
  // Parts of a step's time.
  double weights = 0;
  double attention = 0;
  double cache_work = 0;
  double other = 0;
};

DecodeFigures FiguresOf(const DecodeCase& at, const DecodeRow& baseline, const DecodeRow& row) {
  std::vector<double> ratios;
  for (size_t i = 0; i < row.us.size(); ++i) ratios.push_back(baseline.us[i] / row.us[i]);
  const CacheReport stats = row.lane->cache().Report();
  DecodeFigures figures;
  const double steps_per_s = 1e6 / Median(row.us);
  figures.tokens_per_s = steps_per_s * at.batch;
  figures.ratio_to_f16 = Median(ratios);
  figures.p50_us = Quantile(row.step_us, 0.5);
  figures.p99_us = Quantile(row.step_us, 0.99);
  figures.cache_bytes = stats.bytes_held + stats.bytes_tables;
  figures.cache_bytes_read = stats.bytes_used;
  figures.resident_bytes = at.resident_before + row.lane->resident_growth();
  const uint64_t read_bytes = at.weight_bytes_per_token + stats.bytes_used;
  if (at.read_bandwidth > 0) {
    figures.bandwidth_fraction = static_cast<double>(read_bytes) * steps_per_s / at.read_bandwidth;
  }
  const double all = row.times.total_us();
  if (all > 0) {
    figures.weights = row.times.linear_us / all;
    figures.attention = row.times.attention_us / all;
    figures.cache_work = row.times.cache_us / all;
    figures.other = row.times.other_us / all;
  }
  return figures;
}

// A batch has a column more: tokens per second of each sequence.
std::vector<std::string> HeadersOf(const DecodeCase& at) {
  std::vector<std::string> headers = {"plan", ">tokens/s"};
  if (at.batch > 1) headers.emplace_back(">of each");
  Extend(headers, {">x f16", ">p99", ">cache", ">resident"});
  if (!at.on_gpu) Extend(headers, {">weights", ">attention", ">cache work", ">other", ">of read"});
  headers.emplace_back(">logit error");
  return headers;
}

std::vector<std::string> CellsOf(const DecodeCase& at, const DecodeRow& row,
                                 const DecodeFigures& figures) {
  const auto percent = [](double part) { return fmt::format("{:.1f} %", 100 * part); };
  std::vector<std::string> cells = {row.noise ? "f16 again (noise)" : row.lane->name(),
                                    fmt::format("{:.2f}", figures.tokens_per_s)};
  if (at.batch > 1) cells.push_back(fmt::format("{:.2f}", figures.tokens_per_s / at.batch));
  Extend(cells, {fmt::format("{:.2f}", figures.ratio_to_f16),
                 fmt::format("{:.2f} ms", figures.p99_us / 1e3),
                 HumanBytes(static_cast<double>(figures.cache_bytes)),
                 HumanBytes(static_cast<double>(figures.resident_bytes))});
  if (!at.on_gpu) {
    Extend(cells,
           {percent(figures.weights), percent(figures.attention), percent(figures.cache_work),
            percent(figures.other), fmt::format("{:.0f} %", 100 * figures.bandwidth_fraction)});
  }
  cells.push_back(fmt::format("{:.1e}", row.logit_error));
  return cells;
}

nlohmann::ordered_json JsonOf(const DecodeCase& at, const DecodeRow& row, const char* role,
                              const DecodeFigures& figures) {
  nlohmann::ordered_json json = {{"plan", row.lane->name()},
                                 {"role", role},
                                 {"model", at.model},
                                 {"device", at.on_gpu ? "cuda" : "cpu"},
                                 {"depth", at.depth},
                                 {"batch", at.batch},
                                 {"threads", at.threads},
                                 {"steps", at.steps},
                                 {"reps", row.us.size()},
                                 {"tokens_per_s", figures.tokens_per_s},
                                 {"tokens_per_s_each", figures.tokens_per_s / at.batch},
                                 {"ratio_to_f16", figures.ratio_to_f16},
                                 {"p50_us", figures.p50_us},
                                 {"p99_us", figures.p99_us},
                                 {"cache_bytes", figures.cache_bytes},
                                 {"resident_bytes", figures.resident_bytes},
                                 {"weight_bytes_per_token", at.weight_bytes_per_token},
                                 {"cache_bytes_read", figures.cache_bytes_read}};
  if (!at.on_gpu) {
    json["share_weights"] = figures.weights;
    json["share_attention"] = figures.attention;
    json["share_cache"] = figures.cache_work;
    json["share_other"] = figures.other;
    json["read_bandwidth_gbps"] = at.read_bandwidth / 1e9;
    json["bandwidth_fraction"] = figures.bandwidth_fraction;
  }
  json["logit_error"] = row.logit_error;
  return json;
}

// Policies, packing, folding, fallbacks: lines below the table, where a plan has them.
void PrintDetails(const DecodeCase& at, const std::vector<DecodeRow>& rows, std::FILE* out) {
  for (const DecodeRow& row : rows) {
    PrintRetention(row.lane->name(), row.lane->stats_behind_steps(), at.depth + at.steps, out);
  }
  for (const DecodeRow& row : rows)
    PrintLossless(row.lane->name(), row.lane->stats_behind_steps().lossless, out);
  for (const DecodeRow& row : rows)
    PrintFold(row.lane->name(), row.lane->stats_behind_steps().fold, out);
  for (const DecodeRow& row : rows) {
    if (!row.noise) PrintFallbacks(row.lane->name(), row.lane->stats_behind_steps().fallbacks, out);
  }
}

}  // namespace

void ReportDecode(const DecodeCase& at, const std::vector<DecodeRow>& rows, std::FILE* out,
                  nlohmann::ordered_json& json) {
  fmt::print(
      out, "\ndepth {}{}, {} steps x {} repetitions{}\n", at.depth,
      at.batch == 1 ? "" : fmt::format(", {} sequences together", at.batch), at.steps,
      rows[0].us.size(),
      at.on_gpu ? ""
                : fmt::format("; read bandwidth {:.1f} GB/s in this run", at.read_bandwidth / 1e9));
  TextTable table(HeadersOf(at));
  for (const DecodeRow& row : rows) {
    const DecodeFigures figures = FiguresOf(at, rows[0], row);
    table.AddRow(CellsOf(at, row, figures));
    const bool is_baseline = &row == rows.data();
    json.push_back(
        JsonOf(at, row, row.noise ? "noise" : (is_baseline ? "baseline" : "candidate"), figures));
    AddCacheMetrics(row.lane->stats_behind_steps(), &json.back());
    json.back()["fold"] = FoldJson(row.lane->stats_behind_steps().fold);
    AddPlanUseKeys(
        MakePlanUse(row.lane->plan(), row.lane->cache().shape(), UseOf(row.lane->cache().Report())),
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
  PrintDetails(at, rows, out);
  std::fflush(out);
}

}  // namespace varve::cli
