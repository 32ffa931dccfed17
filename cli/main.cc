// The program `varve`: reads the command line and hands over to a subcommand.

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/report/output.h"
#include "cli/report/usage_error.h"
#include "kernels/kernels.h"

namespace {

int RunProgram(int argc, char** argv) {
  CLI::App app("KV-cache compression: pages are demoted to cheaper representations.", "varve");
  app.set_version_flag("--version", "varve " VARVE_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  varve run -p 'The old house stood'     text from the embedded model\n"
      "  varve models                           real models that -m knows by name\n"
      "  varve inspect                          the machine, its instruction sets, the rungs\n"
      "  varve plan 'k=q8_0,v=q4_0r,open=128'   what a plan means and what it costs\n"
      "  varve bench attention --kv f16 q8_0 q4_0r --ctx 4096,32768\n"
      "  varve eval ppl --kv q8_0 q4_0r         quality against the f16 cache\n"
      "  varve gate -o out/gate                 everything that is promised, measured and decided\n"
      "  varve solve --ratio 4                  the plan that loses least at a size\n"
      "  varve serve -m smollm2                 an HTTP server that OpenAI's clients understand\n"
      "  varve transcribe -m whisper-tiny.en speech.wav\n"
      "`varve COMMAND --help` tells the options of a command.\n\n" +
      varve::cli::ExitCodesText());

  // Whatever the command prints then comes from other kernels than were asked for.
  if (const std::string_view warning = varve::KernelSelectionWarning(); !warning.empty()) {
    varve::cli::WriteNote(fmt::format("varve: {}\n", warning));
  }
  int exit_code = varve::cli::kExitDone;
  AddBenchCommand(app, &exit_code);
  AddCodebookCommand(app, &exit_code);
  AddCompletionsCommand(app, &exit_code);
  AddConvertCommand(app, &exit_code);
  AddDumpCommand(app, &exit_code);
  AddEvalCommand(app, &exit_code);
  AddFoldCommand(app, &exit_code);
  AddGateCommand(app, &exit_code);
  AddInspectCommand(app, &exit_code);
  AddLosslessCommand(app, &exit_code);
  AddManualCommand(app, &exit_code);
  AddModelsCommand(app, &exit_code);
  AddPlanCommand(app, &exit_code);
  AddRunCommand(app, &exit_code);
  AddServeCommand(app, &exit_code);
  AddSolveCommand(app, &exit_code);
  AddTokenizeCommand(app, &exit_code);
  AddTranscribeCommand(app, &exit_code);
  const std::vector<std::string> arguments = varve::cli::WithLongNames(argc, argv);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(),
                                       arguments.rend()));  // the parser takes them from the end
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    varve::cli::WriteNote(varve::cli::DescribeUsageError(app, arguments, error) + "\n");
    return varve::cli::kExitBadUsage;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  using varve::cli::ReportError;
  int exit_code = varve::cli::kExitDone;
  try {
    exit_code = RunProgram(argc, argv);
  } catch (const std::bad_alloc&) {
    exit_code = ReportError(varve::OutOfMemory("out of memory"));
  } catch (const std::exception& error) {
    // What fmt throws when stdout is full is told below.
    if (std::ferror(stdout) == 0) exit_code = ReportError(varve::Internal(error.what()));
  }
  if (exit_code != varve::cli::kExitDone) return exit_code;
  // A full disk must not look like success.
  const varve::Status written = varve::cli::FlushStdout();
  return written.ok() ? varve::cli::InterruptScope::exit_code() : ReportError(written);
}
