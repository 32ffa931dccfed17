#include "cli/bench/bench_pq.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/align.h"
#include "base/timer.h"
#include "cli/bench/bench_report.h"
#include "cli/bench/bench_workload.h"
#include "cli/codebook/codebook_training.h"
#include "cli/interrupt.h"
#include "cli/report/output.h"
#include "cli/report/usage_error.h"
#include "kernels/pq_kernels.h"
#include "rungs/pq/pq_methods.h"
#include "rungs/pq/pq_rung.h"

namespace varve::cli {
namespace {

constexpr int kPageTokens = 64;
constexpr size_t kTrainingRows = 4096;
// Of a method's answer against double precision on the decoded rows.
constexpr double kErrorLimit = 4e-2;

struct Method {
  std::string part;  // "scores", "values"
  std::string name;
  PqMethods forced;
};

const std::vector<Method>& Methods() {
  static const std::vector<Method> methods = {
      {"scores", "bytes", {PqKeyMethod::kBytes, PqValueMethod::kAuto}},
      {"scores", "tables", {PqKeyMethod::kTables, PqValueMethod::kAuto}},
      {"scores", "decode", {PqKeyMethod::kDecode, PqValueMethod::kAuto}},
      {"values", "bytes", {PqKeyMethod::kAuto, PqValueMethod::kBytes}},
      {"values", "centroids", {PqKeyMethod::kAuto, PqValueMethod::kCentroids}},
      {"values", "decode", {PqKeyMethod::kAuto, PqValueMethod::kDecode}},
  };
  return methods;
}

// Methods are forced for the whole process: put back whatever happens.
class MethodScope {
 public:
  ~MethodScope() { SetPqMethods({}); }
};

double SecondsOf(const std::function<void()>& run) {
  const Timer timer;
  run();
  return timer.seconds();
}

class PqBench {
 public:
  explicit PqBench(const BenchPqOptions& options)
      : options_(options), executor_(MakeThreadPool(1)) {}

  Status Run() {
    VARVE_RETURN_IF_ERROR(CheckWritable("--json", options_.json));
    return FinishJson(Measure(), options_.json, "bench pq", rows_);
  }

 private:
  Status Measure();
  Status RunSize(const CodebookSize& size);
  Status Fill(const CodebookSize& size);
  void Scores(int64_t tokens);
  void Values(int64_t tokens);
  Status CheckMethod(const Method& method);
  void Report(const CodebookSize& size, int64_t ctx, const Method& method, double ns);

  BenchPqOptions options_;
  std::unique_ptr<Executor> executor_;
  StripShape shape_;
  std::unique_ptr<PqRung> rung_;
  std::vector<float> keys_, values_, queries_;        // [ctx, dim], [group, dim]
  std::vector<std::byte> key_strips_, value_strips_;  // [pages, strip]
  std::vector<std::byte> prepared_;
  std::vector<float> scores_;   // [group, 16 pages]
  std::vector<float> weights_;  // the same
  std::vector<float> sums_;     // [group, dim]
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

Status PqBench::Fill(const CodebookSize& size) {
  const size_t dim = static_cast<size_t>(options_.dim);
  const SharedRows parts[] = {
      {Part::kKey, options_.dim, std::span(keys_).first(kTrainingRows * dim), {size}},
      {Part::kValue, options_.dim, std::span(values_).first(kTrainingRows * dim), {size}}};
  TrainingOptions training;
  training.iterations = 6;
  training.seed = options_.seed;
  VARVE_ASSIGN_OR_RETURN(Codebook codebook,
                         TrainOnRows(parts, 1, 1, CodebookGrain::kHead, training, *executor_));
  rung_ = std::make_unique<PqRung>(
      PqDescriptorOf({size.num_subspaces, size.bits}),
      RungBinding{&ActiveKernels(), std::make_shared<const Codebook>(std::move(codebook))});
  const size_t pages = keys_.size() / dim / kPageTokens;
  const size_t strip = rung_->StripBytes(Part::kKey, shape_);
  key_strips_.resize(pages * strip);
  value_strips_.resize(pages * strip);
  std::vector<double> seconds;
  for (size_t page = 0; page < pages; ++page) {
    seconds.push_back(SecondsOf([&] {
      rung_->Encode(Part::kKey, shape_, &keys_[page * kPageTokens * dim], kPageTokens,
                    &key_strips_[page * strip]);
    }));
    rung_->Encode(Part::kValue, shape_, &values_[page * kPageTokens * dim], kPageTokens,
                  &value_strips_[page * strip]);
  }
  const double rows_per_s = kPageTokens / Median(seconds);
  fmt::print("\npq{}: {:.3f} bits per value, encodes {:.0f} rows/s on one core\n", SizeText(size),
             8.0 * static_cast<double>(strip) / kPageTokens / options_.dim, rows_per_s);
  rows_.push_back({{"size", SizeText(size)},
                   {"part", "encode"},
                   {"dim", options_.dim},
                   {"rows_per_s", rows_per_s}});
  return Status();
}

// As attention does it: queries once, then page after page.
void PqBench::Scores(int64_t tokens) {
  const size_t strip = rung_->StripBytes(Part::kKey, shape_);
  prepared_.resize(rung_->PreparedRowBytes(shape_, options_.group) *
                   static_cast<size_t>(options_.group));
  rung_->PrepareQuery(shape_, queries_.data(), options_.group, prepared_.data());
  const size_t stride = kMaxValuePages * kPageTokens;
  for (int64_t page = 0; page * kPageTokens < tokens; ++page) {
    rung_->Scores(shape_, &key_strips_[static_cast<size_t>(page) * strip], prepared_.data(),
                  options_.group, kPageTokens, scores_.data() + page % kMaxValuePages * kPageTokens,
                  stride, nullptr);
  }
}

void PqBench::Values(int64_t tokens) {
  const size_t strip = rung_->StripBytes(Part::kKey, shape_);
  const size_t stride = kMaxValuePages * kPageTokens;
  const std::vector<float> ones(static_cast<size_t>(options_.group), 1.0f);
  std::fill(sums_.begin(), sums_.end(), 0.0f);
  const int64_t pages = tokens / kPageTokens;
  for (int64_t first = 0; first < pages; first += kMaxValuePages) {
    std::vector<ValuePage> run;
    for (int64_t page = first; page < std::min(pages, first + kMaxValuePages); ++page) {
      run.push_back({&value_strips_[static_cast<size_t>(page) * strip], 0, kPageTokens,
                     weights_.data() + (page - first) * kPageTokens});
    }
    rung_->AddValuePages(shape_, run, stride, ones.data(), options_.group, sums_.data(), nullptr);
  }
}

// One page of scores, one run of values.
Status PqBench::CheckMethod(const Method& method) {
  SetPqMethods(method.forced);
  const size_t dim = static_cast<size_t>(options_.dim);
  const size_t stride = kMaxValuePages * kPageTokens;
  const bool keys = method.part == "scores";
  std::vector<float> decoded(kPageTokens * dim);
  rung_->Decode(keys ? Part::kKey : Part::kValue, shape_,
                keys ? key_strips_.data() : value_strips_.data(), 0, kPageTokens, decoded.data());
  keys ? Scores(kPageTokens) : Values(kPageTokens);
  std::vector<float> found;
  std::vector<double> exact;
  for (size_t g = 0; g < static_cast<size_t>(options_.group); ++g) {
    for (size_t i = 0; i < (keys ? size_t{kPageTokens} : dim); ++i) {
      double sum = 0;
      for (size_t j = 0; j < (keys ? dim : size_t{kPageTokens}); ++j) {
        sum += keys ? static_cast<double>(queries_[g * dim + j]) * decoded[i * dim + j]
                    : static_cast<double>(weights_[g * stride + j]) * decoded[j * dim + i];
      }
      exact.push_back(sum);
      found.push_back(keys ? scores_[g * stride + i] : sums_[g * dim + i]);
    }
  }
  const Error error = CompareOutputs(found, exact);
  if (error.rms <= kErrorLimit) return Status();
  return Internal(fmt::format("bench pq: {} by {}: error {} > {}", method.part, method.name,
                              error.rms, kErrorLimit));
}

void PqBench::Report(const CodebookSize& size, int64_t ctx, const Method& method, double ns) {
  rows_.push_back({{"size", SizeText(size)},
                   {"part", method.part},
                   {"method", method.name},
                   {"dim", options_.dim},
                   {"group", options_.group},
                   {"ctx", ctx},
                   {"ns_per_token", ns}});
}

Status PqBench::RunSize(const CodebookSize& size) {
  VARVE_RETURN_IF_ERROR(CheckSize(size, options_.dim));
  VARVE_RETURN_IF_ERROR(Fill(size));
  const MethodScope scope;
  std::vector<std::string> headers = {"context"};
  std::vector<const Method*> methods;
  for (const Method& method : Methods()) {
    if (method.name == "bytes" && size.bits > kMaxByteBits) continue;
    VARVE_RETURN_IF_ERROR(CheckMethod(method));
    methods.push_back(&method);
    headers.push_back(fmt::format(">{} {}", method.part, method.name));
  }
  headers.emplace_back(">best values");
  TextTable table(headers);
  for (const int64_t asked : options_.ctx) {
    const int64_t ctx = AlignUp<int64_t>(asked, kPageTokens);
    std::vector<std::vector<double>> seconds(methods.size());
    const int64_t turns = std::max<int64_t>(1, 4096 / ctx);  // a timing lasts a while
    for (int rep = 0; rep < options_.reps && !InterruptScope::interrupted(); ++rep) {
      for (size_t i = 0; i < methods.size(); ++i) {
        SetPqMethods(methods[i]->forced);
        seconds[i].push_back(SecondsOf([&] {
                               for (int64_t turn = 0; turn < turns; ++turn)
                                 methods[i]->part == "scores" ? Scores(ctx) : Values(ctx);
                             }) /
                             static_cast<double>(turns));
      }
    }
    if (InterruptScope::interrupted()) break;
    std::vector<std::string> cells = {fmt::format("{}", ctx)};
    const Method* best = nullptr;
    double best_ns = 0;
    for (size_t i = 0; i < methods.size(); ++i) {
      const double ns = 1e9 * Median(seconds[i]) / static_cast<double>(ctx);
      cells.push_back(fmt::format("{:.2f}", ns));
      Report(size, ctx, *methods[i], ns);
      if (methods[i]->part != "values" || (best != nullptr && ns >= best_ns)) continue;
      best = methods[i];
      best_ns = ns;
    }
    cells.push_back(best->name);
    table.AddRow(std::move(cells));
  }
  table.Print(stdout);
  return Status();
}

Status PqBench::Measure() {
  std::vector<CodebookSize> sizes;
  for (const std::string& text : options_.sizes) {
    VARVE_ASSIGN_OR_RETURN(CodebookSize size, ParseSize("--sizes", text));
    VARVE_RETURN_IF_ERROR(CheckSize(size, options_.dim));
    sizes.push_back(size);
  }
  const size_t dim = static_cast<size_t>(options_.dim);
  const int64_t longest = *std::max_element(options_.ctx.begin(), options_.ctx.end());
  const size_t tokens = std::max(
      kTrainingRows, static_cast<size_t>(CeilDiv(longest, kPageTokens)) * size_t{kPageTokens});
  shape_ = {0, 0, options_.dim, kPageTokens};
  keys_.resize(tokens * dim);
  values_.resize(tokens * dim);
  queries_.resize(static_cast<size_t>(options_.group) * dim);
  FillKeys(keys_, options_.seed, *executor_);
  FillGaussian(values_, options_.seed + 1, *executor_);
  FillGaussian(queries_, options_.seed + 2, *executor_);
  const size_t columns = static_cast<size_t>(kMaxValuePages) * kPageTokens;
  scores_.resize(static_cast<size_t>(options_.group) * columns);
  weights_.resize(scores_.size());
  FillGaussian(weights_, options_.seed + 3, *executor_);
  for (float& weight : weights_) weight = std::exp(weight);
  sums_.resize(static_cast<size_t>(options_.group) * dim);
  fmt::print(
      "ns per token for {} query heads on one KV head of {} channels; one thread, isa {}; pages of "
      "{} tokens\n",
      options_.group, options_.dim, ActiveKernels().name, kPageTokens);
  const InterruptScope interrupt;
  for (const CodebookSize& size : sizes) {
    if (!InterruptScope::interrupted()) VARVE_RETURN_IF_ERROR(RunSize(size));
  }
  if (InterruptScope::interrupted()) fmt::print("interrupted: what was measured so far is above\n");
  return Status();
}

}  // namespace

Status BenchPq(const BenchPqOptions& options) { return PqBench(options).Run(); }

void AddBenchPq(CLI::App& bench, int* exit_code) {
  CLI::App* command = bench.add_subcommand(
      "pq", "Ways to compute attention on product-quantized pages, against each other");
  auto options = std::make_shared<BenchPqOptions>();
  command->add_option("--sizes", options->sizes, "Sizes MxB, separated by spaces")
      ->default_str(fmt::format("{}", fmt::join(options->sizes, " ")));
  command->add_option("--dim", options->dim, "head_dim of K and V")
      ->capture_default_str()
      ->check(CLI::Range(16, 512));
  command->add_option("--group", options->group, "Query heads of the KV head")
      ->capture_default_str()
      ->check(CLI::Range(1, kMaxTableRows));
  command->add_option("--ctx", options->ctx, "Context lengths in tokens, rounded up to pages")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--reps", options->reps, "Repetitions, all methods interleaved")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  command->add_option("--seed", options->seed, "Seed of rows and k-means")
      ->capture_default_str()
      ->check(NotNegative());
  command->add_option("--json", options->json, "Write the rows as JSON to FILE, or - for stdout");
  command->footer(
      "scores  bytes      centroids looked up in registers, times the query as integers\n"
      "        tables     the query's products with all centroids, then M reads per token\n"
      "values  bytes      centroids looked up in registers, times the weights as integers\n"
      "        centroids  weights added up per code, times the centroids once per 16 pages\n"
      "both    decode     the page as f32 first, for comparison\n"
      "Tables and the first step of centroids are part of the time: hence by context. Codebooks "
      "are\n"
      "trained on the synthetic rows themselves.\n\n"
      "Examples:\n"
      "  varve bench pq\n"
      "  VARVE_ISA=avx2 varve bench pq --sizes 64x8 16x8 --group 1 --ctx 1024,32768");
  command->callback(Action(options, BenchPq, exit_code));
}

}  // namespace varve::cli
