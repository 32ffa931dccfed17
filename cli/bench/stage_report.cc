#include "cli/bench/stage_report.h"

#include <array>

#include <fmt/format.h>

#include "cli/report/output.h"

namespace varve::cli {
namespace {

struct Stage {
  const char* name;
  double StageTimes::*us;
};
constexpr std::array<Stage, 7> kStages = {{{"prepare", &StageTimes::prepare_us},
                                           {"scores", &StageTimes::scores_us},
                                           {"softmax", &StageTimes::softmax_us},
                                           {"values", &StageTimes::values_us},
                                           {"merge", &StageTimes::merge_us},
                                           {"encode", &StageTimes::encode_us},
                                           {"append", &StageTimes::append_us}}};
constexpr size_t kAttentionStages = 5;  // the first of them read what is stored

double AllStages(const StageTimes& times) {
  double us = 0;
  for (const Stage& stage : kStages) us += times.*stage.us;
  return us;
}

double Quotient(double number, double by) { return by > 0 ? number / by : 0; }

double NanosPerTokenHead(const StageRow& row, double us) {
  return Quotient(1e3 * us, row.calls * row.token_heads);
}

// "-" where nothing ran.
std::string PerRow(double us, uint64_t rows) {
  return rows == 0 ? "-" : fmt::format("{:.1f}", 1e3 * us / static_cast<double>(rows));
}

}  // namespace

StageTimes StagesBetween(const StageTimes& before, const StageTimes& after) {
  StageTimes times;
  for (const Stage& stage : kStages) times.*stage.us = after.*stage.us - before.*stage.us;
  times.attend_passes = after.attend_passes - before.attend_passes;
  times.rows_encoded = after.rows_encoded - before.rows_encoded;
  times.rows_appended = after.rows_appended - before.rows_appended;
  return times;
}

void AddStages(const StageTimes& times, StageTimes* sum) {
  for (const Stage& stage : kStages) sum->*stage.us += times.*stage.us;
  sum->attend_passes += times.attend_passes;
  sum->rows_encoded += times.rows_encoded;
  sum->rows_appended += times.rows_appended;
}

void PrintStages(const std::string& call, const std::vector<StageRow>& rows, std::FILE* out) {
  fmt::print(out, "us of one {} by stage, summed over threads; ns are per token and KV head{}\n",
             call,
             rows.empty() || rows[0].filling.rows_appended == 0
                 ? ""
                 : "; filling: ns per K or V row of a head");
  std::vector<std::string> headers = {"plan"};
  for (const Stage& stage : kStages) headers.push_back(fmt::format(">{}", stage.name));
  for (const char* more : {">all us", ">of time", ">ns scores", ">ns values", ">ns all"})
    headers.emplace_back(more);
  const bool has_filling = !rows.empty() && rows[0].filling.rows_appended > 0;
  if (has_filling) headers.insert(headers.end(), {">fill encode", ">fill append"});
  TextTable table(std::move(headers));
  for (const StageRow& row : rows) {
    const double all = AllStages(row.times);
    std::vector<std::string> cells = {row.plan};
    for (const Stage& stage : kStages) {
      const double us = row.times.*stage.us;
      cells.push_back(us == 0 ? "-"
                              : fmt::format("{:.1f} {:3.0f} %", Quotient(us, row.calls),
                                            100 * Quotient(us, all)));
    }
    cells.push_back(fmt::format("{:.1f}", Quotient(all, row.calls)));
    cells.push_back(
        fmt::format("{:.0f} %", 100 * Quotient(all, row.calls * row.wall_us * row.threads)));
    for (const double us : {row.times.scores_us, row.times.values_us, all})
      cells.push_back(fmt::format("{:.2f}", NanosPerTokenHead(row, us)));
    cells.push_back(PerRow(row.filling.encode_us, row.filling.rows_encoded));
    cells.push_back(PerRow(row.filling.append_us, row.filling.rows_appended));
    table.AddRow(std::move(cells));
  }
  table.Print(out);
  std::fflush(out);
}

void AddStageKeys(const StageRow& row, nlohmann::ordered_json* json) {
  nlohmann::ordered_json& stage_us = (*json)["stage_us"];
  for (const Stage& stage : kStages)
    stage_us[stage.name] = Quotient(row.times.*stage.us, row.calls);
  nlohmann::ordered_json& nanos = (*json)["stage_ns_per_token_head"];
  for (size_t i = 0; i < kAttentionStages; ++i)
    nanos[kStages[i].name] = NanosPerTokenHead(row, row.times.*kStages[i].us);
  if (row.filling.rows_appended == 0) return;
  const auto per_row = [](double us, uint64_t rows) {
    return Quotient(1e3 * us, static_cast<double>(rows));
  };
  (*json)["fill_ns_per_row"] = {
      {"encode", per_row(row.filling.encode_us, row.filling.rows_encoded)},
      {"append", per_row(row.filling.append_us, row.filling.rows_appended)}};
}

}  // namespace varve::cli
