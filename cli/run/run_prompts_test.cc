// `varve run --prompts` from a folder of files to its texts, its JSON and the memory over time.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "cli/run/run_memory.h"
#include "cli/run/run_options.h"
#include "tests/tiny_model.h"

namespace varve::cli {
namespace run_prompts_test {

class RunPromptsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    TinyModel().Write(folder_.File("tiny.gguf"));
    options_.model = folder_.File("tiny.gguf");
    options_.prompts = folder_.File("prompts");
    std::filesystem::create_directories(options_.prompts + "/inner");
    Put("b.txt", "The tide came in.");
    Put("a.txt", "Once");
    Put("c.txt", "A ship\n");
    Put(".hidden", "no");
    options_.tokens = 16;
    options_.threads = 2;
    options_.json = folder_.File("out.json");
  }
  void Put(const std::string& name, const std::string& text) {
    std::ofstream(options_.prompts + "/" + name) << text;
  }
  Status Run(Status (*command)(const RunOptions&) = RunPrompts) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    Status status = command(options_);
    text_ = ::testing::internal::GetCapturedStdout();
    errors_ = ::testing::internal::GetCapturedStderr();
    if (status.ok()) rows_ = nlohmann::json::parse(std::ifstream(options_.json)).at("rows");
    return status;
  }

  TempFolder folder_;
  RunOptions options_;
  std::string text_;
  std::string errors_;
  nlohmann::json rows_;
};

TEST_F(RunPromptsTest, EachFileGetsTheTextThatItGetsAlone) {
  options_.together = 2;
  const Status status = Run();
  ASSERT_TRUE(status.ok()) << status.message();
  const std::string together = text_;
  const nlohmann::json rows = rows_;
  RunOptions all = options_;
  std::string expected;
  for (const char* name : {"a.txt", "b.txt", "c.txt"}) {
    options_ = all;
    options_.file = all.prompts + "/" + name;
    options_.prompts.clear();
    ASSERT_TRUE(Run(RunText).ok());
    const std::string text = rows_[0]["text"];
    expected += std::string("--- ") + name + " ---\n" + text + (text.ends_with('\n') ? "" : "\n");
  }
  EXPECT_EQ(together, expected);
  EXPECT_EQ(rows[0]["prompt"], "a.txt");
  EXPECT_EQ(rows[2]["prompt_tokens"], 7);  // BOS and six bytes: the newline is none of it
}

TEST_F(RunPromptsTest, MemoryOverTimeIsInTheRowsAndInTheClosingLines) {
  options_.together = 3;
  options_.plans = {"q8_0"};
  ASSERT_TRUE(Run().ok());
  ASSERT_GT(rows_.size(), 10u);
  uint64_t peak = 0;
  for (const nlohmann::json& row : rows_) {
    if (row["role"] == "prompt") continue;
    EXPECT_EQ(row["role"], "memory");
    EXPECT_LE(row["sequences"], 3);
    EXPECT_GT(row["cache_bytes_f16"], 0);
    peak = std::max(peak, row["cache_bytes"].get<uint64_t>());
  }
  EXPECT_GT(peak, 0u);
  EXPECT_NE(errors_.find("3 of 3 prompts, 3 together at most"), std::string::npos) << errors_;
  EXPECT_NE(errors_.find("sequences"), std::string::npos) << errors_;
}

TEST_F(RunPromptsTest, TextsGoToFilesOfTheSameNames) {
  options_.output = folder_.File("texts");
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(text_, "");
  for (size_t i = 0; i < 3; ++i) {
    std::stringstream text;
    text << std::ifstream(options_.output + "/" + rows_[i]["prompt"].get<std::string>()).rdbuf();
    EXPECT_EQ(text.str(), rows_[i]["text"]);
  }
  options_.output = options_.prompts + "/inner/..";
  EXPECT_NE(Run().message().find("the folder of the prompts"), std::string::npos);
}

TEST_F(RunPromptsTest, RefusesWhatCannotWorkBeforeAnythingRuns) {
  Put("long.txt", std::string(kTinyContext, 'x'));
  EXPECT_NE(Run().message().find("prompts/long.txt: prompt: 1025 tokens at position 0"),
            std::string::npos);
  options_.prompts = folder_.File("absent");
  EXPECT_NE(Run().message().find("--prompts \""), std::string::npos);
  options_.prompts = folder_.File("prompts/inner");
  EXPECT_NE(Run().message().find("no files in it"), std::string::npos);
  options_.plans = {"f16", "q8_0"};
  EXPECT_NE(Run().message().find("one plan"), std::string::npos);
  options_.plans = {"f16"};
  options_.save = folder_.File("x.varve");
  EXPECT_NE(Run().message().find("not together with --save"), std::string::npos);
}

TEST(MemoryTrack, KeepsAnEvenSpreadOfALongRun) {
  MemoryTrack track;
  for (int i = 0; i < 10000; ++i) {
    track.Add({static_cast<double>(i), 1, i, static_cast<uint64_t>(i == 77 ? 1000 : 10), 40, {}});
  }
  const std::vector<MemorySample>& samples = track.samples();
  EXPECT_LE(samples.size(), MemoryTrack::kMaxSamples);
  EXPECT_GE(samples.size(), MemoryTrack::kMaxSamples / 2);
  EXPECT_EQ(samples[0].seconds, 0);
  const double step = samples[1].seconds;
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].seconds, step * static_cast<double>(i));
  }
  EXPECT_EQ(track.peak_bytes(), 1000u);  // of what was added, kept or not
  EXPECT_NEAR(track.mean_ratio(), 400000.0 / (9999 * 10 + 1000), 1e-9);
}

TEST(MemoryTrack, BytesByStateLieInTheOrderOfAPagesLife) {
  MemoryTrack track;
  const auto pages = [](PageState state, const char* rung, uint64_t bytes) {
    return RungBytes{rung, state, 1, bytes};
  };
  track.Add({0, 1, 64, 100, 200, {pages(PageState::kFilling, "f16", 90)}});
  track.Add({1,
             1,
             128,
             150,
             400,
             {pages(PageState::kFilling, "f16", 80), pages(PageState::kSealed, "q8_0", 60)}});
  const nlohmann::ordered_json states = track.ByState();
  EXPECT_EQ(states["series"][0], (nlohmann::ordered_json{{"rung", "q8_0"}, {"state", "sealed"}}));
  EXPECT_EQ(states["series"][1]["state"], "filling");
  EXPECT_EQ(states["samples"][0]["bytes"], (nlohmann::ordered_json{0, 90}));
  EXPECT_EQ(states["samples"][1]["bytes"], (nlohmann::ordered_json{60, 80}));
  EXPECT_EQ(states["samples"][1]["held_bytes"], 150);
  EXPECT_EQ(states["samples"][1]["f16_bytes"], 400);
  // The end is always there, however long the run.
  for (int i = 0; i < 1000; ++i) track.Add({2, 1, 200 + i, 150, 400, {}});
  EXPECT_EQ(track.ByState()["samples"].back()["tokens"], 1199);
}

}  // namespace run_prompts_test
}  // namespace varve::cli
