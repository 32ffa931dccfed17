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

nlohmann::json Chat(const std::string& plan, const std::string& text) {
  const TempFolder folder;
  RunOptions options;
  options.plans = {plan};
  options.chat = true;
  options.chat_format = "chatml";
  options.temperature = 0.0f;
  options.tokens = 12;
  options.threads = 2;
  options.json = folder.File("out.json");
  const TypedInput input(text);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const Status status = RunText(options);
  testing::internal::GetCapturedStdout();
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(status.ok()) << status.message() << "\n" << errors;
  if (!status.ok()) return {};
  return nlohmann::json::parse(std::ifstream(options.json)).at("rows").at(0);
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

}  // namespace run_chat_test
}  // namespace varve::cli
