// `varve run --prompts DIR`: every file of a folder is a prompt; some are decoded together.

#include <algorithm>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "base/machine.h"
#include "base/timer.h"
#include "cli/folder_files.h"
#include "cli/interrupt.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "cli/run/run_memory.h"
#include "cli/run/run_options.h"
#include "cli/run/run_prompt.h"
#include "runtime/generate_batch.h"

namespace varve::cli {
namespace {

namespace fs = std::filesystem;

// The texts go to files beside one another: never over the prompts.
Status PrepareOutput(const RunOptions& options) {
  if (options.output.empty()) return Status();
  std::error_code error;
  fs::create_directories(options.output, error);
  if (error) {
    return IoError(
        fmt::format("--output \"{}\": cannot be made: {}", options.output, error.message()));
  }
  if (fs::equivalent(options.output, options.prompts, error)) {
    return InvalidArgument(fmt::format(
        "--output \"{}\": the folder of the prompts, which it would overwrite", options.output));
  }
  return CheckWritable("--output", (fs::path(options.output) / ".varve-run").string());
}

class PromptsRun {
 public:
  PromptsRun(const RunOptions& options, RunSetup setup, RunSetup::Lane lane)
      : options_(options), setup_(std::move(setup)), lane_(std::move(lane)) {}
  Status Run();

 private:
  Status ReadPrompts();
  std::string TextOf(size_t index, const Generation& generation) const;
  void Done(size_t index, const Generation& generation);
  bool Moment(const BatchMoment& moment, Progress& progress);
  // Writes what is complete, in the order of the names.
  void WriteReady();
  Status Finish(const Status& ended);

  const RunOptions& options_;
  RunSetup setup_;
  RunSetup::Lane lane_;
  std::vector<std::string> names_;
  std::vector<std::vector<int32_t>> prompts_;
  struct Answer {
    Generation generation;
    std::string text;
  };
  std::vector<std::optional<Answer>> answers_;  // by prompt; empty: not there yet
  size_t next_to_write_ = 0;
  Status written_;  // the first file that failed
  Timer since_start_;
  MemoryTrack memory_;
};

Status PromptsRun::ReadPrompts() {
  VARVE_ASSIGN_OR_RETURN(names_, ListFiles("--prompts", options_.prompts));
  const int vocab = setup_.model.model->vocab_size();
  for (const std::string& name : names_) {
    const auto in_file = [&](const Status& status) {
      return Status(
          status.code(),
          fmt::format("{}: {}", (fs::path(options_.prompts) / name).string(), status.message()));
    };
    RunOptions one = options_;
    one.prompt.reset();
    one.file = (fs::path(options_.prompts) / name).string();
    VARVE_ASSIGN_OR_RETURN(std::string text, ReadPromptText(one));
    Result<std::vector<int32_t>> tokens = PromptTokens(one, setup_, text);
    if (!tokens.ok()) return in_file(tokens.status());
    const Status fits = CheckPrompt(*tokens, 0, setup_.generate.max_context, vocab);
    if (!fits.ok()) return in_file(fits);
    prompts_.push_back(*std::move(tokens));
  }
  answers_.resize(prompts_.size());
  return Status();
}

std::string PromptsRun::TextOf(size_t index, const Generation& generation) const {
  TextStream stream(*setup_.model.tokenizer);
  // As when one prompt runs: a continuation is no beginning.
  if (!setup_.is_chat()) {
    for (const int32_t token : prompts_[index]) stream.Next(token);
  }
  std::string text;
  for (const int32_t token : generation.tokens) text += stream.Next(token);
  return text + stream.Finish();
}

void PromptsRun::WriteReady() {
  for (; next_to_write_ < answers_.size() && answers_[next_to_write_]; ++next_to_write_) {
    const std::string& name = names_[next_to_write_];
    const std::string& text = answers_[next_to_write_]->text;
    if (!options_.output.empty()) {
      const Status status = WriteText((fs::path(options_.output) / name).string(), text);
      if (written_.ok()) written_ = status;
      continue;
    }
    const bool colour = UseColour(setup_.out);
    WriteNote(fmt::format("{}--- {} ---{}\n{}{}", colour ? "\x1b[1m" : "", name,
                          colour ? "\x1b[0m" : "", text, text.ends_with('\n') ? "" : "\n"),
              setup_.out);
    std::fflush(setup_.out);
  }
}

void PromptsRun::Done(size_t index, const Generation& generation) {
  answers_[index] = Answer{generation, TextOf(index, generation)};
}

bool PromptsRun::Moment(const BatchMoment& moment, Progress& progress) {
  const CacheFigures figures = FiguresOf(*lane_.cache, moment.tokens);
  memory_.Add({since_start_.seconds(),
               moment.sequences,
               moment.tokens,
               figures.bytes,
               figures.bytes_f16,
               {}});
  if (next_to_write_ < answers_.size() && answers_[next_to_write_]) {
    progress.Clear();
    WriteReady();
  }
  progress.Update(
      static_cast<double>(moment.done),
      fmt::format("{} of {} prompts, {} together, cache {}", moment.done, prompts_.size(),
                  moment.sequences, HumanBytes(static_cast<double>(figures.bytes))));
  return !InterruptScope::interrupted() && written_.ok();
}

Status PromptsRun::Finish(const Status& ended) {
  WriteReady();
  int64_t prompt_tokens = 0;
  int64_t tokens = 0;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (size_t i = 0; i < answers_.size(); ++i) {
    if (!answers_[i]) continue;
    const Generation& generation = answers_[i]->generation;
    prompt_tokens += generation.prompt_tokens;
    tokens += static_cast<int64_t>(generation.tokens.size());
    rows.push_back({{"role", "prompt"},
                    {"plan", options_.plans[0]},
                    {"model", setup_.model.name},
                    {"prompt", names_[i]},
                    {"prompt_tokens", generation.prompt_tokens},
                    {"tokens", generation.tokens.size()},
                    {"tokens_per_s", generation.decode_tokens_per_s()},
                    {"stop", StopReasonName(generation.stop)},
                    {"text", answers_[i]->text}});
  }
  const double seconds = since_start_.seconds();
  memory_.Print(stderr);
  WriteNote(fmt::format(
      "{} of {} prompts, {} together at most | prompt {} tokens, generated {} tokens in {:.1f} s, "
      "{:.1f} tokens/s in all | cache {} at most with {}, {} on average | "
      "resident "
      "{}\n",
      rows.size(), prompts_.size(), options_.together, prompt_tokens, tokens, seconds,
      static_cast<double>(tokens) / seconds, HumanBytes(static_cast<double>(memory_.peak_bytes())),
      options_.plans[0], SizeAgainstF16(memory_.mean_ratio()),
      HumanBytes(static_cast<double>(ResidentBytes()))));
  if (InterruptScope::interrupted()) WriteNote("varve: interrupted; this is what there is\n");
  memory_.AddRows(&rows);
  return FinishJson(ended.ok() ? written_ : ended, options_.json, "run", rows);
}

Status PromptsRun::Run() {
  VARVE_RETURN_IF_ERROR(ReadPrompts());
  VARVE_RETURN_IF_ERROR(lane_.cache->Free(lane_.sequence));
  since_start_.Restart();
  const InterruptScope scope;
  Progress progress("prompts", static_cast<double>(prompts_.size()));
  BatchCallbacks callbacks;
  callbacks.on_done = [this](size_t index, const Generation& generation) {
    Done(index, generation);
  };
  callbacks.on_step = [&](const BatchMoment& moment) { return Moment(moment, progress); };
  const Status ended = GenerateBatch(*setup_.runner, *lane_.cache, prompts_, setup_.generate,
                                     options_.together, callbacks);
  progress.Clear();
  return Finish(ended);
}

}  // namespace

Status RunPrompts(const RunOptions& options) {
  if (options.plans.size() != 1 || !options.report.empty()) {
    return InvalidArgument("--prompts: a folder is run with one plan, without --report");
  }
  for (const auto& [option, file] :
       {std::pair("--load", options.load), {"--save", options.save}, {"--trace", options.trace}}) {
    if (!file.empty())
      return InvalidArgument(fmt::format("--prompts: not together with {}", option));
  }
  VARVE_RETURN_IF_ERROR(PrepareOutput(options));
  VARVE_ASSIGN_OR_RETURN(RunSetup setup, PrepareRun(options));
  VARVE_ASSIGN_OR_RETURN(RunSetup::Lane lane, setup.MakeLane(setup.plans[0]));
  return PromptsRun(options, std::move(setup), std::move(lane)).Run();
}

}  // namespace varve::cli
