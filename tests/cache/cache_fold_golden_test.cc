// A cache that folds gives the rows that PyTorch gives: .pth files of tests/data/fold, converted,
// on the rows and the lengths that PyTorch was asked for.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "runtime/torch/compressor_convert.h"
#include "tests/cache_file_testing.h"
#include "tests/cache_testing.h"
#include "tests/fold_golden.h"
#include "tests/test_data.h"

namespace varve {
namespace cache_fold_golden_test {

std::shared_ptr<const Compressor> Convert(const FoldGolden& golden, CompressorDtype dtype) {
  CompressorConvertOptions options;
  options.dtype = dtype;
  options.min_groups = golden.min_seq_len;
  Result<ConvertedCompressor> converted =
      ConvertPthCompressor(ReadFileBytes(golden.pth), golden.name, options);
  EXPECT_EQ(converted.status().ToString(), "ok");
  return std::make_shared<const Compressor>(std::move(converted->compressor));
}

// Row `token` of [layers, heads, tokens, head_dim].
const float* RowOf(const FoldGolden& golden, std::span<const float> all, int layer, int head,
                   int token) {
  return all.data() +
         ((static_cast<ptrdiff_t>(layer) * golden.heads + head) * golden.tokens + token) *
             golden.head_dim;
}

Status FeedToken(const FoldGolden& golden, int token, Cache& cache, SequenceId id) {
  const StepEntry entry{id, 1};
  VARVE_RETURN_IF_ERROR(cache.BeginStep({&entry, 1}));
  const ptrdiff_t stride = static_cast<ptrdiff_t>(golden.tokens) * golden.head_dim;  // of heads
  for (int layer = 0; layer < golden.layers; ++layer) {
    VARVE_RETURN_IF_ERROR(
        cache.Append(layer, id, {RowOf(golden, golden.keys, layer, 0, token), 1, 0, stride},
                     {RowOf(golden, golden.values, layer, 0, token), 1, 0, stride}));
  }
  return cache.EndStep();
}

double LargestError(const FoldGolden& golden, const FoldGoldenCase& asked, const Cache& cache,
                    SequenceId id, bool native) {
  const int64_t tokens = asked.image_tokens + asked.text_tokens;
  double largest = 0;
  for (int layer = 0; layer < golden.layers; ++layer) {
    for (int head = 0; head < golden.heads; ++head) {
      for (const Part part : {Part::kKey, Part::kValue}) {
        const std::span<const float> all = part == Part::kKey
                                               ? (native ? asked.native_keys : asked.keys)
                                               : (native ? asked.native_values : asked.values);
        std::vector<float> rows(static_cast<size_t>(tokens * golden.head_dim));
        EXPECT_EQ(*cache.ReadRows(id, layer, head, part, 0, tokens, rows.data()), asked.rows);
        const float* expected = all.data() + (static_cast<ptrdiff_t>(layer) * golden.heads + head) *
                                                 asked.rows * golden.head_dim;
        for (int i = 0; i < asked.rows * golden.head_dim; ++i)
          largest = std::max(largest, std::abs(double{rows[static_cast<size_t>(i)]} - expected[i]));
      }
    }
  }
  return largest;
}

// The largest difference over all cases of a golden.
double FoldAll(const FoldGolden& golden, CompressorDtype dtype, const std::string& rung,
               bool native) {
  double largest = 0;
  for (const FoldGoldenCase& asked : golden.cases) {
    CacheOptions options;
    options.compressor = Convert(golden, dtype);
    const std::string plan =
        fmt::format("{0},open_rung={0},fold=shipped,image={1}", rung, asked.image_tokens);
    auto cache = MakeCache({golden.layers, golden.heads, 1, golden.head_dim, golden.head_dim, 16},
                           plan, options);
    const SequenceId id = *cache->CreateSequence();
    for (int token = 0; token < asked.image_tokens + asked.text_tokens; ++token)
      EXPECT_EQ(FeedToken(golden, token, *cache, id).ToString(), "ok");
    EXPECT_EQ(cache->EndPrompt(id).ToString(), "ok");
    largest = std::max(largest, LargestError(golden, asked, *cache, id, native));
  }
  return largest;
}

TEST(CacheFoldGolden, GivesTheRowsOfPyTorch) {
  const std::vector<FoldGolden> goldens = LoadFoldGoldens(TestDataPath());
  ASSERT_GE(goldens.size(), 6u);
  for (const FoldGolden& golden : goldens) {
    EXPECT_LT(FoldAll(golden, CompressorDtype::kF32, "f32", false), 1e-5) << golden.name;
    // Numbers of the networks and rows in f16; rows that stay are exact in it.
    EXPECT_LT(FoldAll(golden, CompressorDtype::kF16, "f16", false), 1e-3) << golden.name;
  }
}

TEST(CacheFoldGolden, GivesTheRowsOfPyTorchThatComputesInF16) {
  for (const FoldGolden& golden : LoadFoldGoldens(TestDataPath())) {
    if (golden.dtype != "f16") continue;
    const double error = FoldAll(golden, CompressorDtype::kF16, "f16", true);
    EXPECT_LT(error, 1e-3);
    EXPECT_GT(error, 0);
  }
}

}  // namespace cache_fold_golden_test
}  // namespace varve
