#include "runtime/solve/plan_probe.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "runtime/eval/token_score.h"
#include "runtime/eval/window_evaluator.h"
#include "runtime/model_cache.h"

namespace varve {
namespace {

constexpr int64_t kMaxCopyTokens = 512;  // rows of one layer that are copied at a time

}  // namespace

PlanProbe::PlanProbe(const std::shared_ptr<const DecoderModel>& model,
                     std::vector<std::vector<int32_t>> windows, int64_t tail_tokens,
                     ProductPrecision precision, Executor& executor)
    : model_(*model),
      windows_(std::move(windows)),
      tail_tokens_(tail_tokens),
      executor_(executor),
      runner_(model->MakeRunner(executor, precision)) {}

Result<std::unique_ptr<PlanProbe>> PlanProbe::Make(const std::shared_ptr<const DecoderModel>& model,
                                                   std::vector<std::vector<int32_t>> windows,
                                                   int64_t tail_tokens, ProductPrecision precision,
                                                   Executor& executor) {
  if (windows.empty()) return InvalidArgument("there is no window to probe with");
  for (const std::vector<int32_t>& window : windows) {
    if (tail_tokens >= 1 && tail_tokens < static_cast<int64_t>(window.size())) continue;
    return InvalidArgument(
        fmt::format("a tail of {} tokens in a window of {}", tail_tokens, window.size()));
  }
  std::unique_ptr<PlanProbe> probe(
      new PlanProbe(model, std::move(windows), tail_tokens, precision, executor));
  VARVE_ASSIGN_OR_RETURN(probe->exact_, probe->MakeCache(Plan()));
  return probe;
}

Result<std::unique_ptr<Cache>> PlanProbe::MakeCache(const Plan& plan) const {
  CacheOptions options = CacheOptionsFor(model_);
  options.plan = plan;
  options.executor = &executor_;
  return Cache::Create(model_.cache_shape(), std::move(options));
}

Status PlanProbe::ReadNextWindow() {
  const std::vector<int32_t>& window = windows_[sequences_.size()];
  const auto prefix = window.size() - static_cast<size_t>(tail_tokens_);
  const std::span<const int32_t> tokens(window);
  VARVE_ASSIGN_OR_RETURN(SequenceId sequence, exact_->CreateSequence());
  VARVE_RETURN_IF_ERROR(
      runner_->Forward(*exact_, sequence, tokens.first(prefix), Logits::kNone, nullptr));
  std::vector<float> logits(static_cast<size_t>(tail_tokens_) *
                            static_cast<size_t>(model_.vocab_size()));
  VARVE_RETURN_IF_ERROR(
      runner_->Forward(*exact_, sequence, tokens.subspan(prefix), Logits::kAll, logits.data()));
  VARVE_RETURN_IF_ERROR(exact_->Truncate(sequence, static_cast<int64_t>(prefix)));
  sequences_.push_back(sequence);
  reference_.push_back(std::move(logits));
  return Status();
}

double PlanProbe::table_bytes_per_page() const {
  const CacheStats stats = exact_->Stats();
  if (stats.pages == 0) return 0;
  return static_cast<double>(stats.bytes_tables) / static_cast<double>(stats.pages);
}

Status PlanProbe::ReadLayer(SequenceId from, int layer, Part part, int64_t begin, int num_tokens,
                            std::vector<float>* rows) {
  const CacheShape& shape = model_.cache_shape();
  const auto heads = static_cast<size_t>(shape.num_kv_heads);
  const auto dim = static_cast<size_t>(part == Part::kKey ? shape.key_dim : shape.value_dim);
  const auto tokens = static_cast<size_t>(num_tokens);
  rows->resize(tokens * heads * dim);
  head_rows_.resize(tokens * dim);
  for (size_t head = 0; head < heads; ++head) {
    VARVE_ASSIGN_OR_RETURN(int64_t read,
                           exact_->ReadRows(from, layer, static_cast<int>(head), part, begin,
                                            begin + num_tokens, head_rows_.data()));
    if (read != num_tokens) {
      return Internal(fmt::format("the f16 cache has {} of {} rows", read, num_tokens));
    }
    for (size_t t = 0; t < tokens; ++t) {
      std::copy_n(head_rows_.data() + t * dim, dim, rows->data() + (t * heads + head) * dim);
    }
  }
  return Status();
}

Status PlanProbe::CopyRows(SequenceId from, int64_t num_tokens, Cache& to, SequenceId to_sequence) {
  for (int64_t done = 0; done < num_tokens;) {
    VARVE_ASSIGN_OR_RETURN(int most, to.MaxStepTokens(to_sequence));
    const auto tokens =
        static_cast<int>(std::min({int64_t{most}, kMaxCopyTokens, num_tokens - done}));
    const StepEntry entry{to_sequence, tokens};
    VARVE_RETURN_IF_ERROR(to.BeginStep({&entry, 1}));
    for (int layer = 0; layer < model_.cache_shape().num_layers; ++layer) {
      VARVE_RETURN_IF_ERROR(ReadLayer(from, layer, Part::kKey, done, tokens, &keys_));
      VARVE_RETURN_IF_ERROR(ReadLayer(from, layer, Part::kValue, done, tokens, &values_));
      VARVE_RETURN_IF_ERROR(to.Append(layer, to_sequence, {keys_.data(), tokens, 0, 0},
                                      {values_.data(), tokens, 0, 0}));
    }
    VARVE_RETURN_IF_ERROR(to.EndStep());
    done += tokens;
  }
  return Status();
}

Result<double> PlanProbe::TailLoss(const std::vector<float>& reference) {
  const auto vocab = static_cast<size_t>(model_.vocab_size());
  std::vector<double> losses(static_cast<size_t>(tail_tokens_));
  executor_.ParallelFor(losses.size(), [&](size_t row, int) {
    const auto own = std::span<const float>(logits_).subspan(row * vocab, vocab);
    const auto exact = std::span<const float>(reference).subspan(row * vocab, vocab);
    std::vector<double> probabilities(vocab);
    const RowSummary expected = SoftmaxRow(exact, probabilities.data());
    losses[row] = RowDivergence(probabilities.data(), exact, expected, own, SummariseRow(own));
  });
  const double sum = std::accumulate(losses.begin(), losses.end(), 0.0);
  if (!std::isfinite(sum)) return DataLoss("the logits of a plan are not finite");
  return sum;
}

Result<double> PlanProbe::Loss(const Plan& plan) {
  if (!ready()) return FailedPrecondition("the windows have not been read");
  if (NeedsPromptEnd(plan)) return InvalidArgument("a plan with evict= or fold= cannot be probed");
  double sum = 0;
  for (size_t w = 0; w < windows_.size(); ++w) {
    // A cache for each window: pages of one do not wait in the pool for those of the next.
    VARVE_ASSIGN_OR_RETURN(std::unique_ptr<Cache> cache, MakeCache(plan));
    VARVE_ASSIGN_OR_RETURN(SequenceId sequence, cache->CreateSequence());
    const auto prefix = windows_[w].size() - static_cast<size_t>(tail_tokens_);
    VARVE_RETURN_IF_ERROR(CopyRows(sequences_[w], static_cast<int64_t>(prefix), *cache, sequence));
    logits_.resize(reference_[w].size());
    VARVE_RETURN_IF_ERROR(runner_->Forward(*cache, sequence,
                                           std::span<const int32_t>(windows_[w]).subspan(prefix),
                                           Logits::kAll, logits_.data()));
    VARVE_ASSIGN_OR_RETURN(double loss, TailLoss(reference_[w]));
    sum += loss;
  }
  return sum / static_cast<double>(tokens_per_loss());
}

}  // namespace varve
