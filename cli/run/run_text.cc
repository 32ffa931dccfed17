// `varve run` with one plan: text as it comes, a conversation, the closing line.

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <string>

#include <fmt/format.h>

#include "base/machine.h"
#include "base/timer.h"
#include "cli/fold/fold_report.h"
#include "cli/interrupt.h"
#include "cli/lossless/lossless_report.h"
#include "cli/plan_use.h"
#include "cli/report/cache_metrics.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "cli/report/retention_report.h"
#include "cli/report/retention_trace.h"
#include "cli/run/run_file.h"
#include "cli/run/run_options.h"
#include "cli/run/run_probe.h"
#include "cli/run/run_prompt.h"
#include "runtime/stop_text.h"

namespace varve::cli {
namespace {

// What the closing line tells; several turns of a conversation add up.
struct RunTotals {
  int64_t prompt_tokens = 0;
  double prompt_us = 0;
  int64_t tokens = 0;
  int64_t decode_steps = 0;
  double decode_us = 0;
  // From the start of the command, loading included; where somebody types or pipes, from the end of
  // the first input.
  double first_token_s = 0;
  StopReason stop = StopReason::kMaxTokens;
  std::string text;

  void Add(const Generation& generation) {
    prompt_tokens += generation.prompt_tokens;
    prompt_us += generation.prompt_us;
    tokens += static_cast<int64_t>(generation.tokens.size());
    decode_steps += generation.decode_steps;
    decode_us += generation.decode_us;
    stop = generation.stop;
  }
};

double PerSecond(int64_t count, double us) {
  return us > 0 ? 1e6 * static_cast<double>(count) / us : 0.0;
}

class TextRun {
 public:
  // `recorder` watches the lane's cache, and outlives this.
  TextRun(const RunOptions& options, RunSetup setup, RunSetup::Lane lane, TraceRecorder* recorder,
          const Timer& since_start)
      : options_(options),
        setup_(std::move(setup)),
        lane_(std::move(lane)),
        recorder_(recorder),
        since_start_(since_start) {}

  // --load: what follows goes behind the file's tokens.
  Status Load();
  Status Once();
  Status Converse();
  // The closing line, and the JSON row if asked for. Of what went well, if not all did.
  Status Finish();
  // Whether a token has gone in since the start.
  bool has_begun() const { return totals_.prompt_tokens > 0; }

 private:
  // Generates behind what the sequence holds and shows the text. Continues the prompt's text unless
  // it is an answer.
  Result<std::string> Show(std::span<const int32_t> prompt, bool is_answer);
  // One turn of a conversation; the last message is the user's. False: the context is full.
  Result<bool> Answer(std::vector<ChatMessage>* messages);
  void Write(const std::string& text);
  // The error of a step, with the option that it comes from and what is done.
  Status CapReached(const Status& error) const;
  void NoteStop();
  Status Save() const;
  Status WriteTraceFile() const;

  const RunOptions& options_;
  RunSetup setup_;
  RunSetup::Lane lane_;
  TraceRecorder* recorder_;
  Timer since_start_;
  std::vector<int32_t> loaded_;   // all that came with --load
  std::vector<int32_t> fed_;      // the tokens in the cache, in order
  std::vector<int32_t> waiting_;  // the text behind them: not fed yet
  RunTotals totals_;
};

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
  if (!text.empty() && !text.ends_with('\n')) Write("\n");
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

void TextRun::NoteStop() {
  if (totals_.stop == StopReason::kContext) {
    WriteNote(
        fmt::format("varve: the context of {} tokens is full\n", setup_.generate.max_context));
  } else if (totals_.stop == StopReason::kStopped) {
    WriteNote("varve: interrupted\n");
  }
}

Status TextRun::Load() {
  if (options_.load.empty()) return Status();
  VARVE_ASSIGN_OR_RETURN(LoadedText text, LoadText(options_.load, setup_, &lane_));
  fed_ = std::move(text.fed);
  waiting_ = std::move(text.waiting);
  loaded_ = fed_;
  loaded_.insert(loaded_.end(), waiting_.begin(), waiting_.end());
  return Status();
}

Status TextRun::Save() const {
  std::vector<int32_t> tokens = fed_;
  tokens.insert(tokens.end(), waiting_.begin(), waiting_.end());
  VARVE_RETURN_IF_ERROR(SaveText(options_.save, setup_, lane_, std::move(tokens)));
  WriteNote(fmt::format("saved {} tokens to {}\n", fed_.size(), options_.save));
  return Status();
}

Status TextRun::Once() {
  VARVE_ASSIGN_OR_RETURN(std::string text, ReadPromptText(options_));
  if (PromptIsFromStdin(options_)) since_start_.Restart();
  VARVE_ASSIGN_OR_RETURN(std::vector<int32_t> prompt, PromptTokens(options_, setup_, text));
  prompt.insert(prompt.begin(), waiting_.begin(), waiting_.end());
  if (prompt.empty()) {
    return InvalidArgument(fmt::format(
        "prompt: empty, and {} has no token that waits to be continued", options_.load));
  }
  const InterruptScope scope;
  VARVE_RETURN_IF_ERROR(Show(prompt, setup_.is_chat()).status());
  NoteStop();
  return Status();
}

Result<bool> TextRun::Answer(std::vector<ChatMessage>* messages) {
  VARVE_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, EncodeChat(options_, setup_, *messages));
  tokens.insert(tokens.begin(), loaded_.begin(), loaded_.end());
  // The cache keeps what the new prompt begins with; the last token must give its logits anew.
  const size_t most = std::min(fed_.size(), tokens.size() - 1);
  const auto mismatch =
      std::mismatch(fed_.begin(), fed_.begin() + static_cast<ptrdiff_t>(most), tokens.begin());
  VARVE_ASSIGN_OR_RETURN(const CutPoint cut,
                         lane_.cache->FindCut(lane_.sequence, mismatch.first - fed_.begin()));
  const auto kept = static_cast<size_t>(cut.num_tokens);
  const int64_t end = cut.position + static_cast<int64_t>(tokens.size() - kept);
  if (end > setup_.generate.max_context) {
    WriteNote(fmt::format(
        "varve: with this message the conversation ends at position {} > context {}; write a "
        "shorter one, or Ctrl-D\n",
        end, setup_.generate.max_context));
    messages->pop_back();
    return true;
  }
  VARVE_RETURN_IF_ERROR(lane_.cache->Truncate(lane_.sequence, cut.position));
  fed_.resize(kept);
  const InterruptScope scope;
  VARVE_ASSIGN_OR_RETURN(std::string answer, Show(std::span(tokens).subspan(kept), true));
  NoteStop();
  messages->push_back({"assistant", answer});
  return totals_.stop != StopReason::kContext;
}

Status TextRun::Converse() {
  std::vector<ChatMessage> messages;
  if (!options_.system.empty()) messages.push_back({"system", options_.system});
  WriteNote(fmt::format("{}, chat format {}; Ctrl-D ends, Ctrl-C stops an answer\n",
                        setup_.model.name, setup_.chat_format));
  for (bool goes_on = true; goes_on && !InterruptScope::ending();) {
    std::string line;
    {
      const InterruptScope scope;
      WriteNote("> ");
      std::fflush(stderr);
      if (!std::getline(std::cin, line)) break;
    }
    if (line.empty()) continue;
    since_start_.Restart();
    messages.push_back({"user", line});
    VARVE_ASSIGN_OR_RETURN(goes_on, Answer(&messages));
  }
  WriteNote("\n");
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

Status TextRun::Finish() {
  const auto in_cache = static_cast<int64_t>(fed_.size());
  lane_.cache->WaitForPacking();
  const CacheFigures figures = FiguresOf(*lane_.cache, in_cache);
  const CacheReport stats = lane_.cache->Report();
  const uint64_t resident = ResidentBytes();
  const double prompt_speed = PerSecond(totals_.prompt_tokens, totals_.prompt_us);
  const double speed = PerSecond(totals_.decode_steps, totals_.decode_us);
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
  const Status saved = options_.save.empty() ? Status() : Save();
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

}  // namespace

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
  const Status ended = converse ? run.Converse() : run.Once();
  if (!ended.ok() && !run.has_begun()) return ended;
  const Status finished = run.Finish();
  return ended.ok() ? finished : ended;
}

}  // namespace varve::cli
