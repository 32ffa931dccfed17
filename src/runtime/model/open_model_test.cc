#include "runtime/model/open_model.h"

#include <gtest/gtest.h>

#include "tests/cache_testing.h"
#include "tests/tiny_model.h"

namespace varve {
namespace open_model_test {

TEST(OpenModel, AFileSaysWhatItsModelIs) {
  const TempFolder folder;
  TinyModel().Write(folder.File("tiny.gguf"));
  const auto model = OpenDecoderModel(folder.File("tiny.gguf"));
  ASSERT_OK(model.status());
  const DecoderInfo& info = (*model)->info();
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_EQ(info.name, "tiny");
  EXPECT_EQ(info.source, folder.File("tiny.gguf"));
  EXPECT_EQ(info.shape.num_layers, 2);
  EXPECT_EQ(info.vocab_size, 258);
  EXPECT_EQ(info.context, kTinyContext);
  EXPECT_NE(info.fingerprint, 0u);
  EXPECT_GT(info.weight_bytes_per_token, 0u);
  const auto tokenizer = (*model)->MakeTokenizer();
  ASSERT_OK(tokenizer.status());
  EXPECT_EQ((*tokenizer)->vocab_size(), 258);
}

TEST(OpenModel, RefusesATokenizerThatKnowsMoreTokensThanTheModel) {
  const std::vector<std::byte> bytes = TinyModel({.spare_tokens = 1}).Build();
  const auto model = LoadDecoderModel(*GgufFile::FromMemory(bytes, "spare"));
  ASSERT_OK(model.status());
  EXPECT_EQ((*model)->MakeTokenizer().status().message(),
            "spare: the tokenizer has 259 tokens, the model's vocabulary 258");
}

TEST(OpenModel, NamesTheArchitecturesThatAreBuiltIn) {
  GgufBuilder builder;
  builder.String("general.architecture", "mamba");
  const std::vector<std::byte> bytes = builder.Build();
  const Status status = LoadDecoderModel(*GgufFile::FromMemory(bytes, "other")).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            "other: general.architecture \"mamba\" is not built in; these are: llama, mistral, "
            "qwen2, qwen3, gemma2, gemma3");
}

TEST(OpenModel, AFileWithoutAnArchitectureIsRefusedByName) {
  GgufBuilder builder;
  builder.String("general.name", "nothing");
  const std::vector<std::byte> bytes = builder.Build();
  EXPECT_EQ(LoadDecoderModel(*GgufFile::FromMemory(bytes, "bare")).status().message(),
            "bare: key \"general.architecture\" is missing");
  EXPECT_EQ(LoadDecoderModel(nullptr).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenDecoderModel("/no/such.gguf").status().code(), StatusCode::kNotFound);
}

TEST(OpenModel, NamesTheShapesOfRandomModels) {
  EXPECT_EQ(RandomModelNames(), "qwen3-0.6b, small-1024, deep-512, llama-3.1-8b");
  const Status status = RandomDecoderModel("gpt-5", WeightType::kQ8_0, 1).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(),
            "random model \"gpt-5\": known are qwen3-0.6b, small-1024, deep-512, llama-3.1-8b");
}

}  // namespace open_model_test
}  // namespace varve
