#include "cli/bench/bench_pq.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/gguf_testing.h"

namespace varve::cli {
namespace bench_pq_test {

TEST(BenchPq, MeasuresEveryMethodThatCanTakeTheCodes) {
  const TempFolder folder;
  BenchPqOptions options;
  options.sizes = {"8x4", "4x9"};
  options.dim = 16;
  options.group = 2;
  options.ctx = {64, 100};
  options.reps = 1;
  options.json = folder.File("pq.json");
  ASSERT_TRUE(BenchPq(options).ok());
  std::ifstream file(options.json);
  const auto rows = nlohmann::json::parse(file)["rows"];
  std::set<std::string> seen;
  for (const auto& row : rows) {
    if (row["part"] == "encode") {
      EXPECT_GT(row["rows_per_s"], 0);
      continue;
    }
    EXPECT_GT(row["ns_per_token"], 0);
    EXPECT_TRUE(row["ctx"] == 64 || row["ctx"] == 128);
    seen.insert(row["size"].get<std::string>() + " " + row["part"].get<std::string>() + " " +
                row["method"].get<std::string>());
  }
  EXPECT_EQ(seen.size(), 6u + 4u);  // no bytes above 8 bits
  EXPECT_EQ(seen.count("4x9 scores bytes"), 0u);
}

TEST(BenchPq, RefusesSizesThatDoNotFit) {
  BenchPqOptions options;
  options.sizes = {"7x8"};
  EXPECT_EQ(BenchPq(options).code(), StatusCode::kInvalidArgument);
  options.sizes = {"64x13"};
  EXPECT_EQ(BenchPq(options).code(), StatusCode::kInvalidArgument);
}

}  // namespace bench_pq_test
}  // namespace varve::cli
