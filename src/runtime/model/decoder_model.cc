#include "runtime/model/decoder_model.h"

#include <fmt/format.h>

namespace varve {

Result<std::shared_ptr<const DecoderModel>> DecoderModel::Repack(Executor&) const {
  return Unimplemented(fmt::format("{}: this architecture's weights cannot be repacked", name()));
}

Result<std::shared_ptr<const DecoderModel>> DecoderModel::PlaceOnGpu(int, Executor&) const {
  return Unimplemented(
      fmt::format("{}: architecture \"{}\" has no kernels for a GPU", name(), info_.architecture));
}

void DecoderModel::PlaceCache(CacheOptions*) const {}

Result<std::unique_ptr<Tokenizer>> DecoderModel::MakeTokenizer() const {
  if (info_.source.empty()) {
    return FailedPrecondition(
        fmt::format("{}: random weights have no tokenizer; name a model file", name()));
  }
  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, ReadTokenizer());
  // A text could have tokens that the model has no row for.
  if (tokenizer->vocab_size() > vocab_size()) {
    return InvalidArgument(fmt::format("{}: the tokenizer has {} tokens, the model's vocabulary {}",
                                       info_.source, tokenizer->vocab_size(), vocab_size()));
  }
  return tokenizer;
}

}  // namespace varve
