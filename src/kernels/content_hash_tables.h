// The compilations of XXH3; private to src/kernels. Plain C types only: if an AVX2 compilation
// instantiated anything else, the linker could use that copy on machines without AVX2.

#ifndef VARVE_KERNELS_CONTENT_HASH_TABLES_H_
#define VARVE_KERNELS_CONTENT_HASH_TABLES_H_

#include <cstddef>
#include <cstdint>

namespace varve {

struct HashFunctions {
  uint64_t (*bytes)(const void* data, size_t bytes, uint64_t seed);
  uint64_t (*pieces)(const void* data, size_t piece_bytes, size_t stride, size_t count);
};

// Null where this build has none. The machine must have AVX2.
const HashFunctions* Avx2HashFunctions();

}  // namespace varve

#endif  // VARVE_KERNELS_CONTENT_HASH_TABLES_H_
