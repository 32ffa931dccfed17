#include "runtime/llama/llama_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "runtime/llama/llama_testing.h"

namespace varve {
namespace llama_weights_test {

TEST(LlamaWeights, MatricesAreViewsOfTheFile) {
  TinyFile tiny;
  const std::shared_ptr<const GgufFile> file = *tiny.Open();
  const Result<std::shared_ptr<const LlamaModel>> model = LlamaModel::Load(file);
  ASSERT_OK(model.status());
  const LlamaWeights& weights = (*model)->weights();
  const std::byte* begin = tiny.bytes.data();
  const std::byte* end = begin + tiny.bytes.size();
  for (const LlamaLayer& layer : weights.layers) {
    for (const WeightMatrix* matrix : {&layer.query, &layer.key, &layer.value, &layer.ffn_down}) {
      EXPECT_GE(matrix->data, begin);
      EXPECT_LE(matrix->data + matrix->bytes(), end);
    }
  }
  EXPECT_EQ(weights.output.data, weights.token_embedding.data);  // tied
}

TEST(LlamaWeights, BytesPerTokenCountEveryMatrixOnce) {
  TinyFile tiny;
  // Per layer q 64*32, k and v 32*32, o 32*64, three of 64*32; the output 40*32.
  const uint64_t floats = 2 * (2 * 64 * 32 + 2 * 32 * 32 + 3 * 64 * 32) + 40 * 32;
  EXPECT_EQ((*LlamaModel::Load(*tiny.Open()))->weight_bytes_per_token(), 4 * floats);
}

TEST(LlamaWeights, MissingTensorsAreNamed) {
  const TinyFile whole;
  for (const auto& [name, tensor] : whole.tensors) {
    TinyFile file;
    file.tensors.erase(name);
    ExpectRefusal(file.LoadStatus(), {"tiny.gguf", name});
  }
}

TEST(LlamaWeights, WrongShapesAreNamedWithTheShapeWanted) {
  const TinyFile whole;
  for (const auto& [name, tensor] : whole.tensors) {
    TinyFile file;
    file.tensors[name].dims.back() += 32;
    ExpectRefusal(file.LoadStatus(), {name, std::to_string(tensor.dims.back()),
                                      std::to_string(tensor.dims.back() + 32)});
    file = TinyFile();
    file.tensors[name].dims.push_back(2);
    ExpectRefusal(file.LoadStatus(), {name});
  }
}

TEST(LlamaWeights, NormsMustBeFloats) {
  TinyFile file;
  file.tensors["blk.1.ffn_norm.weight"].type = WeightType::kQ8_0;
  ExpectRefusal(file.LoadStatus(), {"blk.1.ffn_norm.weight", "Q8_0", "F32"});
  file.tensors["blk.1.ffn_norm.weight"].type = WeightType::kF16;
  EXPECT_OK(file.LoadStatus());
}

TEST(LlamaWeights, VocabularyMustFitTheEmbedding) {
  TinyFile file;
  file.ints["vocab_size"] = 41;
  ExpectRefusal(file.LoadStatus(), {"token_embd.weight", "40", "41"});
  file = TinyFile();
  file.tensors["output.weight"] = {{32, 39}};
  ExpectRefusal(file.LoadStatus(), {"output.weight", "39", "40"});
}

TEST(LlamaWeights, FamiliesNeedTheirOwnTensors) {
  ExpectRefusal(TinyFile("qwen2").LoadStatus(), {"blk.0.attn_q.bias"});
  ExpectRefusal(TinyFile("qwen3").LoadStatus(), {"blk.0.attn_q_norm.weight"});
  ExpectRefusal(TinyFile("gemma2").LoadStatus(), {"blk.0.post_attention_norm.weight"});
  TinyFile half;  // a bias in the first layer only
  half.tensors["blk.0.attn_q.bias"] = {{64}};
  half.tensors["blk.0.attn_k.bias"] = {{32}};
  half.tensors["blk.0.attn_v.bias"] = {{32}};
  ExpectRefusal(half.LoadStatus(), {"blk.1.attn_q.bias"});
}

// Silently leaving one of these out would give another model's text.
TEST(LlamaWeights, TensorsThatWouldGoUnusedAreRefused) {
  for (const char* name :
       {"blk.0.ffn_gate_exps.weight", "blk.1.ffn_gate_inp.weight", "blk.0.attn_sinks.weight",
        "blk.0.attn_q_norm.weight", "blk.0.post_attention_norm.weight", "blk.2.attn_q.weight",
        "blk.01.attn_q.weight", "blk.x.attn_q.weight", "blk.0.ffn_up.bias", "output.bias",
        "rope_factors_long.weight", "token_types.weight"}) {
    TinyFile file;
    file.tensors[name] = {{32, 32}};
    ExpectRefusal(file.LoadStatus(), {name});
  }
}

TEST(RandomWeights, AreEqualForEqualSeedsAndOfTheRightSize) {
  LlamaConfig config = *PresetConfig("small-1024");
  config.num_layers = 1;
  config.vocab_size = 64;
  for (int number = 0; number < kNumWeightTypes; ++number) {
    const auto type = static_cast<WeightType>(number);
    SCOPED_TRACE(InfoOf(type).name);
    const auto one = RandomLlamaWeights(config, type, 1);
    const auto same = RandomLlamaWeights(config, type, 1);
    const auto other = RandomLlamaWeights(config, type, 2);
    ASSERT_OK(one.status());
    const WeightMatrix& a = (*one)->layers[0].ffn_down;
    const WeightMatrix& b = (*same)->layers[0].ffn_down;
    const WeightMatrix& c = (*other)->layers[0].ffn_down;
    EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes()), 0);
    EXPECT_NE(std::memcmp(a.data, c.data, a.bytes()), 0);
    EXPECT_NE(std::memcmp(a.row(0), a.row(1), a.row_bytes()), 0);
    EXPECT_NE((*one)->output.data, (*one)->token_embedding.data);

    // Variance about 1 / cols around zero; scales that differ add 8 %.
    std::vector<float> row(a.cols);
    double sum = 0;
    double squares = 0;
    for (int64_t r = 0; r < 16; ++r) {
      ActiveWeightKernels().decode[static_cast<int>(type)](a.row(r), a.cols, row.data());
      for (float value : row) {
        sum += value;
        squares += double{value} * value;
      }
    }
    EXPECT_NEAR(squares / 16, InfoOf(type).block_values == 1 ? 1.0 : 1.08, 0.08);
    // The noise of independent values is 0.25; those of a K block share scale and minimum.
    EXPECT_LT(std::abs(sum / 16), InfoOf(type).block_values == 256 ? 4.0 : 1.0);
  }
}

TEST(RandomWeights, RefuseWhatTheyCannotMake) {
  LlamaConfig config = *PresetConfig("small-1024");
  config.ffn_width = 100;
  ExpectRefusal(RandomLlamaWeights(config, WeightType::kQ8_0, 1).status(), {"ffn_width 100", "32"});
}

}  // namespace llama_weights_test
}  // namespace varve
