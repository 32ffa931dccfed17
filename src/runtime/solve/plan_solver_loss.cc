// PlanSolver::SolveLoss: the fewest bytes within a loss.
//
// The model's figures are those of probes with other exact tokens, so they are off by a factor that
// depends on these. Each frame is probed once to learn its factor; the best one is then read in
// whole windows, with the factor corrected after each reading, until the loss is met and not much
// is left over.

#include <algorithm>
#include <cmath>

#include "runtime/solve/plan_solver.h"

namespace varve {
namespace {

constexpr int kMaxReadings = 5;
// A plan that uses this part of the loss that was allowed is good enough.
constexpr double kEnough = 0.85;

}  // namespace

Result<PlanSolver::ScaledFrame> PlanSolver::FrameForLoss(double max_kl) {
  ScaledFrame best;
  for (const Frame& frame : frames_) {
    const std::optional<LayerChoice> choice = frame.choices->SmallestWithin(max_kl);
    if (!choice) continue;
    VARVE_ASSIGN_OR_RETURN(CandidatePlan plan, Mixture(frame, *choice));
    VARVE_RETURN_IF_ERROR(Probe(plan));
    ScaledFrame scaled{&frame, 1, choice->bytes};
    if (plan.probed > 0 && plan.modelled > 0) {
      scaled.scale = plan.probed / plan.modelled;
      scaled.bytes = frame.choices->SmallestWithin(max_kl / scaled.scale)->bytes;
    }
    if (best.frame == nullptr || scaled.bytes < best.bytes) best = scaled;
  }
  return best;
}

Result<SolvedPlan> PlanSolver::SolveLoss(double max_kl) {
  VARVE_ASSIGN_OR_RETURN(ScaledFrame scaled, FrameForLoss(max_kl));
  const Frame& frame = *scaled.frame;
  SolvedPlan solved;
  bool is_met = false;
  const auto take = [&](const CandidatePlan& plan) {
    solved.finalists.push_back(plan);
    if (plan.kl > max_kl) return;
    if (!is_met || plan.bytes < solved.plan.bytes) solved.plan = plan;
    is_met = true;
    if (plan.is_uniform && (!solved.uniform || plan.bytes < solved.uniform->bytes)) {
      solved.uniform = plan;
    }
  };
  uint64_t last_bytes = 0;
  for (int reading = 0; reading < kMaxReadings || !is_met; ++reading) {
    // f16 loses nothing, so there is always a choice, and in the end one that is good enough.
    const LayerChoice choice = *frame.choices->SmallestWithin(max_kl / scaled.scale);
    if (choice.bytes == last_bytes) {
      if (is_met) break;
      scaled.scale *= 1.1;
      continue;
    }
    last_bytes = choice.bytes;
    std::vector<CandidatePlan> plans(1);
    VARVE_ASSIGN_OR_RETURN(plans[0], Mixture(frame, choice));
    VARVE_ASSIGN_OR_RETURN(std::vector<CandidatePlan> pairs, UniformPairs(frame, choice.bytes, 1));
    plans.insert(plans.end(), pairs.begin(), pairs.end());
    VARVE_RETURN_IF_ERROR(MeasureWhole(plans));
    for (const CandidatePlan& plan : plans) take(plan);
    const double kl = plans[0].kl;
    if (kl <= max_kl && (kl >= kEnough * max_kl || choice.loss == 0)) break;
    const double measured = choice.loss > 0 ? kl / choice.loss : 2 * scaled.scale;
    scaled.scale = kl > max_kl ? std::max(measured, 1.02 * scaled.scale) : measured;
  }
  solved.expected_kl = ExpectedKl(solved);
  return solved;
}

}  // namespace varve
