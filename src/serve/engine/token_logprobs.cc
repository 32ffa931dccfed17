#include "serve/engine/token_logprobs.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <vector>

namespace varve::serve {

AnswerToken LogprobsOf(std::span<const float> logits, int32_t token, int num_best) {
  float highest = -FLT_MAX;
  for (const float logit : logits) {
    if (std::isfinite(logit)) highest = std::max(highest, logit);
  }
  double sum = 0;
  for (const float logit : logits) {
    if (std::isfinite(logit)) sum += std::exp(static_cast<double>(logit) - highest);
  }
  const double log_sum = static_cast<double>(highest) + std::log(sum);
  const auto logprob = [&](int32_t id) {
    const float logit = logits[static_cast<size_t>(id)];
    return std::isfinite(logit) ? static_cast<float>(static_cast<double>(logit) - log_sum)
                                : -FLT_MAX;
  };
  AnswerToken result{.token = token, .logprob = logprob(token), .best = {}};
  if (num_best <= 0) return result;
  std::vector<int32_t> ids;
  ids.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) ids.push_back(static_cast<int32_t>(i));
  }
  const size_t count = std::min(ids.size(), static_cast<size_t>(num_best));
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count), ids.end(),
                    [&](int32_t a, int32_t b) {
                      const float x = logits[static_cast<size_t>(a)];
                      const float y = logits[static_cast<size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  for (size_t i = 0; i < count; ++i) result.best.push_back({ids[i], logprob(ids[i])});
  return result;
}

}  // namespace varve::serve
