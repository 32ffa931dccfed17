// A speech model on its caches: what is encoded, shared, sealed and given back.

#include "runtime/whisper/speech_runner.h"

#include <gtest/gtest.h>

#include "runtime/slab_reserve.h"
#include "runtime/whisper/speech_plans.h"
#include "runtime/whisper/speech_testing.h"

namespace varve {
namespace speech_runner_test {

class SpeechRunnerTest : public testing::Test {
 protected:
  std::unique_ptr<Executor> executor_ = MakeThreadPool(2);
  std::shared_ptr<const WhisperModel> model_ = TestSpeechModel();
  LogMel mel_ = TestMel(TestSound(2));
  LogMel other_ = TestMel(TestSound(2, 700));
};

TEST_F(SpeechRunnerTest, DecodingTwiceEncodesOnce) {
  auto runner = MakeSpeechRunner(model_, *executor_, "q8_0");
  const WindowText first = DecodeFirstWindow(*runner, mel_, {.beams = 5});
  const WindowText greedy = DecodeFirstWindow(*runner, mel_, {.beams = 1});
  const WindowText again = DecodeFirstWindow(*runner, mel_, {.beams = 5});
  EXPECT_EQ(first.tokens, again.tokens);
  EXPECT_FALSE(greedy.tokens.empty());
  EXPECT_EQ(runner->stats().windows_encoded, 1u);
  EXPECT_EQ(runner->stats().windows_reused, 2u);
}

TEST_F(SpeechRunnerTest, TheWindowUsedLongestAgoGoesFirst) {
  auto runner = MakeSpeechRunner(model_, *executor_, "f16", nullptr, 2);
  const LogMel third = TestMel(TestSound(2, 300));
  const auto encode = [&](const LogMel& mel) {
    EXPECT_OK(runner->Encode(mel.values.data(), mel.stride()).status());
    return runner->stats().windows_encoded;
  };
  EXPECT_EQ(encode(mel_), 1u);
  EXPECT_EQ(encode(other_), 2u);
  EXPECT_EQ(encode(mel_), 2u);
  EXPECT_EQ(encode(third), 3u);  // takes the place of other_
  EXPECT_EQ(encode(mel_), 3u);
  EXPECT_EQ(encode(other_), 4u);
  EXPECT_EQ(runner->cross().Stats().sequences, 2u);
}

TEST_F(SpeechRunnerTest, CrossPagesAreAllSealedInTheirRung) {
  auto runner = MakeSpeechRunner(model_, *executor_, "f16,cross=q4_0r");
  Result<SequenceId> window = runner->Encode(mel_.values.data(), mel_.stride());
  ASSERT_OK(window.status());
  EXPECT_EQ(runner->cross().Describe(*window, 0)->live_rows, 100);
  for (const RungBytes& rung : runner->cross().Stats().rungs) {
    if (rung.pages == 0) continue;
    EXPECT_EQ(rung.rung, "q4_0r");
    EXPECT_EQ(rung.state, PageState::kSealed);
  }
  auto exact = MakeSpeechRunner(model_, *executor_, "f16");
  ASSERT_OK(exact->Encode(mel_.values.data(), mel_.stride()).status());
  EXPECT_LT(3 * runner->cross().Stats().bytes_used, exact->cross().Stats().bytes_used);
}

TEST_F(SpeechRunnerTest, BeamsShareTheirPages) {
  auto runner = MakeSpeechRunner(model_, *executor_, "f16");
  Result<SequenceId> window = runner->Encode(mel_.values.data(), mel_.stride());
  ASSERT_OK(window.status());
  // A prompt of a whole page and more: five beams hold it once.
  WindowPrompt prompt;
  prompt.previous.assign(40, 100);
  WindowDecoder decoder(*runner, *window);
  ASSERT_OK(decoder.Start(prompt));
  const uint64_t alone = runner->self().Stats().bytes_used;
  ASSERT_OK(decoder.Decode({.beams = 5, .max_tokens = 4}).status());
  EXPECT_LT(runner->stats().self_bytes, 4 * alone);
  EXPECT_EQ(runner->self().Stats().sequences, 1u);  // the prompt's
  EXPECT_EQ(runner->self().Stats().bytes_used, alone);
}

TEST_F(SpeechRunnerTest, ASecondSoundTakesNoNewSlabs) {
  // Texts that fill a page each, however the beams part: both sounds need the same.
  const WindowSearch search = {.beams = 5, .max_tokens = 8};
  CountingMemory memory;
  auto pool = MakeReservingPool(64 << 20, &memory);
  auto runner = MakeSpeechRunner(model_, *executor_, "q8_0", pool, 1);
  // A sound of two windows: from the second on, pages of every kind have been there before.
  DecodeFirstWindow(*runner, mel_, search);
  DecodeFirstWindow(*runner, TestMel(TestSound(2, 300)), search);
  const auto maps = memory.maps;
  EXPECT_GT(maps, 0);
  DecodeFirstWindow(*runner, other_, search);
  EXPECT_EQ(memory.maps, maps);
  // Nor does another runner, once this one is gone.
  runner.reset();
  runner = MakeSpeechRunner(model_, *executor_, "q8_0", pool, 1);
  DecodeFirstWindow(*runner, other_, search);
  EXPECT_EQ(memory.maps, maps);
}

TEST_F(SpeechRunnerTest, TextDoesNotDependOnTheNumberOfThreads) {
  std::vector<WindowText> texts;
  for (const int threads : {1, 2, 3}) {
    const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
    auto runner = MakeSpeechRunner(model_, *executor, "q8_0");
    texts.push_back(DecodeFirstWindow(*runner, mel_, {.temperature = 0.7, .best_of = 3}));
    EXPECT_EQ(texts.front().tokens, texts.back().tokens);
    EXPECT_EQ(texts.front().logprobs, texts.back().logprobs);
  }
}

TEST_F(SpeechRunnerTest, WeightsOfIntegersDecodeToo) {
  WhisperConfig config = model_->config();
  auto made = WhisperModel::Create(RandomWhisper(config, 3, WeightType::kQ8_0));
  ASSERT_OK(made.status());
  auto runner = MakeSpeechRunner(*made, *executor_, "f16");
  EXPECT_FALSE(DecodeFirstWindow(*runner, mel_, {.beams = 2, .max_tokens = 5}).tokens.empty());
}

TEST_F(SpeechRunnerTest, AnEstimateCoversWhatADecodeTakes) {
  for (const char* plan : {"f16", "q8_0", "q4_0r,exact=0"}) {
    auto runner = MakeSpeechRunner(model_, *executor_, plan);
    DecodeFirstWindow(*runner, mel_, {.beams = 5});
    Result<uint64_t> bytes = EstimateSpeechBytes(model_->config(), *ParsePlan(plan), 5, 2, 0);
    ASSERT_OK(bytes.status());
    EXPECT_GE(*bytes, runner->stats().self_bytes + runner->stats().cross_bytes) << plan;
  }
  // A short sound needs less than a long one.
  const Plan plan;
  EXPECT_LT(*EstimateSpeechBytes(model_->config(), plan, 5, 0.5, 0),
            *EstimateSpeechBytes(model_->config(), plan, 5, 60, 0));
}

TEST(SpeechPlans, CrossTakesItsRungAndNothingOfGrowingText) {
  const auto cross = [](const char* text) { return PrintPlan(CrossPlan(*ParsePlan(text))); };
  EXPECT_EQ(cross("q8_0,cross=q4_0r"), cross("q4_0r"));
  EXPECT_EQ(cross("q8_0,open=64,window=100"), cross("q8_0"));
  EXPECT_EQ(cross("age=f16:512/q8_0"), cross("q8_0"));
  EXPECT_EQ(cross("k=q8_0,v=f16"), cross("k=q8_0,v=f16,exact=64"));
  const LayerRule rule = CrossPlan(*ParsePlan("q4_0r")).rules.front();
  EXPECT_EQ(rule.k, "q4_0r");
  EXPECT_EQ(rule.exact_tokens, 0);
}

TEST(SpeechPlans, SelfForgetsCrossAndHasSmallPages) {
  const Plan self = SelfPlan(*ParsePlan("q8_0,cross=q4_0r"));
  EXPECT_FALSE(self.rules.front().cross.has_value());
  EXPECT_EQ(self.PageTokens(), 16);
  EXPECT_EQ(SelfPlan(*ParsePlan("q8_0,page=64")).PageTokens(), 64);
  EXPECT_EQ(SelfPlan(*ParsePlan("f32")).rules.front().open_rung, "f32");
}

}  // namespace speech_runner_test
}  // namespace varve
