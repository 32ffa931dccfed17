#include "runtime/whisper/whisper_vocabulary.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/tokenizer/pair_merge.h"
#include "runtime/tokenizer/pre_tokenizer.h"
#include "runtime/whisper/whisper_languages.h"
#include "runtime/whisper/whisper_tokens.h"

namespace varve {
namespace {

constexpr int kMinVocab = 51864;
constexpr int32_t kEnglishEnd = 50256;
// English models have ids of languages too, which mean nothing.
constexpr int kUnusedLanguages = 99;

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace

struct WhisperVocabulary::Table {
  std::vector<std::string> tokens;  // the ordinary ones
  // Bytes to id, which is the rank too: tokens are numbered in the order of their merges. The keys
  // view `tokens`.
  std::unordered_map<std::string_view, int32_t> ids;
  std::unique_ptr<PreTokenizer> pre_tokenizer;

  int32_t Find(std::string_view bytes) const {
    const auto found = ids.find(bytes);
    return found == ids.end() ? -1 : found->second;
  }
};

Result<WhisperVocabulary> WhisperVocabulary::Create(const WhisperConfig& config,
                                                    std::vector<std::string> tokens) {
  if (config.vocab < kMinVocab) {
    return InvalidArgument(fmt::format(
        "n_vocab {} < {}: no vocabulary of Whisper has so few tokens", config.vocab, kMinVocab));
  }
  WhisperVocabulary vocabulary;
  const bool multilingual = config.multilingual();
  vocabulary.num_languages_ = config.num_languages();
  if (vocabulary.num_languages_ > kNumWhisperLanguages) {
    return InvalidArgument(fmt::format("n_vocab {} is {} languages > {}", config.vocab,
                                       vocabulary.num_languages_, kNumWhisperLanguages));
  }
  vocabulary.end_of_text_ = kEnglishEnd + (multilingual ? 1 : 0);
  vocabulary.translate_ =
      vocabulary.start() + 1 + (multilingual ? vocabulary.num_languages_ : kUnusedLanguages);
  if (tokens.empty()) {
    VARVE_ASSIGN_OR_RETURN(tokens, WhisperTokens(multilingual));
  }
  const auto ordinary = static_cast<size_t>(vocabulary.end_of_text_);
  if (tokens.size() < ordinary) {
    return InvalidArgument(
        fmt::format("{} tokens < {}, which are ordinary ones", tokens.size(), ordinary));
  }
  tokens.resize(ordinary);
  auto table = std::make_shared<Table>();
  table->tokens = std::move(tokens);
  table->ids.reserve(ordinary);
  for (size_t id = 0; id < ordinary; ++id) {
    const std::string& bytes = table->tokens[id];
    if (!bytes.empty()) table->ids.emplace(bytes, static_cast<int32_t>(id));
  }
  VARVE_ASSIGN_OR_RETURN(table->pre_tokenizer, PreTokenizer::Create("gpt-2"));
  vocabulary.space_ = table->Find(" ");
  if (vocabulary.space_ < 0) return InvalidArgument("no token is a single space");
  vocabulary.table_ = std::move(table);
  vocabulary.FindNonSpeech();
  return vocabulary;
}

std::span<const WhisperLanguage> WhisperVocabulary::languages() const {
  return WhisperLanguages().first(static_cast<size_t>(num_languages_));
}

Result<int> WhisperVocabulary::FindLanguage(std::string_view text) const {
  if (num_languages_ == 0) {
    return InvalidArgument(fmt::format("language {}: the model knows English alone", Quoted(text)));
  }
  const int index = FindWhisperLanguage(LowerCase(text));
  if (index >= 0 && index < num_languages_) return index;
  std::string codes;
  for (const WhisperLanguage& language : languages()) codes += fmt::format(" {}", language.code);
  return InvalidArgument(fmt::format("language {} is none that the model knows by code or name:{}",
                                     Quoted(text), codes));
}

std::string WhisperVocabulary::Decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    if (id >= 0 && IsText(id)) text += table_->tokens[static_cast<size_t>(id)];
  }
  return text;
}

std::vector<int32_t> WhisperVocabulary::Encode(std::string_view text) const {
  std::vector<int32_t> ids;
  for (std::string_view word : table_->pre_tokenizer->Split(text)) {
    for (; !word.empty(); word.remove_prefix(std::min(word.size(), kMaxWordBytes))) {
      EncodeWord(word.substr(0, kMaxWordBytes), ids);
    }
  }
  return ids;
}

void WhisperVocabulary::EncodeWord(std::string_view word, std::vector<int32_t>& ids) const {
  // tiktoken takes a word that is a token as it is, whatever the merges make of it.
  if (const int32_t whole = table_->Find(word); whole >= 0) {
    ids.push_back(whole);
    return;
  }
  std::vector<MergeSymbol> symbols(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    symbols[i].begin = static_cast<uint32_t>(i);
    symbols[i].bytes = 1;
    symbols[i].id = table_->Find(word.substr(i, 1));
  }
  MergePairs(symbols, [&](const MergeSymbol& left, const MergeSymbol& right) {
    const int32_t id = table_->Find(word.substr(left.begin, left.bytes + right.bytes));
    return PairMerge{static_cast<uint32_t>(id), id};
  });
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    const int32_t id = symbols[static_cast<size_t>(i)].id;
    if (id >= 0) ids.push_back(id);  // a file's own list may lack a byte
  }
}

// A symbol counts with and without a space before it, where that is one token. Of musical ones,
// which are several in some vocabularies, the first token counts: nothing spoken begins with it. A
// hyphen and an apostrophe may stand inside words, so only those that begin one count.
void WhisperVocabulary::FindNonSpeech() {
  constexpr std::string_view kSymbols[] = {
      "\"",  "#",  "(",  ")",   "*",   "+",   "/",   ":",  ";",   "<",  "=",  ">",
      "@",   "[",  "\\", "]",   "^",   "_",   "`",   "{",  "|",   "}",  "~",  "「",
      "」",  "『", "』", "<<",  ">>",  "<<<", ">>>", "--", "---", "-(", "-[", "('",
      "(\"", "((", "))", "(((", ")))", "[[",  "]]",  "{{", "}}",  "♪♪", "♪♪♪"};
  constexpr std::string_view kMusic[] = {"♩", "♪", "♫", "♬", "♭", "♮", "♯"};
  std::set<int32_t> found;
  const auto add = [&](const std::string& text, bool first_of_several) {
    const std::vector<int32_t> ids = Encode(text);
    if (ids.size() == 1 || (first_of_several && !ids.empty())) found.insert(ids[0]);
  };
  add(" -", true);
  add(" '", true);
  for (const std::string_view symbol : kSymbols) {
    add(std::string(symbol), false);
    add(" " + std::string(symbol), false);
  }
  for (const std::string_view symbol : kMusic) {
    add(std::string(symbol), true);
    add(" " + std::string(symbol), true);
  }
  non_speech_.assign(found.begin(), found.end());
}

}  // namespace varve
