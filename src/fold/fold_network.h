// FoldNetwork: one network of a compressor, its numbers decoded to f32, ready to run.
//
// Products are those of kernels/weights.h: sums in f32, a row's result depends neither on the rows
// beside it nor on threads. Immutable; Run may be called by many threads at once, each with a
// scratch of its own.

#ifndef VARVE_FOLD_FOLD_NETWORK_H_
#define VARVE_FOLD_FOLD_NETWORK_H_

#include <array>
#include <vector>

#include "kernels/kernels.h"
#include "varve/compressor.h"

namespace varve {

class FoldNetwork {
 public:
  // Requires a compressor that passes CheckCompressor. `kernels` lives for the process.
  FoldNetwork(const CompressorMlp& mlp, CompressorDtype dtype, const Kernels& kernels);

  // inputs [num_rows, factor * head_dim] f32: the rows of `factor` tokens side by side, which is
  // how consecutive rows lie anyway. outputs [num_rows, head_dim] f32.
  void Run(const float* inputs, int num_rows, float* outputs, std::vector<float>* scratch) const;

 private:
  struct Layer {
    int rows = 0;
    int cols = 0;
    std::vector<float> weights;  // [rows, cols]
    std::vector<float> bias;     // [rows] or empty
  };
  const Kernels* kernels_;
  std::vector<Layer> layers_;  // one to kMaxCompressorSlots
};

}  // namespace varve

#endif  // VARVE_FOLD_FOLD_NETWORK_H_
