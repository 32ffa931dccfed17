// SentencePieceTokenizer: the family "llama". The blank is U+2581; characters are merged by the
// score of what they become, highest first; a character that is no token becomes its bytes
// ("<0xE4>").
//
// In front of a text, and behind each special token, stands a blank if the file wants it
// (add_space_prefix); Decode takes the first one off. A byte that is no UTF-8 becomes its byte
// token and so comes back; U+2581 in a text comes back as a blank, as with SentencePiece. What has
// neither token nor byte tokens becomes one unknown token per run.

#ifndef VARVE_RUNTIME_TOKENIZER_SENTENCE_PIECE_TOKENIZER_H_
#define VARVE_RUNTIME_TOKENIZER_SENTENCE_PIECE_TOKENIZER_H_

#include <memory>

#include "runtime/gguf/gguf_file.h"
#include "runtime/tokenizer/tokenizer.h"
#include "varve/status.h"

namespace varve {

Result<std::unique_ptr<Tokenizer>> CreateSentencePieceTokenizer(const GgufFile& file);

}  // namespace varve

#endif  // VARVE_RUNTIME_TOKENIZER_SENTENCE_PIECE_TOKENIZER_H_
