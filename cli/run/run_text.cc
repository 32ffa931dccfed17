// `varve run` with one plan: text as it comes, the closing line.

#include <unistd.h>

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "base/machine.h"
#include "cli/fold/fold_report.h"
#include "cli/interrupt.h"
#include "cli/lossless/lossless_report.h"
#include "cli/plan_use.h"
#include "cli/report/cache_metrics.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "cli/report/retention_report.h"
#include "cli/run/run_file.h"
#include "cli/run/run_probe.h"
#include "cli/run/run_prompt.h"
#include "cli/run/text_run.h"
#include "runtime/stop_text.h"

namespace varve::cli {
TextRun::TextRun(RunOptions options, RunSetup setup, RunSetup::Lane lane, TraceRecorder* recorder,
                 const Timer& since_start)
    : options_(std::move(options)),
      setup_(std::move(setup)),
      lane_(std::move(lane)),
      recorder_(recorder),
      since_start_(since_start) {
  if (!options_.system.empty()) messages_.push_back({"system", options_.system});
}

void TextRun::Write(const std::string& text) {
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), setup_.out);
  std::fflush(setup_.out);
}

Result<std::string> TextRun::Show(std::span<const int32_t> prompt, bool is_answer) {
  const Tokenizer& tokenizer = *setup_.model.tokenizer;
  TextStream stream(tokenizer);
  // The stream takes off what a tokenizer puts in front of a text. A continuation is no beginning.
  if (!is_answer) {
    for (const int32_t token : prompt) stream.Next(token);
  }
  StopText stop(options_.stops);
  std::string text;
  Progress progress("prompt", static_cast<double>(prompt.size()));
  GenerateCallbacks callbacks;
  callbacks.on_prompt = [&](int64_t done) {
    progress.Update(static_cast<double>(done));
    return !InterruptScope::interrupted();
  };
  callbacks.on_token = [&](int32_t token) {
    progress.Clear();
    if (totals_.first_token_s == 0) {
      totals_.first_token_s = since_start_.seconds();
    }
    const std::string piece = stop.Next(stream.Next(token));
    text += piece;
    Write(piece);
    return !stop.stopped() && !InterruptScope::interrupted();
  };
  GenerateOptions generate = setup_.generate;
  generate.history = fed_;
  Result<Generation> generation =
      Generate(*setup_.runner, *lane_.cache, lane_.sequence, prompt, generate, callbacks);
  progress.Clear();
  if (!generation.ok()) return generation.status();
  const std::string rest = stop.Next(stream.Finish()) + stop.Finish();
  text += rest;
  Write(rest);
  fed_.insert(fed_.end(), prompt.begin(), prompt.begin() + generation->prompt_tokens);
  fed_.insert(fed_.end(), generation->tokens.begin(),
              generation->tokens.begin() + generation->decode_steps);
  waiting_.assign(prompt.begin() + generation->prompt_tokens, prompt.end());
  waiting_.insert(waiting_.end(), generation->tokens.begin() + generation->decode_steps,
                  generation->tokens.end());
  if (stop.stopped()) generation->stop = StopReason::kEndToken;
  totals_.Add(*generation);
  totals_.text += text;
  if (!generation->error.ok()) return CapReached(generation->error);
  return text;
}

Status TextRun::CapReached(const Status& error) const {
  const std::string done = fmt::format("{} tokens are done (prompt {}, generated {})", fed_.size(),
                                       totals_.prompt_tokens, totals_.tokens);
  if (error.code() != StatusCode::kOutOfMemory || options_.max_bytes == 0)
    return Status(error.code(), fmt::format("{}; {}", error.message(), done));
  return OutOfMemory(fmt::format("--max-bytes {}: no room for more; {}: {}", options_.max_bytes,
                                 done, error.message()));
}

void TextRun::EndLine(const std::string& text) {
  if (!text.empty() && !text.ends_with('\n')) Write("\n");
}

void TextRun::NoteStop() {
  if (totals_.stop == StopReason::kContext) {
    WriteNote(
        fmt::format("varve: the context of {} tokens is full\n", setup_.generate.max_context));
  } else if (totals_.stop == StopReason::kStopped) {
    WriteNote("varve: interrupted\n");
  }
}

Status TextRun::LoadFrom(const std::string& path) {
  VARVE_ASSIGN_OR_RETURN(LoadedText text, LoadText(path, setup_, &lane_));
  fed_ = std::move(text.fed);
  waiting_ = std::move(text.waiting);
  loaded_ = fed_;
  loaded_.insert(loaded_.end(), waiting_.begin(), waiting_.end());
  behind_answer_ = setup_.is_chat() && setup_.chat->IsBeginningOf(setup_.model.tokenizer->Decode(
                                           loaded_, /*show_special=*/true));
  return Status();
}

Status TextRun::Save(const std::string& path) const {
  std::vector<int32_t> tokens = fed_;
  tokens.insert(tokens.end(), waiting_.begin(), waiting_.end());
  VARVE_RETURN_IF_ERROR(SaveText(path, setup_, lane_, std::move(tokens)));
  WriteNote(fmt::format("saved {} tokens to {}\n", fed_.size(), path));
  return Status();
}

Status TextRun::Once() {
  VARVE_ASSIGN_OR_RETURN(std::string text, ReadPromptText(options_));
  if (PromptIsFromStdin(options_)) since_start_.Restart();
  VARVE_ASSIGN_OR_RETURN(std::vector<int32_t> prompt,
                         PromptTokens(options_, setup_, text, behind_answer_));
  prompt.insert(prompt.begin(), waiting_.begin(), waiting_.end());
  if (prompt.empty()) {
    return InvalidArgument(fmt::format(
        "prompt: empty, and {} has no token that waits to be continued", options_.load));
  }
  const InterruptScope scope;
  VARVE_ASSIGN_OR_RETURN(const std::string shown, Show(prompt, setup_.is_chat()));
  EndLine(shown);
  NoteStop();
  return Status();
}

Status TextRun::WriteTraceFile() const {
  RetentionTrace& trace = recorder_->trace();
  VARVE_RETURN_IF_ERROR(DescribeTrace(*lane_.cache, lane_.sequence, &trace));
  trace.plan = options_.plans[0];
  trace.model = setup_.model.name;
  trace.prompt_tokens = totals_.prompt_tokens;
  VARVE_RETURN_IF_ERROR(WriteTrace(options_.trace, trace));
  fmt::print(stderr, "the trace, {} plans of layers: {}\n", trace.events.size(), options_.trace);
  return Status();
}

std::string TextRun::CacheLine() const {
  lane_.cache->WaitForPacking();
  const auto in_cache = static_cast<int64_t>(fed_.size());
  const CacheFigures figures = FiguresOf(*lane_.cache, in_cache);
  return fmt::format("{} of {} tokens | cache {} with {}, {}", in_cache,
                     setup_.generate.max_context, HumanBytes(static_cast<double>(figures.bytes)),
                     options_.plans[0], SizeAgainstF16(figures.ratio));
}

nlohmann::ordered_json TextRun::TurnRow(const ChatTurn& turn) const {
  const CacheFigures figures = FiguresOf(*lane_.cache, static_cast<int64_t>(fed_.size()));
  return {{"role", "turn"},
          {"plan", options_.plans[0]},
          {"model", setup_.model.name},
          {"prompt_tokens", turn.totals.prompt_tokens},
          {"prompt_tokens_per_s", turn.totals.prompt_tokens_per_s()},
          {"tokens", turn.totals.tokens},
          {"tokens_per_s", turn.totals.tokens_per_s()},
          {"tokens_in_cache", fed_.size()},
          {"cache_bytes", figures.bytes},
          {"ratio", figures.ratio},
          {"forgotten_messages", turn.forgotten_messages},
          {"stop", StopReasonName(turn.totals.stop)},
          {"text", turn.totals.text}};
}

Status TextRun::Finish() {
  const auto in_cache = static_cast<int64_t>(fed_.size());
  lane_.cache->WaitForPacking();
  const CacheFigures figures = FiguresOf(*lane_.cache, in_cache);
  const CacheReport stats = lane_.cache->Report();
  const uint64_t resident = ResidentBytes();
  const double prompt_speed = totals_.prompt_tokens_per_s();
  const double speed = totals_.tokens_per_s();
  WriteNote(fmt::format(
      "prompt {} tokens, {:.1f} tokens/s | generated {} tokens, {:.1f} tokens/s | first "
      "token {:.2f} s | cache {} with {}, {} | resident {}\n",
      totals_.prompt_tokens, prompt_speed, totals_.tokens, speed, totals_.first_token_s,
      HumanBytes(static_cast<double>(figures.bytes)), options_.plans[0],
      SizeAgainstF16(figures.ratio), HumanBytes(static_cast<double>(resident))));
  PrintRetention(options_.plans[0], stats, in_cache, stderr);
  PrintLossless(options_.plans[0], stats.lossless, stderr);
  PrintFold(options_.plans[0], stats.fold, stderr);
  const PlanUse use = MakePlanUse(setup_.plans[0], lane_.cache->shape(), UseOf(stats));
  const std::pair<const char*, uint64_t> constants[] = {{"codebook", use.codebook_bytes},
                                                        {"compressor", use.compressor_bytes}};
  for (const auto& [what, bytes] : constants) {
    if (bytes == 0) continue;
    WriteNote(fmt::format("{}: {} {}, not in the cache\n", options_.plans[0], what,
                          HumanBytes(static_cast<double>(bytes))));
  }
  PrintFallbacks(options_.plans[0], use.fallbacks, stderr);
  PrintNonfinite(options_.plans[0], stats.nonfinite_values, stderr);
  for (const std::string& note : stats.plan_notes)
    WriteNote(fmt::format("{}: {}\n", options_.plans[0], note));
  Status written = options_.trace.empty() ? Status() : WriteTraceFile();
  const Status saved = options_.save.empty() ? Status() : Save(options_.save);
  if (written.ok()) written = saved;
  if (options_.json.empty()) return written;
  nlohmann::ordered_json row = {{"plan", options_.plans[0]},
                                {"model", setup_.model.name},
                                {"ctx", setup_.generate.max_context},
                                {"loaded_tokens", loaded_.size()},
                                {"prompt_tokens", totals_.prompt_tokens},
                                {"prompt_tokens_per_s", prompt_speed},
                                {"tokens", totals_.tokens},
                                {"tokens_per_s", speed},
                                {"first_token_s", totals_.first_token_s},
                                {"cache_bytes", figures.bytes},
                                {"cache_bytes_f16", figures.bytes_f16},
                                {"bytes_per_token", figures.bytes_per_token},
                                {"ratio", figures.ratio},
                                {"resident_bytes", resident},
                                {"seed", setup_.generate.sampler.seed},
                                {"temperature", setup_.generate.sampler.temperature},
                                {"stop", StopReasonName(totals_.stop)},
                                {"text", totals_.text}};
  AddCacheMetrics(stats, &row);
  row["nonfinite_values"] = stats.nonfinite_values;
  row["fold"] = FoldJson(stats.fold);
  AddPlanUseKeys(use, &row);
  return FinishJson(written, options_.json, "run", nlohmann::ordered_json::array({row}));
}

Status RunText(const RunOptions& asked) {
  const Timer since_start;
  RunOptions options = asked;
  VARVE_RETURN_IF_ERROR(TakePlanOfFile(&options));
  VARVE_ASSIGN_OR_RETURN(RunSetup setup, PrepareRun(options));
  WarnOfLoss(options, setup);
  TraceRecorder recorder;
  VARVE_ASSIGN_OR_RETURN(
      RunSetup::Lane lane,
      setup.MakeLane(setup.plans[0], options.trace.empty() ? nullptr : &recorder));
  const bool converse =
      setup.is_chat() && !options.prompt && options.file.empty() && isatty(STDIN_FILENO) != 0;
  TextRun run(options, std::move(setup), std::move(lane), &recorder, since_start);
  VARVE_RETURN_IF_ERROR(run.Load());
  // A run that ends in an error keeps what was done: its file, its closing line and its JSON.
  Status ended = converse ? run.Converse() : run.Once();
  if (!ended.ok() && !run.has_begun()) return ended;
  const Status finished = run.Finish();
  return ended.ok() ? finished : ended;
}

}  // namespace varve::cli
