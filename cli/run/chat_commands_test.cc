#include "cli/run/chat_commands.h"

#include <gtest/gtest.h>

namespace varve::cli {
namespace chat_commands_test {

TEST(ChatCommands, TakeAnArgumentWhereTheyHaveOne) {
  EXPECT_EQ(ParseChatCommand("/save  my talk.varve ")->argument, "my talk.varve");
  EXPECT_EQ(ParseChatCommand("/save")->name, "save");
  EXPECT_EQ(ParseChatCommand("/load").status().message(), "/load needs FILE");
  EXPECT_EQ(ParseChatCommand("/clear all").status().message(), "/clear takes no argument");
  EXPECT_TRUE(IsChatCommand("/help"));
  EXPECT_FALSE(IsChatCommand(" /usr/bin is a folder"));
}

TEST(ChatCommands, AnUnknownOneSaysWhatWasLikelyMeant) {
  const std::string message = ParseChatCommand("/stast").status().message();
  EXPECT_NE(message.find("did you mean \"/stats\"?"), std::string::npos) << message;
  EXPECT_NE(message.find("a blank in front makes it a message"), std::string::npos) << message;
}

TEST(ChatCommands, HelpHasALineForEach) {
  for (const char* name : {"/help", "/save", "/load", "/plan", "/stats", "/clear", "/exit"}) {
    EXPECT_NE(ChatHelp().find(name), std::string::npos) << name;
    EXPECT_TRUE(
        ParseChatCommand(std::string(name) + (std::string(name) == "/load" ? " x" : "")).ok());
  }
}

}  // namespace chat_commands_test
}  // namespace varve::cli
