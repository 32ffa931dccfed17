// The oracle of the kernel tests: strips of random content, and their values in double precision,
// read by a second implementation of the layouts in kernels.h. Not part of the library.

#ifndef VARVE_KERNELS_STRIP_ORACLE_H_
#define VARVE_KERNELS_STRIP_ORACLE_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/half.h"
#include "kernels/kernel_testing.h"
#include "kernels/kernels.h"

namespace varve {

// A strip and its rows: value(token, d) is what the bytes mean.
struct OracleStrip {
  int dim;
  int page_tokens;
  std::vector<std::byte> bytes;
  std::vector<double> rows;  // [page_tokens, dim]

  double value(int token, int d) const { return rows[static_cast<size_t>(token) * dim + d]; }
};

// Offset, in values, of (token, d) of a float strip.
inline size_t FloatKeyAt(const OracleStrip& s, int token, int d) {
  return (static_cast<size_t>(token / 16) * s.dim + d) * 16 + token % 16;
}
inline size_t FloatValueAt(const OracleStrip& s, int token, int d) {
  const int chunk = s.dim % 32 == 0 ? 32 : 16;
  return (static_cast<size_t>(d / chunk) * s.page_tokens + token) * chunk + d % chunk;
}

inline OracleStrip RandomFloatStrip(FloatType type, bool is_key, int dim, int page_tokens,
                                    TestRandom& random) {
  OracleStrip s{dim, page_tokens, {}, {}};
  s.rows.resize(static_cast<size_t>(page_tokens) * dim);
  s.bytes.resize(s.rows.size() * FloatBytes(type));
  for (int token = 0; token < page_tokens; ++token) {
    for (int d = 0; d < dim; ++d) {
      const size_t at = is_key ? FloatKeyAt(s, token, d) : FloatValueAt(s, token, d);
      float x = random.Gaussian();
      if (type == FloatType::kF32) {
        std::memcpy(&s.bytes[4 * at], &x, 4);
      } else {
        const uint16_t bits = type == FloatType::kF16 ? F32ToF16(x) : F32ToBF16(x);
        std::memcpy(&s.bytes[2 * at], &bits, 2);
        x = type == FloatType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
      }
      s.rows[static_cast<size_t>(token) * dim + d] = x;
    }
  }
  return s;
}

// Where the codes of a block query start: after the 4-byte fields of its blocks. Their size per
// block follows from the size of a query of 512 values, which has no padding.
inline size_t BlockQueryCodesAt(int dim) {
  constexpr size_t kFieldBytes = (BlockQueryBytes(512) - 4 * 512) / (512 / kBlockValues);
  return static_cast<size_t>(dim) / kBlockValues * kFieldBytes;
}

// Byte offset of the scale of block b of a token.
inline size_t BlockScaleAt(const OracleStrip& s, bool is_key, int token, int b) {
  const int blocks = s.dim / 32;
  const size_t at = is_key ? (static_cast<size_t>(token / 16) * blocks + b) * 16 + token % 16
                           : static_cast<size_t>(b) * s.page_tokens + token;
  return 2 * at;
}

// Byte offset of the code of element i (0…31) of block b; for q4_0 the nibble is low where i < 16.
inline size_t BlockCodeAt(const OracleStrip& s, BlockType type, bool is_key, int token, int b,
                          int i) {
  const size_t blocks = static_cast<size_t>(s.dim) / 32;
  const size_t code_bytes = BlockCodeBytes(type);
  const size_t byte = type == BlockType::kQ8 ? i : i % 16;  // within the block, in ggml's order
  const size_t start = 2 * blocks * s.page_tokens;
  if (is_key) {
    const size_t block = (token / 16 * blocks + b) * code_bytes * 16;
    return start + block + (byte / 4 * 16 + token % 16) * 4 + byte % 4;
  }
  const size_t block = b * code_bytes * s.page_tokens;
  return start + block + (token / 4 * code_bytes + byte) * 4 + token % 4;
}

inline int BlockCode(const OracleStrip& s, BlockType type, bool is_key, int token, int b, int i) {
  const uint8_t byte = static_cast<uint8_t>(s.bytes[BlockCodeAt(s, type, is_key, token, b, i)]);
  if (type == BlockType::kQ4) return (i < 16 ? byte & 15 : byte >> 4) - 8;
  return is_key ? byte - 128 : static_cast<int8_t>(byte);
}

// Random codes, among them the extreme ones (q8_0: -128 too, which ggml never writes but a file may
// hold), and scales between 1e-3 and 1, every eighth zero; negative ones in q4_0 only.
inline OracleStrip RandomBlockStrip(BlockType type, bool is_key, int dim, int page_tokens,
                                    TestRandom& random) {
  OracleStrip s{dim, page_tokens, {}, {}};
  s.rows.resize(static_cast<size_t>(page_tokens) * dim);
  s.bytes.resize(s.rows.size() / 32 * (2 + BlockCodeBytes(type)));
  for (std::byte& byte : s.bytes) byte = static_cast<std::byte>(random.Bits() >> 56);
  for (int token = 0; token < page_tokens; ++token) {
    for (int b = 0; b < dim / 32; ++b) {
      float scale = random.Bits() % 8 == 0 ? 0.0f : 0.001f + random.Uniform();
      if (type == BlockType::kQ4 && random.Bits() % 2 == 0) scale = -scale;
      const uint16_t bits = F32ToF16(scale);
      std::memcpy(&s.bytes[BlockScaleAt(s, is_key, token, b)], &bits, 2);
      for (int i = 0; i < 32; ++i) {
        s.rows[static_cast<size_t>(token) * dim + b * 32 + i] =
            static_cast<double>(F16ToF32(bits)) * BlockCode(s, type, is_key, token, b, i);
      }
    }
  }
  return s;
}

// The weights of a page.
struct Weights {
  int page_tokens;
  std::vector<float> values;  // [num_rows, page_tokens]
  std::vector<float> total;   // [num_rows] what the weights are a part of

  float at(int row, int token) const {
    return values[static_cast<size_t>(row) * page_tokens + token];
  }
  float max(int row) const {
    const float* first = &values[static_cast<size_t>(row) * page_tokens];
    return *std::max_element(first, first + page_tokens);
  }
};

// exp of a gaussian, as a softmax gives, and zero outside [first, first + count). The largest
// weight is `share` of the total.
inline Weights RandomWeights(int num_rows, int page_tokens, int first, int count, double share,
                             TestRandom& random) {
  Weights w{page_tokens, std::vector<float>(static_cast<size_t>(num_rows) * page_tokens, 0.0f), {}};
  for (int r = 0; r < num_rows; ++r) {
    for (int t = first; t < first + count; ++t) {
      w.values[static_cast<size_t>(r) * page_tokens + t] =
          std::exp(2.0f * random.Gaussian() - 4.0f);
    }
    w.total.push_back(static_cast<float>(w.max(r) / share));
  }
  return w;
}

// The kernel gets its weights with a gap of NaN between the rows.
inline std::vector<float> RunAddValues(void (*kernel)(const AddValuesArgs&), const OracleStrip& s,
                                       int first, int count, const Weights& w,
                                       const std::vector<float>& before,
                                       ReadAhead* ahead = nullptr) {
  const size_t num_rows = w.total.size(), tokens = static_cast<size_t>(s.page_tokens);
  const size_t stride = tokens + num_rows % 2 * 5;
  std::vector<float> weights((num_rows - 1) * stride + tokens,
                             std::numeric_limits<float>::quiet_NaN());
  for (size_t r = 0; r < num_rows; ++r)
    std::copy_n(&w.values[r * tokens], tokens, &weights[r * stride]);
  GuardedBuffer<float> sums(before.size());
  sums.Assign(before);
  kernel({s.bytes.data(), s.dim, s.page_tokens, first, count, weights.data(), stride,
          w.total.data(), static_cast<int>(num_rows), sums.data(), ahead});
  EXPECT_TRUE(sums.ZonesIntact());
  return {sums.data(), sums.data() + sums.size()};
}

}  // namespace varve

#endif  // VARVE_KERNELS_STRIP_ORACLE_H_
