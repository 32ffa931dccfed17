#include "runtime/tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/quoted.h"

namespace varve {

namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTypes = "tokenizer.ggml.token_type";

// Tokens that end a text or a turn by their name, in the families that have them.
constexpr std::array<std::string_view, 11> kEndNames = {
    "<|im_end|>",      "<|eot_id|>",         "<|eom_id|>",      "<|end|>",
    "<end_of_turn>",   "<|endoftext|>",      "<|return|>",      "<EOT>",
    "<|end_of_text|>", "<end_of_utterance>", "<|end_of_turn|>",
};

}  // namespace

Result<std::unique_ptr<Vocabulary>> Vocabulary::Load(const GgufFile& file, TokenText token_text) {
  std::unique_ptr<Vocabulary> vocabulary(new Vocabulary);
  VARVE_RETURN_IF_ERROR(vocabulary->ReadTexts(file));
  VARVE_RETURN_IF_ERROR(vocabulary->ReadTypes(file));
  VARVE_RETURN_IF_ERROR(vocabulary->ReadIds(file));
  vocabulary->MakeBytes(token_text);
  VARVE_RETURN_IF_ERROR(vocabulary->CollectSpecial());
  return vocabulary;
}

Status Vocabulary::ReadTexts(const GgufFile& file) {
  VARVE_ASSIGN_OR_RETURN(std::vector<std::string_view> tokens, file.GetStrings(kTokens));
  if (tokens.empty()) return InvalidArgument(fmt::format("{}: 0 tokens", kTokens));
  if (tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return InvalidArgument(fmt::format("{}: {} tokens > {}", kTokens, tokens.size(),
                                       std::numeric_limits<int32_t>::max()));
  }
  size_t total_bytes = 0;
  for (const std::string_view token : tokens) total_bytes += token.size();
  text_storage_.reserve(total_bytes);
  texts_.reserve(tokens.size());
  ids_.reserve(tokens.size());
  for (const std::string_view token : tokens) {
    const auto id = static_cast<int32_t>(texts_.size());
    texts_.emplace_back(text_storage_.data() + text_storage_.size(), token.size());
    text_storage_ += token;
    longest_text_bytes_ = std::max(longest_text_bytes_, token.size());
    // A token without text is a hole in the table: it stands for nothing and is never found.
    if (token.empty()) continue;
    const auto [found, is_first] = ids_.emplace(texts_.back(), id);
    if (!is_first) {
      return InvalidArgument(fmt::format("{}: token {} has the text of token {}, {}", kTokens, id,
                                         found->second, Quoted(token)));
    }
  }
  return Status();
}

Status Vocabulary::ReadTypes(const GgufFile& file) {
  types_.assign(texts_.size(), TokenType::kNormal);
  has_types_ = file.Find(kTypes) != nullptr;
  if (!has_types_) return Status();
  VARVE_ASSIGN_OR_RETURN(std::vector<int32_t> types, file.GetInts(kTypes));
  if (types.size() != texts_.size()) {
    return InvalidArgument(
        fmt::format("{}: {} values, but {} has {}", kTypes, types.size(), kTokens, texts_.size()));
  }
  for (size_t id = 0; id < types.size(); ++id) {
    const int32_t type = types[id];
    if (type < 0 || type > static_cast<int32_t>(TokenType::kByte)) {
      return InvalidArgument(
          fmt::format("{}: value {} of token {} is not in 0..6", kTypes, type, id));
    }
    types_[id] = static_cast<TokenType>(type);
  }
  return Status();
}

Status Vocabulary::ReadIds(const GgufFile& file) {
  int32_t eot = -1;
  int32_t eom = -1;
  const std::pair<const char*, int32_t*> ids[] = {
      {"tokenizer.ggml.bos_token_id", &bos},         {"tokenizer.ggml.eos_token_id", &eos},
      {"tokenizer.ggml.unknown_token_id", &unknown}, {"tokenizer.ggml.eot_token_id", &eot},
      {"tokenizer.ggml.eom_token_id", &eom},
  };
  for (const auto& [key, id] : ids) {
    VARVE_ASSIGN_OR_RETURN(int64_t value, file.GetIntOr(key, 0, size() - 1, -1));
    *id = static_cast<int32_t>(value);
    if (has_types_ || *id < 0) continue;
    types_[*id] = id == &unknown ? TokenType::kUnknown : TokenType::kControl;
  }
  MarkEnds(eot, eom);
  return Status();
}

void Vocabulary::MarkEnds(int32_t eot, int32_t eom) {
  is_end_.assign(texts_.size(), false);
  for (const int32_t id : {eos, eot, eom}) {
    if (id >= 0) is_end_[id] = true;
  }
  for (const std::string_view name : kEndNames) {
    const int32_t id = Find(name);
    if (id < 0) continue;
    is_end_[id] = true;
    types_[id] = TokenType::kControl;
  }
}

void Vocabulary::MakeBytes(TokenText token_text) {
  std::vector<size_t> ends;
  ends.reserve(texts_.size());
  byte_storage_.reserve(text_storage_.size());
  for (int32_t id = 0; id < size(); ++id) {
    byte_storage_ += token_text(text(id), type(id));
    ends.push_back(byte_storage_.size());
  }
  bytes_.reserve(texts_.size());
  size_t begin = 0;
  for (const size_t end : ends) {
    bytes_.emplace_back(byte_storage_.data() + begin, end - begin);
    begin = end;
  }
}

Status Vocabulary::CollectSpecial() {
  std::vector<std::pair<std::string_view, int32_t>> all;
  for (int32_t id = 0; id < size(); ++id) {
    const bool special = type(id) == TokenType::kControl || type(id) == TokenType::kUnknown ||
                         type(id) == TokenType::kUserDefined;
    if (!special || bytes(id).empty()) continue;
    if (bytes(id).size() > SpecialTokens::kMaxTokenBytes) {
      return InvalidArgument(fmt::format("{}: special token {} has {} bytes > {}", kTokens, id,
                                         bytes(id).size(), SpecialTokens::kMaxTokenBytes));
    }
    all.emplace_back(bytes(id), id);
  }
  // Two texts may have the same bytes (the blank as itself and as U+2581): the first token stays.
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end(),
                        [](const auto& a, const auto& b) { return a.first == b.first; }),
            all.end());
  std::vector<std::pair<std::string_view, int32_t>> user_defined;
  for (const auto& token : all) {
    if (type(token.second) == TokenType::kUserDefined) user_defined.push_back(token);
  }
  all_special_ = SpecialTokens(std::move(all));
  user_defined_ = SpecialTokens(std::move(user_defined));
  return Status();
}

std::vector<TextFragment> Vocabulary::Split(std::string_view text,
                                            const EncodeOptions& options) const {
  if (!options.parse_special) return user_defined_.Split(text);
  if (options.literal.empty()) return all_special_.Split(text);
  std::vector<TextFragment> fragments;
  size_t plain_begin = 0;
  const auto add_plain = [&](size_t end) {
    if (end > plain_begin) fragments.push_back({text.substr(plain_begin, end - plain_begin), -1});
  };
  auto range = options.literal.begin();
  for (size_t pos = 0; pos < text.size();) {
    while (range != options.literal.end() && range->end <= pos) ++range;
    const size_t frame_end = range == options.literal.end() ? text.size() : range->begin;
    // Any special token that lies in the frame, or one of the user's that lies anywhere.
    TextFragment match = user_defined_.Match(text.substr(pos));
    if (pos < frame_end) {
      const TextFragment framed = all_special_.Match(text.substr(pos, frame_end - pos));
      if (framed.text.size() > match.text.size()) match = framed;
    }
    if (match.id < 0) {
      ++pos;
      continue;
    }
    add_plain(pos);
    fragments.push_back(match);
    pos += match.text.size();
    plain_begin = pos;
  }
  add_plain(text.size());
  return fragments;
}

bool Vocabulary::IsText(int32_t id) const {
  return IsNormal(type(id)) || type(id) == TokenType::kUserDefined || type(id) == TokenType::kByte;
}

int32_t Vocabulary::Find(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? -1 : found->second;
}

Result<bool> Vocabulary::AddsToken(const GgufFile& file, std::string_view key, int32_t id,
                                   bool missing) {
  Result<bool> wanted = file.GetBoolOr(key, missing);
  if (!wanted.ok() || !*wanted || id >= 0) return wanted;
  if (file.Find(key) == nullptr) return false;
  return InvalidArgument(fmt::format("{}: true, but the file names no such token", key));
}

}  // namespace varve
