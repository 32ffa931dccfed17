// `varve transcribe` and `varve eval wer` from their options to what they write, on a small model.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "cli/eval/eval_wer.h"
#include "cli/transcribe/admission.h"
#include "cli/transcribe/ordered_output.h"
#include "cli/transcribe/transcribe_files.h"
#include "runtime/audio/sound_testing.h"
#include "runtime/whisper/speech_testing.h"
#include "tests/gguf_testing.h"

namespace varve::cli {
namespace transcribe_test {

class TranscribeCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.speech.model = folder_.File("model.bin");
    ASSERT_OK(
        WriteWhisperGgml(TestSpeechModel()->tensors(), WeightType::kF16, options_.speech.model));
    for (const double hertz : {300.0, 500.0}) {
      const std::string path = folder_.File(hertz < 400 ? "low.wav" : "high.wav");
      WriteBytes(path, EncodeSound(TestSound(3, hertz), {}));
      options_.files.push_back(path);
    }
    options_.speech.threads = 2;
    options_.speech.beam = 2;
    options_.speech.temperature = 1.0;  // one try: random weights never satisfy
    options_.speech.best_of = 1;
  }

  std::string Run(Status* status = nullptr) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const Status done = TranscribeFiles(options_);
    errors_ = ::testing::internal::GetCapturedStderr();
    std::string text = ::testing::internal::GetCapturedStdout();
    if (status != nullptr) {
      *status = done;
    } else {
      EXPECT_OK(done);
    }
    return text;
  }
  static std::string ContentOf(const std::string& path) {
    std::stringstream content;
    content << std::ifstream(path).rdbuf();
    return content.str();
  }

  TempFolder folder_;
  TranscribeFilesOptions options_;
  std::string errors_;
};

TEST_F(TranscribeCommand, FilesTogetherGiveWhatTheyGiveOneAfterTheOther) {
  const std::string alone = Run();
  EXPECT_EQ(alone.find("== " + options_.files[0]), 0u);
  EXPECT_NE(alone.find("== " + options_.files[1]), std::string::npos);
  options_.together = 2;
  EXPECT_EQ(Run(), alone);
}

TEST_F(TranscribeCommand, NoTextTakesThePlaceOfAnotherOrOfASound) {
  std::filesystem::create_directories(folder_.File("other"));
  const std::string twin = folder_.File("other/low.wav");
  std::filesystem::copy_file(options_.files[0], twin);
  const std::string low = options_.files[0];
  options_.output = folder_.File("texts");
  options_.files = {low, twin};
  Status status;
  Run(&status);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(low), std::string::npos) << status.message();
  EXPECT_NE(status.message().find(twin), std::string::npos) << status.message();
  EXPECT_FALSE(std::filesystem::exists(options_.output));

  const std::string sound = ContentOf(low);
  options_.files = {low};
  options_.output = low;
  Run(&status);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("is the sound"), std::string::npos) << status.message();
  EXPECT_EQ(ContentOf(low), sound);
}

TEST_F(TranscribeCommand, WritesAFileOfEachFormatPerSound) {
  options_.output = folder_.File("texts");
  for (const char* format : {"txt", "srt", "vtt", "json"}) {
    options_.format = format;
    EXPECT_EQ(Run(), "");
    for (const char* stem : {"low.", "high."}) {
      const std::string path = options_.output + "/" + stem + format;
      EXPECT_TRUE(std::filesystem::exists(path)) << path;
      if (options_.format != "json") continue;
      const nlohmann::json json = nlohmann::json::parse(ContentOf(path));
      EXPECT_EQ(json.at("language"), "en");
    }
  }
}

TEST_F(TranscribeCommand, AFileThatCannotBeReadDoesNotStopTheOthers) {
  options_.files.insert(options_.files.begin(), folder_.File("none.wav"));
  Status status;
  const std::string text = Run(&status);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("none.wav"), std::string::npos) << status.message();
  EXPECT_NE(text.find("high.wav"), std::string::npos);
}

TEST_F(TranscribeCommand, TooLittleMemoryIsSaidBeforeAnythingRuns) {
  options_.max_memory = 1000;
  Status status;
  Run(&status);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("--max-memory"), std::string::npos) << status.message();
  options_.max_memory = uint64_t{64} << 20;
  Run();
}

TEST_F(TranscribeCommand, ShortFormsMakeThePlan) {
  options_.type_k = "q8_0";
  EXPECT_EQ(PrintPlan(*SpeechPlanFor(options_)), PrintPlan(*ParsePlan("k=q8_0")));
  options_.type_v = "q4_0r";
  EXPECT_EQ(PrintPlan(*SpeechPlanFor(options_)), PrintPlan(*ParsePlan("k=q8_0,v=q4_0r")));
  options_.type_k = "q9";
  EXPECT_FALSE(SpeechPlanFor(options_).ok());
}

TEST_F(TranscribeCommand, TextAloneComesWithoutTimesAndOneTemperatureIsEnough) {
  options_.speech.temperature = 0.2;
  options_.speech.no_fallback = true;
  options_.speech.no_timestamps = true;
  options_.files.resize(1);
  options_.format = "json";
  const nlohmann::json transcript = nlohmann::json::parse(Run());
  const int32_t first_time = TestSpeechModel()->vocabulary().first_timestamp();
  ASSERT_GT(transcript["segments"].size(), 0u);
  for (const nlohmann::json& segment : transcript["segments"]) {
    EXPECT_EQ(segment["temperature"], 0.2);
    for (const int32_t token : segment["tokens"]) EXPECT_LT(token, first_time);
  }
}

TEST_F(TranscribeCommand, WerHasARowPerPlanAndEncodesOnceForAll) {
  std::ofstream(folder_.File("transcripts.tsv")) << "id\ttext\nlow\ta low tone\nhigh\twhistle\n";
  EvalWerOptions options;
  options.speech = options_.speech;
  options.folders = {folder_.path()};
  options.plans = {"f16", "q8_0", "f16,cross=q4_0r"};
  options.json = folder_.File("out.json");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const Status status = EvalWer(options);
  ::testing::internal::GetCapturedStderr();
  EXPECT_NE(::testing::internal::GetCapturedStdout().find("2 utterances"), std::string::npos);
  ASSERT_OK(status);
  const nlohmann::json rows = nlohmann::json::parse(ContentOf(options.json)).at("rows");
  ASSERT_EQ(rows.size(), 3u);
  for (const nlohmann::json& row : rows) {
    EXPECT_EQ(row.at("words"), 4);
    EXPECT_GE(row.at("wer"), 0.0);
    EXPECT_GT(row.at("self_bytes"), 0);
    EXPECT_GT(row.at("us_per_token"), 0.0);
  }
  EXPECT_LT(rows[2].at("cross_bytes"), rows[0].at("cross_bytes"));
  EXPECT_LT(rows[0].at("attention_rms_error"), rows[1].at("attention_rms_error"));
  EXPECT_LT(rows[1].at("k_rms_error"), rows[2].at("k_rms_error"));
}

TEST(OrderedOutput, WhatComesEarlyWaitsForItsTurn) {
  std::string all;
  OrderedOutput output(3, [&](std::string_view text) { all += text; });
  output.Add(1, "b");
  output.Add(0, "a");
  EXPECT_EQ(all, "a");
  output.Done(1);
  output.Add(2, "c");
  EXPECT_EQ(all, "a");
  output.Done(0);
  EXPECT_EQ(all, "abc");
  output.Add(2, "d");
  EXPECT_EQ(all, "abcd");
  output.Done(2);
}

TEST(Admission, CountsWhoIsUnderWay) {
  Admission admission(100);
  EXPECT_OK(admission.Enter("a", 60));
  EXPECT_OK(admission.Enter("b", 40));
  admission.Leave(60);
  EXPECT_OK(admission.Enter("c", 60));
  EXPECT_FALSE(admission.Enter("d", 101).ok());
  EXPECT_OK(Admission(0).Enter("e", uint64_t{1} << 60));
}

}  // namespace transcribe_test
}  // namespace varve::cli
