#include "runtime/tokenizer/pre_tokenizer.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "base/quoted.h"
#include "base/utf8.h"
#include "runtime/gguf/gguf_types.h"

namespace varve {

namespace {

// White_Space of Unicode, by hand: PCRE2's \s takes U+180E too, which is none since Unicode 6.3 and
// none to the implementations that the vocabularies were trained with.
#define VARVE_BLANKS \
  "\\t-\\r "         \
  "\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define VARVE_BLANK "[" VARVE_BLANKS "]"
#define VARVE_BLANK_RUN VARVE_BLANK "+(?![^" VARVE_BLANKS "])|" VARVE_BLANK "+"

constexpr const char* kGpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" VARVE_BLANKS
                              "\\p{L}\\p{N}]+|" VARVE_BLANK_RUN;
constexpr const char* kLlama3 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" VARVE_BLANKS
    "\\p{L}\\p{N}]+[\\r\\n]*|" VARVE_BLANK "*[\\r\\n]+|" VARVE_BLANK_RUN;
constexpr const char* kQwen2 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" VARVE_BLANKS
    "\\p{L}\\p{N}]+[\\r\\n]*|" VARVE_BLANK "*[\\r\\n]+|" VARVE_BLANK_RUN;
// Words end where a small letter is followed by a capital; a digit is a word.
constexpr const char* kTekken =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^" VARVE_BLANKS "\\p{L}\\p{N}]+[\\r\\n/]*|" VARVE_BLANK
    "*[\\r\\n]+|" VARVE_BLANK_RUN;
constexpr const char* kDigit = "\\p{N}";
constexpr const char* kDigits = "\\p{N}+";
constexpr const char* kThreeDigits = "[0-9][0-9][0-9]";
constexpr const char* kPunctuation = "[\\p{P}$+<=>^~|]+";

#undef VARVE_BLANK_RUN
#undef VARVE_BLANK
#undef VARVE_BLANKS

struct Entry {
  std::string_view name;
  std::array<const char*, 4> expressions;  // in turn; null: none
  bool whole_words;
  bool adds_bos;
};

// Names as in files. "default" is llama.cpp's answer to a file without a name: not the expression
// of any family, but what such a file gets everywhere.
constexpr Entry kEntries[] = {
    {"default", {kPunctuation, kGpt2, kDigits, kThreeDigits}, false, false},
    {"gpt-2", {kGpt2}, false, false},
    {"gpt2", {kGpt2}, false, false},
    {"llama-bpe", {kLlama3}, true, true},
    {"llama3", {kLlama3}, true, true},
    {"llama-v3", {kLlama3}, true, true},
    {"qwen2", {kQwen2}, false, false},
    {"smollm", {kDigit, kGpt2}, false, false},
    {"tekken", {kTekken}, true, true},
};

// Stands for a byte that is no UTF-8; no expression names it, and it is in no class that one names.
constexpr char kInvalidByte = '\x1A';

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, CodeDeleter>;
using MatchData = std::unique_ptr<pcre2_match_data, MatchDataDeleter>;
using MatchContext = std::unique_ptr<pcre2_match_context, MatchContextDeleter>;

Result<Code> Compile(const char* expression) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression), PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &offset, nullptr));
  if (code == nullptr) {
    return Internal(
        fmt::format("pre-tokenizer: PCRE2 error {} at {} of {}", error, offset, expression));
  }
  // Where the system allows no code to be made at run time, the interpreter gives the same words.
  (void)pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

class PatternPreTokenizer final : public PreTokenizer {
 public:
  PatternPreTokenizer(const Entry& entry, std::vector<Code> codes, MatchContext context)
      : entry_(entry), codes_(std::move(codes)), context_(std::move(context)) {}

  std::vector<std::string_view> Split(std::string_view text) const override {
    // Words are found in a copy of the same length that is valid UTF-8: PCRE2 need not check it
    // again at every match, which would be quadratic.
    const std::string subject = ReplaceInvalidUtf8(text, kInvalidByte);
    using Range = std::pair<size_t, size_t>;
    const MatchData match(pcre2_match_data_create(1, nullptr));
    std::vector<Range> words;
    if (!text.empty()) words.emplace_back(0, text.size());
    for (const Code& code : codes_) {
      std::vector<Range> finer;
      for (const Range& word : words) SplitWord(*code, subject, word, match.get(), &finer);
      words = std::move(finer);
    }
    std::vector<std::string_view> views;
    views.reserve(words.size());
    for (const auto& [begin, end] : words) views.push_back(text.substr(begin, end - begin));
    return views;
  }

  bool whole_words() const override { return entry_.whole_words; }
  bool adds_bos() const override { return entry_.adds_bos; }

 private:
  void SplitWord(const pcre2_code& code, const std::string& subject, std::pair<size_t, size_t> word,
                 pcre2_match_data* match, std::vector<std::pair<size_t, size_t>>* out) const {
    const auto* begin = reinterpret_cast<PCRE2_SPTR>(subject.data() + word.first);
    const size_t size = word.second - word.first;
    size_t done = 0;    // everything before it is in a word
    size_t search = 0;  // where the next match may begin
    while (match != nullptr && search < size) {
      const int count =
          pcre2_match(&code, begin, size, search, PCRE2_NO_UTF_CHECK, match, context_.get());
      // No match, or a limit of PCRE2 was reached: what is left is one word.
      if (count < 0) break;
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match);
      if (ends[1] <= ends[0]) break;  // no expression of ours matches nothing
      if (ends[0] > done) out->emplace_back(word.first + done, word.first + ends[0]);
      out->emplace_back(word.first + ends[0], word.first + ends[1]);
      done = search = ends[1];
    }
    if (done < size) out->emplace_back(word.first + done, word.second);
  }

  const Entry& entry_;
  std::vector<Code> codes_;
  MatchContext context_;
};

}  // namespace

Result<std::unique_ptr<PreTokenizer>> PreTokenizer::Create(std::string_view pre) {
  std::string names;
  for (const Entry& entry : kEntries) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
    if (entry.name != pre) continue;
    std::vector<Code> codes;
    for (const char* expression : entry.expressions) {
      if (expression == nullptr) continue;
      VARVE_ASSIGN_OR_RETURN(Code code, Compile(expression));
      codes.push_back(std::move(code));
    }
    MatchContext context(pcre2_match_context_create(nullptr));
    if (context == nullptr) return OutOfMemory("pre-tokenizer: no PCRE2 match context");
    // A run of blanks may cost one step back per character, however long it is.
    pcre2_set_match_limit(context.get(), std::numeric_limits<uint32_t>::max());
    return std::unique_ptr<PreTokenizer>(
        new PatternPreTokenizer(entry, std::move(codes), std::move(context)));
  }
  return Unimplemented(
      fmt::format("tokenizer.ggml.pre: {} is not built in; there are {}", Quoted(pre), names));
}

}  // namespace varve
