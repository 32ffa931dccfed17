#include <memory>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/inspect/plan_report.h"

void AddPlanCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("plan", "say what a plan means and what it costs");
  auto options = std::make_shared<varve::cli::PlanReportOptions>();
  varve::cli::AddPlanReportOptions(command, options.get());
  command->footer(
      "Examples:\n"
      "  varve plan q8_0\n"
      "  varve plan 'k=q8_0,v=q4_0r,open=128' --ctx 32768\n"
      "  varve plan '0-1: f16; 2-: age=f16:512/q8_0:4096/q4_0r'\n"
      "  varve plan q4_0r --embedded-model --ctx 4096\n"
      "  varve plan q4_0r -m smollm2 --ctx 8192 --device here,rtx-4090,h200   what tokens wait "
      "for\n"
      "  varve plan @plan.json --json -");
  command->callback([options, exit_code] { *exit_code = varve::cli::ReportPlan(*options); });
}
