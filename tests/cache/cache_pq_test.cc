// Caches with pq rungs: attention over the decoded rows in every mix of rungs and state of the
// table, the open window, and the same answer however the rows came.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/half.h"
#include "kernels/pq_kernels.h"
#include "tests/cache/pq_cache_testing.h"

namespace varve {
namespace cache_pq_test {

constexpr const char* kPlans[] = {
    "pq4",
    "pq4,open=0,exact=0",
    "pq2,open=20,exact=0",
    "k=pq16x5,v=q8_0,open=0,exact=0",
    "k=f16,v=pq8x10,open=0,exact=0",
    "k=q4_0r,v=pq3,open=0,exact=0",
    "k=pq32x10,v=f16,open=0,exact=0",
    "k=pq16x8,v=pq4x7,open=0,exact=0",
    "age=f16:64/pq4,exact=0",
    "age=pq4:48/pq2,open=0,exact=0",
    "age=f16:16/pq4:80/pq2,exact=0",
    "k=pq16x8,age=pq4:48/pq3,open=16,exact=0",
    "0: k=pq16x5,v=pq16x6,open=0,exact=0; 1: q8_0",
    "0: age=q8_0:50/pq4,exact=0; 1: k=pq4,v=pq2,open=5,exact=0",
};

TEST(CachePq, AttentionIsThatOfTheDecodedRowsInEveryMixOfRungs) {
  for (const char* plan : kPlans) {
    SCOPED_TRACE(plan);
    CacheTwin twin(PqShapeOfTests(), plan, WithPqCodebook());
    const SequenceId id = twin.Create();
    ASSERT_OK(twin.Grow(id, 167));
    for (int i = 0; i < 3; ++i) ASSERT_OK(twin.Grow(id, 1));
    for (const int layer : {0, 1}) {
      ASSERT_OK(twin.Attend(layer, id, 1));
      ASSERT_OK(twin.Attend(layer, id, 9, {.window = 70}));
      ASSERT_OK(twin.Attend(layer, id, 2, {.soft_cap = 3.0f}));
    }
  }
}

TEST(CachePq, AttentionIsThatOfTheDecodedRowsByEveryMethod) {
  const PqMethods methods[] = {{PqKeyMethod::kBytes, PqValueMethod::kBytes},
                               {PqKeyMethod::kTables, PqValueMethod::kCentroids},
                               {PqKeyMethod::kDecode, PqValueMethod::kDecode}};
  for (const PqMethods& method : methods) {
    const ScopedPqMethods scope(method);
    for (const char* plan :
         {"pq4,open=0,exact=0", "k=pq16x5,v=pq16x6,open=0,exact=0",
          "k=pq32x10,v=pq8x10,open=0,exact=0", "age=pq4:48/pq2,open=0,exact=0"}) {
      SCOPED_TRACE(std::string(plan) + " " + std::to_string(static_cast<int>(method.keys)));
      CacheTwin twin(PqShapeOfTests(), plan, WithPqCodebook());
      const SequenceId id = twin.Create();
      ASSERT_OK(twin.Grow(id, 70));
      ASSERT_OK(twin.Grow(id, 1));
    }
  }
}

TEST(CachePq, GroupsOfQueryHeads) {
  for (const int group : {1, 2, 4, 7}) {
    for (const char* plan : {"pq4,open=0,exact=0", "k=pq16x5,v=pq8x10,open=0,exact=0"}) {
      SCOPED_TRACE(std::string(plan) + " " + std::to_string(group));
      CacheShape shape = PqShapeOfTests();
      shape.group_size = group;
      CacheTwin twin(shape, plan, WithPqCodebook());
      const SequenceId id = twin.Create();
      ASSERT_OK(twin.Grow(id, 53));
      ASSERT_OK(twin.Grow(id, 1));
      ASSERT_OK(twin.Attend(1, id, 5));
    }
  }
}

TEST(CachePq, EveryPageSizeAndManySplits) {
  for (const int page : {16, 32, 64, 128}) {
    CacheShape shape = PqShapeOfTests();
    shape.page_tokens = page;
    CacheTwin twin(shape, "0: pq4,open=0,exact=0; 1: k=pq2,v=pq3,open=0,exact=0", WithPqCodebook());
    const SequenceId id = twin.Create();
    ASSERT_OK(twin.Grow(id, 2 * page + 3));
    ASSERT_OK(twin.Grow(id, 1));
  }
  CacheTwin twin(PqShapeOfTests(), "0: pq4,open=0,exact=0; 1: k=pq16x5,v=pq16x6,open=0,exact=0",
                 WithPqCodebook());
  const SequenceId id = twin.Create();
  ASSERT_OK(twin.Grow(id, 16 * 36 + 5));  // a split is 16 pages
  ASSERT_OK(twin.Attend(0, id, 3));
  ASSERT_OK(twin.Attend(1, id, 3));
}

TEST(CachePq, TheNewest128TokensStayExactUnlessThePlanSaysOtherwise) {
  struct Case {
    const char* plan;
    int64_t open;
  };
  for (const Case& c :
       {Case{"pq4,exact=0", 128}, {"k=pq4,v=pq4,open=0,exact=0", 0}, {"pq4,open=40,exact=0", 40}}) {
    SCOPED_TRACE(c.plan);
    RetentionRun run(PqShapeOfTests(), c.plan, PqWork(), WithPqCodebook());
    const SequenceId id = *run.cache->CreateSequence();
    for (int64_t next = 1; next <= 220; ++next) {
      run.Feed(id, next, 1);
      // A page at a time, as soon as its last token is old enough.
      const uint64_t sealed = next < c.open ? 0 : static_cast<uint64_t>((next - c.open) / 16);
      // Codes may lie ready beside exact rows, for a page of which they are due soon.
      const auto pages = static_cast<uint64_t>((next + 15) / 16);
      ASSERT_EQ(PagesIn(*run.cache, "f16"), 2 * (pages - sealed)) << next;
      ASSERT_GE(PagesIn(*run.cache, "pq32x8/pq16x8"), 2 * sealed) << next;
      ASSERT_LE(PagesIn(*run.cache, "pq32x8/pq16x8"), 2 * sealed + 4) << next;
    }
    const int64_t exact_from = (220 - c.open) / 16 * 16;
    for (int layer = 0; layer < 2; ++layer) {
      std::vector<float> rows(220 * 64);
      ASSERT_EQ(*run.cache->ReadRows(id, layer, 1, Part::kKey, 0, 220, rows.data()), 220);
      for (int64_t p = 0; p < 220; ++p) {
        bool exact = true;
        for (size_t d = 0; d < 64; ++d) {
          const float given = PqWork().keys[layer][static_cast<size_t>(p * 2 + 1) * 64 + d];
          exact = exact && rows[static_cast<size_t>(p) * 64 + d] == F16ToF32(F32ToF16(given));
        }
        EXPECT_EQ(exact, p >= exact_from) << p;
      }
    }
  }
  // Half of a short window stays open: pages are coded before they go.
  RetentionRun run(PqShapeOfTests(), "pq4,window=64,exact=0", PqWork(), WithPqCodebook());
  const SequenceId id = *run.cache->CreateSequence();
  run.Feed(id, 220);
  EXPECT_EQ(PagesIn(*run.cache, "pq32x8/pq16x8"), 2u * 2u);  // in two layers, 32 tokens of 16
}

TEST(CachePq, PrefillInChunksGivesWhatTokenByTokenGives) {
  for (const char* plan :
       {"pq4,open=0,exact=0", "age=f16:32/pq4:96/pq2,exact=0", "k=pq16x5,v=pq16x6,open=24,exact=0",
        "k=pq32x10,v=pq8x10,open=0,exact=0"}) {
    SCOPED_TRACE(plan);
    RetentionRun chunks(PqShapeOfTests(), plan, PqWork(), WithPqCodebook());
    RetentionRun tokens(PqShapeOfTests(), plan, PqWork(), WithPqCodebook());
    const SequenceId id = *chunks.cache->CreateSequence();
    ASSERT_EQ(*tokens.cache->CreateSequence(), id);
    chunks.Feed(id, 211);
    tokens.Feed(id, 211, 1);
    EXPECT_TRUE(ReadAll(*chunks.cache, id) == ReadAll(*tokens.cache, id));
    // Wide codes, and all without SIMD, have tables for a few rows and decode for many.
    const bool same_method = &PqKernelsOf(ActiveKernels()) != &ScalarPqKernels() &&
                             std::string(plan).find("x10") == std::string::npos;
    for (int layer = 0; layer < 2; ++layer) {
      const std::vector<float>& a = chunks.outputs[{id.value, layer}];
      const std::vector<float>& b = tokens.outputs[{id.value, layer}];
      ASSERT_EQ(a.size(), b.size());
      EXPECT_TRUE(!same_method || a == b) << layer;
      for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4) << i;
    }
  }
}

TEST(CachePq, ThreadsChangeNothing) {
  for (const char* plan : {"pq4,open=0,exact=0", "k=pq16x8,v=pq8x10,open=16,exact=0"}) {
    SCOPED_TRACE(plan);
    std::vector<std::map<std::pair<uint64_t, int>, std::vector<float>>> outputs;
    std::vector<std::vector<float>> rows;
    for (const int threads : {1, 2, 5}) {
      CacheOptions options = WithPqCodebook();
      options.num_threads = threads;
      RetentionRun run(PqShapeOfTests(), plan, PqWork(), options);
      const SequenceId id = *run.cache->CreateSequence();
      run.Feed(id, 300);
      run.Feed(id, 305, 1);
      outputs.push_back(run.outputs);
      rows.push_back(ReadAll(*run.cache, id));
    }
    EXPECT_TRUE(outputs[0] == outputs[1] && outputs[0] == outputs[2]);
    EXPECT_TRUE(rows[0] == rows[1] && rows[0] == rows[2]);
  }
}

TEST(CachePq, SequencesAreForkedCutAndGrownAgain) {
  for (const char* plan :
       {"pq4,open=0,exact=0", "age=f16:20/pq4:60/pq2,exact=0", "k=pq16x5,v=pq4x7,open=8,exact=0"}) {
    SCOPED_TRACE(plan);
    CacheTwin twin(PqShapeOfTests(), plan, WithPqCodebook());
    const SequenceId a = twin.Create();
    ASSERT_OK(twin.Grow(a, 90));
    const SequenceId b = *twin.Fork(a);
    ASSERT_OK(twin.Truncate(a, 37));  // inside a page of codes
    ASSERT_OK(twin.Attend(0, a, 1));
    ASSERT_OK(twin.Grow(a, 45));
    ASSERT_OK(twin.RemoveRange(b, 20, 50));
    ASSERT_OK(twin.Attend(1, b, 2));
    ASSERT_OK(twin.Grow(b, 40));
    const SequenceId c = *twin.Fork(b);
    ASSERT_OK(twin.KeepOnly(c, 5, 100));
    ASSERT_OK(twin.Grow(c, 20));
    ASSERT_OK(twin.SlideWindow(b, 40, 16));
    ASSERT_OK(twin.Grow(b, 20));
    for (const SequenceId id : {a, c, b}) ASSERT_OK(twin.Free(id));
    EXPECT_EQ(twin.cache().Stats().bytes_used, 0u);
    EXPECT_EQ(twin.cache().Stats().pages, 0u);
  }
}

TEST(CachePq, PagesOfCodesAreSharedAndEncodedOnce) {
  RetentionRun run(PqShapeOfTests(), "pq4,open=16,exact=0", PqWork(), WithPqCodebook());
  const SequenceId a = *run.cache->CreateSequence();
  run.Feed(a, 32);
  EXPECT_EQ(run.cache->Stats().pages_sealed, 2u);
  const SequenceId b = *run.cache->Fork(a);
  run.Feed(a, 48);
  run.Feed(b, 48);
  EXPECT_EQ(run.cache->Stats().pages_sealed, 4u);
  EXPECT_EQ(run.cache->Report().pages_adopted, 2u);
  EXPECT_TRUE(ReadAll(*run.cache, a) == ReadAll(*run.cache, b));
}

TEST(CachePq, SequencesWithoutTokensOrWithOne) {
  for (const char* plan :
       {"pq4,exact=0", "pq4,open=0,exact=0", "k=pq16x5,v=pq8x10,open=0,exact=0"}) {
    SCOPED_TRACE(plan);
    CacheTwin twin(PqShapeOfTests(), plan, WithPqCodebook());
    const SequenceId id = twin.Create();
    ASSERT_OK(twin.Attend(0, id, 1));  // zeros
    ASSERT_OK(twin.Grow(id, 1));
    ASSERT_OK(twin.Attend(1, id, 1));
    ASSERT_OK(twin.Grow(id, 15));
    ASSERT_OK(twin.RemoveRange(id, 0, 15));  // one row of a page
    ASSERT_OK(twin.Attend(0, id, 1));
    ASSERT_OK(twin.RemoveRange(id, 0, 16));
    ASSERT_OK(twin.Attend(0, id, 1));
    ASSERT_OK(twin.Truncate(id, 0));
    ASSERT_OK(twin.Grow(id, 20));
  }
}

TEST(CachePq, RowsThatAreNoNumbersEndWithTheOpenWindow) {
  for (const char* plan : {"pq4,open=0,exact=0", "k=pq16x5,v=pq16x6,open=24,exact=0",
                           "age=f16:20/pq4:60/pq2,exact=0"}) {
    SCOPED_TRACE(plan);
    CacheTwin twin(PqShapeOfTests(), plan, WithPqCodebook());
    twin.PutNaNEvery(5);
    const SequenceId id = twin.Create();
    ASSERT_OK(twin.Grow(id, 120));
    EXPECT_GT(twin.cache().Report().nonfinite_values, 0u);
    twin.PutNaNEvery(0);
    ASSERT_OK(twin.Grow(id, 70));
    ExpectAttentionOfReadRows(twin.cache(), id, 4e-2);  // finite
  }
}

// Without it every layer would encode its page in the same step.
TEST(CachePq, LayersTakeTurnsToEncodeSoThatNoStepIsLong) {
  CacheOptions options = WithPqCodebook();
  options.time_stages = true;
  RetentionRun run(PqShapeOfTests(), "pq4,exact=0", PqWork(), options);
  const SequenceId id = *run.cache->CreateSequence();
  const CacheShape& shape = run.cache->shape();
  const auto one_page = uint64_t{2} * shape.page_tokens * shape.num_kv_heads;
  uint64_t before = 0;
  for (int64_t next = 1; next <= 300; ++next) {
    run.Feed(id, next, 1);
    const uint64_t encoded = run.cache->Report().stages.rows_encoded;
    ASSERT_LE(encoded - before, one_page) << next;
    before = encoded;
  }
  EXPECT_GE(before, 2 * 10 * one_page);  // two layers, 172 tokens beyond the open window
}

}  // namespace cache_pq_test
}  // namespace varve
