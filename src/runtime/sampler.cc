#include "runtime/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>

#include "runtime/sampler_weights.h"

namespace varve {

namespace {

// Highest logit first, then lowest id: a total order, so that any way of sorting gives one result.
bool Better(const std::pair<float, int32_t>& a, const std::pair<float, int32_t>& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

Status OutOfRange(const char* option, double value, const char* range) {
  return InvalidArgument(fmt::format("{} {} is not in {}", option, value, range));
}

}  // namespace

Status CheckSamplerOptions(const SamplerOptions& o) {
  if (!(o.temperature >= 0 && o.temperature <= 100)) {
    return OutOfRange("temperature", o.temperature, "[0, 100]");
  }
  if (o.top_k < 0) return OutOfRange("top_k", o.top_k, "[0, ∞)");
  if (!(o.top_p > 0 && o.top_p <= 1)) return OutOfRange("top_p", o.top_p, "(0, 1]");
  if (!(o.min_p >= 0 && o.min_p <= 1)) return OutOfRange("min_p", o.min_p, "[0, 1]");
  if (!(o.repetition_penalty > 0 && o.repetition_penalty <= 100)) {
    return OutOfRange("repetition_penalty", o.repetition_penalty, "(0, 100]");
  }
  if (o.repetition_window < 0 || o.repetition_window > (1 << 24)) {
    return OutOfRange("repetition_window", o.repetition_window, "[0, 16777216]");
  }
  return Status();
}

Sampler::Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {}

void Sampler::Observe(int32_t token) {
  if (options_.repetition_penalty == 1.0f || options_.repetition_window <= 0) return;
  if (recent_.size() < static_cast<size_t>(options_.repetition_window)) {
    recent_.push_back(token);
    return;
  }
  recent_[recent_next_] = token;
  recent_next_ = (recent_next_ + 1) % recent_.size();
}

void Sampler::FillCandidates(std::span<const float> logits) {
  candidates_.clear();
  for (size_t id = 0; id < logits.size(); ++id) {
    if (std::isfinite(logits[id])) candidates_.emplace_back(logits[id], static_cast<int32_t>(id));
  }
  if (recent_.empty()) return;
  std::vector<int32_t> seen = recent_;
  std::sort(seen.begin(), seen.end());
  const float penalty = options_.repetition_penalty;
  for (auto& [logit, id] : candidates_) {
    if (!std::binary_search(seen.begin(), seen.end(), id)) continue;
    logit = logit > 0 ? logit / penalty : logit * penalty;
    logit = std::clamp(logit, -FLT_MAX, FLT_MAX);
  }
}

// The first `count` of candidates_ are the best, in order.
void Sampler::SortBest(size_t count) {
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(count),
                    candidates_.end(), Better);
}

void Sampler::KeepTopP(float best) {
  if (options_.top_p >= 1.0f) return;
  uint64_t sum = 0;
  for (const auto& [logit, id] : candidates_) sum += SoftmaxWeight(best, logit, 1.0f);
  const double wanted = static_cast<double>(options_.top_p) * static_cast<double>(sum);
  // Mostly a few candidates have the mass; sorting all of a large vocabulary is the exception.
  uint64_t held = 0;
  size_t kept = 0;
  for (size_t sorted = 64; kept < candidates_.size(); sorted *= 8) {
    sorted = std::min(sorted, candidates_.size());
    SortBest(sorted);
    held = 0;
    for (kept = 0; kept < sorted;) {
      held += SoftmaxWeight(best, candidates_[kept++].first, 1.0f);
      if (static_cast<double>(held) >= wanted) return candidates_.resize(kept);
    }
  }
}

void Sampler::KeepMinP(float best) {
  if (options_.min_p <= 0.0f) return;
  const double least = static_cast<double>(options_.min_p) * static_cast<double>(kHighestWeight);
  std::erase_if(candidates_, [&](const auto& candidate) {
    return static_cast<double>(SoftmaxWeight(best, candidate.first, 1.0f)) < least;
  });
}

int32_t Sampler::Draw(float best) {
  weights_.clear();
  uint64_t sum = 0;
  for (const auto& [logit, id] : candidates_) {
    weights_.push_back(SoftmaxWeight(best, logit, options_.temperature));
    sum += weights_.back();
  }
  uint64_t left = ScaleRandom(random_.Next(), sum);
  size_t chosen = 0;
  while (left >= weights_[chosen]) left -= weights_[chosen++];
  return candidates_[chosen].second;
}

Result<int32_t> Sampler::Sample(std::span<const float> logits) {
  if (logits.size() > kMaxWeights) {
    return InvalidArgument(fmt::format("logits: {} > {}", logits.size(), kMaxWeights));
  }
  FillCandidates(logits);
  if (candidates_.empty()) {
    return Status(StatusCode::kDataLoss,
                  fmt::format("logits: none of {} is finite", logits.size()));
  }
  const auto best = std::min_element(candidates_.begin(), candidates_.end(), Better);
  int32_t token = best->second;
  if (options_.temperature > 0.0f) {
    const float best_logit = best->first;
    const auto top_k = static_cast<size_t>(std::max(options_.top_k, 0));
    if (top_k > 0 && top_k < candidates_.size()) {
      SortBest(top_k);
      candidates_.resize(top_k);
    }
    KeepTopP(best_logit);
    KeepMinP(best_logit);
    token = Draw(best_logit);
  }
  Observe(token);
  return token;
}

}  // namespace varve
