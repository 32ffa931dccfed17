#include "cli/fold/compressor_baselines.h"

#include <gtest/gtest.h>

#include <cmath>

#include "fold/fold_network.h"
#include "fold/fold_testing.h"

namespace varve {
namespace compressor_baselines_test {

TEST(CompressorBaselines, MeanPoolingIsTheMean) {
  const Compressor like = RandomCompressor({.head_dim = 32, .factor = 4, .hidden = 48});
  const Compressor mean = MeanPoolingLike(like);
  ASSERT_TRUE(CheckCompressor(mean).ok());
  EXPECT_EQ(mean.factor, 4);
  const FoldNetwork network(mean.Mlp(1, CompressorPart::kImageKey), mean.dtype, ActiveKernels());
  std::vector<float> in(2 * 4 * 32);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 37) - 20.0f;
  std::vector<float> out(2 * 32);
  std::vector<float> scratch;
  network.Run(in.data(), 2, out.data(), &scratch);
  for (size_t row = 0; row < 2; ++row) {
    for (size_t d = 0; d < 32; ++d) {
      float sum = 0;
      for (size_t token = 0; token < 4; ++token) sum += in[(row * 4 + token) * 32 + d];
      EXPECT_NEAR(out[row * 32 + d], sum / 4, 3e-5);
    }
  }
}

TEST(CompressorBaselines, RandomNumbersAreWithinTheirBoundAndOfTheSeed) {
  const Compressor like = RandomCompressor({.head_dim = 32, .factor = 5});
  const Compressor random = RandomLike(like, 3);
  ASSERT_TRUE(CheckCompressor(random).ok());
  EXPECT_EQ(random, RandomLike(like, 3));
  EXPECT_NE(random, RandomLike(like, 4));
  const CompressorLinear& linear = random.Mlp(0, CompressorPart::kTextKey).slots[0];
  double squares = 0;
  for (size_t i = 0; i < 32 * 160; ++i) {
    const float value = LoadWeight(random.dtype, linear, i);
    EXPECT_LE(std::abs(value), 1.001 / std::sqrt(160.0));
    squares += value * value;
  }
  EXPECT_NEAR(squares / (32 * 160), 1.0 / 160 / 3, 0.05 / 160);  // of an even distribution
}

}  // namespace compressor_baselines_test
}  // namespace varve
