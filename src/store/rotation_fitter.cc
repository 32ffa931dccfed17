#include "store/rotation_fitter.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace varve::store {
namespace {

constexpr double kPi = std::numbers::pi;
// Rows that are near each other tell a frequency roughly and without doubt; far ones exactly.
constexpr size_t kFewest = 6;
constexpr size_t kNearObservations = 48;
constexpr size_t kFarObservations = 256;
// What angles may miss on average once a frequency is known, and from where on one counts as found.
constexpr double kMaxMiss = 0.1;
constexpr double kMinScore = 0.9;

double Wrap(double angle) { return angle - 2 * kPi * std::round(angle / (2 * kPi)); }

// What was seen of one pair, nearest first.
struct PairAngles {
  std::vector<double> distances, angles, weights;

  size_t size() const { return distances.size(); }
};

PairAngles AnglesOf(const std::vector<Observation>& seen, size_t pair) {
  PairAngles angles;
  double sum = 0;
  for (const Observation& one : seen) {
    angles.distances.push_back(one.distance);
    angles.angles.push_back(std::arg(one.turned[pair]));
    angles.weights.push_back(std::abs(one.turned[pair]));
    sum += angles.weights.back();
  }
  // A long pair has a better angle, but one row must not decide alone.
  const double mean = std::max(sum / static_cast<double>(seen.size()), 1e-30);
  for (double& weight : angles.weights) weight = std::min(weight / mean, 1.0);
  return angles;
}

// The mean cosine of what the nearest observations miss at this frequency: 1 if nothing.
double Score(const PairAngles& angles, size_t count, double frequency) {
  double sum = 0, weights = 1e-30;
  for (size_t j = 0; j < count; ++j) {
    sum += angles.weights[j] * std::cos(angles.angles[j] - frequency * angles.distances[j]);
    weights += angles.weights[j];
  }
  return sum / weights;
}

// The best frequency of a grid, for the near observations.
double SearchFrequency(const PairAngles& angles, double most) {
  const size_t count = std::min(angles.size(), kNearObservations);
  const double step = 0.5 / angles.distances[count - 1];
  double best = 0, best_score = -2;
  for (double frequency = 0; frequency <= most + step; frequency += step) {
    const double score = Score(angles, count, frequency);
    if (score > best_score) {
      best = frequency;
      best_score = score;
    }
  }
  return best;
}

// Least squares with ever farther observations; what they miss then is less than half a turn.
double RefineFrequency(const PairAngles& angles, double frequency) {
  size_t count = std::min(angles.size(), kNearObservations);
  while (true) {
    for (int round = 0; round < 3; ++round) {
      double sum = 0, weights = 1e-30;
      for (size_t j = 0; j < count; ++j) {
        const double distance = angles.distances[j];
        const double miss = Wrap(angles.angles[j] - frequency * distance);
        sum += angles.weights[j] * distance * miss;
        weights += angles.weights[j] * distance * distance;
      }
      frequency += sum / weights;
    }
    if (count == angles.size()) return frequency;
    // Twice the distance at most.
    const double reach = 2 * angles.distances[count - 1];
    const auto beyond = std::upper_bound(angles.distances.begin(), angles.distances.end(), reach);
    count = std::max(count + 1, static_cast<size_t>(beyond - angles.distances.begin()));
  }
}

bool Explains(const PairAngles& angles, double frequency) {
  double sum = 0, weights = 1e-30;
  for (size_t j = 0; j < angles.size(); ++j) {
    sum += angles.weights[j] * std::abs(Wrap(angles.angles[j] - frequency * angles.distances[j]));
    weights += angles.weights[j];
  }
  return sum / weights < kMaxMiss;
}

double RoundTo(double value, int digits) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - digits + 1);
  return std::round(value / unit) * unit;
}

// If the frequencies are base^(-i / pairs) with a round base, exactly these: they hold at any
// distance, where measured ones hold about as far as they were seen.
void SnapToBase(double reach, std::vector<double>& frequencies) {
  const double pairs = static_cast<double>(frequencies.size());
  std::vector<double> slopes;
  for (size_t i = 1; i < frequencies.size(); ++i) {
    if (frequencies[i] * reach > 1)
      slopes.push_back(-std::log(frequencies[i]) / static_cast<double>(i));
  }
  if (slopes.empty()) return;
  std::nth_element(slopes.begin(), slopes.begin() + static_cast<ptrdiff_t>(slopes.size() / 2),
                   slopes.end());
  const double measured = std::exp(slopes[slopes.size() / 2] * pairs);
  for (int digits = 1; digits <= 3; ++digits) {
    const double base = RoundTo(measured, digits);
    std::vector<double> exact;
    bool fits = true;
    for (size_t i = 0; i < frequencies.size() && fits; ++i) {
      exact.push_back(std::pow(base, -static_cast<double>(i) / pairs));
      fits = std::abs(exact[i] - frequencies[i]) * reach < 0.05;
    }
    if (!fits) continue;
    frequencies = std::move(exact);
    return;
  }
}

}  // namespace

std::optional<std::vector<uint32_t>> FitTurns(std::vector<Observation> seen) {
  if (seen.size() < kFewest) return std::nullopt;
  std::stable_sort(seen.begin(), seen.end(), [](const Observation& a, const Observation& b) {
    return a.distance < b.distance;
  });
  if (seen.size() > kFarObservations) {
    // The near ones and an even selection of the others.
    std::vector<Observation> some(seen.begin(), seen.begin() + kNearObservations);
    const size_t rest = seen.size() - kNearObservations,
                 room = kFarObservations - kNearObservations;
    for (size_t i = 1; i <= room; ++i)
      some.push_back(seen[kNearObservations - 1 + i * rest / room]);
    seen = std::move(some);
  }
  std::vector<double> frequencies;
  double most = kPi;
  for (size_t pair = 0; pair < seen[0].turned.size(); ++pair) {
    const PairAngles angles = AnglesOf(seen, pair);
    const double rough = SearchFrequency(angles, most);
    if (Score(angles, std::min(angles.size(), kNearObservations), rough) < kMinScore) {
      return std::nullopt;
    }
    const double frequency = RefineFrequency(angles, rough);
    if (!Explains(angles, frequency)) return std::nullopt;
    frequencies.push_back(frequency);
    most = std::min(most, 1.05 * frequency);
  }
  SnapToBase(seen.back().distance, frequencies);
  std::vector<uint32_t> turns;
  for (const double frequency : frequencies) {
    turns.push_back(static_cast<uint32_t>(std::llround(frequency / (2 * kPi) * 0x1p32)));
  }
  return turns;
}

}  // namespace varve::store
