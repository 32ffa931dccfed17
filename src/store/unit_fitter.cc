// Which base and table suit a unit best, by the bits that its sample pairs would take.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "store/exponent_coder.h"
#include "store/exponent_tables.h"
#include "store/float_bits.h"

namespace varve::store {
namespace {

// Upper median of one half of the pairs.
int MedianExponent(const std::vector<uint16_t>& pairs, int shift) {
  std::array<uint32_t, 256> counts = {};
  for (const uint16_t pair : pairs) ++counts[pair >> shift & 0xFF];
  size_t below = 0;
  for (int exponent = 0; exponent < 256; ++exponent) {
    below += counts[static_cast<size_t>(exponent)];
    if (2 * below > pairs.size()) return exponent;
  }
  return 0;
}

int ClampBase(int base) { return std::clamp(base, kMinUnitBase, kMaxUnitBase); }

// Adds the bits of all pairs to those of each table.
std::array<float, kNumPairTables> PairBits(const std::vector<std::pair<uint16_t, float>>& counts,
                                           int base0, int base1) {
  const ExponentTables& tables = ExponentTables::Get();
  std::array<float, kNumPairTables> bits = {};
  for (const auto& [pair, count] : counts) {
    const int low = (pair & 0xFF) - base0, high = (pair >> 8) - base1;
    const bool inside = low >= 0 && low < 16 && high >= 0 && high < 16;
    for (int table = 0; table < kNumPairTables; ++table) {
      bits[static_cast<size_t>(table)] +=
          count * (inside ? tables.bits(table)[static_cast<size_t>(high << 4 | low)]
                          : tables.escape_bits(table));
    }
  }
  return bits;
}

UnitCode FitUnit(std::vector<uint16_t> pairs, bool one_base, int shifts) {
  UnitCode best;
  if (pairs.empty()) return best;
  int medians[2] = {MedianExponent(pairs, 0), MedianExponent(pairs, 8)};
  if (one_base) medians[0] = medians[1] = std::max(medians[0], medians[1]);
  std::sort(pairs.begin(), pairs.end());
  std::vector<std::pair<uint16_t, float>> counts;
  for (const uint16_t pair : pairs) {
    if (counts.empty() || counts.back().first != pair) counts.emplace_back(pair, 0.0f);
    counts.back().second += 1.0f;
  }
  float best_bits = 0;
  bool found = false;
  for (int s0 = -shifts; s0 <= shifts; ++s0) {
    for (int s1 = -shifts; s1 <= shifts; ++s1) {
      if (one_base && s0 != s1) continue;
      const int base0 = ClampBase(medians[0] - kMedianNibble + s0);
      const int base1 = ClampBase(medians[1] - kMedianNibble + s1);
      const std::array<float, kNumPairTables> bits = PairBits(counts, base0, base1);
      const auto least = std::min_element(bits.begin(), bits.end());
      if (found && *least >= best_bits) continue;
      found = true;
      best_bits = *least;
      best.base[0] = static_cast<int16_t>(base0);
      best.base[1] = static_cast<int16_t>(base1);
      best.table = static_cast<uint8_t>(least - bits.begin());
    }
  }
  return best;
}

// Exponents of a channel's pairs, tile after tile of 16 rows.
void GatherChannel(const FloatPlane& plane, const uint8_t* strip, size_t channel,
                   std::vector<uint8_t>& exponents) {
  const size_t tile_stride = static_cast<size_t>(plane.dim) * 16;
  exponents.resize(static_cast<size_t>(plane.num_rows));
  for (size_t row = 0; row < exponents.size(); row += 16) {
    std::copy_n(strip + row / 16 * tile_stride + channel * 16, 16, exponents.data() + row);
  }
}

float ChannelBits(const std::vector<uint8_t>& exponents, int base, int table) {
  const ExponentTables& tables = ExponentTables::Get();
  const std::array<float, 256>& bits = tables.bits(table);
  const float escape = tables.escape_bits(table);
  float sum = 0;
  for (size_t i = 0; i < exponents.size(); i += 2) {
    const uint32_t low = exponents[i] - static_cast<uint32_t>(base);
    const uint32_t high = exponents[i + 1] - static_cast<uint32_t>(base);
    sum += (low | high) < 16 ? bits[high << 4 | low] : escape;
  }
  return sum;
}

// Another code for a channel of K, if it saves more than a change takes; false if none does.
bool ImproveUnit(const std::vector<uint8_t>& exponents, UnitCode& code) {
  constexpr float kChangeBits = 32;
  // The distance of the mean from that of the table tells whether a change can save anything.
  uint32_t sum = 0;
  for (const uint8_t exponent : exponents) sum += exponent;
  const float mean = static_cast<float>(sum) / static_cast<float>(exponents.size());
  const float drift =
      mean - static_cast<float>(code.base[0]) - ExponentTables::Get().mean_nibble(code.table);
  if (std::abs(drift) < 0.5f) return false;
  // First the place of the window, then the table that suits it: not every combination.
  const float now = ChannelBits(exponents, code.base[0], code.table);
  const int near = static_cast<int>(std::floor(drift));
  UnitCode best = code;
  float best_bits = now;
  const auto consider = [&](int base, int table) {
    const float bits = ChannelBits(exponents, base, table);
    if (bits >= best_bits) return;
    best_bits = bits;
    best.base[0] = best.base[1] = static_cast<int16_t>(base);
    best.table = static_cast<uint8_t>(table);
  };
  for (const int shift : {near, near + 1}) {
    if (shift != 0) consider(ClampBase(code.base[0] + shift), code.table);
  }
  const int base = best.base[0];
  for (int table = 0; table < kNumPairTables; ++table) {
    if (table != code.table) consider(base, table);
  }
  if (best_bits + kChangeBits >= now) return false;
  code = best;
  return true;
}

}  // namespace

std::vector<uint16_t> AdaptUnits(const FloatPlane& plane, const SplitElements& split,
                                 std::vector<UnitCode>& units) {
  std::vector<uint16_t> changed;
  if (plane.layout != PairLayout::kTiles || units.size() > 0xFFFF) return changed;
  std::vector<uint8_t> exponents;
  const size_t dim = static_cast<size_t>(plane.dim);
  for (size_t i = 0; i < units.size(); ++i) {
    GatherChannel(plane, split.exponents.data() + i / dim * plane.elements(), i % dim, exponents);
    if (ImproveUnit(exponents, units[i])) changed.push_back(static_cast<uint16_t>(i));
  }
  return changed;
}

UnitFitter::UnitFitter(const FloatPlane& plane, size_t repeat)
    : one_base_(plane.layout == PairLayout::kTiles), pairs_(plane.units() / repeat) {}

void UnitFitter::Add(const FloatPlane& plane, const std::byte* data, size_t head_stride,
                     size_t repeat) {
  WithLane(plane.lane, [&]<LaneType kLane>() {
    ForEachPair(plane, [&](size_t head, size_t unit, size_t element) {
      const std::byte* from = data + head * head_stride + element * LaneBytes(kLane);
      const uint32_t first = ExponentOf<kLane>(LoadElement<kLane>(from));
      const uint32_t second = ExponentOf<kLane>(LoadElement<kLane>(from + LaneBytes(kLane)));
      pairs_[unit / repeat].push_back(static_cast<uint16_t>(first | second << 8));
    });
    return 0;
  });
}

std::vector<UnitCode> UnitFitter::Fit(int shifts) const {
  std::vector<UnitCode> units;
  units.reserve(pairs_.size());
  for (const std::vector<uint16_t>& pairs : pairs_) {
    units.push_back(FitUnit(pairs, one_base_, shifts));
  }
  return units;
}

}  // namespace varve::store
