// The kernels of amx_tiles.h on six tile instructions, spelled as <immintrin.h> spells them:
// _tile_loadconfig, _tile_release, _tile_zero, _tile_loadd, _tile_stored and _tile_dpbf16ps.
// amx_tiles.cc takes those of the processor, tests/emulated_amx.cc emulates them. Both define or
// include them first and are compiled with AVX-512 (CMakeLists.txt).

#ifndef VARVE_RUNTIME_KERNELS_AMX_TILES_INL_H_
#define VARVE_RUNTIME_KERNELS_AMX_TILES_INL_H_

#include <immintrin.h>

#include "runtime/kernels/amx_tiles.h"

// Each of the two that include this has kernels of its own.
// NOLINTBEGIN(misc-definitions-in-headers)
namespace varve {
namespace {

constexpr int kSums = kAmxRows * kAmxRows;  // of a tile
constexpr int kTileStride = 64;             // bytes

// All eight tiles whole. Static, since GCC 12 believes that loading it reads its first bytes alone
// and may leave the others of a local one unwritten.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfig kConfig;

// The tiles of this thread, while a product runs. Given back, threads switch without saving them.
class Tiles {
 public:
  Tiles() { _tile_loadconfig(&kConfig); }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// Two by two tiles of sums, or fewer: every tile that is loaded meets two. Sums lie one row group
// (kSums) or one token group (token_stride) apart.
template <int kRowGroups, int kTokenGroups>
void MultiplyBlock(const AmxProduct& p, const uint16_t* weights, const uint16_t* tokens,
                   float* sums) {
  const uint16_t* weights1 = weights + p.steps * kAmxTile;
  const uint16_t* tokens1 = tokens + p.tokens_steps * kAmxTile;
  float* sums1 = sums + static_cast<ptrdiff_t>(p.row_groups) * kSums;
  if (p.add) {
    _tile_loadd(0, sums, kTileStride);
    if constexpr (kRowGroups == 2) _tile_loadd(1, sums + kSums, kTileStride);
    if constexpr (kTokenGroups == 2) _tile_loadd(2, sums1, kTileStride);
    if constexpr (kRowGroups * kTokenGroups == 4) _tile_loadd(3, sums1 + kSums, kTileStride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t step = 0; step < p.steps; ++step) {
    const int64_t at = step * kAmxTile;
    _tile_loadd(4, weights + at, kTileStride);
    _tile_loadd(6, tokens + at, kTileStride);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kRowGroups == 2) {
      _tile_loadd(5, weights1 + at, kTileStride);
      _tile_dpbf16ps(1, 5, 6);
    }
    if constexpr (kTokenGroups == 2) {
      _tile_loadd(7, tokens1 + at, kTileStride);
      _tile_dpbf16ps(2, 4, 7);
    }
    if constexpr (kRowGroups * kTokenGroups == 4) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, kTileStride);
  if constexpr (kRowGroups == 2) _tile_stored(1, sums + kSums, kTileStride);
  if constexpr (kTokenGroups == 2) _tile_stored(2, sums1, kTileStride);
  if constexpr (kRowGroups * kTokenGroups == 4) _tile_stored(3, sums1 + kSums, kTileStride);
}

// The tokens of a block stay in the first-level cache while all weights pass.
template <int kTokenGroups>
void MultiplyTokens(const AmxProduct& p, int token_group) {
  const uint16_t* tokens = p.tokens + token_group * p.tokens_steps * kAmxTile;
  float* sums = p.sums + static_cast<ptrdiff_t>(token_group) * p.row_groups * kSums;
  const uint16_t* weights = p.weights;
  int group = 0;
  for (; group + 2 <= p.row_groups; group += 2) {
    MultiplyBlock<2, kTokenGroups>(p, weights, tokens, sums);
    weights += 2 * p.steps * kAmxTile;
    sums += ptrdiff_t{2} * kSums;
  }
  if (group < p.row_groups) MultiplyBlock<1, kTokenGroups>(p, weights, tokens, sums);
}

void Multiply(const AmxProduct& p) {
  const Tiles tiles;
  int group = 0;
  for (; group + 2 <= p.token_groups; group += 2) MultiplyTokens<2>(p, group);
  if (group < p.token_groups) MultiplyTokens<1>(p, group);
}

// Dword j of vector i becomes dword i of vector j.
void Transpose(__m512i (&v)[16]) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; i += 2) {  // dwords of two vectors by turns
    a[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {  // of four: vector 4 q + c has column c of each 128-bit lane
    b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  for (int c = 0; c < 4; ++c) {  // lanes of four vectors side by side
    const __m512i low = _mm512_shuffle_i32x4(b[c], b[4 + c], 0x44);
    const __m512i high = _mm512_shuffle_i32x4(b[c], b[4 + c], 0xee);
    const __m512i low1 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0x44);
    const __m512i high1 = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0xee);
    v[c] = _mm512_shuffle_i32x4(low, low1, 0x88);
    v[4 + c] = _mm512_shuffle_i32x4(low, low1, 0xdd);
    v[8 + c] = _mm512_shuffle_i32x4(high, high1, 0x88);
    v[12 + c] = _mm512_shuffle_i32x4(high, high1, 0xdd);
  }
}

__mmask16 FirstLanes(int64_t count) {
  return count >= 16  ? static_cast<__mmask16>(0xffff)
         : count <= 0 ? static_cast<__mmask16>(0)
                      : static_cast<__mmask16>((1u << count) - 1);
}

// Up to 32 values.
__m512i Narrow(const float* values, int64_t count) {
  const __m512 low = _mm512_maskz_loadu_ps(FirstLanes(count), values);
  // A masked load of nothing may name any address.
  const __m512 high = _mm512_maskz_loadu_ps(FirstLanes(count - 16), values + 16);
  const __m512bh both = _mm512_cvtne2ps_pbh(high, low);
  __m512i bits;
  __builtin_memcpy(&bits, &both, sizeof(bits));
  return bits;
}

void PackTokens(const float* input, ptrdiff_t stride, int count, int64_t cols, uint16_t* out) {
  for (int64_t first = 0; first < cols; first += kAmxColumns, out += kAmxTile) {
    __m512i tokens[16];
    for (int t = 0; t < kAmxRows; ++t) {
      tokens[t] =
          t < count ? Narrow(input + t * stride + first, cols - first) : _mm512_setzero_si512();
    }
    Transpose(tokens);
    for (int pair = 0; pair < 16; ++pair) _mm512_storeu_si512(out + 32 * pair, tokens[pair]);
  }
}

void PackRow(const float* row, int64_t cols, uint16_t* out) {
  for (int64_t first = 0; first < cols; first += kAmxColumns, out += kAmxTile) {
    _mm512_storeu_si512(out, Narrow(row + first, cols - first));
  }
}

void WriteSums(const AmxOutput& output) {
  const float* sums = output.sums;
  for (int first = 0; first < output.num_tokens; first += kAmxRows) {
    const int count = output.num_tokens - first < kAmxRows ? output.num_tokens - first : kAmxRows;
    for (int64_t row = 0; row < output.rows; row += kAmxRows, sums += kSums) {
      __m512i tile[16];
      for (int r = 0; r < kAmxRows; ++r) tile[r] = _mm512_loadu_si512(sums + kAmxRows * r);
      Transpose(tile);
      const __mmask16 lanes = FirstLanes(output.rows - row);
      const __m512 bias = output.bias != nullptr ? _mm512_maskz_loadu_ps(lanes, output.bias + row)
                                                 : _mm512_setzero_ps();
      float* out = output.out + first * output.stride + row;
      for (int t = 0; t < count; ++t, out += output.stride) {
        __m512 sum = _mm512_castsi512_ps(tile[t]);
        if (output.bias != nullptr) sum = _mm512_add_ps(sum, bias);
        if (output.add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, out), sum);
        _mm512_mask_storeu_ps(out, lanes, sum);
      }
    }
  }
}

constexpr AmxKernels kAmxKernels = {PackTokens, PackRow, Multiply, WriteSums};

// Whether the processor has what the kernels need besides tiles.
bool HasAmxVectors() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512bf16");
}

}  // namespace
}  // namespace varve
// NOLINTEND(misc-definitions-in-headers)

#endif  // VARVE_RUNTIME_KERNELS_AMX_TILES_INL_H_
