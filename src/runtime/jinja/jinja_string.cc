#include "runtime/jinja/jinja_string.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/utf8.h"

namespace varve::jinja {
namespace {

void AppendUtf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    *out += static_cast<char>(code);
  } else if (code < 0x800) {
    AppendTwoByteUtf8(code, out);
  } else {
    if (code < 0x10000) {
      *out += static_cast<char>(0xE0 | (code >> 12));
    } else {
      *out += static_cast<char>(0xF0 | (code >> 18));
      *out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    }
    *out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    *out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// The code of a whole character.
uint32_t CodeOf(std::string_view character) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<uint8_t>(character[i]));
  };
  if (character.size() == 1) return byte(0);
  uint32_t code = byte(0) & (0xFFU >> (character.size() + 1));
  for (size_t i = 1; i < character.size(); ++i) code = (code << 6) | (byte(i) & 0x3F);
  return code;
}

// The letter behind a backslash, and what it stands for.
constexpr std::string_view kEscapes = "\\\\''\"\"n\nt\tr\ra\ab\bf\fv\v";

// \xNN, \uNNNN, \UNNNNNNNN: *at is behind the letter, and then behind the digits.
Status AppendCode(std::string_view literal, size_t digits, size_t* at, std::string* out) {
  const std::string_view hex = literal.substr(*at, digits);
  uint32_t code = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
  const bool is_whole = error == std::errc() && end == hex.data() + digits;
  if (!is_whole || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
    return InvalidArgument(
        fmt::format("a string has an escape \\{}{} that is no character", literal[*at - 1], hex));
  }
  AppendUtf8(code, out);
  *at += digits;
  return {};
}

void AppendOctal(std::string_view literal, size_t* at, std::string* out) {
  uint32_t code = 0;
  for (int i = 0; i < 3 && *at < literal.size() && literal[*at] >= '0' && literal[*at] <= '7';
       ++i) {
    code = code * 8 + static_cast<uint32_t>(literal[(*at)++] - '0');
  }
  AppendUtf8(code, out);
}

}  // namespace

Result<std::string> ResolveEscapes(std::string_view literal) {
  std::string text;
  for (size_t at = 0; at < literal.size();) {
    const char c = literal[at++];
    if (c != '\\' || at == literal.size()) {
      text += c;
      continue;
    }
    const char letter = literal[at];
    size_t known = 0;
    while (known < kEscapes.size() && kEscapes[known] != letter) known += 2;
    if (known < kEscapes.size()) {
      text += kEscapes[known + 1];
      ++at;
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      ++at;
      const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
      VARVE_RETURN_IF_ERROR(AppendCode(literal, digits, &at, &text));
    } else if (letter >= '0' && letter <= '7') {
      AppendOctal(literal, &at, &text);
    } else if (letter == '\n') {
      ++at;
    } else {
      text += '\\';
    }
  }
  return text;
}

void AppendRepr(std::string_view text, std::string* out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  *out += quote;
  for (const char c : text) {
    if (c == quote || c == '\\') {
      *out += '\\';
      *out += c;
    } else if (c == '\n') {
      *out += "\\n";
    } else if (c == '\r') {
      *out += "\\r";
    } else if (c == '\t') {
      *out += "\\t";
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) {
      *out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
    } else {
      *out += c;
    }
  }
  *out += quote;
}

std::string FloatText(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void AppendJsonString(std::string_view text, bool ascii, std::string* out) {
  constexpr std::string_view kLetters = "\"\"\\\\\nn\rr\tt\bb\ff";
  *out += '"';
  for (size_t at = 0; at < text.size();) {
    const Utf8Sequence sequence = ReadUtf8(text.substr(at));
    const std::string_view character = text.substr(at, sequence.bytes);
    at += sequence.bytes;
    const char c = character[0];
    size_t known = 0;
    while (known < kLetters.size() && kLetters[known] != c) known += 2;
    if (character.size() == 1 && known < kLetters.size()) {
      *out += '\\';
      *out += kLetters[known + 1];
    } else if (static_cast<uint8_t>(c) < 0x20) {
      *out += fmt::format("\\u{:04x}", static_cast<uint8_t>(c));
    } else if (!ascii || !sequence.valid || character.size() == 1) {
      *out += character;
    } else if (const uint32_t code = CodeOf(character); code < 0x10000) {
      *out += fmt::format("\\u{:04x}", code);
    } else {
      *out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10),
                          0xDC00 + ((code - 0x10000) & 0x3FF));
    }
  }
  *out += '"';
}

}  // namespace varve::jinja
