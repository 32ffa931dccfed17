#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "runtime/whisper/whisper_ct2_names.h"
#include "runtime/whisper/whisper_tensors.h"
#include "tests/whisper_files.h"
#include "tests/whisper_testing.h"

namespace varve {
namespace whisper_ct2_reader_test {

class WhisperCt2 : public testing::Test {
 protected:
  void ExpectRefused(const std::string& message) { ExpectBytesRefused(parts_.Build(), message); }
  void ExpectBytesRefused(std::span<const std::byte> bytes, const std::string& message) {
    const Result<WhisperTensors> read = ReadWhisperCt2(bytes, "f");
    ASSERT_FALSE(read.ok()) << message;
    EXPECT_TRUE(read.status().message().starts_with("f: ")) << read.status().message();
    EXPECT_NE(read.status().message().find(message), std::string::npos)
        << read.status().message() << "\nexpected " << message;
    parts_ = WhisperCt2Parts(model_);
  }

  WhisperTensors model_ = RandomWhisper(SmallestWhisperConfig(), 5, WeightType::kF16);
  WhisperCt2Parts parts_{model_};
};

TEST(WhisperCt2Names, AreThoseOfTheFile) {
  const auto expect = [](std::string_view tensor, const char* variable, int part, int parts) {
    const Ct2Source source = Ct2SourceOf(tensor);
    EXPECT_EQ(source.variable, variable);
    EXPECT_EQ(source.part, part) << tensor;
    EXPECT_EQ(source.parts, parts) << tensor;
  };
  expect("encoder.blocks.11.attn.key.weight", "encoder/layer_11/self_attention/linear_0/weight", 1,
         3);
  expect("decoder.blocks.0.attn.value.bias", "decoder/layer_0/self_attention/linear_0/bias", 2, 3);
  expect("decoder.blocks.2.cross_attn.value.bias", "decoder/layer_2/attention/linear_1/bias", 1, 2);
  expect("decoder.blocks.2.cross_attn.out.weight", "decoder/layer_2/attention/linear_2/weight", 0,
         1);
  expect("decoder.blocks.2.cross_attn_ln.bias", "decoder/layer_2/attention/layer_norm/beta", 0, 1);
  expect("encoder.blocks.0.mlp.2.weight", "encoder/layer_0/ffn/linear_1/weight", 0, 1);
  expect("encoder.blocks.0.mlp_ln.weight", "encoder/layer_0/ffn/layer_norm/gamma", 0, 1);
  expect("encoder.ln_post.weight", "encoder/layer_norm/gamma", 0, 1);
  expect("decoder.ln.bias", "decoder/layer_norm/beta", 0, 1);
}

TEST_F(WhisperCt2, GivesTheTensorsOfTheModel) {
  const Result<WhisperTensors> read = ReadWhisperCt2(parts_.Build(), "f");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->config, model_.config);
  ASSERT_EQ(read->tensors.size(), model_.tensors.size());
  for (const auto& [name, tensor] : model_.tensors) {
    const WhisperTensor& other = read->tensors.at(name);
    ASSERT_EQ(other.type, tensor.type) << name;
    ASSERT_EQ(other.dims, tensor.dims) << name;
    EXPECT_EQ(std::memcmp(other.data, tensor.data, tensor.bytes()), 0) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(other.data) % 64, 0u);
  }
}

TEST_F(WhisperCt2, WithoutANumberHeadsHave64Values) {
  WhisperConfig config = SmallestWhisperConfig();
  config.audio_state = config.text_state = 128;
  model_ = RandomWhisper(config, 5, WeightType::kF16);
  parts_ = WhisperCt2Parts(model_);
  parts_.Erase("encoder/num_heads");
  parts_.Erase("decoder/num_heads");
  const Result<WhisperTensors> read = ReadWhisperCt2(parts_.Build(), "f");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->config.audio_heads, 2);
}

TEST_F(WhisperCt2, AWrongHeaderIsNamed) {
  parts_.version = 5;
  ExpectRefused("version 5 is not 6");
  parts_.spec = "TransformerSpec";
  ExpectRefused("is a \"TransformerSpec\" of CTranslate2, not a WhisperSpec");
  std::vector<std::byte> bytes = parts_.Build();
  bytes[4] = std::byte{5};  // the spec, without its NUL
  ExpectBytesRefused(bytes, "spec of 5 bytes does not end in NUL");
  bytes = parts_.Build();
  bytes[25] = std::byte{1};  // 65536 variables more
  ExpectBytesRefused(bytes, "number of variables");
  bytes = parts_.Build();
  bytes.push_back(std::byte{0});
  ExpectBytesRefused(bytes, "1 bytes follow its end");
}

TEST_F(WhisperCt2, AWrongVariableIsNamed) {
  parts_.Find("decoder/layer_norm/beta").dims = {1, 2, 2, 2, 4};
  ExpectRefused("variable decoder/layer_norm/beta: rank 5 > 4");
  parts_.Find("decoder/layer_norm/beta").dims = {0x80000000, 0x80000000, 0x80000000};
  ExpectRefused("variable decoder/layer_norm/beta: dims [2147483648, 2147483648, 2147483648]");
  parts_.Find("decoder/layer_norm/beta").dtype = 6;
  ExpectRefused("variable decoder/layer_norm/beta: dtype 6 > 5");
  parts_.Find("decoder/layer_norm/beta").dims = {33};
  ExpectRefused("variable decoder/layer_norm/beta: 128 bytes are not 33 values of 4");
  parts_.Find("decoder/layer_norm/beta").dims = {31};
  ExpectRefused("variable decoder/layer_norm/beta: 128 bytes are not 31 values of 4");
  parts_.variables.push_back(parts_.Find("decoder/layer_norm/beta"));
  ExpectRefused("variable decoder/layer_norm/beta comes twice");
  parts_.Find("decoder/layer_norm/beta").name = "decoder/layer_norm/other";
  ExpectRefused("variable decoder/layer_norm/beta is missing");
  parts_.variables.push_back(parts_.Find("decoder/layer_norm/beta"));
  parts_.variables.back().name = "decoder/more";
  ExpectRefused("variable decoder/more is no part of a Whisper model");
  parts_.Find("decoder/layer_0/ffn/linear_0/weight").dims = {32, 128};
  ExpectRefused("tensor decoder.blocks.0.mlp.0.weight: has the shape [32, 128], not [128, 32]");
  parts_.Find("encoder/layer_0/self_attention/linear_0/weight").dims = {32, 96};
  ExpectRefused("encoder/layer_0/self_attention/linear_0/weight: shape [32, 96] is not 3 parts");
}

TEST_F(WhisperCt2, SizesComeFromShapesAndAreChecked) {
  parts_.Erase("decoder/embeddings/weight");
  parts_.aliases.clear();
  ExpectRefused("variable decoder/embeddings/weight is missing");
  parts_.Find("encoder/conv1/weight").dims = {32, 240};
  ExpectRefused("variable encoder/conv1/weight: rank 2 is not 3");
  parts_.Find("encoder/conv1/weight").dims = {32, 240, 1};
  ExpectRefused("n_mels 240 is not in 1 … 128");
  parts_.Find("decoder/num_heads").data = {std::byte{0xFF}, std::byte{0xFF}};
  ExpectRefused("n_text_head -1 is not in 1 … 64");
  parts_.Find("decoder/num_heads").dtype = 4;
  ExpectRefused("decoder/num_heads is no integer");
  parts_.Find("encoder/layer_0/self_attention/layer_norm/gamma").name = "x";
  ExpectRefused("n_audio_layer 0 is not in 1 … 64");
}

TEST_F(WhisperCt2, WhatIsNotComputedHereIsRefused) {
  parts_.Find("decoder/activation").data[0] = std::byte{0};
  ExpectRefused("decoder/activation 0 is not 3, as Whisper has it");
  parts_.Find("decoder/pre_norm").data[0] = std::byte{0};
  ExpectRefused("decoder/pre_norm 0 is not 1");
  parts_.Find("decoder/layer_0/ffn/linear_0/weight").dtype = 1;
  parts_.Find("decoder/layer_0/ffn/linear_0/weight").data.resize(128 * 32);
  ExpectRefused("holds integers of CTranslate2, which are not read here; convert the model");
  // K's third of the fused bias.
  const float one = 1;
  std::memcpy(&parts_.Find("decoder/layer_0/self_attention/linear_0/bias").data[32 * 4], &one, 4);
  ExpectRefused("decoder/layer_0/self_attention/linear_0/bias: the bias of K is not zero");
  parts_.variables.push_back(parts_.Find("decoder/embeddings/weight"));
  parts_.variables.back().name = "decoder/projection/weight";
  parts_.variables.back().data[0] ^= std::byte{1};
  parts_.aliases.clear();
  ExpectRefused("decoder/projection/weight is not decoder/embeddings/weight");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(&parts_.Find("decoder/layer_norm/beta").data[8], &nan, 4);
  ExpectRefused("tensor decoder.ln.bias: number 2 is not finite");
}

TEST_F(WhisperCt2, WrongAliasesAreNamed) {
  parts_.aliases[0].second = "nothing";
  ExpectRefused("alias decoder/projection/weight of nothing, which is no variable");
  parts_.aliases[0].first = "decoder/layer_norm/beta";
  ExpectRefused("alias decoder/layer_norm/beta is a variable, too");
}

TEST_F(WhisperCt2, AliasesDoNotMakeASmallFileLarge) {
  WhisperConfig config = SmallestWhisperConfig();
  config.audio_layers = config.text_layers = 8;
  model_ = RandomWhisper(config, 5, WeightType::kF16);
  parts_ = WhisperCt2Parts(model_);
  for (const char* stack : {"encoder", "decoder"}) {
    for (int layer = 1; layer < 8; ++layer) {
      const std::string prefix = std::string(stack) + "/layer_" + std::to_string(layer) + "/";
      std::vector<std::string> rest;
      for (const WhisperCt2Parts::Variable& variable : parts_.variables) {
        if (variable.name.starts_with(prefix)) rest.push_back(variable.name.substr(prefix.size()));
      }
      for (const std::string& name : rest) {
        parts_.Erase(prefix + name);
        parts_.aliases.emplace_back(prefix + name, std::string(stack) + "/layer_0/" + name);
      }
    }
  }
  ExpectRefused("aliases make tensors of more than 2 times the file");
}

TEST_F(WhisperCt2, EveryTruncationIsRefused) {
  const std::vector<std::byte> good = parts_.Build();
  for (size_t size = 0; size < good.size(); size += size < 600 ? 5 : 997) {
    EXPECT_FALSE(ReadWhisperCt2(std::span(good).first(size), "f").ok()) << size;
  }
  EXPECT_FALSE(ReadWhisperCt2(std::span(good).first(good.size() - 1), "f").ok());
}

}  // namespace whisper_ct2_reader_test
}  // namespace varve
