// Tokenizer: text to token ids and back, from what a GGUF file says.
//
// Two families: "llama" (SentencePiece BPE: scores, byte fallback, the blank as U+2581) and "gpt2"
// (byte-level BPE: merges, a pre-tokenizer pattern chosen by tokenizer.ggml.pre). Immutable after
// Create; any number of threads may use it. Owns its tables, not the file.

#ifndef VARVE_RUNTIME_TOKENIZER_TOKENIZER_H_
#define VARVE_RUNTIME_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "runtime/tokenizer/text_range.h"
#include "varve/status.h"

namespace varve {

struct EncodeOptions {
  bool add_special = true;     // BOS (and EOS) where the model asks for them
  bool parse_special = false;  // "<|im_end|>" in the text is that token, not ten characters
  // Where it is ten characters all the same, with parse_special: what a stranger wrote into a chat.
  // Ascending, apart, inside the text. The ranges cut nothing: words may cross their borders.
  std::span<const TextRange> literal = {};
};

class Tokenizer {
 public:
  // kUnimplemented names a tokenizer.ggml.model or .pre that is not built in.
  static Result<std::unique_ptr<Tokenizer>> Create(const GgufFile& file);
  virtual ~Tokenizer() = default;

  // Never fails: any bytes, valid UTF-8 or not, become tokens, and Decode gives the same bytes back
  // (SentencePiece: up to its own normalisation, the blank in front).
  virtual std::vector<int32_t> Encode(std::string_view text,
                                      const EncodeOptions& options) const = 0;

  // The bytes of one token; special (control) tokens give nothing unless asked for. `id` out of
  // range gives nothing.
  virtual std::string_view TokenBytes(int32_t id, bool show_special = false) const = 0;
  // All tokens. What SentencePiece puts in front of a text is taken off again.
  virtual std::string Decode(std::span<const int32_t> ids, bool show_special = false) const = 0;

  virtual int32_t vocab_size() const = 0;
  virtual int32_t bos() const = 0;  // -1: none
  virtual int32_t eos() const = 0;  // -1: none
  virtual bool adds_bos() const = 0;
  // True for every token that ends a text or a chat turn (eos, <|im_end|>, <|eot_id|>, …).
  virtual bool IsEnd(int32_t id) const = 0;
  // Id of a token by its exact text, -1 if there is none.
  virtual int32_t Find(std::string_view token) const = 0;
};

// Turns a stream of tokens into text without ever cutting a UTF-8 character: bytes wait until the
// character is complete. Invalid bytes come out as U+FFFD.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  // The text that is complete now; may be empty.
  std::string Next(int32_t id);
  // What is left at the end.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;
  bool first_ = true;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_TOKENIZER_TOKENIZER_H_
