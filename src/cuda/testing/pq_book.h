// A made-up codebook for tests of product quantization.

#ifndef VARVE_CUDA_TESTING_PQ_BOOK_H_
#define VARVE_CUDA_TESTING_PQ_BOOK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "cuda/pq_rows.h"
#include "kernels/pq_kernels.h"

namespace varve::cuda::testing {

// A codebook of one group. The rotation moves channels and changes signs, which is exact.
struct PqBook {
  PqShape shape;
  std::vector<uint8_t> centroids;
  std::vector<float> scales;
  std::vector<uint16_t> rotation;
};

inline PqBook MakePqBook(int dim, int subspaces, int bits, int page_tokens, bool rotated,
                         uint64_t seed) {
  SplitMix64 random(seed);
  PqBook book;
  book.shape = {dim, subspaces, bits, page_tokens};
  book.centroids.resize(static_cast<size_t>(dim) << bits);
  for (uint8_t& x : book.centroids) x = static_cast<uint8_t>(1 + random.Next() % 255);
  for (int m = 0; m < subspaces; ++m)
    book.scales.push_back(0.001f + 0.0002f * static_cast<float>(m % 5));
  if (!rotated) return book;
  book.rotation.assign(static_cast<size_t>(dim) * dim, 0);
  for (int i = 0; i < dim; ++i) {
    const int from = (i * 5 + 3) % dim;  // 5 has no factor with any head_dim
    book.rotation[static_cast<size_t>(i) * dim + from] = F32ToF16(i % 3 == 0 ? -1.0f : 1.0f);
  }
  return book;
}

// The tables that attention looks codes up in.
inline std::vector<uint8_t> RowsOf(const PqBook& book) {
  std::vector<uint8_t> rows(book.centroids.size());
  WritePqRows(book.centroids.data(), book.shape.dim, book.shape.bits, rows.data());
  return rows;
}
// Nothing for sizes that have no kernel for pairs.
inline std::vector<uint8_t> PairRowsOf(const PqBook& book, bool value) {
  if (!HasPairRows(book.shape.dim, book.shape.subspaces, book.shape.bits)) return {};
  std::vector<uint8_t> rows(book.centroids.size());
  WritePairRows(book.centroids.data(), value, rows.data());
  return rows;
}

// The bytes of a strip, and the rows that they stand for.
struct Strip {
  std::vector<std::byte> bytes;
  std::vector<float> rows;
};

// Random codes and gains; what they stand for.
inline Strip MakePqStrip(const PqBook& book, int num_rows, SplitMix64& random) {
  const PqShape& shape = book.shape;
  const auto dim = static_cast<size_t>(shape.dim);
  Strip strip;
  strip.bytes.assign(shape.strip_bytes(), std::byte{0});
  std::vector<float> gains;
  for (int token = 0; token < shape.page_tokens; ++token) {
    const auto level = static_cast<float>(random.Next() % 1000);
    const uint16_t gain = F32ToF16(token < num_rows ? 5.0f + 0.01f * level : 0.0f);
    std::memcpy(&strip.bytes[2 * static_cast<size_t>(token)], &gain, 2);
    gains.push_back(F16ToF32(gain));
  }
  std::vector<float> turned(static_cast<size_t>(shape.page_tokens) * dim);
  std::vector<uint16_t> codes(static_cast<size_t>(shape.page_tokens));
  for (int m = 0; m < shape.subspaces; ++m) {
    for (uint16_t& code : codes) {
      code = static_cast<uint16_t>(random.Next() % static_cast<uint64_t>(shape.num_codes()));
    }
    WritePqCodes(shape, m, codes.data(), strip.bytes.data());
    for (size_t token = 0; token < codes.size(); ++token) {
      for (int j = 0; j < shape.sub_dim(); ++j) {
        const auto d = static_cast<size_t>(m) * shape.sub_dim() + j;
        const int byte = book.centroids[(d << shape.bits) + codes[token]] - 128;
        turned[token * dim + d] =
            gains[token] * book.scales[static_cast<size_t>(m)] * static_cast<float>(byte);
      }
    }
  }
  strip.rows = turned;
  if (book.rotation.empty()) return strip;
  std::fill(strip.rows.begin(), strip.rows.end(), 0.0f);
  for (size_t i = 0; i < dim; ++i) {
    for (size_t j = 0; j < dim; ++j) {
      const float r = F16ToF32(book.rotation[i * dim + j]);
      for (size_t token = 0; r != 0.0f && token < codes.size(); ++token)
        strip.rows[token * dim + j] += r * turned[token * dim + i];
    }
  }
  return strip;
}

}  // namespace varve::cuda::testing

#endif  // VARVE_CUDA_TESTING_PQ_BOOK_H_
