// The probability tables of exponent pairs, for encoding and decoding.
//
// A symbol is a pair of nibbles, second << 4 | first: how far two neighbouring exponents lie above
// the bases of their unit. A pair that a table has no room for is the symbol kEscape; its exponents
// are listed separately. The tables are constants of the format (exponent_frequencies.cc), prepared
// on first use; immutable, safe from any thread.

#ifndef VARVE_STORE_EXPONENT_TABLES_H_
#define VARVE_STORE_EXPONENT_TABLES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/exponent_pairs.h"

namespace varve::store {

inline constexpr int kNumPairTables = 9;  // that a unit may choose
// Of what rotated rows miss (rotated_rows_mode.cc): 8 stands for 0.
inline constexpr int kMissTable = 9;
inline constexpr int kMissNibble = 8;
inline constexpr int kAllPairTables = 10;
inline constexpr int kEscape = 256;
inline constexpr int kPairSymbols = 257;  // of a table
// Where the median of a unit's exponents lies in its window of 16.
inline constexpr int kMedianNibble = 10;

// [table][second << 4 | first]; 0: escape. The rest up to 2^11 is the frequency of the escape.
extern const uint16_t kPairFrequencies[kAllPairTables][256];

// A symbol of a table, for the encoder.
struct PairSymbol {
  uint64_t reciprocal = 0;  // ceil(2^43 / frequency)
  uint32_t first = 0;       // slot
  uint32_t frequency = 0;
};

// state / frequency for a state below frequency << 21: the product stays below 2^64, and since
// state * (reciprocal * frequency - 2^43) < 2^32 * 2^11 the quotient is exact.
constexpr uint32_t DivideState(uint32_t state, const PairSymbol& symbol) {
  return static_cast<uint32_t>(state * symbol.reciprocal >> 43);
}

class ExponentTables {
 public:
  static const ExponentTables& Get();

  // [kAllPairTables][kPairTableEntries]
  const uint32_t* decode() const { return decode_.data(); }
  // Of kAllPairTables tables, 257 each: symbols 0 … 255 and kEscape.
  const PairSymbol* symbols() const { return symbols_.data(); }
  // Per table, where the 256 pairs of nibbles lie among symbols(): those without slots at kEscape.
  const uint16_t* symbol_of(int table) const { return symbol_of_[table].data(); }
  // Bits of a symbol; of an escape with its listed exponents.
  const std::array<float, 256>& bits(int table) const { return bits_[table]; }
  float escape_bits(int table) const { return escape_bits_[table]; }
  // Of the elements of a table's pairs, escapes not counted.
  float mean_nibble(int table) const { return mean_nibble_[table]; }

 private:
  ExponentTables();
  std::vector<uint32_t> decode_;
  std::vector<PairSymbol> symbols_;
  std::array<std::array<uint16_t, 256>, kAllPairTables> symbol_of_;
  std::array<std::array<float, 256>, kAllPairTables> bits_;
  std::array<float, kAllPairTables> escape_bits_;
  std::array<float, kAllPairTables> mean_nibble_;
};

}  // namespace varve::store

#endif  // VARVE_STORE_EXPONENT_TABLES_H_
