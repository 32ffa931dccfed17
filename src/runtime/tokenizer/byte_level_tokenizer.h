// ByteLevelTokenizer: the family "gpt2". A text is cut into words by a PreTokenizer; each word is
// its bytes, written as printable characters, and merged by the file's list, lowest rank first.
//
// Any bytes round-trip if the vocabulary has a token for each of the 256 bytes, as all that we know
// do. A byte that has none becomes the unknown token, or nothing if there is none.

#ifndef VARVE_RUNTIME_TOKENIZER_BYTE_LEVEL_TOKENIZER_H_
#define VARVE_RUNTIME_TOKENIZER_BYTE_LEVEL_TOKENIZER_H_

#include <memory>

#include "runtime/gguf/gguf_file.h"
#include "runtime/tokenizer/tokenizer.h"
#include "varve/status.h"

namespace varve {

Result<std::unique_ptr<Tokenizer>> CreateByteLevelTokenizer(const GgufFile& file);

}  // namespace varve

#endif  // VARVE_RUNTIME_TOKENIZER_BYTE_LEVEL_TOKENIZER_H_
