#include "runtime/audio/log_mel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numbers>

#include "runtime/audio/mel_filters.h"
#include "runtime/audio/spectrum.h"

namespace varve {
namespace {

constexpr size_t kHop = kMelFrameSamples;
constexpr size_t kReflected = kSpectrumSamples / 2;
constexpr size_t kTaskFrames = 64;  // of one task of the executor
static_assert(kTaskFrames % kSpectrumWindows == 0 && kSpectrumBins == kMelBins);

constexpr double kMinPower = 1e-10;
constexpr float kSilence = -10;  // its logarithm
constexpr float kRange = 8;

const std::array<double, kSpectrumSamples>& Hann() {
  static const std::array<double, kSpectrumSamples> window = [] {
    std::array<double, kSpectrumSamples> w = {};
    for (size_t n = 0; n < kSpectrumSamples; ++n) {
      w[n] = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(n) / kSpectrumSamples);
    }
    return w;
  }();
  return window;
}

// The first pass: logarithms of the filters' powers, not yet cut off below.
class LogMelPass {
 public:
  LogMelPass(std::span<const float> samples, LogMel& out)
      : samples_(samples), filters_(MakeMelFilters(out.mels)), out_(out) {}

  // Frames from `begin` to `end`, which begins at a multiple of kSpectrumWindows. Returns the
  // largest value.
  float Compute(PowerSpectra& spectra, size_t begin, size_t end) const {
    float largest = kSilence;
    for (size_t first = begin; first < end; first += kSpectrumWindows) {
      const size_t count = std::min(kSpectrumWindows, end - first);
      for (size_t w = 0; w < kSpectrumWindows; ++w) Fill(first + w, spectra.input(w));
      spectra.Compute();
      for (size_t m = 0; m < filters_.size(); ++m) {
        float* row = out_.values.data() + m * static_cast<size_t>(out_.stride()) + first;
        largest = std::max(largest, Filter(filters_[m], spectra, count, row));
      }
    }
    return largest;
  }

 private:
  // Frame f is about sample 160 f; before the sound lies its mirror image, behind it silence.
  void Fill(size_t frame, double* input) const {
    const std::array<double, kSpectrumSamples>& window = Hann();
    for (size_t n = 0; n < kSpectrumSamples; ++n) {
      const size_t place = frame * kHop + n;  // in the sound with its mirror image in front
      const size_t sample = place < kReflected ? kReflected - place : place - kReflected;
      const double x = sample < samples_.size() ? static_cast<double>(samples_[sample]) : 0.0;
      input[n * PowerSpectra::kInputStride] = x * window[n];
    }
  }

  static float Filter(const MelFilter& filter, const PowerSpectra& spectra, size_t count,
                      float* row) {
    std::array<double, kSpectrumWindows> sums = {};
    for (size_t i = 0; i < filter.weights.size(); ++i) {
      const double* power = spectra.power(filter.first_bin + i);
      for (size_t w = 0; w < kSpectrumWindows; ++w) sums[w] += filter.weights[i] * power[w];
    }
    float largest = kSilence;
    for (size_t w = 0; w < count; ++w) {
      row[w] = static_cast<float>(std::log10(std::max(sums[w], kMinPower)));
      largest = std::max(largest, row[w]);
    }
    return largest;
  }

  std::span<const float> samples_;
  const std::vector<MelFilter> filters_;
  LogMel& out_;
};

}  // namespace

LogMel ComputeLogMel(std::span<const float> samples, int mels, Executor& executor) {
  LogMel result;
  result.mels = mels;
  result.frames = static_cast<int>(samples.size() / kHop);
  const size_t stride = static_cast<size_t>(result.stride());
  result.values.assign(static_cast<size_t>(mels) * stride, kSilence);

  // Frames that touch the sound; those behind stay silent.
  const size_t heard = std::min((samples.size() + kReflected + kHop - 1) / kHop, stride);
  const size_t num_tasks = (heard + kTaskFrames - 1) / kTaskFrames;
  std::vector<float> largest(num_tasks, kSilence);
  std::vector<std::unique_ptr<PowerSpectra>> spectra(static_cast<size_t>(executor.num_threads()));
  const LogMelPass pass(samples, result);
  executor.ParallelFor(num_tasks, [&](size_t task, int worker) {
    std::unique_ptr<PowerSpectra>& mine = spectra[static_cast<size_t>(worker)];
    if (mine == nullptr) mine = std::make_unique<PowerSpectra>();
    const size_t begin = task * kTaskFrames;
    largest[task] = pass.Compute(*mine, begin, std::min(begin + kTaskFrames, heard));
  });

  const float peak = num_tasks == 0 ? kSilence : *std::max_element(largest.begin(), largest.end());
  const float floor = peak - kRange;
  executor.ParallelFor(static_cast<size_t>(mels), [&](size_t mel, int) {
    float* row = result.values.data() + mel * stride;
    for (size_t i = 0; i < stride; ++i) row[i] = (std::max(row[i], floor) + 4.0F) / 4.0F;
  });
  return result;
}

}  // namespace varve
