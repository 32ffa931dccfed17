// The manual page, from the same definitions as --help.

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "cli/report/command_words.h"
#include "cli/report/output.h"

namespace varve::cli {
namespace {

// Text for roff: backslashes and dashes as themselves, no line that begins as a request.
std::string Roff(std::string_view text) {
  std::string out;
  bool at_line_start = true;
  for (const char c : text) {
    if (at_line_start && (c == '.' || c == '\'')) out += "\\&";
    at_line_start = c == '\n';
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string OptionText(const OptionWords& option) {
  std::string names;
  for (const std::string& name : option.names) {
    if (!names.empty()) names += ", ";
    names += fmt::format("\\fB{}\\fR", Roff(name));
  }
  std::string value = option.value;
  if (!option.choices.empty() && option.choices.size() <= 6) {
    value.clear();
    for (const std::string& choice : option.choices) value += (value.empty() ? "" : "|") + choice;
  }
  if (!value.empty() && !option.is_positional) names += fmt::format(" \\fI{}\\fR", Roff(value));
  return fmt::format(".TP\n{}\n{}\n", names, Roff(option.description));
}

std::string CommandText(const CommandWords& command) {
  std::string text = fmt::format(".SS {}\n{}.\n", Roff(command.path), Roff(command.description));
  for (const OptionWords& option : command.options) {
    if (option.names.back() != "--help") text += OptionText(option);
  }
  if (!command.footer.empty()) text += fmt::format(".PP\n.nf\n{}\n.fi\n", Roff(command.footer));
  return text;
}

}  // namespace

std::string ManualPage(const CommandWords& program, const std::string& version) {
  std::string upper;
  for (const char c : program.name) upper += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  std::string text = fmt::format(
      ".TH {} 1 \"\" \"{}\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n\\fICOMMAND\\fR "
      "[\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n{}\n.SH COMMANDS\n",
      upper, Roff(version), Roff(program.name), Roff(program.description), Roff(program.name),
      Roff(program.footer));
  ForEachCommand(program, [&](const CommandWords& command) {
    if (&command != &program) text += CommandText(command);
  });
  text += ".SH EXIT STATUS\n";
  for (const ExitCodeMeaning& exit : kExitCodes)
    text += fmt::format(".TP\n.B {}\n{}\n", exit.code, Roff(exit.meaning));
  return text + fmt::format(".TP\n.B 128 + N\n{}\n", Roff(kInterruptedMeaning));
}

}  // namespace varve::cli
