// Latin letters without their accents, and signs that are written with plain letters and digits.

#ifndef VARVE_RUNTIME_EVAL_LATIN_LETTERS_H_
#define VARVE_RUNTIME_EVAL_LATIN_LETTERS_H_

#include <string>
#include <string_view>

namespace varve {

// Small letters (U+00AA to U+024F, U+1E00 to U+1EFF), ligatures, raised and lowered digits,
// fractions ("½" -> "1⁄2"), "…", and the wide forms of ASCII. It is what Unicode's NFKD leaves of
// them without the marks, and ae, oe, o, d, l, ss and th for the letters that NFKD does not take
// apart. Everything else stays, combining marks too. `text` is UTF-8.
std::string FoldLatinLetters(std::string_view text);

}  // namespace varve

#endif  // VARVE_RUNTIME_EVAL_LATIN_LETTERS_H_
