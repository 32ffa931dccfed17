// Weighted sums of V on float strips, of every table, against double precision; and what float and
// block strips have in common. The block sums are in block_value_kernels_test.cc.

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
namespace value_kernels_test {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kRowCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 33};

class ValueKernel : public EveryTable {};
INSTANTIATE_TEST_SUITE_P(Tables, ValueKernel, testing::ValuesIn(AllTables()), TableName);

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
          const Weights w = RandomWeights(num_rows, page_tokens, first, count, 0.5, random);
          const std::vector<float> before = random.Gaussians(static_cast<size_t>(num_rows) * dim);
          const std::vector<float> sums = RunAddValues(
              GetParam()->add_values_float[static_cast<int>(type)], s, first, count, w, before);
          for (int r = 0; r < num_rows; ++r) {
            for (int d = 0; d < dim; ++d) {
              const size_t at = static_cast<size_t>(r) * dim + d;
              double exact = before[at], size = std::abs(exact);
              for (int t = first; t < first + count; ++t) {
                const double term = w.at(r, t) * s.value(t, d);
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
    const Weights w = RandomWeights(3, 32, 5, 17, 0.5, random);
    const std::vector<float> sums =
        RunAddValues(GetParam()->add_values_float[static_cast<int>(type)], s, 5, 17, w,
                     std::vector<float>(240, 0.0f));
    for (const float sum : sums) ASSERT_TRUE(std::isfinite(sum));
  }
}

TEST_P(ValueKernel, EveryF16IsWidenedExactly) {
  const std::vector<float> weights(16, 1.0f), total(1, 1.0f);
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
                                     16,
                                     total.data(),
                                     1,
                                     sums.data(),
                                     {}});
    for (uint32_t i = 0; i < 16; ++i) {
      const float value = F16ToF32(strip[i]);
      ASSERT_TRUE(std::isnan(value) ? std::isnan(sums[i]) : sums[i] == value) << first + i;
    }
  }
}

TEST_P(ValueKernel, ReadingAheadChangesNoResult) {
  TestRandom random(27);
  const std::vector<std::byte> next(5000);
  const OracleStrip value = RandomFloatStrip(FloatType::kF16, false, 96, 64, random);
  const OracleStrip block = RandomBlockStrip(BlockType::kQ8, false, 96, 64, random);
  const Weights w = RandomWeights(5, 64, 0, 33, 0.5, random);
  const std::vector<float> before = random.Gaussians(size_t{5} * 96);
  const auto float_kernel = GetParam()->add_values_float[1];
  const auto block_kernel = GetParam()->add_values_block[0];
  for (const int rate : {0, 1, 2}) {
    for (const size_t bytes : {0, 1, 63, 64, 65, 5000}) {
      ReadAhead ahead;
      for (int i = 0; i < 3; ++i) ahead.Add(next.data(), bytes);
      ahead.cursor.rate = rate;
      EXPECT_EQ(RunAddValues(float_kernel, value, 0, 33, w, before, &ahead),
                RunAddValues(float_kernel, value, 0, 33, w, before));
      EXPECT_EQ(RunAddValues(block_kernel, block, 0, 33, w, before, &ahead),
                RunAddValues(block_kernel, block, 0, 33, w, before));
      EXPECT_LE(ahead.entered(), 3u);
    }
  }
}

}  // namespace value_kernels_test
}  // namespace varve
