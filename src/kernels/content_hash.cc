#include "kernels/content_hash.h"

#include "kernels/content_hash-inl.h"

namespace varve {
namespace {

const HashFunctions& BestFunctions() {
  static const HashFunctions& best = []() -> const HashFunctions& {
#if defined(__x86_64__)
    const HashFunctions* avx2 = Avx2HashFunctions();
    if (avx2 != nullptr && __builtin_cpu_supports("avx2")) return *avx2;
#endif
    return kFunctions;
  }();
  return best;
}

}  // namespace

uint64_t HashBytes(const void* data, size_t bytes, uint64_t seed) {
  return BestFunctions().bytes(data, bytes, seed);
}

uint64_t HashPieces(const void* data, size_t piece_bytes, size_t stride, size_t count) {
  return BestFunctions().pieces(data, piece_bytes, stride, count);
}

}  // namespace varve
