// LossModel: what each rung costs in each layer and part, from far fewer measurements.
//
// Two kinds of figures are measured: what a rung costs when a part (K or V) has it in all layers,
// and what one low rung costs in each layer alone. The model takes the KL of a layer, part and rung
// to be the layer's share of the second times the rung's figure of the first: the shares are those
// of every rung, and losses of different layers and parts add. Both hold as long as errors are
// small and independent; the solver measures what it chooses.
//
// `sharpness` 1 takes the shares as measured; below that they come closer together
// (share^sharpness), which is wiser where they are noise; 0 makes all layers equal. A value;
// thread-safe.

#ifndef VARVE_RUNTIME_SOLVE_LOSS_MODEL_H_
#define VARVE_RUNTIME_SOLVE_LOSS_MODEL_H_

#include <cstddef>
#include <vector>

#include "varve/status.h"

namespace varve {

// Measured, in nats per token; none negative.
struct PartLosses {
  std::vector<double> rungs;   // [rungs], the rung in all layers, the other part exact
  std::vector<double> layers;  // [layers], a low rung in that layer alone
};

class LossModel {
 public:
  static Result<LossModel> Make(const PartLosses& keys, const PartLosses& values,
                                double sharpness = 1);

  size_t num_layers() const { return key_shares_.size(); }
  double KeyLoss(size_t layer, size_t rung) const { return key_shares_[layer] * keys_[rung]; }
  double ValueLoss(size_t layer, size_t rung) const { return value_shares_[layer] * values_[rung]; }

 private:
  LossModel() = default;

  std::vector<double> keys_;        // [rungs]
  std::vector<double> values_;      // [rungs]
  std::vector<double> key_shares_;  // [layers], sum 1
  std::vector<double> value_shares_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_SOLVE_LOSS_MODEL_H_
