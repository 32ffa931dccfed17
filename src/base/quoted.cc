#include "base/quoted.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace varve {
namespace {

// Bytes of the character that `text` begins with; 0 if it begins with none or with a control
// character (U+0000 to U+001F, U+007F to U+009F).
size_t ShownCharacterBytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x20 || lead == 0x7F) return 0;
  const Utf8Sequence character = ReadUtf8(text);
  if (!character.valid) return 0;
  if (lead == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0) return 0;
  return character.bytes;
}

// `escaped` are characters of ASCII that are written as their code, too.
std::string Shown(std::string_view text, size_t max_characters, std::string_view escaped) {
  std::string shown;
  for (size_t count = 0; !text.empty(); ++count) {
    if (count == max_characters) return shown + "…";
    size_t bytes = ShownCharacterBytes(text);
    if (escaped.find(text[0]) != std::string_view::npos) bytes = 0;
    if (bytes > 0) {
      shown += text.substr(0, bytes);
    } else if (text[0] == '\n') {
      shown += "\\n";
    } else {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    }
    text.remove_prefix(bytes > 0 ? bytes : 1);
  }
  return shown;
}

}  // namespace

std::string Printable(std::string_view text, size_t max_characters) {
  return Shown(text, max_characters, "");
}

std::string Quoted(std::string_view text, size_t max_characters) {
  return fmt::format("\"{}\"", Shown(text, max_characters, "\"\\"));
}

}  // namespace varve
