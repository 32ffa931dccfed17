// UTF-8: where a character ends, and what is none. The one reader for everything that takes text.
//
// A sequence is valid as the Unicode standard has it (table 3-7): no overlong form, no surrogate,
// nothing above U+10FFFF. Pure functions.

#ifndef VARVE_BASE_UTF8_H_
#define VARVE_BASE_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace varve {

// What stands at the beginning of a text.
struct Utf8Sequence {
  size_t bytes = 0;    // of the character; if invalid, of the longest part that could start one
                       // (at least 1)
  bool valid = false;  // a whole character
  bool unfinished = false;  // not valid, but more bytes could make it so
};

// `text` is not empty.
Utf8Sequence ReadUtf8(std::string_view text);

// True if the text is whole characters and nothing else; so is an empty one.
bool IsValidUtf8(std::string_view text);

// True for a byte that continues a character and begins none.
constexpr bool IsUtf8Continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// At most max_bytes of the text, cut in front of a character rather than through it.
std::string_view Utf8Prefix(std::string_view text, size_t max_bytes);

// The text with each byte that is part of no character replaced by `stand_in`; same length.
std::string ReplaceInvalidUtf8(std::string_view text, char stand_in);

// Takes what is whole from the front of a stream's bytes; a character that is not finished stays,
// unless the stream is. Bytes that can become no character any more are one U+FFFD per longest part
// that could have, as the Unicode standard recommends.
std::string TakeWholeUtf8(std::string* pending, bool at_end);

// Appends U+0000 to U+07FF, all that the byte table of byte-level BPE has.
void AppendTwoByteUtf8(unsigned code_point, std::string* out);

}  // namespace varve

#endif  // VARVE_BASE_UTF8_H_
