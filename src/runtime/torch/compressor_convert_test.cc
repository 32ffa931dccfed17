// Conversion of files that PyTorch has written: what comes out computes what PyTorch does.

#include "runtime/torch/compressor_convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "fold/compressor_testing.h"
#include "tests/cache_file_testing.h"
#include "tests/fold_golden.h"
#include "tests/test_data.h"

namespace varve {
namespace compressor_convert_test {

using Bytes = std::vector<std::byte>;

const std::vector<FoldGolden>& Goldens() {
  static const std::vector<FoldGolden> goldens = LoadFoldGoldens(TestDataPath());
  return goldens;
}

const FoldGolden& Golden(const std::string& name) {
  return *std::find_if(Goldens().begin(), Goldens().end(),
                       [&](const FoldGolden& golden) { return golden.name == name; });
}

Result<ConvertedCompressor> Convert(const FoldGolden& golden,
                                    CompressorConvertOptions options = {}) {
  options.min_groups = golden.min_seq_len;
  options.num_heads = golden.heads;
  return ConvertPthCompressor(ReadFileBytes(golden.pth), golden.name, options);
}

// One network in double precision.
std::vector<double> Apply(const Compressor& compressor, const CompressorMlp& mlp,
                          std::vector<double> x) {
  for (size_t slot = 0; slot < kMaxCompressorSlots; ++slot) {
    const CompressorLinear& linear = mlp.slots[slot];
    std::vector<double> y(linear.bias.begin(), linear.bias.end());
    y.resize(static_cast<size_t>(linear.rows));
    for (size_t row = 0; row < y.size(); ++row) {
      for (size_t col = 0; col < x.size(); ++col) {
        y[row] += x[col] * LoadWeight(compressor.dtype, linear, row * x.size() + col);
      }
      if (slot + 1 < kMaxCompressorSlots) y[row] = std::max(y[row], 0.0);
    }
    x = std::move(y);
  }
  return x;
}

void FoldSegment(const Compressor& compressor, const CompressorMlp* mlp,
                 std::span<const float> rows, std::vector<double>& out) {
  const size_t group = static_cast<size_t>(compressor.factor) * compressor.head_dim;
  size_t groups = mlp == nullptr ? 0 : rows.size() / group;
  if (groups < static_cast<size_t>(compressor.min_groups)) groups = 0;
  for (size_t i = 0; i < groups; ++i) {
    const auto x = rows.subspan(i * group, group);
    const std::vector<double> y = Apply(compressor, *mlp, {x.begin(), x.end()});
    out.insert(out.end(), y.begin(), y.end());
  }
  const auto rest = rows.subspan(groups * group);
  out.insert(out.end(), rest.begin(), rest.end());
}

// The largest difference of a case's folded rows to `expected`; infinity if there are more or
// fewer.
double LargestError(const FoldGolden& golden, const FoldGoldenCase& made,
                    const Compressor& compressor, bool values, std::span<const float> expected) {
  const std::span<const float> given = values ? golden.values : golden.keys;
  const size_t dim = static_cast<size_t>(golden.head_dim);
  std::vector<double> out;
  for (int layer = 0; layer < golden.layers; ++layer) {
    const auto& mlps = compressor.layers[static_cast<size_t>(layer)];
    for (int head = 0; head < golden.heads; ++head) {
      const size_t first = (static_cast<size_t>(layer) * golden.heads + head) * golden.tokens;
      const size_t image = static_cast<size_t>(made.image_tokens);
      FoldSegment(compressor, compressor.has_image ? &mlps[values ? 3 : 2] : nullptr,
                  given.subspan(first * dim, image * dim), out);
      FoldSegment(compressor, &mlps[values ? 1 : 0],
                  given.subspan((first + image) * dim, static_cast<size_t>(made.text_tokens) * dim),
                  out);
    }
  }
  if (out.size() != expected.size()) return INFINITY;
  double error = 0;
  for (size_t i = 0; i < out.size(); ++i) error = std::max(error, std::abs(out[i] - expected[i]));
  return error;
}

double LargestError(const FoldGolden& golden, const Compressor& compressor, bool native) {
  double error = 0;
  for (const FoldGoldenCase& made : golden.cases) {
    error = std::max(
        {error,
         LargestError(golden, made, compressor, false, native ? made.native_keys : made.keys),
         LargestError(golden, made, compressor, true, native ? made.native_values : made.values)});
  }
  return error;
}

TEST(CompressorConvert, ReadsEveryLayoutThatPyTorchWrites) {
  ASSERT_GE(Goldens().size(), 6u);
  for (const FoldGolden& golden : Goldens()) {
    const Result<ConvertedCompressor> converted = Convert(golden);
    ASSERT_TRUE(converted.ok()) << converted.status().message();
    const Compressor& compressor = converted->compressor;
    EXPECT_EQ(compressor.num_layers(), golden.layers) << golden.name;
    EXPECT_EQ(compressor.head_dim, golden.head_dim) << golden.name;
    EXPECT_EQ(compressor.factor, golden.factor) << golden.name;
    EXPECT_EQ(compressor.has_image, golden.has_image) << golden.name;
    EXPECT_EQ(compressor.layers[0][0].slots[0].bias.empty(), !golden.has_bias) << golden.name;
    EXPECT_EQ(converted->state_dict, golden.layout == "flat" ? "" : golden.layout);
    EXPECT_EQ(converted->ignored, golden.ignored) << golden.name;
    EXPECT_TRUE(CheckCompressor(compressor).ok());
  }
}

// 11 tokens of image and 10 of text by 5 are 5 rows, and all the other cases. The reference is
// rounded to f32, and sums 80 products of about 0.1 in it.
TEST(CompressorConvert, ComputesWhatPyTorchComputes) {
  EXPECT_EQ(Golden("nested_f16").cases[0].rows, 5);
  EXPECT_EQ(Golden("compressor_f32").cases[0].rows, 5);
  for (const FoldGolden& golden : Goldens()) {
    CompressorConvertOptions options;
    options.dtype = CompressorDtype::kF32;
    const Result<ConvertedCompressor> exact = Convert(golden, options);
    ASSERT_TRUE(exact.ok()) << exact.status().message();
    const double error = LargestError(golden, exact->compressor, false);
    EXPECT_LT(error, 1e-6) << golden.name;
    EXPECT_GT(error, 0) << golden.name;

    options.dtype = CompressorDtype::kF16;
    const Result<ConvertedCompressor> half = Convert(golden, options);
    ASSERT_TRUE(half.ok()) << half.status().message();
    EXPECT_LT(LargestError(golden, half->compressor, false), 1e-3) << golden.name;
    options.dtype = CompressorDtype::kBF16;
    const Result<ConvertedCompressor> brain = Convert(golden, options);
    ASSERT_TRUE(brain.ok()) << brain.status().message();
    const double rough = LargestError(golden, brain->compressor, false);
    EXPECT_LT(rough, 1e-2) << golden.name;
    if (golden.dtype != "bf16") {
      EXPECT_GT(rough, 1e-5) << golden.name;
    }
  }
  // PyTorch in f16 itself rounds after every layer.
  const Result<ConvertedCompressor> half = Convert(Golden("nested_f16"));
  const double native = LargestError(Golden("nested_f16"), half->compressor, true);
  EXPECT_LT(native, 1e-3);
  EXPECT_GT(native, 1e-6);
}

TEST(CompressorConvert, WritesTheBytesOfAnotherWriter) {
  int compared = 0;
  for (const FoldGolden& golden : Goldens()) {
    if (golden.bin.empty()) continue;
    CompressorConvertOptions options;
    options.dtype = golden.dtype == "bf16" ? CompressorDtype::kBF16 : CompressorDtype::kF32;
    const Result<ConvertedCompressor> converted = Convert(golden, options);
    ASSERT_TRUE(converted.ok()) << converted.status().message();
    EXPECT_TRUE(SerializeCompressor(converted->compressor) == ReadFileBytes(golden.bin))
        << golden.name;
    ++compared;
  }
  EXPECT_EQ(compared, 2);
}

TEST(CompressorConvert, TextOnlyLeavesImagesOut) {
  CompressorConvertOptions options;
  options.text_only = true;
  const FoldGolden& golden = Golden("nested_f16");
  const Result<ConvertedCompressor> text = Convert(golden, options);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_FALSE(text->compressor.has_image);
  // 2 layers x 2 networks x 3 slots, weight and bias.
  EXPECT_EQ(text->ignored.size(), golden.ignored.size() + 24);
  const Compressor both = Convert(golden)->compressor;
  EXPECT_TRUE(text->compressor.Mlp(1, CompressorPart::kTextValue) ==
              both.Mlp(1, CompressorPart::kTextValue));
}

TEST(CompressorConvert, WhatIsAskedMustAgreeWithTheShapes) {
  const FoldGolden& golden = Golden("flat_bf16");
  CompressorConvertOptions options;
  options.factor = 4;
  options.head_dim = 16;
  EXPECT_TRUE(Convert(golden, options).ok());
  options.factor = 5;
  EXPECT_EQ(Convert(golden, options).status().message(),
            "flat_bf16: compression factor 5 * head_dim 16 is not 64, the inputs of "
            "compress_tk.0.0.weight");
  options.factor = 0;
  options.head_dim = 32;
  EXPECT_EQ(Convert(golden, options).status().message(),
            "flat_bf16: head_dim 32 is not 16, the outputs of compress_tk.0.6.weight");
}

TEST(CompressorConvert, ACompressorIsNoPth) {
  EXPECT_EQ(
      ConvertPthCompressor(ReadFileBytes(Golden("flat_bf16").bin), "f", {}).status().message(),
      "f: is a compressor already, not a .pth");
}

}  // namespace compressor_convert_test
}  // namespace varve
