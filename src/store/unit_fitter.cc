// Which base and table suit a unit best, by the bits that its sample pairs would take.

#include <algorithm>
#include <array>

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

}  // namespace

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
