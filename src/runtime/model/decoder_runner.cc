#include "runtime/model/decoder_runner.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "runtime/model/decoder_model.h"

namespace varve {
namespace {

constexpr const char* kNoLogits = "logits: null, but asked for";

Status CheckTokens(std::span<const int32_t> tokens, int vocab_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_size) {
      return InvalidArgument(
          fmt::format("token {}: id {} not in [0, {})", i, tokens[i], vocab_size));
    }
  }
  return {};
}

Status CheckShape(const CacheShape& model, const CacheShape& cache) {
  const auto check = [](const char* field, int expected, int given) {
    if (expected == given) return Status();
    return InvalidArgument(fmt::format("cache: {} {}, the model's is {}", field, given, expected));
  };
  VARVE_RETURN_IF_ERROR(check("num_layers", model.num_layers, cache.num_layers));
  VARVE_RETURN_IF_ERROR(check("num_kv_heads", model.num_kv_heads, cache.num_kv_heads));
  VARVE_RETURN_IF_ERROR(check("group_size", model.group_size, cache.group_size));
  VARVE_RETURN_IF_ERROR(check("key_dim", model.key_dim, cache.key_dim));
  return check("value_dim", model.value_dim, cache.value_dim);
}

}  // namespace

DecoderRunner::DecoderRunner(std::shared_ptr<const DecoderModel> model)
    : model_(std::move(model)) {}

Status DecoderRunner::CheckCall(const Cache& cache, std::span<const int32_t> tokens) const {
  if (tokens.empty()) return InvalidArgument("tokens: none given, at least 1 needed");
  VARVE_RETURN_IF_ERROR(CheckShape(model_->cache_shape(), cache.shape()));
  return CheckTokens(tokens, model_->vocab_size());
}

Status DecoderRunner::Forward(Cache& cache, SequenceId sequence, std::span<const int32_t> tokens,
                              Logits which, float* logits,
                              const std::function<bool(int64_t)>& progress) {
  clock_.Start();
  if (which != Logits::kNone && logits == nullptr) return InvalidArgument(kNoLogits);
  VARVE_RETURN_IF_ERROR(CheckCall(cache, tokens));
  const auto vocab_size = static_cast<size_t>(model_->vocab_size());
  size_t done = 0;
  const auto run_step = [&]() -> Status {
    VARVE_ASSIGN_OR_RETURN(const int most, cache.MaxStepTokens(sequence));
    const int count =
        static_cast<int>(std::min<size_t>(tokens.size() - done, std::min(most, kMaxForwardTokens)));
    int logits_from = count;
    if (which == Logits::kAll) logits_from = 0;
    if (which == Logits::kLast && done + count == tokens.size()) logits_from = count - 1;
    float* out = which == Logits::kAll ? logits + done * vocab_size : logits;
    const StepEntry entry{.sequence = sequence, .num_tokens = count};
    VARVE_RETURN_IF_ERROR(
        RunStep(cache, {&entry, 1}, tokens.subspan(done, count), logits_from, out));
    done += count;
    if (!progress) return {};
    const bool go_on = progress(static_cast<int64_t>(done));
    clock_.Start();  // the caller's time is not ours
    return go_on ? Status() : FailedPrecondition("stopped");
  };
  while (done < tokens.size()) {
    const Status status = run_step();
    if (!status.ok()) {
      return Status(status.code(), fmt::format("after {} of {} tokens: {}", done, tokens.size(),
                                               status.message()));
    }
  }
  return {};
}

Status DecoderRunner::Decode(Cache& cache, std::span<const DecodeEntry> entries, float* logits) {
  clock_.Start();
  if (logits == nullptr) return InvalidArgument(kNoLogits);
  entries_.clear();
  tokens_.clear();
  for (const DecodeEntry& entry : entries) {
    entries_.push_back({.sequence = entry.sequence, .num_tokens = 1});
    tokens_.push_back(entry.token);
  }
  VARVE_RETURN_IF_ERROR(CheckCall(cache, tokens_));
  return RunStep(cache, entries_, tokens_, /*logits_from=*/0, logits);
}

}  // namespace varve
