#include "cli/bench/bench_attention.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "base/machine.h"
#include "cli/available_memory.h"
#include "cli/bench/bench_candidate.h"
#include "cli/bench/bench_report.h"
#include "cli/bench/bench_steps.h"
#include "cli/bench/bench_workload.h"
#include "cli/bench/read_bandwidth.h"
#include "cli/interrupt.h"
#include "cli/report/output.h"
#include "kernels/kernels.h"

namespace varve::cli {
namespace {

constexpr uint64_t kMaxLayers = 1024;  // of a cache: CacheShape

// A line that is overwritten, on a terminal only.
void ShowProgress(const std::string& text) {
  if (!isatty(STDERR_FILENO)) return;
  WriteNote(fmt::format("\r{}\x1b[K", text));
  std::fflush(stderr);
}

// Every plan is compared with the same whole context, and its layers are alike.
// A policy that is never triggered drops nothing: what its scoring costs can be timed.
Status CheckComparable(const std::string& text, const Plan& plan, int64_t most_tokens) {
  for (const LayerRule& rule : plan.rules) {
    if (rule.first_layer != 0 || rule.last_layer != -1) {
      return InvalidArgument(fmt::format(
          "--kv \"{}\": layer ranges; bench attention times one kind of layer at a time, give the "
          "rules as plans of their own",
          text));
    }
    const bool evicts = rule.evict && rule.trigger_tokens.value_or(0) <= most_tokens;
    if (!rule.window_tokens && !evicts) continue;
    return InvalidArgument(fmt::format(
        "--kv \"{}\": {}= drops rows; bench attention compares whole contexts{}", text,
        rule.window_tokens ? "window" : "evict",
        rule.window_tokens ? "" : " (a trigger= beyond --ctx times the scoring alone)"));
  }
  return Status();
}

class AttentionBench {
 public:
  explicit AttentionBench(const BenchAttentionOptions& options)
      : options_(options), out_(options.json == "-" ? stderr : stdout) {}
  Status Run();

 private:
  Status Measure();
  WorkloadShape ShapeAt(int64_t ctx) const {
    return {options_.heads, options_.kv_heads, options_.dim, ctx, options_.seed};
  }
  Status ReadPlans();
  void PrintHeader(const MachineInfo& machine) const;
  Status RunCase(int64_t ctx, int threads, int batch);
  // A cache of this plan in enough layers for the working set, its outputs checked.
  Result<Candidate> MakeCandidate(const std::string& name, const Plan& plan,
                                  const Workload& workload, int batch, Executor& executor,
                                  Executor& all_cores) const;
  Status RunStepTable(int threads);

  const BenchAttentionOptions& options_;
  std::vector<Plan> plans_;
  uint64_t working_set_ = 0;
  std::FILE* out_ = nullptr;  // stdout, unless the JSON goes there
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

Result<Candidate> AttentionBench::MakeCandidate(const std::string& name, const Plan& plan,
                                                const Workload& workload, int batch,
                                                Executor& executor, Executor& all_cores) const {
  ShowProgress(fmt::format("filling {} at {} tokens …", name, workload.shape().ctx));
  VARVE_ASSIGN_OR_RETURN(uint64_t layer_bytes, EstimateLayerBytes(workload.shape(), plan));
  const uint64_t call_bytes = layer_bytes * static_cast<uint64_t>(batch);
  const int layers = static_cast<int>(std::min(working_set_ / call_bytes + 1, kMaxLayers));
  VARVE_ASSIGN_OR_RETURN(FilledCache filled,
                         FillCache(workload, plan, layers, batch, executor, options_.breakdown));
  Candidate candidate;
  candidate.plan = name;
  candidate.filled = std::make_shared<FilledCache>(std::move(filled));
  candidate.reaches_working_set = call_bytes * static_cast<uint64_t>(layers) >= working_set_;
  VARVE_RETURN_IF_ERROR(CheckAnswers(candidate, workload, all_cores));
  return candidate;
}

Status AttentionBench::RunCase(int64_t ctx, int threads, int batch) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
  // Making the rows and checking are not timed: they use every core.
  const std::unique_ptr<Executor> all_cores = MakeThreadPool(0);
  const Workload workload(ShapeAt(ctx), *all_cores);

  std::vector<Candidate> candidates;
  const auto add = [&](const std::string& name, const Plan& plan) -> Status {
    VARVE_ASSIGN_OR_RETURN(Candidate candidate,
                           MakeCandidate(name, plan, workload, batch, *executor, *all_cores));
    candidates.push_back(std::move(candidate));
    return Status();
  };
  // The baseline comes first, and a second time as the measure of noise.
  VARVE_RETURN_IF_ERROR(add("f16", *ParsePlan("f16")));
  candidates.push_back(candidates[0]);
  candidates.back().noise = true;
  for (size_t i = 0; i < plans_.size() && !InterruptScope::interrupted(); ++i) {
    if (options_.plans[i] != "f16") VARVE_RETURN_IF_ERROR(add(options_.plans[i], plans_[i]));
  }

  ReadBandwidth read(std::max<uint64_t>(working_set_, uint64_t{128} << 20));
  std::vector<double> bandwidths;
  read.Measure(*executor);  // warm up
  for (int rep = 0; rep < options_.reps && !(InterruptScope::interrupted() && rep > 0); ++rep) {
    ShowProgress(fmt::format("{} tokens, {} threads: repetition {} of {} …", ctx, threads, rep + 1,
                             options_.reps));
    bandwidths.push_back(read.Measure(*executor));
    for (Candidate& candidate : candidates) VARVE_RETURN_IF_ERROR(TimeLayer(candidate, workload));
  }
  ShowProgress("");
  ReportCase({workload.shape(), threads, batch, Median(bandwidths), options_.breakdown}, candidates,
             out_, rows_);
  return Status();
}

Status AttentionBench::RunStepTable(int threads) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
  const std::unique_ptr<Executor> all_cores = MakeThreadPool(0);
  const int64_t ctx = *std::min_element(options_.ctx.begin(), options_.ctx.end());
  const Workload workload(ShapeAt(ctx), *all_cores);
  std::vector<PlanSteps> measured;
  for (size_t i = 0; i < plans_.size() && !InterruptScope::interrupted(); ++i) {
    ShowProgress(fmt::format("decode steps of {} …", options_.plans[i]));
    VARVE_ASSIGN_OR_RETURN(StepCost cost,
                           MeasureSteps(workload, plans_[i], options_.steps, *executor));
    measured.push_back({options_.plans[i], cost});
  }
  ShowProgress("");
  ReportSteps({workload.shape(), threads}, measured, options_.steps, out_, rows_);
  return Status();
}

// Refuses what cannot work before minutes of measuring have passed.
Status AttentionBench::ReadPlans() {
  if (options_.heads % options_.kv_heads != 0) {
    return InvalidArgument(fmt::format("--heads {} is not a multiple of --kv-heads {}",
                                       options_.heads, options_.kv_heads));
  }
  for (const std::string& text : options_.plans) {
    VARVE_ASSIGN_OR_RETURN(Plan plan, ReadKvOption(text));
    VARVE_RETURN_IF_ERROR(
        CheckComparable(text, plan, *std::max_element(options_.ctx.begin(), options_.ctx.end())));
    VARVE_RETURN_IF_ERROR(EstimateLayerBytes(ShapeAt(1), plan).status());
    plans_.push_back(std::move(plan));
  }
  return Status();
}

void AttentionBench::PrintHeader(const MachineInfo& machine) const {
  fmt::print(out_,
             "{} heads on {} KV heads, head_dim {}; isa {}; last-level cache {}, working set of "
             "each plan > {}\n",
             options_.heads, options_.kv_heads, options_.dim, ActiveKernels().name,
             HumanBytes(static_cast<double>(machine.last_level_cache_bytes)),
             HumanBytes(static_cast<double>(working_set_)));
  fmt::print(out_,
             "errors are relative to the RMS of the exact output; \"kernel\" compares with the "
             "decoded rows\n");
}

Status AttentionBench::Measure() {
  VARVE_RETURN_IF_ERROR(ReadPlans());
  const MachineInfo machine = DescribeMachine();
  working_set_ = options_.working_set >= 0 ? static_cast<uint64_t>(options_.working_set)
                                           : machine.last_level_cache_bytes * 9 / 4;
  std::vector<int> threads = options_.threads;
  if (threads.empty()) threads.push_back(static_cast<int>(std::thread::hardware_concurrency()));
  // The caches fit or say so themselves; the buffer that measures bandwidth must fit as well.
  VARVE_RETURN_IF_ERROR(CheckMemory("--working-set: the bytes to rotate through", working_set_));
  PrintHeader(machine);
  const InterruptScope scope;
  for (const int64_t ctx : options_.ctx) {
    for (const int batch : options_.batch) {
      for (const int t : threads) {
        if (!InterruptScope::interrupted()) VARVE_RETURN_IF_ERROR(RunCase(ctx, t, batch));
      }
    }
  }
  if (options_.steps > 0 && !InterruptScope::interrupted()) {
    VARVE_RETURN_IF_ERROR(RunStepTable(*std::max_element(threads.begin(), threads.end())));
  }
  if (InterruptScope::interrupted()) {
    fmt::print(out_, "interrupted: what was measured so far is above\n");
  }
  return Status();
}

Status AttentionBench::Run() {
  VARVE_RETURN_IF_ERROR(CheckWritable("--json", options_.json));
  return FinishJson(Measure(), options_.json, "bench attention", rows_);
}

}  // namespace

Status BenchAttention(const BenchAttentionOptions& options) {
  return AttentionBench(options).Run();
}

}  // namespace varve::cli
