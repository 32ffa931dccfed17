// `varve eval`: quality of plans against the f16 cache.

#include <memory>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/eval/eval_policies.h"
#include "cli/eval/eval_recall.h"
#include "cli/eval/eval_wer.h"
#include "cli/eval/eval_windows.h"
#include "cli/report/output.h"
#include "cli/report/usage_error.h"

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
  command->add_flag("--rest", options->rest,
                    "--prompt-half, and plans with idle= put the first half to rest before the "
                    "second is read: what a conversation loses that goes on after a pause");
  command->add_flag(
      "--by-position", options->by_position,
      "A second table: KL in eight parts of a window, whether a plan drifts with depth");
  command->footer(
      "The text is cut into consecutive windows of --ctx tokens (default: 2048, or the model's "
      "context\nif that is less), each beginning with BOS where the model has one; every token "
      "after the first is\nscored. f16 is the reference and the first row. Ctrl-C ends with what "
      "was measured so far.\n\n"
      "Examples:\n"
      "  varve eval ppl --kv q8_0 q4_0 q4_0r\n"
      "  varve eval ppl -m model.gguf -f book.txt --ctx 4096 --windows 8 --kv 'k=q8_0,v=q4_0r'\n"
      "  varve eval kl --kv 'q4_0r,open=128' --json out.json\n"
      "  varve eval kl -m smollm2 -f book.txt --ctx 4096 --windows 2 --kv t4 t3 --by-position\n"
      "  varve eval kl -m smollm2 -f book.txt --rest --kv t4 't4,idle=t3'\n"
      "  varve eval kl --kv 'h2o,ratio=3.5' 'evict=demote,ratio=3.5'");
  command->callback(varve::cli::Action(options, varve::cli::EvalWindows, exit_code));
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
      ->check(varve::cli::NotNegative());
  command->footer(
      "A prompt is running text of --ctx tokens (default: 3500, or what fits the model's context) "
      "with facts\nin it: \"Remember that the number of the silver tower is 48213.\" It is read "
      "once; then each fact is asked\nfor: \"What is the number of the silver tower? The number "
      "of the silver tower is\". Found is what greedy\ndecoding continues with exactly the "
      "number.\n\n"
      "Examples:\n"
      "  varve eval recall --kv q8_0 q4_0r\n"
      "  varve eval recall --kv 'evict=demote,ratio=3.5' h2o      # found, by place of the fact\n"
      "  varve eval recall -m model.gguf -f book.txt --ctx 8000 --facts 8 --depths 0,0.5,0.9");
  command->callback(varve::cli::Action(options, varve::cli::EvalRecall, exit_code));
}

void AddPolicies(CLI::App& eval, int* exit_code) {
  CLI::App* command = eval.add_subcommand(
      "policies", "KL, perplexity and recall of every policy (evict=) at equal bytes");
  auto options = std::make_shared<varve::cli::EvalPoliciesOptions>();
  varve::cli::AddEvalOptions(*command, *options);
  command->get_option("--kv")->description("More plans for the same table, separated by spaces");
  command->add_option("--policies", options->policies, "Policies to compare")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--ratios", options->ratios, "ratio= of the plans")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1.0, 1e6));
  command->add_option("--windows", options->windows, "Windows of --ctx tokens; 0: all of the text")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24));
  command->add_option("--asked", options->recall.asked, "Recall questions in all; 0: no recall")
      ->capture_default_str()
      ->check(CLI::Range(0, 100000));
  command->add_option("--facts", options->recall.facts, "Facts in one recall prompt")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  command->add_option("--seed", options->recall.seed, "Seed of the recall prompts")
      ->capture_default_str();
  command->add_option("--layers", options->layers, "Layers that have the policy")
      ->capture_default_str();
  command->add_option("--rung", options->rung, "Rung of sealed pages (default: f16)");
  command->add_option("--page", options->page, "page= of the plans")->capture_default_str();
  command->add_option("--sink", options->sink, "sink= of the plans")->capture_default_str();
  command->add_option("--recent", options->recent, "recent= of the plans")->capture_default_str();
  command->add_option("--trigger", options->trigger,
                      "trigger= of the plans (default: where sink and recent leave room at the "
                      "highest ratio)");
  command->footer(
      "Every policy gets the same bytes: ratio= is of all tokens seen in f16 over what is held. "
      "The "
      "first half of\na window (--ctx, default 4096 or the model's context) is the prompt, the "
      "second half is scored; recall prompts\nare about as long. Rows are sorted by ratio, then by "
      "KL. A line below the table says where sink and recent\nalone took more than the bytes that "
      "were asked for. The defaults take a few minutes on two cores.\n\n"
      "Examples:\n"
      "  varve eval policies\n"
      "  varve eval policies --ratios 4,8 --policies h2o,demote --kv q8_0 q4_0r --json out.json\n"
      "  varve eval policies -m model.gguf -f book.txt --ctx 8192 --windows 4 --asked 0");
  command->callback(varve::cli::Action(options, varve::cli::EvalPolicies, exit_code));
}

void AddWer(CLI::App& eval, int* exit_code) {
  CLI::App* command =
      eval.add_subcommand("wer", "Word error rate of a Whisper model on speech, per plan");
  auto options = std::make_shared<varve::cli::EvalWerOptions>();
  varve::cli::AddSpeechOptions(*command, options->speech);
  command
      ->add_option("DIR", options->folders,
                   "Folders of sound files with transcripts.tsv: the id, which is the file's name "
                   "without its ending, in the first column, the text in the last; pooled")
      ->required();
  command->add_option("--kv", options->plans, "Plans, separated by spaces")->capture_default_str();
  command->add_option("--files", options->files, "Only the first N files; 0: all")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24));
  command->add_flag("!--no-errors", options->errors,
                    "Do not measure the errors of K, V and attention, which takes a pass per file");
  command->add_option("--texts", options->texts, "Write plan, id, what was said and what was heard")
      ->type_name("FILE");
  command->add_option("--json", options->json, "Write rows as JSON; - is stdout")
      ->type_name("FILE");
  command->footer(
      "Both texts are brought into one form by Whisper's English normalizer. Windows are encoded "
      "once for all plans.\n\n"
      "Examples:\n"
      "  varve eval wer -m whisper-tiny.en speech/ --kv f16 q8_0 'q4_0r,cross=q8_0'\n"
      "  varve eval wer -m ggml-base.bin librispeech/ ljspeech/ --beam 1 --json out.json");
  command->callback(varve::cli::Action(options, varve::cli::EvalWer, exit_code));
}

}  // namespace

void AddEvalCommand(CLI::App& app, int* exit_code) {
  CLI::App* eval = app.add_subcommand("eval", "Quality of plans against the f16 cache");
  eval->require_subcommand(1);
  AddWindows(*eval, exit_code, "ppl", "Perplexity of a text, per plan", false);
  AddWindows(*eval, exit_code, "kl", "KL divergence from the f16 cache on a text, per plan", true);
  AddRecall(*eval, exit_code);
  AddPolicies(*eval, exit_code);
  AddWer(*eval, exit_code);
}
