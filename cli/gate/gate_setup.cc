#include "cli/gate/gate_setup.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "cli/gate/gate_files.h"
#include "cli/gate/gate_speed.h"
#include "cli/report/output.h"
#include "runtime/embedded_model.h"

#ifndef VARVE_VERSION
#define VARVE_VERSION "unknown"
#endif

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

Status ReadGateBaseline(const GateOptions& options, GateSetup* setup) {
  if (!options.baseline.empty()) {
    VARVE_ASSIGN_OR_RETURN(setup->baseline, ReadBaselineFile(options.baseline, setup->place));
  } else if (!options.history.empty()) {
    VARVE_ASSIGN_OR_RETURN(setup->baseline,
                           ReadHistory(options.history, setup->place, options.history_runs));
  }
  return Status();
}

Status ReadGatePrompts(const GateOptions& options, GateSetup* setup) {
  std::set<int64_t> buckets;
  for (const GateCase& gate_case : setup->cases) {
    buckets.insert(gate_case.buckets.begin(), gate_case.buckets.end());
  }
  GatePromptOptions wanted;
  wanted.buckets.assign(buckets.begin(), buckets.end());
  wanted.reply_tokens = setup->effort.reply_tokens();
  wanted.per_bucket = setup->effort.per_bucket;
  const Tokenizer& tokenizer = *setup->model.tokenizer;
  std::vector<GatePrompt> prompts;
  if (!options.prompts.empty()) {
    VARVE_ASSIGN_OR_RETURN(prompts, FolderPrompts(tokenizer, options.prompts, wanted));
  } else if (options.turns.empty()) {
    const std::vector<GateFile> files = EmbeddedGateFiles();
    const auto manifest = std::ranges::find(files, "prompts/manifest.json", &GateFile::name);
    VARVE_ASSIGN_OR_RETURN(prompts,
                           PassagePrompts(tokenizer, manifest->text, EmbeddedEvalText(), wanted));
  }
  if (!options.turns.empty()) {
    VARVE_ASSIGN_OR_RETURN(std::vector<GatePrompt> turns,
                           TurnPrompts(tokenizer, options.turns, wanted));
    std::ranges::move(turns, std::back_inserter(prompts));
  }
  const int64_t context = setup->model.model->context();
  std::erase_if(prompts, [&](const GatePrompt& prompt) {
    if (prompt.end_tokens() <= context) return false;
    WriteNote(fmt::format("varve: prompt {}: {} tokens > {}, the model's context; left out\n",
                          prompt.name, prompt.end_tokens(), context));
    return true;
  });
  if (prompts.empty()) return InvalidArgument("no prompt fits the model's context");
  setup->prompts = std::move(prompts);
  return Status();
}

}  // namespace

int64_t GateEffort::reply_tokens() const { return 1 + int64_t{blocks} * kGateBlockTokens; }

GateEffort EffortOf(const GateOptions& options) {
  GateEffort effort;
  if (options.quick) {
    effort.per_bucket = 1;
    effort.blocks = 8;
    effort.retries = 1;
    effort.quality.windows = 1;
    effort.quality.asked = 10;
  }
  if (options.retries >= 0) effort.retries = options.retries;
  return effort;
}

Result<GateSetup> PrepareGate(const GateOptions& options) {
  GateSetup setup;
  setup.effort = EffortOf(options);
  VARVE_ASSIGN_OR_RETURN(setup.cases, LoadGateCases(options.cases, options.names));
  std::error_code error;
  std::filesystem::create_directories(options.output, error);
  const std::string summary = (std::filesystem::path(options.output) / "summary.json").string();
  VARVE_RETURN_IF_ERROR(CheckWritable("-o", summary));
  VARVE_RETURN_IF_ERROR(CheckWritable("--history", options.history));
  VARVE_ASSIGN_OR_RETURN(setup.model, LoadModel(options.model));
  setup.text = EmbeddedEvalText();
  if (!options.text.empty()) {
    VARVE_ASSIGN_OR_RETURN(setup.text, ReadTextFile(options.text));
  }
  setup.executor = MakeThreadPool(options.threads);
  setup.runner = setup.model.model->MakeRunner(*setup.executor, FastestPrecision());
  setup.place = {MachineFingerprint(), fmt::format("{:016x}", setup.model.model->fingerprint())};
  VARVE_RETURN_IF_ERROR(ReadGateBaseline(options, &setup));
  VARVE_RETURN_IF_ERROR(ReadGatePrompts(options, &setup));
  return setup;
}

Json GateHead(const GateOptions& options, const GateSetup& setup, double seconds) {
  Json head;
  head["command"] = options.command;
  head["version"] = VARVE_VERSION;
  head["date"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  head["seconds"] = seconds;
  head["machine"] = MachineJson();
  head["machine"]["fingerprint"] = setup.place.machine;
  const CacheShape& shape = setup.model.model->cache_shape();
  head["model"] = {{"name", setup.model.model->name()},
                   {"file", setup.model.name},
                   {"architecture", setup.model.model->info().architecture},
                   {"layers", shape.num_layers},
                   {"kv_heads", shape.num_kv_heads},
                   {"group_size", shape.group_size},
                   {"key_dim", shape.key_dim},
                   {"value_dim", shape.value_dim},
                   {"context", setup.model.model->context()},
                   {"f16_bytes_per_token",
                    2 * shape.num_layers * shape.num_kv_heads * (shape.key_dim + shape.value_dim)},
                   {"fingerprint", setup.place.model}};
  head["settings"] = {{"quick", options.quick},
                      {"runs", options.runs},
                      {"threads", setup.executor->num_threads()},
                      {"decode_tokens", setup.effort.reply_tokens()},
                      {"retries", setup.effort.retries},
                      {"baseline", setup.baseline.said},
                      {"cases", options.cases.empty() ? "embedded" : options.cases},
                      {"prompts", options.prompts.empty() ? "shipped" : options.prompts}};
  return head;
}

}  // namespace varve::cli
