// The probability tables of exponent pairs, for encoding and decoding.
//
// A symbol is a pair of nibbles, second << 4 | first: how far two neighbouring exponents lie above
// the bases of their unit. A pair that a table has no room for is the symbol kEscape; its exponents
// are listed apart. The tables are constants of the format (exponent_frequencies.cc), made ready on
// first use; immutable, any thread.

#ifndef VARVE_STORE_EXPONENT_TABLES_H_
#define VARVE_STORE_EXPONENT_TABLES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/exponent_pairs.h"

namespace varve::store {

inline constexpr int kNumPairTables = 9;
inline constexpr int kEscape = 256;
// Where the median of a unit's exponents lies in its window of 16.
inline constexpr int kMedianNibble = 10;

// [table][second << 4 | first]; 0: escape. What is missing to 2^11 is the escape's own frequency.
extern const uint16_t kPairFrequencies[kNumPairTables][256];

struct PairRange {
  uint16_t first = 0;      // slot
  uint16_t frequency = 0;  // 0: escape
};

class ExponentTables {
 public:
  static const ExponentTables& Get();

  // [kNumPairTables][kPairTableEntries]
  const uint32_t* decode() const { return decode_.data(); }
  // Symbols 0 … 255 and kEscape.
  const PairRange& range(int table, int symbol) const { return ranges_[table][symbol]; }
  // Bits that a symbol takes, an escape's listing included.
  const std::array<float, 256>& bits(int table) const { return bits_[table]; }
  float escape_bits(int table) const { return escape_bits_[table]; }

 private:
  ExponentTables();
  std::vector<uint32_t> decode_;
  std::array<std::array<PairRange, 257>, kNumPairTables> ranges_;
  std::array<std::array<float, 256>, kNumPairTables> bits_;
  std::array<float, kNumPairTables> escape_bits_;
};

}  // namespace varve::store

#endif  // VARVE_STORE_EXPONENT_TABLES_H_
