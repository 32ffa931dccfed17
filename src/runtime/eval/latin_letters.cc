#include "runtime/eval/latin_letters.h"

#include <array>
#include <cstddef>
#include <unordered_map>

#include "base/utf8.h"

namespace varve {
namespace {

struct Letters {
  std::string_view plain;
  std::string_view others;  // each of these characters becomes `plain`
};

constexpr Letters kLetters[] = {
    {".", "․"},
    {"..", "‥"},
    {"...", "…"},
    {"0", "⁰₀"},
    {"1", "¹₁"},
    {"1⁄", "⅟"},
    {"1⁄10", "⅒"},
    {"1⁄2", "½"},
    {"1⁄3", "⅓"},
    {"1⁄4", "¼"},
    {"1⁄5", "⅕"},
    {"1⁄6", "⅙"},
    {"1⁄7", "⅐"},
    {"1⁄8", "⅛"},
    {"1⁄9", "⅑"},
    {"2", "²₂"},
    {"2⁄3", "⅔"},
    {"2⁄5", "⅖"},
    {"3", "³₃"},
    {"3⁄4", "¾"},
    {"3⁄5", "⅗"},
    {"3⁄8", "⅜"},
    {"4", "⁴₄"},
    {"4⁄5", "⅘"},
    {"5", "⁵₅"},
    {"5⁄6", "⅚"},
    {"5⁄8", "⅝"},
    {"6", "⁶₆"},
    {"7", "⁷₇"},
    {"7⁄8", "⅞"},
    {"8", "⁸₈"},
    {"9", "⁹₉"},
    {"No", "№"},
    {"SM", "℠"},
    {"TEL", "℡"},
    {"TM", "™"},
    {"a", "ªàáâãäåāăąǎǟǡǻȁȃȧḁạảấầẩẫậắằẳẵặ"},
    {"ae", "æǣǽ"},
    {"aʾ", "ẚ"},
    {"b", "ḃḅḇ"},
    {"c", "çćĉċčḉ"},
    {"d", "ðďđḋḍḏḑḓ"},
    {"dz", "ǆǳ"},
    {"e", "èéêëēĕėęěȅȇȩḕḗḙḛḝẹẻẽếềểễệ"},
    {"f", "ḟ"},
    {"ff", "ﬀ"},
    {"ffi", "ﬃ"},
    {"ffl", "ﬄ"},
    {"fi", "ﬁ"},
    {"fl", "ﬂ"},
    {"g", "ĝğġģǧǵḡ"},
    {"h", "ĥȟḣḥḧḩḫẖ"},
    {"i", "ìíîïĩīĭįǐȉȋḭḯỉịⁱ"},
    {"ij", "ĳ"},
    {"j", "ĵǰ"},
    {"k", "ķǩḱḳḵ"},
    {"l", "ĺļľłḷḹḻḽℓ"},
    {"lj", "ǉ"},
    {"l·", "ŀ"},
    {"m", "ḿṁṃ"},
    {"n", "ñńņňǹṅṇṉṋⁿ"},
    {"nj", "ǌ"},
    {"o", "ºòóôõöøōŏőơǒǫǭǿȍȏȫȭȯȱṍṏṑṓọỏốồổỗộớờởỡợ"},
    {"oe", "œ"},
    {"p", "ṕṗ"},
    {"r", "ŕŗřȑȓṙṛṝṟ"},
    {"s", "śŝşšſșṡṣṥṧṩẛ"},
    {"ss", "ß"},
    {"st", "ﬅﬆ"},
    {"t", "ţťțṫṭṯṱẗ"},
    {"th", "þ"},
    {"u", "ùúûüũūŭůűųưǔǖǘǚǜȕȗṳṵṷṹṻụủứừửữự"},
    {"v", "ṽṿ"},
    {"w", "ŵẁẃẅẇẉẘ"},
    {"x", "ẋẍ"},
    {"y", "ýÿŷȳẏẙỳỵỷỹ"},
    {"z", "źżžẑẓẕ"},
    {"°C", "℃"},
    {"°F", "℉"},
    {"ʒ", "ǯ"},
    {"ʼn", "ŉ"},
    {"μ", "µ"},
};

std::unordered_map<std::string_view, std::string> MakeTable() {
  std::unordered_map<std::string_view, std::string> table;
  for (const auto& [plain, others] : kLetters) {
    for (std::string_view rest = others; !rest.empty();) {
      const size_t bytes = ReadUtf8(rest).bytes;
      table.emplace(rest.substr(0, bytes), plain);
      rest.remove_prefix(bytes);
    }
  }
  return table;
}

// U+FF01 to U+FF5E, EF BC 81 to EF BD 9E in UTF-8, are ! to ~ in the width of a Chinese character.
// Returns 0 for other characters.
char WideAscii(std::string_view character) {
  if (character.size() != 3 || character[0] != '\xEF') return 0;
  const int code = (static_cast<unsigned char>(character[1]) & 0x3F) * 64 +
                   (static_cast<unsigned char>(character[2]) & 0x3F) - 0xF01 + '!';
  return code >= '!' && code <= '~' ? static_cast<char>(code) : '\0';
}

}  // namespace

std::string FoldLatinLetters(std::string_view text) {
  static const std::unordered_map<std::string_view, std::string> table = MakeTable();
  std::string folded;
  while (!text.empty()) {
    const std::string_view character = text.substr(0, ReadUtf8(text).bytes);
    text.remove_prefix(character.size());
    const auto found = table.find(character);
    if (found != table.end()) {
      folded += found->second;
    } else if (const char wide = WideAscii(character); wide != '\0') {
      folded += wide;
    } else {
      folded += character;
    }
  }
  return folded;
}

}  // namespace varve
