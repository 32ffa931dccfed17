#include "cli/fold/fold_command.h"

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/fold/fold_apply.h"

void AddFoldCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand(
      "fold", "Compressors that fold several tokens into one row: convert, inspect, apply them");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  varve fold convert compressor.pth compressor.bin --dtype fp16\n"
      "  varve fold inspect compressor.bin\n"
      "  varve fold apply compressor.bin --prompt-tokens 2048");
  varve::cli::AddFoldConvert(command, exit_code);
  varve::cli::AddFoldInspect(command, exit_code);
  varve::cli::AddFoldApply(command, exit_code);
  varve::cli::AddFoldBaseline(command, exit_code);
}
