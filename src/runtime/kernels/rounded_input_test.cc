// Activations of 16 bits: the codes, and products with them against double precision.

#include "runtime/kernels/rounded_input.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/kernel_testing.h"
#include "runtime/kernels/weights_testing.h"

namespace varve {
namespace rounded_input_test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Tokens one after the other, rounded by one table.
struct RoundedTokens {
  RoundedTokens(const WeightKernels& kernels, const std::vector<float>& x, int64_t cols)
      : codes(x.size()), scales(x.size() / kRoundedBlock) {
    for (size_t at = 0; at < x.size(); at += static_cast<size_t>(cols)) {
      kernels.round_input(&x[at], cols, codes.data() + at, scales.data() + at / kRoundedBlock);
      tokens.push_back({codes.data() + at, scales.data() + at / kRoundedBlock});
    }
    EXPECT_TRUE(codes.ZonesIntact());
    EXPECT_TRUE(scales.ZonesIntact());
  }
  GuardedBuffer<int16_t> codes;
  GuardedBuffer<float> scales;
  std::vector<RoundedInput> tokens;
};

class RoundingTable : public testing::TestWithParam<const WeightKernels*> {
 protected:
  const WeightKernels& kernels() const { return *GetParam(); }
};

TEST_P(RoundingTable, ValuesComeBackWithinHalfAStep) {
  std::vector<float> x = TestRandom(1).Gaussians(32 * 9);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= std::pow(1e4f, static_cast<float>(i / 32) - 4.0f);
  RoundedTokens rounded(kernels(), x, static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const double scale = rounded.scales[i / 32];
    EXPECT_NEAR(rounded.codes[i] * scale, x[i], scale * 0.505) << i;
  }
}

TEST_P(RoundingTable, TheLargestOfABlockIsTheLastCode) {
  std::vector<float> x(64, 0.25f);
  x[7] = -3.0f;
  x[40] = 1e30f;
  RoundedTokens rounded(kernels(), x, 64);
  EXPECT_EQ(rounded.codes[7], -32767);
  EXPECT_EQ(rounded.codes[40], 32767);
  EXPECT_EQ(rounded.codes[41], 0);
}

TEST_P(RoundingTable, ZerosAndWhatIsNearThemHaveNoScale) {
  for (const float value : {0.0f, -0.0f, 1e-40f, -1e-35f}) {
    RoundedTokens rounded(kernels(), std::vector<float>(32, value), 32);
    EXPECT_EQ(rounded.scales[0], 0.0f) << value;
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(rounded.codes[i], 0) << value;
  }
}

TEST_P(RoundingTable, WhatIsNotFiniteMakesItsBlockNanAndNoOther) {
  for (const float value : {kNan, -kNan, kInfinity, -kInfinity}) {
    for (size_t at = 32; at < 64; ++at) {
      std::vector<float> x(96, 1.0f);
      x[at] = value;
      RoundedTokens rounded(kernels(), x, 96);
      EXPECT_TRUE(std::isnan(rounded.scales[1])) << at;
      EXPECT_EQ(rounded.codes[at], 0) << at;
      EXPECT_TRUE(std::isfinite(rounded.scales[0]) && std::isfinite(rounded.scales[2])) << at;
    }
  }
}

TEST_P(RoundingTable, EveryTableMakesTheSameCodes) {
  std::vector<float> x = TestRandom(2).Gaussians(32 * 33);
  for (size_t i = 0; i < 32; ++i) x[i] = static_cast<float>(i) + 0.5f;  // ties
  x[31] = 32767.0f;
  const auto count = static_cast<int64_t>(x.size());
  RoundedTokens expected(*AvailableWeightKernels()[0], x, count);
  RoundedTokens rounded(kernels(), x, count);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(rounded.codes[i], expected.codes[i]) << i;
  EXPECT_TRUE(SameBits(rounded.scales.data(), expected.scales.data(), x.size() / 32));
  EXPECT_EQ(rounded.codes[0], 0);  // 0.5 to even
  EXPECT_EQ(rounded.codes[1], 2);
}

// One table, one type of those that have the product.
class RoundedWeights : public testing::TestWithParam<std::tuple<const WeightKernels*, int>> {
 protected:
  const WeightKernels& kernels() const { return *std::get<0>(GetParam()); }
  WeightType type() const { return static_cast<WeightType>(std::get<1>(GetParam())); }
  void Multiply(const WeightMatrix& matrix, int64_t begin, int64_t end, const RoundedInput* inputs,
                int num_tokens, float* out, ptrdiff_t stride) const {
    kernels().multiply_rounded[std::get<1>(GetParam())](matrix, begin, end, inputs, num_tokens, out,
                                                        stride);
  }
};

// Half a step per value, if all of them conspire, and the rounding of f32 sums.
double Bound(const RandomMatrix& matrix, int64_t row, const float* x, double magnitude) {
  const std::vector<float> weights = matrix.Row(row);
  double bound = magnitude * 1e-6 + 1e-30;
  for (size_t block = 0; block < weights.size(); block += 32) {
    double largest = 0, sum = 0;
    for (size_t i = block; i < block + 32; ++i) {
      largest = std::max<double>(largest, std::abs(x[i]));
      sum += std::abs(weights[i]);
    }
    bound += 0.505 * largest / 32767 * sum;
  }
  return bound;
}

TEST_P(RoundedWeights, ProductsAreWithinHalfAStepOfDoublePrecision) {
  for (const int blocks : {1, 2, 3, 4, 7, 33, 64, 65}) {
    const int64_t cols = int64_t{blocks} * 32;
    const RandomMatrix matrix(type(), 5, cols, static_cast<uint64_t>(blocks));
    for (int tokens = 1; tokens <= kMaxRowTokens; ++tokens) {
      const std::vector<float> x = TestRandom(3).Gaussians(cols * tokens);
      RoundedTokens rounded(kernels(), x, cols);
      GuardedBuffer<float> out(static_cast<size_t>(tokens) * 5);
      Multiply(matrix.view(), 0, 5, rounded.tokens.data(), tokens, out.data(), 5);
      EXPECT_TRUE(out.ZonesIntact());
      for (int t = 0; t < tokens; ++t) {
        for (int row = 0; row < 5; ++row) {
          const float* input = x.data() + t * cols;
          const ExactDot exact = matrix.Dot(row, input);
          const double error = std::abs(out[t * 5 + row] - exact.value);
          EXPECT_LE(error, Bound(matrix, row, input, exact.magnitude))
              << blocks << " blocks, token " << t << " of " << tokens << ", row " << row;
          EXPECT_LE(error, 3e-5 * exact.magnitude);
        }
      }
    }
  }
}

// With the codes as they are, only the f32 sums differ.
TEST_P(RoundedWeights, ProductsAreThoseOfTheScalarTable) {
  const int64_t cols = 32 * 37;
  const RandomMatrix matrix(type(), 9, cols, 4);
  const std::vector<float> x = TestRandom(8).Gaussians(cols);
  RoundedTokens rounded(kernels(), x, cols);
  float out[9], expected[9];
  Multiply(matrix.view(), 0, 9, rounded.tokens.data(), 1, out, 9);
  AvailableWeightKernels()[0]->multiply_rounded[static_cast<int>(type())](
      matrix.view(), 0, 9, rounded.tokens.data(), 1, expected, 9);
  for (int row = 0; row < 9; ++row) {
    EXPECT_NEAR(out[row], expected[row], 1e-6 * matrix.Dot(row, x.data()).magnitude) << row;
  }
}

TEST_P(RoundedWeights, ARowsProductDoesNotDependOnItsRangeNorOnTheOtherTokens) {
  constexpr int kRows = 13;
  const int64_t cols = 32 * 7;
  const RandomMatrix matrix(type(), kRows, cols, 11);
  const std::vector<float> x = TestRandom(5).Gaussians(cols * kMaxRowTokens);
  RoundedTokens rounded(kernels(), x, cols);
  std::vector<float> all(kMaxRowTokens * kRows);
  Multiply(matrix.view(), 0, kRows, rounded.tokens.data(), kMaxRowTokens, all.data(), kRows);
  for (int begin = 0; begin < kRows; ++begin) {
    for (int end = begin; end <= kRows; ++end) {
      for (int t = 0; t < kMaxRowTokens; ++t) {
        GuardedBuffer<float> out(end - begin);
        Multiply(matrix.view(), begin, end, &rounded.tokens[t], 1, out.data(), 0);
        EXPECT_TRUE(SameBits(out.data(), &all[t * kRows + begin], end - begin));
        EXPECT_TRUE(out.ZonesIntact());
      }
    }
  }
}

// Codes at both ends, where 16-bit pairs would overflow if anything did.
TEST_P(RoundedWeights, TheLargestCodesDoNotOverflow) {
  const WeightTypeInfo& info = InfoOf(type());
  std::vector<std::byte> block(info.block_bytes);
  for (const int fill : {0x80, 0x7F, 0x00, 0xFF}) {
    std::fill(block.begin(), block.end(), static_cast<std::byte>(fill));
    block[0] = std::byte{0x00};
    block[1] = std::byte{0x3C};  // 1.0
    const WeightMatrix matrix = {type(), 1, 32, block.data()};
    float weights[32];
    kernels().decode[static_cast<int>(type())](block.data(), 32, weights);
    for (const float sign : {1.0f, -1.0f}) {
      const std::vector<float> x(32, sign);
      RoundedTokens rounded(kernels(), x, 32);
      double exact = 0;
      for (const float w : weights) exact += w * static_cast<double>(sign);
      float out;
      Multiply(matrix, 0, 1, rounded.tokens.data(), 1, &out, 1);
      EXPECT_NEAR(out, exact, 4096 * 1e-6) << fill;
    }
  }
}

TEST_P(RoundedWeights, WhatIsNotFiniteInTheInputShows) {
  for (const int blocks : {1, 2, 9}) {
    const int64_t cols = int64_t{blocks} * 32;
    const RandomMatrix matrix(type(), 3, cols, 3);
    for (const float value : {kNan, kInfinity}) {
      for (const int64_t at : {int64_t{0}, cols - 1}) {
        std::vector<float> x(cols, 1.0f);
        x[at] = value;
        RoundedTokens rounded(kernels(), x, cols);
        float out[3];
        Multiply(matrix.view(), 0, 3, rounded.tokens.data(), 1, out, 3);
        for (const float y : out) EXPECT_TRUE(std::isnan(y)) << blocks << " blocks, at " << at;
      }
    }
  }
}

std::vector<const WeightKernels*> AllWeightTables() {
  const auto tables = AvailableWeightKernels();
  return {tables.begin(), tables.end()};
}

std::vector<int> RoundedTypes() {
  std::vector<int> types;
  for (int type = 0; type < kNumWeightTypes; ++type) {
    if (AvailableWeightKernels()[0]->multiply_rounded[type] != nullptr) types.push_back(type);
  }
  return types;
}

TEST(RoundedWeightTypes, AreTheSameInEveryTable) {
  ASSERT_FALSE(RoundedTypes().empty());
  for (const WeightKernels* table : AllWeightTables()) {
    for (int type = 0; type < kNumWeightTypes; ++type) {
      EXPECT_EQ(table->multiply_rounded[type] != nullptr,
                AvailableWeightKernels()[0]->multiply_rounded[type] != nullptr)
          << table->name << ", " << InfoOf(static_cast<WeightType>(type)).name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RoundingTable, testing::ValuesIn(AllWeightTables()),
                         [](const auto& each) { return std::string(each.param->name); });

INSTANTIATE_TEST_SUITE_P(All, RoundedWeights,
                         testing::Combine(testing::ValuesIn(AllWeightTables()),
                                          testing::ValuesIn(RoundedTypes())),
                         [](const auto& each) {
                           const auto type = static_cast<WeightType>(std::get<1>(each.param));
                           return std::string(std::get<0>(each.param)->name) + "_" +
                                  InfoOf(type).name;
                         });

}  // namespace rounded_input_test
}  // namespace varve
