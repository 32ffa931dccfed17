#include "cli/bench/bench_attention.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/bench/bench_candidate.h"
#include "tests/tiny_model.h"

namespace varve::cli {
namespace bench_attention_test {

BenchAttentionOptions Small() {
  BenchAttentionOptions options;
  options.heads = options.kv_heads = 1;
  options.dim = 32;
  options.ctx = {64};
  return options;
}

void ExpectRefused(const BenchAttentionOptions& options, const std::string& message) {
  const Status status = BenchAttention(options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
}

TEST(BenchAttention, RefusesPlansThatDropRows) {
  BenchAttentionOptions options = Small();
  options.plans = {"q8_0", "f16,window=128"};
  ExpectRefused(options, "--kv \"f16,window=128\": window= drops rows");
  options.plans = {"h2o"};
  ExpectRefused(options, "--kv \"h2o\": evict= drops rows");
}

TEST(BenchAttention, RefusesPlansByLayer) {
  BenchAttentionOptions options = Small();
  options.plans = {"0-1: f16; 2-: q8_0"};
  ExpectRefused(options, "--kv \"0-1: f16; 2-: q8_0\": layer ranges");
}

TEST(BenchAttention, RefusesGroupsThatTheCacheRefuses) {
  BenchAttentionOptions options = Small();
  options.heads = 128;
  ExpectRefused(options, "group_size 128");
  options.kv_heads = 3;
  ExpectRefused(options, "--heads 128 is not a multiple of --kv-heads 3");
}

TEST(BenchAttention, ABreakdownIsASecondTableAndKeysOfTheRows) {
  const TempFolder folder;
  BenchAttentionOptions options = Small();
  options.ctx = {192};
  options.plans = {"q4_0r"};
  options.reps = 2;
  options.steps = 0;
  options.working_set = 0;
  options.breakdown = true;
  options.json = folder.File("out.json");
  ::testing::internal::CaptureStdout();
  const Status status = BenchAttention(options);
  const std::string text = ::testing::internal::GetCapturedStdout();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_NE(text.find("us of one layer by stage"), std::string::npos) << text;
  const auto rows = nlohmann::json::parse(std::ifstream(options.json))["rows"];
  ASSERT_EQ(rows.size(), 3u);  // f16, f16 again, the plan
  for (const auto& row : rows) {
    for (const char* stage : {"prepare", "scores", "softmax", "values", "merge"})
      EXPECT_GT(row["stage_us"][stage], 0) << stage << row.dump();
    // What is timed reads only; rows came in before.
    EXPECT_EQ(row["stage_us"]["append"], 0);
    EXPECT_GT(row["fill_ns_per_row"]["append"], 0);
  }
  EXPECT_EQ(rows[0]["fill_ns_per_row"]["encode"], 0);
  EXPECT_GT(rows[2]["fill_ns_per_row"]["encode"], 0);
}

TEST(BenchAttention, AWorkingSetIsASizeOrAnError) {
  EXPECT_EQ(*ParseWorkingSet("0"), 0);
  EXPECT_EQ(*ParseWorkingSet("4096"), 4096);
  EXPECT_EQ(*ParseWorkingSet("64MiB"), 64 << 20);
  for (const char* text : {"", "-5", "+5", " 5", "x", "5x", "1e3", "99999999999999999999"}) {
    const Status status = ParseWorkingSet(text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
  }
  EXPECT_FALSE(ParseWorkingSet("8000PiB").ok());
}

LayerForm OneLayer(const char* plan) {
  CacheShape shape;
  shape.num_layers = shape.num_kv_heads = 1;
  shape.key_dim = shape.value_dim = 32;
  return ResolvePlan(*ParsePlan(plan), shape)->layers.front();
}

TEST(BenchCandidate, TheCoarsestRungSetsTheErrorLimit) {
  EXPECT_EQ(KernelErrorLimit(OneLayer("f16")), 1e-5);
  EXPECT_EQ(KernelErrorLimit(OneLayer("k=bf16,v=f32")), 1e-5);
  EXPECT_EQ(KernelErrorLimit(OneLayer("k=f16,v=q8_0r")), 1e-3);
  EXPECT_EQ(KernelErrorLimit(OneLayer("k=q8_0,v=q4_0")), 5e-2);
  EXPECT_EQ(KernelErrorLimit(OneLayer("age=f16:512/q8_0:4096/q4_0r")), 5e-2);
}

class FilledCandidate : public ::testing::Test {
 protected:
  Candidate Make(const char* plan) {
    Candidate candidate;
    candidate.plan = plan;
    Result<FilledCache> filled = FillCache(workload_, *ParsePlan(plan), 3, 2, *executor_);
    EXPECT_TRUE(filled.ok()) << filled.status().message();
    candidate.filled = std::make_shared<FilledCache>(std::move(*filled));
    return candidate;
  }

  std::unique_ptr<Executor> executor_ = MakeThreadPool(2);
  Workload workload_{{4, 2, 32, 130, 1}, *executor_};
};

TEST_F(FilledCandidate, LayersOfTwoKindsAreBothChecked) {
  Candidate mixed = Make("0: q8_0");  // layers 1 and 2 are f16
  Candidate plain = Make("f16");
  Candidate coarse = Make("q8_0");
  for (Candidate* candidate : {&mixed, &plain, &coarse}) {
    const Status status = CheckAnswers(*candidate, workload_, *executor_);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  EXPECT_EQ(mixed.output, plain.output);  // of the last layer
  EXPECT_EQ(mixed.error.rms, coarse.error.rms);
  EXPECT_GT(coarse.error.rms, plain.error.rms);
}

TEST_F(FilledCandidate, AnotherOutputThanTheCheckedOneFailsTheTiming) {
  Candidate candidate = Make("q4_0");
  ASSERT_TRUE(CheckAnswers(candidate, workload_, *executor_).ok());
  ASSERT_TRUE(TimeLayer(candidate, workload_).ok());
  EXPECT_EQ(candidate.us.size(), 1u);
  candidate.output.back() += 1e-3f;
  EXPECT_EQ(TimeLayer(candidate, workload_).code(), StatusCode::kInternal);
}

TEST_F(FilledCandidate, ALayerWithOtherRowsFailsTheCheck) {
  Candidate candidate = Make("f16");
  Cache& cache = *candidate.filled->cache;
  ASSERT_TRUE(cache.Truncate(candidate.filled->sequences[1], 129).ok());
  EXPECT_EQ(CheckAnswers(candidate, workload_, *executor_).code(), StatusCode::kInternal);
}

}  // namespace bench_attention_test
}  // namespace varve::cli
