// A conversation at a terminal, from its lines to its closing figures, on the embedded model.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/run/run_options.h"
#include "tests/gguf_testing.h"

namespace varve::cli {
namespace run_chat_test {

// Standard input is a terminal at which somebody has typed, as long as this lives.
class TypedInput {
 public:
  explicit TypedInput(const std::string& text) : saved_(dup(STDIN_FILENO)) {
    master_ = posix_openpt(O_RDWR | O_NOCTTY);
    EXPECT_EQ(grantpt(master_), 0);
    EXPECT_EQ(unlockpt(master_), 0);
    const int terminal = open(ptsname(master_), O_RDWR | O_NOCTTY);
    EXPECT_GE(terminal, 0);
    dup2(terminal, STDIN_FILENO);
    close(terminal);
    const std::string typed = text + "\x04";  // Ctrl-D
    EXPECT_EQ(write(master_, typed.data(), typed.size()), static_cast<ssize_t>(typed.size()));
  }
  ~TypedInput() {
    dup2(saved_, STDIN_FILENO);
    close(saved_);
    close(master_);
    std::clearerr(stdin);
    std::cin.clear();
  }

 private:
  int saved_;
  int master_;
};

RunOptions ChatOptions() {
  RunOptions options;
  options.chat = true;
  options.chat_format = "chatml";
  options.temperature = 0.0f;
  options.tokens = 12;
  options.threads = 2;
  return options;
}

struct Talk {
  std::string answers;
  std::string notes;  // stderr
};
Talk Type(const RunOptions& options, const std::string& text) {
  const TypedInput input(text);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const Status status = RunText(options);
  Talk talk;
  talk.answers = testing::internal::GetCapturedStdout();
  talk.notes = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(status.ok()) << status.message() << "\n" << talk.notes;
  return talk;
}

nlohmann::json Chat(RunOptions options, const std::string& text) {
  const TempFolder folder;
  options.json = folder.File("out.json");
  Type(options, text);
  std::ifstream file(options.json);
  if (!file) return {};
  return nlohmann::json::parse(file).at("rows").at(0);
}

nlohmann::json Chat(const std::string& plan, const std::string& text) {
  RunOptions options = ChatOptions();
  options.plans = {plan};
  return Chat(options, text);
}

constexpr char kThreeTurns[] =
    "Tell me about the harbour, the old ships that lie in it and the people who live there.\n"
    "And what did the keeper of the lighthouse say to them when the winter came?\n"
    "What happened then? Tell it from the beginning, as the oldest of them would have told it.\n";

// Not every container has /dev/pts.
bool HasTerminals() {
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  const bool works = master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0;
  if (master >= 0) close(master);
  return works;
}

TEST(RunChat, EveryTurnIsFoldedWhateverThePositions) {
  if (!HasTerminals()) GTEST_SKIP() << "this machine has no pseudo-terminals";
  const nlohmann::json plain = Chat("f32,open_rung=f32", kThreeTurns);
  for (const char* plan : {"fold,page=16", "fold,page=16,fold_positions=restart"}) {
    SCOPED_TRACE(plan);
    const nlohmann::json row = Chat(plan, kThreeTurns);
    ASSERT_TRUE(row.is_object());
    const nlohmann::json& fold = row.at("fold");
    EXPECT_EQ(fold.at("prompts"), 3);
    // Each turn reads what is new and no more than a few tokens again.
    EXPECT_LT(row.at("prompt_tokens").get<int>(), plain.at("prompt_tokens").get<int>() + 40);
    EXPECT_EQ(row.at("tokens"), plain.at("tokens"));
    const int layers = fold.at("layers");
    EXPECT_LT(fold.at("rows").get<int>(), fold.at("tokens").get<int>() / 2);
    EXPECT_LE(fold.at("tokens").get<int>() / layers, row.at("prompt_tokens").get<int>());
  }
}

TEST(RunChat, CommandsAreForTheProgram) {
  if (!HasTerminals()) GTEST_SKIP() << "this machine has no pseudo-terminals";
  const Talk talk =
      Type(ChatOptions(), "/help\n/plan\n/stats\n/sav x\n/load\n/clear\n/exit\nnever read\n");
  EXPECT_EQ(talk.answers, "");
  for (const char* text :
       {"/save [FILE]", "f16; `varve plan 'f16'`", "0 of ",
        "unknown command \"/sav\"; did you mean \"/save\"?", "/load needs FILE"}) {
    EXPECT_NE(talk.notes.find(text), std::string::npos) << text << " in\n" << talk.notes;
  }
}

TEST(RunChat, SeveralLinesAreOneMessage) {
  if (!HasTerminals()) GTEST_SKIP() << "this machine has no pseudo-terminals";
  const int64_t one = Chat(ChatOptions(), "first\\\nsecond\n").at("prompt_tokens");
  EXPECT_EQ(Chat(ChatOptions(), "\"\"\"first\nsecond\"\"\"\n").at("prompt_tokens"), one);
  EXPECT_EQ(Chat(ChatOptions(), "\"\"\"\nfirst\nsecond\n\"\"\"\n").at("prompt_tokens"), one);
  EXPECT_LT(Chat(ChatOptions(), "first\n").at("prompt_tokens"), one);
}

TEST(RunChat, AConversationIsSavedAndGoneOnWith) {
  if (!HasTerminals()) GTEST_SKIP() << "this machine has no pseudo-terminals";
  const TempFolder folder;
  const std::string saved = folder.File("talk.varve");
  const std::string question = "What did the keeper of the lighthouse say?\n";
  const Talk first = Type(ChatOptions(), question + "/save " + saved + "\n");
  EXPECT_NE(first.notes.find("saved "), std::string::npos) << first.notes;
  RunOptions options = ChatOptions();
  options.load = saved;
  const Talk second = Type(options, "And then?\n");
  EXPECT_NE(second.notes.find("tokens of it are loaded"), std::string::npos) << second.notes;
  // As if it had never been put away.
  const Talk whole = Type(ChatOptions(), question + "And then?\n");
  EXPECT_EQ(first.answers + second.answers, whole.answers);
  // And by a command, from another conversation.
  const Talk loaded = Type(ChatOptions(), "Good morning.\n/load " + saved + "\nAnd then?\n");
  EXPECT_TRUE(loaded.answers.ends_with(second.answers)) << loaded.answers;
  const Talk cleared = Type(ChatOptions(), "Good morning.\n/clear\n" + question);
  EXPECT_EQ(cleared.answers, Type(ChatOptions(), "Good morning.\n").answers + first.answers);
}

TEST(RunChat, AFullContextSaysWhatToDo) {
  if (!HasTerminals()) GTEST_SKIP() << "this machine has no pseudo-terminals";
  RunOptions options = ChatOptions();
  options.ctx = 96;
  options.tokens = -1;
  options.ignore_end = true;
  const Talk talk = Type(options, "Tell me about the harbour.\nAnd then?\n/stats\n");
  for (const char* text :
       {"the answer has filled the context of 96 tokens", "--ctx up to", "/clear begins anew",
        "--kv window=48,sink=64", "this message ends at position"}) {
    EXPECT_NE(talk.notes.find(text), std::string::npos) << text << " in\n" << talk.notes;
  }
}

TEST(RunChat, APlanWithAWindowForgetsWhatIsOldest) {
  if (!HasTerminals()) GTEST_SKIP() << "this machine has no pseudo-terminals";
  const TempFolder folder;
  RunOptions options = ChatOptions();
  options.ctx = 160;
  options.tokens = 40;
  options.ignore_end = true;
  options.plans = {"window=64,sink=16,page=16"};
  std::string messages;
  for (int i = 0; i < 6; ++i) messages += "Tell me more about the harbour.\n";
  const nlohmann::json row = Chat(options, messages);
  EXPECT_EQ(row.at("tokens"), 6 * 40);  // no answer is cut short
  const Talk talk = Type(options, messages);
  EXPECT_NE(talk.notes.find("oldest messages are forgotten (window=)"), std::string::npos)
      << talk.notes;
  EXPECT_EQ(talk.notes.find("/clear"), std::string::npos) << talk.notes;
}

TEST(RunChat, AnotherPlanReadsTheTextAgain) {
  if (!HasTerminals()) GTEST_SKIP() << "this machine has no pseudo-terminals";
  const std::string question = "What did the keeper of the lighthouse say?\n";
  const Talk talk =
      Type(ChatOptions(), question + "/plan q9\n/plan f32,open_rung=f32\nAnd then?\n");
  EXPECT_NE(talk.notes.find("the plan is f32"), std::string::npos) << talk.notes;
  EXPECT_NE(talk.notes.find("q9"), std::string::npos) << talk.notes;
  const Talk same = Type(ChatOptions(), question + "And then?\n");
  EXPECT_EQ(talk.answers, same.answers);  // f32 and f16 agree on so short a text
}

}  // namespace run_chat_test
}  // namespace varve::cli
