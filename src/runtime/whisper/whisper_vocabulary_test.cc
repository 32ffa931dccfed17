// The golden file comes from tools/make_whisper_vocabulary_golden.py.

#include "runtime/whisper/whisper_vocabulary.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/embedded_model.h"
#include "runtime/whisper/whisper_languages.h"
#include "runtime/whisper/whisper_tokens.h"
#include "tests/test_data.h"

namespace varve {
namespace whisper_vocabulary_test {

WhisperVocabulary Load(int vocab, std::vector<std::string> tokens = {}) {
  WhisperConfig config;
  config.vocab = vocab;
  Result<WhisperVocabulary> vocabulary = WhisperVocabulary::Create(config, std::move(tokens));
  EXPECT_TRUE(vocabulary.ok()) << vocabulary.status().message();
  return *std::move(vocabulary);
}

Status ErrorOf(int vocab, std::vector<std::string> tokens) {
  WhisperConfig config;
  config.vocab = vocab;
  return WhisperVocabulary::Create(config, std::move(tokens)).status();
}

class WhisperVocabularyGolden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::ifstream stream(TestDataPath("whisper/vocabulary.json"));
    golden_ = nlohmann::json::parse(stream).at(GetParam());
  }
  nlohmann::json golden_;
};

TEST_P(WhisperVocabularyGolden, EncodesAndDecodesAsTheReference) {
  const WhisperVocabulary vocabulary = Load(golden_.at("vocab"));
  ASSERT_GE(golden_.at("cases").size(), 40u);
  for (const auto& one : golden_.at("cases")) {
    const auto text = one.at("text").get<std::string>();
    const auto ids = one.at("ids").get<std::vector<int32_t>>();
    EXPECT_EQ(vocabulary.Encode(text), ids) << text;
    EXPECT_EQ(vocabulary.Decode(ids), text);
  }
}

TEST_P(WhisperVocabularyGolden, SpecialIdsAreThoseOfTheReference) {
  const WhisperVocabulary vocabulary = Load(golden_.at("vocab"));
  const nlohmann::json& special = golden_.at("special");
  EXPECT_EQ(vocabulary.end_of_text(), special.at("end_of_text"));
  EXPECT_EQ(vocabulary.start(), special.at("start"));
  EXPECT_EQ(vocabulary.translate(), special.at("translate"));
  EXPECT_EQ(vocabulary.transcribe(), special.at("transcribe"));
  EXPECT_EQ(vocabulary.start_of_previous(), special.at("start_of_previous"));
  EXPECT_EQ(vocabulary.start_of_lm(), special.at("start_of_lm"));
  EXPECT_EQ(vocabulary.no_speech(), special.at("no_speech"));
  EXPECT_EQ(vocabulary.no_timestamps(), special.at("no_timestamps"));
  EXPECT_EQ(vocabulary.first_timestamp(), special.at("first_timestamp"));
  EXPECT_EQ(vocabulary.first_timestamp() + 1501, golden_.at("vocab"));
  if (vocabulary.languages().empty()) return;
  EXPECT_EQ(vocabulary.LanguageToken(*vocabulary.FindLanguage("de")), special.at("german"));
}

TEST_P(WhisperVocabularyGolden, WhatIsNotSpokenIsTheReferencesList) {
  const WhisperVocabulary vocabulary = Load(golden_.at("vocab"));
  const std::span<const int32_t> ids = vocabulary.non_speech();
  EXPECT_EQ(std::vector<int32_t>(ids.begin(), ids.end()),
            golden_.at("non_speech").get<std::vector<int32_t>>());
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, WhisperVocabularyGolden,
                         testing::Values("english", "multilingual", "large-v3"));

TEST(WhisperVocabulary, SpecialTokensAndTimesGiveNoText) {
  const WhisperVocabulary vocabulary = Load(51865);
  std::vector<int32_t> ids = {vocabulary.start(), vocabulary.LanguageToken(2),
                              vocabulary.transcribe(), vocabulary.first_timestamp()};
  for (const int32_t id : vocabulary.Encode(" Guten Tag")) ids.push_back(id);
  ids.insert(ids.end(), {vocabulary.first_timestamp() + 1500, vocabulary.end_of_text(), -1});
  EXPECT_EQ(vocabulary.Decode(ids), " Guten Tag");
  EXPECT_TRUE(vocabulary.IsTimestamp(vocabulary.first_timestamp()));
  EXPECT_FALSE(vocabulary.IsTimestamp(vocabulary.no_timestamps()));
  EXPECT_FALSE(vocabulary.IsText(vocabulary.end_of_text()));
}

TEST(WhisperVocabulary, BytesThatAreNoUtf8RoundTrip) {
  const WhisperVocabulary vocabulary = Load(51864);
  std::string text;
  for (int i = 0; i < 256; ++i) text += static_cast<char>(i);
  EXPECT_EQ(vocabulary.Decode(vocabulary.Encode(text)), text);
}

TEST(WhisperVocabulary, LanguagesAreFoundByCodeNameAndOtherName) {
  const WhisperVocabulary vocabulary = Load(51865);
  ASSERT_EQ(vocabulary.languages().size(), 99u);
  EXPECT_EQ(*vocabulary.FindLanguage("en"), 0);
  EXPECT_EQ(*vocabulary.FindLanguage("German"), 2);
  EXPECT_EQ(*vocabulary.FindLanguage("DE"), 2);
  EXPECT_EQ(*vocabulary.FindLanguage("mandarin"), *vocabulary.FindLanguage("zh"));
  EXPECT_EQ(vocabulary.languages()[98].name, "sundanese");
  const Status unknown = vocabulary.FindLanguage("klingon").status();
  EXPECT_EQ(unknown.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(unknown.message().find("\"klingon\""), std::string::npos);
  EXPECT_NE(unknown.message().find(" en zh de"), std::string::npos);
  EXPECT_FALSE(vocabulary.FindLanguage("yue").ok());  // large-v3 alone
  EXPECT_EQ(*Load(51866).FindLanguage("cantonese"), 99);
  EXPECT_EQ(Load(51864).FindLanguage("en").status().message(),
            "language \"en\": the model knows English alone");
}

TEST(WhisperVocabulary, AFilesOwnTokensCount) {
  std::vector<std::string> tokens = *WhisperTokens(false);
  std::swap(tokens[40], tokens[41]);
  tokens.emplace_back("<|endoftext|>");
  const WhisperVocabulary vocabulary = Load(51864, tokens);
  EXPECT_EQ(vocabulary.Encode(Load(51864).Decode(std::vector<int32_t>{40})),
            std::vector<int32_t>{41});
  EXPECT_EQ(vocabulary.Encode("<|endoftext|>").size(), 7u);
}

TEST(WhisperVocabulary, RefusesListsAndSizesThatAreNotWhispers) {
  EXPECT_NE(ErrorOf(51863, {}).message().find("n_vocab 51863 < 51864"), std::string::npos);
  EXPECT_NE(ErrorOf(51867, {}).message().find("101 languages > 100"), std::string::npos);
  EXPECT_NE(ErrorOf(51864, {"a", " "}).message().find("2 tokens < 50256"), std::string::npos);
  EXPECT_EQ(ErrorOf(51864, std::vector<std::string>(50256)).message(),
            "no token is a single space");
}

TEST(WhisperTokens, RefusesWhatIsDamaged) {
  const std::span<const std::byte> frame = EmbeddedWhisperTokens(true);
  EXPECT_EQ(UnpackWhisperTokens(frame)->size(), 50257u);
  EXPECT_EQ(UnpackWhisperTokens(frame.first(100)).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(UnpackWhisperTokens(frame.first(2)).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(UnpackWhisperTokens({}).status().code(), StatusCode::kDataLoss);
}

}  // namespace whisper_vocabulary_test
}  // namespace varve
