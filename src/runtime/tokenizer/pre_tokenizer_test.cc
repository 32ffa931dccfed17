#include "runtime/tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace varve {
namespace pre_tokenizer_test {

using Words = std::vector<std::string_view>;

const char* const kNames[] = {"default",  "gpt-2", "gpt2",   "llama-bpe", "llama3",
                              "llama-v3", "qwen2", "smollm", "tekken"};

Words Split(std::string_view pre, std::string_view text) {
  Result<std::unique_ptr<PreTokenizer>> pre_tokenizer = PreTokenizer::Create(pre);
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status().ToString();
  return (*pre_tokenizer)->Split(text);
}

TEST(PreTokenizer, DigitsAreWhatTheFamiliesDifferIn) {
  EXPECT_EQ(Split("gpt-2", "in 12345"), (Words{"in", " 12345"}));
  EXPECT_EQ(Split("llama-bpe", "in 12345"), (Words{"in", " ", "123", "45"}));
  EXPECT_EQ(Split("qwen2", "in 123"), (Words{"in", " ", "1", "2", "3"}));
  EXPECT_EQ(Split("smollm", "in 123"), (Words{"in", " ", "1", "2", "3"}));
  EXPECT_EQ(Split("default", "in 12345"), (Words{"in", " ", "123", "45"}));
}

TEST(PreTokenizer, TekkenCutsBeforeCapitals) {
  EXPECT_EQ(Split("tekken", "in 123"), (Words{"in", " ", "1", "2", "3"}));
  EXPECT_EQ(Split("tekken", "camelCase HTMLPage ÄÖüß"),
            (Words{"camel", "Case", " HTMLPage", " ÄÖüß"}));
  EXPECT_EQ(Split("tekken", "don't DON'T"), (Words{"don", "'t", " DON", "'T"}));
  EXPECT_EQ(Split("tekken", "a/b ://\n/x"), (Words{"a", "/b", " ://\n/", "x"}));
  EXPECT_EQ(Split("tekken", "数字 e\u0301E\u0301"), (Words{"数字", " e\u0301", "E\u0301"}));
}

TEST(PreTokenizer, DefaultCutsPunctuationFirst) {
  EXPECT_EQ(Split("gpt-2", "a (b)."), (Words{"a", " (", "b", ")."}));
  EXPECT_EQ(Split("default", "a (b)."), (Words{"a", " ", "(", "b", ")."}));
}

TEST(PreTokenizer, BlanksStayWithTheWordBehindThem) {
  EXPECT_EQ(Split("gpt-2", "a   b"), (Words{"a", "  ", " b"}));
  EXPECT_EQ(Split("qwen2", "a\n\n  b  "), (Words{"a", "\n\n", " ", " b", "  "}));
  EXPECT_EQ(Split("gpt-2", ""), Words{});
}

// U+180E is no blank, U+0085 and U+3000 are.
TEST(PreTokenizer, KnowsTheBlanksOfUnicode) {
  EXPECT_EQ(Split("gpt-2", "a\u180Eb"), (Words{"a", "\u180E", "b"}));
  EXPECT_EQ(Split("gpt-2", "!\u180E!"), (Words{"!\u180E!"}));
  EXPECT_EQ(Split("gpt-2", "!\u3000!\u0085!"), (Words{"!", "\u3000", "!", "\u0085", "!"}));
}

// Each invalid byte is one symbol, as U+FFFD would be.
TEST(PreTokenizer, InvalidBytesAreSymbols) {
  for (const char* name : {"gpt-2", "llama-bpe", "qwen2"}) {
    EXPECT_EQ(Split(name, "a \xFF\xC3 b"), (Words{"a", " \xFF\xC3", " b"})) << name;
    EXPECT_EQ(Split(name, "a \uFFFD\uFFFD b"), (Words{"a", " \uFFFD\uFFFD", " b"})) << name;
  }
}

TEST(PreTokenizer, LosesNoByte) {
  std::mt19937 engine(3);
  const std::string alphabet = "  \n\r\t'sS1239aé\xC3\xE2\x80!?<|>\xFF\xF0";
  for (const char* name : kNames) {
    Result<std::unique_ptr<PreTokenizer>> pre_tokenizer = PreTokenizer::Create(name);
    ASSERT_TRUE(pre_tokenizer.ok());
    for (int i = 0; i < 300; ++i) {
      std::string text;
      for (size_t size = engine() % 60; text.size() < size;) {
        text.push_back(alphabet[engine() % alphabet.size()]);
      }
      std::string joined;
      for (const std::string_view word : (*pre_tokenizer)->Split(text)) {
        EXPECT_FALSE(word.empty());
        joined += word;
      }
      EXPECT_EQ(joined, text) << name;
    }
  }
}

TEST(PreTokenizer, NamesWhatItDoesNotKnow) {
  const auto pre_tokenizer = PreTokenizer::Create("viking");
  ASSERT_FALSE(pre_tokenizer.ok());
  EXPECT_EQ(pre_tokenizer.status().code(), StatusCode::kUnimplemented);
  for (const char* name : kNames) {
    EXPECT_NE(pre_tokenizer.status().message().find(name), std::string::npos) << name;
  }
  const std::string escapes = PreTokenizer::Create("\x1b[2J").status().message();
  EXPECT_NE(escapes.find("\"\\x1b[2J\""), std::string::npos) << escapes;
}

}  // namespace pre_tokenizer_test
}  // namespace varve
