#include "store/exponent_tables.h"

#include <cmath>

namespace varve::store {

const ExponentTables& ExponentTables::Get() {
  static const ExponentTables tables;
  return tables;
}

ExponentTables::ExponentTables() {
  decode_.reserve(kAllPairTables * kPairTableEntries);
  symbols_.resize(kAllPairTables * kPairSymbols);
  for (int table = 0; table < kAllPairTables; ++table) {
    uint32_t slot = 0;
    const auto add = [&](int symbol, uint32_t frequency) {
      const uint64_t reciprocal = ((uint64_t{1} << 43) + frequency - 1) / frequency;
      symbols_[static_cast<size_t>(table) * kPairSymbols + static_cast<size_t>(symbol)] = {
          reciprocal, slot, frequency};
      const bool escape = symbol == kEscape;
      for (uint32_t place = 0; place < frequency; ++place) {
        const uint32_t value = escape ? 0 : static_cast<uint32_t>(symbol);
        decode_.push_back(PairEntry(value, place, frequency, escape));
      }
      slot += frequency;
    };
    const auto bits = [](uint32_t frequency) {
      return static_cast<float>(kPairProbBits) - std::log2(static_cast<float>(frequency));
    };
    for (int symbol = 0; symbol < 256; ++symbol) {
      if (kPairFrequencies[table][symbol] > 0) add(symbol, kPairFrequencies[table][symbol]);
    }
    const uint32_t left = kPairTableEntries - slot;
    uint32_t nibbles = 0;
    for (int symbol = 0; symbol < 256; ++symbol) {
      const int both = (symbol & 15) + (symbol >> 4);
      nibbles += kPairFrequencies[table][symbol] * static_cast<uint32_t>(both);
    }
    mean_nibble_[table] = static_cast<float>(nibbles) / static_cast<float>(2 * slot);
    add(kEscape, left);
    escape_bits_[table] = bits(left) + 16;
    for (int symbol = 0; symbol < 256; ++symbol) {
      const uint32_t frequency = kPairFrequencies[table][symbol];
      bits_[table][symbol] = frequency > 0 ? bits(frequency) : escape_bits_[table];
      symbol_of_[table][symbol] =
          static_cast<uint16_t>(table * kPairSymbols + (frequency > 0 ? symbol : kEscape));
    }
  }
}

}  // namespace varve::store
