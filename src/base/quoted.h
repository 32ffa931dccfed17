// Text of a stranger (a name in a file, an argument) in messages and tables: whatever its bytes
// are, one line that a terminal can show. Pure functions.

#ifndef VARVE_BASE_QUOTED_H_
#define VARVE_BASE_QUOTED_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace varve {

inline constexpr size_t kMaxShownCharacters = 80;

// At most max_characters, then "…". A line break is \n; other control characters and bytes that are
// not UTF-8 are \xNN.
std::string Printable(std::string_view text, size_t max_characters = kMaxShownCharacters);

// The same in double quotes; a quote or a backslash in the text is \xNN, too.
std::string Quoted(std::string_view text, size_t max_characters = kMaxShownCharacters);

}  // namespace varve

#endif  // VARVE_BASE_QUOTED_H_
