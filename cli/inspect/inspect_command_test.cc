#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "cli/commands.h"
#include "cli/report/output.h"
#include "tests/gguf_testing.h"

namespace varve::cli {
namespace inspect_command_test {

TEST(InspectCommand, RungsHaveTheBitsOfKAndOfV) {
  const TempFolder folder;
  const std::string path = folder.File("rungs.json");
  CLI::App app;
  int exit_code = -1;
  AddInspectCommand(app, &exit_code);
  testing::internal::CaptureStdout();
  app.parse("inspect rungs --json " + path);
  const std::string printed = testing::internal::GetCapturedStdout();
  ASSERT_EQ(exit_code, kExitDone);
  EXPECT_NE(printed.find("bits/value of K"), std::string::npos) << printed;

  std::ifstream file(path);
  const nlohmann::json document = nlohmann::json::parse(file);
  std::map<std::string, std::pair<double, double>> bits;
  for (const nlohmann::json& row : document.at("rows")) {
    bits[row.at("rung")] = {row.at("k_bits_per_value"), row.at("v_bits_per_value")};
  }
  EXPECT_EQ(bits.at("q8_0"), std::make_pair(8.5, 8.5));
  // Turned keys have a mean of 2 bytes a channel for each page, 64 rows here.
  EXPECT_EQ(bits.at("t4"), std::make_pair(4.375, 4.125));
  EXPECT_EQ(bits.at("t2"), std::make_pair(2.375, 2.125));
}

}  // namespace inspect_command_test
}  // namespace varve::cli
