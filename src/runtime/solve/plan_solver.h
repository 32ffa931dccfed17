// PlanSolver: finds the plan that loses least within bytes, or takes the fewest bytes within a
// loss.
//
//   VARVE_ASSIGN_OR_RETURN(auto solver, PlanSolver::Make(...));
//   VARVE_ASSIGN_OR_RETURN(SolvedPlan plan, solver->SolveBytes(bytes));
//
// Make probes (plan_probe.h, measured_losses.h) what every candidate costs as the rung of K or of V
// in all layers, and what a low one costs in each layer by itself. The additive model of losses
// (loss_model.h) then says what any mixture costs, and dynamic programming (layer_choice.h) gives
// the best mixture for each number of exact and open tokens. The best of these are probed; the
// finalists, among them the best pairs of one rung for K and one for V in all layers, read whole
// windows beside the f16 cache, and what measures best is returned. So a solved plan is never above
// the best uniform pair on the text that it was solved on.
//
// Keeps the model; executor, tokenizer and windows are not owned. One thread at a time. Results do
// not depend on threads or time.

#ifndef VARVE_RUNTIME_SOLVE_PLAN_SOLVER_H_
#define VARVE_RUNTIME_SOLVE_PLAN_SOLVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/kernels/linear.h"
#include "runtime/model/decoder_model.h"
#include "runtime/solve/layer_choice.h"
#include "runtime/solve/measured_losses.h"
#include "runtime/solve/plan_probe.h"
#include "runtime/solve/plan_space.h"
#include "runtime/solve/solve_meter.h"
#include "runtime/tokenizer/tokenizer.h"
#include "varve/executor.h"
#include "varve/plan.h"
#include "varve/status.h"

namespace varve {

struct SolveOptions {
  std::vector<std::string> rungs;  // candidates; f16 must be one
  int64_t num_tokens = 4096;       // the length of a sequence that bytes are of
  int64_t tail_tokens = 128;       // of a window, for probes
  int num_targets = 1;             // that will be solved for; for the progress
  ProductPrecision precision = ProductPrecision::kF32;
  // What is tried as exact= and open=. Losses of layers and rungs are measured with the first.
  std::vector<ExactTokens> exact = {{64, 0}, {0, 0}, {64, 64}, {64, 128}, {128, 128}, {64, 256}};
};

struct CandidatePlan {
  Plan plan;
  ExactTokens exact;
  bool is_uniform = false;  // one pair of rungs in all layers
  uint64_t bytes = 0;       // of a sequence of num_tokens
  double modelled = 0;      // KL by the additive model, of probes with exact[0]
  double probed = 0;        // KL of a probe
  double kl = 0;            // KL of whole windows, and its standard error; for finalists
  double kl_sem = 0;
};

struct SolvedPlan {
  CandidatePlan plan;
  // The best pair of rungs for all layers, at most as large, with the same exact= and open=; none
  // where every pair is larger.
  std::optional<CandidatePlan> uniform;
  double expected_kl = 0;  // ExpectedKl
  std::vector<CandidatePlan> finalists;
};

// What the model expects of the solved plan: its figure, brought to whole windows by what the other
// finalists measured.
double ExpectedKl(const SolvedPlan& solved);

class PlanSolver {
 public:
  // `windows` are of one length (CutWindows). Reads them with the f16 cache and makes all probes of
  // losses: most of the time goes here. Refuses candidates that the model cannot have.
  static Result<std::unique_ptr<PlanSolver>> Make(const std::shared_ptr<const DecoderModel>& model,
                                                  const Tokenizer& tokenizer,
                                                  std::vector<std::vector<int32_t>> windows,
                                                  SolveOptions options, Executor& executor,
                                                  SolveProgressFunction progress = {});

  // The least KL within `bytes`. kInvalidArgument, with the smallest that there is, if none fits.
  Result<SolvedPlan> SolveBytes(uint64_t bytes);
  // The fewest bytes whose KL on the windows is at most max_kl.
  Result<SolvedPlan> SolveLoss(double max_kl);

  const PlanSpace& space() const { return *space_; }
  const MeasuredLosses& losses() const { return losses_; }
  uint64_t smallest_bytes() const;

 private:
  // One number of exact and open tokens, with what the layers cost there.
  struct Frame {
    ExactTokens exact;
    std::vector<uint64_t> pair_bytes;  // [pairs], of one layer
    std::optional<LayerChoices> choices;
  };

  PlanSolver(std::shared_ptr<const DecoderModel> model, const Tokenizer& tokenizer,
             std::vector<std::vector<int32_t>> windows, SolveOptions options, Executor& executor,
             SolveProgressFunction progress);

  Status Prepare();
  Status MakeFrames();
  Result<LayerChoices> ChoicesOf(const Frame& frame, double sharpness) const;
  Result<CandidatePlan> Mixture(const Frame& frame, const LayerChoice& choice) const;
  // Pairs for all layers that take at most `bytes`, the least modelled loss first, at most `most`.
  Result<std::vector<CandidatePlan>> UniformPairs(const Frame& frame, uint64_t bytes,
                                                  size_t most) const;
  Status Probe(CandidatePlan& plan);
  // Reads the windows with all of them; fills kl and kl_sem.
  Status MeasureWhole(std::span<CandidatePlan> plans);
  // The best mixtures within `bytes`, probed, the best first; all in the frame of the best.
  Result<std::vector<CandidatePlan>> BestMixtures(uint64_t bytes);
  const Frame& FrameOf(const CandidatePlan& plan) const;
  // The frame in which a loss of max_kl takes the fewest bytes by the model and a probe each, and
  // the factor from modelled to probed losses there.
  struct ScaledFrame {
    const Frame* frame = nullptr;
    double scale = 1;
    uint64_t bytes = 0;
  };
  Result<ScaledFrame> FrameForLoss(double max_kl);

  std::shared_ptr<const DecoderModel> model_;
  const Tokenizer& tokenizer_;
  std::vector<std::vector<int32_t>> windows_;
  SolveOptions options_;
  Executor& executor_;
  SolveMeter meter_;

  std::unique_ptr<PlanProbe> probe_;
  std::optional<PlanSpace> space_;
  MeasuredLosses losses_;
  std::vector<Frame> frames_;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_SOLVE_PLAN_SOLVER_H_
