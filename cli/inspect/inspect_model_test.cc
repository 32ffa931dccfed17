#include "cli/inspect/inspect_model.h"

#include <gtest/gtest.h>

#include "cli/inspect/model_lists.h"
#include "cli/inspect/model_summary.h"
#include "cli/report/output.h"
#include "tests/gguf_testing.h"

namespace varve::cli {
namespace inspect_model_test {

using Json = nlohmann::ordered_json;

GgufBuilder SmallModel() {
  return GgufBuilder()
      .String("general.architecture", "llama")
      .String("general.name", "small\x1b[31m")
      .Int("llama.context_length", 4096)
      .Int("llama.block_count", 3)
      .Int("llama.embedding_length", 256)
      .Int("llama.feed_forward_length", 704)
      .Int("llama.attention.head_count", 4)
      .Int("llama.attention.head_count_kv", 2)
      .String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "llama-bpe")
      .Strings("tokenizer.ggml.tokens", {"a", "b\n", "▁c", "d", "e", "f", "g", "h", "i"})
      .String("tokenizer.chat_template", "{{'<|im_start|>' + role}}<|im_end|>")
      .Tensor("big", {256, 10}, WeightType::kQ8_0, TensorBytes({256, 10}, WeightType::kQ8_0))
      .TensorF32("norm", {256}, std::vector<float>(256));
}

// Keeps the bytes that the file is a view of.
struct Model {
  explicit Model(const GgufBuilder& builder)
      : bytes(builder.Build()), file(*GgufFile::FromMemory(bytes, "model.gguf")) {}
  std::vector<std::byte> bytes;
  std::shared_ptr<const GgufFile> file;
};

TEST(InspectModel, SaysWhatTheFileSays) {
  const Model model(SmallModel());
  const ModelSummary summary = SummarizeModel(*model.file);
  EXPECT_EQ(summary.architecture, "llama");
  EXPECT_EQ(summary.name, "small\\x1b[31m");
  EXPECT_EQ(summary.types.parameters(), 256u * 11);
  EXPECT_EQ(summary.context, 4096);
  EXPECT_EQ(summary.heads, 4);
  EXPECT_EQ(summary.kv_heads, std::vector<int64_t>{2});
  EXPECT_EQ(summary.key_dim, 64);
  EXPECT_EQ(summary.kv_bytes_per_token, 3u * 2 * (64 + 64) * 2);
  EXPECT_EQ(summary.tokenizer, "gpt2");
  EXPECT_EQ(summary.vocab_size, 9u);
  EXPECT_TRUE(summary.has_chat_template);
  EXPECT_EQ(summary.chat_template_error, "");
  const std::vector<TypeShare> types = summary.types.Sorted();
  ASSERT_EQ(types.size(), 2u);
  EXPECT_EQ(types[0].type, WeightType::kQ8_0);
  EXPECT_EQ(types[0].bytes, 10u * 8 * 34);
  EXPECT_EQ(types[1].parameters, 256u);
}

TEST(InspectModel, RendersOneLineForEachFact) {
  const Model model(SmallModel());
  const std::string text = RenderSummary(SummarizeModel(*model.file), /*colour=*/false);
  for (const char* line :
       {"architecture  llama\n", "context       4096\n",
        "layers        3 of width 256, feed-forward 704\n",
        "heads         4 on 2 KV heads, dim 64\n",
        "KV cache      1.50 KiB per token in f16, 6.00 MiB at 4096 tokens\n",
        "tokenizer     gpt2 (pre llama-bpe), 9 tokens\n", "chat          a template\n",
        "parameters    2.82 K\n", "hash          xxh3:"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "in\n" << text;
  }
}

TEST(InspectModel, SaysWhyATemplateCannotBeRun) {
  const Model model(
      GgufBuilder().String("tokenizer.chat_template", "{{ x }}\n{% include 'other' %}"));
  const std::string text = RenderSummary(SummarizeModel(*model.file), /*colour=*/false);
  EXPECT_NE(
      text.find("chat          a template that cannot be run: tokenizer.chat_template: line 2: "
                "the statement {% include %} is not supported\n"),
      std::string::npos)
      << text;
}

TEST(InspectModel, HeadsMayDifferByLayerAndByPart) {
  const Model model(GgufBuilder()
                        .String("general.architecture", "odd")
                        .Int("odd.block_count", 3)
                        .Int("odd.attention.head_count", 8)
                        .Ints("odd.attention.head_count_kv", {2, 0, 4})
                        .Int("odd.attention.key_length", 192)
                        .Int("odd.attention.value_length", 128));
  const ModelSummary summary = SummarizeModel(*model.file);
  EXPECT_EQ(summary.kv_bytes_per_token, (2u + 0 + 4) * (192 + 128) * 2);
  const std::string text = RenderSummary(summary, /*colour=*/false);
  EXPECT_NE(text.find("8 on 0 to 4 KV heads, dim 192 (K) and 128 (V)\n"), std::string::npos)
      << text;
}

TEST(InspectModel, WhatIsMissingOrMakesNoSenseIsNotGuessed) {
  const Model empty((GgufBuilder()));
  EXPECT_NE(RenderSummary(SummarizeModel(*empty.file), false).find("KV cache      ?\n"),
            std::string::npos);
  const int64_t most = int64_t{1} << 31;
  const Model huge(GgufBuilder()
                       .String("general.architecture", "x")
                       .Int("x.block_count", most)
                       .Int("x.attention.head_count", most)
                       .Int("x.attention.key_length", most)
                       .Int("x.attention.value_length", most));
  EXPECT_FALSE(SummarizeModel(*huge.file).kv_bytes_per_token.has_value());
  const Model wrong(GgufBuilder()
                        .String("general.architecture", "x")
                        .Int("x.block_count", 2)
                        .Int("x.embedding_length", 64)
                        .Int("x.attention.head_count", 0)
                        .Ints("x.attention.head_count_kv", {1, -1})
                        .String("x.context_length", "long"));
  const ModelSummary summary = SummarizeModel(*wrong.file);
  EXPECT_FALSE(summary.heads.has_value());
  EXPECT_FALSE(summary.context.has_value());
  EXPECT_TRUE(summary.kv_heads.empty());
  EXPECT_FALSE(summary.kv_bytes_per_token.has_value());
}

TEST(InspectModel, LatentAttentionHasNoOrdinaryCache) {
  const Model model(GgufBuilder()
                        .String("general.architecture", "x")
                        .Int("x.block_count", 1)
                        .Int("x.embedding_length", 64)
                        .Int("x.attention.head_count", 1)
                        .Int("x.attention.kv_lora_rank", 512));
  EXPECT_FALSE(SummarizeModel(*model.file).kv_bytes_per_token.has_value());
}

TEST(InspectModel, ListsCutWhatIsLong) {
  const Model model(SmallModel().Bools("flags", {true, false}).Float("eps", 1e-5));
  const std::string metadata = MetadataTable(*model.file).Render(/*colour=*/false);
  EXPECT_NE(metadata.find("a, b\\n, ▁c, d, e, f, g, h, …\n"), std::string::npos) << metadata;
  EXPECT_NE(metadata.find("true, false\n"), std::string::npos) << metadata;
  EXPECT_NE(metadata.find("f32  1e-05\n"), std::string::npos) << metadata;
  const std::string tensors = TensorTable(*model.file).Render(/*colour=*/false);
  EXPECT_NE(tensors.find("256 × 10  2.66 KiB\n"), std::string::npos) << tensors;
  const Json rows = MetadataJson(*model.file);
  EXPECT_EQ(rows[2]["value"], 4096);
  EXPECT_EQ(rows[10]["count"], 9);
  EXPECT_EQ(rows[10]["value"].size(), 8u);
  EXPECT_EQ(TensorJson(*model.file)[0]["dims"], Json::array({256, 10}));
}

TEST(InspectModel, FilesThatAreNoModelEndWithTheExitCodeOfTheirFault) {
  const TempFolder folder;
  InspectModelOptions options;
  options.path = folder.File("gone.gguf");
  EXPECT_EQ(InspectModel(options), kExitNotFound);
  options.path = folder.File("text.gguf");
  WriteBytes(options.path, std::as_bytes(std::span("hello")));
  testing::internal::CaptureStderr();
  EXPECT_EQ(InspectModel(options), kExitBadUsage);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("begins with \"hello\\x00\""),
            std::string::npos);
}

}  // namespace inspect_model_test
}  // namespace varve::cli
