// ggml's Whisper files: written, read again, and each field wrong in turn.

#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/mapped_file.h"
#include "runtime/whisper/whisper_tensors.h"
#include "runtime/whisper/whisper_tokens.h"
#include "tests/gguf_testing.h"
#include "tests/whisper_testing.h"

namespace varve {
namespace whisper_ggml_test {

// Byte offsets of the header's fields.
constexpr size_t kVocabAt = 4, kHeadsAt = 16, kTextStateAt = 28, kMelsAt = 40;
constexpr size_t kFilterMelsAt = 48, kFilterBinsAt = 52, kFiltersAt = 56;
constexpr size_t kTokensAt = kFiltersAt + 80 * 201 * 4;
// The first tensor, behind two tokens of 1 and 5 bytes: encoder.positional_embedding, [6, 32].
constexpr size_t kTensorAt = kTokensAt + 4 + 5 + 9;
constexpr size_t kTensorDimsAt = kTensorAt + 12, kTensorNameAt = kTensorAt + 20;
constexpr size_t kTensorDataAt = kTensorNameAt + 28;

std::vector<float> Decoded(const WhisperTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.values()));
  AvailableWeightKernels()[0]->decode[static_cast<int>(tensor.type)](tensor.data, tensor.values(),
                                                                     values.data());
  return values;
}

bool SameBytes(const WhisperTensor& a, const WhisperTensor& b) {
  return a.type == b.type && a.dims == b.dims && std::memcmp(a.data, b.data, a.bytes()) == 0;
}

class WhisperGgml : public testing::Test {
 protected:
  // A file as bytes that can be damaged.
  std::vector<std::byte> Bytes(const WhisperTensors& model, WeightType type) {
    const Status written = WriteWhisperGgml(model, type, path_);
    EXPECT_TRUE(written.ok()) << written.message();
    const auto file = MappedFile::Open(path_);
    return {(*file)->bytes().begin(), (*file)->bytes().end()};
  }
  std::vector<std::byte> SmallFile() {
    WhisperTensors model = RandomWhisper(SmallestWhisperConfig(), 1, WeightType::kF16);
    model.tokens = {"a", "hello"};
    return Bytes(model, WeightType::kF16);
  }
  template <typename T>
  static void Put(std::vector<std::byte>& bytes, size_t at, T value) {
    std::memcpy(bytes.data() + at, &value, sizeof(value));
  }
  static void ExpectRefused(std::span<const std::byte> bytes, const std::string& message) {
    const Result<WhisperTensors> read = ReadWhisperGgml(bytes, "f");
    ASSERT_FALSE(read.ok()) << message;
    EXPECT_TRUE(read.status().message().starts_with("f: ")) << read.status().message();
    EXPECT_NE(read.status().message().find(message), std::string::npos)
        << read.status().message() << "\nexpected " << message;
  }

  TempFolder folder_;
  std::string path_ = folder_.File("model.bin");
};

TEST_F(WhisperGgml, WhatIsWrittenIsReadAgainBitForBit) {
  for (const WeightType type :
       {WeightType::kF32, WeightType::kF16, WeightType::kQ8_0, WeightType::kQ5_0, WeightType::kQ5_1,
        WeightType::kQ4_0, WeightType::kQ4_1}) {
    WhisperTensors model = RandomWhisper(SmallestWhisperConfig(), 7, type);
    model.tokens = {"a", "", std::string("\0\xFF", 2)};
    const std::vector<std::byte> bytes = Bytes(model, type);
    const Result<WhisperTensors> read = ReadWhisperGgml(bytes, path_);
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->config, model.config);
    EXPECT_EQ(read->tokens, model.tokens);
    ASSERT_EQ(read->tensors.size(), model.tensors.size());
    for (const auto& [name, tensor] : model.tensors) {
      EXPECT_TRUE(SameBytes(read->tensors.at(name), tensor)) << name << InfoOf(type).name;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(read->tensors.at(name).data) % 64, 0u);
    }
  }
}

TEST_F(WhisperGgml, ConvertingRoundsMatricesAndNothingElse) {
  const WhisperTensors model = RandomWhisper(SmallestWhisperConfig(), 7, WeightType::kF32);
  ASSERT_TRUE(WriteWhisperGgml(model, WeightType::kQ5_1, path_).ok());
  const Result<WhisperTensors> read = ReadWhisperFile(path_);
  ASSERT_TRUE(read.ok()) << read.status().message();
  for (const WhisperTensorShape& shape : WhisperTensorShapes(model.config)) {
    const WhisperTensor& tensor = read->tensors.at(shape.name);
    const WeightType wanted = !shape.is_factor         ? WeightType::kF32
                              : shape.dims.size() == 3 ? WeightType::kF16
                                                       : WeightType::kQ5_1;
    ASSERT_EQ(tensor.type, wanted) << shape.name;
    const std::vector<float> before = Decoded(model.tensors.at(shape.name));
    const std::vector<float> after = Decoded(tensor);
    double error = 0, power = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      error += std::pow(before[i] - after[i], 2.0);
      power += std::pow(before[i], 2.0);
    }
    const double relative = std::sqrt(error / power);
    EXPECT_LE(relative, wanted == WeightType::kQ5_1 ? 0.05 : 1e-3) << shape.name;
    EXPECT_EQ(relative == 0, wanted == WeightType::kF32) << shape.name;
  }
}

TEST_F(WhisperGgml, AModelWithoutTokensGetsThoseOfItsKind) {
  for (const int vocab : {51864, 51865}) {
    const std::vector<std::byte> bytes =
        Bytes(RandomWhisper(TinyWhisperConfig(vocab), 1, WeightType::kQ4_0), WeightType::kQ4_0);
    const Result<WhisperTensors> read = ReadWhisperGgml(bytes, "f");
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->tokens, *WhisperTokens(vocab == 51865));
  }
}

TEST_F(WhisperGgml, EveryWrongFieldIsNamed) {
  const std::vector<std::byte> good = SmallFile();
  struct Wrong {
    size_t at;
    int32_t value;
    const char* message;
  };
  const Wrong wrongs[] = {
      {0, 0x46554747, "is no Whisper file of ggml: magic 46554747"},
      {kVocabAt, 0, "n_vocab 0 is not in 1 … 51866"},
      {kVocabAt, 51867, "n_vocab 51867 is not in 1 … 51866"},
      {kVocabAt + 4, 1501, "n_audio_ctx 1501 is not in 1 … 1500"},
      {kVocabAt + 8, -1, "n_audio_state -1 is not in 1 … 4096"},
      {kHeadsAt, 65, "n_audio_head 65 is not in 1 … 64"},
      {kHeadsAt, 3, "n_audio_head 3 does not divide the width 32"},
      {kHeadsAt, 4, "n_audio_head 4 of width 32 are 8 values each, not a multiple of 16"},
      {kHeadsAt + 4, 0x7FFFFFFF, "n_audio_layer 2147483647 is not in 1 … 64"},
      {kHeadsAt + 8, 4097, "n_text_ctx 4097 is not in 1 … 4096"},
      {kTextStateAt, 64, "n_text_state 64 is not n_audio_state 32"},
      {kTextStateAt + 4, 0, "n_text_head 0 is not in 1 … 64"},
      {kTextStateAt + 8, 65, "n_text_layer 65 is not in 1 … 64"},
      {kMelsAt, 81, "n_mels 81 is neither 80 nor 128"},
      {kFilterMelsAt, 128, "filters of 128 x 201 values, not 80 x 201"},
      {kFilterBinsAt, -1, "filters of 80 x -1 values, not 80 x 201"},
      {kTokensAt, 41, "number of tokens 41 is not in 0 … n_vocab 40"},
      {kTokensAt, -1, "number of tokens -1 is not in"},
      {kTokensAt + 4, 4097, "token 0 of 4097 bytes > 4096"},
      {kTensorAt, 0, "n_dims 0 of a tensor is not in 1 … 4"},
      {kTensorAt, 5, "n_dims 5 of a tensor is not in 1 … 4"},
      {kTensorAt + 4, 257, "a tensor's name of 257 bytes, not 1 … 256"},
      {kTensorAt + 4, 0, "a tensor's name of 0 bytes"},
      {kTensorAt + 8, 77, "encoder.positional_embedding: type 77 (unknown) is not read here"},
      {kTensorAt + 8, 12, "encoder.positional_embedding: type Q4_K is not read here"},
      {kTensorAt + 8, 8, "encoder.positional_embedding: type Q8_0 is not read here"},
      {kTensorDimsAt, 33, "encoder.positional_embedding: has the shape [6, 33], not [6, 32]"},
      {kTensorDimsAt + 4, -6, "has the shape [-6, 32], not [6, 32]"},
      {kTensorNameAt, 0x01020304, "is no part of a Whisper model of 1 + 1 layers"},
      {kTensorDataAt + 8, 0x7FC00000, "encoder.positional_embedding: number 2 is not finite"},
      {kTensorDataAt, 0x7F800000, "encoder.positional_embedding: number 0 is not finite"},
      // One layer more than there are tensors of.
      {kHeadsAt + 4, 2, "tensor encoder.blocks.1.attn.query.weight: and 14 more are missing"},
  };
  for (const Wrong& wrong : wrongs) {
    std::vector<std::byte> bytes = good;
    Put(bytes, wrong.at, wrong.value);
    ExpectRefused(bytes, wrong.message);
  }
}

TEST_F(WhisperGgml, EveryTruncationIsRefused) {
  const std::vector<std::byte> good = SmallFile();
  for (size_t size = 0; size < good.size(); ++size) {
    // All of the fields, some of the data.
    const bool has_fields =
        size < kFiltersAt || (size > kTokensAt - 10 && size < kTensorDataAt + 10);
    if (!has_fields && size % 1009 != 0) continue;
    EXPECT_FALSE(ReadWhisperGgml(std::span(good).first(size), "f").ok()) << size;
  }
  ExpectRefused(std::span(good).first(good.size() - 1), "tensor decoder.ln.bias needs 128 bytes");
  ExpectRefused(std::span(good).first(kTensorAt), "more are missing");
  std::vector<std::byte> longer = good;
  longer.insert(longer.end(), good.begin() + kTensorAt, good.begin() + kTensorDataAt + 6 * 32 * 4);
  ExpectRefused(longer, "tensor encoder.positional_embedding: comes twice");
}

TEST_F(WhisperGgml, ScalesThatAreNotFiniteAreRefused) {
  for (const WeightType type : {WeightType::kQ8_0, WeightType::kQ5_0, WeightType::kQ4_0,
                                WeightType::kQ5_1, WeightType::kQ4_1}) {
    for (const size_t field : {0, 2}) {
      if (field == 2 && !HasOffsets(type)) continue;
      WhisperTensors model = RandomWhisper(SmallestWhisperConfig(), 1, type);
      // The model is ours, so its bytes may be written.
      auto* data = const_cast<std::byte*>(model.tensors.at("decoder.blocks.0.mlp.0.weight").data);
      const uint16_t infinity = 0xFC00;
      std::memcpy(data + 5 * InfoOf(type).block_bytes + field, &infinity, 2);
      ExpectRefused(Bytes(model, type),
                    "decoder.blocks.0.mlp.0.weight: the scale of block 5 is not finite");
    }
  }
}

TEST_F(WhisperGgml, WritingSaysWhatCannotBe) {
  const auto error = [&](const WhisperTensors& model, WeightType type) {
    const Status status = WriteWhisperGgml(model, type, path_);
    EXPECT_FALSE(std::filesystem::exists(path_));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 0);
    return status.message();
  };
  WhisperTensors model = RandomWhisper(SmallestWhisperConfig(), 1, WeightType::kF32);
  EXPECT_NE(error(model, WeightType::kQ6K).find("Q6_K is no type of Whisper files"),
            std::string::npos);
  const float large = 1e6f;
  std::byte* data = model.Add("encoder.blocks.0.mlp.0.weight", WeightType::kF32, {128, 32});
  std::memset(data, 0, 128 * 32 * sizeof(float));
  std::memcpy(data + 400, &large, sizeof(large));
  EXPECT_NE(error(model, WeightType::kF16)
                .find("encoder.blocks.0.mlp.0.weight: F16 has no room for its values"),
            std::string::npos);
  model.Add("encoder.ln_post.bias", WeightType::kF32, {31});
  EXPECT_NE(error(model, WeightType::kF16).find("encoder.ln_post.bias has another shape"),
            std::string::npos);
  model.tensors.erase("encoder.ln_post.bias");
  EXPECT_NE(error(model, WeightType::kF16).find("encoder.ln_post.bias is missing"),
            std::string::npos);
  WhisperConfig odd = SmallestWhisperConfig();
  odd.audio_state = odd.text_state = 48;
  odd.audio_heads = odd.text_heads = 3;
  EXPECT_NE(error(RandomWhisper(odd, 1), WeightType::kQ4_0)
                .find("rows of 48 values are no blocks of 32 (Q4_0)"),
            std::string::npos);
}

class FullDisk final : public FileOps {
 public:
  ssize_t Write(int file, const std::byte* data, size_t bytes) override {
    if ((written_ += bytes) <= 100000) return FileOps::Write(file, data, bytes);
    errno = ENOSPC;
    return -1;
  }

 private:
  size_t written_ = 0;
};

TEST_F(WhisperGgml, AFullDiskIsSaidAndLeavesNothing) {
  FullDisk disk;
  WhisperWriteOptions options;
  options.file_ops = &disk;
  const Status status =
      WriteWhisperGgml(RandomWhisper(SmallestWhisperConfig(), 1), WeightType::kF32, path_, options);
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_NE(status.message().find("No space left"), std::string::npos) << status.message();
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(WhisperGgml, ProgressRisesToOne) {
  std::vector<double> seen;
  WhisperWriteOptions options;
  options.progress = [&](double fraction) { seen.push_back(fraction); };
  ASSERT_TRUE(
      WriteWhisperGgml(RandomWhisper(SmallestWhisperConfig(), 1), WeightType::kF16, path_, options)
          .ok());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), 1.0);
}

TEST_F(WhisperGgml, OtherFilesAreNamed) {
  WriteBytes(path_, std::as_bytes(std::span("some text")));
  EXPECT_NE(ReadWhisperFile(path_).status().message().find("is no Whisper model: neither"),
            std::string::npos);
  WriteBytes(path_, std::as_bytes(std::span("x", 1)));
  EXPECT_FALSE(ReadWhisperFile(path_).ok());
  EXPECT_EQ(ReadWhisperFile(folder_.File("absent")).status().code(), StatusCode::kNotFound);
}

}  // namespace whisper_ggml_test
}  // namespace varve
