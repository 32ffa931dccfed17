// Real Whisper models on real speech, against the transformers library in f32
// (tools/make_whisper_model_golden.py). `./dev models` brings the models; the folder of speech is
// named by VARVE_SPEECH. Without either these tests are skipped.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "cli/models/model_testing.h"
#include "runtime/audio/audio_file.h"
#include "runtime/audio/log_mel.h"
#include "runtime/whisper/window_decoder.h"
#include "tests/cache_testing.h"
#include "tests/test_data.h"

namespace varve::cli {
namespace whisper_models_test {

constexpr double kMaxDifference = 2e-3;

class WhisperOnModels : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const char* speech = std::getenv("VARVE_SPEECH");
    if (speech == nullptr) GTEST_SKIP() << "VARVE_SPEECH names no folder of speech";
    speech_ = speech;
    std::string path;
    VARVE_FIND_SPEECH_MODEL_OR_SKIP(GetParam(), path);
    golden_ = nlohmann::json::parse(
        std::ifstream(TestDataPath(std::string("whisper/") + GetParam() + ".json")));
    Result<std::shared_ptr<const WhisperModel>> model = WhisperModel::Load(path);
    ASSERT_OK(model.status());
    model_ = std::move(model).value();
  }

  size_t vocab() const { return static_cast<size_t>(model_->config().vocab); }

  LogMel Mel(const std::string& clip) {
    Result<std::vector<float>> samples =
        ReadSpeech((std::filesystem::path(speech_) / clip).string());
    EXPECT_OK(samples.status());
    return ComputeLogMel(*samples, model_->config().mels, *executor_);
  }

  static double Difference(const float* values, size_t stride, const nlohmann::json& expected) {
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference = std::abs(values[i * stride] - expected[i].get<double>());
      worst = std::max(worst, std::isnan(difference) ? 1e9 : difference);
    }
    return worst;
  }

  std::unique_ptr<Executor> executor_ = MakeThreadPool(2);
  std::string speech_;
  nlohmann::json golden_;
  std::shared_ptr<const WhisperModel> model_;
};

TEST_P(WhisperOnModels, EncoderLogitsAndGreedyTokensAreTheReferences) {
  auto encoder =
      WhisperEncoder::Create(model_, *executor_, ProductPrecision::kF32, MakePagePool(0));
  ASSERT_OK(encoder.status());
  SpeechOptions options;
  options.plan = *ParsePlan("f32");
  auto runner = SpeechRunner::Create(model_, *executor_, options);
  ASSERT_OK(runner.status());
  const std::vector<int32_t> start = golden_.at("start");
  std::vector<float> encoded(static_cast<size_t>(model_->config().audio_ctx) *
                             model_->config().audio_state);
  double worst_encoder = 0;
  double worst_logits = 0;
  for (const auto& [clip, expected] : golden_.at("clips").items()) {
    const LogMel mel = Mel(clip);
    ASSERT_OK((*encoder)->Run(mel.values.data(), mel.stride(), encoded.data()));
    for (size_t r = 0; r < golden_.at("encoder_rows").size(); ++r) {
      const size_t row = golden_.at("encoder_rows")[r];
      worst_encoder = std::max(worst_encoder,
                               Difference(encoded.data() + row * model_->config().audio_state,
                                          golden_.at("encoder_stride"), expected.at("encoder")[r]));
    }
    Result<SequenceId> window = (*runner)->Encode(mel.values.data(), mel.stride());
    ASSERT_OK(window.status());
    std::vector<int32_t> tokens = expected.at("tokens");
    std::vector<int32_t> fed = start;
    fed.insert(fed.end(), tokens.begin(), tokens.begin() + expected.at("logits").size() - 1);
    std::vector<int> wanted;
    for (size_t i = start.size() - 1; i < fed.size(); ++i) wanted.push_back(static_cast<int>(i));
    std::vector<float> logits(wanted.size() * vocab());
    const SequenceId sequence = *(*runner)->self().CreateSequence();
    const StepEntry entry{sequence, static_cast<int>(fed.size())};
    ASSERT_OK((*runner)->Decode(*window, {&entry, 1}, fed, wanted, logits.data()));
    ASSERT_OK((*runner)->self().Free(sequence));
    for (size_t i = 0; i < wanted.size(); ++i) {
      worst_logits =
          std::max(worst_logits, Difference(logits.data() + i * vocab(), golden_.at("logit_stride"),
                                            expected.at("logits")[i]));
    }
    WindowDecoder decoder(**runner, *window);
    WindowPrompt prompt;
    prompt.language = model_->config().multilingual() ? 0 : -1;
    prompt.timestamps = false;
    ASSERT_OK(decoder.Start(prompt));
    Result<WindowText> text = decoder.Decode({.beams = 1});
    ASSERT_OK(text.status());
    EXPECT_EQ(text->tokens, tokens) << clip << ": " << text->text;
  }
  EXPECT_LE(worst_encoder, kMaxDifference);
  EXPECT_LE(worst_logits, kMaxDifference);
  RecordProperty("encoder", std::to_string(worst_encoder));
  RecordProperty("logits", std::to_string(worst_logits));
}

INSTANTIATE_TEST_SUITE_P(Speech, WhisperOnModels,
                         ::testing::Values("whisper-tiny.en", "whisper-base"));

}  // namespace whisper_models_test
}  // namespace varve::cli
