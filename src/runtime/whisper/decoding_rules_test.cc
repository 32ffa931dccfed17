// Which tokens may come next.

#include "runtime/whisper/decoding_rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "runtime/whisper/speech_testing.h"

namespace varve {
namespace decoding_rules_test {

class DecodingRulesTest : public testing::Test {
 protected:
  // Flat logits, but for those that a test raises.
  std::vector<float> logits_ = std::vector<float>(51864, 0.0f);
  std::shared_ptr<const WhisperModel> model_ = TestSpeechModel();
  const WhisperVocabulary& vocabulary_ = model_->vocabulary();
  DecodingRuleOptions options_;
  std::vector<float> scratch_;

  int32_t Stamp(int index) const { return vocabulary_.first_timestamp() + index; }
  double Apply(const std::vector<int32_t>& sampled) {
    return DecodingRules(*model_, options_).Apply(sampled, logits_, &scratch_);
  }
  bool Allowed(int32_t id) const { return std::isfinite(logits_[id]); }
};

TEST_F(DecodingRulesTest, ATextBeginsWithATimestampWithinTheFirstSecond) {
  Apply({});
  EXPECT_FALSE(Allowed(100));
  EXPECT_FALSE(Allowed(vocabulary_.end_of_text()));
  EXPECT_TRUE(Allowed(Stamp(0)));
  EXPECT_TRUE(Allowed(Stamp(50)));
  EXPECT_FALSE(Allowed(Stamp(51)));
}

TEST_F(DecodingRulesTest, WithoutTimestampsATextDoesNotBeginBlank) {
  options_.timestamps = false;
  Apply({});
  EXPECT_TRUE(Allowed(100));
  EXPECT_FALSE(Allowed(vocabulary_.space()));
  EXPECT_FALSE(Allowed(vocabulary_.end_of_text()));
  std::fill(logits_.begin(), logits_.end(), 0.0f);
  Apply({100});
  EXPECT_TRUE(Allowed(vocabulary_.space()));
  EXPECT_TRUE(Allowed(vocabulary_.end_of_text()));
}

TEST_F(DecodingRulesTest, WhatIsNotSpokenNeverComes) {
  logits_[100] = 20.0f;  // so that text is likelier than timestamps
  Apply({Stamp(0), 100});
  for (const int32_t id : vocabulary_.non_speech()) EXPECT_FALSE(Allowed(id)) << id;
  for (const int32_t id : {vocabulary_.start(), vocabulary_.no_speech(), vocabulary_.translate(),
                           vocabulary_.no_timestamps(), vocabulary_.start_of_previous()}) {
    EXPECT_FALSE(Allowed(id)) << id;
  }
  EXPECT_TRUE(Allowed(100));
  EXPECT_TRUE(Allowed(vocabulary_.end_of_text()));
}

TEST_F(DecodingRulesTest, AfterTheFirstTimestampComesText) {
  logits_[100] = 20.0f;
  Apply({Stamp(3)});
  EXPECT_TRUE(Allowed(100));
  EXPECT_FALSE(Allowed(Stamp(3)));
  EXPECT_FALSE(Allowed(Stamp(9)));
}

TEST_F(DecodingRulesTest, ATimestampBehindTextIsFollowedByItsPairOrTheEnd) {
  Apply({Stamp(3), 100, Stamp(9)});
  EXPECT_FALSE(Allowed(100));
  EXPECT_FALSE(Allowed(Stamp(8)));
  EXPECT_TRUE(Allowed(Stamp(9)));  // the next segment may begin where this one ended
  EXPECT_TRUE(Allowed(Stamp(10)));
}

TEST_F(DecodingRulesTest, TimestampsDoNotGoBackAndSegmentsAreNotEmpty) {
  logits_[100] = 20.0f;
  Apply({Stamp(3), 100});
  EXPECT_FALSE(Allowed(Stamp(3)));
  EXPECT_TRUE(Allowed(Stamp(4)));
}

TEST_F(DecodingRulesTest, TimestampsTogetherBeatEachTextToken) {
  // 1500 stamps of equal logits outweigh a token that is e^5 likelier than each of them.
  logits_[100] = 5.0f;
  const double log_sum = Apply({Stamp(0), 7});
  EXPECT_FALSE(Allowed(100));
  EXPECT_NEAR(log_sum, std::log(1500.0), 1e-3);
  std::fill(logits_.begin(), logits_.end(), 0.0f);
  logits_[100] = 9.0f;
  Apply({Stamp(0), 7});
  EXPECT_TRUE(Allowed(100));
}

TEST_F(DecodingRulesTest, TheLogarithmMakesProbabilitiesThatAddUpToOne) {
  for (size_t i = 0; i < logits_.size(); ++i) logits_[i] = std::sin(static_cast<float>(i)) * 3;
  logits_[100] = 12.0f;
  const double log_sum = Apply({Stamp(0), 7});
  double sum = 0;
  for (const float logit : logits_) sum += std::exp(logit - log_sum);
  EXPECT_NEAR(sum, 1.0, 1e-5);
}

TEST_F(DecodingRulesTest, NoFiniteLogitShows) {
  std::fill(logits_.begin(), logits_.end(), std::nanf(""));
  EXPECT_FALSE(std::isfinite(Apply({Stamp(0), 7})));
}

}  // namespace decoding_rules_test
}  // namespace varve
