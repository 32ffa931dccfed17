// The tokenizers and chat formats against the reference implementations; the files come from
// tools/make_tokenizer_golden.py.

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "runtime/tokenizer/chat_template.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tests/gguf_testing.h"
#include "tests/test_data.h"

namespace varve {
namespace tokenizer_golden_test {

const std::string kFolder = TestDataPath("tokenizer/");

std::unique_ptr<Tokenizer> Load(const std::string& name) {
  Result<std::shared_ptr<const GgufFile>> file = GgufFile::Open(kFolder + name + ".gguf");
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  if (!file.ok()) return nullptr;
  Result<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(**file);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
}

nlohmann::json Cases(const std::string& name) {
  std::ifstream stream(kFolder + name + ".json");
  return nlohmann::json::parse(stream);
}

class TokenizerGolden : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerGolden, GivesTheIdsOfTheReference) {
  const std::unique_ptr<Tokenizer> tokenizer = Load(GetParam());
  ASSERT_NE(tokenizer, nullptr);
  const nlohmann::json cases = Cases(GetParam());
  ASSERT_GE(cases.size(), 34u);
  for (const auto& golden : cases) {
    EncodeOptions options;
    options.add_special = false;
    options.parse_special = golden["parse_special"].get<bool>();
    EXPECT_EQ(tokenizer->Encode(golden["text"].get<std::string>(), options),
              golden["ids"].get<std::vector<int32_t>>())
        << golden["name"] << (options.parse_special ? ", special parsed" : "");
  }
}

TEST_P(TokenizerGolden, DecodesToTheText) {
  const std::string name = GetParam();
  if (name == "spm-tidy") GTEST_SKIP() << "normalises blanks, has no bytes";
  const std::unique_ptr<Tokenizer> tokenizer = Load(name);
  ASSERT_NE(tokenizer, nullptr);
  for (const auto& golden : Cases(name)) {
    const std::string text = golden["text"].get<std::string>();
    const bool parse_special = golden["parse_special"].get<bool>();
    if (name.starts_with("spm") && (parse_special || golden["name"] == "blank symbol")) continue;
    const EncodeOptions options = {.add_special = !parse_special, .parse_special = parse_special};
    const std::vector<int32_t> ids = tokenizer->Encode(text, options);
    const std::string decoded = tokenizer->Decode(ids, /*show_special=*/parse_special);
    EXPECT_EQ(decoded, text) << golden["name"];
    TextStream stream(*tokenizer);
    std::string streamed;
    for (const int32_t id : tokenizer->Encode(text, {})) streamed += stream.Next(id);
    streamed += stream.Finish();
    EXPECT_EQ(streamed, text) << golden["name"];
  }
}

INSTANTIATE_TEST_SUITE_P(Files, TokenizerGolden,
                         testing::Values("gpt-2", "llama-bpe", "qwen2", "smollm", "spm-llama",
                                         "spm-gemma", "spm-tidy"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(ChatTemplate, WritesWhatTheTemplatesOfTheFamiliesWrite) {
  const nlohmann::json cases = Cases("chat");
  ASSERT_GE(cases.size(), 26u);
  for (const auto& golden : cases) {
    std::vector<ChatMessage> messages;
    for (const auto& message : golden["messages"]) {
      messages.push_back(
          {message["role"].get<std::string>(), message["content"].get<std::string>()});
    }
    const std::string format = golden["format"].get<std::string>();
    // What transformers makes of the family's template: we run the same one, and ours of that name
    // writes the same behind BOS.
    const std::string expected = golden["prompt"].get<std::string>();
    for (const auto& made :
         {ChatTemplate::Parse(golden["template"].get<std::string>(), {"<s>", "</s>"}),
          ChatTemplate::BuiltIn(format, {"<s>", "</s>"})}) {
      ASSERT_TRUE(made.ok()) << made.status().ToString();
      const Result<ChatPrompt> prompt = made->Render({messages});
      ASSERT_TRUE(prompt.ok()) << prompt.status().ToString();
      const size_t bos = made->HasBos(*prompt) ? 3 : 0;
      EXPECT_EQ(prompt->text.substr(bos), expected) << format;
    }
  }
}

}  // namespace tokenizer_golden_test
}  // namespace varve
