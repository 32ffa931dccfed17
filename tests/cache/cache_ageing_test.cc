// Pages are demoted as the plan says: at the right token, once, in the right rung; what a block
// rung cannot hold is replaced and counted.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/cache_testing.h"

namespace varve {
namespace cache_ageing_test {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kDim = 64;

// "f16 filling 1, q8_0 sealed 2": pages by rung and state.
std::string Rungs(const Cache& cache) {
  std::string text;
  for (const RungBytes& rung : cache.Report().rungs) {
    const char* const states[] = {"filling", "full", "sealed"};
    if (!text.empty()) text += ", ";
    text +=
        rung.rung + " " + states[static_cast<int>(rung.state)] + " " + std::to_string(rung.pages);
  }
  return text;
}

// One layer, one KV head: a page is 16 tokens.
CacheShape Shape() {
  return ShapeOf({.kv_heads = 1, .group = 1, .key_dim = kDim, .value_dim = kDim});
}

TEST(CacheAgeing, AFullPageSealsAtOnceWithoutAnOpenWindow) {
  CacheTwin twin(Shape(), "q8_0");
  const SequenceId id = twin.Create();
  ASSERT_OK(twin.Grow(id, 15));
  EXPECT_EQ(Rungs(twin.cache()), "f16 filling 1");
  ASSERT_OK(twin.Grow(id, 1));
  EXPECT_EQ(Rungs(twin.cache()), "q8_0 sealed 1");
  ASSERT_OK(twin.Grow(id, 1));
  EXPECT_EQ(Rungs(twin.cache()), "f16 filling 1, q8_0 sealed 1");
  EXPECT_EQ(twin.cache().Report().pages_sealed, 1u);
}

TEST(CacheAgeing, TheLastTokensStayOpen) {
  CacheTwin twin(Shape(), "k=q8_0,v=q4_0,open=20,exact=0");
  const SequenceId id = twin.Create();
  ASSERT_OK(twin.Grow(id, 35));
  EXPECT_EQ(Rungs(twin.cache()), "f16 filling 1, f16 full 2");
  ASSERT_OK(twin.Grow(id, 1));  // page 0 ends at 16 = 36 - 20
  EXPECT_EQ(Rungs(twin.cache()), "f16 filling 1, f16 full 1, q8_0/q4_0 sealed 1");
}

TEST(CacheAgeing, PagesGoDownTheLadderAtTheirBounds) {
  CacheTwin twin(Shape(), "age=f16:10/q8_0:25/q4_0,exact=0");
  const SequenceId id = twin.Create();
  ASSERT_OK(twin.Grow(id, 25));
  EXPECT_EQ(Rungs(twin.cache()), "f16 filling 1, f16 sealed 1");
  ASSERT_OK(twin.Grow(id, 1));
  EXPECT_EQ(Rungs(twin.cache()), "f16 filling 1, q8_0 sealed 1");
  ASSERT_OK(twin.Grow(id, 14));
  EXPECT_EQ(Rungs(twin.cache()), "f16 filling 1, f16 sealed 1, q8_0 sealed 1");
  ASSERT_OK(twin.Grow(id, 1));  // page 0: age 25
  EXPECT_EQ(Rungs(twin.cache()), "f16 filling 1, f16 sealed 1, q4_0 sealed 1");
  EXPECT_EQ(twin.cache().Report().pages_demoted, 2u);
}

TEST(CacheAgeing, TheWindowDropsPagesButNoSink) {
  CacheTwin twin(Shape(), "q8_0,window=20,sink=5");
  const SequenceId id = twin.Create();
  ASSERT_OK(twin.Grow(id, 51));
  EXPECT_EQ(twin.cache().Describe(id, 0)->live_rows, 51);
  ASSERT_OK(twin.Grow(id, 1));  // page 16 ends at 32 = 52 - 20; page 0 holds the sink
  EXPECT_EQ(twin.cache().Describe(id, 0)->live_rows, 36);
  EXPECT_EQ(twin.cache().Report().pages_dropped, 1u);
  ASSERT_OK(twin.Grow(id, 500));
  EXPECT_LE(twin.cache().Describe(id, 0)->live_rows, 16 + 20 + 16);
}

TEST(CacheAgeing, EveryLayerFollowsItsOwnRule) {
  CacheShape shape = Shape();
  shape.num_layers = 3;
  CacheTwin twin(shape, "0: f32,open_rung=f32; 2: q4_0,window=30,exact=0");
  const SequenceId id = twin.Create();
  ASSERT_OK(twin.Grow(id, 64));
  EXPECT_EQ(Rungs(twin.cache()), "f16 sealed 4, f32 sealed 4, q4_0 sealed 2");
}

TEST(CacheAgeing, AStepMayHoldManyPagesThatChangeOnTheWay) {
  for (const char* plan : {"q8_0", "age=f16:10/q8_0:25/q4_0,exact=0", "q4_0,open=40,exact=0",
                           "q8_0,window=20,sink=5", "age=q8_0:3/q4_0,window=50,exact=0", "f16"}) {
    SCOPED_TRACE(plan);
    CacheTwin twin(Shape(), plan);
    const SequenceId id = twin.Create();
    ASSERT_OK(twin.Grow(id, 5));
    EXPECT_GE(*twin.cache().MaxStepTokens(id), 1024);
    const StepEntry entry = {id, 150};
    ASSERT_OK(twin.Step({&entry, 1}));
    ASSERT_OK(twin.Step({&entry, 1}));
    ASSERT_OK(twin.AbortedStep({&entry, 1}, 1));
    ASSERT_OK(twin.Grow(id, 3));
  }
}

TEST(CacheAgeing, SealedBytesFollowTheRung) {
  CacheTwin twin(Shape(), "q4_0,exact=0");
  ASSERT_OK(twin.Grow(twin.Create(), 160));
  const CacheReport stats = twin.cache().Report();
  ASSERT_EQ(stats.rungs.size(), 1u);
  EXPECT_EQ(stats.rungs[0].bytes, 160u * 2 * kDim / 32 * 18);
  EXPECT_EQ(stats.bytes_used, stats.rungs[0].bytes);
  EXPECT_EQ(stats.bytes_f16, 160u * 2 * kDim * 2);
}

// --- numbers that are none ---

// Fills one page; row 3 holds the given value in channel 7 of K and V.
std::vector<float> StoreAndRead(Cache& cache, float value, Part part) {
  const SequenceId id = *cache.CreateSequence();
  std::vector<float> rows = RowRandom(2).Gaussians(16 * kDim);
  rows[3 * kDim + 7] = value;
  const StepEntry entry = {id, 16};
  EXPECT_OK(cache.BeginStep({&entry, 1}));
  EXPECT_OK(cache.Append(0, id, {rows.data(), 16, 0, 0}, {rows.data(), 16, 0, 0}));
  EXPECT_OK(cache.EndStep());
  std::vector<float> read(16 * kDim);
  EXPECT_EQ(*cache.ReadRows(id, 0, 0, part, 0, 16, read.data()), 16);
  return read;
}

TEST(CacheNonFinite, FloatRungsStoreNaNAndInfinityAsTheyAre) {
  for (const char* rung : {"f32", "f16", "bf16"}) {
    auto cache = MakeCache(Shape(), std::string(rung) + ",open_rung=" + rung);
    for (Part part : {Part::kKey, Part::kValue}) {
      EXPECT_TRUE(std::isnan(StoreAndRead(*cache, kNaN, part)[3 * kDim + 7])) << rung;
      EXPECT_EQ(StoreAndRead(*cache, kInf, part)[3 * kDim + 7], kInf) << rung;
      EXPECT_EQ(StoreAndRead(*cache, -kInf, part)[3 * kDim + 7], -kInf) << rung;
      const float zero = StoreAndRead(*cache, -0.0f, part)[3 * kDim + 7];
      EXPECT_TRUE(zero == 0.0f && std::signbit(zero)) << rung;
    }
    EXPECT_EQ(cache->Report().nonfinite_values, 0u) << rung;
  }
}

TEST(CacheNonFinite, CodedRungsReplaceAndCount) {
  for (const char* rung : {"q8_0", "q4_0,exact=0", "q8_0r", "q4_0r,exact=0", "t4,exact=0",
                           "t3,exact=0", "t2,exact=0"}) {
    for (const float bad : {kNaN, kInf, -kInf}) {
      auto cache = MakeCache(Shape(), std::string(rung) + ",open_rung=f32");
      for (Part part : {Part::kKey, Part::kValue}) {
        const std::vector<float> rows = StoreAndRead(*cache, bad, part);
        for (float x : rows) ASSERT_TRUE(std::isfinite(x)) << rung << " " << bad;
        if (bad < 0.0f) {
          EXPECT_LT(rows[3 * kDim + 7], -1000.0f) << rung;
        }
      }
      EXPECT_EQ(cache->Report().nonfinite_values, 4u) << rung << " " << bad;  // K and V, twice
    }
  }
}

TEST(CacheNonFinite, ABadValueLeavesOtherRowsAlone) {
  for (const char* rung : {"q8_0", "q4_0,exact=0", "q8_0r", "q4_0r,exact=0"}) {
    auto cache = MakeCache(Shape(), rung);
    const std::vector<float> good = StoreAndRead(*cache, 0.5f, Part::kKey);
    const std::vector<float> bad = StoreAndRead(*cache, kNaN, Part::kKey);
    for (int row = 0; row < 16; ++row) {
      const bool same = std::memcmp(&good[row * kDim], &bad[row * kDim], kDim * sizeof(float)) == 0;
      EXPECT_EQ(same, row != 3) << rung << " " << row;
    }
  }
}

TEST(CacheNonFinite, FiniteValuesBeyondAFloatRungAreCutOffAndCounted) {
  struct Case {
    const char* plan;
    float value;
    float stored;
  };
  constexpr float kMostBF16 = 0x1.FEp127f;
  // Open pages, and pages that are exact while they are open.
  for (const Case& c : {Case{"f16", 1e6f, 65504.0f},
                        {"f16", -65520.0f, -65504.0f},
                        {"f16,open_rung=f32", 7e4f, 65504.0f},
                        {"bf16,open_rung=bf16", 0x1.FFFFFEp127f, kMostBF16},
                        {"bf16,open_rung=f32", -0x1.FFFFFEp127f, -kMostBF16}}) {
    auto cache = MakeCache(Shape(), c.plan);
    for (Part part : {Part::kKey, Part::kValue}) {
      EXPECT_EQ(StoreAndRead(*cache, c.value, part)[3 * kDim + 7], c.stored) << c.plan;
    }
    EXPECT_EQ(cache->Report().nonfinite_values, 4u) << c.plan;  // K and V, twice
  }
  for (const float fits : {65504.0f, -65519.0f, 65519.9f}) {
    auto cache = MakeCache(Shape(), "f16");
    EXPECT_EQ(std::abs(StoreAndRead(*cache, fits, Part::kKey)[3 * kDim + 7]), 65504.0f);
    EXPECT_EQ(cache->Report().nonfinite_values, 0u) << fits;
  }
}

}  // namespace cache_ageing_test
}  // namespace varve
