// XXH3 with the instructions of the including file; kFunctions is its table.

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/content_hash_tables.h"

namespace varve {
namespace {

inline uint64_t Bytes(const void* data, size_t bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

inline uint64_t Pieces(const void* data, size_t piece_bytes, size_t stride, size_t count) {
  if (stride == piece_bytes) return XXH3_64bits(data, piece_bytes * count);
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (size_t i = 0; i < count; ++i) {
    XXH3_64bits_update(&state, static_cast<const char*>(data) + i * stride, piece_bytes);
  }
  return XXH3_64bits_digest(&state);
}

inline constexpr HashFunctions kFunctions = {Bytes, Pieces};

}  // namespace
}  // namespace varve
