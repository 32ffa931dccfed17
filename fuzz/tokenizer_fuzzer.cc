// Texts and vocabularies from strangers. The first byte chooses:
//   'G'        the input is a GGUF file, whatever is in it
//   odd        the rest describes a vocabulary, mostly wrong: Create may refuse it, with a reason,
//              and what it takes must encode and decode without a crash
//   even       the rest is a text for right vocabularies of both families and all patterns:
//   decoded,
//              byte-level tokens give every byte back, SentencePiece all but U+2581

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "runtime/tokenizer/byte_alphabet.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tests/gguf_testing.h"

namespace {

using varve::EncodeOptions;
using varve::GgufBuilder;
using varve::GgufFile;
using varve::Result;
using varve::Tokenizer;

constexpr const char* kPatterns[] = {"default", "gpt-2", "llama-bpe", "qwen2", "smollm", "tekken"};
constexpr std::string_view kBlank = "\xE2\x96\x81";

void Require(bool condition) {
  if (!condition) std::abort();
}

Result<std::unique_ptr<Tokenizer>> Create(std::span<const std::byte> bytes) {
  VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const GgufFile> file, GgufFile::FromMemory(bytes, "fuzz"));
  return Tokenizer::Create(*file);
}

// All 256 bytes, then merges of bytes that texts have side by side, then special tokens.
std::unique_ptr<Tokenizer> ByteLevel(const char* pattern) {
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    tokens.push_back(varve::BytesToAlphabet({&c, 1}));
  }
  for (const std::string_view merge :
       {"a a", "aa aa", "  b", "t h", "th e", "\n \n", "1 2", "\xC3 \xA4", "' s"}) {
    const size_t middle = merge.find(' ', 1);
    const std::string left = varve::BytesToAlphabet(merge.substr(0, middle));
    const std::string right = varve::BytesToAlphabet(merge.substr(middle + 1));
    tokens.push_back(left + right);
    merges.push_back(std::string(left).append(" ").append(right));
  }
  std::vector<int64_t> types(tokens.size(), 1);
  for (const auto& [text, type] : {std::pair("<|im_end|>", 3), {"<think>", 4}, {"<t", 4}}) {
    tokens.emplace_back(text);
    types.push_back(type);
  }
  auto tokenizer = Create(GgufBuilder()
                              .String("tokenizer.ggml.model", "gpt2")
                              .String("tokenizer.ggml.pre", pattern)
                              .Strings("tokenizer.ggml.tokens", tokens)
                              .Strings("tokenizer.ggml.merges", merges)
                              .Ints("tokenizer.ggml.token_type", types)
                              .Build());
  Require(tokenizer.ok());
  return std::move(tokenizer).value();
}

std::unique_ptr<Tokenizer> SentencePiece(bool adds_blank) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", std::string(kBlank), "a", "aa",
                                     "th",    "the", "ä"};
  tokens.push_back(std::string(kBlank) + "the");
  tokens.push_back(std::string(kBlank) + std::string(kBlank));
  std::vector<int64_t> types(tokens.size(), 1);
  types[0] = 2;
  types[1] = types[2] = 3;
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">");
    types.push_back(6);
  }
  std::vector<float> scores(tokens.size());
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = -static_cast<float>(i % 7);
  auto tokenizer = Create(GgufBuilder()
                              .String("tokenizer.ggml.model", "llama")
                              .Strings("tokenizer.ggml.tokens", tokens)
                              .Floats("tokenizer.ggml.scores", scores)
                              .Ints("tokenizer.ggml.token_type", types)
                              .Int("tokenizer.ggml.bos_token_id", 1)
                              .Bool("tokenizer.ggml.add_space_prefix", adds_blank)
                              .Build());
  Require(tokenizer.ok());
  return std::move(tokenizer).value();
}

std::string Stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  varve::TextStream stream(tokenizer);
  std::string text;
  for (const int32_t id : ids) text += stream.Next(id);
  return text + stream.Finish();
}

void RoundTrip(std::string_view text) {
  static const std::vector<std::unique_ptr<Tokenizer>>* const kByteLevel = [] {
    auto* all = new std::vector<std::unique_ptr<Tokenizer>>;
    for (const char* pattern : kPatterns) all->push_back(ByteLevel(pattern));
    return all;
  }();
  static const std::unique_ptr<Tokenizer> sentence_pieces[] = {SentencePiece(false),
                                                               SentencePiece(true)};
  for (const auto& tokenizer : *kByteLevel) {
    for (const bool parse_special : {false, true}) {
      const EncodeOptions options = {.add_special = true, .parse_special = parse_special};
      const std::vector<int32_t> ids = tokenizer->Encode(text, options);
      Require(tokenizer->Decode(ids, /*show_special=*/true) == text);
      Stream(*tokenizer, ids);
    }
  }
  const bool has_blank_symbol = text.find(kBlank) != std::string_view::npos;
  for (const auto& tokenizer : sentence_pieces) {
    const std::vector<int32_t> ids = tokenizer->Encode(text, {});
    Require(has_blank_symbol || tokenizer->Decode(ids) == text);
    tokenizer->Encode(text, {.add_special = true, .parse_special = true});
  }
}

// A vocabulary with something to say, or the reason why it is none.
void Use(const Result<std::unique_ptr<Tokenizer>>& made, std::string_view text) {
  if (!made.ok()) {
    Require(!made.status().message().empty());
    Require(made.status().code() != varve::StatusCode::kInternal);
    return;
  }
  const Tokenizer& tokenizer = **made;
  for (const bool special : {false, true}) {
    const std::vector<int32_t> ids =
        tokenizer.Encode(text, {.add_special = special, .parse_special = special});
    for (const int32_t id : ids) Require(id >= 0 && id < tokenizer.vocab_size());
    tokenizer.Decode(ids, special);
    Stream(tokenizer, ids);
  }
}

// Lines of the text are tokens and merges; the bytes before decide what else there is.
void Describe(std::string_view text) {
  size_t next = 0;
  const auto byte = [&] { return next < text.size() ? static_cast<uint8_t>(text[next++]) : 0; };
  const int flags = byte();
  GgufBuilder builder;
  builder.String("tokenizer.ggml.model", (flags & 1) != 0 ? "llama" : "gpt2");
  builder.String("tokenizer.ggml.pre", kPatterns[byte() % std::size(kPatterns)]);
  const size_t num_types = byte() % 16;
  std::vector<int64_t> types(num_types);
  std::vector<float> scores(num_types);
  for (int64_t& type : types) type = byte() % 8;
  for (float& score : scores) score = static_cast<float>(byte() % 4);
  for (const char* key : {"bos", "eos", "unknown"}) {
    if (const int id = byte(); id < 16)
      builder.Int(std::string("tokenizer.ggml.") + key + "_token_id", id);
  }
  if ((flags & 2) != 0) builder.Bool("tokenizer.ggml.add_bos_token", true);
  if ((flags & 4) != 0) builder.Bool("tokenizer.ggml.remove_extra_whitespaces", true);
  std::vector<std::string> lines[2];  // tokens, merges
  int kind = 0;
  std::string_view rest = text.substr(std::min(next, text.size()));
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    if (end == 0)
      kind = 1;
    else
      lines[kind].emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if ((flags & 8) != 0) {
    types.resize(lines[0].size(), 1);
    scores.resize(lines[0].size(), 0.5f);
  }
  builder.Strings("tokenizer.ggml.tokens", lines[0]).Strings("tokenizer.ggml.merges", lines[1]);
  if ((flags & 16) == 0) builder.Ints("tokenizer.ggml.token_type", types);
  builder.Floats("tokenizer.ggml.scores", scores);
  Use(Create(builder.Build()), text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'G') {
    Use(Create(std::as_bytes(std::span(data, size))), text);
  } else if (data[0] % 2 == 1) {
    Describe(text);
  } else {
    RoundTrip(text);
  }
  return 0;
}
