#include "cli/bench/bench_weights.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace varve::cli {
namespace bench_weights_test {

TEST(BenchWeights, NamesOfTypesAreReadInAnyCase) {
  EXPECT_EQ(*ParseWeightType("--types", "q4_k"), WeightType::kQ4K);
  EXPECT_EQ(*ParseWeightType("--types", "Q4_K"), WeightType::kQ4K);
  EXPECT_EQ(*ParseWeightType("--types", "iq4_xs"), WeightType::kIQ4_XS);
  EXPECT_EQ(*ParseWeightType("--types", "f32"), WeightType::kF32);
  EXPECT_EQ(*ParseWeightType("--types", "bF16"), WeightType::kBF16);
  for (const char* text : {"", "q4", "q4_kk", "iq2_xs"}) {
    const Status status = ParseWeightType("--types", text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find("not one of f32 f16"), std::string::npos) << status.message();
  }
}

TEST(BenchWeights, RefusesColumnsThatAreNoWholeBlocks) {
  BenchWeightsOptions options;
  options.types = {"f16", "q6_k"};
  options.cols = 128;
  const Status status = BenchWeights(options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("--cols 128 is not a multiple of 256, the block of q6_k"),
            std::string::npos)
      << status.message();
}

TEST(BenchWeights, RefusesMatricesThatDoNotFitIntoMemory) {
  BenchWeightsOptions options;
  options.types = {"f16"};
  options.working_set = int64_t{1} << 50;
  const Status status = BenchWeights(options);
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_NE(status.message().find("working set 1.00 PiB"), std::string::npos) << status.message();
  options.working_set = 0;
  options.rows = options.cols = 1 << 20;
  EXPECT_EQ(BenchWeights(options).code(), StatusCode::kOutOfMemory);
}

TEST(BenchWeights, EveryTypePassesItsCheckAndGetsARow) {
  BenchWeightsOptions options;
  options.types = {"f32",  "f16",  "bf16", "q8_0", "q4_0", "q4_1",   "q5_0",  "q5_1",
                   "q4_k", "q5_k", "q6_k", "q2_k", "q3_k", "iq4_nl", "iq4_xs"};
  options.rows = 33;
  options.cols = 256;
  options.threads = {2};
  options.tokens = {1, 9};
  options.reps = 1;
  options.working_set = 0;
  options.json = testing::TempDir() + "bench_weights.json";
  const Status status = BenchWeights(options);
  ASSERT_TRUE(status.ok()) << status.message();
  std::ifstream file(options.json);
  const nlohmann::json report = nlohmann::json::parse(file);
  EXPECT_EQ(report["command"], "bench weights");
  ASSERT_EQ(report["rows"].size(), 30u);
  for (const nlohmann::json& row : report["rows"]) {
    for (const char* key : {"type", "threads", "tokens", "median_us", "min_us", "gbps",
                            "bandwidth_fraction", "gflops", "max_error"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
    // One token: inputs of 16 bits where the weights are integers.
    const bool rounded =
        row["tokens"] == 1 && IsInteger(*ParseWeightType("type", row["type"].get<std::string>()));
    EXPECT_LT(row["max_error"].get<double>(), rounded ? 2e-4 : 1e-5) << row["type"];
    EXPECT_GT(row["max_error"].get<double>(), 0.0) << row["type"];
  }
  std::remove(options.json.c_str());
}

TEST(BenchWeights, PrecisionsOfManyTokensPassTheirChecks) {
  for (const ProductPrecision precision : {ProductPrecision::kI16, ProductPrecision::kBF16}) {
    BenchWeightsOptions options;
    options.types = {"f16", "q4_1", "q4_k", "q6_k", "q2_k", "q3_k", "iq4_nl", "iq4_xs"};
    options.rows = 33;
    options.cols = 256;
    options.threads = {2};
    options.tokens = {9, 64};
    options.precision = precision;
    options.reps = 1;
    options.working_set = 0;
    const Status status = BenchWeights(options);
    EXPECT_TRUE(status.ok()) << NameOf(precision) << ": " << status.message();
  }
}

}  // namespace bench_weights_test
}  // namespace varve::cli
