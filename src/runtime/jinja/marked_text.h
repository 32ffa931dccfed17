// MarkedText: a text that knows which of its bytes somebody said, and which the template wrote.
//
// A chat template puts the words of people between its own special tokens. What people said must
// never become such a token, so every operation of the interpreter carries the marks along. A
// value; as thread-safe as a std::string.

#ifndef VARVE_RUNTIME_JINJA_MARKED_TEXT_H_
#define VARVE_RUNTIME_JINJA_MARKED_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/tokenizer/text_range.h"

namespace varve::jinja {

class MarkedText {
 public:
  MarkedText() = default;
  explicit MarkedText(std::string text) : text_(std::move(text)) {}
  // All of it was said.
  static MarkedText Said(std::string text);

  const std::string& text() const { return text_; }
  // Ascending and apart; none is empty.
  const std::vector<TextRange>& said() const { return said_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }

  void Append(const MarkedText& other) { AppendPart(other, 0, other.size()); }
  void Append(std::string_view written) { text_ += written; }
  void AppendPart(const MarkedText& other, size_t begin, size_t end);
  MarkedText Part(size_t begin, size_t end) const;
  // The same marks on a text of the same length.
  MarkedText WithBytes(std::string text) const;

 private:
  std::string text_;
  std::vector<TextRange> said_;
};

}  // namespace varve::jinja

#endif  // VARVE_RUNTIME_JINJA_MARKED_TEXT_H_
