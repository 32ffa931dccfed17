// PowerSpectra: the power spectra of eight windows of 400 real samples at once.
//
// Two real windows are the parts of one complex input, and four such inputs lie side by side, so
// that every step of the transform is the same operation on neighbouring numbers: a loop that the
// compiler turns into vectors. The transform is Stockham's with factors 5, 5, 4, 4, in f64.
//
// Holds its work memory: one object per thread. The tables are shared and constant.

#ifndef VARVE_RUNTIME_AUDIO_SPECTRUM_H_
#define VARVE_RUNTIME_AUDIO_SPECTRUM_H_

#include <array>
#include <cstddef>

namespace varve {

inline constexpr size_t kSpectrumSamples = 400;
inline constexpr size_t kSpectrumBins = kSpectrumSamples / 2 + 1;
inline constexpr size_t kSpectrumWindows = 8;

class PowerSpectra {
 public:
  // Window w of the input: sample n at input(w)[n * kInputStride], to be written before Compute.
  static constexpr size_t kInputStride = kSpectrumWindows / 2;
  double* input(size_t window) { return (window % 2 == 0 ? a_.re : a_.im).data() + window / 2; }

  // Overwrites the input.
  void Compute();

  // Powers of bin b of all windows: power(b)[w].
  const double* power(size_t bin) const { return power_.data() + bin * kSpectrumWindows; }

 private:
  static constexpr size_t kPairs = kSpectrumWindows / 2;
  struct Planes {
    alignas(64) std::array<double, kSpectrumSamples * kPairs> re;  // [samples, pairs]
    alignas(64) std::array<double, kSpectrumSamples * kPairs> im;
  };
  struct Stages;

  Planes a_ = {};
  Planes b_ = {};
  alignas(64) std::array<double, kSpectrumBins* kSpectrumWindows> power_ = {};
};

}  // namespace varve

#endif  // VARVE_RUNTIME_AUDIO_SPECTRUM_H_
