// What a cache must be told of the model that feeds it. Whoever makes a cache for a model starts
// from these options, so that codebooks (pq rungs) of another model are refused and the shipped
// ones, and the shipped compressor (fold=), are found.

#ifndef VARVE_RUNTIME_MODEL_CACHE_H_
#define VARVE_RUNTIME_MODEL_CACHE_H_

#include <cstdint>
#include <memory>

#include "runtime/model/decoder_model.h"
#include "varve/cache.h"
#include "varve/codebook.h"
#include "varve/compressor.h"

namespace varve {

// The codebook that ships with this program for the model of that fingerprint; null if there is
// none. Parsed once; thread-safe.
std::shared_ptr<const Codebook> ShippedCodebook(uint64_t model_fingerprint);

// The compressor that ships for that model; null if there is none. A compressor's file does not say
// whose it is: it goes with the codebook. Parsed once; thread-safe.
std::shared_ptr<const Compressor> ShippedCompressor(uint64_t model_fingerprint);

// Options with model_fingerprint, codebook and compressor filled in, and, for a model on a GPU,
// where the cache lives (DecoderModel::PlaceCache); nothing else. Plan and executor are the
// caller's. A model of random weights has fingerprint 0 and neither of both.
CacheOptions CacheOptionsFor(const DecoderModel& model);

}  // namespace varve

#endif  // VARVE_RUNTIME_MODEL_CACHE_H_
