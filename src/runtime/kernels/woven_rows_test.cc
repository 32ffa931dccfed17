// Woven rows: the layout read back as the header describes it, and products with it.

#include "runtime/kernels/woven_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/kernels/linear.h"
#include "runtime/kernels/scalar_blocks.h"
#include "runtime/kernels/weights_testing.h"

namespace varve {
namespace woven_rows_test {

constexpr WeightType kTypes[] = {WeightType::kQ4_0, WeightType::kQ4_1,   WeightType::kQ5_0,
                                 WeightType::kQ5_1, WeightType::kQ4K,    WeightType::kQ5K,
                                 WeightType::kQ6K,  WeightType::kIQ4_NL, WeightType::kIQ4_XS};

// A matrix and its bands.
struct WovenMatrix {
  WovenMatrix(WeightType type, int64_t rows, int64_t cols, uint64_t seed)
      : stored(type, rows, cols, seed), view(stored.view()), bytes(WovenBytes(view)) {
    WeaveMatrix(view, *MakeThreadPool(2), bytes.data());
    view.woven = bytes.data();
  }
  RandomMatrix stored;
  WeightMatrix view;
  std::vector<std::byte> bytes;
};

// Column c of a run, from the dwords of one row.
int CodeOf(const uint32_t* words, size_t bits, int c) {
  const int p = c / 2;
  const auto field = [&](int word, int from, int count) {
    return static_cast<int>(words[word] >> (16 * (c % 2) + from) & ((1U << count) - 1));
  };
  if (bits == 4) return field(p / 4, 4 * (p % 4), 4);
  if (bits == 5) {
    if (p < 15) return field(p / 3, 5 * (p % 3), 5);
    int code = 0;
    for (int v = 0; v < 5; ++v) code |= field(v, 15, 1) << v;
    return code;
  }
  const int first = p / 8 * 3;
  const int q = p % 8;
  if (q < 6) return field(first + q / 2, 6 * (q % 2), 6);
  return field(first + q - 6, 12, 4) | field(first + 2, 2 * q, 2) << 4;
}

// One row, from its band.
std::vector<float> Unweave(const WeightMatrix& matrix, int64_t row) {
  const WovenForm form = WovenFormOf(matrix.type);
  const auto lane = static_cast<size_t>(row % kBandRows);
  const auto* block = reinterpret_cast<const uint8_t*>(matrix.woven) +
                      static_cast<size_t>(row / kBandRows) * BandBytes(matrix);
  std::vector<float> values;
  for (int64_t column = 0; column < matrix.cols; column += static_cast<int64_t>(form.block)) {
    const float scale = F16At(block + 2 * lane);
    const float minimum = form.fields == 64 ? F16At(block + 32 + 2 * lane) : 0.0f;
    for (size_t r = 0; r < form.block / 32; ++r) {
      const uint8_t* run = block + form.fields + r * form.run_bytes();
      uint32_t words[6];
      for (size_t v = 0; v < form.bits; ++v) {
        std::memcpy(words + v, run + form.scales + 64 * v + 4 * lane, 4);
      }
      for (int c = 0; c < 32; ++c) {
        const int bits = CodeOf(words, form.bits, c);
        const auto code = static_cast<float>(bits);
        if (matrix.type == WeightType::kIQ4_NL) {
          values.push_back(scale * kNibbleValues[bits]);
        } else if (matrix.type == WeightType::kIQ4_XS) {
          values.push_back(scale * static_cast<float>(static_cast<int8_t>(run[lane])) *
                           kNibbleValues[bits]);
        } else if (form.block == 32) {
          const float centre = form.fields == 64 ? 0.0f : form.bits == 5 ? 16.0f : 8.0f;
          values.push_back(scale * (code - centre) + minimum);
        } else if (form.bits == 6) {
          const auto run_scale = static_cast<int8_t>(run[16 * (c / 16) + lane]);
          values.push_back(scale * static_cast<float>(run_scale) * (code - 32.0f));
        } else {
          values.push_back(scale * static_cast<float>(run[lane]) * code -
                           minimum * static_cast<float>(run[16 + lane]));
        }
      }
    }
    block += form.block_bytes();
  }
  return values;
}

class WovenRowsOf : public testing::TestWithParam<WeightType> {
 protected:
  void SetUp() override {
    has_product_ =
        ActiveWeightKernels().rounded->multiply_woven[static_cast<int>(GetParam())] != nullptr;
  }
  bool has_product_ = false;
};

TEST_P(WovenRowsOf, HaveTheValuesOfTheStoredRows) {
  const WovenMatrix matrix(GetParam(), 37, 768, 11);
  EXPECT_EQ(WovenRows(matrix.view), 32);
  for (int64_t row = 0; row < 32; ++row) {
    const std::vector<float> stored = matrix.stored.Row(row);
    const std::vector<float> woven = Unweave(matrix.view, row);
    ASSERT_EQ(stored.size(), woven.size());
    for (size_t i = 0; i < stored.size(); ++i) {
      ASSERT_NEAR(woven[i], stored[i], 1e-6f * (1 + std::abs(stored[i]))) << row << ", " << i;
    }
  }
}

TEST_P(WovenRowsOf, TakeThreePercentMoreThanStoredOnesAtMost) {
  const RandomMatrix matrix(GetParam(), 64, 512, 3);
  EXPECT_LE(static_cast<double>(WovenBytes(matrix.view())), 1.03 * matrix.view().bytes());
}

// The rows after the last band come from the stored matrix: both are in one product.
TEST_P(WovenRowsOf, ProductsAreThoseOfTheStoredRows) {
  if (!has_product_) GTEST_SKIP() << "this machine multiplies rows as they are stored";
  const WovenMatrix matrix(GetParam(), 4 * kBandRows + 5, 1280, 7);
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  LinearLayers linear(*executor, ProductPrecision::kF32);
  for (int tokens = 1; tokens <= LinearLayers::kMaxFewTokens; ++tokens) {
    const std::vector<float> x = TestRandom(tokens).Gaussians(tokens * matrix.view.cols);
    std::vector<float> out(static_cast<size_t>(tokens * matrix.view.rows), NAN);
    const LinearTask task = {.weights = &matrix.view, .input = x.data(), .output = out.data()};
    linear.Run(tokens, {&task, 1});
    for (int t = 0; t < tokens; ++t) {
      for (int64_t row = 0; row < matrix.view.rows; ++row) {
        const ExactDot exact = matrix.stored.Dot(row, &x[t * matrix.view.cols]);
        ASSERT_NEAR(out[t * matrix.view.rows + row], exact.value, 4e-5 * exact.magnitude)
            << tokens << " tokens, token " << t << ", row " << row;
      }
    }
  }
}

TEST_P(WovenRowsOf, ProductsDependNeitherOnThreadsNorOnOtherTokens) {
  if (!has_product_) GTEST_SKIP() << "this machine multiplies rows as they are stored";
  const WovenMatrix matrix(GetParam(), 40 * kBandRows + 1, 512, 5);
  const std::vector<float> x = TestRandom(2).Gaussians(3 * matrix.view.cols);
  std::vector<float> expected;
  for (const int threads : {1, 2, 5}) {
    for (const int tokens : {1, 3}) {
      const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
      LinearLayers linear(*executor, ProductPrecision::kF32);
      std::vector<float> out(static_cast<size_t>(tokens * matrix.view.rows));
      const LinearTask task = {.weights = &matrix.view, .input = x.data(), .output = out.data()};
      linear.Run(tokens, {&task, 1});
      out.resize(static_cast<size_t>(matrix.view.rows));  // the first token
      if (expected.empty()) expected = out;
      EXPECT_EQ(out, expected) << threads << " threads, " << tokens << " tokens";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, WovenRowsOf, testing::ValuesIn(kTypes),
                         [](const auto& type) { return std::string(InfoOf(type.param).name); });

TEST(WovenRows, FloatsAndBytesAreNotWoven) {
  for (const WeightType type : {WeightType::kF32, WeightType::kF16, WeightType::kQ8_0}) {
    EXPECT_FALSE(CanWeave(type));
    EXPECT_EQ(WovenBytes(RandomMatrix(type, 32, 64, 1).view()), 0U);
  }
}

}  // namespace woven_rows_test
}  // namespace varve
