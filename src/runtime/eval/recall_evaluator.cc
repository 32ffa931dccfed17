#include "runtime/eval/recall_evaluator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "runtime/eval/token_score.h"

namespace varve {
namespace {

// A blank, five digits and what follows are seven tokens at most where every byte is one; a few
// more for tokens without text.
constexpr int kMaxAnswerTokens = 12;

class RecallEvaluation {
 public:
  RecallEvaluation(const std::shared_ptr<const DecoderModel>& model, const Tokenizer& tokenizer,
                   std::span<const RecallPrompt> prompts, ProductPrecision precision,
                   Executor& executor, const std::function<bool(const EvalProgress&)>& progress)
      : model_(*model),
        tokenizer_(tokenizer),
        prompts_(prompts),
        executor_(executor),
        progress_(progress),
        runner_(model->MakeRunner(executor, precision)),
        logits_(static_cast<size_t>(model->vocab_size())) {
    for (const RecallPrompt& prompt : prompts) {
      prompt_tokens_ += static_cast<int64_t>(prompt.tokens.size());
    }
  }

  Result<RecallResult> Run(std::span<const EvalPlan> plans);

 private:
  Result<std::vector<RecallAnswer>> RunPrompt(EvalLane& lane, int64_t prompt_index);
  // One question, on a fork of the lane's sequence; the last one of a prompt on the sequence
  // itself.
  Result<RecallAnswer> Ask(EvalLane& lane, int64_t prompt_index, size_t question);
  // Takes the memory of what the lane's sequence holds.
  Status Sample(EvalLane& lane);
  Status Generate(EvalLane& lane, SequenceId sequence, RecallAnswer& answer);
  bool Continue(int64_t prompt_index, int64_t tokens);

  const DecoderModel& model_;
  const Tokenizer& tokenizer_;
  std::span<const RecallPrompt> prompts_;
  Executor& executor_;
  const std::function<bool(const EvalProgress&)>& progress_;
  std::unique_ptr<DecoderRunner> runner_;
  std::vector<float> logits_;  // [vocab_size]
  std::vector<EvalLane> lanes_;
  int64_t prompt_tokens_ = 0;  // of all prompts
  int64_t done_tokens_ = 0;
  bool stopped_ = false;
};

bool RecallEvaluation::Continue(int64_t prompt_index, int64_t tokens) {
  if (progress_) {
    EvalProgress progress;
    progress.done_tokens = done_tokens_ + tokens;
    progress.total_tokens = prompt_tokens_ * static_cast<int64_t>(lanes_.size());
    progress.part = prompt_index;
    progress.num_parts = static_cast<int64_t>(prompts_.size());
    stopped_ = stopped_ || !progress_(progress);
  }
  return !stopped_;
}

Status RecallEvaluation::Generate(EvalLane& lane, SequenceId sequence, RecallAnswer& answer) {
  RecallVerdict verdict = RecallVerdict::kUndecided;
  for (int i = 0; verdict == RecallVerdict::kUndecided; ++i) {
    const RowSummary summary = SummariseRow(logits_);
    if (!std::isfinite(summary.log_sum_exp)) {
      return Status(StatusCode::kDataLoss, fmt::format("the logits of the answer's token {} are "
                                                       "not finite",
                                                       i));
    }
    const bool ended = i == kMaxAnswerTokens || tokenizer_.IsEnd(summary.best);
    if (!ended) answer.generated += tokenizer_.TokenBytes(summary.best);
    verdict = JudgeAnswer(answer.generated, answer.number, ended);
    if (verdict != RecallVerdict::kUndecided) break;
    VARVE_RETURN_IF_ERROR(
        runner_->Forward(*lane.cache, sequence, {&summary.best, 1}, Logits::kLast, logits_.data()));
  }
  answer.hit = verdict == RecallVerdict::kHit;
  return Status();
}

Result<RecallAnswer> RecallEvaluation::Ask(EvalLane& lane, int64_t prompt_index, size_t question) {
  const RecallPrompt& prompt = prompts_[static_cast<size_t>(prompt_index)];
  RecallAnswer answer;
  answer.prompt = prompt_index;
  answer.depth_index = prompt.facts[question].depth_index;
  answer.thing = prompt.facts[question].thing;
  answer.number = prompt.facts[question].number;
  const bool is_last = question + 1 == prompt.questions.size();
  SequenceId asked = lane.sequence;
  if (!is_last) {
    VARVE_ASSIGN_OR_RETURN(asked, lane.cache->Fork(lane.sequence));
  }
  VARVE_RETURN_IF_ERROR(runner_->Forward(*lane.cache, asked, prompt.questions[question],
                                         Logits::kLast, logits_.data()));
  // What a policy has planned at the end of the prompt is done when the next step begins.
  if (is_last && lane.cache->Report().retention.layers > 0) VARVE_RETURN_IF_ERROR(Sample(lane));
  VARVE_RETURN_IF_ERROR(Generate(lane, asked, answer));
  if (!is_last) VARVE_RETURN_IF_ERROR(lane.cache->Free(asked));
  return answer;
}

Status RecallEvaluation::Sample(EvalLane& lane) {
  VARVE_ASSIGN_OR_RETURN(int64_t tokens, lane.cache->TokensSeen(lane.sequence));
  lane.cache->WaitForPacking();
  lane.footprint.Sample(lane.cache->Report(), tokens);
  return Status();
}

Result<std::vector<RecallAnswer>> RecallEvaluation::RunPrompt(EvalLane& lane,
                                                              int64_t prompt_index) {
  const RecallPrompt& prompt = prompts_[static_cast<size_t>(prompt_index)];
  std::vector<RecallAnswer> answers;
  VARVE_ASSIGN_OR_RETURN(lane.sequence, lane.cache->CreateSequence());
  const Status read =
      runner_->Forward(*lane.cache, lane.sequence, prompt.tokens, Logits::kNone, nullptr,
                       [&](int64_t tokens) { return Continue(prompt_index, tokens); });
  if (!read.ok() && !stopped_) return read;
  if (!stopped_) {
    VARVE_RETURN_IF_ERROR(lane.cache->EndPrompt(lane.sequence));
    if (lane.cache->Report().retention.layers == 0) VARVE_RETURN_IF_ERROR(Sample(lane));
    done_tokens_ += static_cast<int64_t>(prompt.tokens.size());
  }
  for (size_t q = 0; q < prompt.questions.size() && Continue(prompt_index, 0); ++q) {
    VARVE_ASSIGN_OR_RETURN(RecallAnswer answer, Ask(lane, prompt_index, q));
    answers.push_back(std::move(answer));
  }
  VARVE_RETURN_IF_ERROR(lane.cache->Free(lane.sequence));
  return answers;
}

Result<RecallResult> RecallEvaluation::Run(std::span<const EvalPlan> plans) {
  VARVE_ASSIGN_OR_RETURN(lanes_, MakeLanes(model_, plans, executor_));
  RecallResult result;
  result.plans.resize(lanes_.size());
  for (size_t p = 0; p < prompts_.size() && !stopped_; ++p) {
    std::vector<std::vector<RecallAnswer>> answers;
    for (EvalLane& lane : lanes_) {
      Result<std::vector<RecallAnswer>> given = RunPrompt(lane, static_cast<int64_t>(p));
      if (!given.ok()) return InLane(lane, given.status());
      if (stopped_) break;
      answers.push_back(std::move(*given));
    }
    if (stopped_) break;
    ++result.prompts;
    for (size_t l = 0; l < lanes_.size(); ++l) {
      for (RecallAnswer& answer : answers[l]) {
        result.plans[l].hits += answer.hit ? 1 : 0;
        result.plans[l].answers.push_back(std::move(answer));
      }
    }
  }
  result.stopped = stopped_;
  for (size_t l = 0; l < lanes_.size(); ++l) {
    PlanRecall& plan = result.plans[l];
    plan.plan = lanes_[l].name;
    plan.bytes_per_token = lanes_[l].footprint.bytes_per_token();
    plan.scratch_bytes = lanes_[l].footprint.scratch_bytes();
    plan.ratio = lanes_[0].footprint.bytes_per_token() / plan.bytes_per_token;
    plan.metrics = lanes_[l].footprint.metrics();
    plan.use = UseOf(lanes_[l].cache->Report());
  }
  return result;
}

}  // namespace

Result<RecallResult> EvaluateRecall(const std::shared_ptr<const DecoderModel>& model,
                                    const Tokenizer& tokenizer,
                                    std::span<const RecallPrompt> prompts,
                                    std::span<const EvalPlan> plans, ProductPrecision precision,
                                    Executor& executor,
                                    const std::function<bool(const EvalProgress&)>& progress) {
  return RecallEvaluation(model, tokenizer, prompts, precision, executor, progress).Run(plans);
}

}  // namespace varve
