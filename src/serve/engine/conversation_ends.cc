#include "serve/engine/conversation_ends.h"

#include <algorithm>
#include <utility>

namespace varve::serve {
namespace {

int64_t CommonTokens(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

ConversationEnds::~ConversationEnds() {
  while (DropOldest()) continue;
}

ConversationEnds::Place ConversationEnds::Drop(Place place) {
  // A sequence that is not there any more has no pages either.
  static_cast<void>(cache_.Free(place->sequence));
  return ends_.erase(place);
}

void ConversationEnds::Keep(End end) {
  ends_.push_back(std::move(end));
  if (ends_.size() > most_) DropOldest();
}

int64_t ConversationEnds::FirstCut(const End& end) const {
  const auto page_tokens = static_cast<int64_t>(cache_.shape().page_tokens);
  return cuts_full_pages_ ? 0 : static_cast<int64_t>(end.tokens.size()) / page_tokens * page_tokens;
}

std::optional<ConversationEnds::Hit> ConversationEnds::Take(std::span<const int32_t> prompt,
                                                            const std::string& tenant,
                                                            int64_t least) {
  Place best = ends_.end();
  int64_t num_tokens = std::max<int64_t>(least, 1) - 1;
  for (Place end = ends_.begin(); end != ends_.end(); ++end) {
    if (end->tenant != tenant) continue;
    const int64_t common = CommonTokens(prompt, end->tokens);
    if (common <= num_tokens || common <= end->prompt_tokens || common < FirstCut(*end)) continue;
    best = end;
    num_tokens = common;
  }
  if (best == ends_.end()) return std::nullopt;
  const bool is_continued = num_tokens == static_cast<int64_t>(best->tokens.size());
  // One that goes on is moved; one that took another turn may be wanted again.
  const Result<SequenceId> taken =
      is_continued ? Result<SequenceId>(best->sequence) : cache_.Fork(best->sequence);
  if (!taken.ok()) return std::nullopt;
  if (is_continued) {
    ends_.erase(best);
  } else if (!cache_.Truncate(*taken, num_tokens).ok()) {
    static_cast<void>(cache_.Free(*taken));
    return std::nullopt;
  }
  return Hit{*taken, num_tokens};
}

bool ConversationEnds::DropOldest() {
  if (ends_.empty()) return false;
  Drop(ends_.begin());
  return true;
}

void ConversationEnds::DropOlderThan(double time_s) {
  while (!ends_.empty() && ends_.front().kept_s < time_s) DropOldest();
}

void ConversationEnds::DropEvicted() {
  for (Place end = ends_.begin(); end != ends_.end();) {
    const bool is_whole = prefixes_.Find(end->keys) == end->keys.size();
    end = is_whole ? std::next(end) : Drop(end);
  }
}

void ConversationEnds::Forget(std::span<const int32_t> tokens, const std::string& tenant) {
  for (Place end = ends_.begin(); end != ends_.end();) {
    const bool is_it = end->tenant == tenant && CommonTokens(tokens, end->tokens) ==
                                                    static_cast<int64_t>(end->tokens.size());
    end = is_it ? Drop(end) : std::next(end);
  }
}

}  // namespace varve::serve
