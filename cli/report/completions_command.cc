// `varve completions` and `varve manual`: what an installation puts beside the program.

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/report/command_words.h"
#include "cli/report/output.h"

void AddCompletionsCommand(CLI::App& app, int* /*exit_code*/) {
  CLI::App* command =
      app.add_subcommand("completions", "Print what makes a shell complete the command line");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "An installed program brings them along. Otherwise:\n"
      "  varve completions bash > ~/.local/share/bash-completion/completions/varve\n"
      "  varve completions zsh > ~/.zsh/functions/_varve       # a folder of $fpath\n"
      "  varve completions fish > ~/.config/fish/completions/varve.fish");
  command->callback([&app, shell] {
    const varve::cli::CommandWords words = varve::cli::WordsOf(app);
    varve::cli::WriteNote(*shell == "bash"  ? varve::cli::BashCompletions(words)
                          : *shell == "zsh" ? varve::cli::ZshCompletions(words)
                                            : varve::cli::FishCompletions(words),
                          stdout);
  });
}

void AddManualCommand(CLI::App& app, int* /*exit_code*/) {
  CLI::App* command = app.add_subcommand("manual", "Print the manual page, for man -l");
  command->callback([&app] {
    varve::cli::WriteNote(varve::cli::ManualPage(varve::cli::WordsOf(app), "varve " VARVE_VERSION),
                          stdout);
  });
}
