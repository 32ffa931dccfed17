// `varve run --save` and `--load`, and what `varve inspect` says of the file.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "cli/inspect/inspect_cache_file.h"
#include "cli/report/output.h"
#include "cli/run/run_options.h"
#include "tests/cache_file_testing.h"
#include "tests/tiny_model.h"

namespace varve::cli {
namespace run_file_test {

nlohmann::json RowOf(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file)["rows"][0];
}

class RunFile : public ::testing::Test {
 protected:
  void SetUp() override {
    TinyModel().Write(folder_.File("tiny.gguf"));
    options_.model = folder_.File("tiny.gguf");
    options_.prompt = "The tide came in, and the boats that lay on the sand began to move again.";
    options_.temperature = 0.0f;
    options_.threads = 2;
    options_.json = folder_.File("out.json");
    options_.plans = {"q8_0,page=16"};
    options_.has_plan = true;
  }
  nlohmann::json Run() {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const Status status = RunText(options_);
    ::testing::internal::GetCapturedStdout();
    ::testing::internal::GetCapturedStderr();
    EXPECT_TRUE(status.ok()) << status.message();
    return status.ok() ? RowOf(options_.json) : nlohmann::json();
  }
  std::string RunError() {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const Status status = RunText(options_);
    ::testing::internal::GetCapturedStdout();
    ::testing::internal::GetCapturedStderr();
    EXPECT_FALSE(status.ok());
    return status.message();
  }
  // Continues from now on.
  void LoadOnly(const std::string& file) {
    options_.save.clear();
    options_.load = folder_.File(file);
    options_.plans = {"f16"};
    options_.has_plan = false;
    options_.prompt = "";
  }

  TempFolder folder_;
  RunOptions options_;
};

TEST_F(RunFile, GoesOnWhereItStopped) {
  options_.tokens = 40;
  const std::string whole = Run()["text"];
  options_.tokens = 15;
  options_.save = folder_.File("a.varve");
  const std::string first = Run()["text"];
  LoadOnly("a.varve");
  options_.tokens = 25;
  options_.save = folder_.File("b.varve");
  const nlohmann::json row = Run();
  EXPECT_EQ(first + row["text"].get<std::string>(), whole);
  EXPECT_EQ(row["plan"], "q8_0,page=16");  // the file's
  EXPECT_EQ(row["loaded_tokens"], 74 + 15);
  EXPECT_EQ(row["prompt_tokens"], 1);  // the token that waited
  LoadOnly("b.varve");
  options_.tokens = 1;
  EXPECT_EQ(Run()["loaded_tokens"], 74 + 40);
}

TEST_F(RunFile, ANewPromptGoesBehindTheOldText) {
  const std::string text = *options_.prompt;
  options_.tokens = 0;
  options_.save = folder_.File("a.varve");
  options_.prompt = text.substr(0, 30);
  Run();
  LoadOnly("a.varve");
  options_.prompt = text.substr(30);
  options_.tokens = 20;
  const nlohmann::json row = Run();
  EXPECT_EQ(row["prompt_tokens"], text.size() - 30);  // no BOS in the middle
  const std::string continued = row["text"];
  options_.load.clear();
  options_.plans = {"q8_0,page=16"};
  options_.prompt = text;
  EXPECT_EQ(Run()["text"], continued);
}

TEST_F(RunFile, RefusesWhatDoesNotFit) {
  options_.tokens = 0;
  options_.save = folder_.File("a.varve");
  Run();
  LoadOnly("a.varve");
  EXPECT_EQ(RunError(),
            "prompt: empty, and " + options_.load + " has no token that waits to be continued");
  options_.prompt = "x";
  options_.plans = {"q4_0,page=16"};
  options_.has_plan = true;
  EXPECT_NE(RunError().find("plan \"q8_0,page=16\" is not \"q4_0,page=16\""), std::string::npos);
  options_.plans = {"q8_0,page=16", "f16"};
  EXPECT_NE(RunError().find("a file is of one plan"), std::string::npos);
  options_.plans = {"k=q8_0,v=q8_0,page=16"};  // the same in other words
  options_.tokens = 1;
  Run();
  TinyModel({.name = "other"}).Write(folder_.File("other.gguf"));
  options_.model = folder_.File("other.gguf");
  EXPECT_NE(RunError().find("that of the model in use"), std::string::npos);
  options_.load = folder_.File("missing.varve");
  options_.has_plan = false;
  EXPECT_NE(RunError().find("no such file"), std::string::npos);
  options_.load = folder_.File("tiny.gguf");
  EXPECT_NE(RunError().find("is not a .varve file"), std::string::npos);
  options_.load.clear();
  options_.save = folder_.File("no-folder/a.varve");
  EXPECT_NE(RunError().find("--save"), std::string::npos);
}

TEST_F(RunFile, InspectSaysWhatAFileHoldsAndWhetherItIsRight) {
  options_.tokens = 3;
  options_.save = folder_.File("a.varve");
  Run();
  EXPECT_TRUE(IsCacheFile(options_.save));
  EXPECT_FALSE(IsCacheFile(options_.model));
  EXPECT_FALSE(IsCacheFile(folder_.File("missing")));
  const std::string json = folder_.File("inspect.json");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(InspectCacheFile(options_.save, json), kExitDone);
  const std::string text = ::testing::internal::GetCapturedStdout();
  for (const char* part : {".varve 1", "q8_0,page=16", "tiny", "every checksum is right", "filling",
                           "sealed", "76 tokens"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
  const nlohmann::json row = RowOf(json);
  EXPECT_EQ(row["intact"], true);
  EXPECT_EQ(row["sequences"][0]["tokens"], 77);
  EXPECT_EQ(row["sequences"][0]["next_position"], 76);
  EXPECT_EQ(row["pages"], 10);
  EXPECT_EQ(row["rungs"].size(), 2u);
  EXPECT_GT(row["ratio"], 1.2);

  std::vector<std::byte> bytes = ReadFileBytes(options_.save);
  bytes[GetRecord<FileHeader>(bytes.data()).payload_offset + 100] ^= std::byte{1};
  WriteFileBytes(options_.save, bytes);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(InspectCacheFile(options_.save, json), kExitBadData);
  ::testing::internal::GetCapturedStdout();
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("page 0, layer 0, positions 0 … 15"),
            std::string::npos);
  EXPECT_EQ(RowOf(json)["intact"], false);
}

}  // namespace run_file_test
}  // namespace varve::cli
