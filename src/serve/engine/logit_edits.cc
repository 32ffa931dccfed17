#include "serve/engine/logit_edits.h"

#include <cstddef>

namespace varve::serve {

void LogitEdits::Apply(std::span<float> logits) const {
  const auto in_range = [&](int32_t token) {
    return token >= 0 && static_cast<size_t>(token) < logits.size();
  };
  for (const auto& [token, bias] : options_.bias) {
    if (in_range(token)) logits[static_cast<size_t>(token)] += bias;
  }
  if (options_.presence_penalty == 0 && options_.frequency_penalty == 0) return;
  for (const auto& [token, count] : counts_) {
    if (!in_range(token)) continue;
    logits[static_cast<size_t>(token)] -=
        options_.presence_penalty + options_.frequency_penalty * static_cast<float>(count);
  }
}

}  // namespace varve::serve
