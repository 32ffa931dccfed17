#include "runtime/eval/window_evaluator.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "runtime/eval/score_summary.h"
#include "runtime/eval/token_score.h"

namespace varve {
namespace {

// A page: the most that a step of the default plan holds. At a vocabulary of 150,000 the logits of
// a piece are 37 MiB.
constexpr int64_t kPieceTokens = 64;

// Input tokens [begin, end) of a window. Position i predicts token i + 1; positions
// [first_row, end_row) of the piece predict a token that is scored.
struct Piece {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_row = 0;
  int64_t end_row = 0;
  bool ends_prompt = false;

  bool scored() const { return first_row < end_row; }
  int64_t num_rows() const { return end_row - first_row; }
};

// Cut at multiples of kPieceTokens, where pages of most plans end, and at the end of the prompt.
std::vector<Piece> CutPieces(int64_t ctx, bool prompt_half) {
  const int64_t prompt_end = prompt_half ? ctx / 2 : 0;
  const int64_t first_scored = std::max<int64_t>(prompt_end, 1);
  std::vector<Piece> pieces;
  for (int64_t begin = 0; begin < ctx;) {
    Piece piece;
    piece.begin = begin;
    piece.end = std::min(ctx, (begin / kPieceTokens + 1) * kPieceTokens);
    if (begin < prompt_end) piece.end = std::min(piece.end, prompt_end);
    piece.ends_prompt = prompt_half && piece.end == prompt_end;
    piece.first_row = std::max(piece.begin, first_scored - 1);
    piece.end_row = std::min(piece.end, ctx - 1);
    pieces.push_back(piece);
    begin = piece.end;
  }
  return pieces;
}

bool HasIdle(const Plan& plan) {
  return std::any_of(plan.rules.begin(), plan.rules.end(), [](const LayerRule& rule) {
    return rule.idle_k.has_value() || rule.idle_v.has_value();
  });
}

class WindowEvaluation {
 public:
  WindowEvaluation(const std::shared_ptr<const DecoderModel>& model, const Tokenizer& tokenizer,
                   std::span<const std::vector<int32_t>> windows, const WindowEvalOptions& options,
                   Executor& executor, const std::function<bool(const EvalProgress&)>& progress)
      : model_(*model),
        tokenizer_(tokenizer),
        windows_(windows),
        executor_(executor),
        progress_(progress),
        rest_(options.rest),
        runner_(model->MakeRunner(executor, options.precision)) {}

  Result<WindowEvalResult> Run(std::span<const EvalPlan> plans, bool prompt_half);

 private:
  Status CheckTokens() const;
  Status RunWindow(size_t window_index, std::span<const Piece> pieces);
  // Feeds the piece to a lane; its logits, if any are scored, go to `logits`.
  Status Feed(EvalLane& lane, std::span<const int32_t> window, const Piece& piece,
              std::vector<float>& logits);
  // Softmax of the f16 lane's rows.
  void SummariseReference(const Piece& piece);
  // Scores of a lane's rows, into piece_scores_.
  Status Score(size_t lane_index, std::span<const int32_t> window, const Piece& piece,
               const std::vector<float>& logits);
  // Takes the piece into the figures of all lanes.
  void Commit(std::span<const int32_t> window, const Piece& piece);
  std::span<const float> Row(const std::vector<float>& logits, int64_t row) const {
    const auto vocab = static_cast<size_t>(model_.vocab_size());
    return std::span<const float>(logits).subspan(static_cast<size_t>(row) * vocab, vocab);
  }
  int64_t total_tokens() const {
    return static_cast<int64_t>(windows_.size() * windows_[0].size() * lanes_.size());
  }
  BlockMean& PartOf(size_t lane_index, int64_t position) {
    const auto ctx = static_cast<int64_t>(windows_[0].size());
    return kl_parts_[lane_index][static_cast<size_t>(position * kPositionParts / ctx)];
  }
  bool Continue(size_t window_index, int64_t tokens);
  PlanQuality Figures(size_t lane_index) const;

  const DecoderModel& model_;
  const Tokenizer& tokenizer_;
  std::span<const std::vector<int32_t>> windows_;
  Executor& executor_;
  const std::function<bool(const EvalProgress&)>& progress_;
  const bool rest_;
  std::unique_ptr<DecoderRunner> runner_;

  std::vector<EvalLane> lanes_;
  std::vector<ScoreSummary> summaries_;                          // [lanes]
  std::vector<std::array<BlockMean, kPositionParts>> kl_parts_;  // [lanes]
  int64_t done_tokens_ = 0;
  bool stopped_ = false;

  // Of the piece that is being read, positions from piece.begin on.
  std::vector<float> reference_logits_;                // [kPieceTokens, vocab_size]
  std::vector<float> lane_logits_;                     // [kPieceTokens, vocab_size]
  std::vector<double> probabilities_;                  // [kPieceTokens, vocab_size], of f16
  std::vector<RowSummary> reference_rows_;             // [kPieceTokens]
  std::vector<std::vector<TokenScore>> piece_scores_;  // [lanes][kPieceTokens]
};

Status WindowEvaluation::CheckTokens() const {
  const int32_t vocab = model_.vocab_size();
  for (size_t w = 0; w < windows_.size(); ++w) {
    if (windows_[w].size() != windows_[0].size() || windows_[w].size() < 2) {
      return InvalidArgument(fmt::format("window {}: {} tokens, the first has {}; at least 2", w,
                                         windows_[w].size(), windows_[0].size()));
    }
    for (const int32_t token : windows_[w]) {
      if (token < 0 || token >= vocab) {
        return InvalidArgument(fmt::format(
            "window {}: token {} is not in the model's vocabulary of {}", w, token, vocab));
      }
    }
  }
  return Status();
}

Status WindowEvaluation::Feed(EvalLane& lane, std::span<const int32_t> window, const Piece& piece,
                              std::vector<float>& logits) {
  const auto tokens = window.subspan(static_cast<size_t>(piece.begin),
                                     static_cast<size_t>(piece.end - piece.begin));
  const Logits which = piece.scored() ? Logits::kAll : Logits::kNone;
  VARVE_RETURN_IF_ERROR(InLane(lane, runner_->Forward(*lane.cache, lane.sequence, tokens, which,
                                                      piece.scored() ? logits.data() : nullptr)));
  if (!piece.ends_prompt) return Status();
  VARVE_RETURN_IF_ERROR(InLane(lane, lane.cache->EndPrompt(lane.sequence)));
  if (!rest_ || !HasIdle(lane.cache->plan())) return Status();
  return InLane(lane, lane.cache->Rest(lane.sequence, 0, piece.end).status());
}

void WindowEvaluation::SummariseReference(const Piece& piece) {
  executor_.ParallelFor(static_cast<size_t>(piece.num_rows()), [&](size_t index, int) {
    const int64_t row = piece.first_row - piece.begin + static_cast<int64_t>(index);
    const std::span<const float> logits = Row(reference_logits_, row);
    reference_rows_[static_cast<size_t>(row)] =
        SoftmaxRow(logits, probabilities_.data() + static_cast<size_t>(row) * logits.size());
  });
}

Status WindowEvaluation::Score(size_t lane_index, std::span<const int32_t> window,
                               const Piece& piece, const std::vector<float>& logits) {
  const bool is_reference = lane_index == 0;
  std::vector<TokenScore>& scores = piece_scores_[lane_index];
  executor_.ParallelFor(static_cast<size_t>(piece.num_rows()), [&](size_t index, int) {
    const int64_t row = piece.first_row - piece.begin + static_cast<int64_t>(index);
    const std::span<const float> own = Row(logits, row);
    const std::span<const float> reference = Row(reference_logits_, row);
    const RowSummary& expected = reference_rows_[static_cast<size_t>(row)];
    const RowSummary found = is_reference ? expected : SummariseRow(own);
    const int32_t target = window[static_cast<size_t>(piece.begin + row + 1)];
    TokenScore& score = scores[static_cast<size_t>(row)];
    score.loss = found.log_sum_exp - own[static_cast<size_t>(target)];
    score.kl = is_reference
                   ? 0
                   : RowDivergence(probabilities_.data() + static_cast<size_t>(row) * own.size(),
                                   reference, expected, own, found);
    score.same_best = found.best == expected.best;
  });
  for (int64_t i = piece.first_row; i < piece.end_row; ++i) {
    if (std::isfinite(scores[static_cast<size_t>(i - piece.begin)].loss)) continue;
    return InLane(
        lanes_[lane_index],
        Status(StatusCode::kDataLoss, fmt::format("the logits of position {} are not finite", i)));
  }
  return Status();
}

void WindowEvaluation::Commit(std::span<const int32_t> window, const Piece& piece) {
  for (size_t l = 0; l < lanes_.size(); ++l) {
    for (int64_t i = piece.first_row; i < piece.end_row; ++i) {
      const auto row = static_cast<size_t>(i - piece.begin);
      const int32_t target = window[static_cast<size_t>(i + 1)];
      summaries_[l].Add(piece_scores_[l][row], piece_scores_[0][row].loss,
                        static_cast<int64_t>(tokenizer_.TokenBytes(target).size()));
      PartOf(l, i).Add(piece_scores_[l][row].kl);
    }
    summaries_[l].EndBlock();
    for (BlockMean& part : kl_parts_[l]) part.EndBlock();
  }
}

bool WindowEvaluation::Continue(size_t window_index, int64_t tokens) {
  done_tokens_ += tokens;
  if (!progress_) return true;
  EvalProgress progress;
  progress.done_tokens = done_tokens_;
  progress.total_tokens = total_tokens();
  progress.part = static_cast<int64_t>(window_index);
  progress.num_parts = static_cast<int64_t>(windows_.size());
  return progress_(progress);
}

Status WindowEvaluation::RunWindow(size_t window_index, std::span<const Piece> pieces) {
  const std::span<const int32_t> window = windows_[window_index];
  for (EvalLane& lane : lanes_) {
    Result<SequenceId> sequence = lane.cache->CreateSequence();
    if (!sequence.ok()) return InLane(lane, sequence.status());
    lane.sequence = *sequence;
  }
  for (const Piece& piece : pieces) {
    size_t num_fed = 0;
    while (num_fed < lanes_.size() && !stopped_) {
      EvalLane& lane = lanes_[num_fed];
      std::vector<float>& logits = num_fed == 0 ? reference_logits_ : lane_logits_;
      VARVE_RETURN_IF_ERROR(Feed(lane, window, piece, logits));
      if (piece.scored()) {
        if (num_fed == 0) SummariseReference(piece);
        VARVE_RETURN_IF_ERROR(Score(num_fed, window, piece, logits));
      }
      ++num_fed;
      stopped_ = !Continue(window_index, piece.end - piece.begin);
    }
    if (num_fed < lanes_.size()) break;
    if (piece.scored()) Commit(window, piece);
    if (stopped_) break;
  }
  for (EvalLane& lane : lanes_) {
    const Result<int64_t> read = lane.cache->TokensSeen(lane.sequence);
    if (!read.ok()) return InLane(lane, read.status());
    // A window that was stopped counts only if there is no whole one to look at.
    if (*read == static_cast<int64_t>(window.size()) || lane.footprint.empty()) {
      lane.cache->WaitForPacking();
      lane.footprint.Sample(lane.cache->Report(), *read);
    }
    VARVE_RETURN_IF_ERROR(InLane(lane, lane.cache->Free(lane.sequence)));
  }
  return Status();
}

PlanQuality WindowEvaluation::Figures(size_t lane_index) const {
  const ScoreSummary& summary = summaries_[lane_index];
  const CacheFootprint& footprint = lanes_[lane_index].footprint;
  PlanQuality quality;
  quality.plan = lanes_[lane_index].name;
  quality.perplexity = summary.perplexity();
  quality.bits_per_byte = summary.bits_per_byte();
  quality.kl_mean = summary.kl_mean();
  quality.kl_sem = summary.kl_standard_error();
  quality.kl_p99 = summary.kl_p99();
  const auto ctx = static_cast<int64_t>(windows_[0].size());
  for (int64_t part = 0; part < kPositionParts; ++part) {
    const BlockMean& kl = kl_parts_[lane_index][static_cast<size_t>(part)];
    // The first position p with p * kPositionParts / ctx == part.
    const auto begin_of = [ctx](int64_t index) {
      return (index * ctx + kPositionParts - 1) / kPositionParts;
    };
    quality.kl_by_position.push_back(
        {begin_of(part), begin_of(part + 1), kl.mean(), kl.standard_error()});
  }
  quality.top1 = summary.same_best();
  quality.dlnppl = summary.loss_difference();
  quality.dlnppl_sem = summary.loss_difference_standard_error();
  quality.bytes_per_token = footprint.bytes_per_token();
  quality.scratch_bytes = footprint.scratch_bytes();
  quality.ratio = lanes_[0].footprint.bytes_per_token() / quality.bytes_per_token;
  quality.metrics = footprint.metrics();
  quality.use = UseOf(lanes_[lane_index].cache->Report());
  return quality;
}

Result<WindowEvalResult> WindowEvaluation::Run(std::span<const EvalPlan> plans, bool prompt_half) {
  WindowEvalResult result;
  result.prompt_half = prompt_half;
  if (windows_.empty()) return InvalidArgument("there is no window to score");
  VARVE_RETURN_IF_ERROR(CheckTokens());
  VARVE_ASSIGN_OR_RETURN(std::vector<EvalLane> lanes, MakeLanes(model_, plans, executor_));
  lanes_ = std::move(lanes);
  summaries_.resize(lanes_.size());
  kl_parts_.resize(lanes_.size());
  piece_scores_.assign(lanes_.size(), std::vector<TokenScore>(kPieceTokens));
  reference_rows_.resize(kPieceTokens);
  const size_t piece_logits = kPieceTokens * static_cast<size_t>(model_.vocab_size());
  reference_logits_.resize(piece_logits);
  lane_logits_.resize(piece_logits);
  probabilities_.resize(piece_logits);

  result.ctx = static_cast<int64_t>(windows_[0].size());
  const std::vector<Piece> pieces = CutPieces(result.ctx, prompt_half);
  for (size_t w = 0; w < windows_.size() && !stopped_; ++w) {
    VARVE_RETURN_IF_ERROR(RunWindow(w, pieces));
    ++result.windows;
  }
  result.stopped = stopped_ && done_tokens_ < total_tokens();
  result.tokens = summaries_[0].tokens();
  for (size_t l = 0; l < lanes_.size(); ++l) result.plans.push_back(Figures(l));
  return result;
}

}  // namespace

bool NeedsPromptEnd(const Plan& plan) {
  return std::any_of(plan.rules.begin(), plan.rules.end(), [](const LayerRule& rule) {
    return rule.evict.has_value() || rule.fold.has_value();
  });
}

Result<WindowEvalResult> EvaluateWindows(const std::shared_ptr<const DecoderModel>& model,
                                         const Tokenizer& tokenizer,
                                         std::span<const std::vector<int32_t>> windows,
                                         std::span<const EvalPlan> plans,
                                         const WindowEvalOptions& options, Executor& executor,
                                         const std::function<bool(const EvalProgress&)>& progress) {
  const bool prompt_half = options.prompt_half || options.rest ||
                           std::any_of(plans.begin(), plans.end(), [](const EvalPlan& plan) {
                             return NeedsPromptEnd(plan.plan);
                           });
  return WindowEvaluation(model, tokenizer, windows, options, executor, progress)
      .Run(plans, prompt_half);
}

}  // namespace varve
