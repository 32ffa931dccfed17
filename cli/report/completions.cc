// Completions for three shells. Each script finds out which command the cursor is in from the words
// before it, and offers that command's subcommands, options and values.

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "cli/report/command_words.h"

namespace varve::cli {
namespace {

std::string Joined(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += between;
    text += word;
  }
  return text;
}

// In single quotes, for a shell; the first line of what may have several.
std::string Quote(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text.substr(0, text.find('\n'))) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string Escaped(std::string_view text, std::string_view special) {
  std::string escaped;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

// "varve run" | "varve bench" | …: all but the program itself.
std::string Places(const CommandWords& program, std::string_view between) {
  std::vector<std::string> places;
  ForEachCommand(program, [&](const CommandWords& command) {
    if (&command != &program) places.push_back(Quote(command.path));
  });
  return Joined(places, between);
}

}  // namespace

std::string BashCompletions(const CommandWords& program) {
  std::string cases;
  ForEachCommand(program, [&](const CommandWords& command) {
    std::vector<std::string> options;
    std::vector<std::string> commands;
    std::string values;
    for (const OptionWords& option : command.options) {
      if (option.is_positional) continue;
      options.insert(options.end(), option.names.begin(), option.names.end());
      if (option.value.empty()) continue;
      values += fmt::format("        {}) values={} takes_value=1 ;;\n", Joined(option.names, " | "),
                            Quote(Joined(option.choices, " ")));
    }
    for (const CommandWords& sub : command.commands) commands.push_back(sub.name);
    cases += fmt::format("    {})\n      options={} commands={}\n", Quote(command.path),
                         Quote(Joined(options, " ")), Quote(Joined(commands, " ")));
    if (!values.empty()) {
      cases += fmt::format("      case \"$previous\" in\n{}      esac\n", values);
    }
    cases += "      ;;\n";
  });
  return fmt::format(
      R"(# bash completion for {0}, made by `{0} completions bash`
_{0}() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD - 1]}}"
  local place='{0}' options='' commands='' values='' takes_value='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$place ${{COMP_WORDS[i]}}" in
      {1}) place="$place ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$place" in
{2}  esac
  if [[ -n "$takes_value" ]]; then
    # Without values of its own an option takes a file, which -o default offers.
    [[ -z "$values" ]] || COMPREPLY=($(compgen -W "$values" -- "$current"))
  elif [[ "$current" == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  else
    COMPREPLY=($(compgen -W "$commands" -- "$current"))
  fi
}}
complete -o default -F _{0} {0}
)",
      program.name, Places(program, " | "), cases);
}

std::string ZshCompletions(const CommandWords& program) {
  const auto described = [](const std::string& name, const std::string& description) {
    return Quote(Escaped(name, ":") + ":" + description);
  };
  std::string cases;
  ForEachCommand(program, [&](const CommandWords& command) {
    std::string options;
    std::string commands;
    std::string values;
    for (const OptionWords& option : command.options) {
      if (option.is_positional) continue;
      for (const std::string& name : option.names)
        options += "\n        " + described(name, option.description);
      if (option.value.empty()) continue;
      values += fmt::format("        {}) takes_value=1; values=({}) ;;\n",
                            Joined(option.names, " | "), Joined(option.choices, " "));
    }
    for (const CommandWords& sub : command.commands)
      commands += "\n        " + described(sub.name, sub.description);
    cases += fmt::format("    ({})\n      options=({})\n      commands=({})\n", Quote(command.path),
                         options, commands);
    if (!values.empty()) {
      cases += fmt::format("      case \"${{words[CURRENT-1]}}\" in\n{}      esac\n", values);
    }
    cases += "      ;;\n";
  });
  return fmt::format(
      R"(#compdef {0}
# zsh completion for {0}, made by `{0} completions zsh`
_{0}() {{
  local place='{0}' takes_value='' i
  local -a options commands values
  for ((i = 2; i < CURRENT; i++)); do
    case "$place ${{words[i]}}" in
      ({1}) place="$place ${{words[i]}}" ;;
    esac
  done
  case "$place" in
{2}  esac
  if [[ -n "$takes_value" ]]; then
    if (( $#values )); then compadd -a values; else _files; fi
  elif [[ "$PREFIX" == -* ]]; then
    _describe -o option options
  elif (( $#commands )); then
    _describe command commands
  else
    _files
  fi
}}
if [[ "$funcstack[1]" == "_{0}" ]]; then _{0} "$@"; else compdef _{0} {0}; fi
)",
      program.name, Places(program, " | "), cases);
}

std::string FishCompletions(const CommandWords& program) {
  std::string text = fmt::format(
      R"(# fish completion for {0}, made by `{0} completions fish`
function __{0}_at
    set -l place {0}
    for word in (commandline -opc)[2..-1]
        switch "$place $word"
            case {1}
                set place "$place $word"
        end
    end
    test "$place" = "$argv[1]"
end
)",
      program.name, Places(program, " "));
  ForEachCommand(program, [&](const CommandWords& command) {
    const std::string at =
        fmt::format("complete -c {} -n {}", program.name,
                    Quote(fmt::format("__{}_at '{}'", program.name, command.path)));
    for (const CommandWords& sub : command.commands)
      text += fmt::format("{} -f -a {} -d {}\n", at, sub.name, Quote(sub.description));
    for (const OptionWords& option : command.options) {
      if (option.is_positional) continue;
      std::string line = at;
      for (const std::string& name : option.names) {
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (!option.choices.empty()) {
        line += fmt::format(" -x -a {}", Quote(Joined(option.choices, " ")));
      } else if (!option.value.empty()) {
        line += " -r";
      }
      text += fmt::format("{} -d {}\n", line, Quote(option.description));
    }
  });
  return text;
}

}  // namespace varve::cli
