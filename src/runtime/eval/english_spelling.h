// American spelling: a list of 1738 British words (models/whisper-spelling.txt).

#ifndef VARVE_RUNTIME_EVAL_ENGLISH_SPELLING_H_
#define VARVE_RUNTIME_EVAL_ENGLISH_SPELLING_H_

#include <string_view>

namespace varve {

// The American form of a word in small letters; the word itself where the list has none. Pure; any
// number of threads. What is returned may be a view of `word`.
std::string_view AmericanSpelling(std::string_view word);

}  // namespace varve

#endif  // VARVE_RUNTIME_EVAL_ENGLISH_SPELLING_H_
