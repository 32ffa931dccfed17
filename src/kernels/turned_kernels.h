// The inner loops of turned codes: strips of rows that were turned by the randomised Hadamard
// transform and quantized by a fixed quantizer of 4, 3 or 2 bits, with one scale per row. Raw
// pointers and sizes, no knowledge of pages.
//
// Levels. Code c of b bits stands for the odd integer 2 * byte(c) - 127; a value is that times the
// row's scale / 32. The integers are the Lloyd-Max levels of the Gaussian distribution, times the
// factor at which odd numbers fit them best: the mean squared error grows by 0.3 % (4 bits), 0.03 %
// (3) and nothing (2). Levels rounded to any signed byte are as good, but their unsigned form needs
// 8 bits, and two products of that with a byte overflow 16 bits: `byte` has 7, so pmaddubsw is
// exact.
//
// Strips (docs/format/pages.md has tables). T = page_tokens, dim a multiple of 32:
//   K   mean [dim] f16, scales [T] f16, codes [T / 16][dim / 32] cells
//   V   scales [T] f16, codes [dim / 32][T / 16] cells
// A cell is 16 tokens x 32 channels = 8 planes of 64 codes, in b * 64 bytes. Plane p, place j:
//   K   p = channel / 4, j = 4 * token + channel % 4: a dword is 4 channels of a token
//   V   p = 2 * (token / 4) + channel / 16, j = 4 * (channel % 16) + token % 4: 4 tokens of a
//       channel
// Byte j of line i (64 bytes):
//   4 bits   planes 2i (low half) and 2i + 1, i = 0 … 3
//   2 bits   planes 4i, 4i + 1, 4i + 2, 4i + 3 from the lowest bits up, i = 0, 1
//   3 bits   planes 2i (bits 0 to 2) and 2i + 1 (bits 3 to 5), i = 0, 1, 2. The two bits above:
//            in line 0 the low bits of plane 6, in line 2 those of plane 7, in line 1 the high bits
//            of both. So six planes of eight need no bits from elsewhere.
//
// One table of functions per instruction set, named as those of kernels.h; `scalar` is the
// specification. Pure functions, safe to run at once.

#ifndef VARVE_KERNELS_TURNED_KERNELS_H_
#define VARVE_KERNELS_TURNED_KERNELS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kernels.h"

namespace varve {

inline constexpr int kMinTurnedBits = 2;
inline constexpr int kMaxTurnedBits = 4;
inline constexpr int kTurnedBlock = 32;  // channels of a cell; head_dim is a multiple
inline constexpr int kTurnedPlanes = 8;
inline constexpr int kTurnedPlaneCodes = 64;
inline constexpr int kTurnedOffset = 127;       // level = 2 * byte - 127
inline constexpr float kTurnedUnit = 0.03125f;  // value = level * scale * unit
// Levels of weights: 127 * 128, two planes of 7 bits, for the same reason.
inline constexpr int kTurnedPlaneWeights = 128;
inline constexpr float kTurnedWeights = 127.0f * kTurnedPlaneWeights;

// The positive half of the levels, and how many of their steps are one standard deviation.
template <int kBits>
struct TurnedLevels;
template <>
struct TurnedLevels<4> {
  static constexpr std::array<int, 8> kPositive = {5, 15, 25, 37, 49, 63, 81, 107};
  static constexpr float kDeviation = 39.13f;
  static constexpr double kError = 0.00953;  // mean squared, of Gaussian values
};
template <>
struct TurnedLevels<3> {
  static constexpr std::array<int, 4> kPositive = {13, 41, 73, 117};
  static constexpr float kDeviation = 54.35f;
  static constexpr double kError = 0.03456;
};
template <>
struct TurnedLevels<2> {
  static constexpr std::array<int, 2> kPositive = {35, 117};
  static constexpr float kDeviation = 77.45f;
  static constexpr double kError = 0.11748;
};

// The bytes of all codes, again and again: a lookup may leave bits above the code in its index.
template <int kBits>
constexpr std::array<uint8_t, 64> MakeTurnedBytes() {
  constexpr int kHalf = 1 << (kBits - 1);
  std::array<uint8_t, 64> bytes{};
  for (int i = 0; i < 64; ++i) {
    const int code = i % (2 * kHalf);
    const int level = code < kHalf ? -TurnedLevels<kBits>::kPositive[kHalf - 1 - code]
                                   : TurnedLevels<kBits>::kPositive[code - kHalf];
    bytes[i] = static_cast<uint8_t>((level + kTurnedOffset) / 2);
  }
  return bytes;
}
// Hidden by word: an instance of a std:: template is visible otherwise, whatever the compiler's
// flag.
template <int kBits>
[[gnu::visibility("hidden")]] alignas(64) inline constexpr std::array<uint8_t, 64> kTurnedBytes =
    MakeTurnedBytes<kBits>();
// The levels themselves, likewise.
template <int kBits>
constexpr std::array<int8_t, 64> MakeTurnedSigned() {
  std::array<int8_t, 64> levels{};
  for (int i = 0; i < 64; ++i)
    levels[i] = static_cast<int8_t>(2 * kTurnedBytes<kBits>[i] - kTurnedOffset);
  return levels;
}
template <int kBits>
[[gnu::visibility("hidden")]] alignas(64) inline constexpr std::array<int8_t, 64> kTurnedSigned =
    MakeTurnedSigned<kBits>();

constexpr size_t TurnedCellBytes(int bits) { return static_cast<size_t>(bits) * 64; }
constexpr size_t TurnedCodesOffset(bool key, int dim, int page_tokens) {
  return 2 * static_cast<size_t>(page_tokens) + (key ? 2 * static_cast<size_t>(dim) : 0);
}
constexpr size_t TurnedStripBytes(int bits, bool key, int dim, int page_tokens) {
  return TurnedCodesOffset(key, dim, page_tokens) +
         static_cast<size_t>(page_tokens) * dim / 8 * bits;
}

// A query for turned keys, one row:
//   f32 step, i32 offset, zeros up to 64 bytes
//   f32 query[dim], as it was: for the mean
//   i8 codes[dim]: the turned query is step * code, |code| <= 127; offset = -127 * sum of codes
// padded to a multiple of 64 bytes.
inline constexpr size_t kTurnedQueryHeaderBytes = 64;
constexpr size_t TurnedQueryCodes(int dim) {
  return kTurnedQueryHeaderBytes + 4 * static_cast<size_t>(dim);
}
constexpr size_t TurnedQueryBytes(int dim) {
  return (TurnedQueryCodes(dim) + static_cast<size_t>(dim) + 63) / 64 * 64;
}

struct TurnedKernels {
  const char* name;

  // By bits - 2. KeyScoresArgs::query is num_rows prepared queries. The integer sums are exact and
  // the same for every table; the product with the mean is in f32.
  void (*key_scores[3])(const KeyScoresArgs&);

  // By bits - 2. A page's weights times the rows' scales become integers, kTurnedWeights at the
  // largest; to multiples of 128, dithered, in rows where no token has more than 1/8 of weight_sum
  // (see UseCoarseWeights). Sums of integers are exact and the same for every table. Reads the
  // whole page.
  void (*add_values[3])(const AddValuesArgs&);

  // The query and its turned form, [dim] each -> one prepared query. Not finite: NaN as step.
  void (*prepare_query)(const float* query, const float* turned, int dim, std::byte* out);

  // By bits - 2. Turned rows [num_rows, dim], finite -> scales [num_rows] as f16 bits and codes
  // [num_rows, dim], a byte each. The nearest level to value / rms * deviation, then the scale with
  // the least squared error; it is cut to 65504. Returns how many values were in rows with such a
  // scale. The same bits from every table.
  uint64_t (*quantize[3])(const float* rows, int num_rows, int dim, uint16_t* scales,
                          uint8_t* codes);
};

const TurnedKernels& ScalarTurnedKernels();
// The table that goes with `kernels`; scalar where it has none.
const TurnedKernels& TurnedKernelsOf(const Kernels& kernels);
// Scalar first, best last.
std::span<const TurnedKernels* const> AvailableTurnedKernels();

// Code at place j of plane p of a cell, and the inverse on bytes that are zero.
inline int ReadTurnedCode(int bits, const std::byte* cell, int p, int j) {
  const auto line = [&](int i) { return std::to_integer<int>(cell[64 * i + j]); };
  if (bits == 4) return line(p / 2) >> (4 * (p % 2)) & 15;
  if (bits == 2) return line(p / 4) >> (2 * (p % 4)) & 3;
  if (p < 6) return line(p / 2) >> (3 * (p % 2)) & 7;
  return line(p == 6 ? 0 : 2) >> 6 | (line(1) >> p & 1) << 2;
}

}  // namespace varve

#endif  // VARVE_KERNELS_TURNED_KERNELS_H_
