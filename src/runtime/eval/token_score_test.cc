#include "runtime/eval/token_score.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace varve {
namespace token_score_test {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(size_t size, float scale, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

long double ExactLogSumExp(const std::vector<float>& logits) {
  long double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
  return std::log(sum);
}

// By the definition, in long double.
long double ExactKl(const std::vector<float>& p, const std::vector<float>& q) {
  const long double lse_p = ExactLogSumExp(p);
  const long double lse_q = ExactLogSumExp(q);
  long double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    kl += std::exp(p[i] - lse_p) * ((p[i] - lse_p) - (q[i] - lse_q));
  }
  return kl;
}

double Kl(const std::vector<float>& p, const std::vector<float>& q) {
  std::vector<double> probabilities(p.size());
  const RowSummary reference = SoftmaxRow(p, probabilities.data());
  return RowDivergence(probabilities.data(), p, reference, q, SummariseRow(q));
}

TEST(TokenScore, LogSumExpAndSoftmaxAreExact) {
  for (const size_t size : {1, 7, 8, 9, 1000}) {
    const std::vector<float> logits = RandomLogits(size, 3.0f, 1);
    std::vector<double> probabilities(size);
    const RowSummary summary = SoftmaxRow(logits, probabilities.data());
    const long double expected = ExactLogSumExp(logits);
    EXPECT_NEAR(summary.log_sum_exp, expected, 1e-14 * (1 + std::abs(expected))) << size;
    EXPECT_EQ(SummariseRow(logits).log_sum_exp, summary.log_sum_exp);
    for (size_t i = 0; i < size; ++i) {
      EXPECT_NEAR(probabilities[i], std::exp(logits[i] - expected), 1e-14);
    }
  }
}

TEST(TokenScore, LargeLogitsDoNotOverflow) {
  const std::vector<float> logits = {-3e4f, 3e4f, 3e4f};
  EXPECT_DOUBLE_EQ(SummariseRow(logits).log_sum_exp, 3e4 + std::log(2.0));
}

TEST(TokenScore, TiesGoToTheLowestId) {
  EXPECT_EQ(SummariseRow(std::vector<float>{1, 5, 5, -1}).best, 1);
  EXPECT_EQ(SummariseRow(std::vector<float>{-kInf, -2, -kInf}).best, 1);
}

TEST(TokenScore, EqualRowsHaveNoDivergenceAtAll) {
  for (const size_t size : {1, 9, 1000}) {
    const std::vector<float> logits = RandomLogits(size, 5.0f, 2);
    EXPECT_EQ(Kl(logits, logits), 0.0);
  }
}

TEST(TokenScore, SmallDivergencesKeepTheirDigits) {
  const std::vector<float> p = RandomLogits(5000, 2.0f, 3);
  const std::vector<float> noise = RandomLogits(5000, 1.0f, 4);
  for (const float size : {1.0f, 1e-2f, 1e-4f}) {
    std::vector<float> q = p;
    for (size_t i = 0; i < q.size(); ++i) q[i] += size * noise[i];
    const auto expected = static_cast<double>(ExactKl(p, q));
    EXPECT_GT(expected, 0.1 * size * size);
    EXPECT_NEAR(Kl(p, q), expected, 1e-13 + 1e-9 * expected) << size;
  }
}

TEST(TokenScore, AConstantAddedToALogitRowIsNoDivergence) {
  // Powers of two keep the sum exact in f32.
  std::vector<float> p(300);
  for (size_t i = 0; i < p.size(); ++i) p[i] = static_cast<float>(i % 17) * 0.25f;
  std::vector<float> q = p;
  for (float& logit : q) logit += 64.0f;
  EXPECT_LT(Kl(p, q), 1e-12);
}

TEST(TokenScore, ATokenThatBothExcludeCountsForNothing) {
  EXPECT_NEAR(Kl({0, 1, -kInf}, {1, 0, -kInf}), static_cast<double>(ExactKl({0, 1}, {1, 0})),
              1e-14);
}

TEST(TokenScore, BrokenLogitsShow) {
  EXPECT_FALSE(std::isfinite(SummariseRow(std::vector<float>{0, NAN, 1}).log_sum_exp));
  EXPECT_FALSE(std::isfinite(SummariseRow(std::vector<float>{NAN, NAN}).log_sum_exp));
  EXPECT_FALSE(std::isfinite(SummariseRow(std::vector<float>{0, kInf}).log_sum_exp));
  EXPECT_FALSE(std::isfinite(SummariseRow(std::vector<float>{-kInf, -kInf}).log_sum_exp));
}

}  // namespace token_score_test
}  // namespace varve
