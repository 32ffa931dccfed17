#include "cli/gate/gate_prompts.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/folder_files.h"
#include "cli/model_argument.h"
#include "cli/run/turns_file.h"
#include "kernels/content_hash.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

std::vector<int32_t> TextTokens(const Tokenizer& tokenizer, std::string_view text, bool first) {
  EncodeOptions encode;
  encode.add_special = false;
  std::vector<int32_t> tokens = tokenizer.Encode(text, encode);
  if (first && tokenizer.adds_bos()) tokens.insert(tokens.begin(), tokenizer.bos());
  return tokens;
}

std::string HexHash(uint64_t hash) { return fmt::format("{:016x}", hash); }

Result<GatePrompt> CutPassage(const Tokenizer& tokenizer, const Json& passage,
                              std::string_view text, int64_t bucket, int64_t reply_tokens) {
  GatePrompt prompt;
  prompt.name = passage.value("name", "");
  prompt.bucket = std::to_string(bucket);
  prompt.source = passage.value("source", "");
  const auto offset = passage.value("offset", size_t{0});
  prompt.bytes = passage.value("bytes", size_t{0});
  if (offset > text.size() || prompt.bytes > text.size() - offset) {
    return InvalidArgument(fmt::format("passage {}: offset {} and {} bytes > {}, the text",
                                       prompt.name, offset, prompt.bytes, text.size()));
  }
  const std::string_view piece = text.substr(offset, prompt.bytes);
  prompt.hash = HashBytes(piece.data(), piece.size());
  if (const std::string hash = passage.value("hash", ""); hash != HexHash(prompt.hash)) {
    return Status(StatusCode::kDataLoss, fmt::format("passage {}: hash {}, the manifest has {}",
                                                     prompt.name, HexHash(prompt.hash), hash));
  }
  std::vector<int32_t> tokens = TextTokens(tokenizer, piece, true);
  const auto count = static_cast<int64_t>(tokens.size());
  if (count < bucket) {
    return InvalidArgument(
        fmt::format("passage {}: {} tokens < bucket {}", prompt.name, count, bucket));
  }
  const auto end = tokens.begin() + std::min(count, bucket + reply_tokens);
  prompt.turns.push_back(
      {{tokens.begin(), tokens.begin() + bucket}, {tokens.begin() + bucket, end}, reply_tokens});
  return prompt;
}

// The largest bucket that a text fills; the smallest one for shorter texts.
int64_t BucketOf(const std::vector<int64_t>& buckets, size_t tokens) {
  const auto above = std::ranges::upper_bound(buckets, static_cast<int64_t>(tokens));
  return above == buckets.begin() ? buckets.front() : *(above - 1);
}

GatePrompt ConversationPrompt(const Tokenizer& tokenizer, const std::string& path,
                              const ScriptedTalk& talk, int64_t reply_tokens) {
  GatePrompt prompt;
  prompt.name = talk.name;
  prompt.bucket = kTurnsBucket;
  prompt.source = path;
  std::string all;
  for (const std::string& text : talk.turns) {
    prompt.turns.push_back({TextTokens(tokenizer, text, prompt.turns.empty()), {}, reply_tokens});
    all += text;
  }
  prompt.bytes = all.size();
  prompt.hash = HashBytes(all.data(), all.size());
  return prompt;
}

}  // namespace

int64_t GatePrompt::prompt_tokens() const {
  int64_t sum = 0;
  for (const GateTurn& turn : turns) sum += static_cast<int64_t>(turn.tokens.size());
  return sum;
}

int64_t GatePrompt::end_tokens() const {
  int64_t sum = prompt_tokens();
  for (const GateTurn& turn : turns) sum += turn.reply_tokens;
  return sum;
}

Result<std::vector<GatePrompt>> PassagePrompts(const Tokenizer& tokenizer,
                                               std::string_view manifest, std::string_view text,
                                               const GatePromptOptions& options) {
  const Json json = Json::parse(manifest, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.value("passages", Json()).is_array()) {
    return InvalidArgument("the manifest of prompts: no list \"passages\"");
  }
  std::vector<GatePrompt> prompts;
  for (const int64_t bucket : options.buckets) {
    int taken = 0;
    for (const Json& passage : json["passages"]) {
      if (taken == options.per_bucket || passage.value("bucket", int64_t{0}) != bucket) continue;
      VARVE_ASSIGN_OR_RETURN(GatePrompt prompt,
                             CutPassage(tokenizer, passage, text, bucket, options.reply_tokens));
      prompts.push_back(std::move(prompt));
      ++taken;
    }
    if (taken > 0) continue;
    return InvalidArgument(fmt::format(
        "bucket {}: no passage of that size is shipped; --prompts DIR names texts", bucket));
  }
  return prompts;
}

Result<std::vector<GatePrompt>> FolderPrompts(const Tokenizer& tokenizer, const std::string& folder,
                                              const GatePromptOptions& options) {
  VARVE_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFiles("--prompts", folder));
  std::vector<GatePrompt> prompts;
  for (const std::string& name : names) {
    GatePrompt prompt;
    prompt.name = name;
    prompt.source = (std::filesystem::path(folder) / name).string();
    VARVE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(prompt.source));
    prompt.bytes = text.size();
    prompt.hash = HashBytes(text.data(), text.size());
    prompt.turns.push_back({TextTokens(tokenizer, text, true), {}, options.reply_tokens});
    if (prompt.turns[0].tokens.empty()) {
      return InvalidArgument(fmt::format("\"{}\": the file is empty", prompt.source));
    }
    prompt.bucket = std::to_string(BucketOf(options.buckets, prompt.turns[0].tokens.size()));
    prompts.push_back(std::move(prompt));
  }
  std::ranges::stable_sort(prompts, {}, [](const GatePrompt& p) { return std::stoll(p.bucket); });
  return prompts;
}

Result<std::vector<GatePrompt>> TurnPrompts(const Tokenizer& tokenizer, const std::string& path,
                                            const GatePromptOptions& options) {
  VARVE_ASSIGN_OR_RETURN(const std::vector<ScriptedTalk> talks, ReadTurnsFile(path));
  std::vector<GatePrompt> prompts;
  for (const ScriptedTalk& talk : talks) {
    const int64_t reply = talk.reply_tokens > 0 ? talk.reply_tokens : options.reply_tokens;
    prompts.push_back(ConversationPrompt(tokenizer, path, talk, reply));
  }
  return prompts;
}

}  // namespace varve::cli
