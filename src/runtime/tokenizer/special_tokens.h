// SpecialTokens: finds tokens that stand in a text as they are ("<|im_end|>"), before anything else
// looks at it. At each place the longest wins, and what it covers is gone for later ones: leftmost,
// longest. Immutable after construction; views the vocabulary's texts.

#ifndef VARVE_RUNTIME_TOKENIZER_SPECIAL_TOKENS_H_
#define VARVE_RUNTIME_TOKENIZER_SPECIAL_TOKENS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace varve {

// A stretch of the text: plain text, or one token.
struct TextFragment {
  std::string_view text;
  int32_t id = -1;  // -1: plain text, never empty
};

class SpecialTokens {
 public:
  // A longer text could make the search quadratic.
  static constexpr size_t kMaxTokenBytes = 512;

  SpecialTokens() = default;
  // Texts are different, not empty, at most kMaxTokenBytes long.
  explicit SpecialTokens(std::vector<std::pair<std::string_view, int32_t>> tokens);

  std::vector<TextFragment> Split(std::string_view text) const;
  // The longest token that `text` begins with; id -1 and no text if there is none.
  TextFragment Match(std::string_view text) const;

 private:
  std::vector<std::pair<std::string_view, int32_t>> tokens_;  // sorted by bytes
  std::array<bool, 256> starts_{};                            // bytes that some token begins with
};

}  // namespace varve

#endif  // VARVE_RUNTIME_TOKENIZER_SPECIAL_TOKENS_H_
