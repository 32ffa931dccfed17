#include "runtime/solve/loss_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace varve {
namespace {

Status CheckLosses(const std::vector<double>& losses, const char* what) {
  if (losses.empty()) return InvalidArgument(fmt::format("there is no {} to model", what));
  for (size_t i = 0; i < losses.size(); ++i) {
    if (std::isfinite(losses[i]) && losses[i] >= 0) continue;
    return InvalidArgument(fmt::format("{} {}: a loss of {}", what, i, losses[i]));
  }
  return Status();
}

std::vector<double> Shares(const std::vector<double>& losses, double sharpness) {
  std::vector<double> shares(losses.size());
  std::transform(losses.begin(), losses.end(), shares.begin(),
                 [sharpness](double loss) { return std::pow(loss, sharpness); });
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  // Nothing was lost anywhere: no layer is known to be worse than another.
  if (sum <= 0) return std::vector<double>(losses.size(), 1.0 / static_cast<double>(losses.size()));
  for (double& share : shares) share /= sum;
  return shares;
}

}  // namespace

Result<LossModel> LossModel::Make(const PartLosses& keys, const PartLosses& values,
                                  double sharpness) {
  for (const PartLosses* part : {&keys, &values}) {
    VARVE_RETURN_IF_ERROR(CheckLosses(part->rungs, "rung"));
    VARVE_RETURN_IF_ERROR(CheckLosses(part->layers, "layer"));
  }
  if (keys.layers.size() != values.layers.size()) {
    return InvalidArgument(
        fmt::format("{} layers of keys, {} of values", keys.layers.size(), values.layers.size()));
  }
  LossModel model;
  model.keys_ = keys.rungs;
  model.values_ = values.rungs;
  model.key_shares_ = Shares(keys.layers, sharpness);
  model.value_shares_ = Shares(values.layers, sharpness);
  return model;
}

}  // namespace varve
