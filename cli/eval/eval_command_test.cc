// `varve eval` on a tiny model: the whole way from files to JSON, and what is refused.

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "cli/eval/eval_policies.h"
#include "cli/eval/eval_recall.h"
#include "cli/eval/eval_windows.h"
#include "tests/tiny_model.h"

namespace varve::cli {
namespace eval_command_test {

class EvalCommand : public ::testing::Test {
 protected:
  EvalCommand() {
    TinyModel().Write(Path("tiny.gguf"));
    std::string text;
    for (int i = 0; i < 100; ++i) text += "Tide " + std::to_string(i) + " came slowly in. ";
    Write("text.txt", text);
  }

  std::string Path(const std::string& name) const { return folder_.File(name); }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
  }
  nlohmann::json ReadJson(const std::string& name) const {
    std::stringstream content;
    content << std::ifstream(Path(name)).rdbuf();
    return nlohmann::json::parse(content.str(), nullptr, false);
  }
  template <typename Options>
  Options Defaults() const {
    Options options;
    options.model = Path("tiny.gguf");
    options.text = Path("text.txt");
    options.json = Path("out.json");
    options.threads = 2;
    return options;
  }
  static void ExpectRefused(const Status& status, const std::string& message) {
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
  }

  TempFolder folder_;
};

TEST_F(EvalCommand, WindowRowsHaveTheKeysThatProgramsRelyOn) {
  auto options = Defaults<EvalWindowsOptions>();
  options.ctx = 200;
  options.windows = 2;
  options.plans = {"q8_0", "f16", "k=q8_0,v=q4_0"};
  ::testing::internal::CaptureStdout();
  const Status status = EvalWindows(options);
  const std::string table = ::testing::internal::GetCapturedStdout();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_NE(table.find("tiny.gguf, "), std::string::npos) << table;
  EXPECT_NE(table.find("2 windows of 200 tokens, 398 tokens scored"), std::string::npos) << table;

  const nlohmann::json json = ReadJson("out.json");
  EXPECT_EQ(json["command"], "eval ppl");
  const nlohmann::json& rows = json["rows"];
  ASSERT_EQ(rows.size(), 3u);  // f16 once, and first
  EXPECT_EQ(rows[0]["plan"], "f16");
  EXPECT_EQ(rows[0]["role"], "reference");
  EXPECT_EQ(rows[1]["plan"], "q8_0");
  EXPECT_EQ(rows[2]["plan"], "k=q8_0,v=q4_0");
  for (const nlohmann::json& row : rows) {
    for (const char* key : {"ppl", "kl_mean", "kl_p99", "top1", "bytes_per_token", "ratio",
                            "codebook_bytes", "ratio_all_in_4k", "ratio_all_in_32k",
                            "bits_per_byte", "kl_sem", "dlnppl", "dlnppl_sem"}) {
      EXPECT_TRUE(row[key].is_number()) << key;
    }
    EXPECT_EQ(row["ctx"], 200);
    EXPECT_EQ(row["windows"], 2);
    EXPECT_EQ(row["tokens"], 398);
    EXPECT_EQ(row["prompt_half"], false);
  }
  EXPECT_EQ(rows[0]["kl_mean"], 0.0);
  EXPECT_GT(rows[1]["kl_mean"], 0.0);
  ASSERT_EQ(rows[1]["kl_by_position"].size(), 8u);
  EXPECT_EQ(rows[1]["kl_by_position"][7]["end"], 200);
}

TEST_F(EvalCommand, KlMeasuresTheSameUnderItsOwnName) {
  auto options = Defaults<EvalWindowsOptions>();
  options.ctx = 130;
  options.windows = 1;
  options.plans = {"q4_0"};
  ::testing::internal::CaptureStdout();
  ASSERT_TRUE(EvalWindows(options).ok());
  const nlohmann::json ppl = ReadJson("out.json");
  options.kl_first = true;
  ASSERT_TRUE(EvalWindows(options).ok());
  ::testing::internal::GetCapturedStdout();
  const nlohmann::json kl = ReadJson("out.json");
  EXPECT_EQ(kl["command"], "eval kl");
  EXPECT_EQ(kl["rows"], ppl["rows"]);
}

TEST_F(EvalCommand, ThePromptHalfIsSaid) {
  auto options = Defaults<EvalWindowsOptions>();
  options.ctx = 130;
  options.windows = 1;
  options.prompt_half = true;
  options.plans = {};
  ::testing::internal::CaptureStdout();
  ASSERT_TRUE(EvalWindows(options).ok());
  const std::string table = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(table.find("the second half is scored, for all plans"), std::string::npos);
  EXPECT_EQ(ReadJson("out.json")["rows"][0]["tokens"], 65);
}

TEST_F(EvalCommand, RecallRowsHaveTheKeysThatProgramsRelyOn) {
  auto options = Defaults<EvalRecallOptions>();
  options.ctx = 700;
  options.recall.asked = 6;
  options.recall.facts = 2;
  options.recall.depths = {0.0, 0.5};
  options.plans = {"q4_0r"};
  ::testing::internal::CaptureStdout();
  const Status status = EvalRecall(options);
  ::testing::internal::GetCapturedStdout();
  ASSERT_TRUE(status.ok()) << status.message();
  const nlohmann::json json = ReadJson("out.json");
  EXPECT_EQ(json["command"], "eval recall");
  ASSERT_EQ(json["rows"].size(), 2u);
  for (const nlohmann::json& row : json["rows"]) {
    EXPECT_EQ(row["ctx"], 700);
    EXPECT_EQ(row["asked"], 6);
    EXPECT_EQ(row["hits"].get<int>() + static_cast<int>(row["misses"].size()), 6);
    ASSERT_EQ(row["by_depth"].size(), 2u);
    EXPECT_EQ(row["by_depth"][1]["depth"], 0.5);
    EXPECT_EQ(row["by_depth"][1]["asked"], 3);
    EXPECT_TRUE(row["by_depth"][1]["hits"].is_number());
    EXPECT_TRUE(row["bytes_per_token"].is_number());
    EXPECT_TRUE(row["ratio"].is_number());
    EXPECT_EQ(row["codebook_bytes"], 0);
    EXPECT_TRUE(row["fallbacks"].empty());
  }
  EXPECT_EQ(json["rows"][1]["plan"], "q4_0r");
}

TEST_F(EvalCommand, APromptHasNoMoreFactsThanAreAskedFor) {
  auto options = Defaults<EvalRecallOptions>();
  options.ctx = 700;
  options.recall.asked = 3;
  options.recall.facts = 256;
  options.plans = {};
  ::testing::internal::CaptureStdout();
  const Status status = EvalRecall(options);
  const std::string table = ::testing::internal::GetCapturedStdout();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_NE(table.find("3 facts each"), std::string::npos) << table;
  EXPECT_EQ(ReadJson("out.json")["rows"][0]["facts"], 3);
}

TEST_F(EvalCommand, RecallSaysThatAModelsContextIsTooShort) {
  TinyModelOptions shorter;
  shorter.context = 64;
  TinyModel(shorter).Write(Path("tiny.gguf"));
  ExpectRefused(EvalRecall(Defaults<EvalRecallOptions>()),
                "tiny.gguf: its context of 64 tokens is too short");
}

TEST_F(EvalCommand, PoliciesOfARunAreInItsRows) {
  auto options = Defaults<EvalWindowsOptions>();
  options.ctx = 512;
  options.windows = 2;
  options.plans = {"evict=h2o,ratio=3,page=16,sink=16,recent=32,trigger=128", "q8_0"};
  ::testing::internal::CaptureStdout();
  const Status status = EvalWindows(options);
  const std::string table = ::testing::internal::GetCapturedStdout();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_NE(table.find("2 layers keep"), std::string::npos) << table;
  const nlohmann::json rows = ReadJson("out.json")["rows"];
  EXPECT_GE(rows[1]["lossy_ratio"], 2.9);
  EXPECT_GT(rows[1]["total_ratio"], 2.0);
  EXPECT_EQ(rows[1]["prompt_half"], true);
  EXPECT_EQ(rows[0]["lossy_ratio"], 1);
  EXPECT_EQ(rows[2]["lossy_ratio"], 1);
  EXPECT_GT(rows[2]["total_ratio"], 1.4);  // small pages: their records count
}

TEST_F(EvalCommand, PoliciesAreComparedAtEqualBytesInOneTable) {
  auto options = Defaults<EvalPoliciesOptions>();
  options.ctx = 900;
  options.page = 16;
  options.sink = 16;
  options.recent = 32;
  options.ratios = {4, 2};
  options.policies = {"window", "snapkv", "demote"};
  options.rung = "exact=0";
  options.recall.asked = 2;
  options.recall.facts = 2;
  options.plans = {"q8_0"};
  ::testing::internal::CaptureStdout();
  const Status status = EvalPolicies(options);
  const std::string table = ::testing::internal::GetCapturedStdout();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_NE(table.find("exact=0,evict=POLICY,ratio=R,page=16,sink=16,recent=32,trigger=384"),
            std::string::npos)
      << table;
  const nlohmann::json json = ReadJson("out.json");
  EXPECT_EQ(json["command"], "eval policies");
  const nlohmann::json& rows = json["rows"];
  ASSERT_EQ(rows.size(), 8u);
  EXPECT_EQ(rows[0]["plan"], "f16");
  EXPECT_EQ(rows[1]["plan"], "q8_0");
  EXPECT_TRUE(rows[1]["target_ratio"].is_null());
  for (size_t i = 2; i < rows.size(); ++i) {
    const nlohmann::json& row = rows[i];
    EXPECT_EQ(row["target_ratio"], i < 5 ? 2.0 : 4.0);
    EXPECT_EQ(row["asked"], 2);
    EXPECT_EQ(row["by_depth"].size(), 5u);
    // Demotion stops at the rung that meets the ratio in every page, beside pages that are open.
    const bool demotes = row["plan"].get<std::string>().find("demote") != std::string::npos;
    if (!demotes) {
      EXPECT_EQ(row["floors_bound"], 0) << row["plan"];
    }
    // Equal bytes: not less than was asked for, and not half a page's worth of waste.
    EXPECT_GE(row["lossy_ratio"].get<double>(),
              row["target_ratio"].get<double>() * (demotes ? 0.9 : 0.97));
    EXPECT_LE(row["lossy_ratio"].get<double>(), row["target_ratio"].get<double>() * 1.35);
    EXPECT_GE(row["recall_lossy_ratio"].get<double>(),
              row["target_ratio"].get<double>() * (demotes ? 0.9 : 0.95))
        << row["plan"];
    if (i != 2 && i != 5) {
      EXPECT_GE(row["kl_mean"], rows[i - 1]["kl_mean"]);
    }
  }
}

TEST_F(EvalCommand, RefusesPoliciesThatThereAreNot) {
  auto options = Defaults<EvalPoliciesOptions>();
  options.model = Path("absent.gguf");
  options.policies = {"h2o", "oracle"};
  ExpectRefused(EvalPolicies(options), "policy \"oracle\", ratio 2:");
  options.policies = {"h2o"};
  options.ratios = {1};
  ExpectRefused(EvalPolicies(options), "ratio 1:");
  options.ratios = {};
  ExpectRefused(EvalPolicies(options), "--ratios: none is named");
}

TEST_F(EvalCommand, RefusesPlansBeforeAModelIsLoaded) {
  auto options = Defaults<EvalWindowsOptions>();
  options.model = Path("absent.gguf");
  options.plans = {"q8_0", "q9_0"};
  ExpectRefused(EvalWindows(options), "--kv \"q9_0\": plan: clause 1");
  options.plans = {"cross=q8_0"};
  ExpectRefused(EvalWindows(options), "--kv \"cross=q8_0\":");
  options.plans = {};
  ExpectRefused(EvalWindows(options), "absent.gguf");
}

TEST_F(EvalCommand, RefusesTextsThatAreTooShort) {
  auto options = Defaults<EvalWindowsOptions>();
  Write("empty.txt", "");
  Write("short.txt", "Only a few words.");
  options.text = Path("empty.txt");
  ExpectRefused(EvalWindows(options), "empty.txt\": the file is empty");
  options.text = Path("short.txt");
  options.ctx = 64;
  ExpectRefused(
      EvalWindows(options),
      "short.txt: the text has 17 tokens, one window needs 63 (ctx 64 with the BOS token)");
  options.text = Path("absent.txt");
  ExpectRefused(EvalWindows(options), "absent.txt\": cannot be opened: No such file");
  auto recall = Defaults<EvalRecallOptions>();
  recall.text = Path("short.txt");
  ExpectRefused(EvalRecall(recall),
                "short.txt: the text has 18 tokens, a recall prompt of ctx 960 needs more");
}

TEST_F(EvalCommand, WarnsBeyondTheContextOfTheModel) {
  auto options = Defaults<EvalWindowsOptions>();
  options.ctx = kTinyContext + 100;
  options.plans = {};
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const Status status = EvalWindows(options);
  ::testing::internal::GetCapturedStdout();
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_NE(warning.find("1124 tokens are beyond the context of 1024"), std::string::npos);
}

}  // namespace eval_command_test
}  // namespace varve::cli
