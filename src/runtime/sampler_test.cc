#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "runtime/sampler_weights.h"

namespace varve {
namespace sampler_test {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::map<int32_t, int> Count(const SamplerOptions& options, const std::vector<float>& logits,
                             int draws) {
  Sampler sampler(options);
  std::map<int32_t, int> counts;
  for (int i = 0; i < draws; ++i) {
    Result<int32_t> token = sampler.Sample(logits);
    EXPECT_TRUE(token.ok()) << token.status().ToString();
    if (token.ok()) ++counts[*token];
  }
  return counts;
}

std::set<int32_t> Drawn(const SamplerOptions& options, const std::vector<float>& logits) {
  std::set<int32_t> tokens;
  for (const auto& [token, count] : Count(options, logits, 4000)) tokens.insert(token);
  return tokens;
}

// Logits of these probabilities.
std::vector<float> Logits(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  logits.reserve(probabilities.size());
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

double ChiSquare(const std::map<int32_t, int>& counts, const std::vector<double>& probabilities,
                 int draws) {
  double sum = 0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    const auto found = counts.find(static_cast<int32_t>(i));
    const double expected = probabilities[i] * draws;
    const double difference = (found == counts.end() ? 0 : found->second) - expected;
    sum += difference * difference / expected;
  }
  return sum;
}

TEST(SamplerWeights, AreTheExponential) {
  double worst = 0;
  for (double x = 0; x < 27; x += 0.00371) {
    const auto logit = static_cast<float>(5.0 - x);
    const double exact = std::exp2(40) * std::exp(static_cast<double>(logit) - 5.0);
    const double error = std::abs(static_cast<double>(SoftmaxWeight(5.0f, logit, 1.0f)) - exact);
    worst = std::max(worst, (error - 1.0) / exact);  // rounded down to an integer
  }
  EXPECT_LT(worst, std::exp2(-28));
  EXPECT_EQ(SoftmaxWeight(3.0f, 3.0f, 0.7f), kHighestWeight);
  EXPECT_EQ(SoftmaxWeight(3.0f, 3.0f, FLT_MIN), kHighestWeight);
  EXPECT_EQ(SoftmaxWeight(FLT_MAX, -FLT_MAX, 1.0f), 0u);
  EXPECT_EQ(SoftmaxWeight(FLT_MAX, -FLT_MAX, FLT_MIN), 0u);
  EXPECT_EQ(SoftmaxWeight(30.0f, 0.0f, 1.0f), 0u);  // e^-30 < 2^-40
}

// Numbers that must be the same on every machine.
TEST(SamplerWeights, DoNotDependOnTheMachine) {
  EXPECT_EQ(SoftmaxWeight(1.0f, 0.0f, 1.0f), 404487723443u);
  EXPECT_EQ(SoftmaxWeight(10.0f, 0.3f, 0.8f), 5961826u);
  EXPECT_EQ(ScaleRandom(0, 1000), 0u);
  EXPECT_EQ(ScaleRandom(~uint64_t{0}, 1000), 999u);
  EXPECT_EQ(ScaleRandom(0x8000000000000000u, 0xFFFFFFFFFFFFFFFFu), 0x7FFFFFFFFFFFFFFFu);
}

TEST(Sampler, GreedyTakesTheHighestLogitAndTheLowestIdOfEquals) {
  Sampler sampler({});
  EXPECT_EQ(*sampler.Sample(std::vector<float>{1, 3, 2, 3}), 1);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{-5, -3, -4}), 1);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{0, 0, 0}), 0);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{-FLT_MAX}), 0);
}

TEST(Sampler, NeverChoosesWhatIsNotFinite) {
  for (const float temperature : {0.0f, 1.0f}) {
    const SamplerOptions options = {.temperature = temperature};
    const auto counts = Count(options, {kNaN, -kInf, 0.0f, kInf, -1.0f, kNaN}, 500);
    for (const auto& [token, count] : counts) EXPECT_TRUE(token == 2 || token == 4) << token;
  }
}

TEST(Sampler, SaysWhenNoLogitIsFinite) {
  for (const float temperature : {0.0f, 1.0f}) {
    Sampler sampler({.temperature = temperature, .top_k = 2, .top_p = 0.5f});
    for (const auto& logits : {std::vector<float>{}, {-kInf, -kInf}, {kNaN, kInf}}) {
      const Result<int32_t> token = sampler.Sample(logits);
      ASSERT_FALSE(token.ok());
      EXPECT_EQ(token.status().code(), StatusCode::kDataLoss);
    }
  }
}

TEST(Sampler, DrawsFromTheSoftmax) {
  const std::vector<double> probabilities = {0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.015, 0.005};
  constexpr int kDraws = 100000;
  const auto counts = Count({.temperature = 1.0f, .seed = 7}, Logits(probabilities), kDraws);
  // 7 degrees of freedom: 24.3 is exceeded once in a thousand, 0.6 is missed as often.
  const double chi_square = ChiSquare(counts, probabilities, kDraws);
  EXPECT_LT(chi_square, 24.3);
  EXPECT_GT(chi_square, 0.6);
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  const std::vector<double> probabilities = {0.5, 0.3, 0.2};
  for (const float temperature : {0.5f, 2.0f}) {
    std::vector<double> expected;
    for (const double p : probabilities) expected.push_back(std::pow(p, 1.0 / temperature));
    const double sum = std::accumulate(expected.begin(), expected.end(), 0.0);
    for (double& p : expected) p /= sum;
    const auto counts =
        Count({.temperature = temperature, .seed = 3}, Logits(probabilities), 50000);
    EXPECT_LT(ChiSquare(counts, expected, 50000), 13.8) << temperature;  // once in a thousand
  }
}

TEST(Sampler, TopKKeepsTheKBest) {
  const std::vector<float> logits = {0.1f, 0.5f, 0.4f, 0.5f, 0.2f, 0.4f};
  EXPECT_EQ(Drawn({.temperature = 1, .top_k = 1}, logits), (std::set<int32_t>{1}));
  EXPECT_EQ(Drawn({.temperature = 1, .top_k = 2}, logits), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(Drawn({.temperature = 1, .top_k = 3}, logits), (std::set<int32_t>{1, 2, 3}));
  EXPECT_EQ(Drawn({.temperature = 1, .top_k = 6}, logits).size(), 6u);
  EXPECT_EQ(Drawn({.temperature = 1, .top_k = 1000}, logits).size(), 6u);
}

TEST(Sampler, TopPKeepsTheSmallestSetWithTheMass) {
  const std::vector<float> logits = Logits({0.1, 0.4, 0.3, 0.2});
  EXPECT_EQ(Drawn({.temperature = 1, .top_p = 0.01f}, logits), (std::set<int32_t>{1}));
  EXPECT_EQ(Drawn({.temperature = 1, .top_p = 0.39f}, logits), (std::set<int32_t>{1}));
  EXPECT_EQ(Drawn({.temperature = 1, .top_p = 0.41f}, logits), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(Drawn({.temperature = 1, .top_p = 0.69f}, logits), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(Drawn({.temperature = 1, .top_p = 0.71f}, logits), (std::set<int32_t>{1, 2, 3}));
  EXPECT_EQ(Drawn({.temperature = 1, .top_p = 0.95f}, logits).size(), 4u);
}

// 1000 equal logits: the set is found although more than a few candidates have the mass.
TEST(Sampler, TopPOfAFlatDistributionKeepsTheLowestIds) {
  const std::vector<float> logits(1000, 1.5f);
  const std::set<int32_t> drawn = Drawn({.temperature = 1, .top_p = 0.1999f}, logits);
  EXPECT_EQ(*drawn.rbegin(), 199);
  EXPECT_GT(drawn.size(), 190u);
}

TEST(Sampler, MinPKeepsWhatHasThePartOfTheBest) {
  const std::vector<float> logits = Logits({0.05, 0.5, 0.25, 0.2});
  EXPECT_EQ(Drawn({.temperature = 1, .min_p = 0.51f}, logits), (std::set<int32_t>{1}));
  EXPECT_EQ(Drawn({.temperature = 1, .min_p = 0.49f}, logits), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(Drawn({.temperature = 1, .min_p = 0.39f}, logits), (std::set<int32_t>{1, 2, 3}));
  EXPECT_EQ(Drawn({.temperature = 1, .min_p = 0.09f}, logits).size(), 4u);
  EXPECT_EQ(Drawn({.temperature = 1, .min_p = 1.0f}, logits), (std::set<int32_t>{1}));
}

// The filters see temperature 1: a high temperature brings nothing back that they took away.
TEST(Sampler, TemperatureComesLast) {
  const std::vector<float> logits = Logits({0.6, 0.3, 0.1});
  EXPECT_EQ(Drawn({.temperature = 50, .top_p = 0.85f}, logits), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(Drawn({.temperature = 50, .min_p = 0.4f}, logits), (std::set<int32_t>{0, 1}));
}

TEST(Sampler, PenaltyMakesTokensOfTheWindowLessLikely) {
  Sampler sampler({.repetition_penalty = 2.0f, .repetition_window = 2});
  const std::vector<float> logits = {4.0f, 3.0f, 2.5f, -1.0f};
  EXPECT_EQ(*sampler.Sample(logits), 0);  // 4 3 2.5
  EXPECT_EQ(*sampler.Sample(logits), 1);  // 2 3 2.5
  EXPECT_EQ(*sampler.Sample(logits), 2);  // 2 1.5 2.5
  EXPECT_EQ(*sampler.Sample(logits), 0);  // 4 1.5 1.25: token 0 has left the window
}

TEST(Sampler, PenaltyMultipliesNegativeLogitsAndKnowsThePrompt) {
  Sampler sampler({.repetition_penalty = 2.0f});
  sampler.Observe(0);
  EXPECT_EQ(*sampler.Sample(std::vector<float>{-1.0f, -1.5f}), 1);
  Sampler extreme({.repetition_penalty = 100.0f});
  extreme.Observe(0);
  EXPECT_EQ(*extreme.Sample(std::vector<float>{-FLT_MAX}), 0);  // stays finite
}

TEST(Sampler, GivesTheSameTokensForTheSameSeed) {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(500);
  for (float& logit : logits) logit = normal(engine);
  const auto draw = [&](uint64_t seed) {
    Sampler sampler({.temperature = 1.0f, .top_k = 100, .top_p = 0.9f, .seed = seed});
    std::vector<int32_t> tokens;
    for (int i = 0; i < 32; ++i) tokens.push_back(*sampler.Sample(logits));
    return tokens;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

// A fixed sequence: another machine, compiler or release must draw the same.
TEST(Sampler, DrawsTheSameEverywhere) {
  std::vector<float> logits;
  for (int i = 0; i < 50; ++i) logits.push_back(static_cast<float>((i * 37) % 50) * 0.125f);
  Sampler sampler({.temperature = 0.75f, .top_p = 0.95f, .min_p = 0.01f, .seed = 42});
  std::vector<int32_t> tokens;
  for (int i = 0; i < 12; ++i) tokens.push_back(*sampler.Sample(logits));
  EXPECT_EQ(tokens, (std::vector<int32_t>{16, 4, 4, 31, 27, 24, 4, 20, 31, 12, 4, 8}));
}

TEST(Sampler, NamesTheOptionThatIsOutOfRange) {
  const std::pair<SamplerOptions, std::string> wrong[] = {
      {{.temperature = -0.5f}, "temperature -0.5"},
      {{.temperature = kNaN}, "temperature nan"},
      {{.top_k = -1}, "top_k -1"},
      {{.top_p = 0.0f}, "top_p 0"},
      {{.top_p = 1.5f}, "top_p 1.5"},
      {{.min_p = -0.5f}, "min_p -0.5"},
      {{.min_p = 2.0f}, "min_p 2"},
      {{.repetition_penalty = 0.0f}, "repetition_penalty 0"},
      {{.repetition_penalty = kInf}, "repetition_penalty inf"},
      {{.repetition_window = -3}, "repetition_window -3"},
  };
  for (const auto& [options, named] : wrong) {
    const Status status = CheckSamplerOptions(options);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << named;
    EXPECT_NE(status.message().find(named), std::string::npos) << status.message();
  }
  EXPECT_TRUE(CheckSamplerOptions({}).ok());
}

}  // namespace sampler_test
}  // namespace varve
