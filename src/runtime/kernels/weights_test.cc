// Weight types: sizes, decoding against golden blocks, products against double precision.

#include "runtime/kernels/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "base/half.h"
#include "kernels/kernel_testing.h"
#include "runtime/kernels/weights_testing.h"
#include "tests/test_data.h"

namespace varve {
namespace weights_test {

TEST(WeightTypes, SizesAreThoseOfGgml) {
  const auto expect = [](WeightType type, const char* name, int values, int bytes) {
    EXPECT_STREQ(InfoOf(type).name, name);
    EXPECT_EQ(InfoOf(type).block_values, values) << name;
    EXPECT_EQ(InfoOf(type).block_bytes, bytes) << name;
  };
  expect(WeightType::kF32, "F32", 1, 4);
  expect(WeightType::kF16, "F16", 1, 2);
  expect(WeightType::kBF16, "BF16", 1, 2);
  expect(WeightType::kQ8_0, "Q8_0", 32, 34);
  expect(WeightType::kQ4_0, "Q4_0", 32, 18);
  expect(WeightType::kQ4_1, "Q4_1", 32, 20);
  expect(WeightType::kQ5_0, "Q5_0", 32, 22);
  expect(WeightType::kQ5_1, "Q5_1", 32, 24);
  expect(WeightType::kQ4K, "Q4_K", 256, 144);
  expect(WeightType::kQ5K, "Q5_K", 256, 176);
  expect(WeightType::kQ6K, "Q6_K", 256, 210);
  expect(WeightType::kQ2K, "Q2_K", 256, 84);
  expect(WeightType::kQ3K, "Q3_K", 256, 110);
  expect(WeightType::kIQ4_NL, "IQ4_NL", 32, 18);
  expect(WeightType::kIQ4_XS, "IQ4_XS", 256, 136);
}

TEST(WeightTypes, RowsLieBlockByBlock) {
  const std::byte data[1260] = {};
  const WeightMatrix matrix = {WeightType::kQ6K, 3, 512, data};
  EXPECT_EQ(matrix.row_bytes(), 420u);
  EXPECT_EQ(matrix.bytes(), 1260u);
  EXPECT_EQ(matrix.row(2), data + 840);
}

TEST(WeightSelection, ScalarComesFirstAndEveryKernelTableHasItsWeights) {
  ASSERT_FALSE(AvailableWeightKernels().empty());
  EXPECT_STREQ(AvailableWeightKernels().front()->name, "scalar");
  ASSERT_EQ(AvailableWeightKernels().size(), AvailableKernels().size());
  for (const Kernels* table : AllTables()) {
    const ScopedKernels scope(*table);
    EXPECT_STREQ(ActiveWeightKernels().name, table->name);
    ASSERT_NE(ActiveWeightKernels().rounded, nullptr);
    EXPECT_STREQ(ActiveWeightKernels().rounded->name, table->name);
  }
}

TEST(WeightSelection, TablesAreDifferentCode) {
  const auto tables = AvailableWeightKernels();
  for (size_t i = 0; i < tables.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      for (int type = 0; type < kNumWeightTypes; ++type) {
        EXPECT_NE(tables[i]->decode[type], tables[j]->decode[type]);
        if (IsInteger(static_cast<WeightType>(type))) {
          EXPECT_NE(tables[i]->rounded->multiply_rounded[type],
                    tables[j]->rounded->multiply_rounded[type]);
        } else {
          EXPECT_NE(tables[i]->multiply_rows[type], tables[j]->multiply_rows[type]);
        }
      }
      EXPECT_NE(tables[i]->rounded->multiply_integers, tables[j]->rounded->multiply_integers);
    }
  }
}

// One table, one type.
class Weights : public testing::TestWithParam<std::tuple<const WeightKernels*, int>> {
 protected:
  const WeightKernels& kernels() const { return *std::get<0>(GetParam()); }
  int index() const { return std::get<1>(GetParam()); }
  WeightType type() const { return static_cast<WeightType>(index()); }
  int block_values() const { return InfoOf(type()).block_values; }
};

TEST_P(Weights, DecodesTheGoldenBlocksExactly) {
  std::string name = InfoOf(type()).name;
  for (char& c : name) c = static_cast<char>(std::tolower(c));
  std::ifstream file(TestDataPath("weights/" + name + ".bin"), std::ios::binary);
  const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  ASSERT_GT(bytes.size(), 4u);
  uint32_t count;
  std::memcpy(&count, bytes.data(), 4);
  const size_t block_bytes = count / block_values() * InfoOf(type()).block_bytes;
  ASSERT_EQ(bytes.size(), 4 + block_bytes + 4 * count);
  std::vector<float> expected(count);
  std::memcpy(expected.data(), bytes.data() + 4 + block_bytes, 4 * count);
  // An odd address, as a tensor in a file of alignment 1 would have.
  std::vector<std::byte> blocks(block_bytes + 1);
  std::memcpy(blocks.data() + 1, bytes.data() + 4, block_bytes);
  GuardedBuffer<float> out(count);
  kernels().decode[index()](blocks.data() + 1, count, out.data());
  EXPECT_TRUE(SameBits(out.data(), expected.data(), count));
  EXPECT_TRUE(out.ZonesIntact());
}

TEST_P(Weights, DecodesAnyNumberOfBlocksLikeTheScalarTable) {
  for (const int blocks : {1, 2, 3, 5, 31, 33}) {
    const RandomMatrix matrix(type(), 1, static_cast<int64_t>(blocks) * block_values(), 7);
    GuardedBuffer<float> out(matrix.view().cols);
    std::vector<float> expected(matrix.view().cols);
    kernels().decode[index()](matrix.view().data, matrix.view().cols, out.data());
    AvailableWeightKernels()[0]->decode[index()](matrix.view().data, matrix.view().cols,
                                                 expected.data());
    EXPECT_TRUE(SameBits(out.data(), expected.data(), out.size())) << blocks;
    EXPECT_TRUE(out.ZonesIntact());
  }
}

// One table, one type of floats.
class FloatWeights : public Weights {};

TEST_P(FloatWeights, ProductsAreWithinRoundingOfDoublePrecision) {
  for (const int blocks : {1, 2, 3, 7, 33, 65}) {
    const int64_t cols = static_cast<int64_t>(blocks) * block_values();
    const RandomMatrix matrix(type(), 5, cols, static_cast<uint64_t>(blocks));
    for (int tokens = 1; tokens <= kMaxRowTokens; ++tokens) {
      const std::vector<float> x = TestRandom(3).Gaussians(cols * tokens);
      const float* inputs[kMaxRowTokens] = {};
      for (int t = 0; t < tokens; ++t) inputs[t] = x.data() + t * cols;
      GuardedBuffer<float> out(static_cast<size_t>(tokens) * 5);
      kernels().multiply_rows[index()](matrix.view(), 0, 5, inputs, tokens, out.data(), 5);
      EXPECT_TRUE(out.ZonesIntact());
      for (int t = 0; t < tokens; ++t) {
        for (int row = 0; row < 5; ++row) {
          const ExactDot exact = matrix.Dot(row, inputs[t]);
          EXPECT_NEAR(out[t * 5 + row], exact.value, exact.magnitude * 1e-6 + 1e-30)
              << blocks << " blocks, token " << t << " of " << tokens << ", row " << row;
        }
      }
    }
  }
}

// What the determinism of linear.h stands on.
TEST_P(FloatWeights, ARowsProductDoesNotDependOnItsRangeNorOnTheOtherTokens) {
  constexpr int kRows = 13;
  const int64_t cols = std::max(3 * block_values(), 83);
  const int64_t whole = cols / block_values() * block_values();
  const RandomMatrix matrix(type(), kRows, whole, 11);
  const std::vector<float> x = TestRandom(5).Gaussians(whole * kMaxRowTokens);
  const float* inputs[kMaxRowTokens] = {};
  for (int t = 0; t < kMaxRowTokens; ++t) inputs[t] = x.data() + t * whole;
  std::vector<float> all(kMaxRowTokens * kRows);
  kernels().multiply_rows[index()](matrix.view(), 0, kRows, inputs, kMaxRowTokens, all.data(),
                                   kRows);
  for (int begin = 0; begin < kRows; ++begin) {
    for (int end = begin; end <= kRows; ++end) {
      for (int t = 0; t < kMaxRowTokens; ++t) {
        GuardedBuffer<float> out(end - begin);
        kernels().multiply_rows[index()](matrix.view(), begin, end, inputs + t, 1, out.data(), 0);
        EXPECT_TRUE(SameBits(out.data(), &all[t * kRows + begin], end - begin));
        EXPECT_TRUE(out.ZonesIntact());
      }
    }
  }
}

TEST_P(FloatWeights, ANanInTheInputShows) {
  const RandomMatrix matrix(type(), 2, 2 * std::max(block_values(), 20), 3);
  std::vector<float> x(matrix.view().cols, 1.0f);
  x[matrix.view().cols - 1] = std::numeric_limits<float>::quiet_NaN();
  const float* inputs[] = {x.data()};
  float out[2];
  kernels().multiply_rows[index()](matrix.view(), 0, 2, inputs, 1, out, 2);
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
}

// One table; decoded weights have no type.
class DecodedWeights : public testing::TestWithParam<const WeightKernels*> {
 protected:
  const WeightKernels& kernels() const { return *GetParam(); }
};

TEST_P(DecodedWeights, ProductsAreWithinRoundingAtAnyShape) {
  struct Shape {
    int tokens, rows, cols;
  };
  for (const auto [tokens, rows, cols] : {Shape{1, 1, 1}, Shape{3, 5, 31}, Shape{4, 6, 33},
                                          Shape{5, 7, 65}, Shape{67, 13, 96}, Shape{9, 8, 2051}}) {
    const RandomMatrix matrix(WeightType::kF32, rows, cols, 5);
    const int stride = cols + 3;
    const std::vector<float> x = TestRandom(6).Gaussians(tokens * stride);
    GuardedBuffer<float> out(tokens * rows);
    FindKernels(kernels().name)
        ->multiply_dense({.rows = reinterpret_cast<const float*>(matrix.view().data),
                          .num_rows = rows,
                          .cols = cols,
                          .inputs = x.data(),
                          .input_stride = stride,
                          .num_tokens = tokens,
                          .out = out.data(),
                          .out_stride = rows});
    EXPECT_TRUE(out.ZonesIntact());
    for (int t = 0; t < tokens; ++t) {
      for (int row = 0; row < rows; ++row) {
        const ExactDot exact = matrix.Dot(row, x.data() + t * stride);
        ASSERT_NEAR(out[t * rows + row], exact.value, exact.magnitude * 1e-6)
            << tokens << " x " << rows << " x " << cols << ": " << t << ", " << row;
      }
    }
  }
}

TEST(RandomWeights, HaveTheSpreadThatWasAskedFor) {
  for (int type = 0; type < kNumWeightTypes; ++type) {
    const RandomMatrix matrix(static_cast<WeightType>(type), 1, 1 << 16, 1);  // deviation 0.5
    double sum = 0, squares = 0;
    for (const float w : matrix.Row(0)) {
      sum += w;
      squares += static_cast<double>(w) * w;
    }
    EXPECT_NEAR(sum / (1 << 16), 0.0, 0.06) << InfoOf(static_cast<WeightType>(type)).name;
    EXPECT_NEAR(std::sqrt(squares / (1 << 16)), 0.51, 0.04)
        << InfoOf(static_cast<WeightType>(type)).name;
  }
}

std::vector<const WeightKernels*> AllWeightTables() {
  const auto tables = AvailableWeightKernels();
  return {tables.begin(), tables.end()};
}

INSTANTIATE_TEST_SUITE_P(All, DecodedWeights, testing::ValuesIn(AllWeightTables()),
                         [](const auto& each) { return std::string(each.param->name); });

std::string TableAndType(
    const testing::TestParamInfo<std::tuple<const WeightKernels*, int>>& each) {
  const auto type = static_cast<WeightType>(std::get<1>(each.param));
  return std::string(std::get<0>(each.param)->name) + "_" + InfoOf(type).name;
}

INSTANTIATE_TEST_SUITE_P(All, Weights,
                         testing::Combine(testing::ValuesIn(AllWeightTables()),
                                          testing::Range(0, kNumWeightTypes)),
                         TableAndType);
INSTANTIATE_TEST_SUITE_P(All, FloatWeights,
                         testing::Combine(testing::ValuesIn(AllWeightTables()),
                                          testing::Range(0, 3)),
                         TableAndType);

}  // namespace weights_test
}  // namespace varve
