#include "serve/engine/step_scheduler.h"

#include <algorithm>
#include <utility>

namespace varve::serve {

std::optional<size_t> NextReader(std::span<const ReadingPrompt> reading, uint64_t turn) {
  if (reading.empty()) return std::nullopt;
  const bool by_age = turn % 2 == 1;
  const auto order = [by_age](const ReadingPrompt& prompt) {
    return std::pair(by_age ? 0 : prompt.tokens_read, prompt.arrival);
  };
  return std::min_element(reading.begin(), reading.end(),
                          [&](const auto& a, const auto& b) { return order(a) < order(b); })
      ->slot;
}

int64_t ChunkEnd(int64_t begin, int64_t num_tokens, int page_tokens, int64_t max_chunk) {
  const int64_t last_page = (num_tokens - 1) / page_tokens * page_tokens;
  const bool tail_is_few = num_tokens - last_page <= kFewTokens;
  if (begin >= last_page) return num_tokens;
  if (begin % page_tokens != 0) {
    // Behind generated tokens that were reused: up to the end, or to a border.
    if (num_tokens - begin <= max_chunk) return num_tokens;
    return (begin + std::max<int64_t>(max_chunk, page_tokens)) / page_tokens * page_tokens;
  }
  const int64_t whole_pages = std::max<int64_t>(max_chunk / page_tokens, 1) * page_tokens;
  const int64_t end = begin + whole_pages;
  if (tail_is_few) return std::min(end, last_page);
  // A tail that is long enough may go with the pages before it.
  return end >= last_page && num_tokens - begin <= max_chunk ? num_tokens
                                                             : std::min(end, last_page);
}

std::optional<size_t> NextWaiting(std::span<const WaitingRequest> waiting) {
  std::optional<size_t> best;
  for (size_t i = 0; i < waiting.size(); ++i) {
    if (!waiting[i].ready) continue;
    const auto order = [](const WaitingRequest& request) {
      return std::pair(request.running_of_tenant, request.arrival);
    };
    if (!best || order(waiting[i]) < order(waiting[*best])) best = i;
  }
  return best;
}

}  // namespace varve::serve
