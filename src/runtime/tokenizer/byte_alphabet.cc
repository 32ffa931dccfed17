#include "runtime/tokenizer/byte_alphabet.h"

#include "base/utf8.h"

namespace varve {

namespace {

constexpr unsigned kFirstExtra = 0x100;
constexpr unsigned kAlphabetEnd = 0x144;

constexpr bool IsPrintable(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<uint16_t, 256> MakeAlphabet() {
  std::array<uint16_t, 256> alphabet{};
  unsigned extra = kFirstExtra;
  for (unsigned byte = 0; byte < 256; ++byte) {
    alphabet[byte] = static_cast<uint16_t>(IsPrintable(byte) ? byte : extra++);
  }
  return alphabet;
}

constexpr std::array<uint16_t, 256> kAlphabet = MakeAlphabet();

// Byte of a code point, -1: none.
constexpr std::array<int16_t, kAlphabetEnd> MakeInverse() {
  std::array<int16_t, kAlphabetEnd> inverse{};
  for (int16_t& byte : inverse) byte = -1;
  for (unsigned byte = 0; byte < 256; ++byte) inverse[kAlphabet[byte]] = static_cast<int16_t>(byte);
  return inverse;
}

constexpr std::array<int16_t, kAlphabetEnd> kInverse = MakeInverse();

}  // namespace

const std::array<uint16_t, 256>& ByteAlphabet() { return kAlphabet; }

std::string BytesToAlphabet(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) AppendTwoByteUtf8(kAlphabet[static_cast<unsigned char>(c)], &text);
  return text;
}

std::optional<std::string> AlphabetToBytes(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Sequence sequence = ReadUtf8(text.substr(pos));
    if (!sequence.valid || sequence.bytes > 2) return std::nullopt;
    unsigned code_point = static_cast<unsigned char>(text[pos]);
    if (sequence.bytes == 2) {
      code_point = ((code_point & 0x1F) << 6) | (static_cast<unsigned char>(text[pos + 1]) & 0x3F);
    }
    if (code_point >= kAlphabetEnd || kInverse[code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kInverse[code_point]));
    pos += sequence.bytes;
  }
  return bytes;
}

}  // namespace varve
