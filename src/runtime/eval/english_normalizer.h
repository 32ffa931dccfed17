// English text as Whisper's evaluation compares it: small letters, no punctuation, contractions and
// titles in full ("won't" -> "will not", "Mr." -> "mister"), numbers as digits ("twenty-one" ->
// "21", "five dollars" -> "$5"), American spelling, nothing in brackets, no "um".
//
// The same result as EnglishTextNormalizer of the package openai-whisper, whose oddities are part
// of every published figure: "1" becomes "one", "o'clock" becomes "0 clock", "archaeology" keeps a
// "</span>". Letters with accents lose them where they are Latin; other scripts are left as they
// are.
//
// Pure; any number of threads. The first call compiles the patterns.

#ifndef VARVE_RUNTIME_EVAL_ENGLISH_NORMALIZER_H_
#define VARVE_RUNTIME_EVAL_ENGLISH_NORMALIZER_H_

#include <string>
#include <string_view>

namespace varve {

// Words with single blanks between them. Bytes that are not UTF-8 count as blanks.
std::string NormalizeEnglish(std::string_view text);

}  // namespace varve

#endif  // VARVE_RUNTIME_EVAL_ENGLISH_NORMALIZER_H_
