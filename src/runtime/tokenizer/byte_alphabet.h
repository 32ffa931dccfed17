// The printable alphabet of byte-level BPE: each byte is one character. Bytes that are printable in
// Latin-1 stand for themselves, the other 68 are U+0100, U+0101, … in their order.

#ifndef VARVE_RUNTIME_TOKENIZER_BYTE_ALPHABET_H_
#define VARVE_RUNTIME_TOKENIZER_BYTE_ALPHABET_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace varve {

// Code point of each byte, all below U+0144.
const std::array<uint16_t, 256>& ByteAlphabet();

// Bytes as characters, and back; nothing if a character is not of the alphabet.
std::string BytesToAlphabet(std::string_view bytes);
std::optional<std::string> AlphabetToBytes(std::string_view text);

}  // namespace varve

#endif  // VARVE_RUNTIME_TOKENIZER_BYTE_ALPHABET_H_
