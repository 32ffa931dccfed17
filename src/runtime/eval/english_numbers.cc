#include "runtime/eval/english_numbers.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/eval/number_words.h"
#include "runtime/eval/spoken_number.h"
#include "runtime/eval/text_pattern.h"

namespace varve {
namespace {

using enum NumberWordKind;

size_t SymbolBytes(std::string_view word) {
  for (const std::string_view symbol : {"-", "+", "£", "€", "$", "¢"}) {
    if (word.substr(0, symbol.size()) == symbol) return symbol.size();
  }
  return 0;
}

// Words in, words out. Each word is seen with its neighbours.
class NumberReader {
 public:
  std::vector<std::string> Read(const std::vector<std::string>& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      previous_ = i == 0 ? nullptr : FindNumberWord(words[i - 1]);
      next_ = i + 1 == words.size() ? "" : words[i + 1];
      next_word_ = FindNumberWord(next_);
      if (std::exchange(skip_, false)) continue;
      Take(words[i]);
    }
    Flush();
    return std::move(out_);
  }

 private:
  void Put(const std::string& text) {
    out_.push_back(sign_.value_or("") + text);
    sign_.reset();
    value_.reset();
  }
  void Flush() {
    if (value_.has_value()) Put(std::string(value_->digits));
  }
  bool NextIsNumber() const { return next_word_ != nullptr || IsDecimal(next_); }
  bool PreviousIs(NumberWordKind kind) const {
    return previous_ != nullptr && previous_->kind == kind;
  }
  // The digits so far, to be continued as text. An integer zero is forgotten.
  std::string Text() const {
    return !value_.has_value() || value_->is_zero() ? "" : value_->digits;
  }

  void Take(const std::string& word) {
    const size_t symbol = SymbolBytes(word);
    const std::string_view number = std::string_view(word).substr(symbol);
    const NumberWord* known = FindNumberWord(word);
    if (IsDecimal(number)) {
      TakeDigits(word, number, symbol);
    } else if (known == nullptr) {
      Flush();
      Put(word);
    } else {
      TakeWord(word, *known);
    }
  }

  void TakeDigits(const std::string& word, std::string_view number, size_t symbol) {
    if (value_.has_value() && value_->is_text && value_->digits.ends_with('.')) {
      value_->digits += word;
      return;
    }
    Flush();
    if (symbol > 0) sign_ = word.substr(0, symbol);
    const std::optional<std::string> integer = ScaledDecimal(number, 0);
    value_ = integer.has_value() ? SpokenNumber{*integer} : SpokenNumber{std::string(number), true};
  }

  void TakeWord(const std::string& word, const NumberWord& known) {
    switch (known.kind) {
      case kZero:
        value_ = SpokenNumber{Text() + "0", true};
        break;
      case kOne:
        value_ = WithOne(known.digits);
        break;
      case kOneSuffixed:
        Put(WithOne(known.digits).digits + known.text);
        break;
      case kTen:
        value_ = value_.has_value() ? value_->With(known.digits) : SpokenNumber{known.digits};
        break;
      case kTenSuffixed:
        Put((value_.has_value() ? value_->With(known.digits).digits : known.digits) + known.text);
        break;
      case kMultiplier:
        value_ = Multiplied(known);
        break;
      case kMultiplierSuffixed:
        Put(Multiplied(known).digits + known.text);
        break;
      case kSign:
        Flush();
        if (NextIsNumber()) {
          sign_ = known.text;
        } else {
          Put(word);
        }
        break;
      case kCurrency:
        TakeCurrency(word, known.text);
        break;
      case kPercent:
        TakePercent(word);
        break;
      case kSpecial:
        TakeSpecial(word);
        break;
    }
  }

  // "one two" is 12, "twenty one" 21, "twenty eleven" 2011.
  SpokenNumber WithOne(const std::string& digits) const {
    if (!value_.has_value()) return {digits};
    if (!value_->is_text && !PreviousIs(kOne)) return value_->With(digits);
    std::string text = value_->digits;
    if (PreviousIs(kTen) && digits.size() == 1) text.pop_back();
    return {text + digits, true};
  }

  // A text that is no number, or whose product is none ("1.2.3 million"), is put out first.
  SpokenNumber Multiplied(const NumberWord& known) {
    if (!value_.has_value()) return {known.digits};
    const size_t zeros = known.digits.size() - 1;
    if (!value_->is_text) return value_->Times(zeros);
    if (const std::optional<std::string> product = ScaledDecimal(value_->digits, zeros))
      return {*product};
    Flush();
    return {known.digits};
  }

  void TakeCurrency(const std::string& word, const std::string& symbol) {
    if (!value_.has_value()) return Put(word);
    sign_ = symbol;
    Flush();
  }

  void TakePercent(const std::string& word) {
    const bool is_per_cent = word == "per" && next_ == "cent";
    if (value_.has_value() && (word == "percent" || is_per_cent)) {
      skip_ = is_per_cent;
      Put(value_->digits + "%");
      return;
    }
    Flush();
    Put(word);
  }

  void TakeSpecial(const std::string& word) {
    if (!NextIsNumber()) {
      Flush();
      Put(word);
    } else if (word == "and") {
      if (PreviousIs(kMultiplier)) return;
      Flush();
      Put(word);
    } else if (word == "point") {
      const bool continues = next_word_ == nullptr || next_word_->kind == kOne ||
                             next_word_->kind == kTen || next_word_->kind == kZero;
      if (continues) value_ = SpokenNumber{Text() + ".", true};
    } else {
      TakeRepeated(word);
    }
  }

  // "double oh" is 00.
  void TakeRepeated(const std::string& word) {
    if (next_word_ == nullptr || (next_word_->kind != kOne && next_word_->kind != kZero)) {
      Flush();
      Put(word);
      return;
    }
    std::string text = Text();
    for (int i = 0; i < (word == "double" ? 2 : 3); ++i) text += next_word_->digits;
    value_ = SpokenNumber{text, true};
    skip_ = true;
  }

  const NumberWord* previous_ = nullptr;
  const NumberWord* next_word_ = nullptr;
  std::string next_;
  bool skip_ = false;  // the next word has been taken already
  std::optional<std::string> sign_;
  std::optional<SpokenNumber> value_;
  std::vector<std::string> out_;
};

std::vector<std::string> SplitAtBlanks(std::string_view text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    if (end > begin) words.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    text += word;
  }
  return text;
}

bool IsWordBefore(const NumberWord* word) {
  return word != nullptr && (word->kind == kZero || word->kind == kOne || word->kind == kTen ||
                             word->kind == kMultiplier);
}

// "and a half" behind a number is "point five". With nothing in front of it, the reference loses
// it.
std::vector<std::string> WithHalves(const std::vector<std::string>& words) {
  std::vector<std::string> out;
  bool is_behind_words = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool is_half =
        i + 2 < words.size() && words[i] == "and" && words[i + 1] == "a" && words[i + 2] == "half";
    if (!is_half) {
      out.push_back(words[i]);
      is_behind_words = true;
      continue;
    }
    if (is_behind_words && IsWordBefore(FindNumberWord(out.back()))) {
      out.insert(out.end(), {"point", "five"});
    } else if (is_behind_words) {
      out.insert(out.end(), {"and", "a", "half"});
    }
    is_behind_words = false;
    i += 2;
  }
  return out;
}

// Letters and digits are apart ("3d" -> "3 d") but for suffixes ("3rd").
const std::array<TextPattern, 3>& Before() {
  static const std::array<TextPattern, 3> patterns = {
      TextPattern("([a-z])([0-9])", "$1 $2"), TextPattern("([0-9])([a-z])", "$1 $2"),
      TextPattern("([0-9])\\s+(st|nd|rd|th|s)\\b", "$1$2")};
  return patterns;
}

// "$2 and ¢7" is $2.07, "$0.07" is ¢7, and 1 is "one".
const std::array<TextPattern, 5>& Behind() {
  static const std::array<TextPattern, 5> patterns = {
      TextPattern("([€£$])([0-9]+) (?:and )?¢([0-9])\\b", "$1$2.0$3"),
      TextPattern("([€£$])([0-9]+) (?:and )?¢([0-9]{2})\\b", "$1$2.$3"),
      TextPattern("[€£$]0.0([0-9])\\b", "¢$1"), TextPattern("[€£$]0.([0-9]{1,2})\\b", "¢$1"),
      TextPattern("\\b1(s?)\\b", "one$1")};
  return patterns;
}

}  // namespace

std::string NormalizeEnglishNumbers(std::string_view text) {
  std::string result = Join(WithHalves(SplitAtBlanks(text)));
  for (const TextPattern& pattern : Before()) pattern.Replace(result);
  result = Join(NumberReader().Read(SplitAtBlanks(result)));
  for (const TextPattern& pattern : Behind()) pattern.Replace(result);
  return result;
}

}  // namespace varve
