// What somebody who mistyped a word may have meant. Pure functions.

#ifndef VARVE_BASE_NEAREST_WORD_H_
#define VARVE_BASE_NEAREST_WORD_H_

#include <span>
#include <string>
#include <string_view>

namespace varve {

// Letters inserted, left out, exchanged for another or swapped with their neighbour that turn `a`
// into `b`; capitals count as small letters.
int TypingDistance(std::string_view a, std::string_view b);

// The known word nearest to `word`: at most one mistake in four letters, two in all. Empty: none is
// near.
std::string_view NearestWord(std::string_view word, std::span<const std::string_view> known);

// "; did you mean "h2o"?", or nothing.
std::string DidYouMean(std::string_view word, std::span<const std::string_view> known);

}  // namespace varve

#endif  // VARVE_BASE_NEAREST_WORD_H_
