#include "cli/report/output.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace varve::cli {
namespace output_test {

std::string TestFile(const std::string& name) { return ::testing::TempDir() + "varve_" + name; }

TEST(TextTable, AlignsByCodePointsAndTrimsLines) {
  TextTable table({"name", ">µs", "note"});
  table.AddRow({"q8_0", "5", "ok"});
  table.AddRow({"é", "1234"});
  EXPECT_EQ(table.Render(false),
            "name    µs  note\n"
            "q8_0     5  ok\n"
            "é     1234\n");
}

TEST(TextTable, OnlyTheHeaderIsBold) {
  TextTable table({"a"});
  table.AddRow({"b"});
  EXPECT_EQ(table.Render(true), "\x1b[1ma\x1b[0m\nb\n");
}

TEST(Output, HumanBytesKeepThreeDigits) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1536), "1.50 KiB");
  EXPECT_EQ(HumanBytes(64.0 * 1024 * 1024), "64.0 MiB");
  EXPECT_EQ(HumanBytes(512.0 * 1024 * 1024 * 1024), "512 GiB");
}

TEST(Output, JsonHasTheEnvelope) {
  const std::string path = TestFile("envelope.json");
  ASSERT_TRUE(WriteJson(path, "plan", nlohmann::ordered_json::array({{{"plan", "f16"}}})).ok());
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  const nlohmann::json json = nlohmann::json::parse(content.str(), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["command"], "plan");
  EXPECT_TRUE(json["version"].is_string());
  for (const char* key : {"cpu", "cores", "isa", "last_level_cache_bytes", "total_memory_bytes"}) {
    EXPECT_TRUE(json["machine"].contains(key)) << key;
  }
  EXPECT_EQ(json["rows"][0]["plan"], "f16");
}

TEST(Output, AFileThatCannotBeWrittenIsAnError) {
  EXPECT_EQ(WriteJson(::testing::TempDir() + "no/such/folder/x", "plan", {}).code(),
            StatusCode::kIoError);
}

TEST(Output, WritabilityIsKnownBeforeAndNothingChanges) {
  const std::string path = TestFile("results.json");
  std::remove(path.c_str());
  EXPECT_TRUE(CheckWritable("--json", path).ok());
  EXPECT_FALSE(std::ifstream(path).is_open());
  std::ofstream(path) << "old";
  EXPECT_TRUE(CheckWritable("--json", path).ok());
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  EXPECT_EQ(content.str(), "old");
  EXPECT_TRUE(CheckWritable("--json", "-").ok());
  EXPECT_TRUE(CheckWritable("--json", "").ok());
  const Status status = CheckWritable("--json", ::testing::TempDir());
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_TRUE(status.message().starts_with("--json \"")) << status.message();
  EXPECT_FALSE(CheckWritable("--report", TestFile("no/such/folder")).ok());
}

TEST(Output, RowsAreWrittenWhenTheWorkEndsInAnError) {
  const std::string path = TestFile("partial.json");
  std::remove(path.c_str());
  const nlohmann::ordered_json none = nlohmann::ordered_json::array();
  EXPECT_EQ(FinishJson(OutOfMemory("x"), path, "c", none).code(), StatusCode::kOutOfMemory);
  EXPECT_FALSE(std::ifstream(path).is_open());
  EXPECT_EQ(FinishJson(OutOfMemory("x"), path, "c", {{{"depth", 0}}}).code(),
            StatusCode::kOutOfMemory);
  EXPECT_TRUE(std::ifstream(path).is_open());
}

TEST(Output, ALargerCacheIsNotCalledSmaller) {
  EXPECT_EQ(SizeAgainstF16(3.1), "3.10x smaller than f16");
  EXPECT_EQ(SizeAgainstF16(0.98), "as large as f16");
  EXPECT_EQ(SizeAgainstF16(0.05), "too short to compare with f16 (pages are allocated whole)");
}

TEST(Output, PlansComeFromTextOrFile) {
  EXPECT_EQ(PrintPlan(*ReadPlanArgument("q8_0")), "q8_0");
  const std::string path = TestFile("plan.json");
  std::ofstream(path) << R"({"k": "q8_0", "v": "q4_0r"})";
  EXPECT_EQ(PrintPlan(*ReadPlanArgument("@" + path)), "k=q8_0,v=q4_0r");
  std::ofstream(path) << R"({"k": "q9"})";
  const std::string message = ReadPlanArgument("@" + path).status().message();
  EXPECT_NE(message.find(path), std::string::npos);
  EXPECT_NE(message.find("unknown rung \"q9\""), std::string::npos);
  EXPECT_EQ(ReadPlanArgument("@" + TestFile("absent.json")).status().code(), StatusCode::kNotFound);
  std::ofstream(path) << std::string(70000, ' ');
  EXPECT_NE(ReadPlanArgument("@" + path).status().message().find("> 65536"), std::string::npos);
}

TEST(Output, ExitCodesTellUsageFromFailure) {
  EXPECT_EQ(ReportError(InvalidArgument("x")), kExitBadUsage);
  EXPECT_EQ(ReportError(Unimplemented("x")), kExitBadUsage);
  EXPECT_EQ(ReportError(NotFound("x")), kExitNotFound);
  EXPECT_EQ(ReportError(OutOfMemory("x")), kExitOutOfMemory);
  EXPECT_EQ(ReportError(DataLoss("x")), kExitBadData);
  EXPECT_EQ(ReportError(IoError("x")), kExitIo);
  EXPECT_EQ(ReportError(Internal("x")), kExitFailed);
}

}  // namespace output_test
}  // namespace varve::cli
