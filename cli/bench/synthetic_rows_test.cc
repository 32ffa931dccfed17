#include "cli/bench/synthetic_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <unordered_set>

#include "base/half.h"

namespace varve::cli {
namespace synthetic_rows_test {

CacheShape Shape() {
  CacheShape shape;
  shape.num_layers = 3;
  shape.num_kv_heads = 2;
  shape.key_dim = 64;
  shape.value_dim = 32;
  return shape;
}

// A head's row as a cache in f16 holds it.
std::string Bits(const float* row, int dim) {
  std::string bits;
  for (int d = 0; d < dim; ++d) {
    const uint16_t half = F32ToF16(row[d]);
    bits.append(reinterpret_cast<const char*>(&half), sizeof(half));
  }
  return bits;
}

TEST(SyntheticRows, NoRowComesTwiceInAnyLayerHeadOrPart) {
  const auto executor = MakeThreadPool(2);
  const SyntheticRows rows(Shape(), 1, *executor);
  constexpr int kTokens = 5000;
  for (const Part part : {Part::kKey, Part::kValue}) {
    const int dim = part == Part::kKey ? 64 : 32;
    std::unordered_set<std::string> seen;
    std::vector<float> some(kTokens * 2 * static_cast<size_t>(dim));
    for (int layer = 0; layer < 3; ++layer) {
      rows.Fill(part, layer, 0, kTokens, some.data());
      for (int row = 0; row < kTokens * 2; ++row) seen.insert(Bits(some.data() + row * dim, dim));
    }
    EXPECT_EQ(seen.size(), 3u * kTokens * 2);
  }
}

TEST(SyntheticRows, ARowDependsOnItsPlaceAloneAndOnTheSeed) {
  const auto executor = MakeThreadPool(2);
  const auto alone = MakeThreadPool(1);
  std::vector<float> whole(100 * 2 * 64), pieces(whole.size()), other(whole.size());
  const SyntheticRows rows(Shape(), 7, *executor);
  const SyntheticRows again(Shape(), 7, *alone);
  rows.Fill(Part::kKey, 1, 1000, 100, whole.data());
  for (int t = 0; t < 100; t += 20)
    again.Fill(Part::kKey, 1, 1000 + t, 20, pieces.data() + t * 2 * 64);
  EXPECT_EQ(pieces, whole);
  SyntheticRows(Shape(), 8, *alone).Fill(Part::kKey, 1, 1000, 100, other.data());
  EXPECT_NE(other, whole);
}

TEST(SyntheticRows, ValuesAreCentredAndChannelsKeepTheirScale) {
  const auto executor = MakeThreadPool(2);
  const SyntheticRows rows(Shape(), 1, *executor);
  constexpr int kTokens = 8192;
  std::vector<float> some(kTokens * 2 * 64);
  const auto deviations = [&](int64_t position) {
    rows.Fill(Part::kKey, 0, position, kTokens, some.data());
    std::vector<double> result;
    for (int channel = 0; channel < 64; ++channel) {
      double sum = 0, square = 0;
      for (int t = 0; t < kTokens; ++t) {
        const double x = some[static_cast<size_t>(t) * 2 * 64 + channel];
        sum += x;
        square += x * x;
      }
      EXPECT_LT(std::abs(sum), 0.05 * std::sqrt(square * kTokens)) << channel;
      result.push_back(std::sqrt(square / kTokens));
    }
    return result;
  };
  const std::vector<double> early = deviations(0);
  const std::vector<double> late = deviations(1 << 20);
  for (int channel = 0; channel < 64; ++channel) {
    EXPECT_NEAR(late[channel] / early[channel], 1, 0.1) << channel;
    const double usual = channel % 16 == 0 ? 4 : 1;  // and a factor of its own
    EXPECT_GT(early[channel], usual / 4) << channel;
    EXPECT_LT(early[channel], usual * 4) << channel;
  }
}

// Packing gains what it does on real keys and values (docs/decisions/0004): the exponents, and no
// row that it has seen before.
TEST(SyntheticRows, PackingGainsNoMoreThanOnRealRows) {
  const auto executor = MakeThreadPool(2);
  CacheShape shape = Shape();
  shape.key_dim = shape.value_dim = 128;
  const SyntheticRows rows(shape, 1, *executor);
  CacheOptions options;
  options.plan = *ParsePlan("pack=store,hot=0/64");
  options.executor = executor.get();
  const std::unique_ptr<Cache> cache = Cache::Create(shape, options).value();
  const SequenceId id = *cache->CreateSequence();
  for (int64_t depth = 512; depth <= 4096; depth += 512) {
    ASSERT_TRUE(rows.Extend(*cache, id, depth).ok());
    cache->WaitForPacking();
  }
  const LosslessStats stats = cache->Report().lossless;
  ASSERT_GT(stats.pages_packed, 20u) << stats.pages_without_gain;
  const double ratio =
      static_cast<double>(stats.raw_bytes) / static_cast<double>(stats.compressed_bytes);
  EXPECT_GT(ratio, 1.1);
  EXPECT_LT(ratio, 1.25);
}

}  // namespace synthetic_rows_test
}  // namespace varve::cli
