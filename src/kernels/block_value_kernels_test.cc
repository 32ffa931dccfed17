// Weighted sums of V on block strips, of every table, against the rounding of the weights that
// scalar_kernels.cc describes, at sizes around the vector, quad and row-tile widths.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/kernel_tables.h"
#include "kernels/kernel_testing.h"
#include "kernels/strip_oracle.h"

namespace varve {
namespace block_value_kernels_test {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 33};

class BlockValueKernel : public EveryTable {};
INSTANTIATE_TEST_SUITE_P(Tables, BlockValueKernel, testing::ValuesIn(AllTables()), TableName);

// Weight times scale is rounded to a level of weight_max * the largest scale / kWeightLevels;
// everything after that is exact up to the last multiplication and sum.
double LevelStep(const OracleStrip& s, BlockType type, int b, float weight_max) {
  double scale_max = 0.0;
  for (int t = 0; t < s.page_tokens; ++t) {
    uint16_t bits;
    std::memcpy(&bits, &s.bytes[BlockScaleAt(s, false, t, b)], 2);
    scale_max = std::max(scale_max, std::abs(static_cast<double>(F16ToF32(bits))));
  }
  return weight_max * scale_max / kWeightLevels[static_cast<int>(type)];
}

struct BlockSumCheck {
  BlockType type;
  bool coarse;            // q4_0 without a token of weight: multiples of 256 levels, dithered
  double errors = 0.0;    // sum of squares, in steps
  double expected = 0.0;  // the same, if every rounding were independent

  void Check(const Kernels& kernels, int dim, int page_tokens, int count, int num_rows,
             TestRandom& random) {
    const OracleStrip s = RandomBlockStrip(type, false, dim, page_tokens, random);
    const Weights w = RandomWeights(num_rows, page_tokens, 0, count, coarse ? 0.005 : 0.5, random);
    const std::vector<float> before = random.Gaussians(static_cast<size_t>(num_rows) * dim);
    const int t = static_cast<int>(type);
    const std::vector<float> sums =
        RunAddValues(kernels.add_values_block[t], s, 0, count, w, before);
    const std::vector<float> scalar =
        RunAddValues(ScalarKernels().add_values_block[t], s, 0, count, w, before);
    for (int r = 0; r < num_rows; ++r) {
      for (int d = 0; d < dim; ++d) {
        const size_t at = static_cast<size_t>(r) * dim + d;
        CheckSum(s, w, r, d, count, before[at], sums[at], scalar[at]);
      }
    }
  }

  void CheckSum(const OracleStrip& s, const Weights& w, int r, int d, int count, float before,
                float sum, float scalar) {
    const double step = LevelStep(s, type, d / 32, w.max(r)) * (coarse ? 256 : 1);
    double exact = before, codes = 0.0, squares = 0.0, size = std::abs(exact);
    for (int t = 0; t < count; ++t) {
      const int code = BlockCode(s, type, false, t, d / 32, d % 32);
      const double term = w.at(r, t) * s.value(t, d);
      exact += term;
      size += std::abs(term);
      codes += term == 0.0 ? 0.0 : std::abs(code);
      squares += term == 0.0 ? 0.0 : code * code;
    }
    // Half a level per token, a whole level where dither was added; and 9 roundings: scaling (6),
    // to f32, product, sum.
    ASSERT_NEAR(sum, exact, (coarse ? 1.0 : 0.5) * step * codes + 9 * kUnitRoundoff * size)
        << "dim " << s.dim << " page " << s.page_tokens << " tokens " << count << " row " << r;
    // The integers are the same in all tables: only the last product and sum may differ.
    ASSERT_NEAR(sum, scalar, 2 * kUnitRoundoff * (size + std::abs(sum)));
    if (count == 1) return;  // the largest weight is hardly rounded at all
    errors += (sum - exact) * (sum - exact) / (step * step);
    expected += squares * (coarse ? 2.0 : 1.0) / 12;
  }
};

TEST_P(BlockValueKernel, BlockSumsAreOffByTheRoundingOfTheWeightsAndNoMore) {
  TestRandom random(23);
  size_t turn = 0;
  for (BlockSumCheck check :
       {BlockSumCheck{BlockType::kQ8, false}, BlockSumCheck{BlockType::kQ4, false},
        BlockSumCheck{BlockType::kQ4, true}}) {
    for (const int dim : {32, 64, 96, 128, 256}) {
      for (const int page_tokens : {16, 32, 64, 128}) {
        for (const int count : {1, 15, 16, 17, 31, 33, 63, 64, 127, 128}) {
          if (count > page_tokens) continue;
          check.Check(*GetParam(), dim, page_tokens, count, kRowCounts[turn++ % 10], random);
          if (HasFatalFailure()) return;
        }
      }
    }
    // Independent roundings have an error of step / sqrt(12) each, and dither adds as much again.
    // The largest weight has none, small ones with dither have more. The lower bound checks that
    // the kernel is not better than its bits allow.
    const double ratio = std::sqrt(check.errors / check.expected);
    EXPECT_GT(ratio, 0.8) << check.coarse;
    EXPECT_LT(ratio, 1.1) << check.coarse;
  }
}

TEST_P(BlockValueKernel, MixedRowsAreEachRoundedTheirOwnWay) {
  // Coarse and fine rows in one call, in every pattern of four.
  TestRandom random(28);
  for (const int page_tokens : {16, 64, 128}) {
    const OracleStrip s = RandomBlockStrip(BlockType::kQ4, false, 64, page_tokens, random);
    for (int pattern = 0; pattern < 16; ++pattern) {
      Weights w = RandomWeights(4, page_tokens, 0, page_tokens, 0.5, random);
      for (int r = 0; r < 4; ++r) w.total[r] = w.max(r) * (pattern >> r & 1 ? 100.0f : 2.0f);
      const std::vector<float> zero(size_t{4} * 64, 0.0f);
      const std::vector<float> sums =
          RunAddValues(GetParam()->add_values_block[1], s, 0, page_tokens, w, zero);
      const std::vector<float> scalar =
          RunAddValues(ScalarKernels().add_values_block[1], s, 0, page_tokens, w, zero);
      // From zero there is one rounding, of the same integer and the same step.
      for (size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(sums[i], scalar[i]) << pattern << ' ' << i;
    }
  }
}

TEST_P(BlockValueKernel, DitherKeepsTheMassOfManySmallWeights) {
  // One weight of 1, the others 0.3 of a coarse level: rounding to nearest would drop them all.
  for (const int page_tokens : {32, 64, 128}) {
    TestRandom random(29);
    OracleStrip s = RandomBlockStrip(BlockType::kQ4, false, 32, page_tokens, random);
    std::fill(s.bytes.begin(), s.bytes.end(), std::byte{0x00});  // codes -8
    const uint16_t scale = F32ToF16(-0.125f);                    // so every value is 1
    for (int t = 0; t < page_tokens; ++t)
      std::memcpy(&s.bytes[BlockScaleAt(s, false, t, 0)], &scale, 2);
    Weights w{page_tokens, std::vector<float>(page_tokens, 0.3f / 127), {100.0f}};
    w.values[0] = 1.0f;
    const std::vector<float> sums = RunAddValues(GetParam()->add_values_block[1], s, 0, page_tokens,
                                                 w, std::vector<float>(32, 0.0f));
    // Evenly spread dither is off by about two tokens, whatever the page's length.
    for (const float sum : sums) EXPECT_NEAR((sum - 1.0f) * 127, 0.3f * (page_tokens - 1), 2.0f);
  }
}

TEST_P(BlockValueKernel, BlockSumsStandTheLargestCodesAndWeights) {
  for (const BlockType type : {BlockType::kQ8, BlockType::kQ4}) {
    for (const int fill : {0x00, 0x7F, 0x80, 0xFF}) {
      for (const auto& [scale, total] :
           {std::pair{65504.0f, 1.0f}, {1.0f, 128.0f}, {6e-8f, 1.0f}}) {
        TestRandom random(24);
        OracleStrip s = RandomBlockStrip(type, false, 64, 128, random);
        std::fill(s.bytes.begin() + 2 * 2 * 128, s.bytes.end(), static_cast<std::byte>(fill));
        for (int t = 0; t < 128; ++t) {
          for (int b = 0; b < 2; ++b) {
            const uint16_t bits = F32ToF16(type == BlockType::kQ4 && b == 1 ? -scale : scale);
            std::memcpy(&s.bytes[BlockScaleAt(s, false, t, b)], &bits, 2);
          }
        }
        const Weights w{128, std::vector<float>(3 * 128, 1.0f), std::vector<float>(3, total)};
        const std::vector<float> sums =
            RunAddValues(GetParam()->add_values_block[static_cast<int>(type)], s, 0, 128, w,
                         std::vector<float>(3 * 64, 0.0f));
        for (int d = 0; d < 64; ++d) {
          const double one = BlockCode(s, type, false, 0, d / 32, d % 32) *
                             static_cast<double>(F16ToF32(F32ToF16(scale)));
          const double exact = (type == BlockType::kQ4 && d >= 32 ? -128 : 128) * one;
          ASSERT_NEAR(sums[d], exact, 4 * kUnitRoundoff * std::abs(exact)) << "code byte " << fill;
          ASSERT_EQ(sums[d], sums[128 + d]);
        }
      }
    }
  }
}

TEST_P(BlockValueKernel, BlockSumsLeaveTheAccumulatorsAloneWithoutWeight) {
  TestRandom random(25);
  for (const BlockType type : {BlockType::kQ8, BlockType::kQ4}) {
    for (const int page_tokens : {32, 64}) {
      const OracleStrip s = RandomBlockStrip(type, false, 96, page_tokens, random);
      const std::vector<float> before = random.Gaussians(size_t{5} * 96);
      // No weight; weights too small to count.
      for (const float weight : {0.0f, 1e-40f}) {
        for (const float total : {0.0f, 1.0f, kNan}) {
          const Weights w{page_tokens, std::vector<float>(size_t{5} * page_tokens, weight),
                          std::vector<float>(5, total)};
          const std::vector<float> sums = RunAddValues(
              GetParam()->add_values_block[static_cast<int>(type)], s, 0, page_tokens, w, before);
          ASSERT_TRUE(SameBits(sums.data(), before.data(), before.size()))
              << weight << ' ' << total;
        }
      }
    }
  }
}

TEST_P(BlockValueKernel, ANanWeightCountsAsZeroInBlockSums) {
  // The softmax has put it into the sum, which decides the row; here it must be defined.
  TestRandom random(26);
  for (const BlockType type : {BlockType::kQ8, BlockType::kQ4}) {
    for (const int page_tokens : {32, 64, 128}) {
      for (const double share : {0.5, 0.01}) {
        const OracleStrip s = RandomBlockStrip(type, false, 64, page_tokens, random);
        const std::vector<float> before = random.Gaussians(size_t{3} * 64);
        Weights w = RandomWeights(3, page_tokens, 0, 31, share, random);
        Weights with_nan = w;
        for (const int t : {0, 5, 17, 18}) {
          w.values[page_tokens + t] = 0.0f;
          with_nan.values[page_tokens + t] = t % 2 ? kNan : -kNan;
        }
        const auto kernel = GetParam()->add_values_block[static_cast<int>(type)];
        EXPECT_EQ(RunAddValues(kernel, s, 0, 31, with_nan, before),
                  RunAddValues(kernel, s, 0, 31, w, before))
            << page_tokens << ' ' << share;
      }
    }
  }
}

}  // namespace block_value_kernels_test
}  // namespace varve
