// Spoken numbers as digits: "one hundred and five" -> "105", "twenty first" -> "21st", "two point
// five million" -> "2500000", "ten pounds" -> "£10", "fifty per cent" -> "50%", "double oh seven"
// -> "007". A step of english_normalizer.h, with its promise: what openai-whisper's
// EnglishNumberNormalizer gives.
//
// Pure; any number of threads.

#ifndef VARVE_RUNTIME_EVAL_ENGLISH_NUMBERS_H_
#define VARVE_RUNTIME_EVAL_ENGLISH_NUMBERS_H_

#include <string>
#include <string_view>

namespace varve {

// `text` is UTF-8 in small letters, words with single blanks between them and none around.
std::string NormalizeEnglishNumbers(std::string_view text);

}  // namespace varve

#endif  // VARVE_RUNTIME_EVAL_ENGLISH_NUMBERS_H_
