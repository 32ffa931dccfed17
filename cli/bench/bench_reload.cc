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

}  // namespace

Result<Json> MeasureReload(const BenchReloadOptions& options, const std::string& plan,
                           std::shared_ptr<const DecoderModel> model, Executor& executor) {
  CacheOptions cache_options = CacheOptionsFor(*model);
  VARVE_ASSIGN_OR_RETURN(Plan parsed, ReadKvOption(plan));
  cache_options.plan = parsed;
  cache_options.executor = &executor;
  const CacheShape shape = model->cache_shape();
  const auto vocab = static_cast<size_t>(model->vocab_size());
  const std::unique_ptr<DecoderRunner> runner = model->MakeRunner(executor);
  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<Cache> cache, Cache::Create(shape, cache_options));
  VARVE_ASSIGN_OR_RETURN(SequenceId id, cache->CreateSequence());
  SplitMix64 random(options.model.seed);
  std::vector<int32_t> tokens(static_cast<size_t>(options.tokens));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random.Next() % vocab);
  std::vector<float> logits(vocab);  // [vocab_size]
  Progress progress("prefill", static_cast<double>(tokens.size()));
  const Timer prefill_timer;
  VARVE_RETURN_IF_ERROR(
      runner->Forward(*cache, id, tokens, Logits::kLast, logits.data(), [&](int64_t done) {
        progress.Update(static_cast<double>(done));
        return true;
      }));
  const double prefill_s = prefill_timer.seconds();
  progress.Clear();
  VARVE_RETURN_IF_ERROR(cache->EndPrompt(id));

  const RemoveWhenDone remove(options.file);
  const Timer save_timer;
  SaveOptions save_options;
  save_options.sequences.push_back({id, tokens});
  VARVE_RETURN_IF_ERROR(cache->Save(options.file, save_options));
  const double save_s = save_timer.seconds();

  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<Cache> other, Cache::Create(shape, cache_options));
  const Timer load_timer;
  VARVE_ASSIGN_OR_RETURN(std::vector<SequenceTokens> loaded, other->Load(options.file, {}));
  const double load_s = load_timer.seconds();
  double first_token_s = 0;
  double decode_token_s = 0;
  std::vector<float> again(vocab);  // [vocab_size]
  for (int step = 0; step < options.steps; ++step) {
    const auto token = static_cast<int32_t>(random.Next() % vocab);
    const DecodeEntry entry{loaded.front().sequence, token};
    VARVE_RETURN_IF_ERROR(runner->Decode(*other, {&entry, 1}, again.data()));
    if (step == 0) first_token_s = load_timer.seconds();
    const DecodeEntry expected{id, token};
    const Timer decode_timer;
    VARVE_RETURN_IF_ERROR(runner->Decode(*cache, {&expected, 1}, logits.data()));
    if (step == 0) decode_token_s = decode_timer.seconds();
    if (std::memcmp(again.data(), logits.data(), vocab * sizeof(float)) != 0) {
      return Internal(
          fmt::format("--kv \"{}\": the logits of token {} behind the file differ", plan, step));
    }
  }
  VARVE_ASSIGN_OR_RETURN(CacheFileInfo info, ReadCacheFileInfo(options.file));
  return Json{{"plan", plan},
              {"tokens", options.tokens},
              {"prefill_s", prefill_s},
              {"save_s", save_s},
              {"load_s", load_s},
              {"first_token_s", first_token_s},
              {"decode_token_s", decode_token_s},
              {"speedup", (prefill_s + decode_token_s) / first_token_s},
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
    Result<Json> row = MeasureReload(options, plan, model, *executor);
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
                       "A shape with random weights in place of a file: qwen3-0.6b, small-1024, "
                       "deep-512")
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
      ->check(CLI::NonNegativeNumber);
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
  command->callback([options, exit_code] {
    const Status status = BenchReload(*options);
    if (!status.ok()) *exit_code = ReportError(status);
  });
}

}  // namespace varve::cli
