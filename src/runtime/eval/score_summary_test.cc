#include "runtime/eval/score_summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace varve {
namespace score_summary_test {

TEST(BlockMean, IsTheMeanOfAllValues) {
  BlockMean mean;
  EXPECT_TRUE(std::isnan(mean.mean()));
  for (const double value : {1.0, 2.0, 6.0}) mean.Add(value);
  mean.EndBlock();
  EXPECT_TRUE(std::isnan(mean.standard_error()));  // one block tells nothing of the spread
  mean.Add(7.0);
  EXPECT_DOUBLE_EQ(mean.mean(), 4.0);
  // Residuals of the blocks: 9 - 3 * 4 and 7 - 4.
  EXPECT_DOUBLE_EQ(mean.standard_error(), std::sqrt((9.0 + 9.0) * 2 / 1) / 4);
}

TEST(BlockMean, BlocksOfOneGiveTheUsualStandardError) {
  BlockMean mean;
  for (const double value : {1.0, 3.0, 5.0, 11.0}) {
    mean.Add(value);
    mean.EndBlock();
  }
  const double variance = (16.0 + 4.0 + 0.0 + 36.0) / 3;
  EXPECT_DOUBLE_EQ(mean.standard_error(), std::sqrt(variance / 4));
}

TEST(BlockMean, ValuesThatRepeatWithinABlockDoNotShrinkTheError) {
  BlockMean single;
  BlockMean repeated;
  for (const double value : {1.0, 4.0, 2.0, 9.0}) {
    single.Add(value);
    for (int i = 0; i < 64; ++i) repeated.Add(value);
    single.EndBlock();
    repeated.EndBlock();
  }
  EXPECT_DOUBLE_EQ(single.standard_error(), repeated.standard_error());
}

TEST(Quantile, IsTheNearestRank) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  EXPECT_EQ(Quantile(values, 0.99), 99.0);
  EXPECT_EQ(Quantile(values, 1.0), 100.0);
  EXPECT_EQ(Quantile(values, 0.0), 1.0);
  EXPECT_EQ(Quantile({5.0}, 0.99), 5.0);
  EXPECT_TRUE(std::isnan(Quantile({}, 0.99)));
}

TEST(ScoreSummary, GivesTheFiguresOfTheReport) {
  ScoreSummary summary;
  const double ln2 = std::numbers::ln2;
  summary.Add({2 * ln2, 0.5, true}, 1 * ln2, 3);
  summary.EndBlock();
  summary.Add({4 * ln2, 0.1, false}, 5 * ln2, 1);
  EXPECT_EQ(summary.tokens(), 2);
  EXPECT_NEAR(summary.perplexity(), 8.0, 1e-12);  // 2^3
  EXPECT_NEAR(summary.bits_per_byte(), 6.0 / 4, 1e-12);
  EXPECT_NEAR(summary.kl_mean(), 0.3, 1e-12);
  EXPECT_EQ(summary.kl_p99(), 0.5);
  EXPECT_EQ(summary.same_best(), 0.5);
  EXPECT_NEAR(summary.loss_difference(), 0.0, 1e-12);
  EXPECT_NEAR(summary.loss_difference_standard_error(), ln2, 1e-12);
}

TEST(ScoreSummary, WithoutTokensNothingIsANumber) {
  const ScoreSummary summary;
  EXPECT_EQ(summary.tokens(), 0);
  for (const double figure : {summary.perplexity(), summary.bits_per_byte(), summary.kl_mean(),
                              summary.kl_p99(), summary.same_best()}) {
    EXPECT_TRUE(std::isnan(figure));
  }
}

}  // namespace score_summary_test
}  // namespace varve
