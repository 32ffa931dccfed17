#include "cli/gate/gate_prompts.h"

#include <gtest/gtest.h>

#include <fstream>

#include <fmt/format.h>

#include "cli/gate/gate_files.h"
#include "cli/model_argument.h"
#include "kernels/content_hash.h"
#include "runtime/embedded_model.h"
#include "tests/tiny_model.h"

namespace varve::cli {
namespace gate_prompts_test {

class GatePrompts : public ::testing::Test {
 protected:
  GatePrompts() {
    TinyModel().Write(folder_.File("tiny.gguf"));
    Result<LoadedModel> loaded = LoadModel(folder_.File("tiny.gguf"));
    model_ = std::move(*loaded);
    wanted_.buckets = {8, 16};
    wanted_.reply_tokens = 4;
  }
  std::string Manifest(const std::string& hash, size_t bytes) const {
    return fmt::format(R"({{"passages": [{{"name": "p", "bucket": 8, "offset": 2, "bytes": {},
                            "hash": "{}", "source": "s"}}]}})",
                       bytes, hash);
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.File(name)) << text;
    return folder_.File(name);
  }

  TempFolder folder_;
  LoadedModel model_;
  GatePromptOptions wanted_;
};

TEST_F(GatePrompts, APassageIsThePromptAndWhatFollowsIt) {
  const std::string text = "xxabcdefghijklmnop";
  const std::string hash = fmt::format("{:016x}", HashBytes(text.data() + 2, 14));
  wanted_.buckets = {8};
  const auto prompts = PassagePrompts(*model_.tokenizer, Manifest(hash, 14), text, wanted_);
  ASSERT_TRUE(prompts.ok()) << prompts.status().message();
  ASSERT_EQ(prompts->size(), 1u);
  const GatePrompt& prompt = prompts->front();
  EXPECT_EQ(prompt.turns[0].tokens.size(), 8u);  // BOS and seven letters
  EXPECT_EQ(prompt.turns[0].reply.size(), 4u);
  EXPECT_EQ(prompt.end_tokens(), 12);
}

TEST_F(GatePrompts, AChangedTextIsNoticedByItsHash) {
  wanted_.buckets = {8};
  const auto prompts =
      PassagePrompts(*model_.tokenizer, Manifest("00", 14), "xxabcdefghijklmnop", wanted_);
  ASSERT_FALSE(prompts.ok());
  EXPECT_NE(prompts.status().message().find("the manifest has 00"), std::string::npos);
  EXPECT_FALSE(PassagePrompts(*model_.tokenizer, Manifest("00", 99), "xxabcdefgh", wanted_).ok());
}

TEST_F(GatePrompts, TheShippedManifestFitsTheShippedText) {
  const std::vector<GateFile> files = EmbeddedGateFiles();
  ASSERT_EQ(files.back().name, "prompts/manifest.json");
  wanted_.buckets = {128, 512, 2048};
  wanted_.per_bucket = 3;
  const auto prompts =
      PassagePrompts(*model_.tokenizer, files.back().text, EmbeddedEvalText(), wanted_);
  ASSERT_TRUE(prompts.ok()) << prompts.status().message();
  EXPECT_EQ(prompts->size(), 9u);
}

TEST_F(GatePrompts, ABucketThatIsNotShippedIsNamed) {
  const std::vector<GateFile> files = EmbeddedGateFiles();
  wanted_.buckets = {300};
  const auto prompts =
      PassagePrompts(*model_.tokenizer, files.back().text, EmbeddedEvalText(), wanted_);
  ASSERT_FALSE(prompts.ok());
  EXPECT_NE(prompts.status().message().find("bucket 300"), std::string::npos);
}

TEST_F(GatePrompts, AFileGoesIntoTheLargestBucketThatItFills) {
  Write("a.txt", "short");
  Write("b.txt", std::string(40, 'x'));
  Write("c.txt", std::string(9, 'x'));
  std::remove(folder_.File("tiny.gguf").c_str());
  const auto prompts = FolderPrompts(*model_.tokenizer, folder_.path(), wanted_);
  ASSERT_TRUE(prompts.ok()) << prompts.status().message();
  ASSERT_EQ(prompts->size(), 3u);
  EXPECT_EQ((*prompts)[0].bucket, "8");
  EXPECT_EQ((*prompts)[1].bucket, "8");
  EXPECT_EQ((*prompts)[2].bucket, "16");
  EXPECT_EQ((*prompts)[2].name, "b.txt");
}

TEST_F(GatePrompts, ConversationsThatAreNoneAreRefused) {
  for (const char* text :
       {"{}", "[]", "[1]", R"([{"turns": []}])", R"([{"turns": [1]}])",
        R"([{"turns": ["a"], "reply_tokens": "x"}])", R"([{"turns": ["a"], "reply_tokens": 0}])",
        R"([{"turns": ["a"], "name": 3}])"}) {
    EXPECT_FALSE(TurnPrompts(*model_.tokenizer, Write("t.json", text), wanted_).ok()) << text;
  }
  const auto good =
      TurnPrompts(*model_.tokenizer, Write("t.json", R"([{"turns": ["ab", "c"]}])"), wanted_);
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_EQ(good->front().turns[0].tokens.size(), 3u);  // BOS once
  EXPECT_EQ(good->front().turns[1].tokens.size(), 1u);
  EXPECT_EQ(good->front().turns[1].reply_tokens, 4);
}

}  // namespace gate_prompts_test
}  // namespace varve::cli
