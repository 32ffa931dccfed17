// Encoder and decoder against the transformers library (tools/make_whisper_golden.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/random.h"
#include "runtime/whisper/speech_testing.h"
#include "tests/test_data.h"

namespace varve {
namespace whisper_forward_test {

constexpr double kMaxDifference = 2e-3;

// As the script makes them.
std::vector<float> Uniforms(const std::string& name, size_t count) {
  uint64_t seed = 0xCBF29CE484222325u;
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  SplitMix64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>((random.Next() >> 40) / 0x1p23 - 1);
  return values;
}

std::shared_ptr<const WhisperModel> GoldenModel() {
  WhisperTensors tensors;
  WhisperConfig& config = tensors.config;
  config = TinyWhisperConfig();
  config.audio_ctx = 100;
  config.text_ctx = 64;
  for (const WhisperTensorShape& shape : WhisperTensorShapes(config)) {
    auto* data = reinterpret_cast<float*>(tensors.Add(shape.name, WeightType::kF32, shape.dims));
    const int64_t count = tensors.tensors.at(shape.name).values();
    std::vector<float> values = Uniforms(shape.name, static_cast<size_t>(count));
    const bool norm = shape.name.ends_with("ln.weight") || shape.name.ends_with("ln_post.weight");
    const bool factor = shape.dims.size() > 1 && shape.name.find("embedding") == std::string::npos;
    const double inputs = static_cast<double>(count) / static_cast<double>(shape.dims[0]);
    const float scale = factor ? static_cast<float>(1.5 / std::sqrt(inputs)) : 0.25f;
    for (float& value : values) value = value * scale + (norm ? 1.0f : 0.0f);
    std::copy(values.begin(), values.end(), data);
  }
  Result<std::shared_ptr<const WhisperModel>> model = WhisperModel::Create(std::move(tensors));
  EXPECT_OK(model.status());
  return std::move(model).value();
}

class WhisperForward : public testing::Test {
 protected:
  void SetUp() override {
    golden_ = nlohmann::json::parse(std::ifstream(TestDataPath("whisper/forward.json")));
    mel_ = Uniforms("mel", 80 * 200);
    executor_ = MakeThreadPool(2);
    runner_ = MakeSpeechRunner(model_, *executor_, "f32");
  }
  const WhisperConfig& config() const { return model_->config(); }
  size_t vocab() const { return static_cast<size_t>(config().vocab); }

  std::vector<float> Logits(const std::vector<int32_t>& tokens) {
    Result<SequenceId> window = runner_->Encode(mel_.data(), 200);
    EXPECT_OK(window.status());
    const SequenceId sequence = *runner_->self().CreateSequence();
    const StepEntry entry{sequence, static_cast<int>(tokens.size())};
    std::vector<int> wanted;
    for (size_t i = 0; i < tokens.size(); ++i) wanted.push_back(static_cast<int>(i));
    std::vector<float> logits(tokens.size() * vocab());
    EXPECT_OK(runner_->Decode(*window, {&entry, 1}, tokens, wanted, logits.data()));
    EXPECT_OK(runner_->self().Free(sequence));
    return logits;
  }

  std::shared_ptr<const WhisperModel> model_ = GoldenModel();
  nlohmann::json golden_;
  std::vector<float> mel_;  // [80, 200]
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<SpeechRunner> runner_;
};

TEST_F(WhisperForward, EncoderIsTheReferences) {
  auto encoder =
      WhisperEncoder::Create(model_, *executor_, ProductPrecision::kF32, MakePagePool(0));
  ASSERT_OK(encoder.status());
  std::vector<float> output(static_cast<size_t>(100) * 64);
  ASSERT_OK((*encoder)->Run(mel_.data(), 200, output.data()));
  const size_t stride = golden_.at("encoder_stride");
  double worst = 0;
  for (size_t r = 0; r < golden_.at("encoder_rows").size(); ++r) {
    const size_t row = golden_.at("encoder_rows")[r];
    const std::vector<double> expected = golden_.at("encoder")[r];
    ASSERT_EQ(expected.size(), (64 + stride - 1) / stride);
    for (size_t i = 0; i < expected.size(); ++i) {
      worst = std::max(worst, std::abs(output[row * 64 + i * stride] - expected[i]));
    }
  }
  EXPECT_LE(worst, kMaxDifference);
  EXPECT_GT(worst, 0.0);
}

TEST_F(WhisperForward, LogitsAreTheReferences) {
  const std::vector<int32_t> tokens = golden_.at("tokens");
  const std::vector<float> logits = Logits(tokens);
  const size_t stride = golden_.at("logit_stride");
  double worst = 0;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const std::vector<double> expected = golden_.at("logits")[t];
    ASSERT_EQ(expected.size(), (vocab() + stride - 1) / stride);
    for (size_t i = 0; i < expected.size(); ++i) {
      worst = std::max(worst, std::abs(logits[t * vocab() + i * stride] - expected[i]));
    }
  }
  EXPECT_LE(worst, kMaxDifference);
  EXPECT_GT(worst, 0.0);
}

TEST_F(WhisperForward, GreedyTokensAreTheReferences) {
  std::vector<int32_t> tokens = golden_.at("tokens");
  const size_t prompt = tokens.size();
  const std::vector<int32_t> expected = golden_.at("greedy");
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::vector<float> logits = Logits(tokens);
    const auto last = logits.end() - static_cast<ptrdiff_t>(vocab());
    tokens.push_back(static_cast<int32_t>(std::max_element(last, logits.end()) - last));
  }
  EXPECT_EQ(std::vector<int32_t>(tokens.begin() + static_cast<ptrdiff_t>(prompt), tokens.end()),
            expected);
}

TEST_F(WhisperForward, APositionBeyondTheModelIsRefused) {
  Result<SequenceId> window = runner_->Encode(mel_.data(), 200);
  ASSERT_OK(window.status());
  const SequenceId sequence = *runner_->self().CreateSequence();
  const StepEntry entry{sequence, 65};
  const std::vector<int32_t> tokens(65, 7);
  const Status status = runner_->Decode(*window, {&entry, 1}, tokens, {}, nullptr);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("position 64"), std::string::npos) << status.message();
  EXPECT_EQ(*runner_->self().NextPosition(sequence), 0);
}

}  // namespace whisper_forward_test
}  // namespace varve
