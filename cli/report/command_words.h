// The commands and options of the program as plain data, taken from the definitions that parse
// them: what completions and the manual page are made of. Pure functions.

#ifndef VARVE_CLI_REPORT_COMMAND_WORDS_H_
#define VARVE_CLI_REPORT_COMMAND_WORDS_H_

#include <functional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace varve::cli {

struct OptionWords {
  std::vector<std::string> names;    // "-m", "--model"; of a positional argument "FILE"
  std::string value;                 // what comes behind it, "FILE"; empty: a flag
  std::vector<std::string> choices;  // the values that there are; empty: any
  std::string description;
  bool is_positional = false;
};

struct CommandWords {
  std::string path;  // "varve bench decode"
  std::string name;  // "decode"
  std::string description;
  std::string footer;  // examples
  std::vector<OptionWords> options;
  std::vector<CommandWords> commands;
};

// Of the app and all that is below it. Hidden ones are left out.
CommandWords WordsOf(const CLI::App& app);

// Calls `visit` for the command and all below it, parents first.
void ForEachCommand(const CommandWords& command,
                    const std::function<void(const CommandWords&)>& visit);

// The file that makes a shell complete the command line.
std::string BashCompletions(const CommandWords& program);
std::string ZshCompletions(const CommandWords& program);
std::string FishCompletions(const CommandWords& program);

// A page for man(1), in roff. `version`: "varve 0.1.0".
std::string ManualPage(const CommandWords& program, const std::string& version);

}  // namespace varve::cli

#endif  // VARVE_CLI_REPORT_COMMAND_WORDS_H_
