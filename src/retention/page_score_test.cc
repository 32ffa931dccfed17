#include "retention/page_score.h"

#include <gtest/gtest.h>

#include <limits>

namespace varve {
namespace page_score_test {

void AddBucket(PageScore& score, double alpha, std::initializer_list<double> masses) {
  for (double mass : masses) score.Add(mass);
  score.FinishBucket(alpha);
}

TEST(PageScore, IsZeroBeforeTheFirstQuery) {
  const PageScore score;
  EXPECT_EQ(score.smooth(), 0.0);
  EXPECT_EQ(score.last(), 0.0);
  EXPECT_EQ(score.observed(), 0.0);
  EXPECT_FALSE(score.is_frozen());
}

TEST(PageScore, FollowsTheExponentialMeanOfBucketMeans) {
  PageScore score;
  AddBucket(score, 0.75, {0.5, 0.25, 0.0, 0.25});  // mean 0.25, taken as it is
  EXPECT_DOUBLE_EQ(score.smooth(), 0.25);
  AddBucket(score, 0.75, {0.5, 0.5});  // 0.75 * 0.25 + 0.25 * 0.5
  EXPECT_DOUBLE_EQ(score.smooth(), 0.3125);
  AddBucket(score, 0.75, {0.0});  // 0.75 * 0.3125
  EXPECT_DOUBLE_EQ(score.smooth(), 0.234375);
  EXPECT_DOUBLE_EQ(score.observed(), (0.25 + 0.5 + 0.0) / 3);
}

TEST(PageScore, WithoutMemoryIsTheLastBucket) {
  PageScore score;
  AddBucket(score, 0.0, {0.5, 0.75});
  AddBucket(score, 0.0, {0.125, 0.375});
  EXPECT_EQ(score.smooth(), 0.25);
}

TEST(PageScore, ABucketInProgressDoesNotCountOnceOneIsFinished) {
  PageScore score;
  score.Add(0.5);
  score.Add(1.0);
  EXPECT_EQ(score.smooth(), 0.75);  // nothing better is known
  score.FinishBucket(0.5);
  score.Add(0.0);
  EXPECT_EQ(score.smooth(), 0.75);
  EXPECT_EQ(score.last(), 0.0);
  score.FinishBucket(0.5);
  EXPECT_EQ(score.smooth(), 0.375);
}

TEST(PageScore, ABucketWithoutAQueryChangesNothing) {
  PageScore score;
  for (int i = 0; i < 5; ++i) score.FinishBucket(0.9);  // before the page began
  EXPECT_EQ(score.smooth(), 0.0);
  AddBucket(score, 0.9, {0.25, 0.75});
  EXPECT_EQ(score.smooth(), 0.5);  // the first one is not pulled to zero by the empty ones
  score.FinishBucket(0.9);
  EXPECT_EQ(score.smooth(), 0.5);
  EXPECT_EQ(score.observed(), 0.5);
}

TEST(PageScore, ObservedIsTheMeanOfTheLastFourBuckets) {
  PageScore score;
  for (double mass : {1.0, 0.5, 0.25, 0.25, 0.0, 0.125}) AddBucket(score, 0.9, {mass});
  EXPECT_EQ(score.observed(), (0.25 + 0.25 + 0.0 + 0.125) / 4);
}

TEST(PageScore, FreezeKeepsWhatWasObservedUntilTheNextFreeze) {
  PageScore score;
  AddBucket(score, 0.9, {0.5});
  score.Freeze();
  AddBucket(score, 0.9, {0.0});
  EXPECT_TRUE(score.is_frozen());
  EXPECT_EQ(score.frozen(), 0.5);
  score.Freeze();
  EXPECT_EQ(score.frozen(), 0.25);
}

TEST(PageScore, ACopyGoesItsOwnWay) {
  PageScore score;
  AddBucket(score, 0.5, {0.5});
  PageScore copy = score;
  AddBucket(copy, 0.5, {0.0});
  EXPECT_EQ(score.smooth(), 0.5);
  EXPECT_EQ(copy.smooth(), 0.25);
}

TEST(PageScore, TokensTakeTheirPartOfAPagesScoreWithThem) {
  PageScore old, recent;
  for (int bucket = 0; bucket < 6; ++bucket) {
    old.Add(0.4);
    old.FinishBucket(0.9);
  }
  recent.Add(0.2);  // no bucket of it has ended
  const PageScore::Share halves[] = {{&old, 0.5}, {&recent, 0.25}};
  PageScore blend = PageScore::Blend(halves);
  EXPECT_NEAR(blend.smooth(), 0.25, 1e-7);
  EXPECT_NEAR(blend.last(), 0.25, 1e-7);
  EXPECT_NEAR(blend.observed(), 0.25, 1e-7);
  blend.Freeze();
  EXPECT_NEAR(blend.frozen(), 0.25, 1e-7);
  const PageScore::Share young[] = {{&recent, 0.5}};
  EXPECT_NEAR(PageScore::Blend(young).smooth(), 0.1, 1e-7);
  EXPECT_EQ(PageScore::Blend({}).smooth(), 0);
}

}  // namespace page_score_test
}  // namespace varve
