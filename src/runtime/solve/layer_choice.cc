#include "runtime/solve/layer_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace varve {
namespace {

// Sums beyond this are rounded: 64 layers of 20 options then take some 80 million additions.
constexpr uint64_t kMaxUnits = 1 << 16;
constexpr size_t kMaxOptions = std::numeric_limits<int16_t>::max();

// Indices of the options that are worth their bytes: ascending in bytes, falling in loss.
std::vector<int> WorthTheirBytes(const std::vector<LayerOption>& options) {
  std::vector<int> order(options.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int i) -> const LayerOption& { return options[static_cast<size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return at(a).bytes != at(b).bytes ? at(a).bytes < at(b).bytes : at(a).loss < at(b).loss;
  });
  std::vector<int> kept;
  for (const int i : order) {
    if (kept.empty() || at(i).loss < at(kept.back()).loss) kept.push_back(i);
  }
  return kept;
}

Status CheckOptions(const std::vector<std::vector<LayerOption>>& layers) {
  if (layers.empty()) return InvalidArgument("there is no layer to choose for");
  for (size_t l = 0; l < layers.size(); ++l) {
    if (layers[l].empty() || layers[l].size() > kMaxOptions) {
      return InvalidArgument(
          fmt::format("layer {}: {} options, not 1 to {}", l, layers[l].size(), kMaxOptions));
    }
    for (const LayerOption& option : layers[l]) {
      if (std::isfinite(option.loss) && option.loss >= 0) continue;
      return InvalidArgument(fmt::format("layer {}: a loss of {}", l, option.loss));
    }
  }
  return Status();
}

}  // namespace

Result<LayerChoices> LayerChoices::Make(std::vector<std::vector<LayerOption>> layers) {
  VARVE_RETURN_IF_ERROR(CheckOptions(layers));
  LayerChoices choices;
  choices.layers_ = std::move(layers);
  uint64_t unit = 0;   // of all differences to the smallest option
  uint64_t range = 0;  // from the smallest choice to the largest
  for (const std::vector<LayerOption>& options : choices.layers_) {
    const auto [least, most] = std::minmax_element(
        options.begin(), options.end(),
        [](const LayerOption& a, const LayerOption& b) { return a.bytes < b.bytes; });
    choices.layer_floor_.push_back(least->bytes);
    choices.floor_bytes_ += least->bytes;
    range += most->bytes - least->bytes;
    for (const LayerOption& option : options) unit = std::gcd(unit, option.bytes - least->bytes);
  }
  unit = std::max<uint64_t>(unit, 1);
  choices.unit_bytes_ = std::max(unit, (range + kMaxUnits - 1) / kMaxUnits);

  // best[u]: the least loss of the layers so far with at most u units above their floors. Each
  // layer's rounding may add a unit.
  const size_t num_units =
      static_cast<size_t>(range / choices.unit_bytes_) + choices.layers_.size() + 1;
  std::vector<double> best(num_units, 0.0);
  std::vector<double> next(num_units);
  for (size_t l = 0; l < choices.layers_.size(); ++l) {
    std::fill(next.begin(), next.end(), std::numeric_limits<double>::infinity());
    std::vector<int16_t> taken(num_units, 0);
    for (const int option : WorthTheirBytes(choices.layers_[l])) {
      const size_t units = choices.UnitsOf(l, option);
      const double loss = choices.layers_[l][static_cast<size_t>(option)].loss;
      for (size_t u = units; u < num_units; ++u) {
        if (best[u - units] + loss >= next[u]) continue;
        next[u] = best[u - units] + loss;
        taken[u] = static_cast<int16_t>(option);
      }
    }
    best.swap(next);
    choices.taken_.push_back(std::move(taken));
  }
  choices.best_loss_ = std::move(best);
  return choices;
}

size_t LayerChoices::UnitsOf(size_t layer, int option) const {
  const uint64_t above = layers_[layer][static_cast<size_t>(option)].bytes - layer_floor_[layer];
  return static_cast<size_t>((above + unit_bytes_ - 1) / unit_bytes_);
}

LayerChoice LayerChoices::ChoiceAt(size_t units) const {
  LayerChoice choice;
  choice.options.resize(layers_.size());
  for (size_t l = layers_.size(); l-- > 0;) {
    const int option = taken_[l][units];
    choice.options[l] = option;
    units -= UnitsOf(l, option);
  }
  // In the order of the layers, so that a sum does not depend on how it was found.
  for (size_t l = 0; l < layers_.size(); ++l) {
    const LayerOption& option = layers_[l][static_cast<size_t>(choice.options[l])];
    choice.bytes += option.bytes;
    choice.loss += option.loss;
  }
  return choice;
}

std::optional<LayerChoice> LayerChoices::BestWithin(uint64_t bytes) const {
  if (bytes < floor_bytes_) return std::nullopt;
  const uint64_t units = (bytes - floor_bytes_) / unit_bytes_;
  return ChoiceAt(static_cast<size_t>(std::min<uint64_t>(units, best_loss_.size() - 1)));
}

std::optional<LayerChoice> LayerChoices::SmallestWithin(double loss) const {
  // best_loss_ falls with the units.
  const auto first = std::partition_point(best_loss_.begin(), best_loss_.end(),
                                          [loss](double best) { return best > loss; });
  if (first == best_loss_.end()) return std::nullopt;
  return ChoiceAt(static_cast<size_t>(first - best_loss_.begin()));
}

}  // namespace varve
