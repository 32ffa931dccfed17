// The step protocol: BeginStep reserves or changes nothing; any error in a step rolls it back and
// closes it, as if it had never begun.

#include <gtest/gtest.h>

#include <functional>
#include <new>
#include <string>
#include <vector>

#include "tests/cache_testing.h"

namespace varve {
namespace cache_step_test {

constexpr int kDim = 64;

// A cache with two sequences of which one is a fork, both in the middle of an open page.
class CacheSteps : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(twin_.Grow(a_, 33));
    b_ = *twin_.Fork(a_);
    other_ = twin_.Create();
    rows_ = twin_.random().Gaussians(16 * 2 * kDim);
    out_.resize(16 * 4 * kDim);
    entries_ = {{a_, 2}, {b_, 1}};
  }

  RowsView Rows(int count) const { return {rows_.data(), count, 0, 0}; }
  AttendRequest Request(SequenceId id, int queries) {
    return {id, queries, rows_.data(), 0, 0, out_.data(), 0, 0, nullptr};
  }
  Status AppendAll(int layer) {
    for (const StepEntry& entry : entries_) {
      const RowsView rows = Rows(entry.num_tokens);
      VARVE_RETURN_IF_ERROR(cache_.Append(layer, entry.sequence, rows, rows));
    }
    return Status();
  }

  // Opens a step, breaks it, and expects nothing to be left of it.
  void ExpectRollBack(StatusCode code, const std::string& message,
                      const std::function<Status()>& broken) {
    const std::string before = StatsText(cache_.Report());
    ASSERT_OK(cache_.BeginStep(entries_));
    const Status status = broken();
    EXPECT_EQ(status.code(), code);
    EXPECT_EQ(status.message(), message);
    EXPECT_EQ(cache_.EndStep().message(), "EndStep: no step is open");
    EXPECT_EQ(StatsText(cache_.Report()), before);
    EXPECT_OK(twin_.Compare());
    EXPECT_OK(twin_.Step(entries_));  // and it works the next time
  }

  CacheTwin twin_{ShapeOf({.layers = 2}), "q8_0"};
  Cache& cache_ = twin_.cache();
  SequenceId a_ = twin_.Create();
  SequenceId b_, other_;
  std::vector<float> rows_, out_;
  std::vector<StepEntry> entries_;
};

TEST_F(CacheSteps, AppendToABadLayerRollsBack) {
  ExpectRollBack(StatusCode::kInvalidArgument, "Append: layer 2 is outside 0 … 1", [&] {
    EXPECT_OK(AppendAll(0));
    return cache_.Append(2, a_, Rows(2), Rows(2));
  });
  ExpectRollBack(StatusCode::kInvalidArgument, "Append: layer -1 is outside 0 … 1",
                 [&] { return cache_.Append(-1, a_, Rows(2), Rows(2)); });
}

TEST_F(CacheSteps, TooManyRowsRollBack) {
  ExpectRollBack(StatusCode::kInvalidArgument,
                 "Append: sequence 1, layer 0: num_tokens 2 is outside 1 … 1 (left in this step)",
                 [&] {
                   EXPECT_OK(cache_.Append(0, a_, Rows(1), Rows(1)));
                   return cache_.Append(0, a_, Rows(2), Rows(2));
                 });
  ExpectRollBack(StatusCode::kInvalidArgument,
                 "Append: sequence 1, layer 1: num_tokens 0 is outside 1 … 2 (left in this step)",
                 [&] { return cache_.Append(1, a_, Rows(0), Rows(0)); });
}

TEST_F(CacheSteps, KeysAndValuesThatDisagreeRollBack) {
  ExpectRollBack(StatusCode::kInvalidArgument, "Append: keys.num_tokens 2 != values.num_tokens 1",
                 [&] { return cache_.Append(0, a_, Rows(2), Rows(1)); });
  ExpectRollBack(StatusCode::kInvalidArgument, "Append: values.data is null", [&] {
    return cache_.Append(0, a_, Rows(2), {nullptr, 2, 0, 0});
  });
  ExpectRollBack(StatusCode::kInvalidArgument, "Append: keys.data is null", [&] {
    return cache_.Append(0, a_, {nullptr, 2, 0, 0}, Rows(2));
  });
}

TEST_F(CacheSteps, ASequenceThatIsNotInTheStepRollsBack) {
  ExpectRollBack(StatusCode::kFailedPrecondition, "Append: sequence 3 is not part of this step",
                 [&] { return cache_.Append(0, other_, Rows(1), Rows(1)); });
  ExpectRollBack(StatusCode::kNotFound, "sequence 99 does not exist",
                 [&] { return cache_.Append(0, {99}, Rows(1), Rows(1)); });
}

TEST_F(CacheSteps, MissingRowsAtTheEndRollBack) {
  ExpectRollBack(StatusCode::kFailedPrecondition,
                 "EndStep: sequence 1, layer 1: 1 of 2 rows appended; step rolled back", [&] {
                   EXPECT_OK(AppendAll(0));
                   EXPECT_OK(cache_.Append(1, a_, Rows(1), Rows(1)));
                   return cache_.EndStep();
                 });
  ExpectRollBack(StatusCode::kFailedPrecondition,
                 "EndStep: sequence 1, layer 0: 0 of 2 rows appended; step rolled back",
                 [&] { return cache_.EndStep(); });
}

TEST_F(CacheSteps, AttendBeforeTheRowsAreThereRollsBack) {
  ExpectRollBack(StatusCode::kFailedPrecondition,
                 "Attend: sequence 1, layer 0: 1 of 2 rows appended", [&] {
                   EXPECT_OK(cache_.Append(0, a_, Rows(1), Rows(1)));
                   const AttendRequest request = Request(a_, 1);
                   return cache_.Attend(0, {&request, 1}, {});
                 });
}

TEST_F(CacheSteps, BadRequestsRollBack) {
  const auto attend = [&](const AttendRequest& request, const AttendOptions& options,
                          int layer = 0) {
    EXPECT_OK(AppendAll(0));
    return cache_.Attend(layer, {&request, 1}, options);
  };
  const StatusCode code = StatusCode::kInvalidArgument;
  ExpectRollBack(code, "Attend: layer 2 is outside 0 … 1",
                 [&] { return attend(Request(a_, 1), {}, 2); });
  ExpectRollBack(code, "Attend: sequence 1: num_queries 3 is outside 1 … 2",
                 [&] { return attend(Request(a_, 3), {}); });
  ExpectRollBack(code, "Attend: sequence 1: num_queries 0 is outside 1 … 2",
                 [&] { return attend(Request(a_, 0), {}); });
  ExpectRollBack(code, "Attend: window -1 < 0",
                 [&] { return attend(Request(a_, 1), {.window = -1}); });
  ExpectRollBack(code, "Attend: soft_cap -1.000000 is not a finite number >= 0",
                 [&] { return attend(Request(a_, 1), {.soft_cap = -1.0f}); });
  ExpectRollBack(code, "Attend: scale inf is not finite",
                 [&] { return attend(Request(a_, 1), {.scale = 1.0f / 0.0f}); });
}

TEST_F(CacheSteps, MissingBuffersRollBack) {
  ExpectRollBack(StatusCode::kInvalidArgument, "Attend: sequence 1: queries is null", [&] {
    AttendRequest request = Request(a_, 1);
    request.queries = nullptr;
    EXPECT_OK(AppendAll(0));
    return cache_.Attend(0, {&request, 1}, {});
  });
  ExpectRollBack(StatusCode::kInvalidArgument, "Attend: sequence 1: output is null", [&] {
    AttendRequest request = Request(a_, 1);
    request.output = nullptr;
    EXPECT_OK(AppendAll(0));
    return cache_.Attend(0, {&request, 1}, {});
  });
}

TEST_F(CacheSteps, AnAbortedStepLeavesNothing) {
  ExpectRollBack(StatusCode::kFailedPrecondition, "Append: no step is open", [&] {
    EXPECT_OK(AppendAll(0));
    EXPECT_OK(AppendAll(1));
    cache_.AbortStep();
    cache_.AbortStep();  // nothing happens without a step
    return cache_.Append(0, a_, Rows(2), Rows(2));
  });
}

TEST_F(CacheSteps, AStepMayBeAbortedInAnyLayer) {
  for (int layers = 0; layers <= 2; ++layers) {
    const std::string before = StatsText(cache_.Report());
    ASSERT_OK(twin_.AbortedStep(entries_, layers));
    EXPECT_EQ(StatsText(cache_.Report()), before);
  }
}

TEST_F(CacheSteps, AbortedReopeningOfASealedPageLeavesItSealed) {
  CacheTwin twin(ShapeOf({.layers = 2}), "f16");
  const SequenceId id = twin.Create();
  ASSERT_OK(twin.Grow(id, 32));
  ASSERT_OK(twin.Truncate(id, 20));
  const std::string before = StatsText(twin.cache().Report());
  const StepEntry entry = {id, 3};
  ASSERT_OK(twin.AbortedStep({&entry, 1}, 2));
  EXPECT_EQ(StatsText(twin.cache().Report()), before);
  ASSERT_OK(twin.Grow(id, 30));
}

TEST_F(CacheSteps, RefusedEntriesOpenNoStep) {
  const std::string before = StatsText(cache_.Report());
  const auto begin = [&](const std::vector<StepEntry>& entries) {
    return cache_.BeginStep(entries).message();
  };
  EXPECT_EQ(begin({}), "BeginStep: no sequence given");
  EXPECT_EQ(begin({{a_, 1}, {b_, 1}, {a_, 1}}), "BeginStep: sequence 1 is given twice");
  EXPECT_EQ(begin({{b_, 1}, {a_, 4097}}),
            "BeginStep: sequence 1: num_tokens 4097 is outside 1 … 4096 (MaxStepTokens)");
  EXPECT_EQ(begin({{a_, 0}}),
            "BeginStep: sequence 1: num_tokens 0 is outside 1 … 4096 (MaxStepTokens)");
  EXPECT_EQ(begin({{a_, 1}, {{42}, 1}}), "sequence 42 does not exist");
  EXPECT_EQ(cache_.EndStep().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(StatsText(cache_.Report()), before);
  EXPECT_OK(twin_.Compare());
}

TEST_F(CacheSteps, CallsAboutSequencesWaitForTheEndOfTheStep) {
  ASSERT_OK(cache_.BeginStep(entries_));
  for (const auto& [name, status] : std::vector<std::pair<std::string, Status>>{
           {"CreateSequence", cache_.CreateSequence().status()},
           {"Fork", cache_.Fork(a_).status()},
           {"Free", cache_.Free(other_)},
           {"Truncate", cache_.Truncate(a_, 0)},
           {"RemoveRange", cache_.RemoveRange(a_, 0, 1)},
           {"KeepOnly", cache_.KeepOnly(a_, 0, 1)},
           {"SlideWindow", cache_.SlideWindow(a_, 1, 0)},
           {"Rest", cache_.Rest(a_, 0, 1).status()},
           {"EndPrompt", cache_.EndPrompt(a_)},
           {"BeginStep", cache_.BeginStep(entries_)}}) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(status.message(), name + ": a step is open; end or abort it first");
  }
  // The step itself goes on.
  EXPECT_OK(AppendAll(0));
  EXPECT_OK(AppendAll(1));
  EXPECT_OK(cache_.EndStep());
  EXPECT_EQ(cache_.Describe(a_, 0)->next_position, 35);
}

TEST_F(CacheSteps, AppendAndEndNeedAStep) {
  EXPECT_EQ(cache_.Append(0, a_, Rows(1), Rows(1)).message(), "Append: no step is open");
  EXPECT_EQ(cache_.EndStep().message(), "EndStep: no step is open");
  cache_.AbortStep();
  EXPECT_OK(twin_.Compare());
}

TEST_F(CacheSteps, ACacheMayDieWithAStepOpen) {
  CountingMemory memory;
  {
    auto cache = MakeCache(ShapeOf({.layers = 2}), "q8_0", WithMemory(&memory));
    const StepEntry entry = {*cache->CreateSequence(), 3};
    ASSERT_OK(cache->BeginStep({&entry, 1}));
    ASSERT_OK(cache->Append(0, entry.sequence, Rows(2), Rows(2)));
  }
  EXPECT_EQ(memory.bytes_mapped, 0u);
}

// --- a step that is committed says so ---

TEST(CacheCommit, MemoryThatGivesOutWhileAPageAgesDoesNotFailTheStep) {
  FailingExecutor executor;
  CacheOptions options;
  options.executor = &executor;
  const CacheShape shape = ShapeOf({.layers = 2});
  auto cache = MakeCache(shape, "q8_0", options);
  const SequenceId id = *cache->CreateSequence();
  const std::vector<float> rows =
      RowRandom(3).Gaussians(static_cast<size_t>(shape.num_kv_heads) * 512);
  const auto step = [&](bool fails_at_the_end) {
    const StepEntry entry{id, 1};
    ASSERT_OK(cache->BeginStep({&entry, 1}));
    for (int layer = 0; layer < shape.num_layers; ++layer)
      ASSERT_OK(cache->Append(layer, id, {rows.data(), 1}, {rows.data(), 1}));
    if (fails_at_the_end) executor.calls_left = 0;
    EXPECT_OK(cache->EndStep());
    executor.calls_left = -1;
  };
  const int page = cache->shape().page_tokens;
  for (int token = 0; token < page; ++token) step(token + 1 == page);
  EXPECT_EQ(*cache->NextPosition(id), page);  // committed, and said so
  EXPECT_EQ(cache->Stats().pages_sealed, 0u);
  const std::string path = testing::TempDir() + "/committed.varve";
  ASSERT_OK(cache->Save(path, {}));
  auto other = MakeCache(shape, "q8_0");
  EXPECT_TRUE(other->Load(path, {}).ok());
  step(false);
  EXPECT_EQ(cache->Stats().pages_sealed, 2u);
  EXPECT_EQ(*cache->NextPosition(id), page + 1);
}

TEST(CacheCommit, MemoryThatGivesOutInsideALongStepRollsItBack) {
  FailingExecutor executor;
  CacheOptions options;
  options.executor = &executor;
  const CacheShape shape = ShapeOf({.layers = 2});
  auto cache = MakeCache(shape, "q8_0", options);
  const SequenceId id = *cache->CreateSequence();
  const int tokens = 3 * cache->shape().page_tokens;
  const std::vector<float> rows =
      RowRandom(3).Gaussians(static_cast<size_t>(tokens * shape.num_kv_heads) * 512);
  const StepEntry entry{id, tokens};
  ASSERT_OK(cache->BeginStep({&entry, 1}));
  for (int layer = 0; layer < shape.num_layers; ++layer)
    ASSERT_OK(cache->Append(layer, id, {rows.data(), tokens}, {rows.data(), tokens}));
  executor.calls_left = 0;
  EXPECT_THROW((void)cache->EndStep().ok(), std::bad_alloc);
  executor.calls_left = -1;
  EXPECT_EQ(*cache->NextPosition(id), 0);
  EXPECT_EQ(cache->Stats().pages, 0u);
  EXPECT_EQ(cache->EndStep().code(), StatusCode::kFailedPrecondition);  // no step is open
}

}  // namespace cache_step_test
}  // namespace varve
