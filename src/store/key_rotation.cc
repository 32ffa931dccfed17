#include "store/key_rotation.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <numeric>
#include <utility>

#include "base/half.h"
#include "store/rotation_fitter.h"

namespace varve::store {
namespace {

// How many groups of about the same energy a row is compared with.
constexpr int kMaxCandidates = 256;

float Widen(LaneType lane, uint16_t bits) {
  return lane == LaneType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits);
}

// Lengths of all pairs of a row.
void PairLengths(const KeyRows& rows, RotationOrder order, size_t row, float* lengths) {
  const size_t dim = static_cast<size_t>(rows.shape.head_dim), pairs = dim / 2;
  const bool halves = order == RotationOrder::kHalves;
  const uint16_t* from = rows.row(row);
  for (int head = 0; head < rows.shape.num_heads; ++head, from += dim) {
    for (size_t i = 0; i < pairs; ++i) {
      const float a = Widen(rows.shape.lane, from[halves ? i : 2 * i]);
      const float b = Widen(rows.shape.lane, from[halves ? i + pairs : 2 * i + 1]);
      *lengths++ = std::sqrt(a * a + b * b);
    }
  }
}

bool SameLengths(LaneType lane, std::span<const float> a, const float* b) {
  const float tolerance = lane == LaneType::kBF16 ? 0x1.8p-7f : 0x1.8p-10f;
  const float least = lane == LaneType::kBF16 ? 0.0f : 0x1p-22f;  // f16 below its normal numbers
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::abs(a[i] - b[i]) > tolerance * std::max(a[i], b[i]) + least) return false;
  }
  return true;
}

// The turn of every pair between two rows, summed over the heads; its length is a weight.
Observation Observe(const KeyRows& rows, RotationOrder order, size_t from, size_t to) {
  const size_t dim = static_cast<size_t>(rows.shape.head_dim), pairs = dim / 2;
  const bool halves = order == RotationOrder::kHalves;
  Observation seen;
  seen.distance = static_cast<double>(rows.positions[to] - rows.positions[from]);
  seen.turned.resize(pairs);
  for (size_t at = 0; at < rows.width(); at += dim) {
    for (size_t i = 0; i < pairs; ++i) {
      const size_t x = at + (halves ? i : 2 * i), y = at + (halves ? i + pairs : 2 * i + 1);
      const auto value = [&](size_t row) {
        return std::complex<float>(Widen(rows.shape.lane, rows.row(row)[x]),
                                   Widen(rows.shape.lane, rows.row(row)[y]));
      };
      seen.turned[i] += std::conj(value(from)) * value(to);
    }
  }
  return seen;
}

}  // namespace

bool MayRotate(const PartShape& shape) {
  return shape.layout == PartLayout::kKey &&
         (shape.lane == LaneType::kF16 || shape.lane == LaneType::kBF16);
}

float RowEnergy(LaneType lane, std::span<const uint16_t> row) {
  float sum = 0;
  for (const uint16_t bits : row) {
    const float value = Widen(lane, bits);
    sum += value * value;
  }
  return sum;
}

float EnergyTolerance(LaneType lane) { return lane == LaneType::kBF16 ? 0x1p-7f : 0x1p-10f; }

KeyRows GatherKeyRows(std::span<const PartView> samples) {
  KeyRows rows;
  if (samples.empty() || !MayRotate(samples[0].shape)) return rows;
  rows.shape = samples[0].shape;
  for (const PartView& sample : samples) {
    if (sample.first_position < 0) continue;
    for (int r = 0; r < sample.shape.num_rows; ++r) {
      const size_t at = rows.words.size();
      rows.words.resize(at + rows.width());
      GatherRow(sample, r, reinterpret_cast<std::byte*>(rows.words.data() + at));
      const float energy = RowEnergy(rows.shape.lane, std::span(rows.words).subspan(at));
      if (energy > 0 && std::isfinite(energy)) {
        rows.positions.push_back(sample.first_position + r);
      } else {
        rows.words.resize(at);  // nothing that turns
      }
    }
  }
  return rows;
}

std::vector<RowGroup> GroupRows(const KeyRows& rows, RotationOrder order) {
  const size_t count = rows.positions.size(), pairs = rows.width() / 2;
  std::vector<float> energies(count), lengths(count * pairs);
  for (size_t i = 0; i < count; ++i) {
    energies[i] = RowEnergy(rows.shape.lane, {rows.row(i), rows.width()});
    PairLengths(rows, order, i, lengths.data() + i * pairs);
  }
  std::vector<size_t> by_energy(count);
  std::iota(by_energy.begin(), by_energy.end(), size_t{0});
  std::sort(by_energy.begin(), by_energy.end(), [&](size_t a, size_t b) {
    return std::pair(energies[a], a) < std::pair(energies[b], b);
  });
  const float tolerance = EnergyTolerance(rows.shape.lane);
  std::vector<RowGroup> groups;  // by the energy of their first row
  for (const size_t row : by_energy) {
    const std::span own = std::span(lengths).subspan(row * pairs, pairs);
    bool found = false;
    int tried = 0;
    for (size_t g = groups.size(); g-- > 0 && !found && tried < kMaxCandidates; ++tried) {
      const size_t other = groups[g].front();
      if (energies[other] < energies[row] * (1 - tolerance)) break;
      found = SameLengths(rows.shape.lane, own, lengths.data() + other * pairs);
      if (found) groups[g].push_back(row);
    }
    if (!found) groups.push_back({row});
  }
  std::erase_if(groups, [](const RowGroup& group) { return group.size() < 2; });
  for (RowGroup& group : groups) {
    std::sort(group.begin(), group.end(),
              [&](size_t a, size_t b) { return rows.positions[a] < rows.positions[b]; });
  }
  return groups;
}

std::optional<FoundRotation> FindRotation(const KeyRows& rows, double min_repeats) {
  for (const RotationOrder order : {RotationOrder::kHalves, RotationOrder::kInterleaved}) {
    std::vector<RowGroup> groups = GroupRows(rows, order);
    std::vector<Observation> seen;
    size_t repeats = 0;
    for (const RowGroup& group : groups) {
      repeats += group.size() - 1;
      for (size_t i = 1; i < group.size(); ++i) {
        // Two sequences may have the same position.
        if (rows.positions[group[i]] == rows.positions[group[i - 1]]) continue;
        seen.push_back(Observe(rows, order, group[i - 1], group[i]));
      }
    }
    if (static_cast<double>(repeats) < min_repeats * static_cast<double>(rows.positions.size())) {
      continue;
    }
    std::optional<std::vector<uint32_t>> turns = FitTurns(std::move(seen));
    if (turns) return FoundRotation{{order, std::move(*turns)}, std::move(groups)};
  }
  return std::nullopt;
}

}  // namespace varve::store
