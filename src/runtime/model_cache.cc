#include "runtime/model_cache.h"

#include <cstddef>
#include <span>
#include <utility>

#include "runtime/embedded_model.h"

namespace varve {

namespace {

// Null if this build has none.
std::shared_ptr<const Codebook> ParseEmbeddedCodebook() {
  const std::span<const std::byte> bytes = EmbeddedCodebook();
  if (bytes.empty()) return nullptr;
  Result<Codebook> parsed = ParseCodebook(bytes, "the embedded codebook");
  if (!parsed.ok()) return nullptr;  // a test says that this does not happen
  return std::make_shared<const Codebook>(std::move(*parsed));
}

std::shared_ptr<const Compressor> ParseEmbeddedCompressor() {
  const std::span<const std::byte> bytes = EmbeddedCompressor();
  if (bytes.empty()) return nullptr;
  Result<Compressor> parsed = ParseCompressor(bytes, "the embedded compressor");
  if (!parsed.ok()) return nullptr;  // a test says that this does not happen
  return std::make_shared<const Compressor>(std::move(*parsed));
}

}  // namespace

std::shared_ptr<const Codebook> ShippedCodebook(uint64_t model_fingerprint) {
  static const std::shared_ptr<const Codebook> embedded = ParseEmbeddedCodebook();
  const bool fits = embedded != nullptr && model_fingerprint != 0 &&
                    embedded->model_fingerprint == model_fingerprint;
  return fits ? embedded : nullptr;
}

std::shared_ptr<const Compressor> ShippedCompressor(uint64_t model_fingerprint) {
  static const std::shared_ptr<const Compressor> embedded = ParseEmbeddedCompressor();
  return ShippedCodebook(model_fingerprint) != nullptr ? embedded : nullptr;
}

CacheOptions CacheOptionsFor(const DecoderModel& model) {
  CacheOptions options;
  options.model_fingerprint = model.fingerprint();
  options.codebook = ShippedCodebook(model.fingerprint());
  options.compressor = ShippedCompressor(model.fingerprint());
  model.PlaceCache(&options);
  return options;
}

}  // namespace varve
