#include "runtime/eval/english_spelling.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

#include "runtime/embedded_model.h"

namespace varve {
namespace {

using SpellingTable = std::map<std::string, std::string, std::less<>>;

std::string_view TakeUntil(char separator, std::string_view& text) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

// A line of the list: "cent|re|er - s".
void AddLine(std::string_view line, SpellingTable& table) {
  const std::string stem(TakeUntil('|', line));
  const std::string british = stem + std::string(TakeUntil('|', line));
  const std::string american = stem + std::string(TakeUntil(' ', line));
  while (!line.empty()) {
    const std::string_view ending = TakeUntil(' ', line);
    const std::string shown(ending == "-" ? "" : ending);
    table[british + shown] = american + shown;
  }
}

SpellingTable MakeTable() {
  SpellingTable table;
  std::string_view text = EmbeddedEnglishSpelling();
  while (!text.empty()) AddLine(TakeUntil('\n', text), table);
  return table;
}

}  // namespace

std::string_view AmericanSpelling(std::string_view word) {
  static const SpellingTable table = MakeTable();
  const auto found = table.find(word);
  return found == table.end() ? word : std::string_view(found->second);
}

}  // namespace varve
