// The contract of block_rung.h: errors per value, what becomes of values that do not fit, and the
// rotation.

#include "rungs/block/block_rung.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "rungs/rotation.h"
#include "rungs/rung_testing.h"

namespace varve {
namespace block_rung_test {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The value of largest magnitude of 32, the first of equals.
float Largest(const float* block) {
  return *std::max_element(block, block + kBlockValues,
                           [](float a, float b) { return std::abs(a) < std::abs(b); });
}

// Checks every value against the contract; returns the rms error in steps.
double CheckErrors(const Rung& rung, const std::vector<float>& rows,
                   const std::vector<float>& decoded) {
  const double codes = IsQ4(rung) ? 8 : 127;
  double squares = 0.0;
  for (size_t b = 0; b < rows.size(); b += kBlockValues) {
    const double largest = Largest(&rows[b]);
    const double step = std::abs(largest) / codes;
    // f16 rounds the scale by 2^-11 relative, or by 2^-25 where it is subnormal; codes multiply it.
    const double scale_error = std::max(step * 0x1p-11, 0x1p-25);
    for (size_t i = b; i < b + kBlockValues; ++i) {
      const double error = std::abs(static_cast<double>(decoded[i]) - rows[i]);
      // q4_0 has codes -8 … 7 and gives -8 to the largest: its opposite has no code.
      const bool opposite = IsQ4(rung) && rows[i] * largest < 0 && std::abs(rows[i]) > 7.5 * step;
      // 0.5 by f32 is 0.5 + a few units of the code's last place.
      EXPECT_LE(error, step * (opposite ? 1.0 : 0.5) + codes * scale_error +
                           4 * codes * step * kUnitRoundoff)
          << "value " << rows[i] << " largest " << largest;
      squares += step > 0 ? error * error / (step * step) : 0.0;
    }
  }
  return std::sqrt(squares / static_cast<double>(rows.size()));
}

class PlainBlock : public EveryRung {};
INSTANTIATE_TEST_SUITE_P(Rungs, PlainBlock, testing::Values("q8_0", "q4_0"), RungName);

TEST_P(PlainBlock, AValueIsOffByHalfAStepAtMostAndNotLess) {
  TestRandom random(61);
  for (const Part part : {Part::kKey, Part::kValue}) {
    for (const int dim : {32, 64, 96, 128, 256}) {
      const std::vector<float> rows = random.Gaussians(size_t{64} * dim);
      const double rms = CheckErrors(rung(), rows, Store(rung(), part, dim, 64, rows).decoded);
      // Uniform rounding: 1 / sqrt(12) = 0.289 steps; the largest value is exact.
      EXPECT_GT(rms, 0.26) << "dim " << dim;
      EXPECT_LT(rms, 0.32) << "dim " << dim;
    }
  }
}

TEST_P(PlainBlock, TheBoundHoldsForEveryMagnitude) {
  TestRandom random(62);
  for (int exponent = -140; exponent < 18; ++exponent) {
    std::vector<float> rows = random.Gaussians(size_t{16} * 32);
    for (float& x : rows) x = std::ldexp(std::clamp(x, -1.9f, 1.9f), exponent);
    CheckErrors(rung(), rows, Store(rung(), Part::kKey, 32, 16, rows).decoded);
  }
}

TEST_P(PlainBlock, ZerosAndEqualValuesAreExact) {
  for (const float x : {0.0f, -0.0f, 1.0f, -1.0f, 0.5f, 127.0f, -8.0f}) {
    const std::vector<float> rows(16 * 64, x);
    const StoredRows stored = Store(rung(), Part::kValue, 64, 16, rows);
    // q8_0 of x / 127 rounds the scale; a multiple of 127 does not.
    const double tolerance = IsQ4(rung()) ? 0.0 : std::abs(x) * 0x1p-11;
    for (const float y : stored.decoded) ASSERT_NEAR(y, x, tolerance);
  }
}

TEST_P(PlainBlock, WhatDoesNotFitIsCountedAndStaysInItsBlock) {
  TestRandom random(63);
  const float limit = 65504.0f * (IsQ4(rung()) ? 8.0f : 127.0f);
  const std::vector<float> rows = random.Gaussians(size_t{16} * 64);
  const StoredRows clean = Store(rung(), Part::kKey, 64, 16, rows);
  for (const auto& [odd, want] :
       {std::pair{kNan, 0.0f}, {kInf, limit}, {-kInf, -limit}, {1e30f, limit}}) {
    std::vector<float> bad = rows;
    bad[64 + 3] = odd;
    std::vector<std::byte> strip(clean.strip.size());
    EXPECT_EQ(rung().Encode(Part::kKey, clean.shape, bad.data(), 16, strip.data()), 1u) << odd;
    std::vector<float> decoded(rows.size());
    rung().Decode(Part::kKey, clean.shape, strip.data(), 0, 16, decoded.data());
    EXPECT_EQ(decoded[64 + 3], want) << odd;
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_TRUE(std::isfinite(decoded[i])) << i;
      ASSERT_TRUE(i / 32 == 2 || decoded[i] == clean.decoded[i]) << odd << " reached value " << i;
    }
  }
  std::vector<float> all(rows.size(), kNan);
  std::vector<std::byte> strip(clean.strip.size());
  EXPECT_EQ(rung().Encode(Part::kKey, clean.shape, all.data(), 16, strip.data()), all.size());
}

class RotatedBlock : public EveryRung {};
INSTANTIATE_TEST_SUITE_P(Rungs, RotatedBlock, testing::Values("q8_0r", "q4_0r"), RungName);

TEST_P(RotatedBlock, TheErrorOfARowIsThatOfTheRotatedRow) {
  TestRandom random(64);
  for (const int dim : {32, 64, 96, 128, 256, 512}) {
    const std::vector<float> rows = random.Gaussians(size_t{64} * dim);
    const StoredRows stored = Store(rung(), Part::kKey, dim, 64, rows);
    std::vector<float> rotated = rows, rotated_back = stored.decoded;
    RotateRows(ActiveKernels(), rotated.data(), 64, dim);
    RotateRows(ActiveKernels(), rotated_back.data(), 64, dim);
    // Rotating the decoded rows again adds f32 roundings, which the bound of q8_0 does not know.
    double squares = 0.0, steps = 0.0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const double step = std::abs(Largest(&rotated[i / 32 * 32])) / (IsQ4(rung()) ? 8 : 127);
      const double error = std::abs(static_cast<double>(rotated_back[i]) - rotated[i]);
      ASSERT_LE(error, (IsQ4(rung()) ? 1.01 : 0.57) * step) << "dim " << dim;
      squares += error * error;
      steps += step * step;
    }
    EXPECT_GT(std::sqrt(squares / steps), 0.26) << "dim " << dim;
    EXPECT_LT(std::sqrt(squares / steps), 0.32) << "dim " << dim;
  }
}

TEST_P(RotatedBlock, SpreadsAnOutlierChannel) {
  TestRandom random(65);
  const Rung& plain = TestRung(GetParam().substr(0, 4));
  std::vector<float> rows = random.Gaussians(size_t{64} * 128);
  for (size_t row = 0; row < 64; ++row) {
    for (const size_t channel : {5, 40, 77, 120}) rows[row * 128 + channel] *= 20.0f;
  }
  const auto error = [&](const Rung& rung) {
    const StoredRows stored = Store(rung, Part::kKey, 128, 64, rows);
    double squares = 0.0;
    for (size_t i = 0; i < rows.size(); ++i) squares += std::pow(stored.decoded[i] - rows[i], 2);
    return std::sqrt(squares);
  };
  // One outlier of size a per 32 gives steps of a / 8; four in 128 rotated have rms a sqrt(4 /
  // 128), so the largest of 32 is near 2.2 times that: 0.4 of the plain error.
  EXPECT_LT(error(rung()), 0.6 * error(plain));
  EXPECT_GT(error(rung()), 0.2 * error(plain));
}

TEST_P(RotatedBlock, WhatDoesNotFitIsCountedOnceAndNothingBecomesNan) {
  TestRandom random(66);
  for (const int dim : {64, 96, 128}) {
    const StripShape shape{0, 0, dim, 16};
    for (const float odd : {kNan, kInf, -kInf, 1e30f, -3.4e38f, 65536.0f}) {
      std::vector<float> rows = random.Gaussians(size_t{16} * dim);
      rows[dim + 3] = odd;
      std::vector<std::byte> strip(rung().StripBytes(Part::kValue, shape));
      EXPECT_EQ(rung().Encode(Part::kValue, shape, rows.data(), 16, strip.data()), 1u) << odd;
      std::vector<float> decoded(rows.size());
      rung().Decode(Part::kValue, shape, strip.data(), 0, 16, decoded.data());
      for (size_t i = 0; i < decoded.size(); ++i) ASSERT_TRUE(std::isfinite(decoded[i])) << i;
      const float want = std::isnan(odd) ? 0.0f : std::copysign(65504.0f, odd);
      // Half a step of every channel may add up; the outlier's step is 65504 / sqrt(32…128) / 8.
      EXPECT_NEAR(decoded[dim + 3], want, std::isnan(odd) ? 1.0f : 6000.0f) << odd;
      // Other rows do not see it.
      EXPECT_NEAR(decoded[3], rows[3], 1.0f);
    }
    // All of it: counted in full (and again where the rotated value overflows the scale), finite.
    const std::vector<float> rows(size_t{16} * dim, 3.4e38f);
    std::vector<std::byte> strip(rung().StripBytes(Part::kValue, shape));
    EXPECT_GE(rung().Encode(Part::kValue, shape, rows.data(), 16, strip.data()), rows.size());
    std::vector<float> decoded(rows.size());
    rung().Decode(Part::kValue, shape, strip.data(), 0, 16, decoded.data());
    for (const float x : decoded) ASSERT_TRUE(std::isfinite(x));
  }
}

TEST(Rotation, MixesTheLargestPowerOfTwoThatDividesTheDim) {
  EXPECT_EQ(RotationBlock(32), 32);
  EXPECT_EQ(RotationBlock(64), 64);
  EXPECT_EQ(RotationBlock(96), 32);
  EXPECT_EQ(RotationBlock(192), 64);
  EXPECT_EQ(RotationBlock(512), 512);
}

TEST(Rotation, IsOrthogonal) {
  TestRandom random(67);
  for (const Kernels* table : AllTables()) {
    const ScopedKernels scope(*table);
    for (const int dim : {32, 64, 96, 128, 160, 256, 512}) {
      const std::vector<float> rows = random.Gaussians(size_t{2} * dim);
      std::vector<float> rotated = rows;
      RotateRows(ActiveKernels(), rotated.data(), 2, dim);
      const double norms = Norm(&rows[0], dim) * Norm(&rows[dim], dim);
      const double tolerance = 2 * (std::log2(RotationBlock(dim)) + 2) * kUnitRoundoff * norms;
      double plain_dot = 0.0, rotated_dot = 0.0;
      for (int d = 0; d < dim; ++d) {
        plain_dot += double{rows[d]} * rows[dim + d];
        rotated_dot += double{rotated[d]} * rotated[dim + d];
      }
      EXPECT_NEAR(rotated_dot, plain_dot, tolerance) << dim;
      EXPECT_NEAR(Norm(&rotated[0], dim), Norm(&rows[0], dim), 1e-6 * Norm(&rows[0], dim)) << dim;
      UnrotateRows(ActiveKernels(), rotated.data(), 2, dim);
      for (size_t i = 0; i < rows.size(); ++i)
        ASSERT_NEAR(rotated[i], rows[i], 1e-6 * Norm(rows.data(), dim));
    }
  }
}

TEST(BlockRung, StripsWithScalesThatNoEncoderWritesAreRefused) {
  const StripShape shape = {0, 0, 64, 16};
  for (const char* name : {"q8_0", "q4_0", "q8_0r", "q4_0r"}) {
    const Rung& rung = TestRung(name);
    std::vector<float> rows(16 * 64);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = std::sin(static_cast<float>(i * i));
    rows[5] = kNan;
    rows[300] = -kInf;
    std::vector<std::byte> strip(rung.StripBytes(Part::kKey, shape));
    rung.Encode(Part::kKey, shape, rows.data(), 16, strip.data());
    EXPECT_TRUE(rung.CheckStrip(Part::kKey, shape, strip.data()).ok()) << name;
    const auto with_scale = [&](size_t index, int high) {
      std::vector<std::byte> changed = strip;
      changed[2 * index] = std::byte{0};
      changed[2 * index + 1] = static_cast<std::byte>(high);
      return rung.CheckStrip(Part::kKey, shape, changed.data());
    };
    EXPECT_TRUE(with_scale(31, 0x80).ok()) << name;  // -0
    EXPECT_EQ(with_scale(31, 0xBC).ok(), IsQ4(rung)) << name;
    EXPECT_EQ(with_scale(31, 0x7C).message(),
              "rung " + std::string(name) + ": scale 31 is inf, not finite");
    EXPECT_FALSE(with_scale(0, 0xFC).ok()) << name;
    EXPECT_FALSE(with_scale(17, 0x7E).ok()) << name;
    EXPECT_TRUE(with_scale(32, 0x7E).ok()) << name;  // a code
  }
}

TEST(Rotation, SignsAreTheFormatsForGood) {
  // Column 0 of the Hadamard matrix is constant, so the first rotated value of unit vector d is its
  // sign / sqrt(block). Bit d: 1 where the sign is -1, by splitmix64(d).
  uint64_t signs = 0;
  for (int d = 0; d < 64; ++d) {
    std::vector<float> row(64, 0.0f);
    row[d] = 1.0f;
    RotateRows(ActiveKernels(), row.data(), 1, 64);
    EXPECT_EQ(std::abs(row[0]), 0.125f);
    signs |= static_cast<uint64_t>(row[0] < 0.0f) << d;
  }
  EXPECT_EQ(signs, 0x99747CF5FFCAB347u);
}

}  // namespace block_rung_test
}  // namespace varve
