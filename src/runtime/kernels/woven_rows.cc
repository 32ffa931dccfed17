#include "runtime/kernels/woven_rows.h"

#include <algorithm>
#include <cstring>

#include "runtime/kernels/scalar_blocks.h"

namespace varve {
namespace {

constexpr int kRun = kRoundedRun;

// A run of one row, taken apart.
struct RowRun {
  uint8_t codes[kRun];  // unsigned, up to six bits
  uint8_t scales[2];    // of types with blocks of 256
};

// Q4_0 … Q5_1: a block is a run.
template <bool kMin, bool kFifth>
void ReadShort(const uint8_t* block, RowRun& run) {
  int16_t codes[kRun];
  NibbleCodes<kMin, kFifth>(block, codes);
  const int centre = kMin ? 0 : kFifth ? 16 : 8;
  for (int i = 0; i < kRun; ++i) run.codes[i] = static_cast<uint8_t>(codes[i] + centre);
}

template <bool kFifth>
void ReadQ45K(const uint8_t* block, int index, RowRun& run) {
  int scale, min;
  UnpackRunScale(block + 4, index, &scale, &min);
  run.scales[0] = static_cast<uint8_t>(scale);
  run.scales[1] = static_cast<uint8_t>(min);
  const uint8_t* nibbles = block + (kFifth ? 48 : 16) + index / 2 * 32;
  const int shift = index % 2 * 4;
  for (int i = 0; i < kRun; ++i) run.codes[i] = nibbles[i] >> shift & 15;
  if constexpr (kFifth) {
    for (int i = 0; i < kRun; ++i) run.codes[i] |= (block[16 + i] >> index & 1) << 4;
  }
}

void ReadQ6K(const uint8_t* block, int index, RowRun& run) {
  const int half = index / 4;
  const int quarter = index % 4;
  const uint8_t* nibbles = block + half * 64 + quarter % 2 * 32;
  const uint8_t* high = block + 128 + half * 32;
  const int shift = quarter / 2 * 4;
  for (int i = 0; i < kRun; ++i) {
    const int low = nibbles[i] >> shift & 15;
    run.codes[i] = static_cast<uint8_t>(low | (high[i] >> (2 * quarter) & 3) << 4);
  }
  std::memcpy(run.scales, block + 192 + 2 * index, 2);
}

// Codes are the nibbles, as they are looked up.
void ReadLookup(const uint8_t* nibbles, RowRun& run) {
  for (int i = 0; i < kRun / 2; ++i) {
    run.codes[i] = nibbles[i] & 15;
    run.codes[i + kRun / 2] = nibbles[i] >> 4;
  }
}

void ReadIQ4XS(const uint8_t* block, int index, RowRun& run) {
  run.scales[0] = static_cast<uint8_t>(UnpackLookupScale(block, index));
  ReadLookup(block + 8 + index * 16, run);
}

void ReadRun(WeightType type, const uint8_t* block, int index, RowRun& run) {
  switch (type) {
    case WeightType::kQ4_0:
      return ReadShort<false, false>(block, run);
    case WeightType::kQ4_1:
      return ReadShort<true, false>(block, run);
    case WeightType::kQ5_0:
      return ReadShort<false, true>(block, run);
    case WeightType::kQ5_1:
      return ReadShort<true, true>(block, run);
    case WeightType::kQ4K:
      return ReadQ45K<false>(block, index, run);
    case WeightType::kQ5K:
      return ReadQ45K<true>(block, index, run);
    case WeightType::kIQ4_NL:
      return ReadLookup(block + 2, run);
    case WeightType::kIQ4_XS:
      return ReadIQ4XS(block, index, run);
    default:
      return ReadQ6K(block, index, run);
  }
}

// The codes of pair p, in the lower and the upper half of a dword.
uint32_t Pair(const RowRun& run, int p) {
  return run.codes[2 * p] | static_cast<uint32_t>(run.codes[2 * p + 1]) << 16;
}

// `bits` bits of both halves from `from` on, moved to `to`.
uint32_t Moved(uint32_t pair, int from, int bits, int to) {
  const uint32_t mask = ((uint32_t{1} << bits) - 1) * 0x00010001;
  return (pair >> from & mask) << to;
}

void WeaveFour(const RowRun& run, uint32_t* words) {
  for (int p = 0; p < 16; ++p) words[p / 4] |= Pair(run, p) << 4 * (p % 4);
}

void WeaveFive(const RowRun& run, uint32_t* words) {
  for (int p = 0; p < 15; ++p) words[p / 3] |= Pair(run, p) << 5 * (p % 3);
  for (int v = 0; v < 5; ++v) words[v] |= Moved(Pair(run, 15), v, 1, 15);
}

void WeaveSix(const RowRun& run, uint32_t* words) {
  for (int first = 0; first < 16; first += 8, words += 3) {
    for (int p = 0; p < 6; ++p) words[p / 2] |= Pair(run, first + p) << 6 * (p % 2);
    for (int p = 6; p < 8; ++p) {
      words[p - 6] |= Moved(Pair(run, first + p), 0, 4, 12);
      words[2] |= Moved(Pair(run, first + p), 4, 2, 2 * p);
    }
  }
}

// Row `row` of a run of a band, at `out`.
void PlaceRun(const WovenForm& form, const RowRun& run, int row, std::byte* out) {
  for (size_t i = 0; i < form.scales / kBandRows; ++i) {
    out[i * kBandRows + static_cast<size_t>(row)] = std::byte{run.scales[i]};
  }
  out += form.scales;
  uint32_t words[6] = {};
  if (form.bits == 4) WeaveFour(run, words);
  if (form.bits == 5) WeaveFive(run, words);
  if (form.bits == 6) WeaveSix(run, words);
  for (size_t v = 0; v < form.bits; ++v) std::memcpy(out + 64 * v + 4 * row, words + v, 4);
}

// The f16 fields of row `row`: where a block of the type has them.
void PlaceFields(WeightType type, const WovenForm& form, const uint8_t* block, int row,
                 std::byte* out) {
  const uint8_t* from = type == WeightType::kQ6K ? block + 208 : block;
  for (size_t field = 0; field < form.fields / 32; ++field) {
    std::memcpy(out + 32 * field + 2 * row, from + 2 * field, 2);
  }
}

// Writes BandBytes(matrix) bytes: the rows from kBandRows * band on.
void WeaveBand(const WeightMatrix& matrix, int64_t band, std::byte* out) {
  const WovenForm form = WovenFormOf(matrix.type);
  if (form.block == 0) return;
  const size_t num_blocks = static_cast<size_t>(matrix.cols) / form.block;
  const int num_runs = static_cast<int>(form.block) / kRun;
  for (int row = 0; row < kBandRows; ++row) {
    const auto* block = reinterpret_cast<const uint8_t*>(matrix.row(band * kBandRows + row));
    std::byte* to = out;
    for (size_t b = 0; b < num_blocks; ++b, to += form.block_bytes()) {
      PlaceFields(matrix.type, form, block, row, to);
      for (int index = 0; index < num_runs; ++index) {
        RowRun run;
        ReadRun(matrix.type, block, index, run);
        PlaceRun(form, run, row, to + form.fields + index * form.run_bytes());
      }
      block += InfoOf(matrix.type).block_bytes;
    }
  }
}

}  // namespace

size_t BandBytes(const WeightMatrix& matrix) {
  const WovenForm form = WovenFormOf(matrix.type);
  if (form.block == 0) return 0;
  return static_cast<size_t>(matrix.cols) / form.block * form.block_bytes();
}

size_t WovenBytes(const WeightMatrix& matrix) {
  return static_cast<size_t>(matrix.rows / kBandRows) * BandBytes(matrix);
}

void WeaveMatrix(const WeightMatrix& matrix, Executor& executor, std::byte* out) {
  const size_t band_bytes = BandBytes(matrix);
  if (band_bytes == 0) return;
  executor.ParallelFor(static_cast<size_t>(matrix.rows / kBandRows), [&](size_t band, int) {
    WeaveBand(matrix, static_cast<int64_t>(band), out + band * band_bytes);
  });
}

}  // namespace varve
