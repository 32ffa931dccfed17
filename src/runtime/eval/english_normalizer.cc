#include "runtime/eval/english_normalizer.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "runtime/eval/english_numbers.h"
#include "runtime/eval/english_spelling.h"
#include "runtime/eval/latin_letters.h"
#include "runtime/eval/text_pattern.h"

namespace varve {
namespace {

struct Replacement {
  const char* what;
  const char* by;
};

// Whole words. Behind a title stands a blank of its own: "mr.smith".
constexpr Replacement kWords[] = {
    {"won't", "will not"},      {"can't", "can not"},     {"let's", "let us"},
    {"ain't", "aint"},          {"y'all", "you all"},     {"wanna", "want to"},
    {"gotta", "got to"},        {"gonna", "going to"},    {"i'ma", "i am going to"},
    {"imma", "i am going to"},  {"woulda", "would have"}, {"coulda", "could have"},
    {"shoulda", "should have"}, {"ma'am", "madam"},       {"mr", "mister "},
    {"mrs", "missus "},         {"st", "saint "},         {"dr", "doctor "},
    {"prof", "professor "},     {"capt", "captain "},     {"gov", "governor "},
    {"ald", "alderman "},       {"gen", "general "},      {"sen", "senator "},
    {"rep", "representative "}, {"pres", "president "},   {"rev", "reverend "},
    {"hon", "honorable "},      {"asst", "assistant "},   {"assoc", "associate "},
    {"lt", "lieutenant "},      {"col", "colonel "},      {"jr", "junior "},
    {"sr", "senior "},          {"esq", "esquire "}};

// Ends of words, the longer before the shorter.
constexpr Replacement kEndings[] = {{"'d been", " had been"},
                                    {"'s been", " has been"},
                                    {"'d gone", " had gone"},
                                    {"'s gone", " has gone"},
                                    {"'d done", " had done"},
                                    {"'s got", " has got"},
                                    {"n't", " not"},
                                    {"'re", " are"},
                                    {"'s", " is"},
                                    {"'d", " would"},
                                    {"'ll", " will"},
                                    {"'t", " not"},
                                    {"'ve", " have"},
                                    {"'m", " am"}};

// What comes before the letters are folded.
const std::vector<TextPattern>& WordPatterns() {
  static const std::vector<TextPattern> patterns = [] {
    std::vector<TextPattern> p;
    p.emplace_back("\\p{Lu}+", "\\L$0");
    p.emplace_back("[<\\[][^>\\]]*[>\\]]", "");
    p.emplace_back("\\(([^)]+?)\\)", "");
    p.emplace_back("\\b(hmm|mm|mhm|mmm|uh|um)\\b", "");
    p.emplace_back("\\s+'", "'");
    for (const auto& [what, by] : kWords) p.emplace_back("\\b" + std::string(what) + "\\b", by);
    for (const auto& [what, by] : kEndings) p.emplace_back(std::string(what) + "\\b", by);
    p.emplace_back("(\\d),(\\d)", "$1$2");
    p.emplace_back("\\.([^0-9]|$)", " $1");
    return p;
  }();
  return patterns;
}

// Marks go; other symbols become blanks but for those that belong to numbers.
const std::vector<TextPattern>& SymbolPatterns() {
  static const std::vector<TextPattern> patterns = [] {
    std::vector<TextPattern> p;
    p.emplace_back("\\p{Mn}+", "");
    p.emplace_back("(?![.%$¢€£])[\\p{M}\\p{S}\\p{P}]", " ");
    p.emplace_back("\\s+", " ");
    return p;
  }();
  return patterns;
}

// Symbols of numbers that stand beside none.
const std::vector<TextPattern>& LastPatterns() {
  static const std::vector<TextPattern> patterns = [] {
    std::vector<TextPattern> p;
    p.emplace_back("[.$¢€£]([^0-9])", " $1");
    p.emplace_back("([^0-9])%", "$1 ");
    p.emplace_back("\\s+", " ");
    return p;
  }();
  return patterns;
}

void Apply(const std::vector<TextPattern>& patterns, std::string& text) {
  for (const TextPattern& pattern : patterns) pattern.Replace(text);
}

void TrimBlanks(std::string& text) {
  text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
  text.erase(text.find_last_not_of(' ') + 1);
}

std::string WithAmericanSpelling(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    result += AmericanSpelling(text.substr(0, end));
    if (end < text.size()) result += ' ';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

}  // namespace

std::string NormalizeEnglish(std::string_view text) {
  std::string result = ReplaceInvalidUtf8(text, ' ');
  // Separators of ASCII, which are blanks to the reference but not to PCRE2.
  std::replace_if(
      result.begin(), result.end(), [](char c) { return c >= '\x1C' && c <= '\x1F'; }, ' ');
  Apply(WordPatterns(), result);
  result = FoldLatinLetters(result);
  Apply(SymbolPatterns(), result);
  TrimBlanks(result);
  result = WithAmericanSpelling(NormalizeEnglishNumbers(result));
  Apply(LastPatterns(), result);
  TrimBlanks(result);
  return result;
}

}  // namespace varve
