// Messages that somebody types: one line each, or several. On a terminal lines can be edited, and
// earlier ones come back with the arrow keys (libedit); they are kept in a file from one
// conversation to the next. Elsewhere lines are read as they are.

#ifndef VARVE_CLI_RUN_CHAT_INPUT_H_
#define VARVE_CLI_RUN_CHAT_INPUT_H_

#include <memory>
#include <optional>
#include <string>

namespace varve::cli {

// The file of earlier lines: VARVE_HISTORY, or varve/history in XDG_STATE_HOME (~/.local/state).
// Empty: none is kept.
std::string HistoryPath();

class ChatInput {
 public:
  // Edits where stdin and stderr, which shows the prompt, are terminals.
  ChatInput();
  ~ChatInput();
  ChatInput(const ChatInput&) = delete;
  ChatInput& operator=(const ChatInput&) = delete;

  // The next message, without its last newline. Nothing: the input has ended, or a signal came.
  //   a \            a line that ends in a backslash goes on
  //   """            then everything up to the next one, newlines too
  std::optional<std::string> Next();

 private:
  class Editor;
  std::optional<std::string> ReadLine(const char* prompt);

  std::unique_ptr<Editor> editor_;  // null: plain lines
};

}  // namespace varve::cli

#endif  // VARVE_CLI_RUN_CHAT_INPUT_H_
