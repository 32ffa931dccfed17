// Step and Prefill: the short form of a step.

#include "varve/step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/cache_testing.h"

namespace varve {
namespace step_test {

constexpr CacheShape kShape{
    .num_layers = 2, .num_kv_heads = 2, .group_size = 2, .key_dim = 32, .value_dim = 32};
constexpr size_t kRowFloats = 64;

class StepTest : public testing::Test {
 protected:
  explicit StepTest(const char* plan = "q8_0") {
    CacheOptions options;
    options.plan = *ParsePlan(plan);
    options.num_threads = 1;
    cache_ = Cache::Create(kShape, std::move(options)).value();
    sequence_ = *cache_->CreateSequence();
    for (size_t i = 0; i < rows_.size(); ++i) rows_[i] = static_cast<float>(i % 17) / 8 - 1;
  }

  RowsView Rows(int64_t first, int count) const {
    return {rows_.data() + static_cast<size_t>(first) * kRowFloats, count};
  }
  Status AppendAll(Step& step, int64_t first, int count) const {
    for (int layer = 0; layer < kShape.num_layers; ++layer) {
      VARVE_RETURN_IF_ERROR(step.Append(layer, sequence_, Rows(first, count), Rows(first, count)));
    }
    return Status();
  }
  int64_t position() const { return *cache_->NextPosition(sequence_); }

  std::unique_ptr<Cache> cache_;
  SequenceId sequence_;
  std::vector<float> rows_ = std::vector<float>(300 * kRowFloats);
};

TEST_F(StepTest, CommitKeepsTheTokens) {
  Result<Step> step = Step::Begin(*cache_, sequence_, 3);
  ASSERT_OK(step.status());
  ASSERT_OK(AppendAll(*step, 0, 3));
  std::vector<float> output(4 * 32);
  AttendRequest request;
  request.sequence = sequence_;
  request.queries = rows_.data();
  request.output = output.data();
  ASSERT_OK(step->Attend(0, {&request, 1}));
  EXPECT_TRUE(step->is_open());
  ASSERT_OK(step->Commit());
  EXPECT_FALSE(step->is_open());
  EXPECT_EQ(position(), 3);
}

TEST_F(StepTest, TheDestructorRollsBack) {
  {
    Result<Step> step = Step::Begin(*cache_, sequence_, 3);
    ASSERT_OK(AppendAll(*step, 0, 3));
  }
  EXPECT_EQ(position(), 0);
  EXPECT_OK(Step::Begin(*cache_, sequence_, 1).status());
}

TEST_F(StepTest, AMovedStepIsTheSameStep) {
  Result<Step> begun = Step::Begin(*cache_, sequence_, 2);
  Step moved = std::move(*begun);
  EXPECT_FALSE(begun->is_open());
  EXPECT_EQ(begun->Commit().code(), StatusCode::kFailedPrecondition);
  ASSERT_OK(AppendAll(moved, 0, 2));
  ASSERT_OK(moved.Commit());
  EXPECT_EQ(position(), 2);
}

TEST_F(StepTest, AFailedStepDoesNotAbortTheNextOne) {
  Result<Step> failed = Step::Begin(*cache_, sequence_, 1);
  EXPECT_EQ(failed->Append(7, sequence_, Rows(0, 1), Rows(0, 1)).code(),
            StatusCode::kInvalidArgument);
  EXPECT_FALSE(failed->is_open());
  EXPECT_EQ(failed->Append(0, sequence_, Rows(0, 1), Rows(0, 1)).code(),
            StatusCode::kFailedPrecondition);
  Result<Step> next = Step::Begin(*cache_, sequence_, 1);
  ASSERT_OK(next.status());
  failed->Abort();
  ASSERT_OK(AppendAll(*next, 0, 1));
  ASSERT_OK(next->Commit());
  EXPECT_EQ(position(), 1);
}

TEST_F(StepTest, PrefillFeedsAnyNumberOfTokensInAsFewStepsAsThereMayBe) {
  int64_t expected = 0;
  int steps = 0;
  int fewest = 0;
  ASSERT_OK(Prefill(*cache_, sequence_, 300, [&](Step& step, int64_t first, int count) {
    EXPECT_EQ(first, expected);
    expected = first + count;
    ++steps;
    return AppendAll(step, first, count);
  }));
  EXPECT_EQ(expected, 300);
  EXPECT_EQ(position(), 300);
  // The same, step by step.
  const SequenceId other = *cache_->CreateSequence();
  for (int64_t fed = 0; fed < 300; ++fewest) {
    const int count = static_cast<int>(std::min<int64_t>(*cache_->MaxStepTokens(other), 300 - fed));
    Result<Step> step = Step::Begin(*cache_, other, count);
    for (int layer = 0; layer < kShape.num_layers; ++layer) {
      ASSERT_OK(step->Append(layer, other, Rows(fed, count), Rows(fed, count)));
    }
    ASSERT_OK(step->Commit());
    fed += count;
  }
  EXPECT_EQ(steps, fewest);
  EXPECT_OK(Prefill(*cache_, sequence_, 0, [](Step&, int64_t, int) { return Internal("called"); }));
  EXPECT_EQ(Prefill(*cache_, sequence_, -1, [](Step&, int64_t, int) { return Status(); }).message(),
            "Prefill: num_tokens -1 < 0");
}

TEST_F(StepTest, AnErrorOfTheLayersEndsPrefillAndRollsItsStepBack) {
  int64_t failed_at = -1;
  const Status status =
      Prefill(*cache_, sequence_, 300, [&](Step& step, int64_t first, int count) -> Status {
        VARVE_RETURN_IF_ERROR(AppendAll(step, first, count));
        if (first + count <= 64) return Status();
        failed_at = first;
        return IoError("the model is gone");
      });
  EXPECT_EQ(status.message(), "the model is gone");
  EXPECT_GE(failed_at, 0);
  EXPECT_EQ(position(), failed_at);
  EXPECT_EQ(cache_->Describe(sequence_, 0)->live_rows, failed_at);
  EXPECT_OK(Step::Begin(*cache_, sequence_, 1).status());
}

TEST_F(StepTest, LayersThatAppendTooLittleAreAnErrorOfPrefill) {
  EXPECT_EQ(Prefill(*cache_, sequence_, 5, [](Step&, int64_t, int) { return Status(); }).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(position(), 0);
}

}  // namespace step_test
}  // namespace varve
