#include "runtime/llama/rope.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>
#include <vector>

namespace varve {
namespace rope_test {

RopeConfig Plain(int dims, RopeOrder order = RopeOrder::kInterleaved) {
  RopeConfig config;
  config.order = order;
  config.dims = dims;
  return config;
}

TEST(Rope, FrequenciesFallFromOneByEqualFactors) {
  const std::vector<double> frequencies = RopeFrequencies(Plain(8));
  ASSERT_EQ(frequencies.size(), 4u);
  EXPECT_DOUBLE_EQ(frequencies[0], 1.0);
  EXPECT_NEAR(frequencies[1], 0.1, 1e-15);
  EXPECT_NEAR(frequencies[3], 0.001, 1e-15);
}

TEST(Rope, TurnsPairsOfTheOrderAskedFor) {
  const std::array<int64_t, 1> position = {3};
  RopeTable interleaved(Plain(4));
  interleaved.Prepare(position);
  std::vector<float> row = {1, 0, 0, 1, 5};  // the fifth value is another head's
  interleaved.Apply(0, row.data(), 1, 4);
  EXPECT_FLOAT_EQ(row[0], std::cos(3.0f));
  EXPECT_FLOAT_EQ(row[1], std::sin(3.0f));
  EXPECT_FLOAT_EQ(row[2], -std::sin(0.03f));
  EXPECT_FLOAT_EQ(row[3], std::cos(0.03f));
  EXPECT_EQ(row[4], 5.0f);

  RopeTable halves(Plain(4, RopeOrder::kHalves));
  halves.Prepare(position);
  row = {1, 0, 0, 1, 5};
  halves.Apply(0, row.data(), 1, 4);
  EXPECT_FLOAT_EQ(row[0], std::cos(3.0f));
  EXPECT_FLOAT_EQ(row[2], std::sin(3.0f));
  EXPECT_FLOAT_EQ(row[1], -std::sin(0.03f));
  EXPECT_FLOAT_EQ(row[3], std::cos(0.03f));
}

TEST(Rope, DimensionsBeyondTheRotatedOnesPassThrough) {
  for (RopeOrder order : {RopeOrder::kInterleaved, RopeOrder::kHalves}) {
    RopeTable table(Plain(4, order));
    const std::array<int64_t, 1> position = {7};
    table.Prepare(position);
    std::vector<float> row = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6};
    table.Apply(0, row.data(), 2, 6);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(row[i], row[6 + i]);  // both heads turn alike
    EXPECT_EQ(row[4], 5.0f);
    EXPECT_EQ(row[5], 6.0f);
    EXPECT_NE(row[0], 1.0f);
  }
}

// In f32 the angle 1e6 has an error of 0.03: attention far into a long text would drift.
TEST(Rope, FarPositionsKeepTheirAngle) {
  RopeTable table(Plain(2));
  const std::array<int64_t, 2> positions = {1000003, 5};
  table.Prepare(positions);
  std::vector<float> row = {1, 0};
  table.Apply(0, row.data(), 1, 2);
  EXPECT_FLOAT_EQ(row[0], static_cast<float>(std::cos(1000003.0)));
  EXPECT_FLOAT_EQ(row[1], static_cast<float>(std::sin(1000003.0)));
}

TEST(Rope, LinearScalingStretchesPositions) {
  RopeConfig config = Plain(8);
  config.scaling = RopeScaling::kLinear;
  config.factor = 4.0;
  const std::vector<double> plain = RopeFrequencies(Plain(8));
  const std::vector<double> scaled = RopeFrequencies(config);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 4.0);
}

TEST(Rope, YarnKeepsFastPairsAndStretchesSlowOnes) {
  RopeConfig config = Plain(64);
  config.scaling = RopeScaling::kYarn;
  config.factor = 8.0;
  config.original_context = 4096;
  const std::vector<double> plain = RopeFrequencies(Plain(64));
  const std::vector<double> scaled = RopeFrequencies(config);
  for (size_t i = 0; i < plain.size(); ++i) {
    const double turns = 4096 * plain[i] / (2 * std::numbers::pi);
    // The ramp's ends are rounded outwards to whole pairs.
    if (turns > config.yarn_beta_fast * 1.4) {
      EXPECT_DOUBLE_EQ(scaled[i], plain[i]) << i;
    }
    if (turns < config.yarn_beta_slow / 1.4) {
      EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 8.0) << i;
    }
    EXPECT_LE(scaled[i], plain[i]);
    EXPECT_GE(scaled[i], plain[i] / 8.0);
  }
}

TEST(Rope, DivisorsSlowEachPairByItself) {
  RopeConfig config = Plain(4);
  config.scaling = RopeScaling::kLlama3;
  config.frequency_divisors = {1.0f, 8.0f};
  const std::vector<double> scaled = RopeFrequencies(config);
  EXPECT_DOUBLE_EQ(scaled[0], 1.0);
  EXPECT_DOUBLE_EQ(scaled[1], 0.01 / 8.0);
}

TEST(Rope, AttentionFactorMultipliesTheRotatedValues) {
  RopeConfig config = Plain(2);
  config.attention_factor = 1.5;
  RopeTable table(config);
  const std::array<int64_t, 1> position = {2};
  table.Prepare(position);
  std::vector<float> row = {1, 0};
  table.Apply(0, row.data(), 1, 2);
  EXPECT_NEAR(std::hypot(row[0], row[1]), 1.5, 1e-6);
}

}  // namespace rope_test
}  // namespace varve
