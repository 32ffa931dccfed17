// What a person at a conversation can ask of the program itself: lines that begin with a slash.

#ifndef VARVE_CLI_RUN_CHAT_COMMANDS_H_
#define VARVE_CLI_RUN_CHAT_COMMANDS_H_

#include <string>
#include <string_view>

#include "varve/status.h"

namespace varve::cli {

struct ChatCommand {
  std::string name;      // "save", without the slash
  std::string argument;  // what follows, without blanks around it
};

// A line that is a command for the program; a blank in front makes a message of it.
bool IsChatCommand(std::string_view line);

// An error for an unknown name, with the one that was likely meant, and for an argument that is
// missing.
Result<ChatCommand> ParseChatCommand(std::string_view line);

// A line for each.
std::string ChatHelp();

}  // namespace varve::cli

#endif  // VARVE_CLI_RUN_CHAT_COMMANDS_H_
