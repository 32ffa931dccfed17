#include "varve/step.h"

#include <algorithm>
#include <string>
#include <utility>

namespace varve {
namespace {

Status Closed(const char* call) {
  return FailedPrecondition(std::string(call) +
                            ": the step is closed (committed, aborted, failed or moved from)");
}

}  // namespace

Result<Step> Step::Begin(Cache& cache, std::span<const StepEntry> entries) {
  VARVE_RETURN_IF_ERROR(cache.BeginStep(entries));
  return Step(&cache);
}

Result<Step> Step::Begin(Cache& cache, SequenceId sequence, int num_tokens) {
  const StepEntry entry{sequence, num_tokens};
  return Begin(cache, {&entry, 1});
}

Step::Step(Step&& other) noexcept : cache_(std::exchange(other.cache_, nullptr)) {}

Step& Step::operator=(Step&& other) noexcept {
  if (this != &other) {
    Abort();
    cache_ = std::exchange(other.cache_, nullptr);
  }
  return *this;
}

Step::~Step() { Abort(); }

Status Step::Pass(Status status) {
  // Not aborted later: by then the cache may have another step.
  if (!status.ok()) cache_ = nullptr;
  return status;
}

Status Step::Append(int layer, SequenceId sequence, const RowsView& keys, const RowsView& values) {
  if (cache_ == nullptr) return Closed("Append");
  return Pass(cache_->Append(layer, sequence, keys, values));
}

Status Step::ImportBlocks(int layer, SequenceId sequence, const BlockRowsView& keys,
                          const BlockRowsView& values) {
  if (cache_ == nullptr) return Closed("ImportBlocks");
  return Pass(cache_->ImportBlocks(layer, sequence, keys, values));
}

Status Step::Attend(int layer, std::span<const AttendRequest> requests,
                    const AttendOptions& options) {
  if (cache_ == nullptr) return Closed("Attend");
  return Pass(cache_->Attend(layer, requests, options));
}

Status Step::Commit() {
  if (cache_ == nullptr) return Closed("Commit");
  return std::exchange(cache_, nullptr)->EndStep();
}

void Step::Abort() {
  if (cache_ != nullptr) std::exchange(cache_, nullptr)->AbortStep();
}

Status Prefill(Cache& cache, SequenceId sequence, int64_t num_tokens, const PrefillLayers& layers) {
  if (num_tokens < 0) {
    return InvalidArgument("Prefill: num_tokens " + std::to_string(num_tokens) + " < 0");
  }
  for (int64_t first = 0; first < num_tokens;) {
    VARVE_ASSIGN_OR_RETURN(const int most, cache.MaxStepTokens(sequence));
    const int count = static_cast<int>(std::min<int64_t>(most, num_tokens - first));
    VARVE_ASSIGN_OR_RETURN(Step step, Step::Begin(cache, sequence, count));
    VARVE_RETURN_IF_ERROR(layers(step, first, count));
    VARVE_RETURN_IF_ERROR(step.Commit());
    first += count;
  }
  return Status();
}

}  // namespace varve
