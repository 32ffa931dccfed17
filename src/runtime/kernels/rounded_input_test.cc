// Activations of 16 bits: the codes, and products with them against double precision.

#include "runtime/kernels/rounded_input.h"

#include <gtest/gtest.h>

#include <algorithm>
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
  RoundedTokens(const WeightKernels& kernels, const std::vector<float>& x, int64_t cols, int block)
      : codes(x.size()),
        scales(x.size() / block),
        sums(x.size() / kRoundedRun),
        half_sums(x.size() / kRoundedHalf) {
    for (size_t at = 0; at < x.size(); at += static_cast<size_t>(cols)) {
      const RoundedInput token = {codes.data() + at, scales.data() + at / block,
                                  sums.data() + at / kRoundedRun,
                                  half_sums.data() + at / kRoundedHalf};
      kernels.rounded->round_input(&x[at], cols, block, codes.data() + at,
                                   scales.data() + at / block, sums.data() + at / kRoundedRun);
      tokens.push_back(token);
    }
    for (size_t i = 0; i < x.size(); ++i) half_sums[i / kRoundedHalf] += codes[i];
    EXPECT_TRUE(codes.ZonesIntact());
    EXPECT_TRUE(scales.ZonesIntact());
    EXPECT_TRUE(sums.ZonesIntact());
  }
  GuardedBuffer<int16_t> codes;
  GuardedBuffer<float> scales;
  GuardedBuffer<float> sums;
  std::vector<int32_t> half_sums;
  std::vector<RoundedInput> tokens;
};

// One table, one size of blocks.
class RoundingTable : public testing::TestWithParam<std::tuple<const WeightKernels*, int>> {
 protected:
  const WeightKernels& kernels() const { return *std::get<0>(GetParam()); }
  int block() const { return std::get<1>(GetParam()); }
  RoundedTokens Round(const std::vector<float>& x) const {
    return RoundedTokens(kernels(), x, static_cast<int64_t>(x.size()), block());
  }
};

TEST_P(RoundingTable, ValuesComeBackWithinHalfAStep) {
  std::vector<float> x = TestRandom(1).Gaussians(block() * 9);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t at_block = i / block();
    x[i] *= std::pow(1e4f, static_cast<float>(at_block) - 4.0f);
  }
  RoundedTokens rounded = Round(x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double scale = rounded.scales[i / block()];
    EXPECT_NEAR(rounded.codes[i] * scale, x[i], scale * 0.505) << i;
  }
}

TEST_P(RoundingTable, TheLargestOfABlockIsTheLastCode) {
  std::vector<float> x(2 * block(), 0.25f);
  x[7] = -3.0f;
  x[block() + 8] = 1e30f;
  RoundedTokens rounded = Round(x);
  EXPECT_EQ(rounded.codes[7], -32767);
  EXPECT_EQ(rounded.codes[block() + 8], 32767);
  EXPECT_EQ(rounded.codes[block() + 9], 0);
}

TEST_P(RoundingTable, SumsAreThoseOfTheCodes) {
  std::vector<float> x = TestRandom(6).Gaussians(block() * 3);
  std::fill(x.begin(), x.begin() + 32, -1e3f);  // the largest sum there is
  RoundedTokens rounded = Round(x);
  for (size_t run = 0; run < x.size() / 32; ++run) {
    int sum = 0;
    for (size_t i = run * 32; i < run * 32 + 32; ++i) sum += rounded.codes[i];
    EXPECT_EQ(rounded.sums[run], static_cast<float>(sum)) << run;
  }
  EXPECT_EQ(rounded.sums[0], -32.0f * 32767.0f);
}

TEST_P(RoundingTable, ZerosAndWhatIsNearThemHaveNoScale) {
  for (const float value : {0.0f, -0.0f, 1e-40f, -1e-35f}) {
    RoundedTokens rounded = Round(std::vector<float>(block(), value));
    EXPECT_EQ(rounded.scales[0], 0.0f) << value;
    for (int i = 0; i < block(); ++i) EXPECT_EQ(rounded.codes[i], 0) << value;
  }
}

TEST_P(RoundingTable, WhatIsNotFiniteMakesItsBlockNanAndNoOther) {
  for (const float value : {kNan, -kNan, kInfinity, -kInfinity}) {
    for (int at = block(); at < 2 * block(); ++at) {
      std::vector<float> x(3 * block(), 1.0f);
      x[at] = value;
      RoundedTokens rounded = Round(x);
      EXPECT_TRUE(std::isnan(rounded.scales[1])) << at;
      EXPECT_EQ(rounded.codes[at], 0) << at;
      EXPECT_TRUE(std::isfinite(rounded.scales[0]) && std::isfinite(rounded.scales[2])) << at;
    }
  }
}

TEST_P(RoundingTable, EveryTableMakesTheSameCodes) {
  std::vector<float> x = TestRandom(2).Gaussians(block() * 33);
  for (int i = 0; i < block(); ++i) x[i] = static_cast<float>(i) + 0.5f;  // ties
  x[31] = 32767.0f;
  const auto count = static_cast<int64_t>(x.size());
  RoundedTokens expected(*AvailableWeightKernels()[0], x, count, block());
  RoundedTokens rounded = Round(x);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(rounded.codes[i], expected.codes[i]) << i;
  EXPECT_TRUE(SameBits(rounded.scales.data(), expected.scales.data(), x.size() / block()));
  EXPECT_TRUE(SameBits(rounded.sums.data(), expected.sums.data(), x.size() / 32));
  EXPECT_EQ(rounded.codes[0], 0);  // 0.5 to even
  EXPECT_EQ(rounded.codes[1], 2);
}

// One table, one type of those that have the product.
class RoundedWeights : public testing::TestWithParam<std::tuple<const WeightKernels*, int>> {
 protected:
  const WeightKernels& kernels() const { return *std::get<0>(GetParam()); }
  WeightType type() const { return static_cast<WeightType>(std::get<1>(GetParam())); }
  int block() const { return InfoOf(type()).block_values; }
  RoundedTokens Round(const std::vector<float>& x, int64_t cols) const {
    return RoundedTokens(kernels(), x, cols, block());
  }
  void Multiply(const WeightMatrix& matrix, int64_t begin, int64_t end, const RoundedInput* inputs,
                int num_tokens, float* out, ptrdiff_t stride) const {
    kernels().rounded->multiply_rounded[std::get<1>(GetParam())](matrix, begin, end, inputs,
                                                                 num_tokens, out, stride);
  }
};

// Half a step per value, if all of them conspire, and the rounding of f32 sums.
double Bound(const RandomMatrix& matrix, int64_t row, const float* x, double magnitude) {
  const std::vector<float> weights = matrix.Row(row);
  const size_t size = InfoOf(matrix.view().type).block_values;
  double bound = magnitude * 2e-6 + 1e-30;
  for (size_t block = 0; block < weights.size(); block += size) {
    double largest = 0, sum = 0;
    for (size_t i = block; i < block + size; ++i) {
      largest = std::max<double>(largest, std::abs(x[i]));
      sum += std::abs(weights[i]);
    }
    bound += 0.505 * largest / 32767 * sum;
  }
  return bound;
}

TEST_P(RoundedWeights, ProductsAreWithinHalfAStepOfDoublePrecision) {
  for (const int blocks : {1, 2, 3, 4, 7, 33, 64, 65}) {
    const int64_t cols = int64_t{blocks} * block();
    const RandomMatrix matrix(type(), 5, cols, static_cast<uint64_t>(blocks));
    for (int tokens = 1; tokens <= kMaxRowTokens; ++tokens) {
      const std::vector<float> x = TestRandom(3).Gaussians(cols * tokens);
      RoundedTokens rounded = Round(x, cols);
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
          EXPECT_LE(error, 5e-5 * exact.magnitude);
        }
      }
    }
  }
}

// With the codes as they are, only the f32 sums differ.
TEST_P(RoundedWeights, ProductsAreThoseOfTheScalarTable) {
  const int64_t cols = int64_t{37} * block();
  const RandomMatrix matrix(type(), 9, cols, 4);
  const std::vector<float> x = TestRandom(8).Gaussians(cols);
  RoundedTokens rounded = Round(x, cols);
  float out[9], expected[9];
  Multiply(matrix.view(), 0, 9, rounded.tokens.data(), 1, out, 9);
  AvailableWeightKernels()[0]->rounded->multiply_rounded[static_cast<int>(type())](
      matrix.view(), 0, 9, rounded.tokens.data(), 1, expected, 9);
  for (int row = 0; row < 9; ++row) {
    EXPECT_NEAR(out[row], expected[row], 1e-6 * matrix.Dot(row, x.data()).magnitude) << row;
  }
}

TEST_P(RoundedWeights, ARowsProductDoesNotDependOnItsRangeNorOnTheOtherTokens) {
  constexpr int kRows = 13;
  const int64_t cols = int64_t{7} * block();
  const RandomMatrix matrix(type(), kRows, cols, 11);
  const std::vector<float> x = TestRandom(5).Gaussians(cols * kMaxRowTokens);
  RoundedTokens rounded = Round(x, cols);
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

// Byte offsets of a block's fields; no run scales: both are 0.
struct FieldPlaces {
  size_t scale, minimum, run_scales, run_scales_end;
};

FieldPlaces PlacesOf(WeightType type) {
  switch (type) {
    case WeightType::kQ4K:
    case WeightType::kQ5K:
      return {0, 2, 4, 16};
    case WeightType::kQ6K:
      return {208, 0, 192, 208};
    case WeightType::kQ2K:
      return {80, 82, 0, 16};
    case WeightType::kQ3K:
      return {108, 0, 96, 108};
    case WeightType::kIQ4_XS:
      return {0, 0, 2, 8};
    default:
      return {0, 2, 0, 0};
  }
}

// Codes and run scales at both ends, where integer sums would overflow if anything did.
TEST_P(RoundedWeights, TheLargestCodesDoNotOverflow) {
  const WeightTypeInfo& info = InfoOf(type());
  std::vector<std::byte> bytes(info.block_bytes);
  const FieldPlaces places = PlacesOf(type());
  for (const int fill : {0x80, 0x7F, 0x00, 0xFF}) {
    for (const int run_scale : {0x80, 0x7F, 0xFF, 0x00}) {
      std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(fill));
      for (size_t i = places.run_scales; i < places.run_scales_end; ++i) {
        bytes[i] = static_cast<std::byte>(run_scale);
      }
      if (HasOffsets(type())) {
        bytes[places.minimum] = std::byte{0x00};
        bytes[places.minimum + 1] = std::byte{0x38};  // 0.5
      }
      bytes[places.scale] = std::byte{0x00};
      bytes[places.scale + 1] = std::byte{0x3C};  // 1.0
      const WeightMatrix matrix = {type(), 1, info.block_values, bytes.data()};
      std::vector<float> weights(info.block_values);
      kernels().decode[static_cast<int>(type())](bytes.data(), info.block_values, weights.data());
      for (const float sign : {1.0f, -1.0f}) {
        RoundedTokens rounded =
            Round(std::vector<float>(info.block_values, sign), info.block_values);
        double exact = 0, magnitude = 0;
        for (const float w : weights) {
          exact += w * static_cast<double>(sign);
          magnitude += std::abs(w);
        }
        float out;
        Multiply(matrix, 0, 1, rounded.tokens.data(), 1, &out, 1);
        EXPECT_NEAR(out, exact, magnitude * 2e-6) << fill << ", " << run_scale;
      }
    }
  }
}

TEST_P(RoundedWeights, WhatIsNotFiniteInTheInputShows) {
  for (const int blocks : {1, 2, 9}) {
    const int64_t cols = int64_t{blocks} * block();
    const RandomMatrix matrix(type(), 3, cols, 3);
    for (const float value : {kNan, kInfinity}) {
      for (const int64_t at : {int64_t{0}, cols - 1}) {
        std::vector<float> x(cols, 1.0f);
        x[at] = value;
        RoundedTokens rounded = Round(x, cols);
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

std::vector<int> IntegerTypes() {
  std::vector<int> types;
  for (int type = 0; type < kNumWeightTypes; ++type) {
    if (IsInteger(static_cast<WeightType>(type))) types.push_back(type);
  }
  return types;
}

INSTANTIATE_TEST_SUITE_P(All, RoundingTable,
                         testing::Combine(testing::ValuesIn(AllWeightTables()),
                                          testing::Values(32, 256)),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param)->name) + "_" +
                                  std::to_string(std::get<1>(each.param));
                         });

INSTANTIATE_TEST_SUITE_P(All, RoundedWeights,
                         testing::Combine(testing::ValuesIn(AllWeightTables()),
                                          testing::ValuesIn(IntegerTypes())),
                         [](const auto& each) {
                           const auto type = static_cast<WeightType>(std::get<1>(each.param));
                           return std::string(std::get<0>(each.param)->name) + "_" +
                                  InfoOf(type).name;
                         });

}  // namespace rounded_input_test
}  // namespace varve
