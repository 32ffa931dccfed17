#include "runtime/solve/measured_losses.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace varve {
namespace {

// Beyond this many, neighbouring layers are measured together.
constexpr int kMaxLayerGroups = 32;
// A rung that loses more than this in all layers at once tells nothing about single layers: one of
// them ruins the rest. Nats.
constexpr double kMaxSignalLoss = 0.5;

int LayersPerGroup(int num_layers) { return (num_layers + kMaxLayerGroups - 1) / kMaxLayerGroups; }

int NumGroups(int num_layers) {
  return (num_layers + LayersPerGroup(num_layers) - 1) / LayersPerGroup(num_layers);
}

class LossMeasurement {
 public:
  LossMeasurement(PlanProbe& probe, const PlanSpace& space, const ExactTokens& exact,
                  SolveMeter& meter, size_t f16)
      : probe_(probe), space_(space), exact_(exact), meter_(meter), f16_(f16) {}

  // The rung in all layers, for every rung.
  Result<std::vector<double>> Rungs(Part part) {
    std::vector<double> losses;
    for (size_t rung = 0; rung < space_.rungs().size(); ++rung) {
      losses.push_back(0);
      if (rung == f16_) continue;
      VARVE_ASSIGN_OR_RETURN(losses.back(),
                             Loss(part, rung, 0, space_.num_layers(),
                                  fmt::format("{} in all layers, {}", space_.rungs()[rung],
                                              part == Part::kKey ? "k" : "v")));
    }
    return losses;
  }

  // The rung with the fewest bytes among those that do not ruin the model; the one that loses least
  // if all do.
  Result<size_t> Signal(Part part, const std::vector<double>& losses) const {
    VARVE_ASSIGN_OR_RETURN(std::vector<uint64_t> bytes, space_.LayerBytes(exact_));
    const auto bytes_of = [&](size_t rung) { return bytes[Pair(part, rung)]; };
    size_t signal = f16_;
    size_t least = f16_;
    for (size_t rung = 0; rung < losses.size(); ++rung) {
      if (rung == f16_) continue;
      if (least == f16_ || losses[rung] < losses[least]) least = rung;
      if (losses[rung] > kMaxSignalLoss) continue;
      if (signal == f16_ || bytes_of(rung) < bytes_of(signal)) signal = rung;
    }
    return signal != f16_ ? signal : least;
  }

  Result<std::vector<double>> Layers(Part part, size_t rung) {
    const int per_group = LayersPerGroup(space_.num_layers());
    std::vector<double> losses;
    for (int first = 0; first < space_.num_layers(); first += per_group) {
      const int end = std::min(first + per_group, space_.num_layers());
      VARVE_ASSIGN_OR_RETURN(double loss,
                             Loss(part, rung, first, end,
                                  fmt::format("{} in layer {}, {}", space_.rungs()[rung], first,
                                              part == Part::kKey ? "k" : "v")));
      losses.insert(losses.end(), static_cast<size_t>(end - first), loss / (end - first));
    }
    return losses;
  }

 private:
  size_t Pair(Part part, size_t rung) const {
    return part == Part::kKey ? space_.PairOf(rung, f16_) : space_.PairOf(f16_, rung);
  }

  Result<double> Loss(Part part, size_t rung, int first, int end, const std::string& step) {
    std::vector<int> pairs(static_cast<size_t>(space_.num_layers()),
                           static_cast<int>(space_.PairOf(f16_, f16_)));
    std::fill(pairs.begin() + first, pairs.begin() + end, static_cast<int>(Pair(part, rung)));
    VARVE_ASSIGN_OR_RETURN(Plan plan, space_.MakePlan(pairs, exact_));
    VARVE_ASSIGN_OR_RETURN(double loss, probe_.Loss(plan));
    VARVE_RETURN_IF_ERROR(meter_.Advance(probe_.tokens_per_loss(), step));
    return loss;
  }

  PlanProbe& probe_;
  const PlanSpace& space_;
  ExactTokens exact_;
  SolveMeter& meter_;
  size_t f16_;
};

}  // namespace

int64_t LossTokens(const PlanProbe& probe, const PlanSpace& space) {
  const auto rungs = static_cast<int64_t>(space.rungs().size());
  return 2 * (rungs - 1 + NumGroups(space.num_layers())) * probe.tokens_per_loss();
}

Result<MeasuredLosses> MeasureLosses(PlanProbe& probe, const PlanSpace& space,
                                     const ExactTokens& exact, SolveMeter& meter) {
  const auto f16 = std::find(space.rungs().begin(), space.rungs().end(), "f16");
  if (f16 == space.rungs().end() || space.rungs().size() < 2) {
    return InvalidArgument(
        fmt::format("candidates {}: f16 and at least one other rung must be among them",
                    fmt::join(space.rungs(), " ")));
  }
  LossMeasurement measurement(probe, space, exact, meter,
                              static_cast<size_t>(f16 - space.rungs().begin()));
  MeasuredLosses losses;
  for (const Part part : {Part::kKey, Part::kValue}) {
    PartLosses& of_part = part == Part::kKey ? losses.keys : losses.values;
    size_t& signal = part == Part::kKey ? losses.key_signal : losses.value_signal;
    VARVE_ASSIGN_OR_RETURN(of_part.rungs, measurement.Rungs(part));
    VARVE_ASSIGN_OR_RETURN(signal, measurement.Signal(part, of_part.rungs));
    VARVE_ASSIGN_OR_RETURN(of_part.layers, measurement.Layers(part, signal));
  }
  return losses;
}

}  // namespace varve
