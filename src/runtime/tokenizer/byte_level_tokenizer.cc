#include "runtime/tokenizer/byte_level_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/tokenizer/byte_alphabet.h"
#include "runtime/tokenizer/merge_table.h"
#include "runtime/tokenizer/pair_merge.h"
#include "runtime/tokenizer/pre_tokenizer.h"
#include "runtime/tokenizer/vocabulary.h"

namespace varve {

namespace {

// Special tokens are written as they are; so is a token with characters outside the alphabet.
std::string BytesOfToken(std::string_view text, TokenType type) {
  if (type != TokenType::kNormal && type != TokenType::kUndefined && type != TokenType::kByte) {
    return std::string(text);
  }
  std::optional<std::string> bytes = AlphabetToBytes(text);
  return bytes.has_value() ? std::move(*bytes) : std::string(text);
}

class ByteLevelTokenizer final : public Tokenizer {
 public:
  ByteLevelTokenizer(std::unique_ptr<Vocabulary> vocabulary, MergeTable merges,
                     std::unique_ptr<PreTokenizer> pre_tokenizer, bool adds_bos, bool adds_eos)
      : vocabulary_(std::move(vocabulary)),
        merges_(std::move(merges)),
        pre_tokenizer_(std::move(pre_tokenizer)),
        adds_bos_(adds_bos),
        adds_eos_(adds_eos) {
    for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
      const char c = static_cast<char>(byte);
      const int32_t id = vocabulary_->Find(BytesToAlphabet({&c, 1}));
      byte_ids_[byte] = id >= 0 && vocabulary_->IsText(id) ? id : -1;
    }
  }

  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> ids;
    if (options.add_special && adds_bos_) ids.push_back(bos());
    for (const TextFragment& fragment : vocabulary_->Split(text, options)) {
      if (fragment.id >= 0) {
        ids.push_back(fragment.id);
      } else {
        EncodePlain(fragment.text, &ids);
      }
    }
    if (options.add_special && adds_eos_) ids.push_back(eos());
    return ids;
  }

  std::string_view TokenBytes(int32_t id, bool show_special) const override {
    return vocabulary_->ShownBytes(id, show_special);
  }

  std::string Decode(std::span<const int32_t> ids, bool show_special) const override {
    std::string text;
    for (const int32_t id : ids) text += TokenBytes(id, show_special);
    return text;
  }

  int32_t vocab_size() const override { return vocabulary_->size(); }
  int32_t bos() const override { return vocabulary_->bos; }
  int32_t eos() const override { return vocabulary_->eos; }
  bool adds_bos() const override { return adds_bos_; }
  bool IsEnd(int32_t id) const override { return vocabulary_->IsEnd(id); }
  int32_t Find(std::string_view token) const override { return vocabulary_->Find(token); }

 private:
  void EncodePlain(std::string_view text, std::vector<int32_t>* ids) const {
    std::vector<MergeSymbol> symbols;
    for (std::string_view word : pre_tokenizer_->Split(text)) {
      if (pre_tokenizer_->whole_words()) {
        const int32_t id = WholeWord(word);
        if (id >= 0) {
          ids->push_back(id);
          continue;
        }
      }
      for (; !word.empty(); word.remove_prefix(std::min(word.size(), kMaxWordBytes))) {
        EncodeWord(word.substr(0, kMaxWordBytes), &symbols, ids);
      }
    }
  }

  int32_t WholeWord(std::string_view word) const {
    // A character of the alphabet has one or two bytes.
    if (word.size() > vocabulary_->longest_text_bytes()) return -1;
    const int32_t id = vocabulary_->Find(BytesToAlphabet(word));
    return id >= 0 && vocabulary_->IsText(id) ? id : -1;
  }

  void EncodeWord(std::string_view word, std::vector<MergeSymbol>* symbols,
                  std::vector<int32_t>* ids) const {
    symbols->clear();
    for (size_t i = 0; i < word.size(); ++i) {
      MergeSymbol symbol;
      symbol.begin = static_cast<uint32_t>(i);
      symbol.bytes = 1;
      symbol.id = byte_ids_[static_cast<unsigned char>(word[i])];
      symbols->push_back(symbol);
    }
    MergePairs(*symbols, [this](const MergeSymbol& left, const MergeSymbol& right) {
      return merges_.Find(left.id, right.id);
    });
    for (int32_t i = 0; i >= 0; i = (*symbols)[i].next) {
      const int32_t id = (*symbols)[i].id >= 0 ? (*symbols)[i].id : vocabulary_->unknown;
      if (id >= 0) ids->push_back(id);
    }
  }

  std::unique_ptr<Vocabulary> vocabulary_;
  MergeTable merges_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  std::array<int32_t, 256> byte_ids_;  // -1: no token
  bool adds_bos_;
  bool adds_eos_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> CreateByteLevelTokenizer(const GgufFile& file) {
  VARVE_ASSIGN_OR_RETURN(std::string_view pre, file.GetStringOr("tokenizer.ggml.pre", "default"));
  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<PreTokenizer> pre_tokenizer, PreTokenizer::Create(pre));
  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<Vocabulary> vocabulary,
                         Vocabulary::Load(file, BytesOfToken));
  VARVE_ASSIGN_OR_RETURN(MergeTable merges, MergeTable::Load(file, *vocabulary));
  VARVE_ASSIGN_OR_RETURN(
      bool adds_bos, Vocabulary::AddsToken(file, "tokenizer.ggml.add_bos_token", vocabulary->bos,
                                           pre_tokenizer->adds_bos()));
  VARVE_ASSIGN_OR_RETURN(bool adds_eos, Vocabulary::AddsToken(file, "tokenizer.ggml.add_eos_token",
                                                              vocabulary->eos, false));
  return std::unique_ptr<Tokenizer>(std::make_unique<ByteLevelTokenizer>(
      std::move(vocabulary), std::move(merges), std::move(pre_tokenizer), adds_bos, adds_eos));
}

}  // namespace varve
