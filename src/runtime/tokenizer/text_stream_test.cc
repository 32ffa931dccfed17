// TextStream and the UTF-8 reader below it.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "runtime/tokenizer/byte_alphabet.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tests/test_data.h"

namespace varve {
namespace text_stream_test {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

std::unique_ptr<Tokenizer> Load(const std::string& name) {
  auto file = GgufFile::Open(TestDataPath("tokenizer/" + name + ".gguf"));
  EXPECT_TRUE(file.ok()) << file.status().ToString();
  auto tokenizer = Tokenizer::Create(**file);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  return std::move(tokenizer).value();
}

// One token per byte.
std::vector<int32_t> ByteTokens(const Tokenizer& tokenizer, std::string_view bytes) {
  std::vector<int32_t> ids;
  for (const char c : bytes) ids.push_back(tokenizer.Find(BytesToAlphabet({&c, 1})));
  return ids;
}

TEST(TextStream, WaitsUntilACharacterIsComplete) {
  const std::unique_ptr<Tokenizer> tokenizer = Load("gpt-2");
  TextStream stream(*tokenizer);
  std::vector<std::string> pieces;
  for (const int32_t id : ByteTokens(*tokenizer, "a\xC3\xA4\xF0\x9F\x98\x80.")) {
    pieces.push_back(stream.Next(id));
  }
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "", "ä", "", "", "", "😀", "."}));
  EXPECT_EQ(stream.Finish(), "");
}

TEST(TextStream, InvalidBytesAreReplacedAsSoonAsTheyAreKnownToBe) {
  const std::unique_ptr<Tokenizer> tokenizer = Load("gpt-2");
  const std::string fffd = kReplacement;
  const std::pair<std::string, std::string> cases[] = {
      {"\xFFz", fffd + "z"},
      {"\xE2\x82z", fffd + "z"},             // cut after two: one
      {"\xC0\x80", fffd + fffd},             // overlong: neither byte starts or goes on
      {"\xED\xA0\x80", fffd + fffd + fffd},  // surrogate
      {"\xF0\x9F\x98", fffd},                // ends inside
      {"\xF0\x9F\xC3\xA4", fffd + "ä"},
  };
  for (const auto& [bytes, expected] : cases) {
    TextStream stream(*tokenizer);
    std::string text;
    for (const int32_t id : ByteTokens(*tokenizer, bytes)) text += stream.Next(id);
    text += stream.Finish();
    EXPECT_EQ(text, expected);
  }
  TextStream stream(*tokenizer);
  const std::vector<int32_t> ids = ByteTokens(*tokenizer, "\xE2z");
  EXPECT_EQ(stream.Next(ids[0]), "");
  EXPECT_EQ(stream.Next(ids[1]), fffd + "z");
}

TEST(TextStream, TakesOffTheFirstBlankOnly) {
  const std::unique_ptr<Tokenizer> tokenizer = Load("spm-llama");
  TextStream stream(*tokenizer);
  std::string text;
  for (const int32_t id : tokenizer->Encode("the river", {})) text += stream.Next(id);
  for (const int32_t id : tokenizer->Encode("the", {})) text += stream.Next(id);
  EXPECT_EQ(text + stream.Finish(), "the river the");
}

TEST(TextStream, SkipsSpecialTokensAndStrangeIds) {
  const std::unique_ptr<Tokenizer> tokenizer = Load("qwen2");
  TextStream stream(*tokenizer);
  EXPECT_EQ(stream.Next(tokenizer->Find("<|im_end|>")), "");
  EXPECT_EQ(stream.Next(-5), "");
  EXPECT_EQ(stream.Next(tokenizer->vocab_size()), "");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(ByteAlphabet, GoesThereAndBack) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    EXPECT_EQ(AlphabetToBytes(BytesToAlphabet({&c, 1})), std::string(1, c));
  }
  EXPECT_EQ(BytesToAlphabet(" \n"), "ĠĊ");
  EXPECT_EQ(BytesToAlphabet("\xAD\xFF"), "Ńÿ");
  EXPECT_FALSE(AlphabetToBytes("日").has_value());
  EXPECT_FALSE(AlphabetToBytes(" ").has_value());
  EXPECT_FALSE(AlphabetToBytes("\xC3").has_value());
}

}  // namespace text_stream_test
}  // namespace varve
