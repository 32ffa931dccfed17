#include "runtime/llama/llama_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/llama/llama_testing.h"

namespace varve {
namespace llama_config_test {

TEST(LlamaConfig, ReadsWhatTheFileSays) {
  TinyFile file("qwen3");
  file.ints["attention.sliding_window"] = 77;
  file.floats["rope.freq_base"] = 5e5;
  const Result<LlamaConfig> config = file.Config();
  ASSERT_OK(config.status());
  EXPECT_EQ(config->architecture, "qwen3");
  EXPECT_EQ(config->num_layers, 2);
  EXPECT_EQ(config->width, 32);
  EXPECT_EQ(config->ffn_width, 64);
  EXPECT_EQ(config->num_heads, 2);
  EXPECT_EQ(config->num_kv_heads, 1);
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_EQ(config->vocab_size, 40);
  EXPECT_EQ(config->context, 128);
  EXPECT_EQ(config->window, 77);
  EXPECT_FLOAT_EQ(config->norm_epsilon, 1e-5f);
  EXPECT_EQ(config->rope.order, RopeOrder::kHalves);
  EXPECT_EQ(config->rope.dims, 32);
  EXPECT_DOUBLE_EQ(config->rope.base, 5e5);
  EXPECT_TRUE(config->qk_norm);
  EXPECT_FALSE(config->qkv_bias);
  EXPECT_TRUE(config->tied_embeddings);
}

TEST(LlamaConfig, FamiliesDifferInWhatMetadataDoesNotSay) {
  EXPECT_EQ(TinyFile("llama").Config()->rope.order, RopeOrder::kInterleaved);
  EXPECT_EQ(TinyFile("mistral").Config()->rope.order, RopeOrder::kInterleaved);
  EXPECT_EQ(TinyFile("qwen2").Config()->rope.order, RopeOrder::kHalves);
  EXPECT_TRUE(TinyFile("qwen2").Config()->qkv_bias);
  EXPECT_FALSE(TinyFile("llama").Config()->qkv_bias);
  EXPECT_FALSE(TinyFile("llama").Config()->qk_norm);
}

TEST(LlamaConfig, GemmaSeesEverythingInTheLastLayerOfAPeriod) {
  TinyFile file("gemma3");
  ExpectRefusal(file.Config().status(), {"gemma3.attention.sliding_window"});
  file.ints["attention.sliding_window"] = 16;
  file.floats["rope.freq_base"] = 1e6;
  const Result<LlamaConfig> gemma3 = file.Config();
  ASSERT_OK(gemma3.status());
  EXPECT_EQ(gemma3->LayerWindow(4), 16);
  EXPECT_EQ(gemma3->LayerWindow(5), 0);
  EXPECT_EQ(gemma3->LayerWindow(6), 16);
  EXPECT_DOUBLE_EQ(gemma3->rope.base, 1e6);
  EXPECT_DOUBLE_EQ(gemma3->local_rope->base, 10000.0);
  EXPECT_TRUE(gemma3->qk_norm && gemma3->post_norms);
  EXPECT_FLOAT_EQ(gemma3->embedding_scale, std::sqrt(32.0f));

  const Result<LlamaConfig> gemma2 = TinyFile("gemma2").Config();
  ASSERT_OK(gemma2.status());
  EXPECT_EQ(gemma2->LayerWindow(0), 4096);
  EXPECT_EQ(gemma2->LayerWindow(1), 0);
  EXPECT_FALSE(gemma2->local_rope.has_value());
}

// No key tells: of each Gemma generation the largest model, known by its layers, does not divide
// scores by the root of head_dim.
TEST(LlamaConfig, LargestGemmaHasItsOwnScale) {
  TinyFile file("gemma2");
  EXPECT_EQ(file.Config()->attention_scale, 0.0f);
  file.ints["block_count"] = 46;
  EXPECT_FLOAT_EQ(file.Config()->attention_scale, 0.25f);  // 1 / sqrt(32 / 2)
  file.floats["attention.scale"] = 0.5;
  EXPECT_FLOAT_EQ(file.Config()->attention_scale, 0.5f);
}

TEST(LlamaConfig, MissingOptionalKeysHaveTheirUsualMeaning) {
  TinyFile file;
  file.ints.erase("attention.key_length");     // width / heads = 16
  file.ints.erase("attention.head_count_kv");  // as many as query heads
  file.ints.erase("vocab_size");               // rows of the embedding
  const Result<LlamaConfig> config = file.Config();
  ASSERT_OK(config.status());
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->vocab_size, 40);
  EXPECT_EQ(config->rope.scaling, RopeScaling::kNone);
  EXPECT_DOUBLE_EQ(config->rope.base, 10000.0);
}

TEST(LlamaConfig, ArraysOfEqualNumbersAreNumbers) {
  TinyFile file;
  file.ints.erase("attention.head_count_kv");
  file.arrays["attention.head_count_kv"] = {1, 1};
  EXPECT_EQ(file.Config()->num_kv_heads, 1);
  file.arrays["attention.head_count_kv"] = {1, 2};
  ExpectRefusal(file.Config().status(), {"llama.attention.head_count_kv[1] 2", "[0] 1"});
  file.arrays["attention.head_count_kv"] = {};
  ExpectRefusal(file.Config().status(), {"llama.attention.head_count_kv", "empty"});
  file.arrays["attention.head_count_kv"] = {-3, -3};
  ExpectRefusal(file.Config().status(), {"llama.attention.head_count_kv[0] -3"});
}

TEST(LlamaConfig, ReadsRopeScaling) {
  TinyFile file;
  file.strings["rope.scaling.type"] = "linear";
  file.floats["rope.scaling.factor"] = 2.0;
  EXPECT_EQ(file.Config()->rope.scaling, RopeScaling::kLinear);
  EXPECT_DOUBLE_EQ(file.Config()->rope.factor, 2.0);

  file.strings["rope.scaling.type"] = "none";
  EXPECT_EQ(file.Config()->rope.scaling, RopeScaling::kNone);

  file.strings["rope.scaling.type"] = "yarn";
  file.ints["rope.scaling.original_context_length"] = 64;
  file.floats["rope.scaling.yarn_beta_fast"] = 16.0;
  const RopeConfig yarn = file.Config()->rope;
  EXPECT_EQ(yarn.scaling, RopeScaling::kYarn);
  EXPECT_EQ(yarn.original_context, 64);
  EXPECT_DOUBLE_EQ(yarn.yarn_beta_fast, 16.0);
  EXPECT_DOUBLE_EQ(yarn.attention_factor, 0.1 * std::log(2.0) + 1.0);
  file.floats["rope.scaling.attn_factor"] = 0.5;
  EXPECT_DOUBLE_EQ(file.Config()->rope.attention_factor, 0.5 * (0.1 * std::log(2.0) + 1.0));

  file.strings["rope.scaling.type"] = "longrope";
  ExpectRefusal(file.Config().status(), {"llama.rope.scaling.type \"longrope\"", "yarn"});
}

TEST(LlamaConfig, DivisorTensorMeansLlama3Scaling) {
  TinyFile file;
  file.tensors["rope_freqs.weight"] = {{16}};
  EXPECT_EQ(file.Config()->rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(file.Config()->rope.frequency_divisors.size(), 16u);
  file.tensors["rope_freqs.weight"] = {{15}};
  ExpectRefusal(file.Config().status(), {"rope_freqs.weight", "15", "16"});
  file.tensors["rope_freqs.weight"] = {{16}, WeightType::kF16};
  ExpectRefusal(file.Config().status(), {"rope_freqs.weight", "F16"});
  file.tensors["rope_freqs.weight"] = {{16}};
  file.strings["rope.scaling.type"] = "yarn";
  ExpectRefusal(file.Config().status(), {"rope_freqs.weight", "yarn"});
}

TEST(LlamaConfig, RefusesAnArchitectureThatIsNotBuiltIn) {
  const Status status = TinyFile("mamba").Config().status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  ExpectRefusal(status,
                {"general.architecture \"mamba\"", "llama, mistral, qwen2, qwen3, gemma2, gemma3"});
}

// One number spoilt at a time: the message names its key.
struct BadNumber {
  const char* key;
  double value;
  const char* also;  // further text of the message
};

TEST(LlamaConfig, BadNumbersAreRefusedByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<BadNumber> cases = {
      {"block_count", 0, "0"},
      {"block_count", 4e9, "4000000000"},
      {"embedding_length", 0, "0"},
      {"embedding_length", 4e9, "4000000000"},
      {"feed_forward_length", 0, "0"},
      {"context_length", 0, "0"},
      {"vocab_size", 0, "0"},
      {"vocab_size", 4e9, "4000000000"},
      {"attention.head_count", 0, "0"},
      {"attention.head_count", 65, "1 … 64 times"},
      {"attention.head_count_kv", 0, "0"},
      {"attention.head_count_kv", 3, "2 must be"},
      {"attention.key_length", 33, "multiple of 16"},
      {"attention.key_length", 0, "0"},
      {"attention.key_length", 528, "512"},
      {"attention.value_length", 64, "64"},
      {"rope.dimension_count", 31, "even"},
      {"rope.dimension_count", 64, "64"},
      {"expert_count", 8, "experts"},
      {"attention.layer_norm_rms_epsilon", nan, "nan"},
      {"attention.layer_norm_rms_epsilon", inf, "inf"},
      {"attention.layer_norm_rms_epsilon", -1e-5, "-"},
      {"attention.layer_norm_rms_epsilon", 0, "0"},
      {"rope.freq_base", nan, "nan"},
      {"rope.freq_base", 0, "0"},
      {"rope.scaling.factor", 0, "0"},
      {"rope.scaling.factor", inf, "inf"},
      {"rope.scaling.attn_factor", -1, "-1"},
      {"attention.scale", nan, "nan"},
  };
  for (const BadNumber& bad : cases) {
    SCOPED_TRACE(std::string(bad.key) + " " + std::to_string(bad.value));
    TinyFile file;
    const bool is_float = file.floats.contains(bad.key) || !std::isfinite(bad.value) ||
                          bad.value < 0 || bad.value != std::floor(bad.value);
    if (is_float) {
      file.floats[bad.key] = bad.value;
    } else {
      file.ints[bad.key] = static_cast<int64_t>(bad.value);
    }
    ExpectRefusal(file.LoadStatus(), {"tiny.gguf", std::string("llama.") + bad.key, bad.also});
  }
}

TEST(LlamaConfig, ADerivedHeadDimNamesTheKeysItComesFrom) {
  TinyFile file;
  file.ints.erase("attention.key_length");
  file.ints.erase("attention.value_length");
  file.ints["embedding_length"] = 24 * file.ints["attention.head_count"];
  const Status status = file.Config().status();
  ExpectRefusal(status, {"llama.embedding_length", "llama.attention.head_count", "= 24 must be"});
  EXPECT_EQ(status.message().find("key_length"), std::string::npos) << status.message();
}

TEST(LlamaConfig, NamesFromTheFileAreSafeForATerminal) {
  TinyFile file;
  file.strings["rope.scaling.type"] = "a\x1b[2J";
  const Status status = file.Config().status();
  ExpectRefusal(status, {"\"a\\x1b[2J\""});
}

TEST(LlamaConfig, MissingKeysAreNamed) {
  for (const char* key : {"block_count", "embedding_length", "feed_forward_length",
                          "attention.head_count", "context_length"}) {
    TinyFile file;
    file.ints.erase(key);
    ExpectRefusal(file.LoadStatus(), {std::string("llama.") + key});
  }
  TinyFile file;
  file.floats.clear();
  ExpectRefusal(file.LoadStatus(), {"llama.attention.layer_norm_rms_epsilon"});
}

TEST(LlamaConfig, KeysThatMeanAnotherModelAreRefused) {
  TinyFile file;
  file.bools["attention.causal"] = false;
  ExpectRefusal(file.Config().status(), {"llama.attention.causal"});
  file = TinyFile();
  file.arrays["attention.sliding_window_pattern"] = {1, 0};
  ExpectRefusal(file.Config().status(), {"llama.attention.sliding_window_pattern"});
  file = TinyFile();
  file.strings["rope.scaling.type"] = "yarn";
  file.floats["rope.scaling.yarn_ext_factor"] = 0.5;
  ExpectRefusal(file.Config().status(), {"llama.rope.scaling.yarn_ext_factor 0.5"});
}

TEST(LlamaPresets, HaveTheShapesThatTheirNamesPromise) {
  const Result<LlamaConfig> qwen = PresetConfig("qwen3-0.6b");
  ASSERT_OK(qwen.status());
  EXPECT_EQ(qwen->num_layers, 28);
  EXPECT_EQ(qwen->num_heads * qwen->head_dim, 2048);
  EXPECT_TRUE(qwen->qk_norm && qwen->tied_embeddings);
  const Result<LlamaConfig> small = PresetConfig("small-1024");
  ASSERT_OK(small.status());
  EXPECT_EQ(small->num_layers, 8);
  EXPECT_EQ(small->num_kv_heads, 4);
  EXPECT_EQ(PresetConfig("deep-512")->num_layers, 32);
  ExpectRefusal(PresetConfig("gpt-5").status(),
                {"gpt-5", "qwen3-0.6b, small-1024, deep-512, llama-3.1-8b"});
}

}  // namespace llama_config_test
}  // namespace varve
