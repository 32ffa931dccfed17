#include "base/nearest_word.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace varve {
namespace {

constexpr size_t kMaxLetters = 64;  // longer words are nobody's slip
constexpr int kMostMistakes = 2;

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

int TypingDistance(std::string_view a, std::string_view b) {
  // Rows of the usual table: the last two, and the one in work.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = Lower(a[i - 1]) == Lower(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && Lower(a[i - 1]) == Lower(b[j - 2]) &&
                           Lower(a[i - 2]) == Lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string_view NearestWord(std::string_view word, std::span<const std::string_view> known) {
  if (word.size() > kMaxLetters) return {};
  std::string_view nearest;
  int least = std::min(kMostMistakes, (static_cast<int>(word.size()) + 3) / 4) + 1;
  for (const std::string_view candidate : known) {
    if (candidate.size() > kMaxLetters) continue;
    const int distance = TypingDistance(word, candidate);
    // A word of which nothing is left was not meant.
    if (distance < least && distance < static_cast<int>(candidate.size())) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string DidYouMean(std::string_view word, std::span<const std::string_view> known) {
  const std::string_view nearest = NearestWord(word, known);
  return nearest.empty() ? std::string() : fmt::format("; did you mean \"{}\"?", nearest);
}

}  // namespace varve
