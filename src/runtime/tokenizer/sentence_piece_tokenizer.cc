#include "runtime/tokenizer/sentence_piece_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/quoted.h"
#include "base/utf8.h"
#include "runtime/tokenizer/pair_merge.h"
#include "runtime/tokenizer/vocabulary.h"

namespace varve {

namespace {

constexpr std::string_view kScores = "tokenizer.ggml.scores";
constexpr std::string_view kBlank = "\xE2\x96\x81";  // U+2581

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const size_t found = std::min(text.find(from, pos), text.size());
    out += text.substr(pos, found - pos);
    if (found == text.size()) break;
    out += to;
    pos = found + from.size();
  }
  return out;
}

// Of "<0x0A>", -1 if it is something else.
int ByteOfToken(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'A' || c > 'F')) return -1;
    value = 16 * value + (digit ? c - '0' : c - 'A' + 10);
  }
  return value;
}

// A user-defined token may have been written with either kind of blank: it is matched in plain
// text, so it has plain blanks. Control tokens stand as they are.
std::string BytesOfToken(std::string_view text, TokenType type) {
  if (type == TokenType::kControl || type == TokenType::kUnknown) return std::string(text);
  if (type == TokenType::kByte) {
    const int byte = ByteOfToken(text);
    return byte < 0 ? std::string(text) : std::string(1, static_cast<char>(byte));
  }
  return ReplaceAll(text, kBlank, " ");
}

// The merge order of the tokens: 0 for the highest score, the same for equal scores.
Result<std::vector<uint32_t>> ReadRanks(const GgufFile& file, const Vocabulary& vocabulary) {
  VARVE_ASSIGN_OR_RETURN(std::vector<float> scores, file.GetFloats(kScores));
  if (scores.size() != static_cast<size_t>(vocabulary.size())) {
    return InvalidArgument(fmt::format("{}: {} values, but tokenizer.ggml.tokens has {}", kScores,
                                       scores.size(), vocabulary.size()));
  }
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  for (const int32_t id : order) {
    if (std::isnan(scores[id])) {
      return InvalidArgument(fmt::format("{}: value of token {} is not a number", kScores, id));
    }
  }
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  std::vector<uint32_t> ranks(scores.size(), 0);
  for (size_t i = 1; i < order.size(); ++i) {
    const bool equal = scores[order[i]] == scores[order[i - 1]];
    ranks[order[i]] = ranks[order[i - 1]] + (equal ? 0 : 1);
  }
  return ranks;
}

struct Options {
  bool adds_bos = true;
  bool adds_eos = false;
  bool adds_blank = true;
  bool removes_extra_blanks = false;
};

Result<Options> ReadOptions(const GgufFile& file, const Vocabulary& vocabulary) {
  VARVE_ASSIGN_OR_RETURN(bool adds_bos, Vocabulary::AddsToken(file, "tokenizer.ggml.add_bos_token",
                                                              vocabulary.bos, true));
  VARVE_ASSIGN_OR_RETURN(bool adds_eos, Vocabulary::AddsToken(file, "tokenizer.ggml.add_eos_token",
                                                              vocabulary.eos, false));
  VARVE_ASSIGN_OR_RETURN(bool adds_blank, file.GetBoolOr("tokenizer.ggml.add_space_prefix", true));
  VARVE_ASSIGN_OR_RETURN(bool removes,
                         file.GetBoolOr("tokenizer.ggml.remove_extra_whitespaces", false));
  return Options{adds_bos, adds_eos, adds_blank, removes};
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::unique_ptr<Vocabulary> vocabulary, std::vector<uint32_t> ranks,
                         const Options& options)
      : vocabulary_(std::move(vocabulary)), ranks_(std::move(ranks)), options_(options) {
    if (vocabulary_->unknown < 0) vocabulary_->unknown = vocabulary_->Find("<unk>");
    for (int byte = 0; byte < 256; ++byte) {
      byte_ids_[byte] = vocabulary_->Find(fmt::format("<0x{:02X}>", byte));
    }
  }

  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> ids;
    if (options.add_special && options_.adds_bos) ids.push_back(bos());
    const std::vector<TextFragment> fragments = vocabulary_->Split(text, options);
    bool after_special = true;
    for (const TextFragment& fragment : fragments) {
      if (fragment.id >= 0) {
        ids.push_back(fragment.id);
        after_special = true;
        continue;
      }
      std::string plain(fragment.text);
      if (options_.removes_extra_blanks) {
        plain = RemoveExtraBlanks(plain, &fragment == &fragments.front(),
                                  &fragment == &fragments.back());
        if (plain.empty()) continue;
      }
      if (options_.adds_blank && after_special) plain.insert(0, 1, ' ');
      after_special = false;
      EncodePlain(ReplaceAll(plain, " ", kBlank), &ids);
    }
    if (options.add_special && options_.adds_eos) ids.push_back(eos());
    return ids;
  }

  std::string_view TokenBytes(int32_t id, bool show_special) const override {
    return vocabulary_->ShownBytes(id, show_special);
  }

  std::string Decode(std::span<const int32_t> ids, bool show_special) const override {
    std::string text;
    bool first = options_.adds_blank;
    for (const int32_t id : ids) {
      std::string_view bytes = TokenBytes(id, show_special);
      if (!bytes.empty() && vocabulary_->IsText(id)) {
        if (first && IsNormal(vocabulary_->type(id)) && bytes[0] == ' ') bytes.remove_prefix(1);
        first = false;
      }
      text += bytes;
    }
    return text;
  }

  int32_t vocab_size() const override { return vocabulary_->size(); }
  int32_t bos() const override { return vocabulary_->bos; }
  int32_t eos() const override { return vocabulary_->eos; }
  bool adds_bos() const override { return options_.adds_bos; }
  bool IsEnd(int32_t id) const override { return vocabulary_->IsEnd(id); }
  int32_t Find(std::string_view token) const override { return vocabulary_->Find(token); }

 private:
  // Runs of blanks become one, those at the ends of the text none.
  static std::string RemoveExtraBlanks(std::string_view text, bool at_begin, bool at_end) {
    std::string out;
    for (const char c : text) {
      if (c == ' ' && (out.empty() ? at_begin : out.back() == ' ')) continue;
      out.push_back(c);
    }
    if (at_end && !out.empty() && out.back() == ' ') out.pop_back();
    return out;
  }

  // Only normal tokens come from merging: no text spells a control or byte token by accident.
  int32_t FindNormal(std::string_view text) const {
    if (text.size() > vocabulary_->longest_text_bytes()) return -1;
    const int32_t id = vocabulary_->Find(text);
    return id >= 0 && IsNormal(vocabulary_->type(id)) ? id : -1;
  }

  // `text` has U+2581 for the blank.
  void EncodePlain(std::string_view text, std::vector<int32_t>* ids) const {
    std::vector<MergeSymbol> symbols;
    bool after_unknown = false;
    while (!text.empty()) {
      symbols.clear();
      size_t pos = 0;
      while (pos < text.size() && pos < kMaxWordBytes) {
        const Utf8Sequence character = ReadUtf8(text.substr(pos));
        MergeSymbol symbol;
        symbol.begin = static_cast<uint32_t>(pos);
        symbol.bytes = character.valid ? static_cast<uint32_t>(character.bytes) : 1;
        symbol.id = FindNormal(text.substr(pos, symbol.bytes));
        symbols.push_back(symbol);
        pos += symbol.bytes;
      }
      MergePairs(symbols, [&](const MergeSymbol& left, const MergeSymbol& right) -> PairMerge {
        const int32_t id = FindNormal(text.substr(left.begin, left.bytes + right.bytes));
        if (id < 0) return {};
        return {ranks_[id], id};
      });
      for (int32_t i = 0; i >= 0; i = symbols[i].next) {
        Emit(symbols[i], text, &after_unknown, ids);
      }
      text.remove_prefix(pos);
    }
  }

  void Emit(const MergeSymbol& symbol, std::string_view text, bool* after_unknown,
            std::vector<int32_t>* ids) const {
    const bool was_after_unknown = std::exchange(*after_unknown, false);
    if (symbol.id >= 0) return ids->push_back(symbol.id);
    const std::string_view character = text.substr(symbol.begin, symbol.bytes);
    const auto id_of = [this](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
    if (std::all_of(character.begin(), character.end(), [&](char c) { return id_of(c) >= 0; })) {
      for (const char c : character) ids->push_back(id_of(c));
      return;
    }
    *after_unknown = true;
    if (!was_after_unknown && vocabulary_->unknown >= 0) ids->push_back(vocabulary_->unknown);
  }

  std::unique_ptr<Vocabulary> vocabulary_;
  std::vector<uint32_t> ranks_;        // [vocab_size]
  std::array<int32_t, 256> byte_ids_;  // -1: no token
  Options options_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> CreateSentencePieceTokenizer(const GgufFile& file) {
  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<Vocabulary> vocabulary,
                         Vocabulary::Load(file, BytesOfToken));
  for (int32_t id = 0; id < vocabulary->size(); ++id) {
    const std::string_view text = vocabulary->text(id);
    if (vocabulary->type(id) == TokenType::kByte && ByteOfToken(text) < 0) {
      return InvalidArgument(fmt::format(
          "tokenizer.ggml.tokens: token {}, {}, is of type byte, but not <0x00> to <0xFF>", id,
          Quoted(text)));
    }
  }
  VARVE_ASSIGN_OR_RETURN(std::vector<uint32_t> ranks, ReadRanks(file, *vocabulary));
  VARVE_ASSIGN_OR_RETURN(Options options, ReadOptions(file, *vocabulary));
  return std::unique_ptr<Tokenizer>(
      std::make_unique<SentencePieceTokenizer>(std::move(vocabulary), std::move(ranks), options));
}

}  // namespace varve
