#include "cli/report/command_words.h"

#include <gtest/gtest.h>

#include <string>

#include <CLI/CLI.hpp>

namespace varve::cli {
namespace command_words_test {

class CommandWordsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    CLI::App* paint = app_.add_subcommand("paint", "Paint a wall, don't wait");
    paint->add_option("-c,--colour", text_, "Of the wall: any")
        ->check(CLI::IsMember({"red", "blue"}));
    paint->add_option("--can", text_, "Where the paint is")->type_name("FILE");
    paint->add_flag("--twice", flag_, "Two coats");
    paint->add_option("WALL", text_, "Which one")->required();
    paint->add_flag("--secret", flag_, "")->group("");
    paint->footer("Examples:\n  house paint north\n.not a request");
    app_.add_subcommand("roof", "Things above")->add_subcommand("mend", "Mend it");
  }

  std::string text_;
  bool flag_ = false;
  CLI::App app_{"A house", "house"};
};

TEST_F(CommandWordsTest, AreThoseOfTheDefinitions) {
  const CommandWords words = WordsOf(app_);
  ASSERT_EQ(words.commands.size(), 2u);
  const CommandWords& paint = words.commands[0];
  EXPECT_EQ(paint.path, "house paint");
  ASSERT_EQ(paint.options.size(), 5u);  // --help, too; nothing that is hidden
  EXPECT_EQ(paint.options[1].names, (std::vector<std::string>{"-c", "--colour"}));
  EXPECT_EQ(paint.options[1].choices, (std::vector<std::string>{"red", "blue"}));
  EXPECT_EQ(paint.options[2].value, "FILE");
  EXPECT_TRUE(paint.options[2].choices.empty());
  EXPECT_EQ(paint.options[3].value, "");
  EXPECT_TRUE(paint.options[4].is_positional);
  EXPECT_EQ(words.commands[1].commands[0].path, "house roof mend");
}

TEST_F(CommandWordsTest, EveryShellGetsThem) {
  const CommandWords words = WordsOf(app_);
  const std::string bash = BashCompletions(words);
  EXPECT_NE(bash.find("-c | --colour) values='red blue' takes_value=1"), std::string::npos) << bash;
  EXPECT_NE(bash.find("'house paint' | 'house roof' | 'house roof mend')"), std::string::npos);
  const std::string zsh = ZshCompletions(words);
  EXPECT_NE(zsh.find("#compdef house"), std::string::npos);
  EXPECT_NE(zsh.find("'paint:Paint a wall, don'\\''t wait'"), std::string::npos) << zsh;
  const std::string fish = FishCompletions(words);
  EXPECT_NE(fish.find("-s c -l colour -x -a 'red blue'"), std::string::npos) << fish;
  for (const std::string& text : {bash, zsh, fish})
    EXPECT_EQ(text.find("secret"), std::string::npos);
}

TEST_F(CommandWordsTest, TheManualPageHasNoRequestsOfItsTexts) {
  const std::string page = ManualPage(WordsOf(app_), "house 1.0-2");
  EXPECT_TRUE(page.starts_with(".TH HOUSE 1 \"\" \"house 1.0\\-2\"")) << page;
  EXPECT_NE(page.find("\\fB\\-c\\fR, \\fB\\-\\-colour\\fR \\fIred|blue\\fR"), std::string::npos);
  EXPECT_NE(page.find("\n\\&.not a request"), std::string::npos);
}

}  // namespace command_words_test
}  // namespace varve::cli
