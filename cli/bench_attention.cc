#include "bench_attention.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <thread>

#include "base/machine.h"
#include "bench_steps.h"
#include "bench_workload.h"
#include "output.h"
#include "read_bandwidth.h"

namespace varve::cli {
namespace {

using nlohmann::ordered_json;

volatile std::sig_atomic_t interrupted = 0;
void OnInterrupt(int) { interrupted = 1; }

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 != 0 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

struct Candidate {
  std::string plan;
  bool noise = false;  // the baseline's own cache, timed a second time
  FilledCache* filled = nullptr;
  Error error;             // against the originals
  Error kernel_error;      // against the decoded rows
  std::vector<double> us;  // one per repetition: time of one layer
};

// A line that is overwritten, on a terminal only.
void ShowProgress(const std::string& text) {
  if (!isatty(STDERR_FILENO)) return;
  fmt::print(stderr, "\r{}\x1b[K", text);
  std::fflush(stderr);
}

// One call of Attend for every sequence of the cache, over one layer.
Status AttendLayer(const FilledCache& filled, const Workload& workload, int layer,
                   std::vector<float>& output) {
  std::vector<AttendRequest> requests(filled.sequences.size());
  const size_t floats = workload.queries().size();
  output.resize(requests.size() * floats);
  for (size_t b = 0; b < requests.size(); ++b) {
    requests[b].sequence = filled.sequences[b];
    requests[b].queries = workload.queries().data();
    requests[b].output = output.data() + b * floats;
  }
  return filled.cache->Attend(layer, requests, {});
}

// Every output of the batch is compared with the exact result before anything is timed.
Status CheckAnswer(Candidate& candidate, const Workload& workload, Executor& executor) {
  const FilledCache& filled = *candidate.filled;
  std::vector<float> output;
  VARVE_RETURN_IF_ERROR(AttendLayer(filled, workload, filled.layers - 1, output));
  const size_t floats = workload.queries().size();
  Status read;
  const std::vector<double> decoded =
      workload.Reference(executor, [&](int head, Part part, float* rows) {
        Result<int64_t> count = filled.cache->ReadRows(filled.sequences[0], filled.layers - 1, head,
                                                       part, 0, workload.shape().ctx, rows);
        if (!count.ok() || *count != workload.shape().ctx)
          read = Internal("bench: rows are missing");
      });
  VARVE_RETURN_IF_ERROR(read);
  for (size_t b = 0; b < filled.sequences.size(); ++b) {
    const std::vector<float> one(output.begin() + b * floats, output.begin() + (b + 1) * floats);
    const Error error = CompareOutputs(one, workload.exact());
    const Error kernel_error = CompareOutputs(one, decoded);
    if (b > 0 &&
        (error.max != candidate.error.max || kernel_error.max != candidate.kernel_error.max)) {
      return Internal(fmt::format("bench: plan {}: sequence {} of the batch differs from the first",
                                  candidate.plan, b));
    }
    candidate.error = error;
    candidate.kernel_error = kernel_error;
  }
  // Kernels round queries to 8 bits at worst: far below this, or wrong.
  if (!(candidate.kernel_error.rms < 0.05)) {
    return Internal(
        fmt::format("bench: plan {}: kernel_error {:.3g} (RMS) >= 0.05: the result is wrong",
                    candidate.plan, candidate.kernel_error.rms));
  }
  return Status();
}

// Time of one layer in microseconds, from one pass over all layers; repeated until the clock is
// good enough when the cache is small.
Result<double> TimeLayer(const FilledCache& filled, const Workload& workload,
                         std::vector<float>& output) {
  constexpr double kLeastUs = 2000;
  const auto start = std::chrono::steady_clock::now();
  for (int passes = 1;; ++passes) {
    for (int layer = 0; layer < filled.layers; ++layer) {
      VARVE_RETURN_IF_ERROR(AttendLayer(filled, workload, layer, output));
    }
    const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - start;
    if (us.count() >= kLeastUs) return us.count() / (static_cast<double>(passes) * filled.layers);
  }
}

class AttentionBench {
 public:
  explicit AttentionBench(const BenchAttentionOptions& options)
      : options_(options), out_(options.json == "-" ? stderr : stdout) {}
  Status Run();

 private:
  Status RunCase(int64_t ctx, int threads, int batch);
  Status RunStepTable(int threads);
  void Report(const std::vector<Candidate>& candidates, int64_t ctx, int threads, int batch,
              double bandwidth);

  const BenchAttentionOptions& options_;
  std::vector<Plan> plans_;
  uint64_t working_set_ = 0;
  std::FILE* out_ = nullptr;  // stdout, unless the JSON goes there
  ordered_json rows_ = ordered_json::array();
};

void AttentionBench::Report(const std::vector<Candidate>& candidates, int64_t ctx, int threads,
                            int batch, double bandwidth) {
  const auto paired_ratio = [&](const Candidate& candidate) {
    std::vector<double> ratios;
    for (size_t i = 0; i < candidate.us.size(); ++i)
      ratios.push_back(candidates[0].us[i] / candidate.us[i]);
    return Median(ratios);
  };
  fmt::print(out_, "\ncontext {} x batch {}, {} thread{}; read bandwidth {:.1f} GB/s in this run\n",
             ctx, batch, threads, threads == 1 ? "" : "s", bandwidth / 1e9);
  TextTable table({"plan", ">us median", ">us min", ">x f16", ">MiB/layer", ">bits/value", ">GB/s",
                   ">of read", ">max error", ">rms error", ">kernel rms"});
  const double values = 2.0 * static_cast<double>(ctx) * batch * options_.kv_heads * options_.dim;
  for (const Candidate& candidate : candidates) {
    const double bytes = static_cast<double>(candidate.filled->layer_bytes);
    const double median = Median(candidate.us);
    const double fastest = *std::min_element(candidate.us.begin(), candidate.us.end());
    const double gbps = bytes / median / 1e3;
    const double ratio = paired_ratio(candidate);
    const double fraction = gbps * 1e9 / bandwidth;
    table.AddRow(
        {candidate.noise ? "f16 again (noise)" : candidate.plan, fmt::format("{:.1f}", median),
         fmt::format("{:.1f}", fastest), fmt::format("{:.2f}", ratio),
         fmt::format("{:.2f}", bytes / (1 << 20)), fmt::format("{:.3f}", 8 * bytes / values),
         fmt::format("{:.1f}", gbps), fmt::format("{:.0f} %", 100 * fraction),
         fmt::format("{:.1e}", candidate.error.max), fmt::format("{:.1e}", candidate.error.rms),
         fmt::format("{:.1e}", candidate.kernel_error.rms)});
    ordered_json row = {{"plan", candidate.plan},
                        {"ctx", ctx},
                        {"threads", threads},
                        {"batch", batch},
                        {"median_us", median},
                        {"min_us", fastest},
                        {"ratio_to_f16", ratio},
                        {"bytes", candidate.filled->layer_bytes},
                        {"bits_per_value", 8 * bytes / values},
                        {"gbps", gbps},
                        {"bandwidth_fraction", fraction},
                        {"read_bandwidth_gbps", bandwidth / 1e9},
                        {"layers", candidate.filled->layers},
                        {"max_error", candidate.error.max},
                        {"rms_error", candidate.error.rms},
                        {"kernel_error", candidate.kernel_error.max},
                        {"kernel_rms_error", candidate.kernel_error.rms}};
    row["role"] = candidate.noise                ? "noise"
                  : &candidate == &candidates[0] ? "baseline"
                                                 : "candidate";
    rows_.push_back(std::move(row));
  }
  table.Print(out_);
  std::fflush(out_);
}

Status AttentionBench::RunCase(int64_t ctx, int threads, int batch) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
  // Filling and checking are not timed: they use every core.
  const std::unique_ptr<Executor> all_cores = MakeThreadPool(0);
  const WorkloadShape shape = {options_.heads, options_.kv_heads, options_.dim, ctx, options_.seed};
  const Workload workload(shape, *all_cores);

  std::vector<Candidate> candidates;
  std::vector<std::unique_ptr<FilledCache>> caches;
  const auto add = [&](const std::string& name, const Plan& plan) -> Status {
    ShowProgress(fmt::format("filling {} at {} tokens …", name, ctx));
    Result<uint64_t> layer_bytes = EstimateLayerBytes(shape, plan);
    if (!layer_bytes.ok()) return layer_bytes.status();
    const uint64_t call_bytes = *layer_bytes * static_cast<uint64_t>(batch);
    const int layers = static_cast<int>(working_set_ / call_bytes + 1);
    Result<FilledCache> filled = FillCache(workload, plan, layers, batch, *executor);
    if (!filled.ok()) return filled.status();
    caches.push_back(std::make_unique<FilledCache>(std::move(*filled)));
    Candidate candidate;
    candidate.plan = name;
    candidate.filled = caches.back().get();
    VARVE_RETURN_IF_ERROR(CheckAnswer(candidate, workload, *all_cores));
    candidates.push_back(std::move(candidate));
    return Status();
  };
  // The baseline comes first, and a second time as the measure of noise.
  VARVE_RETURN_IF_ERROR(add("f16", *ParsePlan("f16")));
  candidates.push_back(candidates[0]);
  candidates.back().noise = true;
  for (size_t i = 0; i < plans_.size(); ++i) {
    if (options_.plans[i] != "f16") VARVE_RETURN_IF_ERROR(add(options_.plans[i], plans_[i]));
    if (interrupted) break;
  }

  ReadBandwidth read(std::max<uint64_t>(working_set_, uint64_t{128} << 20));
  std::vector<double> bandwidths;
  std::vector<float> output;
  read.Measure(*executor);  // warm up
  for (int rep = 0; rep < options_.reps && !(interrupted && rep > 0); ++rep) {
    ShowProgress(fmt::format("{} tokens, {} threads: repetition {} of {} …", ctx, threads, rep + 1,
                             options_.reps));
    bandwidths.push_back(read.Measure(*executor));
    for (Candidate& candidate : candidates) {
      Result<double> us = TimeLayer(*candidate.filled, workload, output);
      if (!us.ok()) return us.status();
      candidate.us.push_back(*us);
    }
  }
  ShowProgress("");
  Report(candidates, ctx, threads, batch, Median(bandwidths));
  return Status();
}

Status AttentionBench::RunStepTable(int threads) {
  WorkloadShape shape = {options_.heads, options_.kv_heads, options_.dim,
                         *std::min_element(options_.ctx.begin(), options_.ctx.end()),
                         options_.seed};
  const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
  const Workload workload(shape, *executor);
  fmt::print(out_,
             "\nwhole decode steps from context {}, {} thread{}: what appending and sealing cost\n",
             shape.ctx, threads, threads == 1 ? "" : "s");
  TextTable table(
      {"plan", ">layers", ">us step median", ">us p99", ">p99 / median", ">append + seal"});
  for (size_t i = 0; i < plans_.size() && !interrupted; ++i) {
    Result<StepCost> cost = MeasureSteps(workload, plans_[i], options_.steps, *executor);
    if (!cost.ok()) return cost.status();
    table.AddRow({options_.plans[i], fmt::format("{}", cost->layers),
                  fmt::format("{:.0f}", cost->median_us), fmt::format("{:.0f}", cost->p99_us),
                  fmt::format("{:.2f}", cost->p99_us / cost->median_us),
                  fmt::format("{:.2f} %", 100 * cost->append_share)});
    rows_.push_back({{"plan", options_.plans[i]},
                     {"role", "steps"},
                     {"ctx", shape.ctx},
                     {"threads", threads},
                     {"steps", options_.steps},
                     {"layers", cost->layers},
                     {"step_median_us", cost->median_us},
                     {"step_p99_us", cost->p99_us},
                     {"append_share", cost->append_share}});
  }
  table.Print(out_);
  return Status();
}

Status AttentionBench::Run() {
  if (options_.heads % options_.kv_heads != 0) {
    return InvalidArgument(fmt::format("--heads {} is not a multiple of --kv-heads {}",
                                       options_.heads, options_.kv_heads));
  }
  for (const std::string& text : options_.plans) {
    Result<Plan> plan = ReadPlanArgument(text);
    if (!plan.ok()) return plan.status();
    // Refuse what cannot work before minutes of measuring have passed.
    WorkloadShape probe = {options_.heads, options_.kv_heads, options_.dim, 1, options_.seed};
    Result<uint64_t> bytes = EstimateLayerBytes(probe, *plan);
    if (!bytes.ok()) return bytes.status();
    plans_.push_back(std::move(*plan));
  }
  const MachineInfo machine = DescribeMachine();
  working_set_ = options_.working_set >= 0 ? static_cast<uint64_t>(options_.working_set)
                                           : machine.last_level_cache_bytes * 9 / 4;
  std::vector<int> threads = options_.threads;
  if (threads.empty()) threads.push_back(static_cast<int>(std::thread::hardware_concurrency()));

  fmt::print(
      out_,
      "{} heads on {} KV heads, head_dim {}; last-level cache {}, working set of each plan > {}\n",
      options_.heads, options_.kv_heads, options_.dim,
      HumanBytes(static_cast<double>(machine.last_level_cache_bytes)),
      HumanBytes(static_cast<double>(working_set_)));
  fmt::print(
      out_,
      "errors are relative to the RMS of the exact output; \"kernel\" compares with the decoded "
      "rows\n");
  std::signal(SIGINT, OnInterrupt);
  for (const int64_t ctx : options_.ctx) {
    for (const int batch : options_.batch) {
      for (const int t : threads) {
        if (!interrupted) VARVE_RETURN_IF_ERROR(RunCase(ctx, t, batch));
      }
    }
  }
  if (options_.steps > 0 && !interrupted) {
    VARVE_RETURN_IF_ERROR(RunStepTable(*std::max_element(threads.begin(), threads.end())));
  }
  std::signal(SIGINT, SIG_DFL);
  if (interrupted) fmt::print(out_, "interrupted: what was measured so far is above\n");
  if (!options_.json.empty()) return WriteJson(options_.json, "bench attention", rows_);
  return Status();
}

}  // namespace

Status BenchAttention(const BenchAttentionOptions& options) {
  return AttentionBench(options).Run();
}

}  // namespace varve::cli
