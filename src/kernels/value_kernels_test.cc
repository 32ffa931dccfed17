// Weighted sums of V of every table: float strips against double precision, block strips against
// the weights' own rounding, at sizes around the vector, quad and row-tile widths.

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
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 33};

class ValueKernel : public EveryTable {};
INSTANTIATE_TEST_SUITE_P(Tables, ValueKernel, testing::ValuesIn(AllTables()), TableName);

struct Weights {
  std::vector<float> values;  // [num_rows, page_tokens]
  std::vector<float> max;     // [num_rows]
};

// exp of a gaussian, as a softmax gives, and zero outside [first, first + count).
Weights RandomWeights(int num_rows, int page_tokens, int first, int count, TestRandom& random) {
  Weights w{std::vector<float>(static_cast<size_t>(num_rows) * page_tokens, 0.0f),
            std::vector<float>(num_rows, 0.0f)};
  for (int r = 0; r < num_rows; ++r) {
    for (int t = first; t < first + count; ++t) {
      const float weight = std::exp(2.0f * random.Gaussian() - 4.0f);
      w.values[static_cast<size_t>(r) * page_tokens + t] = weight;
      w.max[r] = std::max(w.max[r], weight);
    }
  }
  return w;
}

std::vector<float> RunAddValues(void (*kernel)(const AddValuesArgs&), const OracleStrip& s,
                                int first, int count, const Weights& w,
                                const std::vector<float>& before, Prefetch next = {}) {
  GuardedBuffer<float> sums(before.size());
  sums.Assign(before);
  kernel({s.bytes.data(), s.dim, s.page_tokens, first, count, w.values.data(), w.max.data(),
          static_cast<int>(w.max.size()), sums.data(), next});
  EXPECT_TRUE(sums.ZonesIntact());
  return {sums.data(), sums.data() + sums.size()};
}

TEST_P(ValueKernel, FloatSumsOverAnyTokenRange) {
  TestRandom random(21);
  size_t turn = 0;
  for (const FloatType type : {FloatType::kF32, FloatType::kF16, FloatType::kBF16}) {
    for (const int dim : {16, 32, 64, 80, 96, 128, 256}) {
      for (const int page_tokens : {16, 32, 64, 128}) {
        for (const auto& [first, count] : {std::pair{0, page_tokens},
                                           {0, 1},
                                           {3, 5},
                                           {page_tokens - 1, 1},
                                           {15, 1},
                                           {0, page_tokens - 1},
                                           {7, 0}}) {
          const int num_rows = kRowCounts[turn++ % 10];
          OracleStrip s = RandomFloatStrip(type, false, dim, page_tokens, random);
          const Weights w = RandomWeights(num_rows, page_tokens, first, count, random);
          const std::vector<float> before = random.Gaussians(static_cast<size_t>(num_rows) * dim);
          const std::vector<float> sums = RunAddValues(
              GetParam()->add_values_float[static_cast<int>(type)], s, first, count, w, before);
          for (int r = 0; r < num_rows; ++r) {
            for (int d = 0; d < dim; ++d) {
              const size_t at = static_cast<size_t>(r) * dim + d;
              double exact = before[at], size = std::abs(exact);
              for (int t = first; t < first + count; ++t) {
                const double term =
                    w.values[static_cast<size_t>(r) * page_tokens + t] * s.value(t, d);
                exact += term;
                size += std::abs(term);
              }
              // One rounding per product and per partial sum.
              ASSERT_NEAR(sums[at], exact, (count + 1) * kUnitRoundoff * size)
                  << "dim " << dim << " page " << page_tokens << " tokens " << first << '+'
                  << count;
            }
          }
        }
      }
    }
  }
}

TEST_P(ValueKernel, FloatSumsReadNoTokenOutsideTheRange) {
  TestRandom random(22);
  for (const FloatType type : {FloatType::kF32, FloatType::kF16, FloatType::kBF16}) {
    OracleStrip s = RandomFloatStrip(type, false, 80, 32, random);
    const size_t bytes = FloatBytes(type);
    for (int t = 0; t < 32; ++t) {
      if (t >= 5 && t < 22) continue;
      // All bits set is NaN in each of the three types.
      for (int d = 0; d < 80; ++d)
        std::memset(&s.bytes[FloatValueAt(s, t, d) * bytes], 0xFF, bytes);
    }
    const Weights w = RandomWeights(3, 32, 5, 17, random);
    const std::vector<float> sums =
        RunAddValues(GetParam()->add_values_float[static_cast<int>(type)], s, 5, 17, w,
                     std::vector<float>(240, 0.0f));
    for (const float sum : sums) ASSERT_TRUE(std::isfinite(sum));
  }
}

TEST_P(ValueKernel, EveryF16IsWidenedExactly) {
  const std::vector<float> weights(16, 1.0f), max(1, 1.0f);
  for (uint32_t first = 0; first < 0x10000; first += 16) {
    std::vector<uint16_t> strip(16 * 16, 0);
    for (uint32_t i = 0; i < 16; ++i) strip[i] = static_cast<uint16_t>(first + i);
    std::vector<float> sums(16, 0.0f);
    GetParam()->add_values_float[1]({reinterpret_cast<const std::byte*>(strip.data()),
                                     16,
                                     16,
                                     0,
                                     1,
                                     weights.data(),
                                     max.data(),
                                     1,
                                     sums.data(),
                                     {}});
    for (uint32_t i = 0; i < 16; ++i) {
      const float value = F16ToF32(strip[i]);
      ASSERT_TRUE(std::isnan(value) ? std::isnan(sums[i]) : sums[i] == value) << first + i;
    }
  }
}

// Weight times scale is rounded to a level of `range / kLevels` where range = weight_max * the
// largest scale; everything after that is exact up to the last multiplication and sum.
double LevelStep(const OracleStrip& s, BlockType type, int b, float weight_max) {
  double scale_max = 0.0;
  for (int t = 0; t < s.page_tokens; ++t) {
    uint16_t bits;
    std::memcpy(&bits, &s.bytes[BlockScaleAt(s, false, t, b)], 2);
    scale_max = std::max(scale_max, std::abs(static_cast<double>(F16ToF32(bits))));
  }
  return weight_max * scale_max / (type == BlockType::kQ8 ? 65535.0 : 32512.0);
}

TEST_P(ValueKernel, BlockSumsAreOffByTheRoundingOfTheWeightsAndNoMore) {
  TestRandom random(23);
  size_t turn = 0;
  for (const BlockType type : {BlockType::kQ8, BlockType::kQ4}) {
    double errors = 0.0, expected = 0.0;  // sums of squares
    for (const int dim : {32, 64, 96, 128, 256}) {
      for (const int page_tokens : {16, 32, 64, 128}) {
        for (const int count : {1, 15, 16, 17, 31, 33, 63, 64, 127, 128}) {
          if (count > page_tokens) continue;
          const int num_rows = kRowCounts[turn++ % 10];
          const OracleStrip s = RandomBlockStrip(type, false, dim, page_tokens, random);
          const Weights w = RandomWeights(num_rows, page_tokens, 0, count, random);
          const std::vector<float> before = random.Gaussians(static_cast<size_t>(num_rows) * dim);
          const int t_index = static_cast<int>(type);
          const std::vector<float> sums =
              RunAddValues(GetParam()->add_values_block[t_index], s, 0, count, w, before);
          const std::vector<float> scalar =
              RunAddValues(ScalarKernels().add_values_block[t_index], s, 0, count, w, before);
          for (int r = 0; r < num_rows; ++r) {
            for (int b = 0; b < dim / 32; ++b) {
              const double step = LevelStep(s, type, b, w.max[r]);
              for (int i = 0; i < 32; ++i) {
                const size_t at = static_cast<size_t>(r) * dim + b * 32 + i;
                double exact = before[at], codes = 0.0, squares = 0.0, size = std::abs(exact);
                for (int t = 0; t < count; ++t) {
                  const int code = BlockCode(s, type, false, t, b, i);
                  const double term =
                      w.values[static_cast<size_t>(r) * page_tokens + t] * s.value(t, b * 32 + i);
                  exact += term;
                  size += std::abs(term);
                  codes += std::abs(code);
                  squares += code * code;
                }
                // Half a level a token, and 8 roundings: scaling (5), to f32, product, sum.
                ASSERT_NEAR(sums[at], exact, 0.5 * step * codes + 8 * kUnitRoundoff * size)
                    << "dim " << dim << " page " << page_tokens << " tokens " << count << " row "
                    << r;
                // The integers are the same in all tables: only the last product and sum may
                // differ.
                ASSERT_NEAR(sums[at], scalar[at], 2 * kUnitRoundoff * (size + std::abs(sums[at])));
                if (count > 1) {
                  errors += (sums[at] - exact) * (sums[at] - exact) / (step * step);
                  expected += squares / 12;
                }
              }
            }
          }
        }
      }
    }
    // Levels that are rounded independently have an error of step / sqrt(12) each. The largest
    // weight and the zero scales have none; nor is the kernel better than 16 bits allow.
    const double ratio = std::sqrt(errors / expected);
    EXPECT_GT(ratio, 0.8);
    EXPECT_LT(ratio, 1.05);
  }
}

TEST_P(ValueKernel, BlockSumsStandTheLargestCodesAndWeights) {
  for (const BlockType type : {BlockType::kQ8, BlockType::kQ4}) {
    for (const int fill : {0x00, 0x7F, 0x80, 0xFF}) {
      for (const float scale : {65504.0f, 1.0f, 6e-8f}) {
        TestRandom random(24);
        OracleStrip s = RandomBlockStrip(type, false, 64, 128, random);
        std::fill(s.bytes.begin() + 2 * 2 * 128, s.bytes.end(), static_cast<std::byte>(fill));
        for (int t = 0; t < 128; ++t) {
          for (int b = 0; b < 2; ++b) {
            const uint16_t bits = F32ToF16(type == BlockType::kQ4 && b == 1 ? -scale : scale);
            std::memcpy(&s.bytes[BlockScaleAt(s, false, t, b)], &bits, 2);
          }
        }
        const Weights w{std::vector<float>(3 * 128, 1.0f), std::vector<float>(3, 1.0f)};
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

TEST_P(ValueKernel, BlockSumsLeaveTheAccumulatorsAloneWithoutWeight) {
  TestRandom random(25);
  for (const BlockType type : {BlockType::kQ8, BlockType::kQ4}) {
    const OracleStrip s = RandomBlockStrip(type, false, 96, 32, random);
    const std::vector<float> before = random.Gaussians(size_t{5} * 96);
    // No weight; weights too small to count; a softmax row that met +inf or NaN alone.
    for (const float max : {0.0f, 1e-40f, kNan}) {
      const Weights w{std::vector<float>(5 * 32, max == 1e-40f ? max : 0.0f),
                      std::vector<float>(5, max)};
      const std::vector<float> sums =
          RunAddValues(GetParam()->add_values_block[static_cast<int>(type)], s, 0, 32, w, before);
      ASSERT_TRUE(SameBits(sums.data(), before.data(), before.size())) << max;
    }
  }
}

TEST_P(ValueKernel, ANanWeightCountsAsZeroInBlockSums) {
  // The softmax has put it into page_sum, which decides the row; here it must be defined.
  TestRandom random(26);
  for (const BlockType type : {BlockType::kQ8, BlockType::kQ4}) {
    const OracleStrip s = RandomBlockStrip(type, false, 64, 32, random);
    const std::vector<float> before = random.Gaussians(size_t{3} * 64);
    Weights w = RandomWeights(3, 32, 0, 31, random);
    Weights with_nan = w;
    for (const int t : {0, 5, 17, 18}) {
      w.values[32 + t] = 0.0f;
      with_nan.values[32 + t] = t % 2 ? kNan : -kNan;
    }
    const auto kernel = GetParam()->add_values_block[static_cast<int>(type)];
    EXPECT_EQ(RunAddValues(kernel, s, 0, 31, with_nan, before),
              RunAddValues(kernel, s, 0, 31, w, before));
  }
}

TEST_P(ValueKernel, APrefetchRangeChangesNoResult) {
  TestRandom random(27);
  const std::vector<std::byte> next(5000);
  const OracleStrip value = RandomFloatStrip(FloatType::kF16, false, 96, 64, random);
  const OracleStrip block = RandomBlockStrip(BlockType::kQ8, false, 96, 64, random);
  const Weights w = RandomWeights(5, 64, 0, 33, random);
  const std::vector<float> before = random.Gaussians(size_t{5} * 96);
  const auto float_kernel = GetParam()->add_values_float[1];
  const auto block_kernel = GetParam()->add_values_block[0];
  for (const size_t bytes : {0, 1, 63, 64, 65, 5000}) {
    const Prefetch range = {next.data(), bytes};
    EXPECT_EQ(RunAddValues(float_kernel, value, 0, 33, w, before, range),
              RunAddValues(float_kernel, value, 0, 33, w, before));
    EXPECT_EQ(RunAddValues(block_kernel, block, 0, 33, w, before, range),
              RunAddValues(block_kernel, block, 0, 33, w, before));
  }
}

}  // namespace
}  // namespace varve
