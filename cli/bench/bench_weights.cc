#include "cli/bench/bench_weights.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "base/machine.h"
#include "base/timer.h"
#include "cli/available_memory.h"
#include "cli/bench/bench_attention.h"
#include "cli/bench/bench_report.h"
#include "cli/bench/huge_buffer.h"
#include "cli/bench/read_bandwidth.h"
#include "cli/interrupt.h"
#include "cli/model_argument.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "cli/report/usage_error.h"
#include "kernels/kernels.h"
#include "runtime/kernels/linear.h"
#include "runtime/kernels/weights_random.h"
#include "runtime/kernels/woven_rows.h"

namespace varve::cli {
namespace {

std::string LowerName(WeightType type) {
  std::string name = InfoOf(type).name;
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

// Matrices of one type, beyond the caches together, and their times.
struct WeightCandidate {
  WeightType type;
  bool woven = false;
  HugeBuffer bytes;
  std::vector<WeightMatrix> matrices;  // of the same values
  double max_error = 0;                // relative to the RMS of the exact output
  std::vector<double> us;              // per product
  std::vector<double> fractions;       // of the bandwidth measured just before

  std::string name() const { return LowerName(type) + (woven ? ", repacked" : ""); }
  // Read by one product of few tokens.
  double bytes_read() const { return static_cast<double>(BytesRead(matrices[0], woven)); }
  static size_t BytesRead(const WeightMatrix& matrix, bool woven) {
    if (!woven) return matrix.bytes();
    return WovenBytes(matrix) +
           static_cast<size_t>(matrix.rows - WovenRows(matrix)) * matrix.row_bytes();
  }
};

class WeightsBench {
 public:
  explicit WeightsBench(const BenchWeightsOptions& options)
      : options_(options), out_(options.json == "-" ? stderr : stdout) {}
  Status Run();

 private:
  Status Measure();
  Status ReadTypes();
  // Refuses matrices that the memory has no room for, all types together.
  Status CheckSize(int most_tokens) const;
  size_t CopiesOf(const WeightMatrix& matrix) const { return working_set_ / matrix.bytes() + 1; }
  WeightCandidate MakeCandidate(WeightType type) const;
  // The same matrices, woven (woven_rows.h).
  WeightCandidate Repack(const WeightCandidate& stored, Executor& executor) const;
  // Types of which a second candidate is measured.
  bool IsRepacked(WeightType type, int tokens) const;
  // The answer for the first matrix against double precision.
  Status Check(WeightCandidate& candidate, int tokens, Executor& executor) const;
  // One product with each matrix.
  void Time(WeightCandidate& candidate, int tokens, double bandwidth, LinearLayers& linear);
  Status RunCase(int threads, int tokens);
  void Report(int threads, int tokens, double bandwidth,
              const std::vector<WeightCandidate>& candidates);

  uint64_t ReadBufferBytes() const { return std::max<uint64_t>(working_set_, uint64_t{64} << 20); }
  // The most that a product may differ, relative to the RMS of the exact output.
  double ErrorLimit(WeightType type, int tokens) const;

  const BenchWeightsOptions& options_;
  std::vector<WeightType> types_;
  uint64_t working_set_ = 0;
  std::vector<float> input_;   // [most tokens, cols]
  std::vector<float> output_;  // [most tokens, rows]
  std::FILE* out_ = nullptr;   // stdout, unless the JSON goes there
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

Status WeightsBench::ReadTypes() {
  for (const std::string& text : options_.types) {
    VARVE_ASSIGN_OR_RETURN(WeightType type, ParseWeightType("--types", text));
    const int block = InfoOf(type).block_values;
    if (options_.cols % block != 0) {
      return InvalidArgument(fmt::format("--cols {} is not a multiple of {}, the block of {}",
                                         options_.cols, block, text));
    }
    types_.push_back(type);
  }
  return Status();
}

Status WeightsBench::CheckSize(int most_tokens) const {
  // What goes to and from a product, the latter once more for the check; all in f32.
  uint64_t bytes = static_cast<uint64_t>(most_tokens) *
                   static_cast<uint64_t>(options_.cols + 2 * options_.rows) * sizeof(float);
  bytes += ReadBufferBytes();
  // Rows, columns (2^20 each) and the working set (2^50) are limited: no sum overflows.
  for (const WeightType type : types_) {
    const WeightMatrix matrix = {type, options_.rows, options_.cols, nullptr};
    bytes += CopiesOf(matrix) * (matrix.bytes() + (IsRepacked(type, 1) ? WovenBytes(matrix) : 0));
  }
  return CheckMemory(
      fmt::format("--rows {}, --cols {}, working set {}: the matrices of {} type{}", options_.rows,
                  options_.cols, HumanBytes(static_cast<double>(working_set_)), types_.size(),
                  types_.size() == 1 ? "" : "s"),
      bytes);
}

WeightCandidate WeightsBench::MakeCandidate(WeightType type) const {
  WeightCandidate candidate;
  candidate.type = type;
  WeightMatrix matrix = {type, options_.rows, options_.cols, nullptr};
  const size_t copies = CopiesOf(matrix);
  candidate.bytes = HugeBuffer(copies * matrix.bytes(), !options_.small_pages);
  FillRandomWeights(type, options_.rows * options_.cols, 0.05f, options_.seed,
                    candidate.bytes.data());
  for (size_t copy = 0; copy < copies; ++copy) {
    std::byte* to = candidate.bytes.data() + copy * matrix.bytes();
    if (copy > 0) std::copy_n(candidate.bytes.data(), matrix.bytes(), to);
    matrix.data = to;
    candidate.matrices.push_back(matrix);
  }
  return candidate;
}

bool WeightsBench::IsRepacked(WeightType type, int tokens) const {
  return options_.repack && tokens <= LinearLayers::kMaxFewTokens && CanWeave(type) &&
         ActiveWeightKernels().rounded->multiply_woven[static_cast<int>(type)] != nullptr;
}

WeightCandidate WeightsBench::Repack(const WeightCandidate& stored, Executor& executor) const {
  WeightCandidate woven;
  woven.type = stored.type;
  woven.woven = true;
  woven.matrices = stored.matrices;
  const size_t bytes = WovenBytes(stored.matrices[0]);
  woven.bytes = HugeBuffer(stored.matrices.size() * bytes, !options_.small_pages);
  std::byte* to = woven.bytes.data();
  for (WeightMatrix& matrix : woven.matrices) {
    WeaveMatrix(matrix, executor, to);
    matrix.woven = to;
    to += bytes;
  }
  return woven;
}

double WeightsBench::ErrorLimit(WeightType type, int tokens) const {
  const bool few = tokens <= LinearLayers::kMaxFewTokens;
  if (few) return IsInteger(type) ? 2e-4 : 1e-5;  // activations of 16 bits
  if (options_.precision == ProductPrecision::kBF16) return 5e-2;
  return options_.precision == ProductPrecision::kI16 && IsInteger(type) ? 8e-4 : 1e-5;
}

Status WeightsBench::Check(WeightCandidate& candidate, int tokens, Executor& executor) const {
  const WeightMatrix& matrix = candidate.matrices[0];
  std::vector<float> output(static_cast<size_t>(tokens * options_.rows));
  LinearLayers linear(executor, options_.precision);
  const LinearTask task = {.weights = &matrix, .input = input_.data(), .output = output.data()};
  linear.Run(tokens, {&task, 1});
  // The first and the last token stand for all.
  std::vector<double> squares(static_cast<size_t>(options_.rows));
  std::vector<double> errors(static_cast<size_t>(options_.rows));
  executor.ParallelFor(static_cast<size_t>(options_.rows), [&](size_t row, int) {
    std::vector<float> weights(static_cast<size_t>(options_.cols));
    AvailableWeightKernels()[0]->decode[static_cast<int>(matrix.type)](
        matrix.row(static_cast<int64_t>(row)), options_.cols, weights.data());
    for (const int t : {0, tokens - 1}) {
      const float* x = input_.data() + t * options_.cols;
      double exact = 0;
      for (int64_t i = 0; i < options_.cols; ++i) exact += static_cast<double>(weights[i]) * x[i];
      squares[row] += exact * exact / 2;
      const double error = std::abs(output[t * options_.rows + static_cast<int64_t>(row)] - exact);
      // A NaN must not look like no error.
      errors[row] = error <= errors[row] ? errors[row] : error;
    }
  });
  double square = 0, worst = 0;
  for (const double s : squares) square += s;
  for (const double e : errors) worst = e <= worst ? worst : e;
  candidate.max_error = worst / std::sqrt(square / static_cast<double>(options_.rows));
  const double limit = ErrorLimit(matrix.type, tokens);
  if (candidate.max_error <= limit) return Status();
  return Internal(fmt::format("{}: error {:.1e} of the product exceeds {:.0e}", candidate.name(),
                              candidate.max_error, limit));
}

void WeightsBench::Time(WeightCandidate& candidate, int tokens, double bandwidth,
                        LinearLayers& linear) {
  const Timer timer;
  for (const WeightMatrix& matrix : candidate.matrices) {
    const LinearTask task = {.weights = &matrix, .input = input_.data(), .output = output_.data()};
    linear.Run(tokens, {&task, 1});
  }
  const double each = timer.seconds() / static_cast<double>(candidate.matrices.size());
  candidate.us.push_back(each * 1e6);
  candidate.fractions.push_back(candidate.bytes_read() / each / bandwidth);
}

Status WeightsBench::RunCase(int threads, int tokens) {
  const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
  const std::unique_ptr<Executor> all_cores = MakeThreadPool(0);
  std::vector<WeightCandidate> candidates;
  for (const WeightType type : types_) {
    candidates.push_back(MakeCandidate(type));
    VARVE_RETURN_IF_ERROR(Check(candidates.back(), tokens, *all_cores));
  }
  for (size_t i = 0; i < types_.size(); ++i) {  // behind the others, whose memory they read
    if (!IsRepacked(types_[i], tokens)) continue;
    candidates.push_back(Repack(candidates[i], *all_cores));
    VARVE_RETURN_IF_ERROR(Check(candidates.back(), tokens, *all_cores));
  }
  LinearLayers linear(*executor, options_.precision);
  ReadBandwidth read(ReadBufferBytes());
  std::vector<double> bandwidths;
  read.Measure(*executor);  // warm up
  Progress progress("bench weights", options_.reps);
  for (int rep = 0; rep < options_.reps && !(InterruptScope::interrupted() && rep > 0); ++rep) {
    progress.Update(rep);
    for (WeightCandidate& candidate : candidates) {
      bandwidths.push_back(read.Measure(*executor));
      Time(candidate, tokens, bandwidths.back(), linear);
    }
  }
  progress.Clear();
  Report(threads, tokens, Median(bandwidths), candidates);
  return Status();
}

void WeightsBench::Report(int threads, int tokens, double bandwidth,
                          const std::vector<WeightCandidate>& candidates) {
  fmt::print(out_, "\n{} token{}, {} thread{}; read bandwidth {:.1f} GB/s\n", tokens,
             tokens == 1 ? "" : "s", threads, threads == 1 ? "" : "s", bandwidth / 1e9);
  TextTable table(
      {"weights", ">MiB", ">us", ">min us", ">GB/s", ">of read", ">GFLOP/s", ">max error"});
  for (const WeightCandidate& candidate : candidates) {
    const double bytes = candidate.bytes_read();
    const double us = Median(candidate.us);
    const double min_us = *std::min_element(candidate.us.begin(), candidate.us.end());
    const double fraction = Median(candidate.fractions);
    const double gbps = bytes / us / 1e3;
    const double gflops = 2e-3 * static_cast<double>(options_.rows * options_.cols * tokens) / us;
    table.AddRow({candidate.name(), fmt::format("{:.2f}", bytes / (1 << 20)),
                  fmt::format("{:.1f}", us), fmt::format("{:.1f}", min_us),
                  fmt::format("{:.1f}", gbps), fmt::format("{:.2f}", fraction),
                  fmt::format("{:.1f}", gflops), fmt::format("{:.1e}", candidate.max_error)});
    rows_.push_back({{"type", LowerName(candidate.type)},
                     {"repacked", candidate.woven},
                     {"rows", options_.rows},
                     {"cols", options_.cols},
                     {"threads", threads},
                     {"tokens", tokens},
                     {"precision", NameOf(options_.precision)},
                     {"median_us", us},
                     {"min_us", min_us},
                     {"gbps", gbps},
                     {"bandwidth_fraction", fraction},
                     {"gflops", gflops},
                     {"max_error", candidate.max_error}});
  }
  table.Print(out_);
}

Status WeightsBench::Measure() {
  VARVE_RETURN_IF_ERROR(ReadTypes());
  const MachineInfo machine = DescribeMachine();
  working_set_ = options_.working_set >= 0 ? static_cast<uint64_t>(options_.working_set)
                                           : machine.last_level_cache_bytes * 9 / 4;
  std::vector<int> threads = options_.threads;
  if (threads.empty()) threads.push_back(static_cast<int>(std::thread::hardware_concurrency()));
  const int most = *std::max_element(options_.tokens.begin(), options_.tokens.end());
  VARVE_RETURN_IF_ERROR(CheckSize(most));
  input_.resize(static_cast<size_t>(most * options_.cols));
  output_.resize(static_cast<size_t>(most * options_.rows));
  FillRandomWeights(WeightType::kF32, most * options_.cols, 1.0f, options_.seed + 1,
                    reinterpret_cast<std::byte*>(input_.data()));
  fmt::print(out_, "{} x {} weights; isa {}; last-level cache {}, working set of each type > {}\n",
             options_.rows, options_.cols, ActiveKernels().name,
             HumanBytes(static_cast<double>(machine.last_level_cache_bytes)),
             HumanBytes(static_cast<double>(working_set_)));
  const InterruptScope interrupt;
  for (const int tokens : options_.tokens) {
    for (const int t : threads) {
      if (!InterruptScope::interrupted()) VARVE_RETURN_IF_ERROR(RunCase(t, tokens));
    }
  }
  if (InterruptScope::interrupted()) {
    fmt::print(out_, "interrupted: what was measured so far is above\n");
  }
  return Status();
}

Status WeightsBench::Run() {
  VARVE_RETURN_IF_ERROR(CheckWritable("--json", options_.json));
  return FinishJson(Measure(), options_.json, "bench weights", rows_);
}

}  // namespace

std::span<const WeightType> AllWeightTypes() {
  static const std::vector<WeightType> kTypes = [] {
    std::vector<WeightType> types;
    for (int i = 0; i < kNumWeightTypes; ++i) types.push_back(static_cast<WeightType>(i));
    return types;
  }();
  return kTypes;
}

Result<WeightType> ParseWeightType(std::string_view option, const std::string& text,
                                   std::span<const WeightType> allowed) {
  std::string names;
  for (const WeightType type : allowed) {
    const std::string name = LowerName(type);
    const bool same = std::equal(text.begin(), text.end(), name.begin(), name.end(),
                                 [](unsigned char a, char b) { return std::tolower(a) == b; });
    if (same) return type;
    names += " " + name;
  }
  return InvalidArgument(fmt::format("{} \"{}\": not one of{}", option, text, names));
}

Status BenchWeights(const BenchWeightsOptions& options) { return WeightsBench(options).Run(); }

void AddBenchWeights(CLI::App& bench, int* exit_code) {
  CLI::App* command =
      bench.add_subcommand("weights", "Products with stored weights, per type of weight");
  auto options = std::make_shared<BenchWeightsOptions>();
  command->add_option("--types", options->types, "Weight types, separated by spaces")
      ->default_str(fmt::format("{}", fmt::join(options->types, " ")));
  command->add_option("--rows", options->rows, "Output features")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--cols", options->cols, "Input features")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--threads", options->threads, "Thread counts (default: all cores)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  command->add_option("--tokens", options->tokens, "Tokens per product; 9 or more: prefill")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command
      ->add_option_function<std::string>(
          "--precision",
          [options](const std::string& text) { options->precision = *FindPrecision(text); },
          "Prefill: products in f32, i16 (integers) or bf16")
      ->default_str("f32")
      ->check(PrecisionValidator());
  command->add_option("--reps", options->reps, "Repetitions, all types interleaved")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  command->add_option_function<std::string>(
      "--working-set",
      [options](const std::string& text) {
        Result<int64_t> bytes = ParseWorkingSet(text);
        if (!bytes.ok()) throw CLI::ValidationError(bytes.status().message());
        options->working_set = *bytes;
      },
      "Least bytes of the matrices that each type rotates through (default: 2.25 x last-level "
      "cache)");
  command->add_flag("--small-pages", options->small_pages,
                    "Weights on pages of 4 KiB, as in a mapped file, not on huge ones");
  command->add_flag("--repack", options->repack,
                    "Also rows woven together, sixteen at a time, as `run --repack` has them");
  command->add_option("--seed", options->seed, "Seed of the random weights")
      ->capture_default_str()
      ->check(NotNegative());
  command->add_option("--json", options->json, "Write the rows as JSON to FILE, or - for stdout");
  command->footer(
      "The product of each type is checked against double precision before timing; errors are\n"
      "relative to the RMS of the exact output. \"of read\" is the median share of the read\n"
      "bandwidth measured right before each timing.\n\n"
      "Examples:\n"
      "  varve bench weights --types f16 q8_0 --threads 1,2\n"
      "  varve bench weights --types q4_k --tokens 512 --precision i16");
  command->callback(Action(options, BenchWeights, exit_code));
}

}  // namespace varve::cli
