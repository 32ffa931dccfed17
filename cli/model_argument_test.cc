#include "cli/model_argument.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

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

}  // namespace model_argument_test
}  // namespace varve::cli
