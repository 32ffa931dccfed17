// Rows, queries and outputs may lie anywhere: strides change where numbers are read and written and
// nothing else, and memory between strided outputs is not touched.

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/cache_testing.h"

namespace varve {
namespace cache_stride_test {

constexpr int kTokens = 21;
constexpr int kKvHeads = 2;
constexpr int kGroup = 3;
constexpr int kHeads = kKvHeads * kGroup;
constexpr int kKeyDim = 64;
constexpr int kValueDim = 32;
constexpr float kUntouched = 123.25f;

CacheShape Shape() {
  return ShapeOf({.kv_heads = kKvHeads,
                  .group = kGroup,
                  .key_dim = kKeyDim,
                  .value_dim = kValueDim,
                  .page = 32});
}

// [tokens, heads, dim] dense -> the same numbers with the given strides.
std::vector<float> Spread(const std::vector<float>& dense, int tokens, int heads, int dim,
                          ptrdiff_t token_stride, ptrdiff_t head_stride) {
  std::vector<float> out(tokens * token_stride + heads * head_stride + dim, kUntouched);
  for (int t = 0; t < tokens; ++t) {
    for (int h = 0; h < heads; ++h) {
      std::memcpy(&out[t * token_stride + h * head_stride], &dense[(t * heads + h) * dim],
                  dim * sizeof(float));
    }
  }
  return out;
}

SequenceId AppendAll(Cache& cache, const RowsView& keys, const RowsView& values) {
  const SequenceId id = *cache.CreateSequence();
  const StepEntry entry = {id, kTokens};
  EXPECT_OK(cache.BeginStep({&entry, 1}));
  EXPECT_OK(cache.Append(0, id, keys, values));
  EXPECT_OK(cache.EndStep());
  return id;
}

class CacheStrides : public testing::Test {
 protected:
  RowRandom random_{7};
  std::unique_ptr<Cache> cache_ = MakeCache(Shape(), "f16");
  std::vector<float> keys_ = random_.Gaussians(kTokens * kKvHeads * kKeyDim);
  std::vector<float> values_ = random_.Gaussians(kTokens * kKvHeads * kValueDim);
  SequenceId dense_ =
      AppendAll(*cache_, {keys_.data(), kTokens, 0, 0}, {values_.data(), kTokens, 0, 0});
};

TEST_F(CacheStrides, RowsMayBePaddedOrHeadMajor) {
  const auto padded_keys = Spread(keys_, kTokens, kKvHeads, kKeyDim, 200, 70);
  const auto padded_values = Spread(values_, kTokens, kKvHeads, kValueDim, 100, 33);
  const SequenceId padded = AppendAll(*cache_, {padded_keys.data(), kTokens, 200, 70},
                                      {padded_values.data(), kTokens, 100, 33});
  EXPECT_EQ(ReadAll(*cache_, padded), ReadAll(*cache_, dense_));

  const int key_plane = kTokens * kKeyDim, value_plane = kTokens * kValueDim;
  const auto planar_keys = Spread(keys_, kTokens, kKvHeads, kKeyDim, kKeyDim, key_plane);
  const auto planar_values = Spread(values_, kTokens, kKvHeads, kValueDim, kValueDim, value_plane);
  const SequenceId planar = AppendAll(*cache_, {planar_keys.data(), kTokens, kKeyDim, key_plane},
                                      {planar_values.data(), kTokens, kValueDim, value_plane});
  EXPECT_EQ(ReadAll(*cache_, planar), ReadAll(*cache_, dense_));
}

TEST_F(CacheStrides, QueriesAndOutputsMayBePadded) {
  constexpr int kQueries = 5;
  const std::vector<float> queries = random_.Gaussians(kQueries * kHeads * kKeyDim);
  std::vector<float> output(kQueries * kHeads * kValueDim);
  const AttendRequest dense = {dense_, kQueries, queries.data(), 0, 0, output.data(),
                               0,      0,        nullptr};
  ASSERT_OK(cache_->Attend(0, {&dense, 1}, {}));

  const auto far_queries = Spread(queries, kQueries, kHeads, kKeyDim, 900, 80);
  std::vector<float> far_output(kQueries * 700 + kHeads * 48, kUntouched);
  const AttendRequest strided = {
      dense_, kQueries, far_queries.data(), 900, 80, far_output.data(), 700, 48, nullptr};
  ASSERT_OK(cache_->Attend(0, {&strided, 1}, {}));
  std::vector<float> wanted(far_output.size(), kUntouched);
  for (int q = 0; q < kQueries; ++q) {
    for (int h = 0; h < kHeads; ++h) {
      std::memcpy(&wanted[q * 700 + h * 48], &output[(q * kHeads + h) * kValueDim],
                  kValueDim * sizeof(float));
    }
  }
  EXPECT_EQ(far_output, wanted);
}

}  // namespace cache_stride_test
}  // namespace varve
