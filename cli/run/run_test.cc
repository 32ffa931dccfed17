// `varve run` from its options to what it prints and writes, on a model of two layers.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "cli/report/retention_trace.h"
#include "cli/run/run_options.h"
#include "cli/run/run_prompt.h"
#include "fold/compressor_testing.h"
#include "tests/tiny_model.h"

namespace varve::cli {
namespace run_test {

std::string ContentOf(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

class RunCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    TinyModel().Write(folder_.File("tiny.gguf"));
    options_.model = folder_.File("tiny.gguf");
    options_.prompt = "The tide came in.";
    options_.tokens = 24;
    options_.threads = 2;
    options_.json = folder_.File("out.json");
  }

  struct Output {
    Status status;
    std::string text;
    std::string errors;
    nlohmann::json rows;
  };
  Output Run(Status (*command)(const RunOptions&)) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    Output output;
    output.status = command(options_);
    output.text = ::testing::internal::GetCapturedStdout();
    output.errors = ::testing::internal::GetCapturedStderr();
    if (output.status.ok()) {
      output.rows = nlohmann::json::parse(ContentOf(folder_.File("out.json")))["rows"];
    }
    return output;
  }
  void ExpectRefused(const std::string& message, Status (*command)(const RunOptions&) = RunText) {
    const Output output = Run(command);
    EXPECT_FALSE(output.status.ok());
    EXPECT_NE(output.status.message().find(message), std::string::npos) << output.status.message();
    EXPECT_EQ(output.text, "");
  }

  TempFolder folder_;
  RunOptions options_;
};

TEST_F(RunCommand, AStopTextEndsTheAnswerInFrontOfIt) {
  options_.temperature = 0;
  const Output whole = Run(RunText);
  ASSERT_TRUE(whole.status.ok()) << whole.status.message();
  ASSERT_GT(whole.text.size(), 12u);
  const std::string stop = whole.text.substr(8, 3);
  options_.stops = {"never said", stop};
  const Output cut = Run(RunText);
  ASSERT_TRUE(cut.status.ok()) << cut.status.message();
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)) + "\n");
  EXPECT_EQ(cut.rows[0]["stop"], "end");
  options_.plans = {"f16", "q8_0"};
  ExpectRefused("--stop", RunCompare);
}

TEST_F(RunCommand, StreamsTextAndEndsWithOneLineOfFigures) {
  const Output output = Run(RunText);
  ASSERT_TRUE(output.status.ok()) << output.status.message();
  ASSERT_EQ(output.rows.size(), 1u);
  const nlohmann::json& row = output.rows[0];
  EXPECT_EQ(row["plan"], "f16");
  EXPECT_EQ(row["prompt_tokens"], 18);  // and BOS
  EXPECT_LE(row["tokens"], 24);
  EXPECT_GT(row["cache_bytes"], 0);
  EXPECT_GT(row["resident_bytes"], 0);
  EXPECT_GT(row["first_token_s"], 0);
  const std::string text = row["text"];
  EXPECT_TRUE(output.text.starts_with(text));
  for (const char* part : {"prompt 18 tokens", "generated", "first token", "cache", "resident"}) {
    EXPECT_NE(output.errors.find(part), std::string::npos) << part;
  }
}

TEST_F(RunCommand, TheSeedDecidesTheText) {
  const std::string first = Run(RunText).rows[0]["text"];
  EXPECT_EQ(Run(RunText).rows[0]["text"], first);
  options_.sampler.seed = 5;
  EXPECT_NE(Run(RunText).rows[0]["text"], first);
}

TEST_F(RunCommand, AnEmptyPromptStartsFromBos) {
  options_.prompt = "";
  EXPECT_EQ(Run(RunText).rows[0]["prompt_tokens"], 1);
}

TEST_F(RunCommand, AFullContextStopsWithANote) {
  options_.ctx = 20;
  options_.temperature = 0.0f;
  const Output output = Run(RunText);
  ASSERT_TRUE(output.status.ok()) << output.status.message();
  if (output.rows[0]["stop"] != "end") {
    EXPECT_EQ(output.rows[0]["stop"], "context");
    EXPECT_NE(output.errors.find("the context of 20 tokens is full"), std::string::npos);
  }
}

TEST_F(RunCommand, RefusesWhatCannotWork) {
  options_.ctx = 17;
  ExpectRefused("prompt: 18 tokens at position 0 > context 17");
  options_.ctx = kTinyContext + 1;
  ExpectRefused("--ctx 1025 > 1024, the context of tiny.gguf");
  options_.ctx = 0;
  options_.plans = {"pq4"};
  ExpectRefused("--kv \"pq4\"");
  options_.plans = {"q9"};
  ExpectRefused("--kv \"q9\": plan: clause 1");
  options_.plans = {"f16"};
  options_.chat = true;
  ExpectRefused("name a format with --chat: chatml");
  options_.chat_format = "nonsense";
  ExpectRefused("nonsense");
  options_.chat = false;
  options_.prompt.reset();
  options_.file = folder_.File("absent.txt");
  ExpectRefused("absent.txt");
  options_.model = folder_.File("absent.gguf");
  ExpectRefused("absent.gguf");
}

// A byte-level vocabulary without the letter, in a model that adds no BOS.
TEST_F(RunCommand, RefusesAPromptThatHasNoToken) {
  TinyModelOptions without;
  without.absent_byte = 'x';
  without.add_bos = false;
  TinyModel(without).Write(options_.model);
  options_.prompt = "xx";
  ExpectRefused("prompt: the vocabulary of tiny.gguf has no token for this text");
  options_.plans = {"f16", "q8_0"};
  ExpectRefused("prompt: the vocabulary of tiny.gguf has no token for this text", RunCompare);
  options_.prompt = "ax";
  EXPECT_EQ(Run(RunCompare).rows[0]["prompt_tokens"], 1);
}

TEST_F(RunCommand, TheCapOfTheCacheHolds) {
  options_.max_bytes = 4096;
  EXPECT_EQ(Run(RunText).status.code(), StatusCode::kOutOfMemory);
}

TEST_F(RunCommand, OneNewlineAtTheEndOfAFileIsNotThePrompt) {
  std::ofstream(folder_.File("p.txt")) << "two\n\n";
  options_.prompt.reset();
  options_.file = folder_.File("p.txt");
  EXPECT_EQ(*ReadPromptText(options_), "two\n");
}

TEST_F(RunCommand, APromptIsCutToTheTokensAskedFor) {
  options_.prompt = "abcdefgh";
  options_.prompt_tokens = 5;
  EXPECT_EQ(Run(RunText).rows[0]["prompt_tokens"], 5);
  options_.prompt_tokens = 100;
  ExpectRefused("--prompt-tokens 100: the prompt has only");
}

TEST_F(RunCommand, AChatFormatWrapsThePrompt) {
  options_.chat = true;
  options_.chat_format = "chatml";
  options_.system = "Be brief.";
  const int64_t tokens = Run(RunText).rows[0]["prompt_tokens"];
  EXPECT_GT(tokens, 60);  // every byte of the frame is a token in this vocabulary
}

// The frame of chatml around an empty message, in tokens of this vocabulary: bytes, and BOS.
constexpr int64_t kFrameTokens =
    1 + sizeof("<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n") - 1;

// As in a model's file.
constexpr char kChatMl[] =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

TEST_F(RunCommand, AModelWithAChatTemplateChats) {
  TinyModel().String("tokenizer.chat_template", kChatMl).Write(options_.model);
  options_.prompt = "Who?";
  EXPECT_EQ(Run(RunText).rows[0]["prompt_tokens"], kFrameTokens + 4);
  options_.plans = {"f16", "q8_0"};
  EXPECT_EQ(Run(RunCompare).rows[1]["prompt_tokens"], kFrameTokens + 4);
  options_.plans = {"f16"};
  options_.raw = true;
  const Output raw = Run(RunText);
  EXPECT_EQ(raw.rows[0]["prompt_tokens"], 5);
  EXPECT_EQ(raw.errors.find("--chat"), std::string::npos) << raw.errors;
}

TEST_F(RunCommand, TheTextOfAFileIsContinuedUnlessChatIsAskedFor) {
  TinyModel().String("tokenizer.chat_template", kChatMl).Write(options_.model);
  std::ofstream(folder_.File("p.txt")) << "Who?";
  options_.prompt.reset();
  options_.file = folder_.File("p.txt");
  const Output text = Run(RunText);
  EXPECT_EQ(text.rows[0]["prompt_tokens"], 5);
  EXPECT_NE(
      text.errors.find("the text of a file is continued; --chat makes it a message to tiny.gguf"),
      std::string::npos)
      << text.errors;
  options_.chat = true;
  EXPECT_EQ(Run(RunText).rows[0]["prompt_tokens"], kFrameTokens + 4);
  options_.chat = false;
  options_.prompt = "Who?";
  options_.file.clear();
  options_.prompt_tokens = 3;
  EXPECT_EQ(Run(RunText).rows[0]["prompt_tokens"], 3);
}

TEST_F(RunCommand, ATemplateThatCannotBeRunIsSaid) {
  TinyModel()
      .String("tokenizer.chat_template", "{{ bos_token }}\n{% include 'more' %}")
      .Write(options_.model);
  options_.prompt = "Who?";
  const Output output = Run(RunText);
  EXPECT_EQ(output.rows[0]["prompt_tokens"], 5);
  EXPECT_NE(output.errors.find("the prompt is continued as text"), std::string::npos);
  options_.system = "Be brief.";
  ExpectRefused("--system: tokenizer.chat_template: line 2: the statement {% include %} is not");
  // Another template takes its place.
  std::ofstream(folder_.File("own.jinja")) << "{{ messages[-1].content }}?";
  options_.system.clear();
  options_.chat = true;
  options_.chat_format = "@" + folder_.File("own.jinja");
  EXPECT_EQ(Run(RunText).rows[0]["prompt_tokens"], 6);
  std::ofstream(folder_.File("own.jinja")) << "{{ 1 | nonsense }}";
  ExpectRefused("line 1: the filter \"nonsense\" is not supported");
}

// The default system message of a template is in the prompt, and BOS is there once.
TEST_F(RunCommand, TheTemplateOfTheModelIsRun) {
  TinyModel()
      .String("tokenizer.chat_template",
              "{{ bos_token }}{% if messages[0].role != 'system' %}Kind.{% endif %}"
              "{% for m in messages %}{{ m.content }};{% endfor %}")
      .Write(options_.model);
  options_.prompt = "Who?";
  EXPECT_EQ(Run(RunText).rows[0]["prompt_tokens"], 1 + 5 + 5);
  options_.system = "Rule";
  EXPECT_EQ(Run(RunText).rows[0]["prompt_tokens"], 1 + 5 + 5);
}

// Every way in: -p, a file, stdin and a folder have their own readers.
TEST_F(RunCommand, NobodysWordsAreControlWhereverTheyComeFrom) {
  TinyModel().String("tokenizer.chat_template", kChatMl).Write(options_.model);
  options_.prompt = "a<eos>";
  options_.chat = true;
  const int64_t said = kFrameTokens + 6;
  EXPECT_EQ(Run(RunText).rows[0]["prompt_tokens"], said);
  const std::string path = folder_.File("p.txt");
  std::ofstream(path) << "a<eos>";
  options_.prompt.reset();
  options_.file = path;
  EXPECT_EQ(Run(RunText).rows[0]["prompt_tokens"], said);
  const int terminal = dup(STDIN_FILENO);
  const int piped = open(path.c_str(), O_RDONLY);
  dup2(piped, STDIN_FILENO);
  options_.file = "-";
  EXPECT_EQ(Run(RunText).rows[0]["prompt_tokens"], said);
  dup2(terminal, STDIN_FILENO);
  close(piped);
  close(terminal);
  std::clearerr(stdin);
  options_.file.clear();
  options_.turns = folder_.File("turns.json");
  std::ofstream(options_.turns) << R"([{"reply_tokens": 2, "turns": ["a<eos>"]}])";
  EXPECT_EQ(Run(RunTurns).rows[0]["prompt_tokens"], said);
  options_.special = true;
  EXPECT_EQ(Run(RunTurns).rows[0]["prompt_tokens"], said - 4);
}

TEST_F(RunCommand, TurnsOfAFileAreOneConversationWithARowEach) {
  TinyModel().String("tokenizer.chat_template", kChatMl).Write(options_.model);
  options_.prompt.reset();
  options_.tokens = -1;
  options_.turns = folder_.File("turns.json");
  std::ofstream(options_.turns) << R"([{"name": "one", "reply_tokens": 3, "turns": ["ab", "cd"]},
                                       {"name": "two", "turns": ["ef"], "reply_tokens": 1}])";
  const Output output = Run(RunTurns);
  ASSERT_TRUE(output.status.ok()) << output.status.message();
  ASSERT_EQ(output.rows.size(), 3u);
  EXPECT_EQ(output.rows[0]["conversation"], "one");
  EXPECT_EQ(output.rows[0]["prompt_tokens"], kFrameTokens + 2);
  EXPECT_LE(output.rows[0]["tokens"], 3);
  // The second turn finds the first in the cache; the other conversation begins anew.
  EXPECT_EQ(output.rows[1]["turn"], 2);
  EXPECT_GT(output.rows[1]["tokens_in_cache"], output.rows[0]["tokens_in_cache"]);
  EXPECT_EQ(output.rows[2]["prompt_tokens"], kFrameTokens + 2);
  EXPECT_NE(output.errors.find("turn 2: prompt"), std::string::npos) << output.errors;
  options_.save = folder_.File("x.varve");
  ExpectRefused("--turns: not together with --save", RunTurns);
}

TEST_F(RunCommand, SpecialTokensInAPromptAreCharactersUnlessAskedFor) {
  TinyModel().String("tokenizer.chat_template", kChatMl).Write(options_.model);
  options_.prompt = "a<eos>";
  EXPECT_EQ(Run(RunText).rows[0]["prompt_tokens"], kFrameTokens + 6);
  options_.special = true;
  EXPECT_EQ(Run(RunText).rows[0]["prompt_tokens"], kFrameTokens + 2);
  options_.raw = true;
  EXPECT_EQ(Run(RunText).rows[0]["prompt_tokens"], 3);
  options_.special = false;
  EXPECT_EQ(Run(RunText).rows[0]["prompt_tokens"], 7);
}

TEST_F(RunCommand, APolicyIsTracedAndItsFiguresAreInTheRow) {
  options_.prompt = std::string(500, 'x') + " and the tide came in over the grey stones.";
  options_.plans = {"1: evict=h2o,ratio=3,page=16,sink=16,recent=48,trigger=128"};
  options_.trace = folder_.File("trace.jsonl");
  const Output output = Run(RunText);
  ASSERT_TRUE(output.status.ok()) << output.status.message();
  const nlohmann::json& row = output.rows[0];
  EXPECT_LE(row["keep_ratio"], 0.34);
  EXPECT_GE(row["lossy_ratio"], 2.9);
  EXPECT_LT(row["total_ratio"], row["lossy_ratio"]);  // layer 0 is left alone
  EXPECT_GT(row["total_evict_tokens"], 300);
  EXPECT_NE(output.errors.find("1 layer keep"), std::string::npos) << output.errors;
  const Result<RetentionTrace> trace = ParseTrace(ContentOf(options_.trace));
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->events.size(), row["plans"]);
  EXPECT_EQ(trace->prompt_tokens, row["prompt_tokens"]);
  uint64_t dropped = 0;
  for (const RetentionTrace::Event& event : trace->events) {
    EXPECT_EQ(event.layer, 1);
    EXPECT_EQ(event.step % 16, 0);
    EXPECT_TRUE(event.floors_bind || event.held_bytes <= event.target_bytes);
    for (const RetentionTrace::Page& page : event.pages) {
      dropped += page.fate == PageFate::kDropped ? 1 : 0;
      // The first page is never dropped.
      if (page.first == 0) {
        EXPECT_EQ(page.fate, PageFate::kKept);
      }
    }
  }
  EXPECT_EQ(dropped, row["evicted_pages"]);
  options_.trace = folder_.File("trace.html");
  ASSERT_TRUE(Run(RunText).status.ok());
  EXPECT_TRUE(ContentOf(options_.trace).starts_with("<!doctype html>"));
}

TEST_F(RunCommand, ATargetThatTheFloorsForbidIsSaid) {
  options_.prompt = std::string(300, 'x');
  options_.plans = {"evict=h2o,ratio=6,page=16,sink=16,recent=128,trigger=128"};
  const Output output = Run(RunText);
  ASSERT_TRUE(output.status.ok()) << output.status.message();
  EXPECT_EQ(output.rows[0]["floors_bound"], output.rows[0]["plans"]);
  EXPECT_LT(output.rows[0]["ratio_bound"], 6);
  EXPECT_LE(output.rows[0]["lossy_ratio"].get<double>(),
            output.rows[0]["ratio_bound"].get<double>() * 1.1);
  EXPECT_NE(output.errors.find("ratio 6.00 cannot be held"), std::string::npos) << output.errors;
}

TEST_F(RunCommand, ATraceIsOfOnePlan) {
  options_.plans = {"h2o", "f16"};
  options_.trace = folder_.File("trace.jsonl");
  ExpectRefused("a trace is of one plan", RunCompare);
}

TEST_F(RunCommand, SeveralPlansAreComparedWithF16) {
  options_.prompt = std::string(300, 'x') + " and the tide came in over the grey stones.";
  options_.plans = {"q4_0", "q8_0", "f16", "f16,window=64"};
  options_.report = folder_.File("page.html");
  options_.command = "varve run";
  const Output output = Run(RunCompare);
  ASSERT_TRUE(output.status.ok()) << output.status.message();
  ASSERT_EQ(output.rows.size(), 4u);
  EXPECT_EQ(output.rows[0]["plan"], "f16");
  EXPECT_EQ(output.rows[0]["role"], "baseline");
  EXPECT_EQ(output.rows[0]["kl_mean"], 0.0);
  EXPECT_EQ(output.rows[1]["plan"], "q4_0");
  for (size_t i = 1; i < 4; ++i) {
    const nlohmann::json& row = output.rows[i];
    EXPECT_EQ(row["role"], "candidate");
    EXPECT_GT(row["kl_mean"], 0.0) << row["plan"];
    EXPECT_GE(row["kl_max"], row["kl_mean"]);
    EXPECT_LE(row["top1"], 1.0);
    EXPECT_GT(row["ratio"], output.rows[0]["ratio"]) << row["plan"];
  }
  EXPECT_LT(output.rows[2]["kl_mean"], output.rows[1]["kl_mean"]);
  const std::string page = ContentOf(options_.report);
  EXPECT_NE(page.find("f16,window=64"), std::string::npos);
  EXPECT_NE(output.text.find("--- f16,window=64 ---"), std::string::npos);
}

TEST_F(RunCommand, WhatAPlanDoesAtThePromptsEndIsCompared) {
  CompressorSpec spec;
  spec.num_layers = 2;
  spec.head_dim = 32;
  spec.factor = 4;
  const std::string file = folder_.File("fold.bin");
  ASSERT_TRUE(SaveCompressor(RandomCompressor(spec), file).ok());
  options_.prompt = "The tide came in. " + std::string(300, 'x') + " And it went out.";
  options_.plans = {"f16", "fold=" + file, "evict=snapkv,sink=16,recent=16,trigger=32,ratio=4"};
  const Output output = Run(RunCompare);
  ASSERT_TRUE(output.status.ok()) << output.status.message();
  EXPECT_GT(output.rows[1]["kl_mean"], 1e-6);
  EXPECT_GT(output.rows[2]["kl_mean"], 1e-6);
}

TEST_F(RunCommand, WhatWasNotMeasuredIsNull) {
  options_.plans = {"f16", "q4_0"};
  options_.tokens = 0;
  const Output output = Run(RunCompare);
  ASSERT_TRUE(output.status.ok()) << output.status.message();
  for (const char* key : {"kl_mean", "kl_max", "top1", "tokens_per_s"}) {
    EXPECT_TRUE(output.rows[1][key].is_null()) << key;
  }
  EXPECT_NE(output.text.find("KL –"), std::string::npos) << output.text;
  EXPECT_EQ(output.text.find("0.0 %"), std::string::npos) << output.text;
}

TEST_F(RunCommand, APageThatCannotBeWrittenLeavesTheJson) {
  options_.plans = {"f16", "q4_0"};
  options_.report = "/dev/full";
  const Output output = Run(RunCompare);
  EXPECT_EQ(output.status.code(), StatusCode::kIoError);
  EXPECT_EQ(nlohmann::json::parse(ContentOf(options_.json))["rows"].size(), 2u);
  options_.report = folder_.File("no/such/page.html");
  ExpectRefused("--report \"", RunCompare);
}

TEST_F(RunCommand, WhatIsTheSameCacheHasNoDivergence) {
  options_.prompt = std::string(200, 'y');
  options_.plans = {"f16", "f16,open=1024"};
  const Output output = Run(RunCompare);
  ASSERT_TRUE(output.status.ok()) << output.status.message();
  EXPECT_EQ(output.rows[1]["kl_mean"], 0.0);
  EXPECT_EQ(output.rows[1]["top1"], 1.0);
  EXPECT_TRUE(output.rows[1]["first_difference"].is_null());
  EXPECT_EQ(output.rows[1]["text"], output.rows[0]["text"]);
}

// The text of a plan in a comparison is what the plan writes alone.
TEST_F(RunCommand, AComparisonWritesWhatASingleRunWrites) {
  options_.prompt = std::string(150, 'z') + "?";
  options_.plans = {"f16", "q4_0r"};
  const Output both = Run(RunCompare);
  ASSERT_TRUE(both.status.ok()) << both.status.message();
  options_.temperature = 0.0f;
  options_.top_p = 1.0f;
  for (size_t i = 0; i < 2; ++i) {
    options_.plans = {i == 0 ? "f16" : "q4_0r"};
    const Output single = Run(RunText);
    ASSERT_TRUE(single.status.ok()) << single.status.message();
    EXPECT_EQ(single.rows[0]["text"], both.rows[i]["text"]);
  }
}

}  // namespace run_test
}  // namespace varve::cli
