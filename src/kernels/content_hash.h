// XXH3-64: the checksum of packed pages and the name of dictionaries.
//
// The library is compiled in from its header, once for every machine and once with AVX2, which is
// nearly twice as fast on a page; the values are the same. Pure, any thread.

#ifndef VARVE_KERNELS_CONTENT_HASH_H_
#define VARVE_KERNELS_CONTENT_HASH_H_

#include <cstddef>
#include <cstdint>

namespace varve {

uint64_t HashBytes(const void* data, size_t bytes, uint64_t seed = 0);

// The hash of `count` pieces, as if they lay one after the other.
uint64_t HashPieces(const void* data, size_t piece_bytes, size_t stride, size_t count);

}  // namespace varve

#endif  // VARVE_KERNELS_CONTENT_HASH_H_
