#include "cli/report/command_words.h"

#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "rungs/rung_table.h"

namespace varve::cli {
namespace {

// "TEXT:{cpu,cuda}" has the choices cpu and cuda.
std::vector<std::string> ChoicesIn(std::string_view type) {
  const size_t open = type.find('{');
  const size_t close = type.find('}', open);
  std::vector<std::string> choices;
  if (open == std::string_view::npos || close == std::string_view::npos) return choices;
  for (size_t begin = open + 1; begin <= close;) {
    const size_t end = std::min(type.find(',', begin), close);
    choices.emplace_back(type.substr(begin, end - begin));
    begin = end + 1;
  }
  return choices;
}

OptionWords WordsOf(const CLI::Option& option) {
  OptionWords words;
  words.is_positional = option.get_positional();
  for (const std::string& name : option.get_snames()) words.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) words.names.push_back("--" + name);
  if (words.is_positional) words.names = {option.get_name(/*positional=*/true)};
  words.description = option.get_description();
  if (option.get_expected_max() == 0 || option.get_type_size_max() == 0) return words;
  const std::string type = option.get_type_name();
  words.choices = ChoicesIn(type);
  words.value = type.substr(0, type.find(':'));
  if (words.value.empty() || words.value.front() == '{') words.value = "VALUE";
  if (words.names.back() == "--kv") {
    for (const std::string_view rung : RungNames()) words.choices.emplace_back(rung);
  }
  return words;
}

CommandWords WordsBelow(const CLI::App& app, const std::string& above) {
  CommandWords words;
  words.name = app.get_name();
  words.path = above.empty() ? words.name : fmt::format("{} {}", above, words.name);
  words.description = app.get_description();
  words.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) words.options.push_back(WordsOf(*option));
  }
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!sub->get_group().empty()) words.commands.push_back(WordsBelow(*sub, words.path));
  }
  return words;
}

}  // namespace

CommandWords WordsOf(const CLI::App& app) { return WordsBelow(app, ""); }

void ForEachCommand(const CommandWords& command,
                    const std::function<void(const CommandWords&)>& visit) {
  visit(command);
  for (const CommandWords& sub : command.commands) ForEachCommand(sub, visit);
}

}  // namespace varve::cli
