#include "base/utf8.h"

namespace varve {

namespace {

struct LeadByte {
  size_t bytes;          // of the whole sequence, 0: cannot start one
  unsigned char lowest;  // of the second byte; all later ones are 80..BF
  unsigned char highest;
};

LeadByte Lead(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Sequence ReadUtf8(std::string_view text) {
  const LeadByte lead = Lead(static_cast<unsigned char>(text[0]));
  if (lead.bytes <= 1) return {1, lead.bytes == 1, false};
  for (size_t i = 1; i < lead.bytes; ++i) {
    if (i == text.size()) return {i, false, true};
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char lowest = i == 1 ? lead.lowest : 0x80;
    const unsigned char highest = i == 1 ? lead.highest : 0xBF;
    if (byte < lowest || byte > highest) return {i, false, false};
  }
  return {lead.bytes, true, false};
}

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Sequence sequence = ReadUtf8(text);
    if (!sequence.valid) return false;
    text.remove_prefix(sequence.bytes);
  }
  return true;
}

std::string_view Utf8Prefix(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && IsUtf8Continuation(text[max_bytes])) --max_bytes;
  return text.substr(0, max_bytes);
}

std::string ReplaceInvalidUtf8(std::string_view text, char stand_in) {
  std::string out(text);
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Sequence sequence = ReadUtf8(text.substr(pos));
    if (!sequence.valid) out.replace(pos, sequence.bytes, sequence.bytes, stand_in);
    pos += sequence.bytes;
  }
  return out;
}

std::string TakeWholeUtf8(std::string* pending, bool at_end) {
  std::string text;
  size_t pos = 0;
  while (pos < pending->size()) {
    const std::string_view rest = std::string_view(*pending).substr(pos);
    const Utf8Sequence sequence = ReadUtf8(rest);
    if (sequence.unfinished && !at_end) break;
    text += sequence.valid ? rest.substr(0, sequence.bytes) : std::string_view("\xEF\xBF\xBD");
    pos += sequence.bytes;
  }
  pending->erase(0, pos);
  return text;
}

void AppendTwoByteUtf8(unsigned code_point, std::string* out) {
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
    return;
  }
  out->push_back(static_cast<char>(0xC0 | (code_point >> 6)));
  out->push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
}

}  // namespace varve
