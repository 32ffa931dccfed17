#include "cli/report/usage_error.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

namespace varve::cli {
namespace usage_error_test {

// What `varve` of two commands says of these arguments; empty: nothing is wrong with them.
std::string ErrorOf(const std::vector<std::string>& words) {
  CLI::App app("", "varve");
  app.require_subcommand(1);
  CLI::App* run = app.add_subcommand("run", "");
  int threads = 0;
  std::string prompt;
  std::string rung;
  run->add_option("-t,--threads", threads);
  run->add_option("-p,--prompt", prompt);
  run->add_option("--cache-type-k", rung);
  app.add_subcommand("bench", "")->add_subcommand("decode", "");
  std::vector<const char*> argv = {"varve"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  const std::vector<std::string> arguments =
      WithLongNames(static_cast<int>(argv.size()), argv.data());
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return DescribeUsageError(app, arguments, error);
  }
  return {};
}

TEST(UsageError, UnknownOptionsComeInOrderWithWhatWasMeant) {
  EXPECT_EQ(ErrorOf({"run", "--promt", "x", "--treads=3", "--zebra"}),
            "varve: varve run: unknown option --promt; did you mean \"--prompt\"?\n"
            "varve: varve run: unexpected argument \"x\"\n"
            "varve: varve run: unknown option --treads=3; did you mean \"--threads\"?\n"
            "varve: varve run: unknown option --zebra\n"
            "varve: `varve run --help` tells more");
}

TEST(UsageError, UnknownCommandsAreNamed) {
  EXPECT_EQ(
      ErrorOf({"rnu"}),
      "varve: unknown command \"rnu\"; did you mean \"run\"?\nvarve: `varve --help` tells more");
  EXPECT_EQ(ErrorOf({"bench", "decoed"}),
            "varve: unknown command \"decoed\"; did you mean \"decode\"?\n"
            "varve: `varve bench --help` tells more");
  EXPECT_EQ(ErrorOf({"zebra"}),
            "varve: unknown command \"zebra\"\nvarve: `varve --help` tells more");
}

TEST(UsageError, BadValuesKeepTheirReason) {
  const std::string error = ErrorOf({"run", "-t", "x"});
  EXPECT_NE(error.find("--threads"), std::string::npos) << error;
  EXPECT_TRUE(error.ends_with("\nvarve: `varve run --help` tells more")) << error;
  EXPECT_NE(ErrorOf({}).find("subcommand"), std::string::npos);
}

TEST(UsageError, ALimitIsNotSpeltOutInHundredsOfDigits) {
  CLI::App app("test", "varve");
  double value = 0;
  app.add_option("--seed", value)->check(NotNegative());
  EXPECT_LT(app.help().size(), 400u);
  app.parse("--seed 3.5");
  EXPECT_EQ(value, 3.5);
  for (const auto& [text, message] :
       {std::pair("-1", "\"-1\" is below 0"), {"x", "\"x\" is not a number"}}) {
    try {
      app.parse(std::string("--seed=") + text);
      ADD_FAILURE() << text;
    } catch (const CLI::ParseError& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
      EXPECT_LT(std::string(error.what()).size(), 80u);
    }
  }
}

TEST(UsageError, ShortNamesOfSeveralLettersAreTheLongOnes) {
  EXPECT_EQ(ErrorOf({"run", "-ctk", "q8_0", "-t", "2"}), "");
  const char* const argv[] = {"varve", "run", "-ctv", "-cnv", "-p", "-ctx", "-i"};
  EXPECT_EQ(WithLongNames(7, argv),
            (std::vector<std::string>{"run", "--cache-type-v", "--chat", "-p", "-ctx", "--chat"}));
  EXPECT_TRUE(WithLongNames(1, argv).empty());
}

}  // namespace usage_error_test
}  // namespace varve::cli
