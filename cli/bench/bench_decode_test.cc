#include "cli/bench/bench_decode.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <limits>

#include "cli/bench/decode_lane.h"
#include "cli/bench/decode_report.h"
#include "fold/compressor_testing.h"
#include "runtime/model/open_model.h"
#include "tests/gguf_testing.h"
#include "tests/tiny_model.h"

namespace varve::cli {
namespace bench_decode_test {

class BenchDecodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    bytes_ = TinyModel().Build();
    Result<std::shared_ptr<const GgufFile>> file = GgufFile::FromMemory(bytes_, "tiny");
    ASSERT_TRUE(file.ok()) << file.status().message();
    model_ = *LoadDecoderModel(*file);
    options_.plans = {"q8_0", "age=q8_0:64/q4_0,exact=0"};
    options_.depths = {130, 0};
    options_.steps = 70;  // beyond the end of a page
    options_.reps = 2;
    options_.threads = 2;
    sink_ = std::tmpfile();
    ASSERT_NE(sink_, nullptr);
  }
  void TearDown() override { std::fclose(sink_); }

  std::vector<std::byte> bytes_;
  std::shared_ptr<const DecoderModel> model_;
  BenchDecodeOptions options_;
  std::FILE* sink_ = nullptr;
};

TEST_F(BenchDecodeTest, EveryPlanAndDepthHasARowWithTheAgreedKeys) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  const Status status = BenchDecodeModel(options_, model_, sink_, rows);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(rows.size(), 8u);  // f16, f16 again, two plans; at two depths
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    EXPECT_EQ(row["depth"], i < 4 ? 0 : 130);  // small ones first
    for (const char* key :
         {"tokens_per_s", "ratio_to_f16", "cache_bytes", "resident_bytes", "p50_us"}) {
      EXPECT_GT(row[key], 0) << key;
    }
    EXPECT_GE(row["p99_us"], row["p50_us"]);
    EXPECT_EQ(row["reps"], 2);
    EXPECT_EQ(row["codebook_bytes"], 0);
    EXPECT_TRUE(row["fallbacks"].is_array());
    const double shares = row["share_weights"].get<double>() +
                          row["share_attention"].get<double>() + row["share_cache"].get<double>() +
                          row["share_other"].get<double>();
    EXPECT_NEAR(shares, 1.0, 1e-9);
  }
  EXPECT_EQ(rows[0]["role"], "baseline");
  EXPECT_EQ(rows[1]["role"], "noise");
  EXPECT_EQ(rows[1]["plan"], "f16");
  EXPECT_EQ(rows[2]["plan"], "q8_0");
  EXPECT_EQ(rows[0]["ratio_to_f16"], 1.0);
  // An empty cache has nothing to round; a filled one has.
  EXPECT_EQ(rows[2]["logit_error"], 0.0);
  EXPECT_GT(rows[6]["logit_error"], 0.0);
  EXPECT_GT(rows[7]["logit_error"], rows[6]["logit_error"]);
  EXPECT_LT(rows[6]["cache_bytes_read"], rows[4]["cache_bytes_read"]);
}

TEST_F(BenchDecodeTest, AStepThatTakesLongShowsInP99AndNotInTheMedian) {
  std::unique_ptr<Executor> executor = MakeThreadPool(1);
  const auto lane = DecodeLane::Make("pq4", *ParsePlan("f16"), *model_, *executor).value();
  DecodeRow row;
  row.lane = lane.get();
  row.us = {8.0};
  row.step_us.assign(98, 7000.0);
  row.step_us.insert(row.step_us.end(), 2, 44000.0);
  DecodeCase at;
  at.read_bandwidth = 1e9;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  ReportDecode(at, {row}, sink_, rows);
  EXPECT_EQ(rows[0]["p50_us"], 7000.0);
  EXPECT_EQ(rows[0]["p99_us"], 44000.0);
  std::string table(1 << 12, '\0');
  std::rewind(sink_);
  table.resize(std::fread(table.data(), 1, table.size(), sink_));
  EXPECT_NE(table.find("p99"), std::string::npos) << table;
  EXPECT_NE(table.find("44.00 ms"), std::string::npos) << table;
}

TEST_F(BenchDecodeTest, EveryStepIsTimed) {
  std::unique_ptr<Executor> executor = MakeThreadPool(2);
  auto lane = DecodeLane::Make("q8_0", *ParsePlan("q8_0"), *model_, *executor).value();
  const std::unique_ptr<DecoderRunner> runner = model_->MakeRunner(*executor);
  std::vector<int32_t> tokens;
  const Result<double> mean = lane->TimeSteps(*runner, 20, &tokens);
  ASSERT_TRUE(mean.ok()) << mean.status().message();
  ASSERT_EQ(lane->step_us().size(), 20u);
  double sum = 0;
  for (const double us : lane->step_us()) {
    EXPECT_GT(us, 0.0);
    sum += us;
  }
  EXPECT_DOUBLE_EQ(*mean, sum / 20);
}

TEST_F(BenchDecodeTest, ABatchDecodesATokenOfEachSequenceInAStep) {
  std::unique_ptr<Executor> executor = MakeThreadPool(2);
  const SyntheticRows synthetic(model_->cache_shape(), 1, *executor);
  const std::unique_ptr<DecoderRunner> runner = model_->MakeRunner(*executor);
  const auto one = DecodeLane::Make("q8_0", *ParsePlan("q8_0"), *model_, *executor).value();
  const auto three = DecodeLane::Make("q8_0", *ParsePlan("q8_0"), *model_, *executor, 3).value();
  ASSERT_TRUE(one->SetDepth(synthetic, 130).ok());
  ASSERT_TRUE(three->SetDepth(synthetic, 130).ok());
  EXPECT_EQ(three->cache().Report().bytes_used, 3 * one->cache().Report().bytes_used);
  std::vector<int32_t> alone;
  std::vector<int32_t> together;
  ASSERT_TRUE(one->TimeSteps(*runner, 10, &alone).ok());
  ASSERT_TRUE(three->TimeSteps(*runner, 10, &together).ok());
  ASSERT_EQ(together.size(), 30u);
  // The first sequence writes what it writes alone, whoever else is there.
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(together[3 * i], alone[i]) << i;

  options_.batch = 3;
  options_.plans = {"q8_0"};
  options_.depths = {130};
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  const Status status = BenchDecodeModel(options_, model_, sink_, rows);
  ASSERT_TRUE(status.ok()) << status.message();
  for (const auto& row : rows) {
    EXPECT_EQ(row["batch"], 3);
    EXPECT_DOUBLE_EQ(row["tokens_per_s"], 3 * row["tokens_per_s_each"].get<double>());
  }
  std::string table(1 << 13, '\0');
  std::rewind(sink_);
  table.resize(std::fread(table.data(), 1, table.size(), sink_));
  EXPECT_NE(table.find("depth 130, 3 sequences together"), std::string::npos) << table;
  EXPECT_NE(table.find("of each"), std::string::npos) << table;
}

TEST_F(BenchDecodeTest, ABreakdownIsASecondTableAndKeysOfTheRows) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  options_.plans = {"q8_0"};
  options_.depths = {130};
  options_.breakdown = true;
  ASSERT_TRUE(BenchDecodeModel(options_, model_, sink_, rows).ok());
  std::string text(8192, '\0');
  std::rewind(sink_);
  text.resize(std::fread(text.data(), 1, text.size(), sink_));
  EXPECT_NE(text.find("us of one step by stage"), std::string::npos) << text;
  ASSERT_EQ(rows.size(), 3u);
  for (const auto& row : rows) {
    for (const char* stage : {"prepare", "scores", "softmax", "values", "merge", "append"})
      EXPECT_GT(row["stage_us"][stage], 0) << stage << row.dump();
    EXPECT_EQ(row["stage_us"]["encode"] > 0, row["plan"] == "q8_0") << row.dump();
    EXPECT_GT(row["stage_ns_per_token_head"]["scores"], 0);
    EXPECT_GT(row["fill_ns_per_row"]["append"], 0);
    EXPECT_EQ(row["fill_ns_per_row"]["encode"] > 0, row["plan"] == "q8_0") << row.dump();
  }
  options_.breakdown = false;
  rows.clear();
  ASSERT_TRUE(BenchDecodeModel(options_, model_, sink_, rows).ok());
  EXPECT_FALSE(rows[0].contains("stage_us"));
}

TEST_F(BenchDecodeTest, ARungThatFellBackCountsAsWhatRan) {
  const std::string fallen = "pq16x4,codebook=no-such-file,fallback=q8_0";
  std::unique_ptr<Executor> executor = MakeThreadPool(1);
  const auto estimate = [&](const std::string& plan) {
    const CacheOptions options = LaneOptions(*ParsePlan(plan), *model_, *executor).value();
    return EstimateLane(options, model_->cache_shape(), 4096).value();
  };
  EXPECT_EQ(estimate(fallen), estimate("q8_0"));
  EXPECT_LT(estimate("pq16x4"), estimate("q8_0"));  // with a codebook of random rows
  options_.plans = {"q8_0", fallen};
  options_.depths = {0};
  options_.steps = 8;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  const Status status = BenchDecodeModel(options_, model_, sink_, rows);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(rows[2]["fallbacks"].empty());
  EXPECT_EQ(rows[3]["fallbacks"].size(), 2u);
  EXPECT_EQ(rows[3]["ratio_all_in_4k"], rows[2]["ratio_all_in_4k"]);
}

TEST_F(BenchDecodeTest, PoliciesKeepToTheirBudgetAtEveryDepth) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  options_.plans = {"evict=h2o,ratio=3,page=16,sink=16,recent=32,trigger=128",
                    "evict=snapkv,ratio=3,page=16,sink=16,recent=32,trigger=128"};
  options_.depths = {256, 512};
  options_.steps = 24;
  const Status status = BenchDecodeModel(options_, model_, sink_, rows);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(rows.size(), 8u);
  for (const auto& row : rows) {
    if (row["plan"] == "f16") {
      EXPECT_EQ(row["keep_ratio"], 1);
      continue;
    }
    EXPECT_GE(row["lossy_ratio"], 2.9) << row.dump();
    EXPECT_LE(row["keep_ratio"], 0.36) << row.dump();
    EXPECT_GT(row["total_evict_tokens"], 0);
  }
}

TEST_F(BenchDecodeTest, RefusesWhatCannotWorkBeforeItMeasures) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  options_.plans = {"q8_0", "pq4,codebook=/nowhere/absent"};
  EXPECT_EQ(BenchDecodeModel(options_, model_, sink_, rows).code(), StatusCode::kNotFound);
  options_.plans = {"q8_0", "cross=q8_0"};
  EXPECT_EQ(BenchDecodeModel(options_, model_, sink_, rows).code(), StatusCode::kUnimplemented);
  options_.plans = {"q9"};
  EXPECT_EQ(BenchDecodeModel(options_, model_, sink_, rows).code(), StatusCode::kInvalidArgument);
  options_.plans = {"f16"};
  options_.depths = {int64_t{1} << 40};
  EXPECT_EQ(BenchDecodeModel(options_, model_, sink_, rows).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(rows.empty());
}

// 2^31 steps on this model are a terabyte of f16.
TEST_F(BenchDecodeTest, RefusesDepthsAndStepsThatDoNotFitIntoMemory) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  options_.plans = {"f16"};
  options_.steps = std::numeric_limits<int>::max();
  const Status status = BenchDecodeModel(options_, model_, sink_, rows);
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_NE(status.message().find("--depths 130"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("1.00 TiB"), std::string::npos) << status.message();
}

TEST_F(BenchDecodeTest, AModelWithoutANameHasThatOfItsFile) {
  const TempFolder folder;
  TinyModelOptions unnamed;
  unnamed.name = "";
  TinyModel(unnamed).Write(folder.File("unnamed.gguf"));
  options_.model = folder.File("unnamed.gguf");
  options_.depths = {0};
  options_.steps = 1;
  options_.json = folder.File("out.json");
  ::testing::internal::CaptureStdout();
  const Status status = BenchDecode(options_);
  const std::string table = ::testing::internal::GetCapturedStdout();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(table.starts_with("unnamed.gguf: 2 layers")) << table;
  const auto json = nlohmann::json::parse(std::ifstream(options_.json));
  EXPECT_EQ(json["rows"][0]["model"], "unnamed.gguf");
}

TEST_F(BenchDecodeTest, NamesTheOptionAndTheTypesOfRandomWeights) {
  options_.random_model = "small-1024";
  options_.weights = "q4_k";
  EXPECT_EQ(BenchDecode(options_).message(),
            "--weights \"q4_k\": not one of f32 f16 bf16 q8_0 q4_0");
}

TEST_F(BenchDecodeTest, StepsLeaveTheDepthAsItWas) {
  std::unique_ptr<Executor> executor = MakeThreadPool(2);
  const SyntheticRows rows(model_->cache_shape(), 1, *executor);
  auto lane = DecodeLane::Make("q4_0", *ParsePlan("q4_0"), *model_, *executor).value();
  const std::unique_ptr<DecoderRunner> runner = model_->MakeRunner(*executor);
  ASSERT_TRUE(lane->SetDepth(rows, 192).ok());
  std::vector<int32_t> first;
  std::vector<int32_t> again;
  ASSERT_TRUE(lane->TimeSteps(*runner, 40, &first).ok());
  EXPECT_EQ(first.size(), 40u);
  ASSERT_TRUE(lane->TimeSteps(*runner, 40, &again).ok());
  EXPECT_EQ(again, first);
  // Growing step by step is the same as growing at once.
  auto grown = DecodeLane::Make("q4_0", *ParsePlan("q4_0"), *model_, *executor).value();
  for (const int64_t depth : {7, 64, 100, 192}) ASSERT_TRUE(grown->SetDepth(rows, depth).ok());
  ASSERT_TRUE(grown->TimeSteps(*runner, 40, &again).ok());
  EXPECT_EQ(again, first);
}

TEST_F(BenchDecodeTest, EveryDepthIsAPromptThatIsFolded) {
  const CacheShape shape = model_->cache_shape();
  const TempFolder folder;
  const std::string file = folder.File("fold4.bin");
  ASSERT_TRUE(
      SaveCompressor(RandomCompressor(
                         {.num_layers = shape.num_layers, .head_dim = shape.key_dim, .factor = 4}),
                     file)
          .ok());
  std::unique_ptr<Executor> executor = MakeThreadPool(2);
  const SyntheticRows rows(shape, 1, *executor);
  const std::unique_ptr<DecoderRunner> runner = model_->MakeRunner(*executor);
  for (const char* positions : {"true", "restart"}) {
    const std::string plan = "fold=" + file + ",fold_positions=" + positions;
    auto lane = DecodeLane::Make(plan, *ParsePlan(plan), *model_, *executor).value();
    std::vector<int32_t> tokens;
    for (const int64_t depth : {64, 130, 192}) {
      ASSERT_TRUE(lane->SetDepth(rows, depth).ok());
      const uint64_t row_bytes = 2ull * static_cast<uint64_t>(shape.num_kv_heads) *
                                 static_cast<uint64_t>(shape.key_dim + shape.value_dim);
      EXPECT_EQ(lane->cache().Stats().bytes_f16, static_cast<uint64_t>(depth / 4 + depth % 4) *
                                                     row_bytes *
                                                     static_cast<uint64_t>(shape.num_layers));
      EXPECT_TRUE(lane->TimeSteps(*runner, 3, &tokens).ok());
    }
  }
}

}  // namespace bench_decode_test
}  // namespace varve::cli
