// The words that numbers are said with, and what each of them does to a number.

#ifndef VARVE_RUNTIME_EVAL_NUMBER_WORDS_H_
#define VARVE_RUNTIME_EVAL_NUMBER_WORDS_H_

#include <string>
#include <string_view>

namespace varve {

enum class NumberWordKind {
  kZero,                // zero, oh, o
  kOne,                 // one ... nineteen
  kTen,                 // twenty ... ninety
  kMultiplier,          // hundred ... decillion
  kOneSuffixed,         // third, threes
  kTenSuffixed,         // thirtieth, thirties
  kMultiplierSuffixed,  // hundredth, hundreds
  kSign,                // minus, plus: before a number
  kCurrency,            // dollars: behind a number, written before it
  kPercent,             // percent, per (before cent): behind a number
  kSpecial,             // and, double, triple, point
};

struct NumberWord {
  NumberWordKind kind;
  std::string digits;  // of the number; of a multiplier "1000"
  std::string text;    // its suffix "th", its sign "-", its symbol "$" or "%"
};

// Null if the word belongs to no number. Small letters.
const NumberWord* FindNumberWord(std::string_view word);

}  // namespace varve

#endif  // VARVE_RUNTIME_EVAL_NUMBER_WORDS_H_
