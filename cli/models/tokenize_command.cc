// `varve tokenize`: the tokens of a text, as a model sees it.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/quoted.h"
#include "cli/commands.h"
#include "cli/model_argument.h"
#include "cli/report/output.h"

namespace varve::cli {
namespace {

struct TokenizeOptions {
  std::string model;
  std::vector<std::string> words;
  std::string file;
  bool ids = false;
  bool count = false;
  bool special = false;
  bool no_bos = false;
};

Status Tokenize(const TokenizeOptions& options) {
  std::string text = fmt::format("{}", fmt::join(options.words, " "));
  if (options.words.empty()) {
    VARVE_ASSIGN_OR_RETURN(text, ReadTextFile(options.file.empty() ? "-" : options.file));
  }
  VARVE_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(options.model));
  EncodeOptions encode;
  encode.add_special = !options.no_bos;
  encode.parse_special = options.special;
  const std::vector<int32_t> tokens = model.tokenizer->Encode(text, encode);
  if (options.count) {
    fmt::print("{}\n", tokens.size());
  } else if (options.ids) {
    fmt::print("[{}]\n", fmt::join(tokens, ", "));
  } else {
    for (const int32_t token : tokens) {
      fmt::print("{:>7} {}\n", token, Quoted(model.tokenizer->TokenBytes(token, true)));
    }
  }
  return Status();
}

}  // namespace
}  // namespace varve::cli

void AddTokenizeCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("tokenize", "The tokens of a text, as a model sees it");
  auto options = std::make_shared<varve::cli::TokenizeOptions>();
  varve::cli::AddModelOption(*command, options->model);
  CLI::Option* text =
      command->add_option("TEXT", options->words, "Text (several words: with a blank between)");
  command->add_option("-f,--file", options->file, "Text from a file, - for stdin (the default)")
      ->type_name("FILE")
      ->excludes(text);
  CLI::Option* ids = command->add_flag("--ids", options->ids, "Numbers only, as a list");
  command->add_flag("--count", options->count, "How many there are, only")->excludes(ids);
  command->add_flag("--special", options->special,
                    "What the text spells as special tokens (\"<|im_end|>\") are such tokens");
  command->add_flag("--no-bos", options->no_bos, "No token that begins a text");
  command->footer(
      "One line a token: its number and its bytes.\n\n"
      "Examples:\n"
      "  varve tokenize 'The old house stood'\n"
      "  varve tokenize -m smollm2 --special '<|im_start|>user' --ids\n"
      "  varve tokenize -f story.txt --count");
  command->callback(varve::cli::Action(options, varve::cli::Tokenize, exit_code));
}
