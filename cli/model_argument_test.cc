#include "cli/model_argument.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/report/command_words.h"
#include "runtime/kernels/linear.h"
#include "tests/tiny_model.h"

namespace varve::cli {
namespace model_argument_test {

void ExpectRefused(const std::string& path, const std::string& message) {
  const Status status = LoadModel(path).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
  EXPECT_NE(status.message().find(path), std::string::npos) << status.message();
}

TEST(ModelArgument, AnEmptyNameIsNotTheEmbeddedModel) {
  CLI::App app;
  std::string path;
  AddModelOption(app, path);
  EXPECT_THROW(app.parse(std::vector<std::string>{"", "-m"}), CLI::ParseError);
  app.clear();
  EXPECT_NO_THROW(app.parse(std::vector<std::string>{"x.gguf", "-m"}));
  EXPECT_EQ(path, "x.gguf");
}

TEST(ModelArgument, RefusesATokenizerWithMoreTokensThanTheModel) {
  const TempFolder folder;
  TinyModelOptions options;
  options.spare_tokens = 2;
  TinyModel(options).Write(folder.File("spare.gguf"));
  ExpectRefused(folder.File("spare.gguf"),
                "the tokenizer has 260 tokens, the model's vocabulary 258");
}

TEST(ModelArgument, ErrorsOfTheTokenizerNameTheFile) {
  const TempFolder folder;
  TinyModelOptions options;
  options.spare_types = 1;
  TinyModel(options).Write(folder.File("types.gguf"));
  ExpectRefused(folder.File("types.gguf"), "tokenizer.ggml.token_type: 259 values");
}

TEST(ModelArgument, ATextThatIsNotThereIsNotFound) {
  EXPECT_EQ(ReadTextFile("no/such/file").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(LoadModel("no/such/file").status().code(), StatusCode::kNotFound);
}

// The commands that have --precision, and its choices.
std::vector<std::pair<std::string, std::vector<std::string>>> PrecisionChoices(
    const CLI::App& app) {
  std::vector<std::pair<std::string, std::vector<std::string>>> found;
  ForEachCommand(WordsOf(app), [&](const CommandWords& command) {
    for (const OptionWords& option : command.options) {
      if (option.names.back() == "--precision") found.emplace_back(command.path, option.choices);
    }
  });
  return found;
}

// What is wrong with the option, of a command line that is wrong in any case: no command runs.
std::string ErrorOfPrecision(CLI::App& app, const std::string& command, const std::string& value) {
  app.clear();
  try {
    app.parse(fmt::format("{} --precision {} --no-such-option", command, value));
  } catch (const CLI::ValidationError& error) {
    return error.what();
  } catch (const CLI::ParseError&) {
  }
  return "";
}

TEST(PrecisionOption, EveryCommandListsItsChoicesAndRefusesOtherWords) {
  CLI::App app;
  int exit_code = 0;
  AddBenchCommand(app, &exit_code);
  AddEvalCommand(app, &exit_code);
  AddRunCommand(app, &exit_code);
  AddServeCommand(app, &exit_code);
  AddSolveCommand(app, &exit_code);
  AddTranscribeCommand(app, &exit_code);
  std::vector<std::string> commands;
  for (const auto& [command, choices] : PrecisionChoices(app)) {
    SCOPED_TRACE(command);
    commands.push_back(command);
    const bool has_auto = !choices.empty() && choices.front() == "auto";
    const std::string expected = has_auto ? "auto,f32,i16,bf16" : "f32,i16,bf16";
    EXPECT_EQ(fmt::format("{}", fmt::join(choices, ",")), expected);
    EXPECT_EQ(ErrorOfPrecision(app, command, "f32"), "");
    EXPECT_EQ(ErrorOfPrecision(app, command, "f16"), "--precision: f16 not in {" + expected + "}");
  }
  EXPECT_EQ(commands, (std::vector<std::string>{"bench weights", "eval ppl", "eval kl",
                                                "eval recall", "eval policies", "eval wer", "run",
                                                "serve", "solve", "transcribe"}));
}

TEST(PrecisionOption, Bf16IsRefusedWhereThereIsNoAmx) {
  const CLI::Validator validator = PrecisionValidator(/*with_auto=*/true);
  EXPECT_EQ(validator(std::string("auto")), "");
  EXPECT_EQ(validator(std::string("i16")), "");
  EXPECT_EQ(validator(std::string("bf16")), CheckPrecision(ProductPrecision::kBF16).message());
}

}  // namespace model_argument_test
}  // namespace varve::cli
