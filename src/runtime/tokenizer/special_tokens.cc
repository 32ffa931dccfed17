#include "runtime/tokenizer/special_tokens.h"

#include <algorithm>

namespace varve {

SpecialTokens::SpecialTokens(std::vector<std::pair<std::string_view, int32_t>> tokens)
    : tokens_(std::move(tokens)) {
  // std::string_view compares bytes as unsigned.
  std::sort(tokens_.begin(), tokens_.end());
  for (const auto& [text, id] : tokens_) starts_[static_cast<unsigned char>(text[0])] = true;
}

// Narrows the sorted list byte by byte to the tokens that agree with the text so far; a token that
// ends here is the first of them.
TextFragment SpecialTokens::Match(std::string_view text) const {
  TextFragment best;
  if (text.empty() || !starts_[static_cast<unsigned char>(text[0])]) return best;
  auto first = tokens_.begin();
  auto last = tokens_.end();
  for (size_t depth = 0; first != last; ++depth) {
    if (first->first.size() == depth) {
      best = {text.substr(0, depth), first->second};
      ++first;
    }
    if (depth == text.size()) break;
    const auto byte = static_cast<unsigned char>(text[depth]);
    const auto at_depth = [depth](const auto& token) {
      return static_cast<unsigned char>(token.first[depth]);
    };
    first = std::partition_point(first, last, [&](const auto& t) { return at_depth(t) < byte; });
    last = std::partition_point(first, last, [&](const auto& t) { return at_depth(t) == byte; });
  }
  return best;
}

std::vector<TextFragment> SpecialTokens::Split(std::string_view text) const {
  std::vector<TextFragment> fragments;
  size_t plain_begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const TextFragment match = Match(text.substr(pos));
    if (match.id < 0) {
      ++pos;
      continue;
    }
    if (pos > plain_begin) fragments.push_back({text.substr(plain_begin, pos - plain_begin), -1});
    fragments.push_back(match);
    pos += match.text.size();
    plain_begin = pos;
  }
  if (plain_begin < text.size()) fragments.push_back({text.substr(plain_begin), -1});
  return fragments;
}

}  // namespace varve
