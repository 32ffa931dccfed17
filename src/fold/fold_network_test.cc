#include "fold/fold_network.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "fold/fold_testing.h"
#include "kernels/kernel_testing.h"

namespace varve {
namespace fold_network_test {

std::vector<float> RandomRows(size_t count, uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<float> rows(count);
  for (float& value : rows) value = static_cast<float>(random.Next() >> 40) * 0x1p-22f - 2.0f;
  return rows;
}

class FoldNetworkKernels : public EveryTable {};

TEST_P(FoldNetworkKernels, EqualsDoublePrecisionInEveryDtype) {
  for (const CompressorDtype dtype :
       {CompressorDtype::kF16, CompressorDtype::kBF16, CompressorDtype::kF32}) {
    for (const bool bias : {false, true}) {
      for (const int factor : {2, 5}) {
        for (const int hidden : {48, 33}) {
          const Compressor compressor = RandomCompressor({.dtype = dtype,
                                                          .num_layers = 1,
                                                          .head_dim = 48,
                                                          .factor = factor,
                                                          .has_bias = bias,
                                                          .hidden = hidden});
          const CompressorMlp& mlp = compressor.Mlp(0, CompressorPart::kImageValue);
          const FoldNetwork network(mlp, dtype, *GetParam());
          std::vector<float> scratch;
          for (const int rows : {1, 3, 65}) {
            const std::vector<float> in = RandomRows(static_cast<size_t>(rows) * factor * 48, 7);
            std::vector<float> out(static_cast<size_t>(rows) * 48);
            network.Run(in.data(), rows, out.data(), &scratch);
            const std::vector<double> expected = FoldReference(mlp, dtype, in.data(), rows);
            double largest = 0;
            for (size_t i = 0; i < out.size(); ++i)
              largest = std::max(largest, std::abs(out[i] - expected[i]));
            EXPECT_LT(largest, 2e-6) << CompressorDtypeName(dtype) << " " << factor << " " << rows;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, FoldNetworkKernels, testing::ValuesIn(AllTables()), TableName);

TEST(FoldNetwork, ARowDoesNotDependOnTheRowsBesideIt) {
  const Compressor compressor = RandomCompressor({.head_dim = 32, .factor = 5});
  const FoldNetwork network(compressor.Mlp(0, CompressorPart::kTextKey), compressor.dtype,
                            ActiveKernels());
  const int rows = 70;
  const std::vector<float> in = RandomRows(static_cast<size_t>(rows) * 160, 3);
  std::vector<float> together(static_cast<size_t>(rows) * 32);
  std::vector<float> scratch;
  network.Run(in.data(), rows, together.data(), &scratch);
  for (int row = 0; row < rows; ++row) {
    std::vector<float> alone(32);
    network.Run(in.data() + row * 160, 1, alone.data(), &scratch);
    EXPECT_EQ(alone,
              std::vector<float>(together.begin() + row * 32, together.begin() + (row + 1) * 32));
  }
}

TEST(FoldNetwork, ANaNOfTheInputIsNotHiddenByTheReLU) {
  const Compressor compressor = RandomCompressor({.head_dim = 16, .factor = 2});
  const FoldNetwork network(compressor.Mlp(0, CompressorPart::kTextKey), compressor.dtype,
                            ActiveKernels());
  std::vector<float> in = RandomRows(64, 3);
  in[40] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> out(32);
  std::vector<float> scratch;
  network.Run(in.data(), 2, out.data(), &scratch);
  for (int i = 0; i < 16; ++i) {
    EXPECT_TRUE(std::isfinite(out[static_cast<size_t>(i)]));
    EXPECT_TRUE(std::isnan(out[static_cast<size_t>(16 + i)]));
  }
}

TEST(FoldNetwork, ShorterNetworksEndWithoutARelu) {
  for (const int num_slots : {1, 2}) {
    const Compressor compressor =
        RandomCompressor({.factor = 3, .hidden = 24, .num_slots = num_slots});
    const CompressorMlp& mlp = compressor.Mlp(0, CompressorPart::kTextValue);
    SplitMix64 random(4);
    std::vector<float> inputs(5 * 3 * 16);
    for (float& value : inputs) value = static_cast<float>(random.Next() >> 40) * 0x1p-23f - 1.0f;
    std::vector<float> outputs(5 * 16), scratch;
    FoldNetwork(mlp, compressor.dtype, ActiveKernels())
        .Run(inputs.data(), 5, outputs.data(), &scratch);
    const std::vector<double> expected = FoldReference(mlp, compressor.dtype, inputs.data(), 5);
    bool any_negative = false;
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_NEAR(outputs[i], expected[i], 1e-5);
      any_negative = any_negative || outputs[i] < 0;
    }
    EXPECT_TRUE(any_negative);
  }
}

}  // namespace fold_network_test
}  // namespace varve
