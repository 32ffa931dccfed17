// Mel filters as triangles over the bins of a 400-point transform at 16 kHz, in f64. Each filter is
// zero but for a run of bins.

#ifndef VARVE_RUNTIME_AUDIO_MEL_FILTERS_H_
#define VARVE_RUNTIME_AUDIO_MEL_FILTERS_H_

#include <cstddef>
#include <vector>

namespace varve {

struct MelFilter {
  size_t first_bin = 0;
  std::vector<double> weights;  // of first_bin and the bins that follow; may be empty
};

// Slaney's scale (linear below 1 kHz, logarithmic above) from 0 to 8 kHz, every triangle of the
// same area.
std::vector<MelFilter> MakeMelFilters(int mels);

}  // namespace varve

#endif  // VARVE_RUNTIME_AUDIO_MEL_FILTERS_H_
