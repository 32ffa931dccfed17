#include "cli/bench/bench_reload.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/random.h"
#include "base/timer.h"
#include "cli/model_argument.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "cli/report/usage_error.h"
#include "runtime/model/open_model.h"
#include "runtime/model_cache.h"
#include "varve/cache_file.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

class RemoveWhenDone {
 public:
  explicit RemoveWhenDone(std::string path) : path_(std::move(path)) {}
  ~RemoveWhenDone() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  RemoveWhenDone(const RemoveWhenDone&) = delete;
  RemoveWhenDone& operator=(const RemoveWhenDone&) = delete;

 private:
  std::string path_;
};

// The times of one plan, in seconds.
struct ReloadTimes {
  double prefill = 0;
  double save = 0;
  double load = 0;
  double first_token = 0;   // load and one decoded token
  double decode_token = 0;  // the same token behind the prefill
};

// One plan on a model: the cache that the text was read into, and one that is loaded from the file.
class ReloadRun {
 public:
  ReloadRun(const BenchReloadOptions& options, const DecoderModel& model, Executor& executor)
      : options_(options),
        vocab_(static_cast<size_t>(model.vocab_size())),
        runner_(model.MakeRunner(executor)),
        random_(options.model.seed) {}

  Status Prefill(const CacheShape& shape, const CacheOptions& cache_options);
  Status SaveAndLoad(const CacheShape& shape, const CacheOptions& cache_options);
  // Decodes behind both; fails where logits differ.
  Status Decode();
  const ReloadTimes& times() const { return times_; }

 private:
  int32_t NextToken() { return static_cast<int32_t>(random_.Next() % vocab_); }

  const BenchReloadOptions& options_;
  size_t vocab_;
  std::unique_ptr<DecoderRunner> runner_;
  SplitMix64 random_;
  std::vector<int32_t> tokens_;
  std::unique_ptr<Cache> cache_;
  SequenceId id_;
  std::unique_ptr<Cache> loaded_;
  SequenceId loaded_id_;
  Timer since_load_;
  ReloadTimes times_;
};

Status ReloadRun::Prefill(const CacheShape& shape, const CacheOptions& cache_options) {
  VARVE_ASSIGN_OR_RETURN(cache_, Cache::Create(shape, cache_options));
  VARVE_ASSIGN_OR_RETURN(id_, cache_->CreateSequence());
  tokens_.resize(static_cast<size_t>(options_.tokens));
  for (int32_t& token : tokens_) token = NextToken();
  std::vector<float> logits(vocab_);  // [vocab_size]
  Progress progress("prefill", static_cast<double>(tokens_.size()));
  const Timer timer;
  VARVE_RETURN_IF_ERROR(
      runner_->Forward(*cache_, id_, tokens_, Logits::kLast, logits.data(), [&](int64_t done) {
        progress.Update(static_cast<double>(done));
        return true;
      }));
  times_.prefill = timer.seconds();
  return cache_->EndPrompt(id_);
}

Status ReloadRun::SaveAndLoad(const CacheShape& shape, const CacheOptions& cache_options) {
  const Timer save_timer;
  SaveOptions save_options;
  save_options.sequences.push_back({id_, tokens_});
  VARVE_RETURN_IF_ERROR(cache_->Save(options_.file, save_options));
  times_.save = save_timer.seconds();
  VARVE_ASSIGN_OR_RETURN(loaded_, Cache::Create(shape, cache_options));
  since_load_.Restart();
  VARVE_ASSIGN_OR_RETURN(const std::vector<SequenceTokens> sequences,
                         loaded_->Load(options_.file, {}));
  times_.load = since_load_.seconds();
  loaded_id_ = sequences.front().sequence;
  return Status();
}

Status ReloadRun::Decode() {
  std::vector<float> logits(vocab_);  // [vocab_size]
  std::vector<float> again(vocab_);   // [vocab_size]
  for (int step = 0; step < options_.steps; ++step) {
    const int32_t token = NextToken();
    const DecodeEntry entry{loaded_id_, token};
    VARVE_RETURN_IF_ERROR(runner_->Decode(*loaded_, {&entry, 1}, again.data()));
    if (step == 0) times_.first_token = since_load_.seconds();
    const DecodeEntry expected{id_, token};
    const Timer timer;
    VARVE_RETURN_IF_ERROR(runner_->Decode(*cache_, {&expected, 1}, logits.data()));
    if (step == 0) times_.decode_token = timer.seconds();
    if (std::memcmp(again.data(), logits.data(), vocab_ * sizeof(float)) != 0) {
      return Internal(fmt::format("the logits of token {} behind the file differ", step));
    }
  }
  return Status();
}

}  // namespace

Result<Json> MeasureReload(const BenchReloadOptions& options, const std::string& plan,
                           const DecoderModel& model, Executor& executor) {
  CacheOptions cache_options = CacheOptionsFor(model);
  VARVE_ASSIGN_OR_RETURN(cache_options.plan, ReadKvOption(plan));
  cache_options.executor = &executor;
  ReloadRun run(options, model, executor);
  VARVE_RETURN_IF_ERROR(run.Prefill(model.cache_shape(), cache_options));
  const RemoveWhenDone remove(options.file);
  VARVE_RETURN_IF_ERROR(run.SaveAndLoad(model.cache_shape(), cache_options));
  const Status decoded = run.Decode();
  if (!decoded.ok()) {
    return Status(decoded.code(), fmt::format("--kv \"{}\": {}", plan, decoded.message()));
  }
  VARVE_ASSIGN_OR_RETURN(CacheFileInfo info, ReadCacheFileInfo(options.file));
  const ReloadTimes& times = run.times();
  return Json{{"plan", plan},
              {"tokens", options.tokens},
              {"prefill_s", times.prefill},
              {"save_s", times.save},
              {"load_s", times.load},
              {"first_token_s", times.first_token},
              {"decode_token_s", times.decode_token},
              {"speedup", (times.prefill + times.decode_token) / times.first_token},
              {"file_bytes", info.file_bytes},
              {"equal_steps", options.steps}};
}

Status BenchReload(const BenchReloadOptions& options) {
  VARVE_RETURN_IF_ERROR(CheckWritable("--json", options.model.json));
  VARVE_RETURN_IF_ERROR(CheckWritable("--file", options.file));
  VARVE_ASSIGN_OR_RETURN(std::shared_ptr<const DecoderModel> model, OpenBenchModel(options.model));
  const std::unique_ptr<Executor> executor = MakeThreadPool(options.model.threads);
  Json rows = Json::array();
  TextTable table({"plan", ">tokens", ">prefill", ">save", ">load", ">first token", ">x prefill",
                   ">file", "logits"});
  Status measured;
  for (const std::string& plan : options.model.plans) {
    Result<Json> row = MeasureReload(options, plan, *model, *executor);
    if (!row.ok()) {
      measured = row.status();
      break;
    }
    const auto figure = [&row](const char* key) { return (*row)[key].get<double>(); };
    table.AddRow({plan, fmt::format("{}", options.tokens),
                  fmt::format("{:.2f} s", figure("prefill_s")),
                  fmt::format("{:.3f} s", figure("save_s")),
                  fmt::format("{:.2f} ms", 1e3 * figure("load_s")),
                  fmt::format("{:.1f} ms", 1e3 * figure("first_token_s")),
                  fmt::format("{:.0f}", figure("speedup")), HumanBytes(figure("file_bytes")),
                  fmt::format("equal, {} steps", options.steps)});
    rows.push_back(std::move(*row));
  }
  table.Print(options.model.json == "-" ? stderr : stdout);
  return FinishJson(measured, options.model.json, "bench reload", rows);
}

void AddBenchReload(CLI::App& bench, int* exit_code) {
  CLI::App* command = bench.add_subcommand(
      "reload", "A long text in the cache again: from a .varve file, against prefilling anew");
  auto options = std::make_shared<BenchReloadOptions>();
  options->model.plans = {"f16", "q8_0"};
  options->file =
      (std::filesystem::temp_directory_path() / fmt::format("varve-bench-{}.varve", getpid()))
          .string();
  CLI::Option* model = AddModelOption(*command, options->model.model);
  CLI::Option* random =
      command
          ->add_option("--random-model", options->model.random_model,
                       "A shape with random weights in place of a file: " + RandomModelNames())
          ->excludes(model);
  command->add_option("--weights", options->model.weights, "Weight type of --random-model")
      ->capture_default_str()
      ->needs(random);
  command->add_option("--kv", options->model.plans, "Plans, separated by spaces")
      ->capture_default_str();
  command->add_option("--tokens", options->tokens, "Length of the text, in random tokens")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  command->add_option("--steps", options->steps, "Tokens decoded behind it with both caches")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--file", options->file, "The .varve file; removed at the end")
      ->type_name("FILE");
  command->add_option("--threads", options->model.threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--seed", options->model.seed, "Seed of weights and tokens")
      ->capture_default_str()
      ->check(NotNegative());
  command->add_option("--json", options->model.json,
                      "Write the rows as JSON to FILE, or - for stdout");
  command->footer(
      "Prefill is the model on the whole text; save ends when the file is durable; load is "
      "Cache::Load, which reads\nno page; first token is load and one decoded token, with every "
      "page read and checked on the way. The\nfile is in the page cache. Logits behind both are "
      "compared bit for bit.\n\n"
      "Examples:\n"
      "  varve bench reload                                          # the embedded model\n"
      "  varve bench reload --random-model small-1024 --tokens 16384 --kv q8_0");
  command->callback(Action(options, BenchReload, exit_code));
}

}  // namespace varve::cli
