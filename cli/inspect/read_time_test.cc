#include "cli/inspect/read_time.h"

#include <gtest/gtest.h>

#include <fstream>

#include "cli/inspect/plan_report.h"
#include "tests/gguf_testing.h"

namespace varve::cli {
namespace read_time_test {

TEST(ReadTime, IsBytesOverBandwidth) {
  const std::vector<std::string> names = {"h200"};
  const std::vector<ReadDevice> devices = *ResolveDevices(names);
  ASSERT_EQ(devices.size(), 1u);
  const auto rows = ReadTimesJson({4'800'000, 9'600'000, 48'000'000}, devices);
  EXPECT_DOUBLE_EQ(rows[0]["cache_us"], 1.0);
  EXPECT_DOUBLE_EQ(rows[0]["cache_f16_us"], 2.0);
  EXPECT_DOUBLE_EQ(rows[0]["weights_us"], 10.0);
  EXPECT_NEAR(rows[0]["tokens_per_s"].get<double>(), 1e6 / 11, 1e-3);
  EXPECT_TRUE(ReadTimesJson({1, 1, 0}, devices)[0]["tokens_per_s"].is_null());
}

TEST(ReadTime, ThisDeviceIsMeasured) {
  const std::vector<std::string> names = {"here"};
  const std::vector<ReadDevice> devices = *ResolveDevices(names);
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_GT(devices[0].bytes_per_s, 1e8);
  EXPECT_LT(devices[0].bytes_per_s, 1e13);
}

TEST(ReadTime, AnUnknownDeviceSaysWhichThereAre) {
  const std::vector<std::string> names = {"h900"};
  const Status status = ResolveDevices(names).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_TRUE(status.message().starts_with("--device \"h900\": there are here ddr4 ddr5"))
      << status.message();
}

TEST(ReadTime, APlanTellsWhatItsTokensWaitFor) {
  const TempFolder folder;
  PlanReportOptions options;
  options.plan = "q8_0";
  options.embedded_model = true;
  options.devices = {"ddr5", "rtx-4090"};
  options.json = folder.File("out.json");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(ReportPlan(options), 0);
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("tokens/s at most"), std::string::npos) << text;
  EXPECT_NE(text.find("NVIDIA GeForce RTX 4090"), std::string::npos) << text;
  const nlohmann::json row = nlohmann::json::parse(std::ifstream(options.json)).at("rows").at(0);
  ASSERT_EQ(row["read_times"].size(), 2u);
  EXPECT_NEAR(row["read_times"][0]["cache_us"].get<double>(),
              row["bytes_payload"].get<double>() / 89.6e3, 1e-6);
  EXPECT_GT(row["read_times"][0]["weights_us"], 0);
  options.devices = {"h900"};
  EXPECT_NE(ReportPlan(options), 0);
}

}  // namespace read_time_test
}  // namespace varve::cli
