// Who sees what: a row that a query may not see has no influence at all, whatever it holds; a row
// that it may see has all of it.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/cache_testing.h"

namespace varve {
namespace cache_visibility_test {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr int kDim = 64;
constexpr int kHeads = 2;  // query heads, of one KV head

struct Answer {
  std::vector<float> output = std::vector<float>(64 * kHeads * kDim, 7.0f);
  std::vector<float> log_sum_exp = std::vector<float>(64 * kHeads, 7.0f);

  bool QueryIsNaN(int query) const {
    for (int i = 0; i < kHeads * kDim; ++i) {
      if (!std::isnan(output[query * kHeads * kDim + i])) return false;
    }
    return true;
  }
  bool QueryIsFinite(int query) const {
    for (int i = 0; i < kHeads * kDim; ++i) {
      if (!std::isfinite(output[query * kHeads * kDim + i])) return false;
    }
    return true;
  }
};

class CacheVisibility : public testing::TestWithParam<const char*> {
 protected:
  // Appends random rows, one step each; the given position gets NaN in every value of a part.
  void Append(int tokens, int64_t nan_key = -1, int64_t nan_value = -1) {
    for (int t = 0; t < tokens; ++t) {
      const int64_t position = cache_->Describe(id_, 0)->next_position;
      std::vector<float> key = random_.Gaussians(kDim), value = random_.Gaussians(kDim);
      if (position == nan_key) key.assign(kDim, kNaN);
      if (position == nan_value) value.assign(kDim, kNaN);
      const StepEntry entry = {id_, 1};
      ASSERT_OK(cache_->BeginStep({&entry, 1}));
      ASSERT_OK(cache_->Append(0, id_, {key.data(), 1, 0, 0}, {value.data(), 1, 0, 0}));
      ASSERT_OK(cache_->EndStep());
    }
  }
  Answer Attend(int num_queries, const AttendOptions& options = {}) {
    Answer answer;
    const std::vector<float> queries = random_.Gaussians(num_queries * kHeads * kDim);
    const AttendRequest request = {id_, num_queries, queries.data(),
                                   0,   0,           answer.output.data(),
                                   0,   0,           answer.log_sum_exp.data()};
    EXPECT_OK(cache_->Attend(0, {&request, 1}, options));
    return answer;
  }

  RowRandom random_{3};
  std::unique_ptr<Cache> cache_ = MakeCache(ShapeOf({.kv_heads = 1}), GetParam());
  SequenceId id_ = *cache_->CreateSequence();
};

// Open pages hold what they were given; the rung of sealed pages must not matter here.
INSTANTIATE_TEST_SUITE_P(Plans, CacheVisibility,
                         testing::Values("f32,open_rung=f32", "f16", "bf16,open_rung=bf16",
                                         "q8_0,open=100", "q4_0r,open=100,exact=0"));

TEST_P(CacheVisibility, NaNInARemovedRowDoesNotLeak) {
  for (const int64_t bad : {5, 21, 40}) {
    id_ = *cache_->CreateSequence();
    Append(45, bad, bad);
    ASSERT_OK(cache_->RemoveRange(id_, bad, bad + 1));
    const Answer answer = Attend(30);
    for (int query = 0; query < 30; ++query) EXPECT_TRUE(answer.QueryIsFinite(query)) << query;
  }
}

TEST_P(CacheVisibility, NaNPastATruncationDoesNotLeak) {
  for (const int64_t cut : {17, 24, 31}) {
    id_ = *cache_->CreateSequence();
    Append(32, cut, cut);
    ASSERT_OK(cache_->Truncate(id_, cut));
    EXPECT_TRUE(Attend(1).QueryIsFinite(0)) << cut;
    Append(2);
    EXPECT_TRUE(Attend(1).QueryIsFinite(0)) << cut;
  }
}

TEST_P(CacheVisibility, NaNInALiveRowShowsOnlyWhereItIsSeen) {
  for (const bool in_key : {true, false}) {
    id_ = *cache_->CreateSequence();
    Append(40, in_key ? 25 : -1, in_key ? -1 : 25);
    const Answer causal = Attend(40);
    for (int query = 0; query < 40; ++query) {
      EXPECT_EQ(causal.QueryIsNaN(query), query >= 25) << query;
      EXPECT_EQ(causal.QueryIsFinite(query), query < 25) << query;
    }
    const Answer windowed = Attend(40, {.window = 6});
    for (int query = 0; query < 40; ++query) {
      EXPECT_EQ(windowed.QueryIsNaN(query), query >= 25 && query < 31) << query;
      EXPECT_EQ(windowed.QueryIsFinite(query), query < 25 || query >= 31) << query;
    }
  }
}

TEST_P(CacheVisibility, ALoneRowOfNaNIsNotSilent) {
  Append(20, 19);
  const Answer answer = Attend(1, {.window = 1});
  EXPECT_TRUE(answer.QueryIsNaN(0));
  EXPECT_TRUE(std::isnan(answer.log_sum_exp[0]));
}

TEST_P(CacheVisibility, AQueryThatSeesNothingGivesZeros) {
  const auto expect_zeros = [](const Answer& answer, int query) {
    for (int i = 0; i < kHeads * kDim; ++i)
      ASSERT_EQ(answer.output[query * kHeads * kDim + i], 0.0f);
    for (int h = 0; h < kHeads; ++h) {
      EXPECT_EQ(answer.log_sum_exp[query * kHeads + h], -std::numeric_limits<float>::infinity());
    }
  };
  expect_zeros(Attend(1), 0);  // no rows at all
  Append(40);
  ASSERT_OK(cache_->RemoveRange(id_, 0, 20));
  const Answer causal = Attend(40);
  for (int query = 0; query < 20; ++query) expect_zeros(causal, query);
  EXPECT_NE(causal.output[20 * kHeads * kDim], 0.0f);
  ASSERT_OK(cache_->RemoveRange(id_, 30, 40));
  const Answer windowed = Attend(5, {.window = 3});
  for (int query = 0; query < 5; ++query) expect_zeros(windowed, query);
  ASSERT_OK(cache_->RemoveRange(id_, 0, 40));
  expect_zeros(Attend(1), 0);
}

TEST_P(CacheVisibility, TheModelsWindowIsExactToTheRow) {
  Append(70);
  for (int window : {1, 2, 15, 16, 17, 33, 69}) {
    const std::vector<float> queries = random_.Gaussians(kHeads * kDim);
    const auto attend = [&](const AttendOptions& options) {
      std::vector<float> out(kHeads * kDim);
      const AttendRequest request = {id_, 1, queries.data(), 0, 0, out.data(), 0, 0, nullptr};
      EXPECT_OK(cache_->Attend(0, {&request, 1}, options));
      return out;
    };
    const std::vector<float> masked = attend({.window = window});
    const SequenceId all = id_;
    id_ = *cache_->Fork(all);
    ASSERT_OK(cache_->RemoveRange(id_, 0, 70 - window));
    const std::vector<float> removed = attend({});
    for (size_t i = 0; i < masked.size(); ++i) ASSERT_NEAR(masked[i], removed[i], 1e-5) << window;
    ASSERT_OK(cache_->Free(id_));
    id_ = all;
  }
}

}  // namespace cache_visibility_test
}  // namespace varve
