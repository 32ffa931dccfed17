// `varve eval`: quality of plans against the f16 cache.

#include <memory>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/eval_recall.h"
#include "cli/eval_windows.h"
#include "cli/output.h"

namespace {

void AddWindows(CLI::App& eval, int* exit_code, const char* name, const char* description,
                bool kl_first) {
  CLI::App* command = eval.add_subcommand(name, description);
  auto options = std::make_shared<varve::cli::EvalWindowsOptions>();
  options->kl_first = kl_first;
  varve::cli::AddEvalOptions(*command, *options);
  command->add_option("--windows", options->windows, "Windows of --ctx tokens; 0: all of the text")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24));
  command->add_flag("--prompt-half", options->prompt_half,
                    "The first half of a window is the prompt, only the second is scored; always "
                    "so with evict= or fold=");
  command->footer(
      "The text is cut into consecutive windows of --ctx tokens (default: 2048, or the model's "
      "context\nif that is less), each beginning with BOS where the model has one; every token "
      "after the first is\nscored. f16 is the reference and the first row. Ctrl-C ends with what "
      "was measured so far.\n\n"
      "Examples:\n"
      "  varve eval ppl --kv q8_0 q4_0 q4_0r\n"
      "  varve eval ppl -m model.gguf -f book.txt --ctx 4096 --windows 8 --kv 'k=q8_0,v=q4_0r'\n"
      "  varve eval kl --kv 'q4_0r,open=128' --json out.json");
  command->callback([options, exit_code] {
    const varve::Status status = varve::cli::EvalWindows(*options);
    if (!status.ok()) *exit_code = varve::cli::ReportError(status);
  });
}

void AddRecall(CLI::App& eval, int* exit_code) {
  CLI::App* command =
      eval.add_subcommand("recall", "Facts of a long text that the model still finds, per plan");
  auto options = std::make_shared<varve::cli::EvalRecallOptions>();
  varve::cli::AddEvalOptions(*command, *options);
  command->add_option("--asked", options->recall.asked, "Questions in all")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  command->add_option("--facts", options->recall.facts, "Facts in one prompt")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  command->add_option("--depths", options->recall.depths, "Places of the facts, 0 to 1")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--seed", options->recall.seed, "Seed of things, numbers and places")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->footer(
      "A prompt is running text of --ctx tokens (default: 3500, or what fits the model's context) "
      "with facts\nin it: \"Remember that the number of the silver tower is 48213.\" It is read "
      "once; then each fact is asked\nfor: \"What is the number of the silver tower? The number "
      "of the silver tower is\". Found is what greedy\ndecoding continues with exactly the "
      "number.\n\n"
      "Examples:\n"
      "  varve eval recall --kv q8_0 q4_0r\n"
      "  varve eval recall -m model.gguf -f book.txt --ctx 8000 --facts 8 --depths 0,0.5,0.9");
  command->callback([options, exit_code] {
    const varve::Status status = varve::cli::EvalRecall(*options);
    if (!status.ok()) *exit_code = varve::cli::ReportError(status);
  });
}

}  // namespace

void AddEvalCommand(CLI::App& app, int* exit_code) {
  CLI::App* eval = app.add_subcommand("eval", "Quality of plans against the f16 cache");
  eval->require_subcommand(1);
  AddWindows(*eval, exit_code, "ppl", "Perplexity of a text, per plan", false);
  AddWindows(*eval, exit_code, "kl", "KL divergence from the f16 cache on a text, per plan", true);
  AddRecall(*eval, exit_code);
}
