#include "runtime/model_cache.h"

namespace varve {

std::shared_ptr<const Codebook> ShippedCodebook(uint64_t /*model_fingerprint*/) {
  return nullptr;  // none ships yet
}

CacheOptions CacheOptionsFor(const LlamaModel& model) {
  CacheOptions options;
  options.model_fingerprint = model.fingerprint();
  options.codebook = ShippedCodebook(model.fingerprint());
  return options;
}

}  // namespace varve
