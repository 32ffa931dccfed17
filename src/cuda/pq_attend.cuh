// Attention on strips of product quantization. A table in shared memory has the bytes of all
// centroids, a row of 256 bytes per code: four channels are one word, found with the lane's place
// and the code as its address. The 32 lanes read 32 different words of a row each, so no two want
// the same bank, whatever the codes. What is looked up goes to a buffer of the warp, as rows of
// bytes, and from there by matrix loads into products, like the bytes of q8_0.
//
// A score is gain * (query . (bytes - 128)), the query turned and scaled as the codebook says
// (query_setup.cuh); values likewise, scaled and turned back at the end (join_states.cuh).

#ifndef VARVE_CUDA_PQ_ATTEND_CUH_
#define VARVE_CUDA_PQ_ATTEND_CUH_

#include "cuda/attend_params.h"
#include "cuda/key_scores.cuh"
#include "cuda/pq_strip.cuh"
#include "cuda/value_sums.cuh"

namespace varve::cuda {

inline constexpr float kPqMagic = kByteMagic + 128.0f;

// The table of K and V: [codes][256] bytes; V lies in the upper half of each row, or for D = 256
// behind K's rows.
template <int D>
struct PqTable {
  static constexpr int kRowBytes = 256;
  static_assert(D <= kRowBytes);

  __device__ __forceinline__ static int Offset(bool value, int codes) {
    if (!value) return 0;
    return D > 128 ? codes * kRowBytes : 128;
  }
};

// Those of the parts that have pq pages, into shared memory. All threads of a block; they are there
// after WaitOwnCopies and a barrier. kPairs: the rows of pq_pairs.cuh.
template <int D, bool kPairs>
__device__ __forceinline__ void StartPqTables(const AttendParams& params, int kv_head, int thread,
                                              int num_threads, std::byte* tables) {
  constexpr int kUnits = D / 16;  // of a row
  const DeviceAttention& call = params.call;
  const int codes = 1 << call.shape.pq_bits;
  for (const bool value : {false, true}) {
    const DeviceCodebook& codebook = value ? call.value_codebook : call.key_codebook;
    const uint8_t* rows = kPairs ? codebook.pair_rows : codebook.rows;
    if (rows == nullptr) continue;
    const auto* from =
        reinterpret_cast<const std::byte*>(rows + kv_head * codebook.centroid_stride);
    std::byte* to = tables + PqTable<D>::Offset(value, codes);
    for (int at = thread; at < codes * kUnits; at += num_threads) {
      StartOwnCopy(to + at / kUnits * PqTable<D>::kRowBytes + at % kUnits * 16, from + 16 * at);
    }
  }
}

// The decoded bytes of some tokens, in shared memory. Units of 16 bytes are exchanged within a row,
// so that neither the rows of a matrix nor the words of a row meet in a bank.
template <int D>
struct PqBuffer {
  static constexpr int kTokens = D == 256 ? 16 : 64;  // of a pass
  static constexpr int kRowBytes = D == 64 ? 64 : D == 256 ? 256 : 128;
  static constexpr int kBytes = kTokens * kRowBytes;

  __device__ __forceinline__ static int Swizzle(int token) {
    return token >> 1 & (D == 64 ? 3 : 7);
  }
  // Of a word (4 channels), or of a unit of 16 channels.
  __device__ __forceinline__ static int WordAt(int token, int word) {
    return token * kRowBytes + 4 * (word ^ Swizzle(token) << 2);
  }
  __device__ __forceinline__ static int UnitAt(int token, int unit) {
    return token * kRowBytes + 16 * (unit ^ Swizzle(token));
  }
};

// What a warp needs to read pq strips.
struct PqReader {
  PqLayout layout;
  int sub_dim;
  SharedPlace tables;
  SharedPlace buffer;  // of this warp
};

__device__ __forceinline__ uint32_t WordOf(const uint4& x, int k) {
  return k == 0 ? x.x : k == 1 ? x.y : k == 2 ? x.z : x.w;
}

// The codes of 16 tokens, a byte each, of one sub-space.
__device__ __forceinline__ uint4 LoadPqCodes(const PqLayout& layout, const std::byte* strip,
                                             int subspace, int chunk) {
  const bool halves = layout.bits < 8;
  const int row = halves ? subspace / 2 : subspace;
  uint4 codes = *reinterpret_cast<const uint4*>(strip + 2 * layout.page_tokens +
                                                row * layout.page_tokens + 16 * chunk);
  if (!halves) return codes;
  const int shift = 4 * (subspace % 2);
  uint32_t words[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) words[k] = WordOf(codes, k) >> shift & 0x0F0F0F0Fu;
  for (int plane = 0; plane < layout.planes(); ++plane) {
    const uint32_t bits = *reinterpret_cast<const uint16_t*>(
        strip + layout.plane_offset() +
        (subspace * layout.planes() + plane) * (layout.page_tokens / 8) + 2 * chunk);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      // Four bits to the lowest bits of four bytes.
      const uint32_t spread = (bits >> (4 * k) & 15) * 0x00204081u & 0x01010101u;
      words[k] |= spread << (4 + plane);
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

// Bytes of four channels for 16 tokens into the buffer. kParts codes make a word: of 4, 2 or 1
// channels.
template <int D, int kParts>
__device__ __forceinline__ void DecodePqChunk(const PqReader& pq, const std::byte* strip,
                                              SharedPlace table, int word, int chunk,
                                              int first_token) {
  uint4 codes[kParts];
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    codes[part] = LoadPqCodes(pq.layout, strip, kParts * word + part, chunk);
  }
  const auto place = static_cast<uint32_t>(4 * word);
  uint32_t bytes[16];
#pragma unroll
  for (int t = 0; t < 16; ++t) {
    uint32_t found[kParts];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const uint32_t four = WordOf(codes[part], t / 4);
      // The code becomes the second byte of the address, the word's place the first.
      const uint32_t at = PermuteBytes(four, place, 0x5504u | static_cast<uint32_t>(t % 4) << 4);
      found[part] = LoadShared(table + at);
    }
    bytes[t] = found[0];
    if constexpr (kParts == 2) bytes[t] = PermuteBytes(found[0], found[1], 0x7610);
    if constexpr (kParts == 4) {
      bytes[t] = PermuteBytes(PermuteBytes(found[0], found[1], 0x0050),
                              PermuteBytes(found[2], found[3], 0x7200), 0x7610);
    }
  }
#pragma unroll
  for (int t = 0; t < 16; ++t) {
    StoreShared(pq.buffer + PqBuffer<D>::WordAt(first_token + t, word), bytes[t]);
  }
}

// Tokens [16 * first_chunk, …) of a strip, a buffer's worth.
template <int D, int kParts>
__device__ __forceinline__ void DecodePqTokens(const PqReader& pq, const std::byte* strip,
                                               SharedPlace table, int first_chunk, int lane) {
  constexpr int kWords = D / 4;
  constexpr int kChunks = PqBuffer<D>::kTokens / 16;
  constexpr int kLanes = kWords < 32 ? kWords : 32;  // that a row of words takes
  constexpr int kRows = D == 64 ? 2 : 1;             // of words that lanes take at once
  const int word = lane % kLanes, row = lane / kLanes;
#pragma unroll 1
  for (int round = 0; round < kChunks / kRows; ++round) {
    // Rows of codes are 64 bytes apart: lanes take different chunks of them at a time.
    const int chunk = kChunks == 1 ? 0 : (kRows * round + row + lane / 2 * kRows) % kChunks;
#pragma unroll
    for (int more = 0; more < kWords; more += kLanes) {
      if (row < kRows) {
        DecodePqChunk<D, kParts>(pq, strip, table, word + more, first_chunk + chunk, 16 * chunk);
      }
    }
  }
}

template <int D>
__device__ __forceinline__ void DecodePq(const PqReader& pq, const std::byte* strip, bool value,
                                         int first_chunk, int lane) {
  const SharedPlace table = pq.tables + PqTable<D>::Offset(value, 1 << pq.layout.bits);
  __syncwarp();  // the buffer has been read
  if (pq.sub_dim == 2) {
    DecodePqTokens<D, 2>(pq, strip, table, first_chunk, lane);
  } else if (pq.sub_dim == 4) {
    DecodePqTokens<D, 1>(pq, strip, table, first_chunk, lane);
  } else {
    DecodePqTokens<D, 4>(pq, strip, table, first_chunk, lane);
  }
  __syncwarp();
}

// The row of a matrix load that this lane names: matrices are even and odd tokens of a unit, then
// of the next.
template <int D>
__device__ __forceinline__ SharedPlace PqRowOf(const PqReader& pq, int first_token, int unit,
                                               int lane) {
  const int token = first_token + 2 * (lane % 8) + lane / 8 % 2;
  return pq.buffer + PqBuffer<D>::UnitAt(token, unit + lane / 16);
}

template <int D, int NT>
__device__ __forceinline__ void PqKeyScores(const PqReader& pq, const std::byte* strip,
                                            int first_tile, const LanePlace& at,
                                            const QuerySet<D, NT>& query, const float* steps,
                                            Scores<NT, 4>& s) {
  constexpr int kPassTiles = PqBuffer<D>::kTokens / 16;
  const uint32_t magic = kPermuteWords.magic;
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
    if (tile % kPassTiles == 0) DecodePq<D>(pq, strip, false, first_tile + tile, at.lane);
    float sum[NT][4];
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
      const float2 offset = query.Offset(nt, 0);
#pragma unroll
      for (int c = 0; c < 4; ++c) sum[nt][c] = c % 2 == 0 ? offset.x : offset.y;
    }
#pragma unroll
    for (int unit = 0; unit < D / 16; unit += 2) {
      uint32_t r[4];
      LoadMatrices(PqRowOf<D>(pq, tile % kPassTiles * 16, unit, at.lane), r);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const uint32_t a[4] = {
            BytesToHalf2<0, 1>(r[2 * k], magic), BytesToHalf2<0, 1>(r[2 * k + 1], magic),
            BytesToHalf2<2, 3>(r[2 * k], magic), BytesToHalf2<2, 3>(r[2 * k + 1], magic)};
#pragma unroll
        for (int nt = 0; nt < NT; ++nt) Multiply(sum[nt], a, query.Fragment(nt, unit + k));
      }
    }
    const float2 gain =
        __half22float2(AsHalf2(Load1(strip + ((first_tile + tile) * 16 + 2 * at.g) * 2)));
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        s[tile][nt][c] = sum[nt][c] * (c < 2 ? gain.x : gain.y) * steps[8 * nt + c % 2];
      }
    }
  }
}

template <int D, int NT>
__device__ __forceinline__ void PqValueSums(const PqReader& pq, const std::byte* strip,
                                            int first_tile, const LanePlace& at,
                                            const Scores<NT, 4>& p, Sums<D, NT>& o) {
  constexpr int kPassTiles = PqBuffer<D>::kTokens / 16;
  constexpr uint32_t kOnes[4] = {0x3C003C00u, 0x3C003C00u, 0x3C003C00u, 0x3C003C00u};
  const uint32_t magic = kPermuteWords.magic;
  Weights<NT, 4> w;
  PackWeights<NT, 4>(p, w);
#pragma unroll
  for (int tile = 0; tile < 4; ++tile) {
    const uint2 gains = Load2(strip + ((first_tile + tile) * 16 + 4 * at.i) * 2);
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
      w[tile][nt].x = CutWeights(ScaleWeights(w[tile][nt].x, Lows(gains.x, gains.y)));
      w[tile][nt].y = CutWeights(ScaleWeights(w[tile][nt].y, Highs(gains.x, gains.y)));
    }
  }
#pragma unroll
  for (int first = 0; first < 4; first += kPassTiles) {
    DecodePq<D>(pq, strip, true, first_tile + first, at.lane);
    float weight_sum[NT][4] = {};
#pragma unroll
    for (int tile = first; tile < first + kPassTiles; ++tile) {
#pragma unroll
      for (int nt = 0; nt < NT; ++nt) Multiply(weight_sum[nt], kOnes, w[tile][nt]);
    }
#pragma unroll
    for (int block = 0; block < D / 32; ++block) {
      float sum[2][NT][4];
#pragma unroll
      for (int k = 0; k < 8 * NT; ++k) {
        sum[k / (4 * NT)][k / 4 % NT][k % 4] = -kPqMagic * weight_sum[k / 4 % NT][k % 2];
      }
#pragma unroll
      for (int tile = first; tile < first + kPassTiles; ++tile) {
        uint32_t r[4];
        LoadMatricesTransposed(PqRowOf<D>(pq, (tile - first) * 16, 2 * block, at.lane), r);
        const uint32_t even[4] = {BytesToHalf2<0, 2>(r[0], magic), BytesToHalf2<0, 2>(r[2], magic),
                                  BytesToHalf2<0, 2>(r[1], magic), BytesToHalf2<0, 2>(r[3], magic)};
        const uint32_t odd[4] = {BytesToHalf2<1, 3>(r[0], magic), BytesToHalf2<1, 3>(r[2], magic),
                                 BytesToHalf2<1, 3>(r[1], magic), BytesToHalf2<1, 3>(r[3], magic)};
#pragma unroll
        for (int nt = 0; nt < NT; ++nt) {
          Multiply(sum[0][nt], even, w[tile][nt]);
          Multiply(sum[1][nt], odd, w[tile][nt]);
        }
      }
#pragma unroll
      for (int k = 0; k < 8 * NT; ++k) {
        o[block][k / (4 * NT)][k / 4 % NT][k % 4] += sum[k / (4 * NT)][k / 4 % NT][k % 4];
      }
    }
  }
}

}  // namespace varve::cuda

#endif  // VARVE_CUDA_PQ_ATTEND_CUH_
