#include "cli/run/chat_commands.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "base/nearest_word.h"
#include "base/quoted.h"

namespace varve::cli {
namespace {

struct KnownCommand {
  std::string_view name;
  std::string_view argument;  // "[…]": may be missing; empty: takes none
  std::string_view help;
};

constexpr KnownCommand kCommands[] = {
    {"/help", "", "this list"},
    {"/save", "[FILE]", "keep cache and tokens in a file; without a name in that of --save"},
    {"/load", "FILE", "go on with a conversation from a file, instead of this one"},
    {"/plan", "[PLAN]", "the plan of the cache; with another one the text is read again into it"},
    {"/stats", "", "memory, tokens and speed so far"},
    {"/clear", "", "begin anew; the system message stays"},
    {"/exit", "", "end, as Ctrl-D does"},
};

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace

bool IsChatCommand(std::string_view line) { return line.starts_with('/'); }

Result<ChatCommand> ParseChatCommand(std::string_view line) {
  const size_t end = std::min(line.find_first_of(" \t"), line.size());
  const std::string_view word = line.substr(0, end);
  const std::string_view argument = Trim(line.substr(end));
  std::vector<std::string_view> names;
  for (const KnownCommand& known : kCommands) {
    names.push_back(known.name);
    if (known.name != word) continue;
    if (known.argument.empty() && !argument.empty()) {
      return InvalidArgument(fmt::format("{} takes no argument", word));
    }
    if (argument.empty() && !known.argument.empty() && known.argument[0] != '[') {
      return InvalidArgument(fmt::format("{} needs {}", word, known.argument));
    }
    return ChatCommand{std::string(word.substr(1)), std::string(argument)};
  }
  return InvalidArgument(
      fmt::format("unknown command {}{}; /help lists them, and a blank in front makes it a message",
                  Quoted(word), DidYouMean(word, names)));
}

std::string ChatHelp() {
  std::string text;
  for (const KnownCommand& known : kCommands) {
    text +=
        fmt::format("  {:<14}{}\n", fmt::format("{} {}", known.name, known.argument), known.help);
  }
  return text +
         "  A line that ends in \\ goes on in the next; lines between \"\"\" and \"\"\" are one "
         "message.\n  Ctrl-C stops an answer.\n";
}

}  // namespace varve::cli
