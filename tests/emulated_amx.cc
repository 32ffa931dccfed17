// Compiled as amx_tiles.cc is (CMakeLists.txt), and free of templates like it.

#include "tests/emulated_amx.h"

#if (defined(__AMX_BF16__) || defined(__AMXBF16__)) && defined(__AVX512BF16__) && defined(__linux__)

#include <immintrin.h>

namespace varve {
namespace {

// The tiles of a thread. Instructions use one only while it is configured, 16 rows of 64 bytes.
using TileRows = unsigned char[16][64];
struct alignas(64) TileState {
  TileRows tiles[8];
  bool is_configured;
};
thread_local TileState state;

TileRows& TileAt(int tile) {
  if (!state.is_configured) __builtin_trap();
  return state.tiles[tile];
}

void Configure(const void* config) {
  unsigned char bytes[64];
  __builtin_memcpy(bytes, config, sizeof(bytes));
  bool is_whole = bytes[0] == 1 && bytes[1] == 0;  // palette, start row
  for (int tile = 0; tile < 8; ++tile) {
    is_whole = is_whole && bytes[16 + 2 * tile] == 64 && bytes[17 + 2 * tile] == 0;
    is_whole = is_whole && bytes[48 + tile] == 16;
  }
  if (!is_whole) __builtin_trap();
  __builtin_memset(state.tiles, 0, sizeof(state.tiles));
  state.is_configured = true;
}

void Release() { state.is_configured = false; }

void Zero(int tile) { __builtin_memset(TileAt(tile), 0, sizeof(TileRows)); }

void Load(int tile, const void* from, ptrdiff_t stride) {
  TileRows& rows = TileAt(tile);
  for (int r = 0; r < 16; ++r)
    __builtin_memcpy(rows[r], static_cast<const char*>(from) + r * stride, 64);
}

void Store(int tile, void* to, ptrdiff_t stride) {
  const TileRows& rows = TileAt(tile);
  for (int r = 0; r < 16; ++r) __builtin_memcpy(static_cast<char*>(to) + r * stride, rows[r], 64);
}

// Numbers below 2^-126 are zeros while one lives, and rounding is to the nearest.
class NoDenormals {
 public:
  NoDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(0x9fc0); }
  ~NoDenormals() { _mm_setcsr(saved_); }
  NoDenormals(const NoDenormals&) = delete;
  NoDenormals& operator=(const NoDenormals&) = delete;

 private:
  unsigned saved_;
};

// Of pairs of bf16. The masks are for GCC 12, which warns of its own header without them.
__m512 EvenOnes(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, pairs, 16));
}
__m512 OddOnes(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_maskz_mov_epi16(0xaaaaaaaa, pairs));
}

// As Intel's manual has TDPBF16PS: the even columns are summed from the first to the last, the odd
// ones beside them, and both sums together are added to what is there.
void AddProducts(int sums, int left, int right) {
  TileRows& sum_rows = TileAt(sums);
  const TileRows& left_rows = TileAt(left);
  const TileRows& right_rows = TileAt(right);
  const NoDenormals mode;
  for (int r = 0; r < 16; ++r) {
    __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
    for (int pair = 0; pair < 16; ++pair) {
      int values;
      __builtin_memcpy(&values, left_rows[r] + 4 * pair, sizeof(values));
      const __m512i weights = _mm512_set1_epi32(values);
      const __m512i tokens = _mm512_load_si512(right_rows[pair]);
      even = _mm512_fmadd_ps(EvenOnes(weights), EvenOnes(tokens), even);
      odd = _mm512_fmadd_ps(OddOnes(weights), OddOnes(tokens), odd);
    }
    const __m512 sum = _mm512_add_ps(_mm512_load_ps(sum_rows[r]), _mm512_add_ps(even, odd));
    _mm512_store_ps(sum_rows[r], sum);
  }
}

}  // namespace
}  // namespace varve

// Names of <immintrin.h>.
// NOLINTBEGIN(bugprone-reserved-identifier)
#undef _tile_dpbf16ps
#undef _tile_loadconfig
#undef _tile_loadd
#undef _tile_release
#undef _tile_stored
#undef _tile_zero
#define _tile_dpbf16ps(sums, left, right) AddProducts(sums, left, right)
#define _tile_loadconfig(config) Configure(config)
#define _tile_loadd(tile, from, stride) Load(tile, from, stride)
#define _tile_release() Release()
#define _tile_stored(tile, to, stride) Store(tile, to, stride)
#define _tile_zero(tile) Zero(tile)
// NOLINTEND(bugprone-reserved-identifier)

#include "runtime/kernels/amx_tiles-inl.h"

namespace varve {

const AmxKernels* FindEmulatedAmxKernels() { return HasAmxVectors() ? &kAmxKernels : nullptr; }

}  // namespace varve

#else

const varve::AmxKernels* varve::FindEmulatedAmxKernels() { return nullptr; }

#endif
