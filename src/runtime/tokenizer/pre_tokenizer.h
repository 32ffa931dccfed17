// PreTokenizer: cuts a text into the words that byte-level BPE works on, by the regular expressions
// that belong to the name in tokenizer.ggml.pre.
//
// Expressions run one after another, each inside the words of the one before; what an expression
// leaves between its matches is a word, too. No byte is ever lost: the words joined are the text.
//
// Bytes that are no UTF-8 count as a character that is neither letter, number nor blank, one each,
// which is what U+FFFD would be; the words hold the bytes themselves.
//
// Immutable after Create; any number of threads may split at once (match data is per call).

#ifndef VARVE_RUNTIME_TOKENIZER_PRE_TOKENIZER_H_
#define VARVE_RUNTIME_TOKENIZER_PRE_TOKENIZER_H_

#include <memory>
#include <string_view>
#include <vector>

#include "varve/status.h"

namespace varve {

class PreTokenizer {
 public:
  // kUnimplemented names `pre` and the names there are.
  static Result<std::unique_ptr<PreTokenizer>> Create(std::string_view pre);
  virtual ~PreTokenizer() = default;

  // Words view `text`; none is empty.
  virtual std::vector<std::string_view> Split(std::string_view text) const = 0;

  // A word that is a token is taken as such, whatever the merges make of it (Llama 3).
  virtual bool whole_words() const = 0;
  // Whether a text begins with BOS where the file does not say.
  virtual bool adds_bos() const = 0;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_TOKENIZER_PRE_TOKENIZER_H_
