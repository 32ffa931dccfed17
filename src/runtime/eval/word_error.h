// Word and character error rates: how far a transcript is from what was said.
//
// Texts are compared as they are; bring both into the same form first (english_normalizer.h).
// Pure functions. Time grows with the product of the lengths: meant for utterances, not for books.

#ifndef VARVE_RUNTIME_EVAL_WORD_ERROR_H_
#define VARVE_RUNTIME_EVAL_WORD_ERROR_H_

#include <cstdint>
#include <string_view>

namespace varve {

// The fewest changes that turn the reference into the hypothesis. Where several ways have as few,
// the one that is taken puts substitutions before deletions and these before insertions.
struct EditCounts {
  int64_t matches = 0;
  int64_t substitutions = 0;
  int64_t deletions = 0;   // in the reference only
  int64_t insertions = 0;  // in the hypothesis only

  int64_t errors() const { return substitutions + deletions + insertions; }
  int64_t reference_length() const { return matches + substitutions + deletions; }
  int64_t hypothesis_length() const { return matches + substitutions + insertions; }
  // Errors by length of the reference, a fraction that insertions can lift above 1. An empty
  // reference counts as one word.
  double rate() const;

  // Pools utterances: rates of sums, not means of rates.
  EditCounts& operator+=(const EditCounts& other);
  bool operator==(const EditCounts&) const = default;
};

// Words are what blanks (of ASCII) separate.
EditCounts AlignWords(std::string_view reference, std::string_view hypothesis);

// Characters of UTF-8, the blanks between words included, one each; outer blanks do not count.
EditCounts AlignCharacters(std::string_view reference, std::string_view hypothesis);

}  // namespace varve

#endif  // VARVE_RUNTIME_EVAL_WORD_ERROR_H_
