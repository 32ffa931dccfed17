#include "cli/run/chat_input.h"

#include <histedit.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <filesystem>
#include <iostream>

#include "cli/interrupt.h"
#include "cli/report/output.h"

namespace varve::cli {
namespace {

constexpr const char* kPrompt = "> ";
constexpr const char* kMorePrompt = "… ";
constexpr const char* kQuotes = "\"\"\"";
constexpr int kMaxHistoryLines = 1000;

// One character for the editor. Its own reader goes on after a signal; a conversation must end.
int ReadCharacter(EditLine* /*editor*/, wchar_t* character) {
  std::mbstate_t state{};
  while (true) {
    char byte = 0;
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR && !InterruptScope::interrupted()) continue;
    if (got <= 0) return 0;
    const size_t size = std::mbrtowc(character, &byte, 1, &state);
    if (size == static_cast<size_t>(-2)) continue;  // not all of it yet
    if (size == static_cast<size_t>(-1)) {
      state = {};
      continue;  // no character
    }
    return 1;
  }
}

}  // namespace

std::string HistoryPath() {
  if (const char* path = std::getenv("VARVE_HISTORY")) return path;
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state != '\0') return std::string(state) + "/varve/history";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return std::string(home) + "/.local/state/varve/history";
}

class ChatInput::Editor {
 public:
  Editor();
  ~Editor();
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  std::optional<std::string> ReadLine(const char* prompt);

 private:
  static char* Prompt(EditLine* editor);
  void Remember(const char* line);

  EditLine* editor_;
  History* history_;
  std::string path_ = HistoryPath();
  const char* prompt_ = kPrompt;
};

ChatInput::Editor::Editor()
    : editor_(el_init("varve", stdin, stderr, stderr)), history_(history_init()) {
  HistEvent event;
  history(history_, &event, H_SETSIZE, kMaxHistoryLines);
  history(history_, &event, H_SETUNIQUE, 1);
  if (!path_.empty()) history(history_, &event, H_LOAD, path_.c_str());
  el_set(editor_, EL_CLIENTDATA, this);
  el_set(editor_, EL_PROMPT, &Editor::Prompt);
  el_set(editor_, EL_EDITOR, "emacs");
  el_set(editor_, EL_HIST, history, history_);
  el_set(editor_, EL_GETCFN, ReadCharacter);
  el_set(editor_, EL_SIGNAL, 0);
  el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
}

ChatInput::Editor::~Editor() {
  el_end(editor_);
  history_end(history_);
}

char* ChatInput::Editor::Prompt(EditLine* editor) {
  void* self = nullptr;
  el_get(editor, EL_CLIENTDATA, &self);
  // The library takes a char* and does not write to it.
  return const_cast<char*>(static_cast<Editor*>(self)->prompt_);  // NOLINT
}

// Written after each line: a terminal that closes loses none.
void ChatInput::Editor::Remember(const char* line) {
  HistEvent event;
  history(history_, &event, H_ENTER, line);
  if (path_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  const mode_t before = umask(077);  // what people said is theirs alone
  history(history_, &event, H_SAVE, path_.c_str());
  umask(before);
}

std::optional<std::string> ChatInput::Editor::ReadLine(const char* prompt) {
  prompt_ = prompt;
  int count = 0;
  const char* line = el_gets(editor_, &count);
  if (line == nullptr || count <= 0 || InterruptScope::interrupted()) return std::nullopt;
  std::string text(line, static_cast<size_t>(count));
  if (text.find_first_not_of(" \t\n") != std::string::npos) Remember(line);
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

ChatInput::ChatInput() {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDERR_FILENO) == 0) return;
  // The editor counts characters, so it must know that they are UTF-8.
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  editor_ = std::make_unique<Editor>();
}

ChatInput::~ChatInput() = default;

std::optional<std::string> ChatInput::ReadLine(const char* prompt) {
  if (editor_) return editor_->ReadLine(prompt);
  WriteNote(prompt);
  std::fflush(stderr);
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  return line;
}

std::optional<std::string> ChatInput::Next() {
  std::optional<std::string> line = ReadLine(kPrompt);
  if (!line) return line;
  std::string message;
  if (line->starts_with(kQuotes)) {
    std::string part = line->substr(std::strlen(kQuotes));
    while (!part.ends_with(kQuotes)) {
      message += part + (message.empty() && part.empty() ? "" : "\n");
      line = ReadLine(kMorePrompt);
      if (!line) return line;
      part = *line;
    }
    message += part.substr(0, part.size() - std::strlen(kQuotes));
    if (message.ends_with('\n')) message.pop_back();
    return message;
  }
  while (line->ends_with('\\')) {
    message += line->substr(0, line->size() - 1) + "\n";
    line = ReadLine(kMorePrompt);
    if (!line) return line;
  }
  return message + *line;
}

}  // namespace varve::cli
