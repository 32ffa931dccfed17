// What the tests of speech share: a small random model that every vocabulary fits, sounds, and
// decoded windows of it.

#ifndef VARVE_RUNTIME_WHISPER_SPEECH_TESTING_H_
#define VARVE_RUNTIME_WHISPER_SPEECH_TESTING_H_

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/audio/log_mel.h"
#include "runtime/whisper/speech_runner.h"
#include "runtime/whisper/window_decoder.h"
#include "tests/cache_testing.h"
#include "tests/whisper_testing.h"

namespace varve {

// Windows of 2 seconds: 2 + 2 layers of width 64, 2 heads of 32. Made once per process and vocab.
inline std::shared_ptr<const WhisperModel> TestSpeechModel(int vocab = 51864) {
  static std::map<int, std::shared_ptr<const WhisperModel>> models;
  std::shared_ptr<const WhisperModel>& model = models[vocab];
  if (model == nullptr) {
    WhisperConfig config = TinyWhisperConfig(vocab);
    config.audio_ctx = 100;
    config.text_ctx = 48;
    Result<std::shared_ptr<const WhisperModel>> made =
        WhisperModel::Create(RandomWhisper(config, 3));
    EXPECT_OK(made.status());
    model = std::move(made).value();
  }
  return model;
}

inline std::unique_ptr<SpeechRunner> MakeSpeechRunner(std::shared_ptr<const WhisperModel> model,
                                                      Executor& executor, const std::string& plan,
                                                      std::shared_ptr<PagePool> pool = nullptr,
                                                      int max_windows = 2) {
  SpeechOptions options;
  options.plan = *ParsePlan(plan);
  options.pool = std::move(pool);
  options.max_windows = max_windows;
  Result<std::unique_ptr<SpeechRunner>> runner =
      SpeechRunner::Create(std::move(model), executor, options);
  EXPECT_OK(runner.status());
  return std::move(runner).value();
}

// A tone that wanders, at 16 kHz.
inline std::vector<float> TestSound(double seconds, double hertz = 440) {
  std::vector<float> samples(static_cast<size_t>(seconds * 16000));
  for (size_t i = 0; i < samples.size(); ++i) {
    const double t = static_cast<double>(i) / 16000;
    samples[i] = static_cast<float>(0.3 * std::sin(6.2832 * hertz * t * (1 + 0.2 * t)));
  }
  return samples;
}

inline LogMel TestMel(const std::vector<float>& samples) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(1);
  return ComputeLogMel(samples, 80, *executor);
}

// The text of the first window.
inline WindowText DecodeFirstWindow(SpeechRunner& runner, const LogMel& mel,
                                    const WindowSearch& search) {
  Result<SequenceId> window = runner.Encode(mel.values.data(), mel.stride());
  EXPECT_OK(window.status());
  WindowDecoder decoder(runner, *window);
  WindowPrompt prompt;
  if (runner.model().config().multilingual()) prompt.language = 0;
  EXPECT_OK(decoder.Start(prompt));
  Result<WindowText> text = decoder.Decode(search);
  EXPECT_OK(text.status());
  return std::move(text).value();
}

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_SPEECH_TESTING_H_
