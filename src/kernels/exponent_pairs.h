// Decoding of exponent pairs: the entropy-coded half of the lossless format of float strips.
//
// Two neighbouring elements of a strip, in storage order, are a pair. Their exponents, each as the
// distance from a base of their unit, are one symbol of an interleaved rANS stream; everything else
// of the elements is stored as it is. What a unit is depends on the layout of the strip:
//   kTiles   [num_rows / 16][dim][16]            K: a unit is a channel
//   kChunks  [dim / chunk][num_rows][chunk]      V: a unit is a pair of neighbouring channels
// docs/format/packed.md has the byte tables. One function per instruction set, bit for bit the
// same; pure, may run concurrently.

#ifndef VARVE_KERNELS_EXPONENT_PAIRS_H_
#define VARVE_KERNELS_EXPONENT_PAIRS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/align.h"

namespace varve {

inline constexpr int kPairLanes = 32;     // interleaved states; pair p belongs to lane p % 32
inline constexpr int kPairProbBits = 11;  // frequencies of a table add up to 2^11
inline constexpr int kPairTableEntries = 1 << kPairProbBits;
inline constexpr uint32_t kPairStateMin = 1u << 16;  // states lie in [2^16, 2^32)
// Bytes past the words that a decoder may read; their content does not matter.
inline constexpr size_t kPairReadSlack = 128;

// A slot of a decoding table: symbol in bits 0-7 (first nibble: the pair's first element), the
// slot's place within the symbol in bits 8-18, the symbol's frequency in bits 19-30, and bit 31 for
// the symbol "escape", whose pair is listed separately.
constexpr uint32_t PairEntry(uint32_t symbol, uint32_t place, uint32_t frequency, bool escape) {
  return symbol | place << 8 | frequency << 19 | (escape ? 1u << 31 : 0u);
}

enum class PairElement : int {
  kF16 = 0,
  kBF16 = 1,
  kExponent = 2,  // the exponents alone, as uint16_t: the first half of decoding f32
};
enum class PairLayout : int { kTiles = 0, kChunks = 1 };

constexpr int ExponentShift(PairElement element) {
  return element == PairElement::kF16 ? 10 : element == PairElement::kBF16 ? 7 : 0;
}
constexpr uint32_t ExponentMask(PairElement element) {  // of one element
  return element == PairElement::kF16 ? 0x7C00u : element == PairElement::kBF16 ? 0x7F80u : 0xFFu;
}
// Bytes of up to 64 elements without their exponents. f16: low bytes [n], then three planes of
// ceil(n / 8) bytes with the sign and mantissa bits 9 and 8. bf16: [n], the mantissa with the sign
// in the top bit.
constexpr size_t PairRawBlockBytes(PairElement element, size_t n) {
  return element == PairElement::kF16    ? n + 3 * CeilDiv(n, 8)
         : element == PairElement::kBF16 ? n
                                         : 0;
}

// The bits of element i besides its exponent, from a raw block of n elements.
uint16_t PairRawBits(PairElement element, const uint8_t* block, size_t n, size_t i);

struct PairDecodeArgs {
  PairElement element = PairElement::kF16;
  PairLayout layout = PairLayout::kTiles;
  int num_heads = 0;
  int num_rows = 0;  // kTiles: a multiple of 16
  int dim = 0;
  int chunk = 0;                         // kChunks: even, divides dim
  const uint32_t* tables = nullptr;      // [tables][kPairTableEntries]
  const uint32_t* unit_table = nullptr;  // [num_heads, units] first entry of the unit's table
  const uint32_t* unit_base = nullptr;   // [num_heads, units] added to both exponents in place
  const uint32_t* states = nullptr;      // [kPairLanes]
  const uint8_t* words = nullptr;        // uint16_t, little-endian; kPairReadSlack bytes behind
  size_t num_words = 0;
  const uint8_t* raw = nullptr;      // blocks of 64 elements; 96 readable bytes behind
  const uint8_t* escapes = nullptr;  // [num_escapes][2] exponents
  size_t num_escapes = 0;
  std::byte* out = nullptr;        // element (head, i) at head * head_stride + 2 * i
  size_t head_stride = 0;          // bytes, even
  uint32_t* end_states = nullptr;  // [kPairLanes] out: where the states ended
};

constexpr int PairUnits(PairLayout layout, int dim) {  // of one head
  return layout == PairLayout::kTiles ? dim : dim / 2;
}
// The unit of a head's pair.
constexpr size_t PairUnit(PairLayout layout, int num_rows, int dim, int chunk, size_t pair) {
  if (layout == PairLayout::kTiles) return pair / 8 % static_cast<size_t>(dim);
  const size_t half = static_cast<size_t>(chunk) / 2;
  return pair / (half * static_cast<size_t>(num_rows)) * half + pair % half;
}

// One implementation; `name` is that of the kernel table that it belongs to.
struct PairKernels {
  const char* name;
  // False if no encoder made the stream: it ends early, or something is left over. (The caller
  // compares where the states ended with where an encoder begins.) Writes only the elements of all
  // heads and end_states.
  bool (*decode)(const PairDecodeArgs&);
};

// Runs the implementation that belongs to ActiveKernels().
bool DecodePairs(const PairDecodeArgs& args);

// Scalar first, best last, named as those of AvailableKernels().
std::span<const PairKernels* const> AvailablePairKernels();

}  // namespace varve

#endif  // VARVE_KERNELS_EXPONENT_PAIRS_H_
