#include "cli/bench_decode.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include <fmt/format.h>

#include "base/machine.h"
#include "cli/bench_report.h"
#include "cli/bench_weights.h"
#include "cli/decode_lane.h"
#include "cli/interrupt.h"
#include "cli/model_argument.h"
#include "cli/output.h"
#include "cli/plan_report.h"
#include "cli/progress.h"
#include "cli/read_bandwidth.h"
#include "cli/retention_report.h"
#include "kernels/kernels.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostSteps = 64;  // one page: sealing has its due share
constexpr int kLeastSteps = 8;
constexpr int64_t kMaxDepth = 1 << 24;
constexpr double kRepetitionUs = 1e6;

// Memory that the system can give without swapping; 0 where it does not say.
uint64_t AvailableBytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  for (uint64_t kib = 0; file >> key >> kib; file.ignore(64, '\n')) {
    if (key == "MemAvailable:") return kib << 10;
  }
  return 0;
}

// A plan at one depth.
struct DecodeRow {
  DecodeLane* lane = nullptr;
  bool noise = false;
  std::vector<double> us;  // of one step, one per repetition
  ForwardTimes times;      // of all repetitions
  std::vector<int32_t> tokens;
  double logit_error = 0;  // RMS of the first step's difference from f16's, relative
};

double RelativeError(const std::vector<float>& values, const std::vector<float>& exact) {
  double square = 0;
  double error = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    square += double{exact[i]} * exact[i];
    error += (double{values[i]} - exact[i]) * (double{values[i]} - exact[i]);
  }
  return square > 0 ? std::sqrt(error / square) : 0.0;
}

RetentionReport ReportOf(const DecodeLane& lane, int64_t tokens) {
  const CacheStats& stats = lane.stats_behind_steps();
  return MakeRetentionReport(lane.plan(), lane.cache().shape(), stats.retention, WholeRatio(stats),
                             tokens);
}

class DecodeBench {
 public:
  DecodeBench(const BenchDecodeOptions& options, std::shared_ptr<const LlamaModel> model,
              std::FILE* out, Json& rows)
      : options_(options), model_(std::move(model)), out_(out), rows_(rows) {}
  Status Run();

 private:
  // Candidates in groups that fit into memory beside the f16 cache, as indices of plans_.
  Result<std::vector<std::vector<size_t>>> Groups() const;
  Status ReadPlans();
  Status RunGroup(const std::vector<size_t>& group);
  Status RunDepth(int64_t depth, std::vector<std::unique_ptr<DecodeLane>>& lanes);
  Result<int> ChooseSteps(DecodeLane& baseline);
  Status TimeRow(DecodeRow& row, int64_t depth, int steps);
  void Report(int64_t depth, int steps, double bandwidth, const std::vector<DecodeRow>& table);

  const BenchDecodeOptions& options_;
  std::shared_ptr<const LlamaModel> model_;
  std::FILE* out_;
  Json& rows_;
  std::vector<std::string> names_;  // f16 first
  std::vector<Plan> plans_;
  std::vector<int64_t> depths_;  // ascending
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<LlamaRunner> runner_;
  std::unique_ptr<SyntheticRows> synthetic_;
  std::unique_ptr<ReadBandwidth> read_;
  uint64_t resident_before_ = 0;  // with the model in use, before any cache
};

Status DecodeBench::ReadPlans() {
  names_ = options_.plans;
  std::erase(names_, "f16");
  names_.insert(names_.begin(), "f16");
  for (const std::string& name : names_) {
    Result<Plan> plan = ReadPlanArgument(name);
    if (!plan.ok()) return plan.status();
    plans_.push_back(std::move(*plan));
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

Result<std::vector<std::vector<size_t>>> DecodeBench::Groups() const {
  const int64_t most = depths_.back() + kMostSteps;
  std::vector<uint64_t> bytes;
  for (size_t i = 0; i < plans_.size(); ++i) {
    Result<PlanCost> cost = CostOfPlan(plans_[i], model_->cache_shape(), most);
    if (!cost.ok()) {
      return Status(cost.status().code(),
                    fmt::format("--kv \"{}\": {}", names_[i], cost.status().message()));
    }
    bytes.push_back(cost->bytes);
  }
  // A tenth stays for tables, the pools' reserves and other programs.
  const uint64_t available = AvailableBytes() / 10 * 9;
  std::vector<std::vector<size_t>> groups(1);
  uint64_t used = bytes[0];
  for (size_t i = 1; i < plans_.size(); ++i) {
    if (used + bytes[i] > available && !groups.back().empty()) {
      groups.emplace_back();
      used = bytes[0];
    }
    groups.back().push_back(i);
    used += bytes[i];
    if (available > 0 && used > available) {
      return OutOfMemory(
          fmt::format("--depths {}: the caches of f16 and {} take {}, {} are available",
                      depths_.back(), names_[i], HumanBytes(static_cast<double>(used)),
                      HumanBytes(static_cast<double>(available))));
    }
  }
  return groups;
}

Result<int> DecodeBench::ChooseSteps(DecodeLane& baseline) {
  if (options_.steps > 0) return options_.steps;
  std::vector<int32_t> tokens;
  Result<double> us = baseline.TimeSteps(*runner_, 3, &tokens);
  if (!us.ok()) return us.status();
  return static_cast<int>(std::clamp<double>(kRepetitionUs / *us, kLeastSteps, kMostSteps));
}

Status DecodeBench::TimeRow(DecodeRow& row, int64_t depth, int steps) {
  std::vector<int32_t> tokens;
  runner_->ResetTimes();
  Result<double> us = row.lane->TimeSteps(*runner_, steps, &tokens);
  if (!us.ok()) return us.status();
  const ForwardTimes& times = runner_->times();
  row.times.linear_us += times.linear_us;
  row.times.attention_us += times.attention_us;
  row.times.cache_us += times.cache_us;
  row.times.other_us += times.other_us;
  row.us.push_back(*us);
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
    if (table.size() == 1) table.push_back({lane.get(), true, {}, {}, {}, 0});
    if (InterruptScope::interrupted()) return Status();
  }
  Result<int> steps = ChooseSteps(*lanes[0]);
  if (!steps.ok()) return steps.status();
  for (DecodeRow& row : table) {
    if (row.noise) continue;
    progress.Update(done++, "warming up " + row.lane->name());
    Result<double> us = row.lane->TimeSteps(*runner_, 1, &tokens);
    if (!us.ok()) return us.status();
    row.logit_error = RelativeError(row.lane->logits(), lanes[0]->logits());
  }
  // All steps once without the clock: whatever falls due on the way (sealing, ageing) has then
  // happened to every repetition alike.
  for (DecodeRow& row : table) {
    if (row.noise) continue;
    Result<double> us = row.lane->TimeSteps(*runner_, *steps, &tokens);
    if (!us.ok()) return us.status();
  }
  std::vector<double> bandwidths;
  for (int rep = 0; rep < options_.reps; ++rep) {
    if (InterruptScope::interrupted() && rep > 0) break;
    bandwidths.push_back(read_->Measure(*executor_));
    for (DecodeRow& row : table) {
      VARVE_RETURN_IF_ERROR(TimeRow(row, depth, *steps));
      if (!row.noise) progress.Update(done++, fmt::format("repetition {}", rep + 1));
    }
  }
  progress.Clear();
  Report(depth, *steps, Median(bandwidths), table);
  return Status();
}

void DecodeBench::Report(int64_t depth, int steps, double bandwidth,
                         const std::vector<DecodeRow>& rows) {
  fmt::print(out_,
             "\ndepth {}, {} steps x {} repetitions; read bandwidth {:.1f} GB/s in this run\n",
             depth, steps, rows[0].us.size(), bandwidth / 1e9);
  TextTable table({"plan", ">tokens/s", ">x f16", ">cache", ">resident", ">weights", ">attention",
                   ">cache work", ">other", ">of read", ">logit error"});
  std::vector<RetentionReport> reports;
  for (const DecodeRow& row : rows) {
    std::vector<double> ratios;
    for (size_t i = 0; i < row.us.size(); ++i) ratios.push_back(rows[0].us[i] / row.us[i]);
    const double speed = 1e6 / Median(row.us);
    const CacheStats stats = row.lane->cache().Stats();
    const uint64_t cache_bytes = stats.bytes_held + stats.bytes_tables;
    const uint64_t resident = resident_before_ + row.lane->resident_growth();
    const uint64_t read_bytes = model_->weight_bytes_per_token() + stats.bytes_used;
    const double fraction = static_cast<double>(read_bytes) * speed / bandwidth;
    const ForwardTimes& times = row.times;
    const double all = times.linear_us + times.attention_us + times.cache_us + times.other_us;
    const auto share = [&](double us) { return all > 0 ? us / all : 0.0; };
    const auto percent = [](double part) { return fmt::format("{:.1f} %", 100 * part); };
    table.AddRow({row.noise ? "f16 again (noise)" : row.lane->name(), fmt::format("{:.2f}", speed),
                  fmt::format("{:.2f}", Median(ratios)),
                  HumanBytes(static_cast<double>(cache_bytes)),
                  HumanBytes(static_cast<double>(resident)), percent(share(times.linear_us)),
                  percent(share(times.attention_us)), percent(share(times.cache_us)),
                  percent(share(times.other_us)), fmt::format("{:.0f} %", 100 * fraction),
                  fmt::format("{:.1e}", row.logit_error)});
    rows_.push_back({{"plan", row.lane->name()},
                     {"role", row.noise             ? "noise"
                              : &row == rows.data() ? "baseline"
                                                    : "candidate"},
                     {"model", model_->config().name},
                     {"depth", depth},
                     {"threads", executor_->num_threads()},
                     {"steps", steps},
                     {"reps", row.us.size()},
                     {"tokens_per_s", speed},
                     {"ratio_to_f16", Median(ratios)},
                     {"cache_bytes", cache_bytes},
                     {"resident_bytes", resident},
                     {"weight_bytes_per_token", model_->weight_bytes_per_token()},
                     {"cache_bytes_read", stats.bytes_used},
                     {"share_weights", share(times.linear_us)},
                     {"share_attention", share(times.attention_us)},
                     {"share_cache", share(times.cache_us)},
                     {"share_other", share(times.other_us)},
                     {"read_bandwidth_gbps", bandwidth / 1e9},
                     {"bandwidth_fraction", fraction},
                     {"logit_error", row.logit_error}});
    AddRetentionKeys(reports.emplace_back(ReportOf(*row.lane, depth + steps)), &rows_.back());
  }
  table.Print(out_);
  for (size_t i = 0; i < rows.size(); ++i) PrintRetention(rows[i].lane->name(), reports[i], out_);
  std::fflush(out_);
}

Status DecodeBench::RunGroup(const std::vector<size_t>& group) {
  std::vector<std::unique_ptr<DecodeLane>> lanes;
  std::vector<size_t> indices = {0};
  indices.insert(indices.end(), group.begin(), group.end());
  for (const size_t i : indices) {
    Result<std::unique_ptr<DecodeLane>> lane =
        DecodeLane::Make(names_[i], plans_[i], *model_, *executor_);
    if (!lane.ok()) return lane.status();
    lanes.push_back(std::move(*lane));
  }
  for (const int64_t depth : depths_) {
    if (!InterruptScope::interrupted()) VARVE_RETURN_IF_ERROR(RunDepth(depth, lanes));
  }
  return Status();
}

Status DecodeBench::Run() {
  VARVE_RETURN_IF_ERROR(ReadPlans());
  executor_ = MakeThreadPool(options_.threads);
  runner_ = std::make_unique<LlamaRunner>(model_, *executor_);
  synthetic_ = std::make_unique<SyntheticRows>(model_->cache_shape(), options_.seed, *executor_);
  Result<std::unique_ptr<DecodeLane>> trial =
      DecodeLane::Make("f16", plans_[0], *model_, *executor_);
  if (!trial.ok()) return trial.status();
  std::vector<int32_t> tokens;
  const Status status = (*trial)->TimeSteps(*runner_, 1, &tokens).status();
  if (!status.ok()) return status;
  trial->reset();
  resident_before_ = ResidentBytes();  // before the buffer that only measures
  read_ = std::make_unique<ReadBandwidth>(
      std::max<uint64_t>(DescribeMachine().last_level_cache_bytes * 9 / 4, uint64_t{128} << 20));
  read_->Measure(*executor_);  // warm up

  Result<std::vector<std::vector<size_t>>> groups = Groups();
  if (!groups.ok()) return groups.status();
  const LlamaConfig& config = model_->config();
  fmt::print(out_,
             "{}: {} layers, width {}, {} heads on {} KV heads of {}; {} of weights per token; {} "
             "threads, isa {}\n",
             config.name, config.num_layers, config.width, config.num_heads, config.num_kv_heads,
             config.head_dim, HumanBytes(static_cast<double>(model_->weight_bytes_per_token())),
             executor_->num_threads(), ActiveKernels().name);
  const InterruptScope scope;
  for (const std::vector<size_t>& group : *groups) {
    if (!InterruptScope::interrupted()) VARVE_RETURN_IF_ERROR(RunGroup(group));
  }
  if (InterruptScope::interrupted()) {
    fmt::print(out_, "interrupted: what was measured so far is above\n");
  }
  return Status();
}

}  // namespace

Status BenchDecodeModel(const BenchDecodeOptions& options, std::shared_ptr<const LlamaModel> model,
                        std::FILE* out, Json& rows) {
  return DecodeBench(options, std::move(model), out, rows).Run();
}

namespace {

// Speed needs no tokenizer: a file without one, or with one that is not built in, will do.
Result<std::shared_ptr<const LlamaModel>> OpenModel(const BenchDecodeOptions& options) {
  if (!options.random_model.empty()) {
    Result<WeightType> type = ParseWeightType(options.weights);
    if (!type.ok()) return type.status();
    Result<LlamaConfig> config = PresetConfig(options.random_model);
    if (!config.ok()) return config.status();
    return LlamaModel::Random(*config, *type, options.seed);
  }
  if (options.model.empty()) {
    Result<LoadedModel> embedded = LoadModel("");
    if (!embedded.ok()) return embedded.status();
    return embedded->model;
  }
  Result<std::shared_ptr<const GgufFile>> file = GgufFile::Open(options.model);
  if (!file.ok()) return file.status();
  return LlamaModel::Load(*file);
}

}  // namespace

Status BenchDecode(const BenchDecodeOptions& options) {
  Result<std::shared_ptr<const LlamaModel>> model = OpenModel(options);
  if (!model.ok()) return model.status();
  Json rows = Json::array();
  VARVE_RETURN_IF_ERROR(
      BenchDecodeModel(options, *model, options.json == "-" ? stderr : stdout, rows));
  return options.json.empty() ? Status() : WriteJson(options.json, "bench decode", rows);
}

}  // namespace varve::cli
