#include "cli/solve/solve_report.h"

#include <cmath>

#include <fmt/format.h>

#include "cli/report/output.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Loss(double kl) { return std::isfinite(kl) ? fmt::format("{:.3g}", kl) : "-"; }

double RatioOf(const CandidatePlan& plan, const PlanSpace& space) {
  return static_cast<double>(space.f16_bytes()) / static_cast<double>(plan.bytes);
}

double BytesPerToken(const CandidatePlan& plan, const PlanSpace& space) {
  return static_cast<double>(plan.bytes) / static_cast<double>(space.num_tokens());
}

void PrintLosses(const PlanSolver& solver, std::FILE* out) {
  const MeasuredLosses& losses = solver.losses();
  const std::vector<std::string>& rungs = solver.space().rungs();
  TextTable table({"rung", ">KL as K", ">KL as V"});
  for (size_t i = 0; i < rungs.size(); ++i) {
    table.AddRow({rungs[i], Loss(losses.keys.rungs[i]), Loss(losses.values.rungs[i])});
  }
  table.Print(out);
  fmt::print(out, "\n");
}

void AddRow(TextTable& table, const std::string& name, const CandidatePlan& plan,
            const PlanQuality& checked, double expected, const PlanSpace& space) {
  table.AddRow({name, fmt::format("{:.0f}", BytesPerToken(plan, space)),
                fmt::format("{:.2f}", RatioOf(plan, space)), Loss(expected), Loss(plan.kl),
                fmt::format("{} ±{}", Loss(checked.kl_mean), Loss(checked.kl_sem)),
                fmt::format("{:.2f}", 100 * checked.top1),
                fmt::format("{:+.2f}", 100 * std::expm1(checked.dlnppl))});
}

Json PlanRow(const std::string& target, const char* role, const CandidatePlan& plan,
             const PlanQuality& checked, const SolveReport& report) {
  const PlanSpace& space = report.solver->space();
  return {{"target", target},
          {"role", role},
          {"plan", PrintPlan(plan.plan)},
          {"plan_json", Json::parse(PrintPlanJson(plan.plan))},
          {"exact", plan.exact.first},
          {"open", plan.exact.last},
          {"ctx", space.num_tokens()},
          {"bytes_per_token", BytesPerToken(plan, space)},
          {"ratio", RatioOf(plan, space)},
          {"solve_kl", plan.kl},
          {"solve_kl_sem", plan.kl_sem},
          {"window", report.window_tokens},
          {"windows", report.num_windows},
          {"kl_mean", checked.kl_mean},
          {"kl_sem", checked.kl_sem},
          {"kl_p99", checked.kl_p99},
          {"top1", checked.top1},
          {"ppl", checked.perplexity},
          {"dlnppl", checked.dlnppl}};
}

}  // namespace

void PrintSolveReport(const SolveReport& report, std::FILE* out) {
  const PlanSpace& space = report.solver->space();
  PrintLosses(*report.solver, out);
  TextTable table({"plan", ">bytes/token", ">ratio", ">KL expected", ">KL solved",
                   ">KL on other text", ">top-1 %", ">ppl %"});
  for (const SolvedTarget& target : report.targets) {
    const SolvedPlan& solved = target.solved;
    AddRow(table, target.target, solved.plan, target.checked, solved.expected_kl, space);
    if (!solved.uniform) continue;
    AddRow(table, "  best pair", *solved.uniform, *target.uniform_checked, NAN, space);
  }
  table.Print(out);
  fmt::print(
      out,
      "Bytes and ratio are of a sequence of {} tokens, all-in. Best pair: one rung for K and "
      "one for V in all layers,\nwith the same exact= and open= and at most the same "
      "bytes. KL solved is of the text that the plan was\nsolved on, KL on other text (± "
      "one standard error) and the rest of text that it has not seen.\n",
      space.num_tokens());
  for (const SolvedTarget& target : report.targets) {
    fmt::print(out, "\n{}: {}\n", target.target, PrintPlan(target.solved.plan.plan));
    if (!target.solved.uniform) continue;
    fmt::print(out, "  best pair: {}\n", PrintPlan(target.solved.uniform->plan));
  }
}

Json SolveRows(const SolveReport& report) {
  Json rows = Json::array();
  for (const SolvedTarget& target : report.targets) {
    rows.push_back(PlanRow(target.target, "solved", target.solved.plan, target.checked, report));
    rows.back()["expected_kl"] = target.solved.expected_kl;
    if (!target.solved.uniform) continue;
    rows.push_back(
        PlanRow(target.target, "uniform", *target.solved.uniform, *target.uniform_checked, report));
  }
  const MeasuredLosses& losses = report.solver->losses();
  const std::vector<std::string>& rungs = report.solver->space().rungs();
  for (size_t i = 0; i < rungs.size(); ++i) {
    rows.push_back({{"role", "rung"},
                    {"rung", rungs[i]},
                    {"k_kl", losses.keys.rungs[i]},
                    {"v_kl", losses.values.rungs[i]}});
  }
  for (size_t i = 0; i < losses.keys.layers.size(); ++i) {
    rows.push_back({{"role", "layer"},
                    {"layer", i},
                    {"k_rung", rungs[losses.key_signal]},
                    {"k_kl", losses.keys.layers[i]},
                    {"v_rung", rungs[losses.value_signal]},
                    {"v_kl", losses.values.layers[i]}});
  }
  return rows;
}

}  // namespace varve::cli
