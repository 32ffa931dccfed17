// The specification of the pair decoder in plain C++ (the table "scalar"), and the choice of table.

#include "kernels/exponent_pairs.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "kernels/active_table.h"
#include "kernels/exponent_pairs_tables.h"

namespace varve {

uint16_t PairRawBits(PairElement element, const uint8_t* block, size_t n, size_t i) {
  if (element == PairElement::kExponent) return 0;
  if (element == PairElement::kBF16) {
    return static_cast<uint16_t>((block[i] & 0x7F) | (block[i] & 0x80) << 8);
  }
  const size_t plane_bytes = CeilDiv(n, 8);
  const auto bit = [&](size_t plane) {
    return block[n + plane * plane_bytes + i / 8] >> (i % 8) & 1;
  };
  return static_cast<uint16_t>(block[i] | bit(0) << 15 | bit(1) << 9 | bit(2) << 8);
}

namespace {

class ScalarPairDecoder {
 public:
  explicit ScalarPairDecoder(const PairDecodeArgs& args) : args_(args) {
    std::copy_n(args.states, kPairLanes, states_.begin());
  }

  bool Run() {
    const size_t units = static_cast<size_t>(PairUnits(args_.layout, args_.dim));
    const size_t pairs = static_cast<size_t>(args_.num_rows) * static_cast<size_t>(args_.dim) / 2;
    const size_t all_elements = 2 * pairs * static_cast<size_t>(args_.num_heads);
    const uint8_t* block = args_.raw;
    for (size_t first = 0; first < all_elements; first += 64) {
      const size_t n = std::min<size_t>(64, all_elements - first);
      for (size_t i = 0; i < n; i += 2) {
        const size_t head = (first + i) / (2 * pairs);
        const size_t pair = (first + i) / 2 % pairs;
        const size_t unit = PairUnit(args_.layout, args_.num_rows, args_.dim, args_.chunk, pair);
        uint32_t exponents;
        if (!Next(i / 2, head * units + unit, exponents)) return false;
        const uint16_t both[2] = {
            static_cast<uint16_t>(exponents | PairRawBits(args_.element, block, n, i)),
            static_cast<uint16_t>(exponents >> 16 | PairRawBits(args_.element, block, n, i + 1))};
        std::memcpy(args_.out + head * args_.head_stride + 4 * pair, both, 4);
      }
      block += PairRawBlockBytes(args_.element, n);
    }
    std::copy(states_.begin(), states_.end(), args_.end_states);
    return next_word_ == args_.num_words && next_escape_ == args_.num_escapes;
  }

 private:
  // The exponents of the next pair, each at its place in a half.
  bool Next(size_t lane, size_t unit, uint32_t& exponents) {
    const int shift = ExponentShift(args_.element);
    const uint32_t mask = ExponentMask(args_.element);
    uint32_t& state = states_[lane];
    const uint32_t entry = args_.tables[args_.unit_table[unit] + (state & (kPairTableEntries - 1))];
    state = (entry >> 19 & 0xFFF) * (state >> kPairProbBits) + (entry >> 8 & 0x7FF);
    if (state < kPairStateMin) {
      if (next_word_ == args_.num_words) return false;
      const uint8_t* word = args_.words + 2 * next_word_++;
      state = state << 16 | word[0] | static_cast<uint32_t>(word[1]) << 8;
    }
    if (entry >> 31 == 0) {
      const uint32_t symbol = (entry & 0x0F) << shift | (entry & 0xF0) << (12 + shift);
      exponents = (symbol + args_.unit_base[unit]) & (mask | mask << 16);
      return true;
    }
    if (next_escape_ == args_.num_escapes) return false;
    const uint8_t* escape = args_.escapes + 2 * next_escape_++;
    exponents = (static_cast<uint32_t>(escape[0]) << shift & mask) |
                (static_cast<uint32_t>(escape[1]) << shift & mask) << 16;
    return true;
  }

  const PairDecodeArgs& args_;
  std::array<uint32_t, kPairLanes> states_;
  size_t next_word_ = 0;
  size_t next_escape_ = 0;
};

const PairKernels kScalar = {.name = "scalar", .decode = DecodePairsScalar};

}  // namespace

bool DecodePairsScalar(const PairDecodeArgs& args) { return ScalarPairDecoder(args).Run(); }

std::span<const PairKernels* const> AvailablePairKernels() {
  static const std::vector<const PairKernels*> tables = [] {
    std::vector<const PairKernels*> all = {&kScalar};
    for (const PairKernels* table : SimdPairKernels()) all.push_back(table);
    return all;
  }();
  return tables;
}

bool DecodePairs(const PairDecodeArgs& args) {
  return ActiveTable(AvailablePairKernels()).decode(args);
}

}  // namespace varve
