// Vocabulary: the tokens of a GGUF file, their types and ids with a meaning, checked.
//
// Everything comes from a stranger: lengths that differ, ids out of range, types that do not exist,
// two tokens of one text give an error that names key and value. Owns its bytes, not the file.
// Immutable after Load.

#ifndef VARVE_RUNTIME_TOKENIZER_VOCABULARY_H_
#define VARVE_RUNTIME_TOKENIZER_VOCABULARY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "runtime/tokenizer/special_tokens.h"
#include "runtime/tokenizer/tokenizer.h"
#include "varve/status.h"

namespace varve {

// Numbers as in the file.
enum class TokenType : uint8_t {
  kUndefined = 0,  // as kNormal
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

inline bool IsNormal(TokenType type) {
  return type == TokenType::kNormal || type == TokenType::kUndefined;
}

class Vocabulary {
 public:
  // What the bytes of a token in a text are, which the family knows. `text` is as in the file.
  using TokenText = std::string (*)(std::string_view text, TokenType type);

  // `token_text` is called once per token. Missing token_type: all are normal but bos, eos, eot and
  // unknown, which are control. Tokens that end a turn by their name ("<|im_end|>") are control,
  // whatever the file says, as in llama.cpp.
  static Result<std::unique_ptr<Vocabulary>> Load(const GgufFile& file, TokenText token_text);

  int32_t size() const { return static_cast<int32_t>(types_.size()); }
  // `id` is in range.
  std::string_view text(int32_t id) const { return texts_[id]; }
  std::string_view bytes(int32_t id) const { return bytes_[id]; }
  TokenType type(int32_t id) const { return types_[id]; }
  // Neither control nor unknown nor unused: part of any text.
  bool IsText(int32_t id) const;
  // What a token adds to a text: nothing if it is no text and `show_special` is false, or if there
  // is no such id.
  std::string_view ShownBytes(int32_t id, bool show_special) const {
    if (id < 0 || id >= size()) return {};
    return IsText(id) || show_special ? bytes(id) : std::string_view();
  }
  bool IsEnd(int32_t id) const { return id >= 0 && id < size() && is_end_[id]; }
  int32_t Find(std::string_view text) const;  // -1: none
  size_t longest_text_bytes() const { return longest_text_bytes_; }

  // Whether the file (or, if it does not say, the family) wants `id` at an end of every text. An
  // error if it says so and has no such token.
  static Result<bool> AddsToken(const GgufFile& file, std::string_view key, int32_t id,
                                bool missing);

  int32_t bos = -1;
  int32_t eos = -1;
  int32_t unknown = -1;

  // The special tokens of a text, and the plain text between them.
  std::vector<TextFragment> Split(std::string_view text, const EncodeOptions& options) const;

 private:
  Vocabulary() = default;
  Status ReadTexts(const GgufFile& file);
  Status ReadTypes(const GgufFile& file);
  Status ReadIds(const GgufFile& file);
  void MarkEnds(int32_t eot, int32_t eom);
  Status CollectSpecial();
  void MakeBytes(TokenText token_text);

  std::string text_storage_;
  std::string byte_storage_;
  std::vector<std::string_view> texts_;
  std::vector<std::string_view> bytes_;
  std::vector<TokenType> types_;
  std::vector<bool> is_end_;
  bool has_types_ = false;
  size_t longest_text_bytes_ = 0;
  std::unordered_map<std::string_view, int32_t> ids_;  // not the empty text
  SpecialTokens all_special_;   // matched in a text that may hold special tokens
  SpecialTokens user_defined_;  // matched in every text
};

}  // namespace varve

#endif  // VARVE_RUNTIME_TOKENIZER_VOCABULARY_H_
