#include "cli/gate/gate_speed.h"

#include <gtest/gtest.h>

#include <vector>

namespace varve::cli {
namespace gate_speed_test {

TEST(GateSpeed, OneDisturbedBlockChangesNothing) {
  std::vector<SpeedBlock> blocks(9, {1000, 1100, 1000});
  blocks[4] = {1000, 9000, 1000};
  const SpeedFigures figures = SummariseSpeed(blocks);
  EXPECT_NEAR(figures.drop, 1 - 1000.0 / 1100, 1e-12);
  EXPECT_NEAR(figures.noise, 0, 1e-12);
  EXPECT_NEAR(figures.tokens_per_s, 1e6 * kGateBlockTokens / 1100, 1e-6);
  EXPECT_NEAR(figures.baseline_tokens_per_s, 1e6 * kGateBlockTokens / 1000, 1e-6);
}

TEST(GateSpeed, WhatTheBaselineDiffersFromItselfIsNoise) {
  const std::vector<SpeedBlock> blocks(4, {1000, 1000, 1100});
  EXPECT_NEAR(SummariseSpeed(blocks).noise, 1 - 1000.0 / 1100, 1e-12);
}

TEST(GateSpeed, ScatteredBlocksAreNoiseAndMoreBlocksLessen) {
  std::vector<SpeedBlock> few;
  for (int i = 0; i < 4; ++i) few.push_back({1000, i % 2 == 0 ? 900.0 : 1100.0, 1000});
  std::vector<SpeedBlock> many;
  for (int i = 0; i < 64; ++i) many.push_back(few[static_cast<size_t>(i) % few.size()]);
  EXPECT_GT(SummariseSpeed(few).noise, 0.1);
  EXPECT_LT(SummariseSpeed(many).noise, SummariseSpeed(few).noise / 3);
}

TEST(GateSpeed, TheWholeRunTellsHowMuchABaselineWanders) {
  const std::vector<double> drops = {0.1, -0.1, 0.1, -0.1};
  EXPECT_NEAR(RunNoise(drops, 1), 0.2, 1e-12);
  EXPECT_NEAR(RunNoise(drops, 4), 0.1, 1e-12);
  EXPECT_EQ(RunNoise({drops.data(), 2}, 1), 0);
  const std::vector<SpeedBlock> blocks(4, {900, 1000, 1000});
  EXPECT_NEAR(SelfDrop(blocks), 0.1, 1e-12);
}

TEST(GateSpeed, AFixedBaselineTakesTheRunsPlace) {
  const std::vector<SpeedBlock> blocks(4, {1000, 1000, 1000});
  const double speed = 1e6 * kGateBlockTokens / 1000;
  const SpeedFigures figures = SummariseSpeed(blocks, 2 * speed, 0.25);
  EXPECT_NEAR(figures.drop, 0.5, 1e-12);
  EXPECT_NEAR(figures.noise, 0.25, 1e-12);
}

TEST(GateSpeed, IsUndecidedOnlyWithinTheNoise) {
  SpeedFigures figures;
  figures.noise = 0.02;
  figures.drop = 0.02;
  EXPECT_EQ(JudgeSpeed(figures, 0.05), SpeedVerdict::kPassed);
  figures.drop = 0.04;
  EXPECT_EQ(JudgeSpeed(figures, 0.05), SpeedVerdict::kUndecided);
  figures.drop = 0.06;
  EXPECT_EQ(JudgeSpeed(figures, 0.05), SpeedVerdict::kUndecided);
  figures.drop = 0.08;
  EXPECT_EQ(JudgeSpeed(figures, 0.05), SpeedVerdict::kFailed);
}

}  // namespace gate_speed_test
}  // namespace varve::cli
