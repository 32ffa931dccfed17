#include "runtime/kernels/weights_encode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/kernels/weights_testing.h"
#include "tests/test_data.h"

namespace varve {
namespace weights_encode_test {

constexpr int kDim = 128;
constexpr int kNumRows = 32;

template <typename T>
std::vector<T> ReadGolden(const std::string& name) {
  std::ifstream stream(TestDataPath("ggml_blocks/" + name), std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

std::string LowerName(WeightType type) {
  std::string name = InfoOf(type).name;
  for (char& c : name) c = static_cast<char>(std::tolower(c));
  return name;
}

// Of either sign.
double LevelsOf(WeightType type) {
  if (type == WeightType::kQ8_0) return 127;
  return type == WeightType::kQ4_0 || type == WeightType::kQ4_1 ? 8 : 16;
}

class WeightsEncode : public testing::TestWithParam<WeightType> {};
INSTANTIATE_TEST_SUITE_P(Blocks, WeightsEncode,
                         testing::Values(WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
                                         WeightType::kQ5_0, WeightType::kQ5_1),
                         [](const auto& test) { return InfoOf(test.param).name; });

// The file comes from tools/make_ggml_golden.py. Its last rows but two have values that need scales
// beyond f16 in the types with a minimum.
TEST_P(WeightsEncode, GivesGgmlsBytesOrSaysThatAScaleHasNoRoom) {
  const auto input = ReadGolden<float>("dim128.f32");
  const auto golden = ReadGolden<std::byte>("dim128." + LowerName(GetParam()));
  const size_t row_bytes = WeightMatrix{GetParam(), 1, kDim, nullptr}.row_bytes();
  ASSERT_EQ(input.size(), static_cast<size_t>(kDim) * kNumRows);
  ASSERT_EQ(golden.size(), row_bytes * kNumRows);
  for (int row = 0; row < kNumRows; ++row) {
    std::vector<std::byte> blocks(row_bytes);
    const bool fits = EncodeWeights(GetParam(), &input[row * kDim], kDim, blocks.data());
    const bool too_large = HasOffsets(GetParam()) && (row == 28 || row == 29);
    ASSERT_EQ(fits, !too_large) << row;
    if (too_large) continue;
    EXPECT_EQ(std::memcmp(blocks.data(), &golden[row * row_bytes], row_bytes), 0) << row;
  }
}

// Half a step and the rounding of scale and minimum to f16. Types around zero have no code for the
// value opposite to the largest: there a whole step.
TEST_P(WeightsEncode, ErrsByAtMostAStep) {
  const RandomMatrix matrix(WeightType::kF32, 8, 256, 3);
  std::vector<std::byte> blocks(WeightMatrix{GetParam(), 1, 256, nullptr}.row_bytes());
  for (int64_t row = 0; row < 8; ++row) {
    const std::vector<float> values = matrix.Row(row);
    ASSERT_TRUE(EncodeWeights(GetParam(), values.data(), 256, blocks.data()));
    std::vector<float> decoded(256);
    AvailableWeightKernels()[0]->decode[static_cast<int>(GetParam())](blocks.data(), 256,
                                                                      decoded.data());
    double worst = 0;
    for (int i = 0; i < 256; ++i) worst = std::max(worst, std::abs(0.0 + decoded[i] - values[i]));
    const double levels = LevelsOf(GetParam());
    EXPECT_LE(worst, 2.0 / levels);
    EXPECT_GT(worst, 0.05 / levels);
  }
}

TEST(WeightsEncodeFloats, RoundsToNearestAndSaysWhatHasNoRoom) {
  const float values[] = {1.0f, -0.0f, 65504.0f, 1.0f / 3};
  std::byte out[16];
  ASSERT_TRUE(EncodeWeights(WeightType::kF16, values, 4, out));
  float decoded[4];
  AvailableWeightKernels()[0]->decode[static_cast<int>(WeightType::kF16)](out, 4, decoded);
  EXPECT_EQ(decoded[0], 1.0f);
  EXPECT_TRUE(std::signbit(decoded[1]));
  EXPECT_EQ(decoded[2], 65504.0f);
  EXPECT_NEAR(decoded[3], 1.0f / 3, 1e-4);
  const float large = 70000.0f;
  EXPECT_FALSE(EncodeWeights(WeightType::kF16, &large, 1, out));
  EXPECT_TRUE(EncodeWeights(WeightType::kBF16, &large, 1, out));
  EXPECT_TRUE(EncodeWeights(WeightType::kF32, &large, 1, out));
  EXPECT_FALSE(CanEncodeWeights(WeightType::kQ4K));
}

}  // namespace weights_encode_test
}  // namespace varve
