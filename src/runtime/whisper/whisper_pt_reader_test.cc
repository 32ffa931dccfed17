#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "runtime/whisper/whisper_tensors.h"
#include "tests/whisper_files.h"
#include "tests/whisper_testing.h"

namespace varve {
namespace whisper_pt_reader_test {

class WhisperPt : public testing::Test {
 protected:
  void ExpectRefused(const std::string& message) const { ExpectRefused(parts_.Build(), message); }
  static void ExpectRefused(std::span<const std::byte> bytes, const std::string& message) {
    const Result<WhisperTensors> read = ReadWhisperPt(bytes, "f");
    ASSERT_FALSE(read.ok()) << message;
    EXPECT_TRUE(read.status().message().starts_with("f: ")) << read.status().message();
    EXPECT_NE(read.status().message().find(message), std::string::npos)
        << read.status().message() << "\nexpected " << message;
  }

  WhisperTensors model_ = RandomWhisper(SmallestWhisperConfig(), 5, WeightType::kF16);
  WhisperPtParts parts_{model_};
};

TEST_F(WhisperPt, GivesTheTensorsOfTheCheckpoint) {
  const Result<WhisperTensors> read = ReadWhisperPt(parts_.Build(), "f");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->config, model_.config);
  EXPECT_TRUE(read->tokens.empty());
  ASSERT_EQ(read->tensors.size(), model_.tensors.size());
  for (const auto& [name, tensor] : model_.tensors) {
    const WhisperTensor& other = read->tensors.at(name);
    ASSERT_EQ(other.type, tensor.type) << name;
    EXPECT_EQ(std::memcmp(other.data, tensor.data, tensor.bytes()), 0) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(other.data) % 64, 0u);
  }
}

TEST_F(WhisperPt, VectorsInHalvesBecomeFloats) {
  WhisperPtParts::Tensor& bias = parts_.Find("encoder.ln_post.bias");
  bias.storage_type = "HalfStorage";
  bias.storage.resize(32 * 2);
  const uint16_t one = 0x3C00;
  for (size_t i = 0; i < 32; ++i) std::memcpy(&bias.storage[i * 2], &one, 2);
  const Result<WhisperTensors> read = ReadWhisperPt(parts_.Build(), "f");
  ASSERT_TRUE(read.ok()) << read.status().message();
  const WhisperTensor& tensor = read->tensors.at("encoder.ln_post.bias");
  ASSERT_EQ(tensor.type, WeightType::kF32);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(reinterpret_cast<const float*>(tensor.data)[i], 1.0f);
}

TEST_F(WhisperPt, TransposedViewsAndDoublesAreRead) {
  WhisperPtParts::Tensor& weight = parts_.Find("encoder.blocks.0.mlp.0.weight");  // [128, 32]
  weight.strides = {1, 128};
  WhisperPtParts::Tensor& bias = parts_.Find("encoder.ln_post.bias");
  bias.storage_type = "DoubleStorage";
  bias.storage.resize(33 * 8);
  bias.offset = 1;
  for (int i = 0; i < 33; ++i) {
    const double value = i * 0.5;
    std::memcpy(&bias.storage[static_cast<size_t>(i) * 8], &value, 8);
  }
  const Result<WhisperTensors> read = ReadWhisperPt(parts_.Build(), "f");
  ASSERT_TRUE(read.ok()) << read.status().message();
  const std::byte* data = read->tensors.at("encoder.blocks.0.mlp.0.weight").data;
  const std::byte* original = model_.tensors.at("encoder.blocks.0.mlp.0.weight").data;
  EXPECT_EQ(std::memcmp(data + (5 * 32 + 3) * 2, original + (3 * 128 + 5) * 2, 2), 0);
  const WhisperTensor& read_bias = read->tensors.at("encoder.ln_post.bias");
  ASSERT_EQ(read_bias.type, WeightType::kF32);
  EXPECT_EQ(reinterpret_cast<const float*>(read_bias.data)[31], 16.0f);
  const double huge = 1e300;
  std::memcpy(&bias.storage[80], &huge, 8);
  ExpectRefused("tensor encoder.ln_post.bias: number 9 is not finite");
}

TEST_F(WhisperPt, WrongDimsAreNamed) {
  const auto dims = parts_.dims;
  for (size_t i = 0; i < dims.size(); ++i) {
    parts_.dims = dims;
    parts_.dims[i].second = 0;
    ExpectRefused(dims[i].first + " 0 is n");
    parts_.dims[i].second = int64_t{1} << 40;
    ExpectRefused(dims[i].first + " 1099511627776 is not in 0 … 1073741824");
    parts_.dims.erase(parts_.dims.begin() + static_cast<ptrdiff_t>(i));
    ExpectRefused("dims has no " + dims[i].first);
  }
  parts_.dims = dims;
  parts_.dims_name = "sizes";
  ExpectRefused("has no dict dims: no checkpoint of Whisper");
  parts_.dims_name = "dims";
  parts_.state_name = "state";
  ExpectRefused("has no dict model_state_dict");
}

TEST_F(WhisperPt, WrongTensorsAreNamed) {
  WhisperPtParts::Tensor& bias = parts_.Find("encoder.ln_post.bias");
  bias.name = "encoder.ln_post.bia";
  ExpectRefused("tensor encoder.ln_post.bia: is no part of a Whisper model");
  parts_ = WhisperPtParts(model_);
  std::erase_if(parts_.tensors, [](const auto& t) { return t.name == "decoder.ln.weight"; });
  ExpectRefused("tensor decoder.ln.weight: is missing");
  parts_ = WhisperPtParts(model_);
  parts_.Find("decoder.ln.weight").shape = {16};
  ExpectRefused("tensor decoder.ln.weight: has the shape [16], not [32]");
  parts_ = WhisperPtParts(model_);
  parts_.Find("decoder.ln.weight").offset = 1;
  ExpectRefused("tensor decoder.ln.weight: offset 1 and its strides lead out of a storage of 32");
  parts_ = WhisperPtParts(model_);
  parts_.Find("decoder.ln.weight").storage_type = "IntStorage";
  ExpectRefused("tensor decoder.ln.weight: is of a IntStorage");
  parts_ = WhisperPtParts(model_);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(&parts_.Find("decoder.ln.weight").storage[28], &nan, 4);
  ExpectRefused("tensor decoder.ln.weight: number 7 is not finite");
}

// Every stride 0: one stored number would become a matrix, and a model of gigabytes.
TEST_F(WhisperPt, AFewBytesDoNotBecomeAModelOfGigabytes) {
  WhisperConfig config = SmallestWhisperConfig();
  config.audio_ctx = 1500;
  config.text_ctx = 4096;
  config.audio_state = config.text_state = 4096;
  config.audio_heads = config.text_heads = 64;
  parts_.dims.clear();
  for (const WhisperConfigField& field : WhisperConfigFields()) {
    parts_.dims.emplace_back(field.name, config.*field.value);
  }
  parts_.tensors.clear();
  for (const WhisperTensorShape& shape : WhisperTensorShapes(config)) {
    parts_.tensors.push_back({shape.name, "FloatStorage", shape.dims,
                              std::vector<int64_t>(shape.dims.size(), 0), 0,
                              std::vector<std::byte>(4)});
  }
  ExpectRefused("tensors share storages: more than 4 numbers per byte");
}

TEST_F(WhisperPt, EveryTruncationIsRefused) {
  const std::vector<std::byte> good = parts_.Build();
  for (size_t size = 0; size < good.size(); size += 1009) {
    EXPECT_FALSE(ReadWhisperPt(std::span(good).first(size), "f").ok()) << size;
  }
}

}  // namespace whisper_pt_reader_test
}  // namespace varve
