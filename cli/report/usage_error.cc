#include "cli/report/usage_error.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/nearest_word.h"
#include "base/quoted.h"

namespace varve::cli {
namespace {

constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {
    {"-ctk", "--cache-type-k"}, {"-ctv", "--cache-type-v"}, {"-cnv", "--chat"}, {"-i", "--chat"}};

// The innermost subcommand that was named.
const CLI::App& NamedCommand(const CLI::App& app) {
  const CLI::App* named = &app;
  while (!named->get_subcommands().empty()) named = named->get_subcommands().front();
  return *named;
}

// "varve bench decode"
std::string PathOf(const CLI::App& command) {
  std::string path = command.get_name();
  for (const CLI::App* up = command.get_parent(); up != nullptr; up = up->get_parent()) {
    path = fmt::format("{} {}", up->get_name(), path);
  }
  return path;
}

// Subcommands, or options with their dashes.
std::vector<std::string> Known(const CLI::App& command, bool options) {
  std::vector<std::string> names;
  if (!options) {
    for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(sub->get_name());
    }
    return names;
  }
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

std::string Suggestion(const CLI::App& command, std::string_view word) {
  const std::vector<std::string> names = Known(command, word.starts_with('-'));
  const std::vector<std::string_view> views(names.begin(), names.end());
  return DidYouMean(word.substr(0, word.find('=')), views);
}

// The first word behind the names of `depth` commands that is no option: what was meant as the next
// one.
std::string_view WordBehind(size_t depth, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument.starts_with('-')) continue;
    if (depth-- == 0) return argument;
  }
  return {};
}

}  // namespace

std::vector<std::string> WithLongNames(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  for (std::string& argument : arguments) {
    for (const auto& [typed, known] : kLongNames) {
      if (argument == typed) argument = known;
    }
  }
  return arguments;
}

const CLI::Validator& NotNegative() {
  static const CLI::Validator validator(
      [](std::string& text) {
        double value = 0;
        if (!CLI::detail::lexical_cast(text, value)) return Quoted(text) + " is not a number";
        return value >= 0 ? std::string() : Quoted(text) + " is below 0";
      },
      "0 or more");
  return validator;
}

std::string DescribeUsageError(const CLI::App& app, const std::vector<std::string>& arguments,
                               const CLI::ParseError& error) {
  const CLI::App& command = NamedCommand(app);
  const std::string path = PathOf(command);
  const std::string more = fmt::format("\nvarve: `{} --help` tells more", path);
  const auto depth = static_cast<size_t>(std::count(path.begin(), path.end(), ' '));
  const std::string_view word = WordBehind(depth, arguments);
  if (!Known(command, false).empty() && !word.empty()) {
    return fmt::format("varve: unknown command {}{}{}", Quoted(word), Suggestion(command, word),
                       more);
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) {
    return fmt::format("varve: {}{}", error.what(), more);
  }
  // What is left over, as it was typed.
  std::vector<std::string> left = app.remaining(true);
  std::string lines;
  for (const std::string& argument : arguments) {
    const auto found = std::find(left.begin(), left.end(), argument);
    if (found == left.end()) continue;
    left.erase(found);
    const bool is_option = argument.starts_with('-') && argument.size() > 1;
    lines += fmt::format("{}varve: {}: {} {}{}", lines.empty() ? "" : "\n", path,
                         is_option ? "unknown option" : "unexpected argument",
                         is_option ? argument : Quoted(argument),
                         is_option ? Suggestion(command, argument) : "");
  }
  return (lines.empty() ? fmt::format("varve: {}", error.what()) : lines) + more;
}

}  // namespace varve::cli
