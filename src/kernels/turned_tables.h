// Where the tables of turned kernels come from; private to src/kernels.

#ifndef VARVE_KERNELS_TURNED_TABLES_H_
#define VARVE_KERNELS_TURNED_TABLES_H_

#include <vector>

#include "kernels/turned_kernels.h"

namespace varve {

// Best last, named as those of SimdKernels().
std::vector<const TurnedKernels*> SimdTurnedKernels();

// The order in which every table adds up a row, so that all encode the same bytes: 16 lanes, then
// halves.
inline constexpr int kTurnedSumLanes = 16;
inline float SumOfTurnedLanes(float (&lanes)[kTurnedSumLanes]) {
  for (int half = kTurnedSumLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// The f16 bits of a scale, from <levels, row> and <levels, levels>; counts the row's values if it
// is cut.
uint16_t TurnedScaleBits(float product, float square, int dim, uint64_t* replaced);

}  // namespace varve

#endif  // VARVE_KERNELS_TURNED_TABLES_H_
