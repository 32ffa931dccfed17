// `varve gate`: the acceptance run.

#include <map>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/gate/gate_case.h"
#include "cli/gate/gate_files.h"
#include "cli/gate/gate_run.h"
#include "cli/interrupt.h"
#include "cli/model_argument.h"
#include "cli/report/output.h"

namespace {

using varve::cli::GateFault;
using varve::cli::GateOptions;

// What is done in place of a run.
struct GateInstead {
  bool list = false;
  std::string copy_to;
};

varve::Status ListGateCases(const GateOptions& options) {
  VARVE_ASSIGN_OR_RETURN(const auto cases, varve::cli::LoadGateCases(options.cases, options.names));
  varve::cli::TextTable table({"case", "plan", "for"});
  for (const varve::cli::GateCase& gate_case : cases) {
    table.AddRow({gate_case.name, gate_case.plan_text, gate_case.purpose});
  }
  table.Print(stdout);
  return varve::Status();
}

// 0 passed, 1 failed, 2 could not run. An interrupted run has nothing to tell: main gives the
// signal's code.
int GateExitCode(const GateOptions& options) {
  const varve::Result<varve::cli::GateVerdict> verdict = varve::cli::RunGate(options);
  if (!verdict.ok()) {
    varve::cli::ReportError(verdict.status());
    return varve::cli::kExitBadUsage;
  }
  switch (*verdict) {
    case varve::cli::GateVerdict::kPassed:
      return varve::cli::kExitDone;
    case varve::cli::GateVerdict::kFailed:
      return varve::cli::kExitFailed;
    case varve::cli::GateVerdict::kUndecided:
      break;
  }
  return varve::cli::InterruptScope::interrupted() ? varve::cli::kExitDone
                                                   : varve::cli::kExitBadUsage;
}

void AddGateInputs(CLI::App* command, GateOptions* options, GateInstead* instead) {
  varve::cli::AddModelOption(*command, options->model);
  command->add_option("--cases", options->cases, "Cases of a folder (default: the shipped ones)")
      ->type_name("DIR");
  command->add_option("--case", options->names, "Only the cases of these names");
  command->add_flag("--list", instead->list, "Say which cases there are, and end");
  command
      ->add_option("--copy-cases", instead->copy_to,
                   "Write the shipped cases to a new folder, to be changed, and end")
      ->type_name("DIR");
  command
      ->add_option("--prompts", options->prompts,
                   "Each file of a folder is a prompt (default: passages of a novel)")
      ->type_name("DIR");
  command
      ->add_option(
          "--turns", options->turns,
          "Conversations: [{\"name\": …, \"reply_tokens\": 32, \"turns\": [\"…\", …]}, …]; "
          "with --prompts: beside those")
      ->type_name("FILE");
  command
      ->add_option("-f,--file", options->text,
                   "Text for KL divergence and recall (default: the evaluation text)")
      ->type_name("FILE");
  command->add_flag("!--no-quality", options->quality,
                    "Measure neither KL nor recall; their gates are skipped");
}

void AddGateBaselines(CLI::App* command, GateOptions* options) {
  CLI::Option* baseline =
      command
          ->add_option("--baseline", options->baseline,
                       "Speed against f16 of an earlier summary.json of this machine and model")
          ->type_name("FILE");
  command
      ->add_option("--history", options->history,
                   "Speed against the median of the last runs on this machine, as soon as there "
                   "are three; every run is added")
      ->type_name("FILE")
      ->excludes(baseline);
  command->add_option("--history-runs", options->history_runs, "Of the history, the last N runs")
      ->capture_default_str()
      ->check(CLI::Range(3, 1000));
  command->add_option("--runs", options->runs, "Measure everything N times and tell the spread")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  command
      ->add_option("--retries", options->retries,
                   "How often a speed within the noise is measured again (default: 3; quick 1)")
      ->check(CLI::Range(0, 100));
  command->add_option("--threads", options->threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  static const std::map<std::string, GateFault> kFaults = {
      {"none", GateFault::kNone}, {"corrupt-page", GateFault::kCorruptPage}};
  command
      ->add_option("--fault", options->fault,
                   "Damage something on purpose: the gate must notice. corrupt-page: a bit of the "
                   "first packed page")
      ->transform(CLI::CheckedTransformer(kFaults));
}

}  // namespace

void AddGateCommand(CLI::App& app, int* exit_code) {
  CLI::App* command =
      app.add_subcommand("gate", "The acceptance run: measures every case and decides");
  auto options = std::make_shared<GateOptions>();
  auto instead = std::make_shared<GateInstead>();
  command->add_option("-o,--output", options->output, "Folder for summary.json and report.html")
      ->type_name("DIR")
      ->default_str("out/gate");
  command->add_flag("--quick", options->quick, "A prompt per bucket, fewer steps: two minutes");
  AddGateInputs(command, options.get(), instead.get());
  AddGateBaselines(command, options.get());
  command->footer(
      "Exit code: 0 passed, 1 failed, 2 could not run. A speed that lies within the noise is "
      "undecided: it is\nmeasured again, then reported; it alone does not fail the run. Cases are "
      "JSON files: docs/format/gate-summary.md.\n\n"
      "Examples:\n"
      "  varve gate --quick -o out/gate\n"
      "  varve gate -m model.gguf -o out/gate --history gate-history.jsonl\n"
      "  varve gate --copy-cases my-cases; varve gate --cases my-cases --prompts texts/\n"
      "  varve gate --case runtime_store --fault corrupt-page       # must fail");
  command->callback([options, instead, exit_code] {
    if (!instead->copy_to.empty() || instead->list) {
      const varve::Status status =
          instead->list ? ListGateCases(*options) : varve::cli::CopyGateFiles(instead->copy_to);
      if (!status.ok()) *exit_code = varve::cli::ReportError(status);
      return;
    }
    options->command = varve::cli::CommandLine();
    *exit_code = GateExitCode(*options);
  });
}
