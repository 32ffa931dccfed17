#include "cli/bench/bench_decode.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include <fmt/format.h>

#include "base/machine.h"
#include "base/quoted.h"
#include "cli/available_memory.h"
#include "cli/bench/bench_report.h"
#include "cli/bench/bench_weights.h"
#include "cli/bench/decode_report.h"
#include "cli/bench/read_bandwidth.h"
#include "cli/bench/stage_report.h"
#include "cli/inspect/model_lists.h"
#include "cli/interrupt.h"
#include "cli/model_argument.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "kernels/kernels.h"
#include "runtime/model/open_model.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxSteps = 64;  // one page: sealing has its due share
constexpr int kMinSteps = 8;
constexpr int64_t kMaxDepth = 1 << 24;
constexpr double kRepetitionUs = 1e6;
constexpr size_t kMaxModelName = 80;

double RelativeError(const std::vector<float>& values, const std::vector<float>& exact) {
  double square = 0;
  double error = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    square += double{exact[i]} * exact[i];
    error += (double{values[i]} - exact[i]) * (double{values[i]} - exact[i]);
  }
  return square > 0 ? std::sqrt(error / square) : 0.0;
}

class DecodeBench {
 public:
  DecodeBench(const BenchDecodeOptions& options, std::shared_ptr<const DecoderModel> model,
              std::FILE* out, Json& rows)
      : options_(options), model_(std::move(model)), out_(out), rows_(rows) {
    name_ = Printable(model_->name(), kMaxModelName);
    if (name_.empty()) name_ = std::filesystem::path(options.model).filename().string();
  }
  Status Run();

 private:
  // Candidates in groups that fit into memory beside the f16 cache, as indices of plans_.
  Result<std::vector<std::vector<size_t>>> Groups() const;
  // Of each plan, at the largest depth, for all sequences.
  Result<std::vector<uint64_t>> LaneBytes() const;
  Status ReadPlans();
  Status RunGroup(const std::vector<size_t>& group);
  Status RunDepth(int64_t depth, std::vector<std::unique_ptr<DecodeLane>>& lanes);
  Result<int> ChooseSteps(DecodeLane& baseline);
  Status TimeRow(DecodeRow& row, int64_t depth, int steps);
  bool on_gpu() const { return options_.device == "cuda"; }

  const BenchDecodeOptions& options_;
  std::shared_ptr<const DecoderModel> model_;
  std::FILE* out_;
  Json& rows_;
  std::string name_;                // of the model, for people
  std::vector<std::string> names_;  // f16 first
  std::vector<Plan> plans_;
  std::vector<CacheOptions> caches_;  // of the plans
  std::vector<int64_t> depths_;       // ascending
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<DecoderRunner> runner_;
  std::unique_ptr<SyntheticRows> synthetic_;
  std::unique_ptr<ReadBandwidth> read_;  // null on a GPU
  uint64_t resident_before_ = 0;         // with the model in use, before any cache
};

Status DecodeBench::ReadPlans() {
  names_ = options_.plans;
  std::erase(names_, "f16");
  names_.insert(names_.begin(), "f16");
  for (const std::string& name : names_) {
    VARVE_ASSIGN_OR_RETURN(Plan plan, ReadKvOption(name));
    plans_.push_back(std::move(plan));
  }
  depths_ = options_.depths;
  std::sort(depths_.begin(), depths_.end());
  if (depths_.empty() || depths_.front() < 0 || depths_.back() > kMaxDepth) {
    return InvalidArgument(
        fmt::format("--depths {}: not in 0 … {}", depths_.empty() ? 0 : depths_.back(), kMaxDepth));
  }
  depths_.erase(std::unique(depths_.begin(), depths_.end()), depths_.end());
  return Status();
}

Result<std::vector<uint64_t>> DecodeBench::LaneBytes() const {
  const int64_t most = depths_.back() + std::max(kMaxSteps, options_.steps);
  std::vector<uint64_t> bytes;
  for (size_t i = 0; i < plans_.size(); ++i) {
    Result<uint64_t> estimate = EstimateLane(caches_[i], model_->cache_shape(), most);
    if (!estimate.ok()) {
      return Status(estimate.status().code(),
                    fmt::format("--kv \"{}\": {}", names_[i], estimate.status().message()));
    }
    bytes.push_back(*estimate * static_cast<uint64_t>(options_.batch));
  }
  return bytes;
}

Result<std::vector<std::vector<size_t>>> DecodeBench::Groups() const {
  VARVE_ASSIGN_OR_RETURN(const std::vector<uint64_t> bytes, LaneBytes());
  if (on_gpu()) {  // its caches grow in pieces, and the error says what the device has not
    std::vector<size_t> all(plans_.size() - 1);
    std::iota(all.begin(), all.end(), size_t{1});
    return std::vector<std::vector<size_t>>{all};
  }
  const std::string depth =
      fmt::format("--depths {}{}", depths_.back(),
                  options_.batch == 1 ? "" : fmt::format(", --batch {}", options_.batch));
  VARVE_RETURN_IF_ERROR(CheckMemory(depth + ": the pages of f16", bytes[0]));
  const uint64_t usable = UsableBytes();
  std::vector<std::vector<size_t>> groups(1);
  uint64_t used = bytes[0];
  for (size_t i = 1; i < plans_.size(); ++i) {
    if (usable > 0 && used + bytes[i] > usable && !groups.back().empty()) {
      groups.emplace_back();
      used = bytes[0];
    }
    groups.back().push_back(i);
    used += bytes[i];
    if (groups.back().size() > 1) continue;
    VARVE_RETURN_IF_ERROR(
        CheckMemory(fmt::format("{}: the caches of f16 and {}", depth, names_[i]), used));
  }
  return groups;
}

Result<int> DecodeBench::ChooseSteps(DecodeLane& baseline) {
  if (options_.steps > 0) return options_.steps;
  std::vector<int32_t> tokens;
  VARVE_ASSIGN_OR_RETURN(double us, baseline.TimeSteps(*runner_, 3, &tokens));
  return static_cast<int>(std::clamp<double>(kRepetitionUs / us, kMinSteps, kMaxSteps));
}

Status DecodeBench::TimeRow(DecodeRow& row, int64_t depth, int steps) {
  std::vector<int32_t> tokens;
  runner_->ResetTimes();
  VARVE_ASSIGN_OR_RETURN(const double us, row.lane->TimeSteps(*runner_, steps, &tokens));
  row.times += runner_->times();
  row.us.push_back(us);
  const std::vector<double>& step_us = row.lane->step_us();
  row.step_us.insert(row.step_us.end(), step_us.begin(), step_us.end());
  AddStages(row.lane->step_stages(), &row.stages);
  // Behind a page that is cut in two, what the repetition before has sealed makes a difference.
  const bool is_repeatable =
      depth % row.lane->cache().shape().page_tokens == 0 && !row.lane->has_policy();
  if (is_repeatable && row.us.size() > 1 && tokens != row.tokens) {
    return Internal(
        fmt::format("bench decode: plan {}: repetition {} gave other tokens than the "
                    "first from the same depth",
                    row.lane->name(), row.us.size()));
  }
  row.tokens = std::move(tokens);
  return Status();
}

Status DecodeBench::RunDepth(int64_t depth, std::vector<std::unique_ptr<DecodeLane>>& lanes) {
  Progress progress(fmt::format("depth {}", depth),
                    static_cast<double>(lanes.size()) * (options_.reps + 2));
  double done = 0;
  std::vector<DecodeRow> table;
  std::vector<int32_t> tokens;
  for (const std::unique_ptr<DecodeLane>& lane : lanes) {
    progress.Update(done++, "filling " + lane->name());
    VARVE_RETURN_IF_ERROR(lane->SetDepth(*synthetic_, depth));
    table.emplace_back().lane = lane.get();
    // The baseline a second time is the measure of noise.
    if (table.size() == 1) {
      DecodeRow& again = table.emplace_back();
      again.lane = lane.get();
      again.noise = true;
    }
    if (InterruptScope::interrupted()) return Status();
  }
  VARVE_ASSIGN_OR_RETURN(int steps, ChooseSteps(*lanes[0]));
  for (DecodeRow& row : table) {
    if (row.noise) continue;
    progress.Update(done++, "warming up " + row.lane->name());
    VARVE_RETURN_IF_ERROR(row.lane->TimeSteps(*runner_, 1, &tokens).status());
    row.logit_error = RelativeError(row.lane->logits(), lanes[0]->logits());
  }
  // All steps once without the clock: whatever falls due on the way (sealing, ageing) has then
  // happened to every repetition alike.
  for (DecodeRow& row : table) {
    if (row.noise) continue;
    VARVE_RETURN_IF_ERROR(row.lane->TimeSteps(*runner_, steps, &tokens).status());
  }
  std::vector<double> bandwidths;
  for (int rep = 0; rep < options_.reps; ++rep) {
    if (InterruptScope::interrupted() && rep > 0) break;
    if (read_ != nullptr) bandwidths.push_back(read_->Measure(*executor_));
    for (DecodeRow& row : table) {
      VARVE_RETURN_IF_ERROR(TimeRow(row, depth, steps));
      if (!row.noise) progress.Update(done++, fmt::format("repetition {}", rep + 1));
    }
  }
  progress.Clear();
  const DecodeCase at = {name_,
                         depth,
                         options_.batch,
                         steps,
                         executor_->num_threads(),
                         on_gpu() ? 0.0 : Median(bandwidths),
                         model_->weight_bytes_per_token(),
                         resident_before_,
                         options_.breakdown,
                         on_gpu()};
  ReportDecode(at, table, out_, rows_);
  return Status();
}

Status DecodeBench::RunGroup(const std::vector<size_t>& group) {
  std::vector<std::unique_ptr<DecodeLane>> lanes;
  std::vector<size_t> indices = {0};
  indices.insert(indices.end(), group.begin(), group.end());
  for (const size_t i : indices) {
    VARVE_ASSIGN_OR_RETURN(std::unique_ptr<DecodeLane> lane,
                           DecodeLane::Make(names_[i], caches_[i], *model_, options_.batch));
    lanes.push_back(std::move(lane));
  }
  for (const int64_t depth : depths_) {
    if (!InterruptScope::interrupted()) VARVE_RETURN_IF_ERROR(RunDepth(depth, lanes));
  }
  return Status();
}

Status DecodeBench::Run() {
  VARVE_RETURN_IF_ERROR(ReadPlans());
  executor_ = MakeThreadPool(options_.threads);
  VARVE_RETURN_IF_ERROR(RepackModel(on_gpu() ? "off" : options_.repack, *executor_, model_));
  VARVE_RETURN_IF_ERROR(PlaceModel(options_.device, *executor_, model_));
  for (const Plan& plan : plans_) {
    VARVE_ASSIGN_OR_RETURN(CacheOptions options, LaneOptions(plan, *model_, *executor_));
    options.time_stages = options_.breakdown;
    caches_.push_back(std::move(options));
  }
  runner_ = model_->MakeRunner(*executor_);
  synthetic_ = std::make_unique<SyntheticRows>(model_->cache_shape(), options_.seed, *executor_);
  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<DecodeLane> trial,
                         DecodeLane::Make("f16", caches_[0], *model_, options_.batch));
  std::vector<int32_t> tokens;
  VARVE_RETURN_IF_ERROR(trial->TimeSteps(*runner_, 1, &tokens).status());
  trial.reset();
  resident_before_ = ResidentBytes();  // before the buffer that only measures
  if (!on_gpu()) {
    read_ = std::make_unique<ReadBandwidth>(
        std::max<uint64_t>(DescribeMachine().last_level_cache_bytes * 9 / 4, uint64_t{128} << 20));
    read_->Measure(*executor_);  // warm up
  }

  VARVE_ASSIGN_OR_RETURN(std::vector<std::vector<size_t>> groups, Groups());
  const CacheShape& shape = model_->cache_shape();
  fmt::print(
      out_, "{}: {} layers, width {}, {} heads on {} KV heads of {}; {} of weights per token; {}\n",
      name_, shape.num_layers, model_->info().width, shape.num_kv_heads * shape.group_size,
      shape.num_kv_heads, shape.key_dim,
      HumanBytes(static_cast<double>(model_->weight_bytes_per_token())),
      on_gpu() ? "on a GPU"
               : fmt::format("{} threads, isa {}", executor_->num_threads(), ActiveKernels().name));
  const InterruptScope scope;
  for (const std::vector<size_t>& group : groups) {
    if (!InterruptScope::interrupted()) VARVE_RETURN_IF_ERROR(RunGroup(group));
  }
  if (InterruptScope::interrupted()) {
    fmt::print(out_, "interrupted: what was measured so far is above\n");
  }
  return Status();
}

}  // namespace

Status BenchDecodeModel(const BenchDecodeOptions& options,
                        std::shared_ptr<const DecoderModel> model, std::FILE* out, Json& rows) {
  return DecodeBench(options, std::move(model), out, rows).Run();
}

Result<std::shared_ptr<const DecoderModel>> OpenBenchModel(const BenchDecodeOptions& options) {
  if (!options.random_model.empty()) {
    // What every family makes up.
    static constexpr WeightType kTypes[] = {WeightType::kF32, WeightType::kF16, WeightType::kBF16,
                                            WeightType::kQ8_0, WeightType::kQ4_0};
    VARVE_ASSIGN_OR_RETURN(WeightType type, ParseWeightType("--weights", options.weights, kTypes));
    return RandomDecoderModel(options.random_model, type, options.seed);
  }
  if (options.model.empty() || options.model.starts_with('#')) {  // a pin alone
    VARVE_ASSIGN_OR_RETURN(LoadedModel embedded, LoadModel(options.model));
    return embedded.model;
  }
  return OpenDecoderModel(options.model);
}

Status BenchDecode(const BenchDecodeOptions& options) {
  VARVE_RETURN_IF_ERROR(CheckWritable("--json", options.json));
  VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const DecoderModel> model, OpenBenchModel(options));
  Json rows = Json::array();
  const Status measured =
      BenchDecodeModel(options, model, options.json == "-" ? stderr : stdout, rows);
  return FinishJson(measured, options.json, "bench decode", rows);
}

}  // namespace varve::cli
