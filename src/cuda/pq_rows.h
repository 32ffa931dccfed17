// The tables in which attention looks up what codes of pq stand for, as they lie in device memory:
// a row of a byte for each channel, by code. A block copies them into shared memory.

#ifndef VARVE_CUDA_PQ_ROWS_H_
#define VARVE_CUDA_PQ_ROWS_H_

#include <cstddef>
#include <cstdint>

namespace varve::cuda {

// `rows` is [codes][dim], `centroids` a codebook's [dim][codes].
inline void WritePqRows(const uint8_t* centroids, int dim, int bits, uint8_t* rows) {
  const size_t codes = size_t{1} << bits, channels = static_cast<size_t>(dim);
  for (size_t channel = 0; channel < channels; ++channel) {
    for (size_t code = 0; code < codes; ++code) {
      rows[code * channels + channel] = centroids[channel * codes + code];
    }
  }
}

// Codes of 8 bits for two channels each of heads of 128 have rows of their own (pq_pairs.cuh).
inline constexpr int kPairDim = 128;

constexpr bool HasPairRows(int dim, int subspaces, int bits) {
  return dim == kPairDim && 2 * subspaces == dim && bits == 8;
}

// Those of K are numbers with a sign. In those of V pairs 16 channels apart share a word.
inline void WritePairRows(const uint8_t* centroids, bool value, uint8_t* rows) {
  constexpr int kCodes = 256;
  for (int at = 0; at < kPairDim; ++at) {
    const int word = at / 4, j = at % 4;
    const int channel = value ? word / 8 * 32 + word % 8 * 2 + j / 2 * 16 + j % 2 : at;
    for (int code = 0; code < kCodes; ++code) {
      rows[code * kPairDim + at] =
          static_cast<uint8_t>(centroids[channel * kCodes + code] ^ (value ? 0u : 0x80u));
    }
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_PQ_ROWS_H_
