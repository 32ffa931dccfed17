// The subcommands of `varve`, one file each.
//
// Add…Command registers a subcommand and its options with the app. When the subcommand has run,
// *exit_code holds its result, one of cli/report/output.h. `exit_code` must outlive the app's
// parse.

#ifndef VARVE_CLI_COMMANDS_H_
#define VARVE_CLI_COMMANDS_H_

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

void AddPlanCommand(CLI::App& app, int* exit_code);
void AddInspectCommand(CLI::App& app, int* exit_code);
void AddBenchCommand(CLI::App& app, int* exit_code);
void AddCodebookCommand(CLI::App& app, int* exit_code);
void AddCompletionsCommand(CLI::App& app, int* exit_code);
void AddConvertCommand(CLI::App& app, int* exit_code);
void AddDumpCommand(CLI::App& app, int* exit_code);
void AddLosslessCommand(CLI::App& app, int* exit_code);
void AddEvalCommand(CLI::App& app, int* exit_code);
void AddFoldCommand(CLI::App& app, int* exit_code);
void AddGateCommand(CLI::App& app, int* exit_code);
void AddManualCommand(CLI::App& app, int* exit_code);
void AddModelsCommand(CLI::App& app, int* exit_code);
void AddRunCommand(CLI::App& app, int* exit_code);
void AddServeCommand(CLI::App& app, int* exit_code);
void AddSolveCommand(CLI::App& app, int* exit_code);
void AddTokenizeCommand(CLI::App& app, int* exit_code);
void AddTranscribeCommand(CLI::App& app, int* exit_code);

#endif  // VARVE_CLI_COMMANDS_H_
