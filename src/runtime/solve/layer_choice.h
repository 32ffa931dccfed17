// LayerChoices: one option per layer, so that the losses add up to the least for the bytes.
//
// Every layer has a list of options, each with its bytes and its loss; a choice takes one of each
// layer, and bytes and losses add. This is the knapsack problem with groups. Bytes of pages are
// multiples of a slot's granule times the number of pages, so the sums are few and dynamic
// programming over them is exact; it gives the best loss for every sum at once, which answers both
// questions: the least loss within bytes, and the fewest bytes within a loss. Where the sums are
// too many they are rounded up, so that a choice may be a little below what could be had, never
// above the bytes.
//
// It knows neither plans nor rungs. Immutable once made; any number of threads may ask.

#ifndef VARVE_RUNTIME_SOLVE_LAYER_CHOICE_H_
#define VARVE_RUNTIME_SOLVE_LAYER_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "varve/status.h"

namespace varve {

struct LayerOption {
  uint64_t bytes = 0;
  double loss = 0;  // finite, not negative
};

struct LayerChoice {
  std::vector<int> options;  // [layers], indices into the layer's list
  uint64_t bytes = 0;
  double loss = 0;
};

class LayerChoices {
 public:
  // `layers`: [layers][options]. Refuses a layer without options and a loss that is no number.
  static Result<LayerChoices> Make(std::vector<std::vector<LayerOption>> layers);

  // The least loss of all choices that take at most `bytes`; none if the smallest takes more.
  std::optional<LayerChoice> BestWithin(uint64_t bytes) const;
  // The fewest bytes of all choices that lose at most `loss`; none if the best loses more.
  std::optional<LayerChoice> SmallestWithin(double loss) const;

  uint64_t smallest_bytes() const { return floor_bytes_; }

 private:
  LayerChoices() = default;

  // Walks back from a sum of units.
  LayerChoice ChoiceAt(size_t units) const;
  size_t UnitsOf(size_t layer, int option) const;

  std::vector<std::vector<LayerOption>> layers_;
  std::vector<uint64_t> layer_floor_;  // [layers], the smallest option's bytes
  uint64_t floor_bytes_ = 0;           // their sum
  uint64_t unit_bytes_ = 1;
  std::vector<double> best_loss_;  // [units + 1], of at most so many units above the floor
  std::vector<std::vector<int16_t>> taken_;  // [layers][units + 1]: the option of that layer
};

}  // namespace varve

#endif  // VARVE_RUNTIME_SOLVE_LAYER_CHOICE_H_
