#include "runtime/audio/mel_filters.h"

#include <algorithm>
#include <cmath>

#include "runtime/audio/log_mel.h"

namespace varve {
namespace {

constexpr double kBinHz = 16000.0 / 400.0;
constexpr double kTopHz = 8000.0;
// Slaney's scale: 3 mels per 200 Hz up to 1000 Hz (15 mels), then 27 mels for each factor of 6.4.
constexpr double kLinearHz = 200.0 / 3.0;
constexpr double kKneeHz = 1000.0;
constexpr double kKneeMel = kKneeHz / kLinearHz;
constexpr double kMelsPerFactor = 27.0;
constexpr double kFactor = 6.4;

double HzToMel(double hz) {
  if (hz < kKneeHz) return hz / kLinearHz;
  return kKneeMel + std::log(hz / kKneeHz) * kMelsPerFactor / std::log(kFactor);
}

double MelToHz(double mel) {
  if (mel < kKneeMel) return mel * kLinearHz;
  return kKneeHz * std::exp((mel - kKneeMel) * std::log(kFactor) / kMelsPerFactor);
}

}  // namespace

std::vector<MelFilter> MakeMelFilters(int mels) {
  std::vector<double> edges_hz;  // [mels + 2]: filter m rises from edge m, falls to edge m + 2
  for (int i = 0; i < mels + 2; ++i) {
    edges_hz.push_back(MelToHz(HzToMel(kTopHz) * i / (mels + 1)));
  }
  std::vector<MelFilter> filters(static_cast<size_t>(mels));
  for (size_t m = 0; m < filters.size(); ++m) {
    const double low = edges_hz[m];
    const double middle = edges_hz[m + 1];
    const double high = edges_hz[m + 2];
    for (size_t bin = 0; bin < kMelBins; ++bin) {
      const double hz = static_cast<double>(bin) * kBinHz;
      const double height = std::min((hz - low) / (middle - low), (high - hz) / (high - middle));
      if (height <= 0) continue;
      if (filters[m].weights.empty()) filters[m].first_bin = bin;
      filters[m].weights.push_back(height * 2.0 / (high - low));
    }
  }
  return filters;
}

std::vector<float> MelFilters(int mels) {
  std::vector<float> dense(static_cast<size_t>(mels) * kMelBins);
  const std::vector<MelFilter> filters = MakeMelFilters(mels);
  for (size_t m = 0; m < filters.size(); ++m) {
    std::transform(filters[m].weights.begin(), filters[m].weights.end(),
                   dense.begin() + static_cast<ptrdiff_t>(m * kMelBins + filters[m].first_bin),
                   [](double w) { return static_cast<float>(w); });
  }
  return dense;
}

}  // namespace varve
