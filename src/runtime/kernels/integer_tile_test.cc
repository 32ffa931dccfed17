// Integers of weights and packed activations: every table like the scalar one, products against
// double precision.

#include "runtime/kernels/integer_tile.h"

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
namespace integer_tile_test {

// Aligned memory for what a kernel wants aligned.
template <class T>
struct Aligned {
  explicit Aligned(size_t count) : memory(count + 64 / sizeof(T)) {
    const size_t over = reinterpret_cast<uintptr_t>(memory.data()) % 64;
    data = memory.data() + (over == 0 ? 0 : (64 - over) / sizeof(T));
  }
  std::vector<T> memory;
  T* data;
};

// Tokens packed by one table.
struct Packed {
  Packed(const RoundedKernels& kernels, const std::vector<float>& x, int64_t cols, int block)
      : num_tokens(static_cast<int>(static_cast<int64_t>(x.size()) / cols)),
        groups((num_tokens + kPackedTokens - 1) / kPackedTokens),
        codes(groups * kPackedTokens * cols),
        scales(groups * kPackedTokens * (cols / block)),
        sums(groups * kPackedTokens * (cols / 32)),
        half_sums(groups * kPackedTokens * (cols / 16)) {
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t first = group * kPackedTokens;
      kernels.pack_inputs(&x[first * cols], cols,
                          std::min(kPackedTokens, num_tokens - static_cast<int>(first)), cols,
                          block, codes.data + first * cols, scales.data + first * (cols / block),
                          sums.data + first * (cols / 32), half_sums.data + first * (cols / 16));
    }
  }
  PackedInputs view() const {
    return {codes.data, scales.data, sums.data, half_sums.data, num_tokens};
  }

  int num_tokens;
  int64_t groups;
  Aligned<int16_t> codes;
  Aligned<float> scales, sums, half_sums;
};

// A matrix as integers, by one table.
struct Integers {
  Integers(const RoundedKernels& kernels, const WeightMatrix& matrix)
      : values(matrix.rows * matrix.cols),
        scales(matrix.rows * matrix.cols / InfoOf(matrix.type).block_values),
        offsets(matrix.rows * matrix.cols / OffsetRun(matrix.type)) {
    kernels.decode_integers[static_cast<int>(matrix.type)](
        matrix.data, matrix.rows * matrix.cols, values.data(), scales.data(), offsets.data());
    view.values = values.data();
    view.scales = scales.data();
    view.offsets = HasOffsets(matrix.type) ? offsets.data() : nullptr;
    view.rows = matrix.rows;
    view.cols = matrix.cols;
    view.block = InfoOf(matrix.type).block_values;
    view.span = IntegerSpan(matrix.type);
    view.offset_run = OffsetRun(matrix.type);
  }
  std::vector<int16_t> values;
  std::vector<float> scales, offsets;
  IntegerTile view;
};

class IntegerWeights : public testing::TestWithParam<std::tuple<const WeightKernels*, int>> {
 protected:
  const RoundedKernels& kernels() const { return *std::get<0>(GetParam())->rounded; }
  static const RoundedKernels& scalar() { return *AvailableWeightKernels()[0]->rounded; }
  WeightType type() const { return static_cast<WeightType>(std::get<1>(GetParam())); }
  int block() const { return InfoOf(type()).block_values; }
  std::vector<float> Multiply(const Integers& tile, const Packed& inputs) const {
    Aligned<float> sums(tile.view.rows * kIntegerTokens);
    GuardedBuffer<float> out(tile.view.rows * inputs.num_tokens);
    kernels().multiply_integers(tile.view, inputs.view(), sums.data, out.data(), tile.view.rows);
    EXPECT_TRUE(out.ZonesIntact());
    return std::vector<float>(out.data(), out.data() + out.size());
  }
};

TEST_P(IntegerWeights, AreTheWeightsExactly) {
  const RandomMatrix matrix(type(), 3, int64_t{5} * block(), 1);
  const Integers tile(kernels(), matrix.view());
  for (int64_t row = 0; row < 3; ++row) {
    const std::vector<float> weights = matrix.Row(row);
    for (int64_t i = 0; i < tile.view.cols; ++i) {
      const int64_t at = row * tile.view.cols + i;
      const double offset =
          tile.view.offsets != nullptr ? tile.offsets[at / tile.view.offset_run] : 0.0;
      const double weight = double{tile.scales[at / block()]} * tile.values[at] + offset;
      ASSERT_EQ(static_cast<float>(weight), weights[i]) << row << ", " << i;
    }
  }
}

TEST_P(IntegerWeights, AndPackedInputsAreThoseOfTheScalarTable) {
  const RandomMatrix matrix(type(), 2, int64_t{3} * block(), 1);
  const Integers tile(kernels(), matrix.view());
  const Integers expected(scalar(), matrix.view());
  EXPECT_EQ(tile.values, expected.values);
  EXPECT_TRUE(SameBits(tile.scales.data(), expected.scales.data(), tile.scales.size()));
  if (HasOffsets(type())) {
    EXPECT_TRUE(SameBits(tile.offsets.data(), expected.offsets.data(), tile.offsets.size()));
  }
  std::vector<float> x = TestRandom(2).Gaussians(19 * matrix.view().cols);
  x[5] = std::numeric_limits<float>::infinity();
  const Packed packed(kernels(), x, matrix.view().cols, block());
  const Packed same(scalar(), x, matrix.view().cols, block());
  EXPECT_EQ(packed.codes.memory.size(), same.codes.memory.size());
  const size_t tokens = 2 * kPackedTokens;
  EXPECT_TRUE(std::equal(packed.codes.data, packed.codes.data + tokens * matrix.view().cols,
                         same.codes.data));
  EXPECT_TRUE(
      SameBits(packed.scales.data, same.scales.data, tokens * (matrix.view().cols / block())));
  EXPECT_TRUE(SameBits(packed.sums.data, same.sums.data, tokens * (matrix.view().cols / 32)));
  EXPECT_TRUE(
      SameBits(packed.half_sums.data, same.half_sums.data, tokens * (matrix.view().cols / 16)));
}

TEST_P(IntegerWeights, ProductsAreWithinHalfAStepOfDoublePrecision) {
  for (const auto& [tokens, rows, blocks] :
       {std::tuple(1, 1, 1), std::tuple(16, 5, 3), std::tuple(33, 13, 2), std::tuple(67, 25, 9),
        std::tuple(128, 6, 17)}) {
    const int64_t cols = int64_t{blocks} * block();
    const RandomMatrix matrix(type(), rows, cols, 7);
    const std::vector<float> x = TestRandom(3).Gaussians(tokens * cols);
    const Integers tile(kernels(), matrix.view());
    const std::vector<float> out = Multiply(tile, Packed(kernels(), x, cols, block()));
    for (int row = 0; row < rows; ++row) {
      const std::vector<float> weights = matrix.Row(row);
      for (int t = 0; t < tokens; ++t) {
        const float* input = &x[t * cols];
        const ExactDot exact = matrix.Dot(row, input);
        double bound = exact.magnitude * 2e-6 + 1e-30;
        for (int64_t begin = 0; begin < cols; begin += block()) {
          double largest = 0, sum = 0;
          for (int64_t i = begin; i < begin + block(); ++i) {
            largest = std::max<double>(largest, std::abs(input[i]));
            sum += std::abs(weights[i]);
          }
          bound += 0.505 * largest / kPackedMost * sum;
        }
        ASSERT_NEAR(out[t * rows + row], exact.value, bound) << t << ", " << row;
      }
    }
  }
}

// With the codes as they are, only the order of the f32 sums differs.
TEST_P(IntegerWeights, ProductsAreThoseOfTheScalarTable) {
  const int64_t cols = int64_t{11} * block();
  const RandomMatrix matrix(type(), 8, cols, 4);
  const std::vector<float> x = TestRandom(8).Gaussians(20 * cols);
  const Integers tile(kernels(), matrix.view());
  const Packed inputs(kernels(), x, cols, block());
  const std::vector<float> out = Multiply(tile, inputs);
  std::vector<float> expected(out.size());
  scalar().multiply_integers(tile.view, inputs.view(), nullptr, expected.data(), 8);
  for (int t = 0; t < 20; ++t) {
    for (int row = 0; row < 8; ++row) {
      ASSERT_NEAR(out[t * 8 + row], expected[t * 8 + row],
                  2e-6 * matrix.Dot(row, &x[t * cols]).magnitude)
          << t << ", " << row;
    }
  }
}

// What the determinism of linear.h stands on.
TEST_P(IntegerWeights, ARowsProductDoesNotDependOnItsTileNorOnTheOtherTokens) {
  const int64_t cols = int64_t{9} * block();
  const RandomMatrix matrix(type(), 25, cols, 5);
  const std::vector<float> x = TestRandom(6).Gaussians(117 * cols);
  const std::vector<float> all =
      Multiply(Integers(kernels(), matrix.view()), Packed(kernels(), x, cols, block()));
  for (const int rows : {1, 6, 13}) {
    WeightMatrix some = matrix.view();
    some.data = matrix.view().row(2);
    some.rows = rows;
    for (const int tokens : {1, 16, 33, 64}) {
      const std::vector<float> later(x.begin() + 16 * cols, x.begin() + (16 + tokens) * cols);
      const std::vector<float> out =
          Multiply(Integers(kernels(), some), Packed(kernels(), later, cols, block()));
      for (int t = 0; t < tokens; ++t) {
        ASSERT_TRUE(SameBits(&out[t * rows], &all[(16 + t) * 25 + 2], rows)) << rows << ", " << t;
      }
    }
  }
}

TEST_P(IntegerWeights, TheLargestValuesDoNotOverflow) {
  const int64_t largest = block() == 32                   ? 128
                          : type() == WeightType::kQ4K    ? 15 * 63
                          : type() == WeightType::kQ5K    ? 31 * 63
                          : type() == WeightType::kQ2K    ? 3 * 15
                          : type() == WeightType::kQ3K    ? 4 * 32
                          : type() == WeightType::kIQ4_XS ? 127 * 32
                                                          : 32 * 128;
  const int span = IntegerSpan(type());
  ASSERT_LT(largest * kPackedMost * span, int64_t{1} << 31);
  ASSERT_EQ(block() % span, 0);
  const RandomMatrix matrix(type(), 1, block(), 5);
  Integers tile(kernels(), matrix.view());
  std::fill(tile.values.begin(), tile.values.end(), static_cast<int16_t>(-largest));
  tile.scales[0] = 1.0f;
  tile.view.offsets = nullptr;
  const std::vector<float> x(block(), 1.0f);
  const std::vector<float> out = Multiply(tile, Packed(kernels(), x, block(), block()));
  EXPECT_NEAR(out[0], static_cast<double>(-largest * block()), 1e-6 * largest * block());
}

TEST_P(IntegerWeights, WhatIsNotFiniteInTheInputShowsInItsTokenOnly) {
  const int64_t cols = int64_t{3} * block();
  const RandomMatrix matrix(type(), 2, cols, 3);
  std::vector<float> x(18 * cols, 1.0f);
  x[17 * cols + block()] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> out =
      Multiply(Integers(kernels(), matrix.view()), Packed(kernels(), x, cols, block()));
  for (int t = 0; t < 18; ++t) {
    for (int row = 0; row < 2; ++row) EXPECT_EQ(std::isnan(out[t * 2 + row]), t == 17) << t;
  }
}

std::vector<const WeightKernels*> AllWeightTables() {
  const auto tables = AvailableWeightKernels();
  return {tables.begin(), tables.end()};
}

INSTANTIATE_TEST_SUITE_P(All, IntegerWeights,
                         testing::Combine(testing::ValuesIn(AllWeightTables()),
                                          testing::Range(static_cast<int>(WeightType::kQ8_0),
                                                         kNumWeightTypes)),
                         [](const auto& each) {
                           const auto type = static_cast<WeightType>(std::get<1>(each.param));
                           return std::string(std::get<0>(each.param)->name) + "_" +
                                  InfoOf(type).name;
                         });

}  // namespace integer_tile_test
}  // namespace varve
