// `varve run` with several plans: the same prompt and seed on every cache, side by side.
//
// The prompt (all but its last token) goes into every cache once. The f16 cache writes its text and
// is cut back to the prompt, which loses nothing: its sealed pages hold what the open ones held.
// The other sequences are forked; on the forks the f16 text is fed to all caches in lockstep and
// their distributions are compared; on the originals each plan then writes its own text. So the KL
// is taken on the very pages that the text comes from. The pool keeps some slots of a fork that is
// gone (1 MiB and 1/64 at most), and they count: the figures never flatter.

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "base/machine.h"
#include "cli/bench_report.h"
#include "cli/compare_report.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run_options.h"
#include "cli/run_prompt.h"
#include "kernels/kernels.h"
#include "runtime/eval/token_score.h"

#ifndef VARVE_VERSION
#define VARVE_VERSION "unknown"
#endif

namespace varve::cli {
namespace {

struct ComparedLane {
  RunSession::Lane lane;
  SequenceId fork;               // f16: the sequence itself
  std::vector<double> decode_s;  // one per token of the f16 text, all plans in turn
  ComparedPlan result;
};

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class PlanComparison {
 public:
  PlanComparison(const RunOptions& options, RunSession session)
      : options_(options), session_(std::move(session)) {}
  Status Run();

 private:
  Status ReadPrompt();
  Status FillLane(size_t index, Progress& progress);
  Status WriteReference();
  // Feeds the f16 text to every fork and takes the divergences; frees the forks.
  Status Score();
  Status Write(ComparedLane& lane);
  void PrintFigures(const ComparedLane& lane) const;
  Status Report() const;
  Comparison Summary() const;

  const RunOptions& options_;
  RunSession session_;
  std::string prompt_text_;
  std::vector<int32_t> prompt_;
  std::vector<ComparedLane> lanes_;  // the first is f16
  int64_t scored_ = 0;
};

Status PlanComparison::ReadPrompt() {
  Result<std::string> text = ReadPromptText(options_);
  if (!text.ok()) return text.status();
  Result<std::vector<int32_t>> tokens = PromptTokens(options_, session_.model, *text);
  if (!tokens.ok()) return tokens.status();
  prompt_text_ = std::move(*text);
  prompt_ = std::move(*tokens);
  const auto count = static_cast<int64_t>(prompt_.size());
  if (count > session_.generate.max_context) {
    return InvalidArgument(fmt::format("prompt: {} tokens at position 0 > context {}", count,
                                       session_.generate.max_context));
  }
  return Status();
}

Status PlanComparison::FillLane(size_t index, Progress& progress) {
  const std::span<const int32_t> head(prompt_.data(), prompt_.size() - 1);
  const auto per_lane = static_cast<double>(head.size());
  const std::string& name = options_.plans[index];
  Result<RunSession::Lane> lane = session_.MakeLane(session_.plans[index]);
  if (!lane.ok()) return lane.status();
  ComparedLane compared{std::move(*lane), {}, {}, {}};
  compared.result.plan = name;
  if (!head.empty()) {
    const auto start = std::chrono::steady_clock::now();
    const Status status = session_.runner->Forward(
        *compared.lane.cache, compared.lane.sequence, head, Logits::kNone, nullptr,
        [&](int64_t done) {
          progress.Update(per_lane * static_cast<double>(index) + static_cast<double>(done), name);
          return !InterruptScope::interrupted();
        });
    if (InterruptScope::interrupted()) return Status();  // the lane is not there
    if (!status.ok()) {
      return Status(status.code(), fmt::format("--kv \"{}\": {}", name, status.message()));
    }
    compared.result.prompt_tokens_per_s = per_lane / SecondsSince(start);
  }
  compared.fork = compared.lane.sequence;
  if (index > 0) {
    Result<SequenceId> fork = compared.lane.cache->Fork(compared.lane.sequence);
    if (!fork.ok()) return fork.status();
    compared.fork = *fork;
  }
  lanes_.push_back(std::move(compared));
  return Status();
}

Status PlanComparison::WriteReference() {
  VARVE_RETURN_IF_ERROR(Write(lanes_[0]));
  const RunSession::Lane& lane = lanes_[0].lane;
  return lane.cache->Truncate(lane.sequence, static_cast<int64_t>(prompt_.size()) - 1);
}

Status PlanComparison::Score() {
  const size_t vocab = static_cast<size_t>(session_.model.model->config().vocab_size);
  const std::vector<int32_t>& tokens = lanes_[0].result.tokens;
  std::vector<float> reference(vocab);       // [vocab]
  std::vector<double> probabilities(vocab);  // [vocab]
  std::vector<float> logits(vocab);          // [vocab]
  Progress progress("comparing distributions", static_cast<double>(tokens.size()));
  for (size_t i = 0; i < tokens.size() && !InterruptScope::interrupted(); ++i) {
    const int32_t token = i == 0 ? prompt_.back() : tokens[i - 1];
    RowSummary expected;
    for (ComparedLane& lane : lanes_) {
      const bool is_reference = &lane == &lanes_[0];
      std::vector<float>& row = is_reference ? reference : logits;
      const DecodeEntry entry{lane.fork, token};
      const auto start = std::chrono::steady_clock::now();
      VARVE_RETURN_IF_ERROR(session_.runner->Decode(*lane.lane.cache, {&entry, 1}, row.data()));
      lane.decode_s.push_back(SecondsSince(start));
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
  for (ComparedLane& lane : lanes_) {
    if (&lane != &lanes_[0]) VARVE_RETURN_IF_ERROR(lane.lane.cache->Free(lane.fork));
    if (scored_ == 0) continue;
    lane.result.tokens_per_s = 1 / Median(lane.decode_s);
    lane.result.kl_mean /= static_cast<double>(scored_);
    lane.result.same_best /= static_cast<double>(scored_);
  }
  return Status();
}

Status PlanComparison::Write(ComparedLane& lane) {
  ComparedPlan& result = lane.result;
  const bool colour = UseColour(session_.out);
  fmt::print(session_.out, "\n{}--- {} ---{}\n", colour ? "\x1b[1m" : "", result.plan,
             colour ? "\x1b[0m" : "");
  TextStream stream(*session_.model.tokenizer);
  if (!options_.chat) {
    for (const int32_t token : prompt_) stream.Next(token);
  }
  const auto write = [&](const std::string& piece) {
    result.text += piece;
    std::fwrite(piece.data(), 1, piece.size(), session_.out);
    std::fflush(session_.out);
  };
  GenerateCallbacks callbacks;
  callbacks.on_token = [&](int32_t token) {
    write(stream.Next(token));
    return !InterruptScope::interrupted();
  };
  GenerateOptions generate = session_.generate;
  generate.history = std::span<const int32_t>(prompt_.data(), prompt_.size() - 1);
  Result<Generation> generation =
      Generate(*session_.runner, *lane.lane.cache, lane.lane.sequence,
               std::span<const int32_t>(prompt_).last(1), generate, callbacks);
  if (!generation.ok()) return generation.status();
  write(stream.Finish());
  fmt::print(session_.out, "\n");
  result.tokens = std::move(generation->tokens);
  result.stop = generation->stop;
  const std::vector<int32_t>& expected = lanes_[0].result.tokens;
  const auto [a, b] =
      std::mismatch(expected.begin(), expected.end(), result.tokens.begin(), result.tokens.end());
  const bool is_same = a == expected.end() && b == result.tokens.end();
  result.first_difference = is_same ? -1 : a - expected.begin();
  Result<int64_t> position = lane.lane.cache->NextPosition(lane.lane.sequence);
  if (!position.ok()) return position.status();
  result.memory = FiguresOf(*lane.lane.cache, *position);
  const CacheStats stats = lane.lane.cache->Stats();
  const auto index = static_cast<size_t>(&lane - lanes_.data());
  result.retention = MakeRetentionReport(session_.plans[index], lane.lane.cache->shape(),
                                         stats.retention, WholeRatio(stats), *position);
  return Status();
}

void PlanComparison::PrintFigures(const ComparedLane& lane) const {
  const ComparedPlan& result = lane.result;
  std::string line =
      fmt::format("    {}, {:.1f} tokens/s", HumanBytes(static_cast<double>(result.memory.bytes)),
                  result.tokens_per_s);
  if (&lane != &lanes_[0]) {
    line += fmt::format(", {:.2f}x smaller than f16, KL {}", result.memory.ratio,
                        HumanDivergence(result.kl_mean));
    line += result.first_difference < 0
                ? std::string(", the same text as f16")
                : fmt::format(", differs from f16 at token {}", result.first_difference + 1);
  }
  fmt::print(session_.out, "{}\n", line);
}

Comparison PlanComparison::Summary() const {
  const LlamaConfig& config = session_.model.model->config();
  const MachineInfo machine = DescribeMachine();
  const SamplerOptions& sampler = session_.generate.sampler;
  Comparison comparison;
  comparison.model = session_.model.name;
  comparison.shape = fmt::format("{} layers, {} heads on {} KV heads of {}", config.num_layers,
                                 config.num_heads, config.num_kv_heads, config.head_dim);
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
  comparison.machine =
      fmt::format("{}, {} cores, {}", machine.cpu, machine.cores, ActiveKernels().name);
  comparison.version = VARVE_VERSION;
  for (const ComparedLane& lane : lanes_) comparison.plans.push_back(lane.result);
  return comparison;
}

Status PlanComparison::Report() const {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  TextTable table({"plan", ">cache", ">bytes/token", ">x smaller", ">KL mean", ">KL max",
                   ">same best", ">differs at", ">tokens/s", ">prompt tokens/s"});
  for (const ComparedLane& lane : lanes_) {
    const ComparedPlan& result = lane.result;
    const bool is_reference = &lane == &lanes_[0];
    const bool differs = result.first_difference >= 0;
    table.AddRow({result.plan, HumanBytes(static_cast<double>(result.memory.bytes)),
                  fmt::format("{:.0f}", result.memory.bytes_per_token),
                  fmt::format("{:.2f}", result.memory.ratio),
                  is_reference ? "-" : HumanDivergence(result.kl_mean),
                  is_reference ? "-" : HumanDivergence(result.kl_max),
                  is_reference ? "-" : fmt::format("{:.1f} %", 100 * result.same_best),
                  differs ? fmt::format("{}", result.first_difference + 1) : "-",
                  fmt::format("{:.1f}", result.tokens_per_s),
                  fmt::format("{:.0f}", result.prompt_tokens_per_s)});
    rows.push_back({{"plan", result.plan},
                    {"role", is_reference ? "baseline" : "candidate"},
                    {"model", session_.model.name},
                    {"prompt_tokens", prompt_.size()},
                    {"tokens", result.tokens.size()},
                    {"tokens_per_s", result.tokens_per_s},
                    {"prompt_tokens_per_s", result.prompt_tokens_per_s},
                    {"cache_bytes", result.memory.bytes},
                    {"cache_bytes_f16", result.memory.bytes_f16},
                    {"bytes_per_token", result.memory.bytes_per_token},
                    {"ratio", result.memory.ratio},
                    {"kl_mean", result.kl_mean},
                    {"kl_max", result.kl_max},
                    {"top1", result.same_best},
                    {"scored_tokens", scored_},
                    {"first_difference", differs ? nlohmann::ordered_json(result.first_difference)
                                                 : nlohmann::ordered_json(nullptr)},
                    {"stop", StopReasonName(result.stop)},
                    {"text", result.text}});
    AddRetentionKeys(result.retention, &rows.back());
  }
  fmt::print(session_.out,
             "\n{} prompt tokens; KL (nats), agreement and speed over the {} tokens of the f16 "
             "text, all plans in turn\n",
             prompt_.size(), scored_);
  table.Print(session_.out);
  for (const ComparedLane& lane : lanes_) {
    PrintRetention(lane.result.plan, lane.result.retention, session_.out);
  }
  if (!options_.report.empty()) {
    VARVE_RETURN_IF_ERROR(WriteComparison(options_.report, Summary()));
    fmt::print(session_.out, "the page: {}\n", options_.report);
  }
  return options_.json.empty() ? Status() : WriteJson(options_.json, "run", rows);
}

Status PlanComparison::Run() {
  VARVE_RETURN_IF_ERROR(ReadPrompt());
  const InterruptScope scope;
  {
    Progress progress("prompt", static_cast<double>(prompt_.size() * session_.plans.size()));
    for (size_t i = 0; i < session_.plans.size() && !InterruptScope::interrupted(); ++i) {
      VARVE_RETURN_IF_ERROR(FillLane(i, progress));
      progress.Clear();
      if (i == 0 && !lanes_.empty()) VARVE_RETURN_IF_ERROR(WriteReference());
    }
  }
  if (lanes_.empty()) return FailedPrecondition("interrupted before anything was compared");
  VARVE_RETURN_IF_ERROR(Score());
  PrintFigures(lanes_[0]);
  for (size_t i = 1; i < lanes_.size(); ++i) {
    if (InterruptScope::interrupted()) {
      lanes_.resize(i);
      break;
    }
    VARVE_RETURN_IF_ERROR(Write(lanes_[i]));
    PrintFigures(lanes_[i]);
  }
  if (InterruptScope::interrupted()) {
    fmt::print(stderr, "varve: interrupted; this is what there is so far\n");
  }
  return Report();
}

}  // namespace

Status RunCompare(const RunOptions& options) {
  RunOptions sorted = options;
  // f16 comes first, whether it was named or not.
  std::erase(sorted.plans, "f16");
  sorted.plans.insert(sorted.plans.begin(), "f16");
  Result<RunSession> session = OpenSession(sorted);
  if (!session.ok()) return session.status();
  return PlanComparison(sorted, std::move(*session)).Run();
}

}  // namespace varve::cli
