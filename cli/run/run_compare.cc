// `varve run` with several plans: the same prompt and seed on every cache, side by side.
//
// The prompt (all but its last token) goes into every cache once. The f16 cache writes its text and
// is cut back to the prompt, which loses nothing: its sealed pages hold what the open ones held.
// The other sequences are forked; on the forks the f16 text is fed to all caches in lockstep and
// their distributions are compared; on the originals each plan then writes its own text. So the KL
// is taken on the very pages that the text comes from. The pool keeps some slots of a fork that is
// gone (1 MiB and 1/64 at most), and they count: the figures never flatter.

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "base/timer.h"
#include "cli/bench/bench_report.h"
#include "cli/interrupt.h"
#include "cli/lossless/lossless_report.h"
#include "cli/report/compare_report.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "cli/report/trace_document.h"
#include "cli/run/run_memory.h"
#include "cli/run/run_options.h"
#include "cli/run/run_prompt.h"
#include "runtime/eval/token_score.h"

namespace varve::cli {
namespace {

struct ComparedLane {
  RunSetup::Lane lane;
  size_t plan = 0;               // of the options
  SequenceId fork;               // f16: the sequence itself
  std::vector<double> decode_s;  // one per token of the f16 text, all plans in turn
  // For the report, of the sequence that writes: null and empty without one.
  std::unique_ptr<TraceRecorder> recorder;
  MemoryTrack memory;
  ComparedPlan result;
  bool has_no_room = false;  // the cap came in its way

  // Takes a sample of the memory after so many tokens.
  void Watch(int64_t tokens) {
    if (recorder) memory.Add(SampleOf(*lane.cache, tokens));
  }
};

class PlanComparison {
 public:
  PlanComparison(const RunOptions& options, RunSetup setup)
      : options_(options), setup_(std::move(setup)) {}
  Status Run();

 private:
  Status ReadPrompt();
  Status FillLane(size_t index, Progress& progress);
  Status WriteReference();
  // Feeds the f16 text to every fork and takes the divergences; frees the forks.
  Status Score();
  Status Write(ComparedLane& lane);
  // Ok if the plan has only found no room under the cap: the others go on, and the command ends
  // with the first such error.
  Status Failed(const std::string& plan, const Status& status);
  // What the report shows of the lane's cache.
  Status Record(ComparedLane& lane) const;
  Status Report() const;
  Comparison Summary() const;

  const RunOptions& options_;
  RunSetup setup_;
  std::string prompt_text_;
  std::vector<int32_t> prompt_;
  std::vector<ComparedLane> lanes_;  // the first is f16
  int64_t scored_ = 0;
  Status no_room_;  // of the first plan that the cap was too small for
};

Status PlanComparison::ReadPrompt() {
  VARVE_ASSIGN_OR_RETURN(std::string text, ReadPromptText(options_));
  VARVE_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, PromptTokens(options_, setup_, text));
  prompt_text_ = std::move(text);
  prompt_ = std::move(tokens);
  const auto count = static_cast<int64_t>(prompt_.size());
  if (count > setup_.generate.max_context) {
    return InvalidArgument(fmt::format("prompt: {} tokens at position 0 > context {}", count,
                                       setup_.generate.max_context));
  }
  return Status();
}

Status PlanComparison::Failed(const std::string& plan, const Status& status) {
  const bool is_cap = status.code() == StatusCode::kOutOfMemory && options_.max_bytes > 0;
  Status named(status.code(),
               fmt::format("--kv \"{}\"{}: {}", plan,
                           is_cap ? fmt::format(", --max-bytes {}", options_.max_bytes) : "",
                           status.message()));
  if (!is_cap) return named;
  WriteNote(fmt::format("varve: {}; the other plans go on\n", named.message()));
  if (no_room_.ok()) no_room_ = std::move(named);
  return Status();
}

Status PlanComparison::FillLane(size_t index, Progress& progress) {
  const std::span<const int32_t> head(prompt_.data(), prompt_.size() - 1);
  const auto per_lane = static_cast<double>(head.size());
  const std::string& name = options_.plans[index];
  auto recorder = options_.report.empty() ? nullptr : std::make_unique<TraceRecorder>();
  // The first, f16, is what the others are compared with, whether it fits or not.
  VARVE_ASSIGN_OR_RETURN(RunSetup::Lane lane,
                         setup_.MakeLane(setup_.plans[index], recorder.get(), index > 0));
  if (recorder) recorder->Follow(lane.sequence);
  ComparedLane compared{std::move(lane), index, {}, {}, std::move(recorder), {}, {}, false};
  compared.result.plan = name;
  compared.result.max_bytes = options_.max_bytes;
  compared.result.prompt_tokens_per_s = kNoFigure;
  compared.Watch(0);
  if (!head.empty()) {
    const Timer timer;
    const Status status = setup_.runner->Forward(
        *compared.lane.cache, compared.lane.sequence, head, Logits::kNone, nullptr,
        [&](int64_t done) {
          progress.Update(per_lane * static_cast<double>(index) + static_cast<double>(done), name);
          compared.Watch(done);
          return !InterruptScope::interrupted();
        });
    if (InterruptScope::interrupted()) return Status();  // the lane is not there
    if (!status.ok()) return Failed(name, status);
    compared.result.prompt_tokens_per_s = per_lane / timer.seconds();
  }
  compared.fork = compared.lane.sequence;
  if (index > 0) {
    VARVE_ASSIGN_OR_RETURN(compared.fork, compared.lane.cache->Fork(compared.lane.sequence));
  }
  lanes_.push_back(std::move(compared));
  return Status();
}

Status PlanComparison::WriteReference() {
  VARVE_RETURN_IF_ERROR(Write(lanes_[0]));
  const RunSetup::Lane& lane = lanes_[0].lane;
  return lane.cache->Truncate(lane.sequence, static_cast<int64_t>(prompt_.size()) - 1);
}

Status PlanComparison::Score() {
  const size_t vocab = static_cast<size_t>(setup_.model.model->vocab_size());
  const std::vector<int32_t>& tokens = lanes_[0].result.tokens;
  std::vector<float> reference(vocab);       // [vocab]
  std::vector<double> probabilities(vocab);  // [vocab]
  std::vector<float> logits(vocab);          // [vocab]
  Progress progress("comparing distributions", static_cast<double>(tokens.size()));
  for (size_t i = 0; i < tokens.size() && !InterruptScope::interrupted(); ++i) {
    const int32_t token = i == 0 ? prompt_.back() : tokens[i - 1];
    RowSummary expected;
    for (ComparedLane& lane : lanes_) {
      if (lane.has_no_room) continue;
      const bool is_reference = &lane == &lanes_[0];
      std::vector<float>& row = is_reference ? reference : logits;
      const DecodeEntry entry{lane.fork, token};
      const Timer timer;
      Status decoded = setup_.runner->Decode(*lane.lane.cache, {&entry, 1}, row.data());
      lane.decode_s.push_back(timer.seconds());
      // As when it writes: what a plan does at the prompt's end comes behind its last token.
      if (decoded.ok() && i == 0) decoded = lane.lane.cache->EndPrompt(lane.fork);
      if (!decoded.ok()) {
        VARVE_RETURN_IF_ERROR(Failed(lane.result.plan, decoded));
        lane.has_no_room = true;
        continue;
      }
      if (is_reference) {
        expected = SoftmaxRow(row, probabilities.data());
        lane.result.same_best += 1;
        continue;
      }
      const RowSummary summary = SummariseRow(row);
      const double kl = RowDivergence(probabilities.data(), reference, expected, row, summary);
      lane.result.kl_mean += kl;
      lane.result.kl_max = std::max(lane.result.kl_max, kl);
      lane.result.same_best += summary.best == expected.best ? 1 : 0;
    }
    ++scored_;
    progress.Update(static_cast<double>(i + 1));
  }
  std::erase_if(lanes_, [](const ComparedLane& lane) { return lane.has_no_room; });
  for (ComparedLane& lane : lanes_) {
    if (&lane != &lanes_[0]) VARVE_RETURN_IF_ERROR(lane.lane.cache->Free(lane.fork));
    if (scored_ == 0) {
      lane.result.kl_mean = lane.result.kl_max = lane.result.same_best = kNoFigure;
      lane.result.tokens_per_s = kNoFigure;
      continue;
    }
    lane.result.tokens_per_s = 1 / Median(lane.decode_s);
    lane.result.speed = CompareSpeed(lanes_[0].decode_s, lane.decode_s);
    lane.result.kl_mean /= static_cast<double>(scored_);
    lane.result.same_best /= static_cast<double>(scored_);
  }
  return Status();
}

Status PlanComparison::Write(ComparedLane& lane) {
  ComparedPlan& result = lane.result;
  const bool colour = UseColour(setup_.out);
  fmt::print(setup_.out, "\n{}--- {} ---{}\n", colour ? "\x1b[1m" : "", result.plan,
             colour ? "\x1b[0m" : "");
  TextStream stream(*setup_.model.tokenizer);
  if (!setup_.is_chat()) {
    for (const int32_t token : prompt_) stream.Next(token);
  }
  const auto write = [&](const std::string& piece) {
    result.text += piece;
    std::fwrite(piece.data(), 1, piece.size(), setup_.out);
    std::fflush(setup_.out);
  };
  GenerateCallbacks callbacks;
  int64_t in_cache = static_cast<int64_t>(prompt_.size());
  callbacks.on_token = [&](int32_t token) {
    write(stream.Next(token));
    lane.Watch(in_cache++);
    return !InterruptScope::interrupted();
  };
  GenerateOptions generate = setup_.generate;
  generate.history = std::span<const int32_t>(prompt_.data(), prompt_.size() - 1);
  VARVE_ASSIGN_OR_RETURN(Generation generation,
                         Generate(*setup_.runner, *lane.lane.cache, lane.lane.sequence,
                                  std::span<const int32_t>(prompt_).last(1), generate, callbacks));
  write(stream.Finish());
  fmt::print(setup_.out, "\n");
  if (!generation.error.ok()) VARVE_RETURN_IF_ERROR(Failed(result.plan, generation.error));
  result.tokens = std::move(generation.tokens);
  result.stop = generation.stop;
  const std::vector<int32_t>& expected = lanes_[0].result.tokens;
  const auto [a, b] =
      std::mismatch(expected.begin(), expected.end(), result.tokens.begin(), result.tokens.end());
  const bool is_same = a == expected.end() && b == result.tokens.end();
  result.first_difference = is_same ? -1 : a - expected.begin();
  VARVE_ASSIGN_OR_RETURN(int64_t position, lane.lane.cache->TokensSeen(lane.lane.sequence));
  lane.lane.cache->WaitForPacking();
  result.memory = FiguresOf(*lane.lane.cache, position);
  const CacheReport stats = lane.lane.cache->Report();
  result.metrics = stats;
  result.nonfinite_values = stats.nonfinite_values;
  result.tokens_seen = position;
  result.use = MakePlanUse(setup_.plans[lane.plan], lane.lane.cache->shape(), UseOf(stats));
  return options_.report.empty() ? Status() : Record(lane);
}

Status PlanComparison::Record(ComparedLane& lane) const {
  const Cache& cache = *lane.lane.cache;
  RetentionTrace& trace = lane.recorder->trace();
  VARVE_RETURN_IF_ERROR(DescribeTrace(cache, lane.lane.sequence, &trace));
  trace.prompt_tokens = static_cast<int64_t>(prompt_.size());
  VARVE_ASSIGN_OR_RETURN(nlohmann::ordered_json spans, SpansJson(cache, lane.lane.sequence, trace));
  VARVE_ASSIGN_OR_RETURN(const int64_t tokens, cache.TokensSeen(lane.lane.sequence));
  lane.Watch(tokens);  // with all that was packed meanwhile
  if (HasFates(spans)) lane.result.spans = std::move(spans);
  if (!trace.events.empty()) lane.result.trace = TraceJson(trace);
  lane.result.pages = lane.memory.ByState();
  lane.result.lossless = LosslessRows(cache.Report().by_layer);
  return Status();
}

Comparison PlanComparison::Summary() const {
  const CacheShape& shape = setup_.model.model->cache_shape();
  const SamplerOptions& sampler = setup_.generate.sampler;
  Comparison comparison;
  comparison.model = setup_.model.name;
  comparison.shape =
      fmt::format("{} layers, {} heads on {} KV heads of {}", shape.num_layers,
                  shape.num_kv_heads * shape.group_size, shape.num_kv_heads, shape.key_dim);
  comparison.prompt = prompt_text_;
  comparison.prompt_tokens = static_cast<int64_t>(prompt_.size());
  comparison.scored_tokens = scored_;
  comparison.sampling = sampler.temperature == 0 ? std::string("greedy")
                                                 : fmt::format("temperature {:.2g}, seed {}",
                                                               sampler.temperature, sampler.seed);
  if (sampler.repetition_penalty != 1.0f) {
    comparison.sampling += fmt::format(", repetition penalty {:.3g}", sampler.repetition_penalty);
  }
  comparison.command = options_.command;
  for (const ComparedLane& lane : lanes_) comparison.plans.push_back(lane.result);
  return comparison;
}

Status PlanComparison::Report() const {
  const Comparison comparison = Summary();
  PrintComparison(comparison, setup_.out);
  Status page;
  if (!options_.report.empty()) {
    page = WriteComparison(options_.report, comparison);
    if (page.ok()) fmt::print(setup_.out, "the page: {}\n", options_.report);
  }
  // Neither result is lost with the other.
  return FinishJson(page, options_.json, "run", ComparisonRows(comparison));
}

Status PlanComparison::Run() {
  VARVE_RETURN_IF_ERROR(ReadPrompt());
  const InterruptScope scope;
  {
    Progress progress("prompt", static_cast<double>(prompt_.size() * setup_.plans.size()));
    for (size_t i = 0; i < setup_.plans.size() && !InterruptScope::interrupted(); ++i) {
      VARVE_RETURN_IF_ERROR(FillLane(i, progress));
      progress.Clear();
      if (i == 0 && !lanes_.empty()) VARVE_RETURN_IF_ERROR(WriteReference());
    }
  }
  if (lanes_.empty()) return FailedPrecondition("interrupted before anything was compared");
  VARVE_RETURN_IF_ERROR(Score());
  PrintFigures(lanes_[0].result, nullptr, setup_.out);
  Status written;
  for (size_t i = 1; i < lanes_.size(); ++i) {
    if (!InterruptScope::interrupted()) written = Write(lanes_[i]);
    if (InterruptScope::interrupted() || !written.ok()) {
      lanes_.resize(i);
      break;
    }
    PrintFigures(lanes_[i].result, &lanes_[0].result, setup_.out);
  }
  if (InterruptScope::interrupted()) {
    WriteNote("varve: interrupted; this is what there is so far\n");
  }
  // A plan that failed does not take those before it along.
  const Status reported = Report();
  if (written.ok()) written = no_room_;
  return written.ok() ? reported : written;
}

}  // namespace

Status RunCompare(const RunOptions& options) {
  RunOptions sorted = options;
  // f16 comes first, whether it was named or not.
  std::erase(sorted.plans, "f16");
  sorted.plans.insert(sorted.plans.begin(), "f16");
  VARVE_ASSIGN_OR_RETURN(RunSetup setup, PrepareRun(sorted));
  return PlanComparison(sorted, std::move(setup)).Run();
}

}  // namespace varve::cli
