#include "runtime/jinja/marked_text.h"

#include <algorithm>

namespace varve::jinja {

MarkedText MarkedText::Said(std::string text) {
  MarkedText marked(std::move(text));
  if (!marked.empty()) marked.said_.push_back({0, marked.size()});
  return marked;
}

void MarkedText::AppendPart(const MarkedText& other, size_t begin, size_t end) {
  const size_t shift = text_.size();
  text_.append(other.text_, begin, end - begin);
  for (const TextRange& range : other.said_) {
    const size_t first = std::max(range.begin, begin);
    const size_t last = std::min(range.end, end);
    if (first >= last) continue;
    const TextRange moved{first - begin + shift, last - begin + shift};
    if (!said_.empty() && said_.back().end == moved.begin) {
      said_.back().end = moved.end;
    } else {
      said_.push_back(moved);
    }
  }
}

MarkedText MarkedText::Part(size_t begin, size_t end) const {
  MarkedText part;
  part.AppendPart(*this, begin, end);
  return part;
}

MarkedText MarkedText::WithBytes(std::string text) const {
  MarkedText marked = *this;
  marked.text_ = std::move(text);
  return marked;
}

}  // namespace varve::jinja
