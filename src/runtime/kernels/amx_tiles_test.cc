// Products by AMX against double precision on operands rounded to bf16. Where the processor has
// AVX512-BF16 and no AMX, its tiles are emulated.

#include "runtime/kernels/amx_tiles.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <hwy/aligned_allocator.h>

#include "base/align.h"
#include "kernels/kernel_testing.h"
#include "runtime/kernels/amx_tiles_testing.h"

namespace varve {
namespace amx_tiles_test {

float WidenBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

class AmxTiles : public testing::Test {
 protected:
  void SetUp() override {
    if (amx_ == nullptr) GTEST_SKIP() << kNoAmxKernels;
  }

  // [tokens, rows], with the columns taken `columns` at a time.
  std::vector<float> Multiply(const std::vector<float>& weights, int rows,
                              const std::vector<float>& tokens, int num_tokens, int cols,
                              int columns) const {
    const int row_groups = CeilDiv(rows, kAmxRows), token_groups = CeilDiv(num_tokens, kAmxRows);
    const int64_t steps = CeilDiv(cols, kAmxColumns);
    std::vector<uint16_t> packed(token_groups * steps * kAmxTile, 0xffff);
    for (int g = 0; g < token_groups; ++g) {
      amx_->pack_tokens(tokens.data() + g * kAmxRows * cols, cols,
                        std::min(kAmxRows, num_tokens - g * kAmxRows), cols,
                        packed.data() + g * steps * kAmxTile);
    }
    const auto sums = hwy::AllocateAligned<float>(row_groups * token_groups * 256);
    for (int first = 0; first < cols; first += columns) {
      const int count = std::min(columns, cols - first);
      const int64_t taken = CeilDiv(count, kAmxColumns);
      std::vector<uint16_t> tile(row_groups * taken * kAmxTile);
      for (int r = 0; r < rows; ++r) {
        amx_->pack_row(weights.data() + r * cols + first, count,
                       tile.data() + r / kAmxRows * taken * kAmxTile + r % kAmxRows * kAmxColumns);
      }
      amx_->multiply({.weights = tile.data(),
                      .row_groups = row_groups,
                      .tokens = packed.data() + first / kAmxColumns * kAmxTile,
                      .token_groups = token_groups,
                      .tokens_steps = steps,
                      .steps = taken,
                      .add = first > 0,
                      .sums = sums.get()});
    }
    std::vector<float> out(static_cast<size_t>(num_tokens) * rows, -1.0f);
    amx_->write_sums({.sums = sums.get(),
                      .num_tokens = num_tokens,
                      .rows = rows,
                      .bias = nullptr,
                      .add = false,
                      .out = out.data(),
                      .stride = rows});
    return out;
  }

  const AmxKernels* amx_ = AmxKernelsForTests();
};

TEST_F(AmxTiles, PackTokensInPairsOfColumns) {
  constexpr int kCols = 40;
  std::vector<float> input(3 * kCols);
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i + 1);
  std::vector<uint16_t> packed(2 * kAmxTile, 0xffff);
  amx_->pack_tokens(input.data(), kCols, 3, kCols, packed.data());
  for (int column = 0; column < 64; ++column) {
    for (int t = 0; t < 16; ++t) {
      const int at = column / 32 * kAmxTile + column % 32 / 2 * 32 + 2 * t + column % 2;
      const bool there = t < 3 && column < kCols;
      EXPECT_EQ(WidenBf16(packed[at]), there ? input[t * kCols + column] : 0.0f)
          << column << " " << t;
    }
  }
}

TEST_F(AmxTiles, RoundToTheNearestBf16) {
  const std::vector<float> values = {
      1.0f,     1.00390625f, 1.01171875f, -3.14159f,
      65504.0f, 1e30f,       -0.0f,       std::numeric_limits<float>::infinity()};
  std::vector<uint16_t> packed(kAmxTile);
  amx_->pack_row(values.data(), static_cast<int64_t>(values.size()), packed.data());
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(WidenBf16(packed[i]), RoundToBf16(values[i]));
  for (int i = static_cast<int>(values.size()); i < kAmxColumns; ++i) EXPECT_EQ(packed[i], 0);
}

TEST_F(AmxTiles, AreTheProductsOfRoundedOperands) {
  struct Shape {
    int rows, tokens, cols, columns;
  };
  for (const auto& [rows, tokens, cols, columns] :
       {Shape{1, 1, 32, 512}, Shape{16, 16, 64, 512}, Shape{17, 33, 96, 32}, Shape{31, 9, 33, 512},
        Shape{64, 48, 1000, 512}, Shape{83, 15, 544, 256}, Shape{40, 70, 31, 32}}) {
    std::vector<float> weights = TestRandom(1).Gaussians(rows * cols);
    std::vector<float> input = TestRandom(2).Gaussians(tokens * cols);
    const std::vector<float> out = Multiply(weights, rows, input, tokens, cols, columns);
    for (int t = 0; t < tokens; ++t) {
      for (int r = 0; r < rows; ++r) {
        double exact = 0, magnitude = 0;
        for (int c = 0; c < cols; ++c) {
          const double term =
              double{RoundToBf16(weights[r * cols + c])} * RoundToBf16(input[t * cols + c]);
          exact += term;
          magnitude += std::abs(term);
        }
        ASSERT_NEAR(out[t * rows + r], exact, 1e-6 * magnitude)
            << rows << " rows, " << tokens << " tokens, " << cols << " columns: " << r << ", " << t;
      }
    }
  }
}

// Neither rows nor tokens beside it, nor how columns are cut, change a sum.
TEST_F(AmxTiles, ASumDependsOnItsRowAndTokenAlone) {
  constexpr int kCols = 1024;
  const std::vector<float> weights = TestRandom(1).Gaussians(50 * kCols);
  const std::vector<float> input = TestRandom(2).Gaussians(40 * kCols);
  const std::vector<float> all = Multiply(weights, 50, input, 40, kCols, 512);
  const std::vector<float> cut = Multiply(weights, 50, input, 40, kCols, 256);
  EXPECT_TRUE(SameBits(all.data(), cut.data(), all.size()));
  for (const int t : {0, 17, 39}) {
    const std::vector<float> token(input.begin() + t * kCols, input.begin() + (t + 1) * kCols);
    const std::vector<float> alone = Multiply(weights, 50, token, 1, kCols, 512);
    EXPECT_TRUE(SameBits(all.data() + t * 50, alone.data(), 50)) << t;
  }
}

TEST_F(AmxTiles, NumbersBelowTheSmallestNormalCountAsZero) {
  std::vector<float> weights(32, 0.0f), input(32, 0.0f);
  weights[5] = input[5] = 0x1p-64f;
  EXPECT_EQ(Multiply(weights, 1, input, 1, 32, 512)[0], 0.0f);
  weights[5] = 0x1p-62f;
  EXPECT_EQ(Multiply(weights, 1, input, 1, 32, 512)[0], 0x1p-126f);
  weights[5] = 0x1p-127f;
  input[5] = 0x1p100f;
  EXPECT_EQ(Multiply(weights, 1, input, 1, 32, 512)[0], 0.0f);
}

TEST_F(AmxTiles, CarryNaNAndInfinityOfTheirOperandsOnly) {
  std::vector<float> weights = TestRandom(1).Gaussians(20 * 64);
  const std::vector<float> input = TestRandom(2).Gaussians(20 * 64);
  weights[3 * 64 + 5] = std::numeric_limits<float>::quiet_NaN();
  weights[7 * 64 + 9] = std::numeric_limits<float>::infinity();
  const std::vector<float> out = Multiply(weights, 20, input, 20, 64, 512);
  for (int t = 0; t < 20; ++t) {
    for (int r = 0; r < 20; ++r) {
      EXPECT_EQ(std::isnan(out[t * 20 + r]), r == 3) << r;
      EXPECT_EQ(std::isinf(out[t * 20 + r]), r == 7) << r;
    }
  }
}

}  // namespace amx_tiles_test
}  // namespace varve
