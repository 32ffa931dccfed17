// `varve run`: text from a GGUF model, on a cache of one plan or of several.

#include <memory>
#include <utility>

#include <CLI/CLI.hpp>

#include "cli/byte_size.h"
#include "cli/commands.h"
#include "cli/report/output.h"
#include "cli/report/usage_error.h"
#include "cli/run/run_options.h"
#include "runtime/tokenizer/chat_template.h"

namespace {

using varve::cli::RunOptions;

constexpr int64_t kMostTokens = int64_t{1} << 40;  // more than any context

constexpr char kFooter[] =
    "Text goes to stdout as it comes; the last line, on stderr, tells memory and speed. One plan "
    "samples\nmildly with a fixed seed: the same command gives the same text. One newline at the "
    "end of a file or of\nstdin is not part of the prompt; without any prompt the model starts "
    "from nothing. A model that has a\nchat template chats: -p is a message, and without a "
    "prompt "
    "a terminal gives a conversation; --raw goes on\nwith -p as text. Files and stdin are text "
    "to "
    "go on with unless --chat is given. Cache sizes count\nall that the page pool holds, and the "
    "tables; the ratio "
    "is to every token so far in f16. Ctrl-C ends\ncleanly.\n\n"
    "Examples:\n"
    "  varve run -p 'The old house stood'                  # the embedded model\n"
    "  varve run -m model.gguf -f story.txt -n 500 --kv q4_0r --temp 0\n"
    "  varve run -m smollm2 -p 'What is the capital of France?' --temp 0   # a model with a chat "
    "template\n"
    "  varve run -m smollm2 --kv q8_0 --save talk.varve    # a conversation; /help in it says "
    "more\n"
    "  varve run -m smollm2 --chat --load talk.varve --save talk.varve   # and on with it\n"
    "  varve run -m smollm2 --turns talks.json --json turns.json   # conversations from a file\n"
    "  varve run -m smollm2 -cnv -c 2048 -t 2 -ctk q8_0 -ctv q8_0   # as llama.cpp has it\n"
    "  varve run -m smollm2 --raw -p 'Once upon a time'    # text to go on with\n"
    "  varve run -m smollm2 --chat -f question.txt         # a message from a file\n"
    "  varve run -f story.txt --kv f16 q8_0 q4_0r 'k=q8_0,v=q4_0' --report compare.html\n"
    "  varve run -f story.txt --kv 'evict=demote,ratio=3.5' --trace trace.html\n"
    "  varve run -f story.txt --kv q8_0 --save story.varve\n"
    "  varve run -m smollm2 --chat --prompts questions/ -j 8 -o answers/ --json run.json\n"
    "  varve run --load story.varve -p ' The next day'     # no prompt is read twice";

std::string ChatFormats() {
  std::string names;
  for (const std::string_view name : varve::ChatTemplate::BuiltInNames())
    names += " " + std::string(name);
  return names;
}

void AddPromptOptions(CLI::App* command, RunOptions* options) {
  varve::cli::AddModelOption(*command, options->model);
  CLI::Option* prompt = command->add_option(
      "-p,--prompt", options->prompt,
      "Prompt: a message to a model that has a chat template, else text to continue");
  command
      ->add_option(
          "-f,--file", options->file,
          "Text to continue from a file, - for stdin (with --chat: a message); without -p and "
          "-f stdin is read unless it is a terminal")
      ->type_name("FILE")
      ->excludes(prompt);
  CLI::Option* prompts =
      command
          ->add_option("--prompts", options->prompts,
                       "Each file of a folder is a prompt (text to continue; with --chat a "
                       "message); texts come in the order of the files' names")
          ->type_name("DIR")
          ->excludes(prompt)
          ->excludes("--file");
  command
      ->add_option("-j,--together", options->together,
                   "With --prompts: sequences that are decoded together, in one cache")
      ->capture_default_str()
      ->check(CLI::Range(1, 512))
      ->needs(prompts);
  command
      ->add_option("-o,--output", options->output,
                   "With --prompts: write each text to a file of the prompt's name in DIR")
      ->type_name("DIR")
      ->needs(prompts);
  command
      ->add_option(
          "--turns", options->turns,
          "Conversations from a JSON file: [{\"name\": …, \"turns\": [message, …]}, …], with "
          "a report per turn")
      ->type_name("FILE")
      ->excludes(prompt)
      ->excludes("--file")
      ->excludes(prompts);
  command
      ->add_option("--prompt-tokens", options->prompt_tokens,
                   "Use only the first N tokens of the prompt (default: all)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
}

// Where an answer ends.
void AddLengthOptions(CLI::App* command, RunOptions* options) {
  command
      ->add_option("-n,--tokens", options->tokens,
                   "Tokens to generate, -1: until the context is full (default: 256; in a chat to "
                   "the end of the answer)")
      ->check(CLI::Range(int64_t{-1}, kMostTokens));
  command
      ->add_option("--stop", options->stops,
                   "Text that ends the answer; may be given several times")
      ->type_name("TEXT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->excludes("--prompts");
  command->add_flag("--ignore-eos", options->ignore_end,
                    "Go on where the model would end its text");
  command->add_option("-c,--ctx", options->ctx, "Context in tokens (default: the model's)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
}

// What the prompt is: a message, or text to continue.
void AddChatOptions(CLI::App* command, RunOptions* options) {
  CLI::Option* prompt_tokens = command->get_option("--prompt-tokens");
  CLI::Option* chat =
      command
          ->add_option(
              "--chat", options->chat_format,
              "The prompt, from a file too, is a message to an assistant. FORMAT:" + ChatFormats() +
                  ", or @FILE, a template in Jinja (default: the model's own template). Without a "
                  "prompt, on a terminal: a conversation")
          ->type_name("[FORMAT]")
          ->expected(0, 1)
          ->excludes(prompt_tokens);
  CLI::Option* system =
      command->add_option("--system", options->system, "System message; the prompt is a message")
          ->excludes(prompt_tokens);
  command->add_flag("--raw", options->raw, "The prompt is text to continue, whatever the model is")
      ->excludes(chat)
      ->excludes(system);
  command->add_flag("--special", options->special,
                    "What the prompt spells as special tokens (\"<|im_end|>\") are such tokens; "
                    "without it they are plain characters");
}

void AddSamplingOptions(CLI::App* command, RunOptions* options) {
  command->add_option("--temp", options->temperature,
                      "Temperature; 0 is greedy (default: 0.8; with several plans 0)");
  command->add_option("--top-k", options->sampler.top_k, "The K most likely tokens; 0: all")
      ->capture_default_str();
  command->add_option(
      "--top-p", options->top_p,
      "The most likely tokens with this mass (default: 0.95; with several plans 1)");
  command
      ->add_option("--min-p", options->sampler.min_p,
                   "Tokens with this part of the best one's probability, at least")
      ->capture_default_str();
  command
      ->add_option("--repeat-penalty", options->sampler.repetition_penalty,
                   "> 1: tokens of the last 64 weigh less")
      ->capture_default_str();
  command->add_option("-s,--seed", options->sampler.seed, "Seed; the same seed gives the same text")
      ->capture_default_str()
      ->check(varve::cli::NotNegative());
}

void AddMachineOptions(CLI::App* command, RunOptions* options) {
  command->add_option("-t,--threads", options->threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  command->add_option_function<std::string>(
      "--max-bytes",
      [options](const std::string& text) {
        varve::Result<int64_t> bytes = varve::cli::ParseByteSize("--max-bytes", text);
        if (!bytes.ok()) throw CLI::ValidationError(bytes.status().message());
        options->max_bytes = static_cast<uint64_t>(*bytes);
      },
      "Cap of the cache, such as 64MiB; 0: none. At the cap the text ends, what is done is shown "
      "and "
      "saved, and the exit code is 4. Side by side it holds for all but f16, the reference");
  varve::cli::AddDeviceOption(*command, options->device);
  command
      ->add_option(
          "--precision", options->precision,
          "Products of the prompt: f32, i16 (integers, activations of 14 bits), bf16 (rounds "
          "more), or auto: bf16 with AMX, i16 with AVX-512 VNNI, else f32")
      ->capture_default_str()
      ->check(varve::cli::PrecisionValidator(/*with_auto=*/true));
  varve::cli::AddRepackOption(*command, options->repack);
  command->add_flag("!--no-probe", options->probe,
                    "No short probe of a plan that may ruin the model, and no warning");
  command->add_option("--json", options->json,
                      "Write figures and texts as JSON to FILE, or - for stdout");
  command->add_option("--report", options->report,
                      "Write the comparison with f16 as one HTML page to FILE");
  command->add_option(
      "--trace", options->trace,
      "Write which pages a policy (evict=) kept, demoted and dropped, step by step: "
      "JSON lines, or the picture if FILE ends in .html");
}

}  // namespace

void AddRunCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("run", "Text from a model, with memory and speed");
  auto options = std::make_shared<RunOptions>();
  AddPromptOptions(command, options.get());
  AddLengthOptions(command, options.get());
  AddChatOptions(command, options.get());
  command
      ->add_option("--kv", options->plans,
                   "Plan of the cache. Several, separated by spaces: the texts side by side, f16 "
                   "first, with the KL divergence of each from f16")
      ->capture_default_str();
  for (const auto& [option, rung] : {std::pair("--cache-type-k", &options->key_rung),
                                     std::pair("--cache-type-v", &options->value_rung)}) {
    command->add_option(option, *rung, "As -ctk and -ctv of llama.cpp: --kv k=RUNG, v=RUNG")
        ->type_name("RUNG")
        ->excludes("--kv");
  }
  command
      ->add_option("--load", options->load,
                   "Continue from a file of --save: the prompt goes behind its tokens. Its plan is "
                   "used; --kv, if given, must mean the same")
      ->type_name("FILE");
  command->add_option("--save", options->save, "Keep cache and tokens in FILE (.varve) for --load")
      ->type_name("FILE");
  AddSamplingOptions(command, options.get());
  AddMachineOptions(command, options.get());
  command->footer(kFooter);
  command->callback([command, options, exit_code] {
    options->chat = command->count("--chat") > 0;
    options->has_plan = command->count("--kv") > 0;
    if (!options->key_rung.empty() || !options->value_rung.empty()) {
      const auto rung = [](const std::string& name) { return name.empty() ? "f16" : name; };
      options->plans = {"k=" + rung(options->key_rung) + ",v=" + rung(options->value_rung)};
      options->has_plan = true;
    }
    if (options->tokens == -1 && command->count("--tokens") > 0) options->tokens = kMostTokens;
    options->command = varve::cli::CommandLine();
    const bool is_comparison = options->plans.size() > 1 || !options->report.empty();
    const auto run = !options->prompts.empty() ? varve::cli::RunPrompts
                     : !options->turns.empty() ? varve::cli::RunTurns
                     : is_comparison           ? varve::cli::RunCompare
                                               : varve::cli::RunText;
    const varve::Status status = run(*options);
    if (!status.ok()) *exit_code = varve::cli::ReportError(status);
  });
}
