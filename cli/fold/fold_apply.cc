#include "cli/fold/fold_apply.h"

#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "base/machine.h"
#include "cli/fold/fold_report.h"
#include "cli/interrupt.h"
#include "cli/lossless/dump_command.h"
#include "cli/model_argument.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "runtime/model/decoder_model.h"
#include "runtime/model_cache.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

// The cache at one moment.
struct Moment {
  const char* name;
  int64_t rows = 0;  // of all layers
  CacheReport stats;
  uint64_t resident_bytes = 0;

  uint64_t cache_bytes() const { return stats.bytes_held + stats.bytes_tables; }
};

Moment Look(const char* name, const Cache& cache, SequenceId sequence) {
  Moment moment;
  moment.name = name;
  moment.stats = cache.Report();
  moment.resident_bytes = ResidentBytes();
  for (int layer = 0; layer < cache.shape().num_layers; ++layer)
    moment.rows += cache.Describe(sequence, layer)->live_rows;
  return moment;
}

void Print(const std::vector<Moment>& moments, int64_t tokens, int layers, std::FILE* out) {
  TextTable table(
      {"", ">tokens", ">rows a layer", ">pages", ">cache", ">bytes/token", ">resident"});
  for (const Moment& moment : moments) {
    table.AddRow({moment.name, fmt::format("{}", tokens),
                  fmt::format("{:.1f}", static_cast<double>(moment.rows) / layers),
                  fmt::format("{}", moment.stats.pages),
                  HumanBytes(static_cast<double>(moment.cache_bytes())),
                  fmt::format("{:.1f}", static_cast<double>(moment.cache_bytes()) /
                                            static_cast<double>(tokens)),
                  HumanBytes(static_cast<double>(moment.resident_bytes))});
  }
  table.Print(out);
  const CacheReport& after = moments.back().stats;
  fmt::print(out, "{}\n", FoldLine(after.fold));
  fmt::print(out, "compressor {}, once for the model and in no other figure\n",
             HumanBytes(static_cast<double>(after.bytes_compressors)));
}

Json ReportJson(const FoldApplyOptions& options, const std::vector<Moment>& moments) {
  Json rows = Json::array();
  for (const Moment& moment : moments) {
    rows.push_back({{"moment", moment.name},
                    {"compressor", options.compressor},
                    {"tokens", options.tokens},
                    {"rows", moment.rows},
                    {"pages", moment.stats.pages},
                    {"cache_bytes", moment.cache_bytes()},
                    {"resident_bytes", moment.resident_bytes},
                    {"compressor_bytes", moment.stats.bytes_compressors},
                    {"fold", FoldJson(moment.stats.fold)}});
  }
  return rows;
}

Status ReadPrompt(const LoadedModel& model, const std::vector<int32_t>& tokens, Cache& cache,
                  SequenceId sequence, Executor& executor) {
  const std::unique_ptr<DecoderRunner> runner = model.model->MakeRunner(executor);
  const InterruptScope interrupt;
  Progress progress("fold apply", static_cast<double>(tokens.size()));
  return runner->Forward(cache, sequence, tokens, Logits::kNone, nullptr, [&](int64_t done) {
    progress.Update(static_cast<double>(done));
    return !InterruptScope::interrupted();
  });
}

}  // namespace

Result<Plan> FoldPlan(const FoldApplyOptions& options) {
  Plan plan;
  if (!options.rest.empty()) {
    Result<Plan> rest = ReadKvOption(options.rest);
    if (!rest.ok()) return rest.status();
    plan = std::move(*rest);
  }
  if (plan.rules.empty()) plan.rules.emplace_back();
  for (LayerRule& rule : plan.rules) {
    if (rule.fold) return InvalidArgument("--kv: fold= is what this command adds; leave it out");
    rule.fold = options.compressor;
    if (options.image > 0) rule.image_tokens = options.image;
  }
  if (options.restart) plan.settings.fold_positions = FoldPositions::kRestart;
  return plan;
}

Status ApplyCompressor(const FoldApplyOptions& options) {
  if (!options.output.empty()) VARVE_RETURN_IF_ERROR(CheckWritable("-o", options.output));
  if (!options.json.empty()) VARVE_RETURN_IF_ERROR(CheckWritable("--json", options.json));
  Result<Plan> plan = FoldPlan(options);
  if (!plan.ok()) return plan.status();
  Result<LoadedModel> model = LoadModel(options.model);
  if (!model.ok()) return model.status();
  const Result<std::vector<int32_t>> tokens =
      ReadTextTokens(*model, options.text, options.tokens, "--prompt-tokens");
  if (!tokens.ok()) return tokens.status();
  const std::unique_ptr<Executor> executor = MakeThreadPool(options.threads);
  CacheOptions cache_options = CacheOptionsFor(*model->model);
  cache_options.plan = std::move(*plan);
  cache_options.executor = executor.get();
  Result<std::unique_ptr<Cache>> cache =
      Cache::Create(model->model->cache_shape(), std::move(cache_options));
  if (!cache.ok()) return cache.status();
  const Result<SequenceId> sequence = (*cache)->CreateSequence();
  if (!sequence.ok()) return sequence.status();

  VARVE_RETURN_IF_ERROR(ReadPrompt(*model, *tokens, **cache, *sequence, *executor));
  std::vector<Moment> moments = {Look("prompt", **cache, *sequence)};
  VARVE_RETURN_IF_ERROR((*cache)->EndPrompt(*sequence));
  (*cache)->WaitForPacking();
  moments.push_back(Look("folded", **cache, *sequence));

  if (options.json != "-") Print(moments, options.tokens, (*cache)->shape().num_layers, stdout);
  if (!options.output.empty()) {
    SaveOptions save;
    save.sequences = {{*sequence, *tokens}};
    save.model_fingerprint = model->model->fingerprint();
    save.model_name = model->name;
    VARVE_RETURN_IF_ERROR((*cache)->Save(options.output, save));
    WriteNote(fmt::format("saved to {}\n", options.output));
  }
  if (options.json.empty()) return FlushStdout();
  return WriteJson(options.json, "fold apply", ReportJson(options, moments));
}

void AddFoldApply(CLI::App* parent, int* exit_code) {
  CLI::App* command =
      parent->add_subcommand("apply", "Fold a prompt and say what that saves in memory");
  auto options = std::make_shared<FoldApplyOptions>();
  command
      ->add_option("FILE", options->compressor,
                   "A compressor (.bin), or `shipped`: the one of the embedded model")
      ->required();
  AddModelOption(*command, options->model);
  command
      ->add_option("-f,--file", options->text,
                   "Text, - for stdin (default: the evaluation text of the embedded model)")
      ->type_name("FILE");
  command->add_option("--prompt-tokens", options->tokens, "Tokens of the text that are the prompt")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--image", options->image, "Of them, the first so many are an image's")
      ->check(CLI::Range(0, 1 << 24));
  command->add_flag("--restart-positions", options->restart,
                    "Positions go on at the folded length, not at the true one");
  command->add_option("--kv", options->rest, "What else the plan says: rungs, policies, packing")
      ->type_name("PLAN");
  command->add_option("-o,--output", options->output, "Save the folded cache (.varve)")
      ->type_name("FILE");
  command->add_option("--threads", options->threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--json", options->json,
                      "Write JSON to FILE (- is stdout, without the table)");
  command->footer(
      "What folding does to the quality of a model: varve eval kl --kv fold=FILE\n\n"
      "Examples:\n"
      "  varve fold apply shipped\n"
      "  varve fold apply models/varve-books-29m-fold5.bin --prompt-tokens 4000 --kv q8_0\n"
      "  varve fold apply mine.bin -m model.gguf -f book.txt -o book.varve");
  command->callback(Action(options, ApplyCompressor, exit_code));
}

}  // namespace varve::cli
