#include "runtime/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/tokenizer/byte_level_tokenizer.h"
#include "runtime/tokenizer/sentence_piece_tokenizer.h"
#include "runtime/tokenizer/vocabulary.h"

namespace varve {

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(const GgufFile& file) {
  VARVE_ASSIGN_OR_RETURN(std::string_view model, file.GetString("tokenizer.ggml.model"));
  if (model == "gpt2") return CreateByteLevelTokenizer(file);
  if (model == "llama") return CreateSentencePieceTokenizer(file);
  return Unimplemented(fmt::format(
      "tokenizer.ggml.model: {} is not built in; there are llama, gpt2", Quoted(model)));
}

}  // namespace varve
