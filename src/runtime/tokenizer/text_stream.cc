// TextStream of tokenizer.h.

#include "base/utf8.h"
#include "runtime/tokenizer/tokenizer.h"

namespace varve {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Moves what is complete from `pending` to the result; bytes that can become no character any more
// are one U+FFFD per longest part that could have, as the Unicode standard recommends.
std::string TakeComplete(std::string* pending, bool at_end) {
  std::string text;
  size_t pos = 0;
  while (pos < pending->size()) {
    const std::string_view rest = std::string_view(*pending).substr(pos);
    const Utf8Sequence sequence = ReadUtf8(rest);
    if (sequence.unfinished && !at_end) break;
    text += sequence.valid ? rest.substr(0, sequence.bytes) : kReplacement;
    pos += sequence.bytes;
  }
  pending->erase(0, pos);
  return text;
}

}  // namespace

std::string TextStream::Next(int32_t id) {
  const std::string_view bytes = tokenizer_.TokenBytes(id);
  if (bytes.empty()) return std::string();
  if (first_) {
    pending_ += tokenizer_.Decode({&id, 1});
    first_ = false;
  } else {
    pending_ += bytes;
  }
  return TakeComplete(&pending_, /*at_end=*/false);
}

std::string TextStream::Finish() { return TakeComplete(&pending_, /*at_end=*/true); }

}  // namespace varve
