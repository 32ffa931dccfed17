#include "runtime/eval/word_error.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/utf8.h"

namespace varve {
namespace {

constexpr std::string_view kBlanks = " \t\r\n\v\f";

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = text.find_first_not_of(kBlanks);
  while (begin != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(kBlanks, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kBlanks, end);
  }
  return words;
}

std::vector<std::string_view> Characters(std::string_view text) {
  std::vector<std::string_view> characters;
  for (std::string_view word : Words(text)) {
    if (!characters.empty()) characters.emplace_back(" ");
    while (!word.empty()) {
      const size_t bytes = ReadUtf8(word).bytes;
      characters.push_back(word.substr(0, bytes));
      word.remove_prefix(bytes);
    }
  }
  return characters;
}

// Row r of the table has the changes from the first r pieces of the reference to the first h of the
// hypothesis; one row is kept.
EditCounts Align(const std::vector<std::string_view>& reference,
                 const std::vector<std::string_view>& hypothesis) {
  std::vector<EditCounts> row(hypothesis.size() + 1);
  for (size_t h = 0; h < row.size(); ++h) row[h].insertions = static_cast<int64_t>(h);
  for (size_t r = 0; r < reference.size(); ++r) {
    EditCounts diagonal = row[0];
    ++row[0].deletions;
    for (size_t h = 0; h < hypothesis.size(); ++h) {
      EditCounts best = diagonal;
      ++(reference[r] == hypothesis[h] ? best.matches : best.substitutions);
      EditCounts deleted = row[h + 1];
      ++deleted.deletions;
      if (deleted.errors() < best.errors()) best = deleted;
      EditCounts inserted = row[h];
      ++inserted.insertions;
      if (inserted.errors() < best.errors()) best = inserted;
      diagonal = std::exchange(row[h + 1], best);
    }
  }
  return row.back();
}

}  // namespace

double EditCounts::rate() const {
  return static_cast<double>(errors()) /
         static_cast<double>(std::max<int64_t>(reference_length(), 1));
}

EditCounts& EditCounts::operator+=(const EditCounts& other) {
  matches += other.matches;
  substitutions += other.substitutions;
  deletions += other.deletions;
  insertions += other.insertions;
  return *this;
}

EditCounts AlignWords(std::string_view reference, std::string_view hypothesis) {
  return Align(Words(reference), Words(hypothesis));
}

EditCounts AlignCharacters(std::string_view reference, std::string_view hypothesis) {
  return Align(Characters(reference), Characters(hypothesis));
}

}  // namespace varve
