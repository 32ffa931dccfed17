#include "cli/run/run_options.h"

#include <utility>

#include <fmt/format.h>

#include "cli/report/output.h"
#include "cli/run/run_prompt.h"
#include "runtime/model_cache.h"

namespace varve::cli {
namespace {

constexpr int64_t kTextTokens = 256;

// Lines of plans with log_stats=1.
class StderrLog final : public LogSink {
 public:
  void OnLine(std::string_view line) override { WriteNote(fmt::format("{}\n", line)); }
};

Result<std::vector<Plan>> ReadPlans(const RunOptions& options, const DecoderModel& model) {
  std::vector<Plan> plans;
  for (const std::string& text : options.plans) {
    VARVE_ASSIGN_OR_RETURN(Plan plan, ReadKvOption(text));
    // Making an empty cache costs nothing and refuses what this model cannot have.
    CacheOptions trial = CacheOptionsFor(model);
    trial.plan = plan;
    trial.num_threads = 1;
    const Status status = Cache::Create(model.cache_shape(), std::move(trial)).status();
    if (!status.ok()) {
      return Status(status.code(), fmt::format("--kv \"{}\": {}", text, status.message()));
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

Result<GenerateOptions> ReadGenerateOptions(const RunOptions& options, const LoadedModel& model,
                                            bool is_chat) {
  const int64_t context = model.model->context();
  if (options.ctx > context) {
    return InvalidArgument(
        fmt::format("--ctx {} > {}, the context of {}", options.ctx, context, model.name));
  }
  const bool is_single = options.plans.size() == 1;
  GenerateOptions generate;
  generate.max_context = options.ctx > 0 ? options.ctx : context;
  generate.max_tokens = options.tokens;
  if (options.tokens < 0) {
    generate.max_tokens = is_chat && is_single ? generate.max_context : kTextTokens;
  }
  generate.sampler = options.sampler;
  generate.sampler.temperature = options.temperature.value_or(is_single ? kTextTemperature : 0.0f);
  generate.sampler.top_p = options.top_p.value_or(is_single ? kTextTopP : 1.0f);
  VARVE_RETURN_IF_ERROR(CheckSamplerOptions(generate.sampler));
  if (options.ignore_end) return generate;
  generate.is_end = [tokenizer = model.tokenizer.get()](int32_t token) {
    return tokenizer->IsEnd(token);
  };
  return generate;
}

}  // namespace

Result<RunSetup> PrepareRun(const RunOptions& options) {
  if (!options.trace.empty() && (options.plans.size() != 1 || !options.report.empty())) {
    return InvalidArgument(
        fmt::format("--trace \"{}\": a trace is of one plan, without --report", options.trace));
  }
  if (!options.stops.empty() && options.plans.size() != 1) {
    return InvalidArgument("--stop: ends the text of one plan, not of several side by side");
  }
  for (const auto& [option, file] : {std::pair("--load", options.load), {"--save", options.save}}) {
    if (file.empty() || (options.plans.size() == 1 && options.report.empty())) continue;
    return InvalidArgument(
        fmt::format("{} \"{}\": a file is of one plan, without --report", option, file));
  }
  VARVE_RETURN_IF_ERROR(CheckWritable("--save", options.save));
  VARVE_RETURN_IF_ERROR(CheckWritable("--json", options.json));
  VARVE_RETURN_IF_ERROR(CheckWritable("--report", options.report));
  VARVE_RETURN_IF_ERROR(CheckWritable("--trace", options.trace));
  VARVE_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(options.model));
  VARVE_ASSIGN_OR_RETURN(std::optional<ChatTemplate> chat, ChatTemplateOf(options, model));
  VARVE_ASSIGN_OR_RETURN(GenerateOptions generate,
                         ReadGenerateOptions(options, model, chat.has_value()));
  VARVE_ASSIGN_OR_RETURN(std::vector<Plan> plans, ReadPlans(options, *model.model));
  RunSetup setup;
  setup.executor = MakeThreadPool(options.threads);
  const bool on_cpu = options.device == "cpu";
  VARVE_RETURN_IF_ERROR(RepackModel(on_cpu ? options.repack : "off", *setup.executor, model.model));
  std::shared_ptr<const DecoderModel> placed = model.model;
  VARVE_RETURN_IF_ERROR(PlaceModel(options.device, *setup.executor, placed));
  setup.runner = placed->MakeRunner(*setup.executor,
                                    FindPrecision(options.precision).value_or(FastestPrecision()));
  setup.model = std::move(model);
  setup.plans = std::move(plans);
  setup.generate = std::move(generate);
  setup.chat = std::move(chat);
  setup.chat_name = options.chat_format.empty() ? "the model's chat template"
                                                : "chat format " + options.chat_format;
  setup.max_bytes = options.max_bytes;
  setup.out = options.json == "-" ? stderr : stdout;
  return setup;
}

Result<RunSetup::Lane> RunSetup::MakeLane(const Plan& plan, RetentionObserver* observer,
                                          bool has_cap) const {
  CacheOptions cache_options = CacheOptionsFor(runner->model());
  cache_options.plan = plan;
  if (has_cap && max_bytes > 0) cache_options.max_bytes = max_bytes;
  cache_options.executor = executor.get();
  cache_options.retention_observer = observer;
  static StderrLog log;
  cache_options.log = &log;
  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<Cache> cache,
                         Cache::Create(model.model->cache_shape(), std::move(cache_options)));
  VARVE_ASSIGN_OR_RETURN(SequenceId sequence, cache->CreateSequence());
  return Lane{std::move(cache), sequence};
}

CacheFigures FiguresOf(const Cache& cache, int64_t num_tokens) {
  const CacheStats stats = cache.Stats();
  const CacheShape& shape = cache.shape();
  CacheFigures figures;
  figures.bytes = stats.bytes_held + stats.bytes_tables;
  figures.bytes_f16 = static_cast<uint64_t>(num_tokens) * static_cast<uint64_t>(shape.num_layers) *
                      static_cast<uint64_t>(shape.num_kv_heads) *
                      static_cast<uint64_t>(shape.key_dim + shape.value_dim) * 2;
  if (figures.bytes > 0) {
    figures.ratio = static_cast<double>(figures.bytes_f16) / static_cast<double>(figures.bytes);
  }
  if (num_tokens > 0) {
    figures.bytes_per_token = static_cast<double>(figures.bytes) / static_cast<double>(num_tokens);
  }
  return figures;
}

}  // namespace varve::cli
