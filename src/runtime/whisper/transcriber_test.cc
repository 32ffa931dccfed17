// Sounds of any length: segments, windows, and what has no words.

#include "runtime/whisper/transcriber.h"

#include <gtest/gtest.h>

#include <thread>

#include "runtime/whisper/speech_testing.h"

namespace varve {
namespace transcriber_test {

class TranscriberTest : public testing::Test {
 protected:
  std::string Text(const Transcript& transcript) {
    std::string text;
    for (const TranscriptSegment& segment : transcript.segments) text += segment.text;
    return text;
  }
  TranscribeOptions Quick() {
    TranscribeOptions options;
    options.search.beams = 2;
    options.search.max_tokens = 8;
    options.temperatures = {0};
    return options;
  }

  std::shared_ptr<const WhisperModel> model_ = TestSpeechModel();
  const WhisperVocabulary& vocabulary_ = model_->vocabulary();
  std::unique_ptr<Executor> executor_ = MakeThreadPool(2);
  int32_t Stamp(int index) const { return vocabulary_.first_timestamp() + index; }
};

TEST_F(TranscriberTest, PairsOfTimestampsCutSegments) {
  int advance = 0;
  const auto segments = CutSegments(
      vocabulary_, {Stamp(0), 100, Stamp(50), Stamp(60), 200, 300, Stamp(90), Stamp(90), 400}, 200,
      &advance);
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_DOUBLE_EQ(segments[0].start_s, 0.0);
  EXPECT_DOUBLE_EQ(segments[0].end_s, 1.0);
  EXPECT_DOUBLE_EQ(segments[1].start_s, 1.2);
  EXPECT_DOUBLE_EQ(segments[1].end_s, 1.8);
  EXPECT_EQ(segments[1].tokens, (std::vector<int32_t>{Stamp(60), 200, 300, Stamp(90)}));
  EXPECT_EQ(advance, 180);  // what is not whole is heard again
}

TEST_F(TranscriberTest, ALoneTimestampAtTheEndClosesTheWindow) {
  int advance = 0;
  const auto segments = CutSegments(
      vocabulary_, {Stamp(0), 100, Stamp(50), Stamp(50), 200, Stamp(70)}, 200, &advance);
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_DOUBLE_EQ(segments[1].end_s, 1.4);
  EXPECT_EQ(advance, 200);
}

TEST_F(TranscriberTest, WithoutPairsTheWindowIsOneSegment) {
  int advance = 0;
  auto segments = CutSegments(vocabulary_, {Stamp(0), 100, Stamp(50)}, 200, &advance);
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_DOUBLE_EQ(segments[0].end_s, 1.0);
  EXPECT_EQ(advance, 200);
  segments = CutSegments(vocabulary_, {100, 200}, 150, &advance);
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_DOUBLE_EQ(segments[0].end_s, 1.5);
  EXPECT_EQ(advance, 150);
}

TEST_F(TranscriberTest, EveryWindowBringsTheSoundOn) {
  auto runner = MakeSpeechRunner(model_, *executor_, "q8_0");
  double last = 0;
  int calls = 0;
  TranscribeCallbacks callbacks;
  callbacks.on_progress = [&](double seconds) {
    EXPECT_GT(seconds, last);
    last = seconds;
    return ++calls < 100;
  };
  auto transcript = Transcribe(*runner, TestMel(TestSound(5)), Quick(), callbacks);
  ASSERT_OK(transcript.status());
  EXPECT_DOUBLE_EQ(last, 5.0);
  EXPECT_DOUBLE_EQ(transcript->duration_s, 5.0);
  EXPECT_GE(calls, 3);
}

TEST_F(TranscriberTest, CallbacksMayEndIt) {
  auto runner = MakeSpeechRunner(model_, *executor_, "f16");
  TranscribeCallbacks callbacks;
  callbacks.on_progress = [](double) { return false; };
  ASSERT_OK(Transcribe(*runner, TestMel(TestSound(5)), Quick(), callbacks).status());
  EXPECT_EQ(runner->stats().windows_encoded, 1u);
}

TEST_F(TranscriberTest, SilentAndShortSoundsGiveAResult) {
  auto runner = MakeSpeechRunner(model_, *executor_, "q8_0");
  for (const size_t samples : {size_t{1}, size_t{159}, size_t{160}, size_t{32000}}) {
    const std::vector<float> silence(samples, 0.0f);
    auto transcript = Transcribe(*runner, TestMel(silence), Quick());
    ASSERT_OK(transcript.status());
    if (samples < 160) {
      EXPECT_TRUE(transcript->segments.empty());
    }
  }
  EXPECT_EQ(runner->self().Stats().sequences, 0u);
}

TEST_F(TranscriberTest, TwoSoundsAtOnceOverOnePoolGiveTheirTexts) {
  const LogMel mels[] = {TestMel(TestSound(3)), TestMel(TestSound(3, 800))};
  std::string alone[2], together[2];
  for (int i = 0; i < 2; ++i) {
    auto runner = MakeSpeechRunner(model_, *executor_, "q8_0");
    alone[i] = Text(*Transcribe(*runner, mels[i], Quick()));
  }
  auto pool = MakePagePool(0);
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      const std::unique_ptr<Executor> executor = MakeThreadPool(1);
      auto runner = MakeSpeechRunner(model_, *executor, "q8_0", pool);
      together[i] = Text(*Transcribe(*runner, mels[i], Quick()));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together[0], alone[0]);
  EXPECT_EQ(together[1], alone[1]);
}

TEST_F(TranscriberTest, WordsLieInOrderAndSpellTheText) {
  auto runner = MakeSpeechRunner(model_, *executor_, "f16");
  TranscribeOptions options = Quick();
  options.words = true;
  auto transcript = Transcribe(*runner, TestMel(TestSound(2)), options);
  ASSERT_OK(transcript.status());
  ASSERT_FALSE(transcript->segments.empty());
  double last = 0;
  for (const TranscriptSegment& segment : transcript->segments) {
    std::string text;
    for (const TranscriptWord& word : segment.words) {
      EXPECT_LE(last, word.start_s);
      EXPECT_LE(word.start_s, word.end_s);
      EXPECT_GT(word.probability, 0.0);
      last = word.start_s;
      text += word.text;
    }
    EXPECT_EQ(text, segment.text);
  }
}

TEST_F(TranscriberTest, AnEnglishModelRefusesOtherLanguagesAndTranslation) {
  auto runner = MakeSpeechRunner(model_, *executor_, "f16");
  TranscribeOptions options = Quick();
  options.language = "de";
  EXPECT_EQ(Transcribe(*runner, TestMel(TestSound(1)), options).status().code(),
            StatusCode::kInvalidArgument);
  options.language = "en";
  options.translate = true;
  EXPECT_EQ(Transcribe(*runner, TestMel(TestSound(1)), options).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(TranscriberTest, AMultilingualModelFindsALanguageAndEncodesOnceForBoth) {
  auto runner = MakeSpeechRunner(TestSpeechModel(51865), *executor_, "f16");
  auto transcript = Transcribe(*runner, TestMel(TestSound(2)), Quick());
  ASSERT_OK(transcript.status());
  EXPECT_FALSE(transcript->language.empty());
  EXPECT_EQ(runner->stats().windows_encoded, 1u);
}

}  // namespace transcriber_test
}  // namespace varve
