#include "runtime/solve/plan_solver.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "runtime/eval/window_evaluator.h"
#include "runtime/model_cache.h"

namespace varve {
namespace {

// Shares of layers as measured, and drawn together: which is better is measured.
constexpr double kSharp = 1.0;
constexpr double kSoft = 0.6;
constexpr size_t kMaxUniformPairs = 3;  // of a frame, that are probed
constexpr size_t kMaxFinalists = 2;     // of mixtures, and of uniform pairs

bool ByProbe(const CandidatePlan& a, const CandidatePlan& b) { return a.probed < b.probed; }
bool ByKl(const CandidatePlan& a, const CandidatePlan& b) { return a.kl < b.kl; }

}  // namespace

double ExpectedKl(const SolvedPlan& solved) {
  double measured = 0;
  double modelled = 0;
  for (const CandidatePlan& other : solved.finalists) {
    if (other.plan == solved.plan.plan) continue;
    measured += other.kl;
    modelled += other.modelled;
  }
  return modelled > 0 ? solved.plan.modelled * measured / modelled : solved.plan.probed;
}

PlanSolver::PlanSolver(std::shared_ptr<const DecoderModel> model, const Tokenizer& tokenizer,
                       std::vector<std::vector<int32_t>> windows, SolveOptions options,
                       Executor& executor, SolveProgressFunction progress)
    : model_(std::move(model)),
      tokenizer_(tokenizer),
      windows_(std::move(windows)),
      options_(std::move(options)),
      executor_(executor),
      meter_(std::move(progress)) {}

Result<std::unique_ptr<PlanSolver>> PlanSolver::Make(
    const std::shared_ptr<const DecoderModel>& model, const Tokenizer& tokenizer,
    std::vector<std::vector<int32_t>> windows, SolveOptions options, Executor& executor,
    SolveProgressFunction progress) {
  if (options.exact.empty()) return InvalidArgument("there is no exact= to try");
  std::unique_ptr<PlanSolver> solver(new PlanSolver(
      model, tokenizer, std::move(windows), std::move(options), executor, std::move(progress)));
  VARVE_RETURN_IF_ERROR(solver->Prepare());
  return solver;
}

Status PlanSolver::Prepare() {
  VARVE_ASSIGN_OR_RETURN(probe_, PlanProbe::Make(model_, windows_, options_.tail_tokens,
                                                 options_.precision, executor_));
  const CacheOptions of_model = CacheOptionsFor(*model_);
  const PlanResources resources{.codebook = of_model.codebook,
                                .compressor = of_model.compressor,
                                .model_fingerprint = of_model.model_fingerprint};
  const auto make_space = [&](double table_bytes) {
    space_.emplace(model_->cache_shape(), resources, options_.rungs, options_.num_tokens,
                   table_bytes);
  };
  make_space(0);
  // What cannot be is refused before anything is computed.
  VARVE_RETURN_IF_ERROR(space_->LayerBytes(options_.exact[0]).status());

  const auto window_tokens = static_cast<int64_t>(windows_[0].size());
  const int64_t all_windows = probe_->num_windows() * window_tokens;
  const auto probes =
      static_cast<int64_t>(options_.exact.size() + kMaxFinalists + kMaxUniformPairs);
  meter_.Expect(all_windows + LossTokens(*probe_, *space_));
  meter_.Expect(options_.num_targets *
                (probes * probe_->tokens_per_loss() + (2 * kMaxFinalists + 1) * all_windows));
  while (!probe_->ready()) {
    VARVE_RETURN_IF_ERROR(probe_->ReadNextWindow());
    VARVE_RETURN_IF_ERROR(meter_.Advance(window_tokens, "f16"));
  }
  make_space(probe_->table_bytes_per_page());
  VARVE_ASSIGN_OR_RETURN(losses_, MeasureLosses(*probe_, *space_, options_.exact[0], meter_));
  return MakeFrames();
}

Status PlanSolver::MakeFrames() {
  for (const ExactTokens& exact : options_.exact) {
    Frame frame;
    frame.exact = exact;
    VARVE_ASSIGN_OR_RETURN(frame.pair_bytes, space_->LayerBytes(exact));
    VARVE_ASSIGN_OR_RETURN(frame.choices, ChoicesOf(frame, kSharp));
    frames_.push_back(std::move(frame));
  }
  return Status();
}

Result<LayerChoices> PlanSolver::ChoicesOf(const Frame& frame, double sharpness) const {
  VARVE_ASSIGN_OR_RETURN(LossModel model, LossModel::Make(losses_.keys, losses_.values, sharpness));
  std::vector<std::vector<LayerOption>> layers(model.num_layers());
  for (size_t l = 0; l < layers.size(); ++l) {
    for (size_t pair = 0; pair < space_->num_pairs(); ++pair) {
      layers[l].push_back(
          {frame.pair_bytes[pair],
           model.KeyLoss(l, space_->KeyRung(pair)) + model.ValueLoss(l, space_->ValueRung(pair))});
    }
  }
  return LayerChoices::Make(std::move(layers));
}

Result<CandidatePlan> PlanSolver::Mixture(const Frame& frame, const LayerChoice& choice) const {
  CandidatePlan plan;
  VARVE_ASSIGN_OR_RETURN(plan.plan, space_->MakePlan(choice.options, frame.exact));
  plan.exact = frame.exact;
  plan.is_uniform = plan.plan.rules.size() == 1;
  plan.bytes = choice.bytes;
  plan.modelled = choice.loss;
  return plan;
}

Result<std::vector<CandidatePlan>> PlanSolver::UniformPairs(const Frame& frame, uint64_t bytes,
                                                            size_t most) const {
  std::vector<CandidatePlan> plans;
  for (size_t pair = 0; pair < space_->num_pairs(); ++pair) {
    CandidatePlan plan;
    plan.bytes = frame.pair_bytes[pair] * static_cast<uint64_t>(space_->num_layers());
    if (plan.bytes > bytes) continue;
    VARVE_ASSIGN_OR_RETURN(plan.plan, space_->UniformPlan(pair, frame.exact));
    plan.exact = frame.exact;
    plan.is_uniform = true;
    plan.modelled =
        losses_.keys.rungs[space_->KeyRung(pair)] + losses_.values.rungs[space_->ValueRung(pair)];
    plans.push_back(std::move(plan));
  }
  std::stable_sort(plans.begin(), plans.end(), [](const CandidatePlan& a, const CandidatePlan& b) {
    return a.modelled < b.modelled;
  });
  if (plans.size() > most) plans.resize(most);
  return plans;
}

Status PlanSolver::Probe(CandidatePlan& plan) {
  VARVE_ASSIGN_OR_RETURN(plan.probed, probe_->Loss(plan.plan));
  return meter_.Advance(probe_->tokens_per_loss(),
                        fmt::format("exact={},open={}", plan.exact.first, plan.exact.last));
}

Status PlanSolver::MeasureWhole(std::span<CandidatePlan> plans) {
  std::vector<EvalPlan> eval_plans;
  for (const CandidatePlan& plan : plans) eval_plans.push_back({PrintPlan(plan.plan), plan.plan});
  int64_t done = 0;
  Status stopped;
  VARVE_ASSIGN_OR_RETURN(WindowEvalResult result,
                         EvaluateWindows(model_, tokenizer_, windows_, eval_plans,
                                         {.precision = options_.precision, .prompt_half = false},
                                         executor_, [&](const EvalProgress& progress) {
                                           stopped = meter_.Advance(progress.done_tokens - done,
                                                                    "whole windows");
                                           done = progress.done_tokens;
                                           return stopped.ok();
                                         }));
  VARVE_RETURN_IF_ERROR(stopped);
  for (size_t i = 0; i < plans.size(); ++i) {
    plans[i].kl = result.plans[i + 1].kl_mean;
    plans[i].kl_sem = result.plans[i + 1].kl_sem;
  }
  return Status();
}

const PlanSolver::Frame& PlanSolver::FrameOf(const CandidatePlan& plan) const {
  return *std::find_if(frames_.begin(), frames_.end(),
                       [&](const Frame& frame) { return frame.exact == plan.exact; });
}

uint64_t PlanSolver::smallest_bytes() const {
  uint64_t smallest = UINT64_MAX;
  for (const Frame& frame : frames_) {
    smallest = std::min(smallest, frame.choices->smallest_bytes());
  }
  return smallest;
}

Result<std::vector<CandidatePlan>> PlanSolver::BestMixtures(uint64_t bytes) {
  std::vector<CandidatePlan> plans;  // one per frame
  for (const Frame& frame : frames_) {
    const std::optional<LayerChoice> choice = frame.choices->BestWithin(bytes);
    if (!choice) continue;
    VARVE_ASSIGN_OR_RETURN(CandidatePlan plan, Mixture(frame, *choice));
    VARVE_RETURN_IF_ERROR(Probe(plan));
    plans.push_back(std::move(plan));
  }
  if (plans.empty()) {
    const auto f16 = static_cast<double>(space_->f16_bytes());
    return InvalidArgument(fmt::format(
        "{} bytes for {} tokens: the smallest plan of these rungs takes {}, a ratio of {:.2f}",
        bytes, space_->num_tokens(), smallest_bytes(),
        f16 / static_cast<double>(smallest_bytes())));
  }
  std::stable_sort(plans.begin(), plans.end(), ByProbe);
  plans.resize(1);
  const Frame& frame = FrameOf(plans[0]);
  VARVE_ASSIGN_OR_RETURN(LayerChoices soft, ChoicesOf(frame, kSoft));
  VARVE_ASSIGN_OR_RETURN(CandidatePlan softer, Mixture(frame, *soft.BestWithin(bytes)));
  if (!(softer.plan == plans[0].plan)) {
    VARVE_RETURN_IF_ERROR(Probe(softer));
    plans.push_back(std::move(softer));
  }
  std::stable_sort(plans.begin(), plans.end(), ByProbe);
  return plans;
}

Result<SolvedPlan> PlanSolver::SolveBytes(uint64_t bytes) {
  VARVE_ASSIGN_OR_RETURN(std::vector<CandidatePlan> finalists, BestMixtures(bytes));
  VARVE_ASSIGN_OR_RETURN(std::vector<CandidatePlan> pairs,
                         UniformPairs(FrameOf(finalists[0]), bytes, kMaxUniformPairs));
  for (CandidatePlan& pair : pairs) VARVE_RETURN_IF_ERROR(Probe(pair));
  std::stable_sort(pairs.begin(), pairs.end(), ByProbe);
  if (pairs.size() > kMaxFinalists) pairs.resize(kMaxFinalists);
  finalists.insert(finalists.end(), pairs.begin(), pairs.end());
  VARVE_RETURN_IF_ERROR(MeasureWhole(finalists));

  SolvedPlan solved;
  solved.finalists = finalists;
  solved.plan = *std::min_element(finalists.begin(), finalists.end(), ByKl);
  const auto first_pair = finalists.end() - static_cast<ptrdiff_t>(pairs.size());
  if (!pairs.empty()) solved.uniform = *std::min_element(first_pair, finalists.end(), ByKl);
  solved.expected_kl = ExpectedKl(solved);
  return solved;
}

}  // namespace varve
